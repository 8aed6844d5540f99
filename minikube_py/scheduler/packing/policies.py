"""Policies that pack GPUs, as plugins: a filter by devices, a score, and the choice of the devices.

The formulas are those of the simulator behind Weng et al., Beware of Fragmentation (USENIX ATC 2023)
(hkust-adsl/kubernetes-scheduler-simulator): DotProduct after Tetris, GpuClustering after Gandiva, GpuPacking after
Antman. GpuPrices is this project's. Each is meant to be the only scoring plugin. The simulator's normalisation is
omitted; it does not change the order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from minikube_py.scheduler.columns import Nodes
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.configuration.own_args import Kind, fields, listed, read_args, text, whole
from minikube_py.scheduler.framework import (
    ASSIGNED_POD,
    MAX_NODE_SCORE,
    NODE,
    Action,
    BoolArray,
    ClusterEvent,
    Code,
    CycleState,
    EventRegistration,
    Handle,
    IntArray,
    Status,
)
from minikube_py.scheduler.objects import CPU, NodeInfo, PodInfo
from minikube_py.scheduler.packing.devices import (
    DEVICES_MAX,
    Devices,
    Seen,
    asks_oddly,
    first_whole,
    fits,
    has_too_many,
    kind_of,
    tightest,
)
from minikube_py.scheduler.packing.fragmentation import POPULAR, WHOLE, Fragmentation, Shape
from minikube_py.scheduler.packing.worth import Worth

GPU_RESOURCE: Final = "openb.io/gpu-milli"
MODEL_LABEL: Final = "openb.io/gpu-model"
MAX_CPU_MILLI: Final = 128_000
MAX_GPU_MILLI: Final = 8 * WHOLE
NO_DEVICE: Final = Status(Code.UNSCHEDULABLE, "node(s) had no GPU with enough left")
ODD: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "pod asks for more than one GPU, but not for whole ones")
TOO_MANY: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, f"pod asks for more than {DEVICES_MAX} GPUs")
BEYOND: Final = Status(Code.UNSCHEDULABLE, f"node(s) had more than {DEVICES_MAX} GPUs, which count as none")
_LEVELS: Final = DEVICES_MAX
WEIGHT_MAX: Final = 1_000_000
"""With 64 devices on each of 100,000 nodes, 1,000 pods of this weight lose less than 2^63."""
TYPICAL_POD: Final = fields(
    {
        "cpuMilli": whole(0, 10**9),
        "gpuMilli": whole(0, WHOLE),
        "gpus": whole(0, DEVICES_MAX),
        "models": listed(text),
        "weight": whole(1, WEIGHT_MAX),
    }
)


def _refused(wanted: int) -> Status | None:
    """Why no node can have a pod that asks for that much."""
    if wanted > DEVICES_MAX * WHOLE:
        return TOO_MANY
    return ODD if asks_oddly(wanted) else None


class GpuPolicy:
    """Filters by devices and chooses them, without scoring. `resource`, `modelLabel` (args): the resource for
    thousandths of GPUs, and the node label with the model."""

    name = ""
    node_local = True
    bounded = True
    known: Mapping[str, Kind] = {"resource": text, "modelLabel": text}

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        self.args = read_args(f'plugin "{self.name}"', args, self.known)
        self.resource: str = self.args.get("resource", GPU_RESOURCE)
        self.handle = handle
        label = self.args.get("modelLabel", MODEL_LABEL)
        self.devices = Devices(handle.columns, self.resource, label, self._rows_changed)

    def events_to_register(self) -> Sequence[EventRegistration]:
        """A deleted pod, a new node or more capacity may free room."""
        return (
            EventRegistration(ClusterEvent(ASSIGNED_POD, Action.DELETE)),
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)),
        )

    # --- filter -----------------------------------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        wanted = pod.spec.request(self.resource)
        if not wanted:
            return None
        refused = _refused(wanted)
        if refused is not None:
            return refused
        if fits(wanted, self.devices.known(node)):
            return None
        return BEYOND if has_too_many(node, self.resource) else NO_DEVICE

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        wanted = pod.spec.request(self.resource)
        if not wanted:
            return None
        if _refused(wanted) is not None:
            return np.zeros(len(nodes), np.bool_)
        left = self._seen(nodes).left
        enough = left.max(axis=1) >= wanted if wanted < WHOLE else (left == WHOLE).sum(axis=1) >= wanted // WHOLE
        return np.asarray(enough, np.bool_)

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        refused = _refused(pod.spec.request(self.resource))
        beyond = nodes.allocatable(self.resource) // WHOLE > DEVICES_MAX
        return beyond.astype(np.int64), lambda code: refused or (BEYOND if code else NO_DEVICE)

    # --- devices ----------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        wanted = pod.spec.request(self.resource)
        if not wanted:
            return None
        node = self.handle.columns.by_name[node_name]
        left = self.devices.left_of(node, but=pod.uid)
        if not fits(wanted, left):
            return NO_DEVICE
        self.devices.choose(pod, node.slot, self.pick(pod, wanted, node, left))
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        node = self.handle.columns.by_name.get(node_name)
        self.devices.release(pod, None if node is None else node.slot)

    def pick(self, pod: PodInfo, wanted: int, node: NodeInfo, left: Sequence[int]) -> tuple[int, ...]:
        """Chooses the devices on a fitting node; `left` excludes the pod, which the node already counts."""
        return tightest(wanted, left)

    # --- the nodes --------------------------------------------------------------------------------------------------

    def _rows_changed(self, slots: IntArray) -> None:
        """Hook for data that a policy derives from the rows."""

    def _seen(self, nodes: Nodes) -> Seen:
        self.devices.catch_up()
        return self.devices.many(nodes)


class GpuRandom(GpuPolicy):
    """A random node, the framework's choice without scores, and a random device."""

    name = "GpuRandom"

    def pick(self, pod: PodInfo, wanted: int, node: NodeInfo, left: Sequence[int]) -> tuple[int, ...]:
        if wanted >= WHOLE:
            return first_whole(wanted, left)
        fitting = [device for device, have in enumerate(left) if have >= wanted]
        return (fitting[self.handle.rng.randrange(len(fitting))],)


class _Scoring(GpuPolicy):
    """One formula for both forms: a single node is one row."""

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return int(self._scores(pod, self.devices.one(node))[0])

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray:
        return self._scores(pod, self._seen(nodes))

    def _scores(self, pod: PodInfo, seen: Seen) -> IntArray:
        found = self.scores(pod.spec.request(CPU), pod.spec.request(self.resource), seen)
        return np.clip(found, 0, MAX_NODE_SCORE)

    def scores(self, cpu: int, wanted: int, seen: Seen) -> IntArray:
        raise NotImplementedError


class GpuDotProduct(_Scoring):
    """Prefers the least similarity between requested and free amounts."""

    name = "GpuDotProduct"

    def scores(self, cpu: int, wanted: int, seen: Seen) -> IntArray:
        by_cpu = (seen.cpu / MAX_CPU_MILLI) * (cpu / MAX_CPU_MILLI)
        by_gpu = (seen.left.sum(axis=1) / MAX_GPU_MILLI) * (wanted / MAX_GPU_MILLI)
        found: IntArray = (MAX_NODE_SCORE * (1 - (by_cpu + by_gpu) / 2)).astype(np.int64)
        return found


class GpuClustering(_Scoring):
    """Nodes that run only the same kind of pod, then those that also run it, then idle ones; fuller ones first."""

    name = "GpuClustering"

    def scores(self, cpu: int, wanted: int, seen: Seen) -> IntArray:
        if not wanted:
            return np.zeros(len(seen.cpu), np.int64)
        kind = kind_of(wanted)
        level = np.where(seen.kinds == 0, 1, np.where(seen.kinds == kind, 3, np.where(seen.kinds & kind, 2, 0)))
        fuller = 25 * np.maximum(MAX_GPU_MILLI - seen.left.sum(axis=1), 0) // MAX_GPU_MILLI
        found: IntArray = fuller + 25 * level
        return found


class GpuPacking(_Scoring):
    """Devices in use first, then idle ones on nodes in use, then idle nodes with few devices."""

    name = "GpuPacking"

    def scores(self, cpu: int, wanted: int, seen: Seen) -> IntArray:
        if not wanted:
            return np.zeros(len(seen.cpu), np.int64)
        whole = (seen.left == WHOLE).sum(axis=1)
        idle_node = np.maximum(33 - whole, whole)
        needs = max(1, wanted // WHOLE)
        found: IntArray = np.full(len(seen.cpu), max(50 - needs, 33), np.int64)
        if wanted < WHOLE:
            tight = np.where(seen.left >= wanted, seen.left, WHOLE).min(axis=1, initial=WHOLE)
            found = np.where(tight == WHOLE, found, np.maximum(100 - tight * 100 // WHOLE // 10, 50))
        return np.where(whole == seen.count, idle_node, found)


class GpuBestFit(_Scoring):
    """The node with the least left, cpu and GPU weighted equally."""

    name = "GpuBestFit"

    def scores(self, cpu: int, wanted: int, seen: Seen) -> IntArray:
        by_cpu = (seen.cpu - cpu) / MAX_CPU_MILLI * 0.5
        by_gpu = (seen.left.sum(axis=1) - wanted) / MAX_GPU_MILLI * 0.5
        found: IntArray = ((1.0 - (by_cpu + by_gpu)) * MAX_NODE_SCORE).astype(np.int64)
        return found


class GpuFragmentation(_Scoring):
    """Fragmentation gradient descent: prefers the node where the least GPU becomes useless to the expected pods.

    `typicalPods` (args): `[{cpuMilli, gpuMilli, gpus, models, weight}]`; `gpuMilli` of each of its `gpus`."""

    name = "GpuFragmentation"
    known = {**GpuPolicy.known, "typicalPods": listed(TYPICAL_POD)}
    typical_share = POPULAR
    """What part of the pods a replay says is typical."""

    def __init__(self, args: Mapping[str, Any], handle: Handle) -> None:
        super().__init__(args, handle)
        self.fragmentation = self._measured(_typical_pods(self.name, self.args.get("typicalPods", ())))
        amounts = self.fragmentation.worth.shape[1]
        self._usable: IntArray = np.zeros((0, amounts), np.int64)
        self._fitting: IntArray = np.zeros((0, amounts), np.int64)
        self._model: IntArray = np.zeros(0, np.int64)
        self._lost: IntArray = np.zeros(0, np.int64)
        self._distinct: BoolArray = np.zeros((0, 0), np.bool_)

    def _measured(self, typical: Mapping[Shape, int]) -> Fragmentation | Worth:
        return Fragmentation(typical)

    def _rows_changed(self, slots: IntArray) -> None:
        columns, devices = self.handle.columns, self.devices
        if self._distinct.shape != devices.left.shape:
            shape = len(devices.left), self._usable.shape[1]
            self._distinct = np.zeros(devices.left.shape, np.bool_)
            self._usable, self._fitting = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
            self._model, self._lost = np.zeros(shape[0], np.int64), np.zeros(shape[0], np.int64)
            slots = np.arange(columns.size)
        left = devices.left[slots]
        self._distinct[slots] = _distinct(left)
        nodes = (columns.by_slot[slot] for slot in slots.tolist())
        labels = (node.labels.get(devices.model_label, "") if node else "" for node in nodes)
        self._model[slots] = [self.fragmentation.model(label) for label in labels]
        self._usable[slots], self._fitting[slots] = usable, fitting = self.fragmentation.of_devices(left)
        cpu = columns.free_row(CPU)[slots]
        self._lost[slots] = self.fragmentation.lost(cpu, self._model[slots], left.sum(axis=1), usable, fitting)

    def scores(self, cpu: int, wanted: int, seen: Seen) -> IntArray:
        return self._best(cpu, wanted, seen) // _LEVELS

    def pick(self, pod: PodInfo, wanted: int, node: NodeInfo, left: Sequence[int]) -> tuple[int, ...]:
        if wanted >= WHOLE:
            return first_whole(wanted, left)
        cpu = pod.spec.request(CPU)
        before = node.allocatable.get(CPU, 0) - node.requested.get(CPU, 0) + cpu
        best = self._best(cpu, wanted, self.devices.made(node, left, before))
        return (_LEVELS - 1 - int(best[0]) % _LEVELS,)

    def _best(self, cpu: int, wanted: int, seen: Seen) -> IntArray:
        """By node, the best score times _LEVELS, plus the distance of its first device from the last level."""
        tables, left = self.fragmentation, seen.left
        if seen.slots is None:
            model = np.array([tables.model(name) for name in seen.models], np.int64)
            usable, fitting = tables.of_devices(left)
            lost, distinct = tables.lost(seen.cpu, model, left.sum(axis=1), usable, fitting), _distinct(left)
        else:
            index = seen.slots
            model, usable, fitting = self._model[index], self._usable[index], self._fitting[index]
            lost, distinct = self._lost[index], self._distinct[index]
        idle, after = left.sum(axis=1), seen.cpu - cpu
        if not wanted or wanted >= WHOLE:
            taken = wanted // WHOLE
            usable, fitting = usable - taken * tables.worth[WHOLE], fitting - taken * tables.fits[WHOLE]
            now = tables.lost(after, model, idle - wanted, usable, fitting)
            return self._score(lost - now) * _LEVELS
        rows, devices = np.nonzero(distinct & (left >= wanted))
        best: IntArray = np.zeros(len(left), np.int64)
        if not len(rows):
            return best
        had = left[rows, devices]
        has = had - wanted
        usable = usable[rows] - tables.worth[had] + tables.worth[has]
        fitting = fitting[rows] - tables.fits[had] + tables.fits[has]
        now = tables.lost(after[rows], model[rows], idle[rows] - wanted, usable, fitting)
        found = self._score(lost[rows] - now) * _LEVELS + (_LEVELS - 1 - devices)
        starts = np.concatenate(([0], np.flatnonzero(rows[1:] != rows[:-1]) + 1))
        best[rows[starts]] = np.maximum.reduceat(found, starts)
        return best

    def _score(self, gained: IntArray) -> IntArray:
        sigmoid = 1 / (1 + np.exp(-gained / (WHOLE * self.fragmentation.weight)))
        found: IntArray = (MAX_NODE_SCORE * sigmoid).astype(np.int64)
        return found


class GpuPrices(GpuFragmentation):
    """As GpuFragmentation, but what is idle is worth what all expected pods together could make of it, by shadow prices
    (docs/studies/packing-prices.md)."""

    name = "GpuPrices"
    typical_share = 1.0

    def _measured(self, typical: Mapping[Shape, int]) -> Fragmentation | Worth:
        try:
            return Worth(typical)
        except ValueError as error:
            raise ConfigError(f'plugin "{self.name}": typicalPods: {error}') from error


def _distinct(left: IntArray) -> BoolArray:
    """Marks the first device of each amount left on a node: equal ones would score the same."""
    before = np.tri(left.shape[1], k=-1, dtype=np.bool_)
    found: BoolArray = ~((left[:, :, None] == left[:, None, :]) & before).any(axis=2)
    return found


def _typical_pods(name: str, given: Sequence[Mapping[str, Any]]) -> dict[Shape, int]:
    """Raises: ConfigError."""
    if not given:
        raise ConfigError(f'plugin "{name}" needs the args typicalPods: the pods that are expected')
    weights: dict[Shape, int] = {}
    for at, each in enumerate(given):
        cpu_milli, gpu_milli, gpus = (each.get(field, 0) for field in ("cpuMilli", "gpuMilli", "gpus"))
        if gpus > 1 and gpu_milli != WHOLE:
            where = f"typicalPods[{at}].gpuMilli: Invalid value: {gpu_milli}"
            raise ConfigError(f'plugin "{name}": {where}: must be {WHOLE} with gpus {gpus}: a share is of one')
        shape = Shape(cpu_milli, gpu_milli, gpus, each.get("models", ()))
        weights[shape] = weights.get(shape, 0) + each.get("weight", 1)
    return weights


POLICIES: Final[Mapping[str, type[GpuPolicy]]] = {
    "random": GpuRandom,
    "dotprod": GpuDotProduct,
    "clustering": GpuClustering,
    "packing": GpuPacking,
    "bestfit": GpuBestFit,
    "fgd": GpuFragmentation,
    "prices": GpuPrices,
}
