"""The candidates by name: structures of the catalogue that hold all nodes, and shards behind a filter.

A candidate that is missing or rejects an option is reported as absent, never replaced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from minikube_py.errors import MinikubeError
from minikube_py.index.catalogue import build, built_in
from minikube_py.index.filters.contract import Summary
from minikube_py.index.filters.oracle import OracleKeys
from minikube_py.index.filters.per_dimension import per_dimension
from minikube_py.index.structure import HIGH, IntArray, Structure
from minikube_py.index.structures.sharded import Sharded
from minikube_py.lab.study.design import Design, Levels
from minikube_py.lab.study.experiment import Absent

Kind = Literal["whole", "front"]
WITHOUT_REBUILD_PERCENT, WITHOUT_ORDER_PERCENT = 1000, 100
NO_BITS = ("always", "oracle", "max-vector", "joint-bitset")


class ExactCopy(Sharded):
    """Shards behind sorted copies of their keys: no filter, but its alternative for small keys."""

    def _summary(self, points: IntArray) -> Summary:
        return per_dimension(points, OracleKeys, 0, {})


@dataclass(frozen=True, slots=True)
class Candidate:
    """`high`: the end of its half-lines; a filter supports only finite ranges."""

    name: str
    kind: Kind
    structure: Structure
    high: int = HIGH

    def filter_bytes(self, universe: int) -> int:
        """The memory for deciding which shards need not be opened: all of it, if there are no shards."""
        structure: Any = self.structure
        if self.kind == "whole":
            return int(structure.size_bytes())
        if isinstance(structure, ExactCopy):
            return sum(structure._live) * max(1, math.ceil(math.log2(universe))) // 8
        return int(structure.filter_bits()) // 8


def candidate(name: str, design: Design, levels: Levels, rebuilding: bool = True) -> Candidate:
    """Raises: Absent."""
    dimensions, nodes = int(levels["d"]), int(levels["n"])
    shards, bits = min(int(levels["shards"]), nodes), int(levels["bits_per_key"])
    capacity = int(design.raw["capacity"])
    try:
        if name in built_in():
            options: dict[str, int | str] = {}
            if not rebuilding and name == "kd-tree":
                options["decay_percent"] = WITHOUT_ORDER_PERCENT
            return Candidate(name, "whole", build(name, dimensions, options))
        percent = round(100 * design.raw["rebuild_share"]) if rebuilding else WITHOUT_REBUILD_PERCENT
        if name == "exact-copy":
            return Candidate(name, "front", ExactCopy(dimensions, shards, "always", rebuild_percent=percent))
        text = ""
        if name == "joint-bitset":
            text = f"buckets={joint_buckets(design, dimensions, bits * dimensions * max(1, nodes // shards))}"
        elif name not in NO_BITS:
            longest = int(levels.get("length", capacity))
            text = ",".join(["clip=0", *(f"{option}={value}" for option, value in fitted(name, longest).items())])
        made = Sharded(dimensions, shards, name, bits, rebuild_percent=percent, filter_options=text)
        return Candidate(name, "front", made, HIGH if name in NO_BITS else capacity)
    except (MinikubeError, ImportError, KeyError, AttributeError, TypeError) as error:
        raise Absent(f"{name}: {' '.join(str(error).split())}") from error


def fitted(name: str, longest: int) -> dict[str, int]:
    """The options that prepare a filter for its longest range; half-lines are as long as the capacity, and prefixes are
    then chosen so that the shortest registered request covers one."""
    bits = (longest - 1).bit_length()
    short = min(bits, 6) if longest > 1024 else bits
    return {
        "prefix-bloom": {"shift": short},
        "rosetta": {"max_length": 1 << bits},
        "memento": {"memento_bits": short},
    }.get(name, {})


def joint_buckets(design: Design, dimensions: int, bits: int) -> int:
    """The maximum steps per resource for a grid of at most `bits` cells, within the design's bounds."""
    most = int(design.raw["joint_buckets_max"]["one" if dimensions == 1 else "more"])
    # The root of a power may be slightly too small.
    return max(2, min(most, math.floor(math.pow(bits, 1 / dimensions) + 1e-9)))


def shards_of(slots: IntArray, shards: int) -> int:
    """How many shards contain `slots`; a slot's shard is its number modulo the shard count."""
    return len(np.unique(slots % shards)) if len(slots) > 1 else len(slots)
