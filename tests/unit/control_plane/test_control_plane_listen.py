"""Under which address an API server is published as the endpoint of the `kubernetes` service, and told to clients."""

from __future__ import annotations

import pytest

from minikube_py.control_plane import listen


class Core:
    def __init__(self) -> None:
        self.published: list[tuple[str, int]] = []
        self.address = ""

    async def publish(self, host: str, port: int) -> None:
        self.published.append((host, port))


@pytest.mark.parametrize(
    ("host", "outward", "published", "told"),
    [
        pytest.param("10.1.2.3", "192.168.0.9", "10.1.2.3", "10.1.2.3:6443", id="an address of its own"),
        pytest.param("127.0.0.1", "192.168.0.9", "192.168.0.9", "127.0.0.1:6443", id="loopback, which no endpoint has"),
        pytest.param("0.0.0.0", "192.168.0.9", "192.168.0.9", "192.168.0.9:6443", id="all addresses"),
        pytest.param("::", "192.168.0.9", "192.168.0.9", "192.168.0.9:6443", id="all addresses, of both kinds"),
        pytest.param("::1", None, None, "[::1]:6443", id="loopback of the other kind"),
        pytest.param("127.0.0.1", None, None, "127.0.0.1:6443", id="a host that leads nowhere publishes none"),
        pytest.param("0.0.0.0", None, None, "127.0.0.1:6443", id="all addresses of a host that leads nowhere"),
    ],
)
async def test_the_published_address(monkeypatch, host, outward, published, told):
    monkeypatch.setattr(listen, "_outward_address", lambda: outward)
    core = Core()
    await listen.publish(core, host, 6443)
    assert core.published == ([(published, 6443)] if published else [])
    # Somebody listens there: clients are sent to it for the keys of service accounts.
    assert core.address == told
