"""What an etcd holds arrives whatever its link carries in a second; one that hangs is not waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from virtual_time import LoopClock

from minikube_py.errors import InvalidRequest, Unavailable
from minikube_py.etcd.client import READ_ATTEMPT_S
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import Excluded, Late, refusal_of
from minikube_py.etcd.messages import pb
from minikube_py.etcd.pages import MOST, PAGE_BYTES, Pages

SMALL, LARGE = 500, 30
LARGE_BYTES = 1 << 20
HIGH = b"/registry0"


class Link:
    """`EtcdClient` over a link of that many bytes a second; 0: nothing arrives. Small values, then large ones."""

    place = "fake"

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.late = 0
        self.largest_bytes = 0
        self.revisions: list[int] = []
        small = {b"/registry/a/%05d" % number: b"x" for number in range(SMALL)}
        large = {b"/registry/b/%05d" % number: b"x" * LARGE_BYTES for number in range(LARGE)}
        self._stored = [pb.KeyValue(key=key, value=value) for key, value in (small | large).items()]

    @property
    def keys(self) -> list[bytes]:
        return [kv.key for kv in self._stored]

    async def read(self, name: str, request: Any, once_s: float | None = None) -> Any:
        found = [kv for kv in self._stored if request.key <= kv.key < (request.range_end or request.key + b"\0")]
        limit = request.limit or len(found)
        header = pb.ResponseHeader(revision=7 + len(self.revisions))
        answer = pb.RangeResponse(header=header, kvs=found[:limit], more=len(found) > limit)
        takes_s = answer.ByteSize() / self.rate if self.rate else 1e9
        left_s = once_s or READ_ATTEMPT_S
        await asyncio.sleep(min(takes_s, left_s))
        if takes_s > left_s:
            self.late += 1
            raise Late("did not answer in time")
        if request.range_end:
            self.revisions.append(request.revision)
        self.largest_bytes = max(self.largest_bytes, answer.ByteSize())
        return answer

    def pass_over(self, place: str) -> None:
        pass


async def keys_read(pages: Pages) -> list[bytes]:
    return [kv.key async for each in pages.read(pb.RangeRequest(key=b"/registry/", range_end=HIGH)) for kv in each.kvs]


@pytest.mark.parametrize("rate", [30e3, 300e3, 3e6, 1e9])
async def test_small_and_large_values_arrive_at_any_rate(rate: float) -> None:
    link = Link(rate)
    pages = Pages(link, LoopClock())  # type: ignore[arg-type]
    for _ in range(2):
        assert await keys_read(pages) == link.keys
        assert link.late <= 10 and 1 <= pages.keys <= MOST
        assert set(link.revisions[1:]) == {7}
        link.late, link.revisions = 0, []


async def test_pages_of_large_values_are_small() -> None:
    link = Link(1e9)
    link._stored = link._stored[SMALL:]
    assert await keys_read(Pages(link, LoopClock())) == link.keys  # type: ignore[arg-type]
    assert LARGE_BYTES < link.largest_bytes <= 2 * PAGE_BYTES


async def test_an_etcd_that_hangs_ends_the_reading() -> None:
    link = Link(1e9)
    pages = Pages(link, LoopClock())  # type: ignore[arg-type]
    await keys_read(pages)
    link.rate = 0
    with pytest.raises(Late):
        await keys_read(pages)
    assert link.late == 2


class Members(Link):
    """The first of them hangs."""

    place = "a"

    async def read(self, name: str, request: Any, once_s: float | None = None) -> Any:
        self.rate = 0 if self.place == "a" else 1e9
        return await super().read(name, request, once_s)

    def pass_over(self, place: str) -> None:
        if place == self.place:
            self.place = "b" if place == "a" else "a"


async def test_a_first_member_that_hangs_at_the_start_is_passed_over_soon() -> None:
    link, clock = Members(0), LoopClock()
    begin_s = clock.monotonic_s()
    assert await keys_read(Pages(link, clock)) == link.keys  # type: ignore[arg-type]
    assert link.late == 1 and clock.monotonic_s() - begin_s < 2 * READ_ATTEMPT_S


async def test_a_member_that_hangs_for_longer_than_a_page_of_one_key_may_take_is_passed_over() -> None:
    link = Link(30e3)
    link._stored = link._stored[SMALL:]
    pages = Pages(link, LoopClock())  # type: ignore[arg-type]
    await keys_read(pages)
    assert pages.keys == 1
    pages._client = members = Members(0)  # type: ignore[assignment]
    with pytest.raises(Late):
        await keys_read(pages)
    assert members.place == "b"
    assert await keys_read(pages) == members.keys


async def test_reads_that_are_late_together_are_all_tried_again() -> None:
    link = Link(1e9)
    link._stored = link._stored[SMALL:]
    pages = Pages(link, LoopClock())  # type: ignore[arg-type]
    pages.keys, link.rate = 2, 300e3
    assert await asyncio.gather(*(keys_read(pages) for _ in range(3))) == [link.keys] * 3


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (StatusCode.FAILED_PRECONDITION, "etcdserver: rpc not supported for learner", Unavailable),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty", Excluded),
        (StatusCode.PERMISSION_DENIED, "etcdserver: permission denied", Excluded),
        (StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token", Excluded),
        (StatusCode.INVALID_ARGUMENT, "etcdserver: key is not provided", InvalidRequest),
    ],
)
def test_a_learner_and_a_closed_door_are_not_the_requests_fault(code: Any, text: str, kind: type[Exception]) -> None:
    """The next member is asked instead of a learner; a client that etcd does not let in gets 503, not 400."""
    assert type(refusal_of(code, text)) is kind
