"""Nothing listens at a peer's address: its process has ended, also where its name has several addresses."""

from __future__ import annotations

import asyncio
import errno
import socket
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from minikube_py.errors import Unavailable
from minikube_py.store.peer_connection import answered, is_refusal

REFUSED = f"[Errno {errno.ECONNREFUSED}] Connect call failed"


async def connecting(*hosts: str) -> Unavailable:
    """The error of a link to a name with these addresses, at a port where nothing listens."""
    loop = asyncio.get_running_loop()
    with socket.socket() as bound:
        # Bound, and not listening: no other process gets the port meanwhile.
        bound.bind(("", 0))
        port = bound.getsockname()[1]

        async def resolved(*_: object, **__: object) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

        link: Any = SimpleNamespace(loop=loop)
        with mock.patch.object(loop, "getaddrinfo", resolved), pytest.raises(Unavailable) as raised:
            await answered(link, f"store-1:{port}", None, loop.create_future(), 5.0)
        return raised.value


@pytest.mark.real_time("what asyncio says of real sockets")
async def test_a_name_whose_addresses_all_refuse_has_nobody_there() -> None:
    for hosts in (("127.0.0.1",), ("127.0.0.1", "127.0.0.2"), ("127.0.0.1", "127.0.0.2", "127.0.0.3")):
        assert is_refusal((await connecting(*hosts)).__cause__), hosts


@pytest.mark.real_time("what asyncio says of real sockets")
async def test_one_address_without_an_answer_leaves_it_open() -> None:
    """The process may listen there, and there alone."""
    error = await connecting("127.0.0.1", "255.255.255.255")
    assert REFUSED in str(error.__cause__) and not is_refusal(error.__cause__)


@pytest.mark.parametrize(
    "text",
    [
        "Multiple exceptions: ",
        f"Multiple exceptions: {REFUSED} ('10.0.0.1', 1), [Errno 113] Connect call failed ('10.0.0.2', 1)",
        f"Multiple exceptions: {REFUSED} ('10.0.0.1', 1), no matching local address with family=10 found",
        f"{REFUSED} ('10.0.0.1', 1), {REFUSED} ('10.0.0.2', 1)",
    ],
)
def test_other_texts_are_no_refusal(text: str) -> None:
    assert not is_refusal(OSError(text)) and not is_refusal(None)


def test_addresses_of_both_families_may_refuse() -> None:
    assert is_refusal(OSError(f"Multiple exceptions: {REFUSED} ('::1', 1, 0, 0), {REFUSED} ('127.0.0.1', 1)"))
