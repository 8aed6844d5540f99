"""The fronts' probes and upkeep as loops over their own arrays, compiled by numba (extra `compiled`).

A compiled front holds the numpy front of its name and replaces `passing`, `put` and `in_vain`: answers, bytes and rows
read are the same, and its times are not numpy's. Changes can be handed over many at a time, and are taken in one by
one. A probe stops at the first row that fits, and upkeep reads a shard again where the numpy front does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from minikube_py.errors import InvalidRequest, to_install
from minikube_py.index.filters.front import Bools
from minikube_py.index.structure import LOW, MISSING, IntArray, Point
from minikube_py.studies.emptiness.by_request import ByRequest, LazyByRequest, Reasons, Refused
from minikube_py.studies.emptiness.compiled_learning import by_request, copied, lazy_by_request, reasons, refused
from minikube_py.studies.emptiness.compiled_rows import (
    Form,
    Jit,
    Loops,
    bounded_skyline,
    reach_of,
    repaired_skyline,
    skyband,
    store_of,
)
from minikube_py.studies.emptiness.fronts import (
    FRONTS,
    BoundedSkyline,
    Copied,
    JointCells,
    MaxVectors,
    Oracle,
    RangeFilter,
    RepairedSkyline,
    Skyband,
)
from minikube_py.studies.emptiness.table import Table, around

SUFFIX: Final = "compiled"
U0, U1 = np.uint64(0), np.uint64(1)


class CompiledFront:
    """`held` in machine code; from then on only this one is asked and changed."""

    def __init__(self, held: Table, jit: Jit) -> None:
        self.held = held
        self.front, self.bound = f"{held.front}@{SUFFIX}", held.bound
        held.points = np.ascontiguousarray(held.points)
        form = form_of(type(held))
        # Compiled by a copy, so that no measurement holds it, and nothing is learned by it.
        tried = form(deepcopy(held), jit)
        tried.ask(held.points[:0], np.ones((0, held.shards), dtype=np.bool_))
        tried.take(np.zeros(0, dtype=np.int64), held.points[:0])
        if tried.in_vain:
            tried.in_vain(0, held.points[0])
        if tried.find:
            tried.find(held.points[0], 0, 0)
        self._ask, self._take, in_vain, self._find = form(held, jit)
        if in_vain:
            self.in_vain = in_vain

    @property
    def rows_read(self) -> int:
        return self.held.rows_read

    def passing(self, asked: IntArray) -> Bools:
        says: Bools = np.ones((len(asked), self.held.shards), dtype=np.bool_)
        self._ask(np.maximum(asked, LOW, order="C"), says)
        return says

    def ask(self, asked: IntArray, start: int = 0) -> Iterator[int]:
        if self._find is None:
            yield from around(self.passing(asked[None])[0], start)
            return
        wanted = np.maximum(asked, LOW)
        for begin, end in ((start, self.held.shards), (0, start)):
            while begin < end and (begin := self._find(wanted, begin, end) + 1):
                yield begin - 1

    def put(self, slot: int, point: Point) -> None:
        self.put_many(((slot, point),))

    def put_many(self, changes: Sequence[tuple[int, Point]]) -> None:
        slots = np.array([slot for slot, _ in changes], dtype=np.int64)
        news = np.array([point for _, point in changes], dtype=np.int64).reshape(-1, self.held.dimensions)
        self.held.rows_read += int(self._take(slots, news))

    def __getattr__(self, name: str) -> Any:
        """What only some fronts have."""
        return getattr(self.held, name)

    def size_bytes(self) -> int:
        return self.held.size_bytes()

    def held_bytes(self) -> int:
        return self.held.held_bytes()


def form_of(kind: type[Table]) -> Form:
    """Raises: InvalidRequest for a kind of front that has no loops here."""
    for each, form in FORMS.items():
        # Every front is a table, and only the table itself rules out nothing. One that has its own `put` is kept up
        # otherwise than the loops do.
        if issubclass(kind, each) and kind.put is each.put and (each is not Table or kind is Table):
            return form
    raise InvalidRequest(f"the front {kind.front} has no compiled form")


@cache
def machine_code() -> Jit:
    """Raises: InvalidRequest without numba."""
    try:
        numba: Any = import_module("numba")
    except ImportError as error:
        said = f"a compiled front needs numba, which is not installed; {to_install('compiled')}"
        raise InvalidRequest(said) from error
    jit: Jit = numba.njit(nogil=True)
    return jit


def front_of(name: str, points: IntArray, shards: int, options: Mapping[str, Any] | None = None) -> Any:
    """The front NAME or NAME@compiled of FRONTS. Raises: InvalidRequest, also for options that it refuses."""
    plain, _, form = name.partition("@")
    if plain not in FRONTS or form not in ("", SUFFIX):
        raise InvalidRequest(f"it is none of {', '.join(FRONTS)}, perhaps with @{SUFFIX}")
    jit = machine_code() if form else None
    kind, given = FRONTS[plain]
    held = kind(points, shards, **{**given, **(options or {})})
    return CompiledFront(held, jit) if jit else held


# -- no front, and all nodes -----------------------------------------------------------------------------------


def _nothing(held: Table, jit: Jit) -> Loops:
    store = store_of(jit)
    return Loops(lambda asked, says: None, lambda slots, news: store(held.points, slots, news))


def _scan(held: Table, jit: Jit) -> Loops:
    reach, store, shards = reach_of(jit), store_of(jit), held.shards
    counts = (len(held.points) - np.arange(shards) + shards - 1) // shards
    return Loops(
        lambda asked, says: reach(held.points, 1, shards, counts, asked, says),
        lambda slots, news: store(held.points, slots, news),
    )


# -- maxima ----------------------------------------------------------------------------------------------------


@cache
def _raise(jit: Jit) -> Any:
    def raise_maximum(points: Any, group: Any, highs: Any, departed: Any, repairs: Any, slot: Any, new: Any) -> Any:
        """Takes in one change; returns how many nodes were read again."""
        shards = len(departed)
        k, shard = len(highs) // shards, slot % shards
        row = shard * k + group[slot]
        left = False
        for each in range(points.shape[1]):
            left |= points[slot, each] == highs[row, each] and new[each] < points[slot, each]
            highs[row, each] = max(highs[row, each], new[each])
            points[slot, each] = new[each]
        departed[shard] += 1
        patience = max(8, ((len(points) + shards - 1) // shards) // 4)
        if (repairs and not left) or (not repairs and departed[shard] <= patience):
            return 0
        highs[shard * k : (shard + 1) * k] = MISSING
        read = 0
        for other in range(shard, len(points), shards):
            row = shard * k + group[other]
            for each in range(points.shape[1]):
                highs[row, each] = max(highs[row, each], points[other, each])
            read += 1
        departed[shard] = 0
        return read

    return jit(raise_maximum)


@cache
def _maxima(jit: Jit) -> Any:
    raise_maximum = _raise(jit)

    def maxima(points: Any, group: Any, highs: Any, departed: Any, repairs: Any, slots: Any, news: Any) -> Any:
        read = 0
        for change in range(len(slots)):
            read += raise_maximum(points, group, highs, departed, repairs, slots[change], news[change])
        return read

    return jit(maxima)


def _of_maxima(held: Any) -> tuple[Any, ...]:
    highs = held._highs.reshape(-1, held.dimensions)
    return held.points, held._group, highs, np.array(held._departed, dtype=np.int64), held._repairs


def _max_vectors(held: Any, jit: Jit) -> Loops:
    reach, maxima, state = reach_of(jit), _maxima(jit), _of_maxima(held)
    counts = np.full(held.shards, held.k)
    return Loops(
        lambda asked, says: reach(state[2], held.k, 1, counts, asked, says),
        lambda slots, news: maxima(*state, slots, news),
    )


# -- cells -----------------------------------------------------------------------------------------------------


@cache
def _meets(jit: Jit) -> Any:
    def meets(bits: Any, wanted: Any) -> Any:
        for word in range(len(wanted)):  # noqa: SIM110  A generator is no loop of machine code.
            if bits[word] & wanted[word]:
                return True
        return False

    return jit(meets)


@cache
def _any_cell(jit: Jit) -> Any:
    def any_cell(bits: Any, cells: Any, layers: Any) -> Any:
        """Whether some wanted cell has its bit in every layer."""
        for word in range(len(cells)):
            left = cells[word]
            cell = word * 64
            while left:
                if left & U1:
                    held = True
                    for layer in range(len(layers)):
                        place = layers[layer, cell]
                        if not (bits[place >> 6] >> np.uint64(place & 63)) & U1:
                            held = False
                            break
                    if held:
                        return True
                left >>= U1
                cell += 1
        return False

    return jit(any_cell)


@cache
def _cells(jit: Jit) -> Any:
    meets, any_cell = _meets(jit), _any_cell(jit)

    def cells(bits: Any, masks: Any, width: Any, layers: Any, own_bits: Any, asked: Any, says: Any) -> None:
        """Of what the maxima let through. `masks`: for each dimension and step the cells from that step on;
        `own_bits`: whether each cell has a bit of its own."""
        wanted = np.zeros(masks.shape[2], dtype=np.uint64)
        shared = np.zeros(bits.shape[1], dtype=np.uint64)
        for request in range(len(asked)):
            wanted[:] = ~U0
            for each in range(len(masks)):
                step = min(max(asked[request, each], 0) // width[each], masks.shape[1] - 1)
                wanted &= masks[each, step]
            if not own_bits and len(layers) == 1:
                shared[:] = U0
                for cell in range(layers.shape[1]):
                    if (wanted[cell >> 6] >> np.uint64(cell & 63)) & U1:
                        shared[layers[0, cell] >> 6] |= U1 << np.uint64(layers[0, cell] & 63)
            for shard in range(len(bits)):
                if not says[request, shard]:
                    continue
                if own_bits:
                    says[request, shard] = meets(bits[shard], wanted)
                elif len(layers) == 1:
                    says[request, shard] = meets(bits[shard], shared)
                else:
                    says[request, shard] = any_cell(bits[shard], wanted, layers)

    return jit(cells)


@cache
def _count(jit: Jit) -> Any:
    def count(points: Any, slot: Any, width: Any, steps: Any, layers: Any, counts: Any, bits: Any, sign: Any) -> None:
        cell = 0
        for each in range(points.shape[1]):
            cell = cell * steps + min(max(points[slot, each] // width[each], 0), steps - 1)
        for layer in range(len(layers)):
            place = layers[layer, cell]
            counts[place] += sign
            bit = U1 << np.uint64(place & 63)
            if counts[place]:
                bits[place >> 6] |= bit
            else:
                bits[place >> 6] &= ~bit

    return jit(count)


@cache
def _counted(jit: Jit) -> Any:
    raise_maximum, count = _raise(jit), _count(jit)

    def counted(
        points: Any, group: Any, highs: Any, departed: Any, repairs: Any, steps: Any, width: Any, layers: Any,
        counts: Any, bits: Any, slots: Any, news: Any,
    ) -> Any:  # fmt: skip
        read = 0
        for change in range(len(slots)):
            slot = slots[change]
            shard = slot % len(counts)
            count(points, slot, width, steps, layers, counts[shard], bits[shard], -1)
            read += raise_maximum(points, group, highs, departed, repairs, slot, news[change])
            count(points, slot, width, steps, layers, counts[shard], bits[shard], 1)
        return read

    return jit(counted)


def _joint(held: Any, jit: Jit) -> Loops:
    cells, counted, state = _cells(jit), _counted(jit), _of_maxima(held)
    by_maxima = _max_vectors(held, jit).ask
    count = held.steps**held.dimensions
    layers = held._layers if isinstance(held, RangeFilter) else held._place.reshape(1, -1)
    own_bits = not isinstance(held, RangeFilter) and held.bits == count
    bits, width = _words(held._counts > 0), held._width
    numbers = np.arange(count)
    steps = [numbers // held.steps**each % held.steps for each in reversed(range(held.dimensions))]
    masks = np.array([[_words(of_one >= step) for step in range(held.steps)] for of_one in steps])

    def ask(asked: IntArray, says: Bools) -> None:
        by_maxima(asked, says)
        cells(bits, masks, width, layers, own_bits, asked, says)

    return Loops(
        ask, lambda slots, news: counted(*state, held.steps, width, layers, held._counts, bits, slots, news)
    )


def _words(flags: Bools) -> Any:
    """The last axis as 64-bit words."""
    room = [(0, 0)] * (flags.ndim - 1) + [(0, -flags.shape[-1] % 64)]
    return np.packbits(np.pad(flags, room), axis=-1, bitorder="little").view(np.uint64)


FORMS: Final[Mapping[type[Table], Form]] = {
    JointCells: _joint,
    MaxVectors: _max_vectors,
    RepairedSkyline: repaired_skyline,
    Skyband: skyband,
    BoundedSkyline: bounded_skyline,
    LazyByRequest: lazy_by_request,
    ByRequest: by_request,
    Reasons: reasons,
    Refused: refused,
    Copied: copied,
    Oracle: _scan,
    Table: _nothing,
}
"""By kind of front, the most special first: how it is asked, and how it takes in changes."""
