"""host:port, from people and from other members."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.ports.addresses import PORT_MAX, split_address
from minikube_py.sim.edges import EDGE_INTS, EDGE_TEXTS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost:2379", ("localhost", 2379)),
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("store-0.store:1", ("store-0.store", 1)),
        ("localhost:65536", None),
        ("localhost:²", None),
        ("localhost:٣", None),
        ("localhost:-1", None),
        ("localhost:", None),
        ("localhost", None),
        (":2379", None),
        ("", None),
    ],
)
def test_addresses(text: str, found: tuple[str, int] | None) -> None:
    assert split_address(text) == found


@given(
    st.sampled_from(EDGE_TEXTS) | st.text(max_size=20),
    st.sampled_from([*map(str, EDGE_INTS), *EDGE_TEXTS]) | st.integers(0, 70000).map(str) | st.text(max_size=8),
)
def test_whatever_is_read_can_be_given_to_a_socket(host: str, port: str) -> None:
    found = split_address(f"{host}:{port}")
    assert found is None or (found[0] is not None and 0 <= found[1] <= PORT_MAX)


async def test_a_port_beyond_all_is_no_os_error() -> None:
    """So it must never come to a socket: nobody who handles OSErrors would see it."""
    with pytest.raises(OverflowError, match="0-65535"):
        await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", PORT_MAX + 1)
