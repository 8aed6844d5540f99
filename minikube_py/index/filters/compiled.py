"""The filters' probes as loops over flat arrays, compiled by numba where it is installed.

The cost of a probe in Python is mostly interpreter overhead. `compiled(filter)` gives the same answers from the same
bits at the cost of machine code, so that measurements do not measure Python. Without numba it falls back to numpy, and
`why` gives the reason. Compiling takes a few seconds at the first probe of each kind of filter."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from minikube_py.index.filters.bloom import Bloom
from minikube_py.index.filters.contract import RangeFilter
from minikube_py.index.filters.elias_fano import SAMPLE
from minikube_py.index.filters.grafite import Grafite
from minikube_py.index.filters.hashing import PRIME, SIGN, Bools, unsigned
from minikube_py.index.filters.memento import Memento
from minikube_py.index.filters.prefix_bloom import PrefixBloom
from minikube_py.index.filters.rosetta import Rosetta
from minikube_py.index.structure import IntArray

Jit = Callable[[Any], Any]

# All arithmetic is on uint64: mixed with an int64 it would become float.
U0, U1, U3, U7, U8 = (np.uint64(number) for number in (0, 1, 3, 7, 8))
U27, U30, U31, U32, U61 = (np.uint64(number) for number in (27, 30, 31, 32, 61))
LOW_30, LOW_31 = np.uint64(0x3FFFFFFF), np.uint64(0x7FFFFFFF)
U_PRIME, U_TWO = np.uint64(PRIME), np.uint64(2)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
U_SAMPLE, U_BLOCK_BYTES = np.uint64(SAMPLE), np.uint64(32)
ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


class Probe(NamedTuple):
    """`form`: "compiled" or "numpy", and `why` it is not compiled. Answers are those of the filter when the probe was
    made: a changed filter needs a new probe."""

    form: str
    why: str
    one: Callable[[int, int], bool]
    many: Callable[[IntArray, IntArray], Bools]


def compiled(held: RangeFilter, jit: Jit | None = None) -> Probe:
    """Probes of `held`; another `jit`, such as a no-op, serves to test the loops."""
    kind = next((kind for kind in KERNELS if isinstance(held, kind)), None)
    if kind is None:
        return _in_numpy(held, f"the filter {held.filter} has no compiled form")
    if jit is None:
        jit = numba_jit()
        if jit is None:
            return _in_numpy(held, "numba is not installed: pip install numba")
    ask, ask_many = _kernels(kind, jit)
    state = STATES[kind](held)

    def one(low: int, high: int) -> bool:
        return bool(ask(state, np.uint64(low + SIGN), np.uint64(high + SIGN)))

    def many(lows: IntArray, highs: IntArray) -> Bools:
        found: Bools = np.zeros(len(lows), dtype=np.bool_)
        ask_many(state, unsigned(lows), unsigned(highs), found)
        return found

    return Probe("compiled", "", one, many)


@cache
def numba_jit() -> Jit | None:
    """None if numba is not installed."""
    try:
        numba: Any = import_module("numba")
    except ImportError:
        return None
    jit: Jit = numba.njit(nogil=True)
    return jit


def _in_numpy(held: RangeFilter, why: str) -> Probe:
    def many(lows: IntArray, highs: IntArray) -> Bools:
        return np.asarray(held.may_contain_many(lows, highs), dtype=np.bool_)

    return Probe("numpy", why, held.may_contain, many)


@cache
def _kernels(kind: type, jit: Jit) -> tuple[Any, Any]:
    """(state, low, high) -> bool, and the same over arrays into an output array."""
    ask = KERNELS[kind](jit)

    def ask_many(state: Any, lows: Any, highs: Any, found: Any) -> None:
        for index in range(len(lows)):
            found[index] = ask(state, lows[index], highs[index])

    return ask, jit(ask_many)


# -- shared by several -----------------------------------------------------------------------------------------


@cache
def _mix(jit: Jit) -> Any:
    def mix(value: Any) -> Any:
        value = (value ^ (value >> U30)) * FIRST
        value = (value ^ (value >> U27)) * SECOND
        return value ^ (value >> U31)

    return jit(mix)


@cache
def _has(jit: Jit) -> Any:
    mix = _mix(jit)

    def has(table: Any, size: Any, hashes: Any, salt: Any, value: Any) -> Any:
        place = mix(value + salt)
        step = mix(place) | U1
        for _ in range(hashes):
            bit = ((place >> U32) * size) >> U32
            if not (np.uint64(table[np.int64(bit >> U3)]) >> (bit & U7)) & U1:
                return False
            place += step
        return True

    return jit(has)


@cache
def _get(jit: Jit) -> Any:
    def get(string: Any, start: Any, width: Any) -> Any:
        """`width` bits, at most 60."""
        value = U0
        skip = start & U7
        byte = start >> U3
        taken = U0
        while taken < width + skip:
            part = np.uint64(string[np.int64(byte)])
            value |= part >> skip if taken == U0 else part << (taken - skip)
            taken += U8
            byte += U1
        return value & ((U1 << width) - U1)

    return jit(get)


@cache
def _select_from(jit: Jit) -> Any:
    def select_from(string: Any, flip: Any, start: Any, rank: Any) -> Any:
        """The position of the one (the zero with `flip` 255) from `start` on preceded by `rank` of them."""
        byte = start >> U3
        word = (np.uint64(string[np.int64(byte)]) ^ flip) >> (start & U7) << (start & U7)
        ones = np.uint64(ONES[np.int64(word)])
        while ones <= rank:
            rank -= ones
            byte += U1
            word = np.uint64(string[np.int64(byte)]) ^ flip
            ones = np.uint64(ONES[np.int64(word)])
        bit = U0
        while True:
            if (word >> bit) & U1:
                if rank == U0:
                    return byte * U8 + bit
                rank -= U1
            bit += U1

    return jit(select_from)


# -- the filters -----------------------------------------------------------------------------------------------


def _bloom(jit: Jit) -> Any:
    has = _has(jit)

    def ask(state: Any, low: Any, high: Any) -> Any:
        table, size, hashes, salt, shift, max_probes = state
        if low > high:
            return False
        value, last = low >> shift, high >> shift
        if last - value >= max_probes:
            return True
        while True:
            if has(table, size, hashes, salt, value):
                return True
            if value == last:
                return False
            value += U1

    return jit(ask)


def _bloom_state(held: Any) -> Any:
    table = held.table
    shift, max_probes = np.uint64(getattr(held, "shift", 0)), np.uint64(held.max_probes)
    return table.table, np.uint64(table.bits_count), table.hashes, np.uint64(table.salt), shift, max_probes


def _rosetta(jit: Jit) -> Any:
    has = _has(jit)

    def passes(state: Any, prefix: Any, level: Any, prefixes: Any, levels: Any) -> Any:
        tables, offsets, sizes, hashes, salts, _ = state
        prefixes[0], levels[0] = prefix, level
        depth = 1
        while depth:
            depth -= 1
            prefix, level = prefixes[depth], levels[depth]
            if hashes[level]:
                table = tables[offsets[level] : offsets[level + 1]]
                if not has(table, sizes[level], hashes[level], salts[level], prefix):
                    continue
            if level == 0:
                return True
            prefixes[depth], levels[depth] = prefix << U1 | U1, level - 1
            prefixes[depth + 1], levels[depth + 1] = prefix << U1, level - 1
            depth += 2
        return False

    passes = jit(passes)

    def ask(state: Any, low: Any, high: Any) -> Any:
        if low > high:
            return False
        if high - low >= state[5]:
            return True
        prefixes, levels = np.empty(64, dtype=np.uint64), np.empty(64, dtype=np.int64)
        top = len(state[2]) - 1
        while True:
            level = top
            rest = (U1 << np.uint64(level)) - U1
            while (low & rest) != U0 or high - low < rest:
                level -= 1
                rest >>= U1
            if passes(state, low >> np.uint64(level), level, prefixes, levels):
                return True
            if high - low == rest:
                return False
            low += rest + U1

    return jit(ask)


def _rosetta_state(held: Any) -> Any:
    empty = np.empty(0, dtype=np.uint8)
    tables = [empty if table is None else table.table for table in held.tables]
    offsets = np.cumsum([0] + [len(table) for table in tables])
    sizes = np.array([0 if table is None else table.bits_count for table in held.tables], dtype=np.uint64)
    hashes = np.array([0 if table is None else table.hashes for table in held.tables], dtype=np.int64)
    salts = np.array([0 if table is None else table.salt for table in held.tables], dtype=np.uint64)
    return np.concatenate(tables), offsets, sizes, hashes, salts, np.uint64(held.max_probes)


@cache
def _any_code(jit: Jit) -> Any:
    get, select_from = _get(jit), _select_from(jit)

    def any_code(sequence: Any, low: Any, high: Any) -> Any:
        """As `EliasFano.any_in`."""
        unary, packed, bits, samples = sequence
        value, last = low >> bits, high >> bits
        place = U0
        if value:
            ended = value - U1
            place = np.uint64(samples[np.int64(ended // U_SAMPLE)])
            left = ended % U_SAMPLE
            if left:
                place = select_from(unary, np.uint64(255), place + U1, left - U1)
            place += U1
        while value <= last:
            if (np.uint64(unary[np.int64(place >> U3)]) >> (place & U7)) & U1:
                number = value << bits | get(packed, (place - value) * bits, bits)
                if number >= low:
                    return number <= high
            else:
                value += U1
            place += U1
        return False

    return jit(any_code)


def _grafite(jit: Jit) -> Any:
    any_code = _any_code(jit)

    def shift_of(block: Any, state: Any) -> Any:
        _, _, reduced, factor, term = state
        factor_high, factor_low = factor >> U31, factor & LOW_31
        high, low = block >> U31, block & LOW_31
        middle = factor_high * low + factor_low * high
        total = factor_high * high * U_TWO + factor_low * low + (middle >> U30) + ((middle & LOW_30) << U31)
        return ((total % U_PRIME) + term) % U_PRIME % reduced

    shift_of = jit(shift_of)

    def any_hash(state: Any, shift: Any, first: Any, last: Any) -> Any:
        sequence, _, reduced, _, _ = state
        low, high = (shift + first) % reduced, (shift + last) % reduced
        if low <= high:
            return any_code(sequence, low, high)
        return any_code(sequence, low, reduced - U1) or any_code(sequence, U0, high)

    any_hash = jit(any_hash)

    def ask(state: Any, low: Any, high: Any) -> Any:
        _, count, reduced, _, _ = state
        if low > high or count == 0:
            return False
        if high - low >= reduced:
            return True
        first, last = low // reduced, high // reduced
        if first == last:
            return any_hash(state, shift_of(first, state), low % reduced, high % reduced)
        if any_hash(state, shift_of(first, state), low % reduced, reduced - U1):
            return True
        return any_hash(state, shift_of(last, state), U0, high % reduced)

    return jit(ask)


def _grafite_state(held: Any) -> Any:
    return held.elias_fano().arrays(), held.count, np.uint64(held.reduced), *held.hash_terms()


def _memento(jit: Jit) -> Any:
    mix, get, select_from = _mix(jit), _get(jit), _select_from(jit)

    def any_in(slots: Any, quotient: Any, low: Any, high: Any) -> Any:
        """As `QuotientSlots.any_in`."""
        remainders, occupied, ends, offsets, width = slots
        if not (np.uint64(occupied[np.int64(quotient >> U3)]) >> (quotient & U7)) & U1:
            return False
        block = quotient >> U8
        before = U0
        for byte in range(np.int64(block * U_BLOCK_BYTES), np.int64(quotient >> U3)):
            before += np.uint64(ONES[np.int64(occupied[byte])])
        here = np.uint64(occupied[np.int64(quotient >> U3)]) & ((U1 << (quotient & U7)) - U1)
        before += np.uint64(ONES[np.int64(here)])
        slot = (block << U8) + np.uint64(offsets[np.int64(block)])
        if before:
            slot = select_from(ends, U0, slot, before - U1) + U1
        slot = max(slot, quotient)
        behind = select_from(ends, U0, slot, U0) + U1
        end = behind
        while slot < end:
            middle = (slot + end) >> U1
            if get(remainders, middle * width, width) < low:
                slot = middle + U1
            else:
                end = middle
        return slot < behind and get(remainders, slot * width, width) <= high

    any_in = jit(any_in)

    def any_of_prefix(state: Any, low: Any, high: Any) -> Any:
        slots, salt, hashes, bits, _, _ = state
        width = slots[4]
        code = (mix((low >> bits) + salt) % hashes) << bits | (low & ((U1 << bits) - U1))
        remainder = code & ((U1 << width) - U1)
        return any_in(slots, code >> width, remainder, remainder + (high - low))

    any_of_prefix = jit(any_of_prefix)

    def ask(state: Any, low: Any, high: Any) -> Any:
        _, _, _, bits, max_probes, saturated = state
        if low > high:
            return False
        first, last = low >> bits, high >> bits
        if saturated or last - first >= max_probes:
            return True
        whole = (U1 << bits) - U1
        while low >> bits != last:
            if any_of_prefix(state, low, low | whole):
                return True
            low = (low | whole) + U1
        return any_of_prefix(state, low, high)

    return jit(ask)


def _memento_state(held: Any) -> Any:
    salt, hashes, bits = (np.uint64(number) for number in held.hash_terms())
    return held.slots.arrays(), salt, hashes, bits, np.uint64(held.max_probes), held.saturated


KERNELS: dict[type, Callable[[Jit], Any]] = {
    Bloom: _bloom,
    PrefixBloom: _bloom,
    Rosetta: _rosetta,
    Grafite: _grafite,
    Memento: _memento,
}
STATES: dict[type, Callable[[Any], Any]] = {
    Bloom: _bloom_state,
    PrefixBloom: _bloom_state,
    Rosetta: _rosetta_state,
    Grafite: _grafite_state,
    Memento: _memento_state,
}
