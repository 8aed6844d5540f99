"""Salvage beside a model: each entry puts a key of its own, so what is lost shows in keys, revisions and ranges."""

from __future__ import annotations

import itertools

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st
from test_store_salvage_shapes import NAME, segment, snapshot

from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.snapshot import records as records_of
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Put
from minikube_py.store.salvage import Gap, salvage
from minikube_py.wal.record import RecordType
from minikube_py.wal.snapshot import snapshot_name

SNAPSHOT_TERM = 3


def put(index: int) -> Put:
    return Put(b"/%02d" % index, b"%d" % index)


def state_after(index: int) -> StateMachine:
    state = StateMachine()
    for at in range(1, index + 1):
        state.apply(put(at))
    return state


def runs(indexes: list[int]) -> list[tuple[int, int]]:
    groups = itertools.groupby(enumerate(indexes), key=lambda each: each[1] - each[0])
    found = [[index for _, index in group] for _, group in groups]
    return [(group[0], group[-1]) for group in found]


@given(st.data(), st.integers(1, 8))
@settings(max_examples=200)
def test_what_is_left_and_what_is_missing_is_told_to_the_entry(data: st.DataObject, count: int) -> None:
    lost = data.draw(st.sets(st.integers(1, count), max_size=count), label="lost")
    base = data.draw(st.integers(0, count), label="snapshot")
    commit = data.draw(st.integers(0, count), label="commit")
    terms = sorted(data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count), label="terms"))
    entries = [
        (RecordType.ENTRIES, msgpack.packb((term, index, [pack(put(index))])))
        for index, term in enumerate(terms, start=1)
    ]
    log, places = segment([*entries, (RecordType.HARD_STATE, msgpack.packb((terms[-1], 0, commit)))])
    damaged = bytearray(log)
    for index in lost:
        damaged[places[index - 1][1] - 1] ^= 1
    files = {NAME: bytes(damaged)}
    if base:
        files[snapshot_name(base)] = snapshot(records_of(state_after(base)), base)
    made = salvage(sorted(files), files.__getitem__)
    there = [index for index in range(1, count + 1) if index not in lost]
    if not there and not base:
        assert made is None
        return
    assert made is not None
    applied = next((index - 1 for index in range(base + 1, count + 1) if index in lost), count)
    assert (made.base, made.applied) == (base, applied) and made.exact.hash() == state_after(applied).hash()
    reached = max([base, *there])
    assert (made.reached, made.term) == (reached, SNAPSHOT_TERM if reached == base else terms[reached - 1])
    known = max(reached, commit)
    missing = [index for index in range(applied + 1, known + 1) if index > base and (index in lost or index > reached)]
    expected = [Gap(first, last, first, last + 1 if last < reached else 0) for first, last in runs(missing)]
    assert made.gaps == expected
    standing = {index for index in range(1, count + 1) if index <= base or index in there}
    assert {(kv.key, kv.value, kv.mod_revision) for kv in made.state.index.current.values()} == {
        (put(index).key, put(index).value, index + 1) for index in standing
    }
    assert made.state.revision == reached + 1 and made.doubtful == [] and made.assumed == []
    assert made.unconfirmed == max(0, applied - max(base, commit))
    behind = any(index > max(there, default=0) for index in lost)
    assert made.whole == (not missing and not behind)
    for loss in made.log.losses:
        if loss.last:
            assert made.needed(loss) == (loss.last > base)
            gap = next((each for each in made.gaps if each.first <= loss.last and loss.first <= each.last), None)
            assert made.revisions(loss) == ((gap.after + 1, gap.revision) if gap else (0, 0))


@given(st.data(), st.integers(1, 8))
@settings(max_examples=100)
def test_parts_of_a_newer_snapshot_leave_gaps_that_hold_something_and_do_not_meet(
    data: st.DataObject, count: int
) -> None:
    """Its end is cut off: its keys are had, and what leads there may be missing, or lie behind it at once."""
    lost = data.draw(st.sets(st.integers(1, count), max_size=count), label="lost")
    base = data.draw(st.integers(1, count), label="snapshot")
    entries = [(RecordType.ENTRIES, msgpack.packb((1, index, [pack(put(index))]))) for index in range(1, count + 1)]
    log, places = segment([*entries, (RecordType.HARD_STATE, msgpack.packb((1, 0, count)))])
    damaged = bytearray(log)
    for index in lost:
        damaged[places[index - 1][1] - 1] ^= 1
    files = {NAME: bytes(damaged), snapshot_name(base): snapshot(records_of(state_after(base)), base)[:-1]}
    made = salvage(sorted(files), files.__getitem__)
    assert made is not None and not (made.whole and lost)
    applied = next((index - 1 for index in range(1, count + 1) if index in lost), count)
    assert (made.base, made.applied) == (0, applied) and made.exact.hash() == state_after(applied).hash()
    start = max(base, applied)
    behind = [index for index in range(start + 1, count + 1) if index in lost]
    expected = ([(applied + 1, base)] if base > applied else []) + runs(behind)
    assert [(gap.first, gap.last) for gap in made.gaps] == expected
    there = {index for index in range(1, count + 1) if index <= start or index not in lost}
    assert {kv.key for kv in made.state.index.current.values()} == {put(index).key for index in there}
