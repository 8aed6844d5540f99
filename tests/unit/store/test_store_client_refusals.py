"""A write that was sent twice: what a refusal of the second sending says of it, and what it does not."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fake_store import FakeStore, Fate, fake_store
from virtual_time import LoopClock

from minikube_py.errors import LeaseExists, NoSpace, OutcomeUnknown
from minikube_py.mvcc.types import Compare, Put
from minikube_py.store.client import StoreClient

DOUBTS: tuple[Fate, ...] = ("lost before", "lost after", "unknown before", "unknown after")


@contextlib.asynccontextmanager
async def connected(store: FakeStore, **options: Any) -> AsyncIterator[StoreClient]:
    client = StoreClient(store.endpoints(), LoopClock(), random.Random(1), **options)
    await client.start()
    try:
        await client.txn((), (Put(b"/a", b"v"),))
        yield client
    finally:
        await client.close()


async def create(client: StoreClient, key: bytes) -> bool:
    """True where it was not there before."""
    return (await client.txn((Compare(key, "CREATE", "=", 0),), (Put(key, b"v"),))).succeeded


def fated(store: FakeStore, first: Fate, then: Fate) -> None:
    fates = iter((first,))
    store.fate = lambda: next(fates, then)


@pytest.mark.parametrize("fate", DOUBTS)
async def test_a_refusal_for_now_says_nothing_of_an_earlier_sending(fate: Fate) -> None:
    """Of one who will not wait, the second sending is refused; the first may be what counts."""
    async with fake_store() as store, connected(store, fail_fast=True) as client:
        fated(store, fate, "refused")
        with pytest.raises(OutcomeUnknown, match=r"may or may not have taken effect"):
            await create(client, b"/b")


@pytest.mark.parametrize("fate", DOUBTS)
async def test_nor_does_one_for_good_that_is_not_from_the_log(fate: Fate) -> None:
    """The next leader's disk is full, and the one before may have done it (histories 529 and 604 of the swarm)."""
    async with fake_store() as store, connected(store) as client:
        fated(store, fate, "no room")
        with pytest.raises(OutcomeUnknown, match="the disk is full; an earlier attempt of the write may or may not"):
            await create(client, b"/b")
        with pytest.raises(NoSpace):
            await create(client, b"/c")


@pytest.mark.parametrize("fate", DOUBTS)
async def test_a_refusal_from_the_log_is_one(fate: Fate) -> None:
    """The session knows what became of each sending."""
    async with fake_store() as store, connected(store) as client:
        await client.lease_grant(60, 5)
        fated(store, fate, "done")
        with pytest.raises(LeaseExists):
            await client.lease_grant(60, 5)
