"""What ranges cover, beside the keys themselves: half-open ends, neighbours, ranges within ranges."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st
from sortedcontainers import SortedSet

from minikube_py.mvcc.overlap import Cover

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
