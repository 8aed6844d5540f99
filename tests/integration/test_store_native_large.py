"""Ranges with many keys over the native protocol: read in pages, few at once, however many are asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_store_native import connected, put, serving

from minikube_py.mvcc.types import RangeRequest, RangeResult
from minikube_py.store import paging
from minikube_py.store.limits import LARGE_AT_ONCE

KEYS = 25
ASKED = [
    RangeRequest(b"/a", b"/b"),
    RangeRequest(b"/a", b"/b", sort_target="VALUE", sort_order="DESCEND"),
    RangeRequest(b"/a", b"/b", revision=20),
    RangeRequest(b"/a", b"/b", min_mod_revision=9, keys_only=True),
]


async def test_many_whole_ranges_at_once_are_read_in_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE", 4)
    async with serving(tmp_path) as server, connected(server) as client:
        for number in range(KEYS):
            await put(client, b"/a/%02d" % number, b"%d" % (number * 7 % KEYS))
        member = server.member
        expected = [member.read(asked) for asked in ASKED]
        at_once = most = 0
        whole, pages = member.read, paging.read

        def read(asked: RangeRequest) -> RangeResult:
            found = whole(asked)
            assert len(found.kvs) <= paging.PAGE
            return found

        async def counted(member: paging.Readable, asked: RangeRequest) -> RangeResult:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            try:
                return await pages(member, asked)
            finally:
                at_once -= 1

        monkeypatch.setattr(member, "read", read)
        monkeypatch.setattr(paging, "read", counted)
        found = await asyncio.gather(*(client.range(asked) for asked in ASKED * 15))
        assert found == expected * 15 and most == LARGE_AT_ONCE
