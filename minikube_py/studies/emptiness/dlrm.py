"""A disaggregated cluster that serves recommendation models: amounts of five resources, and rules beside them.

`dlrm_groups.csv` counts what instances of an application request, where 20 or more request the same: 22,020 of the
23,871 of Alibaba's cluster-trace-gpu-v2025 (NSDI 2025), statistics without the trace's rows and times;
`python -m minikube_py.studies.emptiness.dlrm FILE` recreates it. The trace has no nodes: those here are supposed.

A rule is monotone, so it is one more inequality: a column is 1 on nodes where the rule lets a pod go, and the pod
requests 1 of it. A node's point: free vCPU, GPUs, RDMA (percent of a NIC), memory (GiB), disk (GiB), then the columns.
"""

from __future__ import annotations

import csv
import lzma
import sys
from collections import Counter
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from minikube_py.index.structure import MISSING, IntArray, Point
from minikube_py.studies.emptiness.arrivals import Arrivals, nearest

TABLE: Final = "dlrm_groups.csv"
COLUMNS: Final = ("app", "gpu_node", "cpu", "gpus", "rdma", "memory_gib", "disk_gib", "most_on_a_node", "pods")
LEAST_PODS: Final = 20
CPU_NODE: Final = (192, 0, 100, 1024, 1200)
GPU_NODE: Final = (96, 8, 200, 512, 1920)
GPU_NODES: Final = 0.13
"""As the trace's requests: as many GPU nodes as its GPUs need, and as many CPU nodes as its vCPUs."""
ZONES: Final = 3
DEDICATED: Final = 0.1
RULES: Final = ("none", "labels", "taints", "zones", "density", "all")


class Group(NamedTuple):
    """`most_on_a_node`: of its application's pods; -1 for no limit."""

    app: int
    gpu_node: int
    amounts: Point
    most_on_a_node: int


@cache
def groups() -> list[tuple[Group, int]]:
    """With their number of pods."""
    rows = csv.reader(resources.files(__package__).joinpath(TABLE).read_text(encoding="utf-8").splitlines()[1:])
    figures = [[int(each) for each in row] for row in rows]
    return [(Group(row[0], row[1], tuple(row[2:7]), row[7]), row[8]) for row in figures]


class DlrmCluster(Arrivals):
    """`points`: the free amounts and the rules' columns. Pods arrive until they have requested `arrived` percent of all
    vCPUs; those that fit nowhere are dropped. `packed`: on the node with the least vCPUs left, otherwise the most.

    Rules: `labels`, a pod's role selects a pool; `taints`, GPU nodes are tainted for pods of CPU nodes, and a tenth of
    all nodes for applications other than a tenth of them; `zones`, an application's pods differ by 1 at most between
    three zones; `density`, an application's limit of pods on a node."""

    resources = len(CPU_NODE)

    def __init__(self, rules: str, nodes: int, arrived: int, packed: bool, seed: int) -> None:
        super().__init__(np.random.default_rng([seed, arrived, packed, nodes]), groups())
        rng = self._rng
        self._rules = set(RULES[1:-1]) if rules == "all" else {rules}
        self._packed = packed
        apps = 1 + max(group.app for group in self._shapes)
        gpu = rng.permutation(nodes) < round(nodes * GPU_NODES)
        free: IntArray = np.where(gpu[:, None], GPU_NODE, CPU_NODE).astype(np.int64)
        dedicated = rng.random(nodes) < DEDICATED
        self._tolerating = rng.random(apps) < DEDICATED
        self._zone: IntArray = rng.integers(ZONES, size=nodes)
        self._in_zones: IntArray = np.zeros((apps, ZONES), dtype=np.int64)
        self._on_node: IntArray = np.zeros((apps, nodes), dtype=np.int64)
        limited = {(group.app, group.most_on_a_node) for group in self._shapes if group.most_on_a_node > 0}
        self._limited = sorted(limited) if "density" in self._rules else []
        fixed = {
            "labels": [~gpu, gpu],
            "taints": [~gpu, ~dedicated],
            "zones": [self._zone != zone for zone in range(ZONES)],
        }
        columns = [column for rule, each in fixed.items() if rule in self._rules for column in each]
        columns += [np.ones(nodes, dtype=np.bool_) for _ in self._limited]
        self.points: IntArray = np.column_stack([free, *columns]).astype(np.int64)
        wanted, asked = int(free[:, 0].sum()) * arrived // 100, 0
        for group in self._arriving():
            asked += group.amounts[0]
            if asked > wanted:
                break
            self._place(group)

    def _asked(self, shape: Group) -> Point:
        """In the order of the columns. A zone is open to a group if none has fewer of its application's pods."""
        asked = [amount or MISSING for amount in shape.amounts]
        there = self._in_zones[shape.app]
        tolerates = self._tolerating[shape.app]
        demands = {
            "labels": [not shape.gpu_node, bool(shape.gpu_node)],
            "taints": [not shape.gpu_node, not tolerates],
            "zones": (there > there.min()).tolist(),
        }
        wanted = [each for rule, columns in demands.items() if rule in self._rules for each in columns]
        wanted += [limit == (shape.app, shape.most_on_a_node) for limit in self._limited]
        return (*asked, *(1 if each else MISSING for each in wanted))

    def _place(self, shape: Group, shards: int = 1, start: int = 0) -> int:
        there = np.flatnonzero((self.points >= np.array(self._asked(shape))).all(axis=1))
        if not len(there):
            return -1
        there = nearest(there, shards, start)
        left = self.points[there, 0]
        node = int(there[left.argmin() if self._packed else left.argmax()])
        self._take(1, node, shape)
        self._running.append((node, shape))
        return node

    def _take(self, sign: int, node: int, *pod: Any) -> None:
        (group,) = pod
        self.points[node, : self.resources] -= sign * np.array(group.amounts)
        self._in_zones[group.app, self._zone[node]] += sign
        self._on_node[group.app, node] += sign
        first = self.points.shape[1] - len(self._limited)
        for column, (app, most) in enumerate(self._limited, first):
            if app == group.app:
                self.points[node, column] = self._on_node[app, node] < most


def convert(trace: Path) -> str:
    """The table, from the published file, which may be .xz. Applications are numbered by falling size."""
    with lzma.open(trace, "rt") if trace.suffix == ".xz" else trace.open() as file:
        rows = list(csv.DictReader(file))
    names = ("cpu_request", "gpu_request", "rdma_request", "memory_request", "disk_request", "max_instance_per_node")
    counted = Counter(
        (row["app_name"], row["role"] == "HN", *(round(float(row[name])) for name in names)) for row in rows
    )
    kept = {key: pods for key, pods in counted.items() if pods >= LEAST_PODS}
    sizes: Counter[str] = Counter()
    for key, pods in kept.items():
        sizes[str(key[0])] += pods
    number = {app: place for place, app in enumerate(sorted(sizes, key=lambda app: (-sizes[app], app)))}
    lines = sorted((number[str(app)], *map(int, rest), pods) for (app, *rest), pods in kept.items())
    return "\n".join([",".join(COLUMNS), *(",".join(map(str, line)) for line in lines)]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(convert(Path(sys.argv[1])))
