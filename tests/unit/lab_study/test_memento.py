"""The quotient filter's slots against a sorted list, and what Memento does when it grows."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest
from minikube_py.studies.bloom.filters.bit_strings import get, insert, select_from, take
from minikube_py.studies.bloom.filters.memento import Memento
from minikube_py.studies.bloom.filters.quotient_slots import QuotientSlots

WIDTH = 5


@pytest.mark.parametrize("quotients", [64, 700])
@settings(max_examples=40)
@given(data=st.data())
def test_slots_are_a_sorted_list(quotients: int, data: st.DataObject) -> None:
    # Crowded near one quotient, so that runs push each other over the ends of blocks and of the whole.
    near = data.draw(st.sampled_from((0, 60, quotients // 2, quotients - 1)))
    quotient = st.integers(max(0, near - 3), min(quotients - 1, near + 3)) | st.integers(0, quotients - 1)
    entry = st.tuples(quotient, st.integers(0, (1 << WIDTH) - 1))
    repeated = [pair for pair in data.draw(st.lists(entry, max_size=60)) for _ in range(data.draw(st.integers(1, 9)))]
    model = sorted(q << WIDTH | remainder for q, remainder in repeated)
    slots = QuotientSlots(np.array(model, dtype=np.uint64), quotients, WIDTH)
    for q, remainder in data.draw(st.lists(entry, max_size=30)):
        slots.insert(q, remainder)
        insort(model, q << WIDTH | remainder)
    assert slots.codes().tolist() == model
    for code in data.draw(st.lists(st.sampled_from(model), max_size=40)) if model else []:
        there = code in model
        assert slots.delete(code >> WIDTH, code & ((1 << WIDTH) - 1)) == there
        if there:
            model.remove(code)
        q, remainder = data.draw(entry)
        place = bisect_left(model, q << WIDTH | remainder)
        expected = place < len(model) and model[place] <= (q << WIDTH | (1 << WIDTH) - 1)
        assert slots.any_in(q, remainder, (1 << WIDTH) - 1) == expected
    assert slots.codes().tolist() == model and slots.count == len(model)


def test_built_is_the_same_as_inserted() -> None:
    rng = np.random.default_rng(5)
    codes = np.sort(rng.integers(0, 2000 << WIDTH, 1900)).astype(np.uint64)
    built = QuotientSlots(codes, 2000, WIDTH)
    grown = QuotientSlots(codes[:0], 2000, WIDTH)
    for code in rng.permutation(codes).tolist():
        grown.insert(code >> WIDTH, code & ((1 << WIDTH) - 1))
    assert grown.codes().tolist() == codes.tolist()
    for name in ("_ends", "_occupied", "_remainders", "_offsets"):
        one, other = getattr(built, name), getattr(grown, name)
        used = min(len(one), len(other))
        assert one[:used] == other[:used] and not any(one[used:]) and not any(other[used:]), name
    for code in rng.permutation(codes).tolist():
        assert grown.delete(code >> WIDTH, code & ((1 << WIDTH) - 1))
    assert not any(grown._ends) and not any(grown._occupied) and not any(grown._offsets)


def test_a_run_longer_than_many_blocks() -> None:
    codes = np.full(3000, 9, dtype=np.uint64)
    slots = QuotientSlots(codes, 64, WIDTH)
    for _ in range(300):
        slots.insert(0, 9)
    slots.insert(63, 1)
    assert slots.codes().tolist() == [9] * 3300 + [63 << WIDTH | 1]
    assert slots.any_in(63, 0, 1) and not slots.any_in(63, 2, 31)


@settings(max_examples=100)
@given(data=st.data(), bits=st.lists(st.integers(0, 1), min_size=40, max_size=300))
def test_bits_move_as_a_list_does(data: st.DataObject, bits: list[int]) -> None:
    whole = len(bits) // 8 * 8
    bits = bits[:whole]
    string = bytearray(np.packbits(np.array(bits, dtype=np.uint8), bitorder="little").tobytes())
    width = data.draw(st.integers(1, 9))
    start = data.draw(st.integers(0, whole - width))
    end = data.draw(st.integers(start, whole - width))
    value = data.draw(st.integers(0, (1 << width) - 1))
    assert get(string, start, width) == sum(bit << place for place, bit in enumerate(bits[start : start + width]))
    insert(string, start, end, width, value)
    value_bits = [value >> place & 1 for place in range(width)]
    bits = bits[:start] + value_bits + bits[start:end] + bits[end + width :]
    assert list(np.unpackbits(np.frombuffer(string, dtype=np.uint8), bitorder="little")) == bits
    take(string, start, end + width, width)
    bits = bits[:start] + bits[start + width : end + width] + [0] * width + bits[end + width :]
    assert list(np.unpackbits(np.frombuffer(string, dtype=np.uint8), bitorder="little")) == bits
    ones = [place for place, bit in enumerate(bits) if bit and place >= start]
    for rank, place in enumerate(ones):
        assert select_from(string, start, rank) == place


def uniform(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(seed).integers(0, 1 << 62, count)


def test_a_slot_costs_what_the_paper_says() -> None:
    held = Memento(uniform(20_000, 1), 16)
    assert (held.fingerprint_bits, held.memento_bits) == (3, 10)
    assert 15.8 <= held.size_bits() / 20_000 <= 16.3


def test_growing_takes_a_bit_of_each_fingerprint_until_none_is_left() -> None:
    keys = uniform(8000, 2)
    held = Memento(keys[:500], 16)
    absent = uniform(4000, 3)
    rates = []
    for start in range(500, 8000, 500):
        for key in keys[start : start + 500].tolist():
            held.insert(key)
        some = keys[: start + 500 : 37]
        assert held.may_contain_many(some, some).all()
        rates.append(held.may_contain_many(absent, absent + 255).mean())
    assert held.saturated
    assert rates[-1] == 1.0 and rates[0] < 0.1
    assert held.may_contain(5, 5) and not held.may_contain(6, 5)
    held.delete(int(keys[0]))


def test_deleting_makes_room_again() -> None:
    keys = uniform(2000, 4)
    held = Memento(keys[:1000], 20)
    before = held.size_bits()
    for gone, new in zip(keys[:1000].tolist(), keys[1000:].tolist()):
        held.delete(gone)
        held.insert(new)
    assert held.size_bits() <= before * 1.05 and held.count == 1000
    assert held.may_contain_many(keys[1000:], keys[1000:]).all()
    assert held.may_contain_many(keys[:1000], keys[:1000]).mean() < 0.01


def test_a_key_that_was_never_inserted_is_not_deleted() -> None:
    held = Memento(np.array([5, 5]), 16)
    held.delete(5)
    held.delete(5)
    with pytest.raises(ValueError, match="5 was never inserted"):
        held.delete(5)


def test_too_many_bits_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="bits of hash"):
        Memento(uniform(1000, 1), 60, capacity=1 << 20)
