"""Under which address an API server is published as the endpoint of the `kubernetes` service."""

from __future__ import annotations

import pytest

from minikube_py.control_plane import listen


class Core:
    def __init__(self) -> None:
        self.published: list[tuple[str, int]] = []

    async def publish(self, host: str, port: int) -> None:
        self.published.append((host, port))


@pytest.mark.parametrize(
    ("host", "outward", "published"),
    [
        pytest.param("10.1.2.3", "192.168.0.9", "10.1.2.3", id="an address of its own"),
        pytest.param("127.0.0.1", "192.168.0.9", "192.168.0.9", id="loopback, which no endpoint may have"),
        pytest.param("0.0.0.0", "192.168.0.9", "192.168.0.9", id="all addresses"),
        pytest.param("::", "192.168.0.9", "192.168.0.9", id="all addresses, of both kinds"),
        pytest.param("127.0.0.1", None, None, id="a host that leads nowhere publishes none"),
    ],
)
async def test_the_published_address(monkeypatch, host, outward, published):
    monkeypatch.setattr(listen, "_outward_address", lambda: outward)
    core = Core()
    await listen.publish(core, host, 6443)
    assert core.published == ([(published, 6443)] if published else [])
