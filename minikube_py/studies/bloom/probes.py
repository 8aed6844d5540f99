"""The key cells with the same loops in Python, numpy and compiled, to measure Python's constant factor.

Requests that fit no node are a filter's best case: all shards are empty. Timed are a scan of all nodes, a max-tree, and
probing every shard's max vector, joint bitset or Bloom filter followed by a scan of those that pass. The Bloom filters'
positions are precomputed, so hashing is free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import thread_time_ns
from typing import Any

import numpy as np

from minikube_py.errors import to_install
from minikube_py.index.structure import MISSING, IntArray
from minikube_py.lab.study.design import Design, Unit
from minikube_py.studies.bloom import compiled
from minikube_py.studies.bloom.candidates import joint_buckets
from minikube_py.studies.bloom.matching import Report
from minikube_py.studies.bloom.workload import Cluster, boxes, matching

HASHES = 8
WANTED = 48
DRAWN = 600
TIME_LIMIT_S = {"quick": 0.15, "medium": 0.5, "full": 2.0}


@dataclass(frozen=True, slots=True)
class Tables:
    """One cluster as flat arrays, shared by all three implementations."""

    points: IntArray
    tree: IntArray
    leaves: int
    shard: IntArray
    highs: IntArray
    cells: compiled.Words
    masks: compiled.Words
    width: int
    bits: Any
    places: Any
    capacity: int


def tables(design: Design, cluster: Cluster, bits_per_key: int, rng: np.random.Generator) -> Tables:
    points, shards, dimensions = cluster.points, cluster.shards, cluster.dimensions
    capacity = cluster.capacity
    leaves = 1 << max(1, (cluster.nodes - 1).bit_length())
    tree = np.full((2 * leaves, dimensions), -1, dtype=np.int64)
    tree[leaves : leaves + cluster.nodes] = points
    width = leaves
    while width > 1:
        tree[width // 2 : width] = np.maximum(tree[width : 2 * width : 2], tree[width + 1 : 2 * width : 2])
        width //= 2
    parts = [points[shard::shards] for shard in range(shards)]
    rows = max(1, cluster.nodes // shards)
    buckets = joint_buckets(design, dimensions, bits_per_key * dimensions * rows)
    step = -(-(capacity + 1) // buckets)
    size = max(8, bits_per_key * rows)
    bits = np.zeros((shards, dimensions, size), dtype=np.uint8)
    places = rng.integers(size, size=(capacity + 1, HASHES), dtype=np.int32)
    flags = np.zeros((shards, buckets**dimensions), dtype=np.uint8)
    for shard, part in enumerate(parts):
        cell = np.zeros(len(part), dtype=np.int64)
        for each in range(dimensions):
            cell = cell * buckets + part[:, each] // step
            bits[shard, each, places[part[:, each]].reshape(-1)] = 1
        flags[shard, cell] = 1
    at = np.indices((buckets,) * dimensions).reshape(dimensions, -1)
    from_step = (at[:, None, :] >= np.arange(buckets)[None, :, None]).astype(np.uint8)
    highs = np.array([part.max(axis=0) for part in parts])
    return Tables(
        points, tree, leaves, np.ascontiguousarray(parts[0]), highs,
        _words(flags), _words(from_step), step, bits, places, capacity,
    )  # fmt: skip


def _words(flags: Any) -> compiled.Words:
    """The last axis of zeros and ones as 64-bit words."""
    room = -flags.shape[-1] % 64
    padded = np.concatenate([flags, np.zeros((*flags.shape[:-1], room), dtype=np.uint8)], axis=-1)
    return np.ascontiguousarray(np.packbits(padded, axis=-1, bitorder="little")).view(np.uint64)


def measure(design: Design, unit: Unit) -> Report:
    levels = dict(unit.levels)
    cluster = Cluster(design, levels, unit.seed)
    table = tables(design, cluster, int(levels["bits_per_key"]), np.random.default_rng([unit.seed, 13]))
    fits: list[IntArray] = []
    none: list[IntArray] = []
    for request, box in zip((drawn := cluster.requests(DRAWN)), boxes(drawn)):
        kind = fits if len(matching(cluster.points, box)) else none
        if len(kind) < WANTED:
            kind.append(np.array([0 if low == MISSING else low for low in request], dtype=np.int64))
    ways = [compiled.PYTHON, compiled.NUMPY, *filter(None, [compiled.compiled()])]
    found = {way.name: _one(way, table, fits, none, TIME_LIMIT_S[design.mode]) for way in ways}
    absent = {} if len(ways) == 3 else {"compiled": f"numba is not installed; {to_install('compiled')}"}
    wrong = int(len({tuple(sorted(each["opened"].items())) for each in found.values()}) > 1)
    return {"ways": found, "absent": absent, "candidates": {}, "wrong": wrong, "shards": cluster.shards}


def _one(
    way: compiled.Probes, table: Tables, fits: Sequence[IntArray], none: Sequence[IntArray], limit_s: float
) -> Report:
    def steps(lows: IntArray) -> IntArray:
        return np.minimum(lows, table.capacity) // table.width

    opened: dict[str, float] = {}

    def shards(name: str, call: Callable[[IntArray], int]) -> float:
        # A few requests suffice for the comparison; Python would take too long for all.
        few = [call(lows) for lows in none[:6]]
        opened[name] = float(np.mean(few)) if few else 0.0
        return _each_us(call, none, limit_s)

    report: Report = {
        "first_fit_us": {
            "feasible": _each_us(lambda lows: way.first_fit(table.points, lows), fits, limit_s),
            "infeasible": _each_us(lambda lows: way.first_fit(table.points, lows), none, limit_s),
        },
        "shard_us": _each_us(lambda lows: way.first_fit(table.shard, lows), none, limit_s),
        "max-vector": shards("max-vector", lambda lows: way.max_vector(table.highs, lows)),
        "joint-bitset": shards(
            "joint-bitset", lambda lows: way.joint(table.cells, steps(lows), table.masks, table.highs, lows)
        ),
        "bloom": shards("bloom", lambda lows: way.bloom(table.bits, table.places, lows, table.capacity)),
    }
    tree_first = way.tree_first
    if tree_first is not None:
        report["tree_us"] = {
            "feasible": _each_us(lambda lows: tree_first(table.tree, table.leaves, lows), fits, limit_s),
            "infeasible": _each_us(lambda lows: tree_first(table.tree, table.leaves, lows), none, limit_s),
        }
    return {**report, "opened": opened}


def _each_us(call: Callable[[IntArray], int], requests: Sequence[IntArray], limit_s: float) -> float:
    """CPU time per request; the first call, which may compile, is excluded. nan without requests."""
    if not requests:
        return float("nan")
    call(requests[0])
    done = 0
    began_ns = thread_time_ns()
    while done < 20 * len(requests):
        for lows in requests:
            call(lows)
            done += 1
            if thread_time_ns() - began_ns > limit_s * 1e9:
                return (thread_time_ns() - began_ns) / 1000 / done
    return (thread_time_ns() - began_ns) / 1000 / done
