"""Addresses that members tell, and a client cannot use."""

from __future__ import annotations

import asyncio
import random

import pytest
from fake_store import fake_store
from virtual_time import LoopClock

from minikube_py.mvcc.types import Put
from minikube_py.store.client import StoreClient

NO_ADDRESSES = ["127.0.0.1:99999", "store:²", "127.0.0.1:" + "9" * 400, "a..b:1", "\0:1", ":1"]


@pytest.mark.parametrize("advertised", NO_ADDRESSES)
@pytest.mark.parametrize("given", [1, 3])
async def test_an_address_that_can_be_none_keeps_nobody_from_the_others(advertised: str, given: int) -> None:
    """One member that was started with a wrong --advertise-client, and every client hears of it."""
    async with fake_store() as store:
        store.leader = 3
        store.members[0].advertised = store.members[1].advertised = advertised
        client = StoreClient(store.endpoints()[:given], LoopClock(), random.Random(1))
        async with asyncio.timeout(10):
            await client.start()
            await client.txn((), (Put(b"/a", b"v"),))
            await client.close()
