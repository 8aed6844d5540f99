"""What ranges cover, beside the keys themselves: half-open ends, neighbours, ranges within ranges."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sortedcontainers import SortedSet

from minikube_py.errors import InvalidRequest
from minikube_py.mvcc import budgets
from minikube_py.mvcc.codec import pack, unpack
from minikube_py.mvcc.overlap import Cover, Overlap, check_overlap
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Compare, DeleteRange, Op, Put, RangeRequest, Txn
from minikube_py.mvcc.validate import validate

KEYS = [b"", b"a", b"a\0", b"b", b"b\0", b"c", b"d", b"\xff"]
RANGES = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)), max_size=6)


def cover(ranges: list[tuple[bytes, bytes]]) -> Cover:
    made = Cover()
    for start, end in ranges:
        made.add(start, end)
    return made


def covered(ranges: list[tuple[bytes, bytes]]) -> set[bytes]:
    return {key for key in KEYS for start, end in ranges if start <= key < end}


@given(RANGES, RANGES, st.sets(st.sampled_from(KEYS)))
@settings(max_examples=400)
def test_a_cover_holds_what_one_of_its_ranges_holds(
    ranges: list[tuple[bytes, bytes]], others: list[tuple[bytes, bytes]], keys: set[bytes]
) -> None:
    made = cover(ranges)
    assert {key for key in KEYS if made.holds(key)} == covered(ranges)
    assert made.touches(SortedSet(keys)) == bool(keys & covered(ranges))
    both = cover(ranges).united(cover(others))
    assert {key for key in KEYS if both.holds(key)} == covered([*ranges, *others])
    assert both.touches(SortedSet(keys)) == bool(keys & covered([*ranges, *others]))
    apart = list(zip(both._starts, (both._ends[start] for start in both._starts), strict=True))
    assert all(start < end for start, end in apart)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(apart)), "as few as can be"


NAMES = [b"a", b"b", b"c", b"d"]
ENDS = [b"", b"\0", b"b", b"c", b"zz"]


def drawn_ops(rng: random.Random, depth: int) -> tuple[Op, ...]:
    found: list[Op] = []
    for _ in range(rng.randrange(5)):
        kind, name = rng.randrange(4 if depth else 3), rng.choice(NAMES)
        if kind == 0:
            found.append(Put(name, b""))
        elif kind == 1:
            found.append(RangeRequest(name, rng.choice(ENDS)))
        elif kind == 2:
            found.append(DeleteRange(name, rng.choice(ENDS)))
        else:
            found.append(Txn((), drawn_ops(rng, depth - 1), drawn_ops(rng, depth - 1)))
    return tuple(found)


def touched(level: tuple[Op, ...]) -> tuple[set[bytes], set[bytes]]:
    """What is put and deleted, among `NAMES`, as etcd's checkIntervals goes about it (api/v3rpc/key.go)."""
    puts: set[bytes] = set()
    deletes: set[bytes] = set()

    def require(wrong: object) -> None:
        if wrong:
            raise Overlap

    for op in level:
        if isinstance(op, DeleteRange):
            deletes |= {key for key in NAMES if (op.key <= key < op.range_end if op.range_end else key == op.key)}
    for op in level:
        if isinstance(op, Txn):
            (then_puts, then_deletes), (else_puts, else_deletes) = touched(op.success), touched(op.failure)
            inner = then_puts | else_puts
            require(inner & (puts | deletes))
            puts |= inner
            deletes |= then_deletes | else_deletes
    for op in level:
        if isinstance(op, Put):
            require(op.key in puts | deletes)
            puts.add(op.key)
    return puts, deletes


def test_a_txn_may_not_write_a_key_twice_whatever_it_is_made_of() -> None:
    """Beside sets of keys, branch by branch."""

    def overlaps(look: Callable[[tuple[Op, ...]], object], level: tuple[Op, ...]) -> bool:
        try:
            look(level)
        except Overlap:
            return True
        return False

    rng = random.Random(1)
    seen: Counter[bool] = Counter()
    for _ in range(3000):
        level = drawn_ops(rng, rng.randrange(3))
        verdict = overlaps(check_overlap, level)
        assert verdict == overlaps(touched, level), level
        seen[verdict] += 1
    assert min(seen[True], seen[False]) > 500


def drawn_txn(rng: random.Random, depth: int) -> Txn:
    def branch() -> tuple[Op, ...]:
        found: list[Op] = []
        for _ in range(rng.randrange(3)):
            kind, name = rng.randrange(3 if depth else 2), rng.choice(NAMES)
            if kind == 0:
                found.append(Put(name, b"v"))
            elif kind == 1:
                found.append(RangeRequest(name, rng.choice([b"", b"zz"])))
            else:
                found.append(drawn_txn(rng, depth - 1))
        return tuple(found)

    compares = [
        Compare(rng.choice(NAMES), "VERSION", ">", 0, rng.choice([b"", b"zz"])) for _ in range(rng.randrange(3))
    ]
    return Txn(tuple(compares), branch(), branch())


def test_members_agree_whether_they_have_looked_at_a_txn_before_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member that was asked applies what it has validated, the others what they read from the log."""
    monkeypatch.setattr(budgets, "KEYS_MAX", 3)
    rng = random.Random(1)
    seen: Counter[type] = Counter()
    for _ in range(200):
        asked, other = StateMachine(), StateMachine()
        for _ in range(8):
            request = drawn_txn(rng, rng.randrange(3))
            fresh = unpack(pack(request))
            try:
                validate(request)
            except InvalidRequest:
                continue
            outcomes: list[object] = []
            for state, command in ((asked, request), (other, fresh)):
                try:
                    outcomes.append(state.apply(command))
                except InvalidRequest as error:
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1]
            seen[type(outcomes[0])] += 1
        assert asked.hash() == other.hash()
    assert seen[str] > 30
