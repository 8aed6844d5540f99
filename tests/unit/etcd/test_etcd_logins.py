"""Passwords are hashed for each address in its turn: who floods, waits alone."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from virtual_time import run_virtually

from minikube_py.etcd.errors import TOO_MANY, Refused
from minikube_py.etcd.guard import SHOWN, Shown, address_shown
from minikube_py.etcd.node import Node
from minikube_py.etcd.users import HASHES_AT_ONCE, HASHES_PER_ADDRESS, SALT_BYTES, Users


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.7:4711", "10.0.0.7"),
        ("ipv6:%5B2001:db8:1:2:3::9%5D:4711", "2001:db8:1:2::"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:1", "10.0.0.7"),
        ("tcp:2001:db8:1:2::5:0", "2001:db8:1:2::"),
        ("tcp:10.0.0.7:0", "10.0.0.7"),
        ("unix:", ""),
        ("", ""),
    ],
)
def test_connections_of_one_host_count_together(peer: str, address: str) -> None:
    assert address_shown(peer) == address


def test_a_flood_of_logins_delays_another_address_by_one_hash_and_is_refused_beyond_its_bound() -> None:
    made: list[str] = []

    async def hashed(password: str, salt: bytes) -> bytes:
        await asyncio.sleep(1)
        made.append(password)
        return b"hash"

    async def run() -> None:
        users = Users(cast(Node, None), hashed)

        def login(address: str, name: str) -> asyncio.Task[Any]:
            SHOWN.set(lambda: Shown(peer=f"ipv4:{address}:{len(name)}"))
            return asyncio.ensure_future(users._fits(name, bytes(SALT_BYTES) + b"hash"))

        flood = [login("10.0.0.1", f"wrong{number}") for number in range(HASHES_PER_ADDRESS)]
        await asyncio.sleep(0.5)
        too_many = login("10.0.0.1", "one more")
        others = [login(f"10.0.0.{host}", f"right{host}") for host in (2, 3)]
        with pytest.raises(Refused) as refused:
            await too_many
        assert (refused.value.code, str(refused.value)) == TOO_MANY
        assert all([await each for each in others])
        ahead = [name for name in made if name.startswith("wrong")]
        assert len(ahead) <= HASHES_AT_ONCE
        flood.pop().cancel()
        assert all([await each for each in flood])
        assert not users._addresses
        assert await login("10.0.0.1", "one more")

    run_virtually(run)
