from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.studies.bloom.filters.bit_strings import pack, select, unpack
from minikube_py.studies.bloom.filters.elias_fano import EliasFano


@settings(max_examples=60)
@given(data=st.data(), universe=st.sampled_from((16, 100, 1000, 1 << 20, 1 << 60)))
def test_it_is_the_sequence(data: st.DataObject, universe: int) -> None:
    numbers = sorted(data.draw(st.lists(st.integers(0, universe - 1), max_size=300)))
    packed = EliasFano(np.array(numbers, dtype=np.uint64), universe)
    assert packed.numbers().tolist() == numbers
    for _ in range(8):
        ends = (
            st.integers(0, universe - 1)
            if not numbers
            else st.one_of(st.integers(0, universe - 1), st.sampled_from(numbers))
        )
        low, high = sorted((data.draw(ends), data.draw(ends)))
        place = bisect_left(numbers, low)
        assert packed.any_in(low, high) == (place < len(numbers) and numbers[place] <= high), (low, high)


def test_long_gaps_and_long_runs_are_passed() -> None:
    numbers = np.concatenate((np.zeros(500), np.full(500, 7), np.full(3, (1 << 20) - 1))).astype(np.uint64)
    packed = EliasFano(numbers, 1 << 20)
    assert packed.any_in(0, 0) and packed.any_in(7, 7) and packed.any_in((1 << 20) - 1, (1 << 20) - 1)
    assert not packed.any_in(1, 6) and not packed.any_in(8, (1 << 20) - 2)
    assert packed.any_in(8, (1 << 20) - 1)


def test_its_size_is_that_of_the_theory() -> None:
    count, universe = 50_000, 50_000 << 14
    numbers = np.sort(np.random.default_rng(3).integers(0, universe, count)).astype(np.uint64)
    bits = EliasFano(numbers, universe).size_bits() / count
    assert 16 <= bits <= 16.5, bits


@pytest.mark.parametrize("bits", [0, 1, 7, 8, 13, 63])
def test_packed_is_unpacked(bits: int) -> None:
    numbers = np.random.default_rng(bits).integers(0, 1 << 63, 99).astype(np.uint64)
    low = numbers & np.uint64((1 << bits) - 1)
    packed = pack(numbers, bits)
    assert len(packed) == -(-99 * bits // 8)
    assert (unpack(packed, bits, 99) == low).all()


def test_select_finds_each_one() -> None:
    word = 0x8000_0100_F00F_0001
    places = [place for place in range(64) if word >> place & 1]
    assert [select(word, rank) for rank in range(len(places))] == places
