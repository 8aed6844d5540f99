"""Shards with a real opening cost: cold ones in files evicted from the page cache, and remote ones at a store member in
another process.

C_behind is the extra time for opening a shard compared with scanning the same shard in this process, by the wall clock,
since waiting takes no CPU time: the median over single openings. Whole requests are measured too, without a filter,
with the max vector and with the joint bitset: they test the ledger's prediction for such a C_behind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from minikube_py.index.structure import Box, load
from minikube_py.index.structures.shard_reader import MemoryShards, ShardReader
from minikube_py.index.structures.sharded import Sharded
from minikube_py.lab.environment import filesystem_of
from minikube_py.lab.measure import percentile
from minikube_py.lab.study.design import Design, Levels, Unit
from minikube_py.studies.bloom.candidates import joint_buckets
from minikube_py.studies.bloom.matching import Report, mistaken
from minikube_py.studies.bloom.remote_shards import RemoteShards, spawned
from minikube_py.studies.bloom.shards import ColdShards
from minikube_py.studies.bloom.workload import Cluster, boxes, matching

OPENINGS = {"quick": 64, "medium": 128, "full": 256}
REQUESTS = {"quick": 6, "medium": 12, "full": 24}
FRONTS = ("always", "max-vector", "joint-bitset")
Reading = Callable[[], ShardReader]


def measure(design: Design, unit: Unit) -> Report:
    levels = dict(unit.levels)
    cluster = Cluster(design, levels, unit.seed)
    asked = boxes(cluster.requests(REQUESTS[design.mode]))
    right = [len(matching(cluster.points, box)) for box in asked]
    cases: dict[str, Report] = {}
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="shards-") as name, readers(Path(name), cluster.dimensions) as made:
        for case, reader in made.items():
            figures, mistakes = _case(design, levels, cluster, asked, right, reader)
            cases[case], wrong = figures, wrong + mistakes
        filesystem = filesystem_of(Path(name))
    return {"candidates": {}, "absent": {}, "cases": cases, "wrong": wrong, "filesystem": filesystem}


@contextmanager
def readers(folder: Path, dimensions: int) -> Iterator[dict[str, Reading]]:
    """The shard storages by name; each call returns an empty one."""
    count = 0
    opened: list[RemoteShards] = []

    def cold(encoding: str) -> ShardReader:
        nonlocal count
        count += 1
        return ColdShards(folder / str(count), dimensions, encoding, evict=True)

    with spawned(folder / "member") as member:

        def remote() -> ShardReader:
            opened.append(RemoteShards(member, dimensions))
            return opened[-1]

        try:
            yield {
                "cold on disk, columns": lambda: cold("columns"),
                "cold on disk, objects": lambda: cold("objects"),
                "remote": remote,
            }
        finally:
            for each in opened:
                each.close()


def _case(
    design: Design, levels: Levels, cluster: Cluster, asked: Sequence[Box], right: Sequence[int], reader: Reading
) -> tuple[Report, int]:
    shards = cluster.shards
    bits = int(levels["bits_per_key"]) * cluster.dimensions * max(1, cluster.nodes // shards)
    buckets = f"buckets={joint_buckets(design, cluster.dimensions, bits)}"
    figures: Report = {}
    mistakes = 0
    slots = np.arange(cluster.nodes, dtype=np.int64)
    behind = reader()
    for shard in range(shards):
        of_shard = slots[shard::shards]
        behind.fill(shard, of_shard, cluster.points[of_shard])
    for front in FRONTS:
        text = buckets if front == "joint-bitset" else ""
        structure = Sharded(cluster.dimensions, shards=shards, filter=front, filter_options=text)
        # Loaded in memory, then read remotely: both hold the same shards, which are written only once.
        load(structure, slots, cluster.points)
        structure.reader = behind
        if front == "always":
            figures.update(_openings(behind, cluster, asked, OPENINGS[design.mode]))
        began_ns = perf_counter_ns()
        found = [structure.find(box, 1) for box in asked]
        figures[front] = (perf_counter_ns() - began_ns) / 1000 / len(asked)
        mistakes += mistaken(found, right, 1)
    return figures, mistakes


def _openings(behind: ShardReader, cluster: Cluster, asked: Sequence[Box], count: int) -> Report:
    """Opens the same shards there and in memory, in random order."""
    near = MemoryShards(cluster.dimensions)
    for shard in range(cluster.shards):
        slots = np.arange(shard, cluster.nodes, cluster.shards, dtype=np.int64)
        near.fill(shard, slots, cluster.points[slots])
    order = np.random.default_rng(17).integers(cluster.shards, size=count).tolist()
    more_us = []
    for number, shard in enumerate(order):
        box = asked[number % len(asked)]
        took = [_once_us(reader, shard, box) for reader in (near, behind)]
        more_us.append(took[1] - took[0])
    return {"c_behind_us": percentile(more_us, 50), "p99_us": percentile(more_us, 99)}


def _once_us(reader: ShardReader, shard: int, box: Box) -> float:
    began_ns = perf_counter_ns()
    reader.find(shard, box)
    return (perf_counter_ns() - began_ns) / 1000
