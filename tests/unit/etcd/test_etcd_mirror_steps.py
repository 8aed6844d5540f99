"""What an etcd holds is taken over in steps that are bounded, whatever it holds."""

from __future__ import annotations

import asyncio
import itertools

import orjson
import pytest

from minikube_py.etcd.mirror import KEYS_PER_STEP, OBJECTS_PER_STEP, REVISIONS_PER_STEP, Change, Mirror
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc import successor
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import DeclareFields, KeyValue, Put, RangeRequest, prefix_end
from minikube_py.store.explaining import explained

COUNT = 3_000


def node(number: int) -> bytes:
    allocatable = {"cpu": str(number % 64), "memory": "1Gi", "pods": "110"}
    return orjson.dumps({"metadata": {"name": f"n{number}"}, "status": {"allocatable": allocatable}})


class Turns:
    """A clock on which time does not pass, and every sleep is a turn of the loop."""

    def monotonic_s(self) -> float:
        return 0.0

    def wall_s(self) -> float:
        return 0.0

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(0)


def loaded(kvs: list[KeyValue], revision: int) -> Mirror:
    work = Mirror.loading(kvs, revision, (NODES, PODS))
    while True:
        try:
            next(work)
        except StopIteration as ended:
            return ended.value


async def test_a_mirror_that_was_replaced_is_freed_a_slice_at_a_time() -> None:
    key = NODES.prefix + b"n%05d"
    mirror = loaded([KeyValue(key % each, node(each), each + 2, each + 2, 1, 0) for each in range(COUNT)], COUNT + 1)
    for _ in mirror.applying([Change(key % each, COUNT + 2 + each, node(each + 1), 0) for each in range(COUNT)]):
        pass
    state = mirror.state
    index, table = state.index, state.tables.by_name[NODES.name]
    asked = RangeRequest(NODES.prefix, b"/registry/nodes0", where=Where((Comparison("free.cpu", ">=", ("60",)),)))
    clock = Turns()
    under_way = asyncio.create_task(explained(state, asked, clock))
    await asyncio.sleep(0)

    def held() -> list[int]:
        return [len(index.current), len(index.history), len(index.live), len(table._rows), len(table._own)]

    before = held()
    assert min(before) == COUNT
    for _ in mirror.disposing():
        now = held()
        assert all(was - left <= KEYS_PER_STEP for was, left in zip(before, now, strict=True))
        before = now
    assert not any(held()) and state.log.first > state.log.last
    # Whoever was trying ways to answer gives up, and does not take the rest for the whole.
    found = await under_way
    assert any("not tried" in each.reason for each in found.others)


def test_revisions_of_others_are_recorded_a_slice_at_a_time() -> None:
    mirror = Mirror()
    others = 20 * REVISIONS_PER_STEP + 5
    ours = [Change(b"/registry/a", others, b"1", 0), Change(b"/registry/b", 2 * others, b"2", 0)]
    before, seen = mirror.revision, set()
    for _ in itertools.chain(mirror.applying(ours), mirror.advancing(3 * others)):
        assert mirror.revision - before <= REVISIONS_PER_STEP
        before = mirror.revision
        # What is shown in between is true: a key is there from its revision on.
        current = len(mirror.state.index.current)
        assert current == sum(each.revision <= before for each in ours)
        seen.add(current)
    assert seen == {0, 1, 2} and mirror.revision == 3 * others


def test_no_step_takes_more_than_its_share_and_all_of_them_make_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    applied, kvs = StateMachine(), []
    for number in range(COUNT):
        key = NODES.prefix + b"n%05d" % number
        applied.apply(Put(key, node(number)))
        kvs.append(KeyValue(key, node(number), number + 2, number + 2, 1, 0))
    for each in (NODES, PODS):
        applied.apply(DeclareFields(each))
    decoded = 0
    decode = successor.decode

    def counted(value: bytes) -> object:
        nonlocal decoded
        decoded += 1
        return decode(value)

    monkeypatch.setattr(successor, "decode", counted)
    work, most, steps, mirror = Mirror.loading(kvs, COUNT + 1, (NODES, PODS)), 0, 0, None
    while mirror is None:
        before = decoded
        try:
            next(work)
        except StopIteration as ended:
            mirror = ended.value
        most, steps = max(most, decoded - before), steps + 1
    assert 0 < most <= 2 * OBJECTS_PER_STEP and steps >= COUNT // KEYS_PER_STEP + COUNT // (2 * OBJECTS_PER_STEP)
    asked = RangeRequest(
        NODES.prefix,
        prefix_end(NODES.prefix),
        where=Where((Comparison("free.cpu", ">=", ("60",)),)),
        fields=("free.cpu",),
    )
    mine, wanted = mirror.state.range(asked), applied.range(asked)
    assert (mine.kvs, mine.fields) == (wanted.kvs, wanted.fields) and len(mine.kvs) > COUNT // 64
    assert mirror.state.hash() == applied.hash()
