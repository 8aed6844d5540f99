"""NodeResourcesFit and NodeResourcesBalancedAllocation: whether the pod's requests fit the node, and how well.

All scores are integers by upstream's formulas (1.36), in which division truncates. Quantities are those of `NodeInfo`:
cpu in milli-units, the rest in whole units. Sources: pkg/scheduler/framework/plugins/noderesources; "Resource Bin
Packing" in the scheduling documentation; k/k#135573 for the balance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from math import floor, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minikube_py.scheduler.devices.extended import CLASS_PREFIX, names_in
from minikube_py.scheduler.devices.views import CLASSES
from minikube_py.scheduler.framework import (
    ASSIGNED_POD,
    MAX_NODE_SCORE,
    NODE,
    OF_REQUESTS,
    SKIP,
    UNSCHEDULED_POD,
    Action,
    BoolArray,
    Bound,
    ClusterChange,
    ClusterEvent,
    Code,
    CycleState,
    Dimension,
    DimensionKind,
    EventRegistration,
    IntArray,
    QueueingHint,
    Status,
    own_update,
)
from minikube_py.scheduler.objects import CPU, EPHEMERAL_STORAGE, MEMORY, NATIVE_RESOURCES, PODS, NodeInfo, PodInfo
from minikube_py.scheduler.plugins.by_devices import NO_CLASSES, ByDevices, Classes

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns, Nodes

TOO_MANY_PODS = "Too many pods"
HALF_IS_ENOUGH_BELOW = 1 << 44
HUNDREDFOLD_FITS_BELOW = 1 << 56
_instances = count()
"""Data that a plugin derives from a spec depends on its args, so it is cached by instance number."""
FloatArray = np.ndarray[Any, np.dtype[np.float64]]
BITS_MAX = 62
MAX_CUSTOM_SCORE = 10
"""The maximum score of RequestedToCapacityRatio's shape points."""


class ArgsError(ValueError):
    """Invalid plugin `args`; says where and why."""


class ResourceWeight(NamedTuple):
    name: str
    weight: int


DEFAULT_RESOURCES = (ResourceWeight(CPU, 1), ResourceWeight(MEMORY, 1))


def parse_resources(value: Any, where: str) -> tuple[ResourceWeight, ...]:
    """`[{name, weight}]` of the plugin's args; a weight of 0 or none counts as 1. Raises: ArgsError."""
    if not value:
        return DEFAULT_RESOURCES
    found = []
    for i, item in enumerate(value):
        name, weight = item.get("name", ""), item.get("weight") or 1
        if not name or not isinstance(weight, int) or not 1 <= weight <= 100:
            text = f"resource weight of {name} not in valid range (0, 100]"
            raise ArgsError(f"{where}[{i}].weight: Invalid value: {weight}: {text}")
        found.append(ResourceWeight(name, weight))
    if len({resource.name for resource in found}) < len(found):
        raise ArgsError(f"{where}: Duplicate value")
    return tuple(found)


def _is_scalar(resource: str) -> bool:
    """True for extended resources, huge pages and the like, which count only if a pod requests them."""
    return resource not in NATIVE_RESOURCES


def _pod_amount(pod: PodInfo, resource: str, use_requested: bool) -> int:
    if not use_requested:
        if pod.spec.by_containers is not None:
            return pod.spec.by_containers.get(resource, 0)
        if resource == CPU:
            return pod.spec.nonzero_cpu_milli
        if resource == MEMORY:
            return pod.spec.nonzero_memory_bytes
    return pod.spec.request(resource)


def _node_amount(node: NodeInfo, resource: str, use_requested: bool) -> int:
    if not use_requested:
        if resource == CPU:
            return node.nonzero_cpu_milli
        if resource == MEMORY:
            return node.nonzero_memory_bytes
    return node.requested.get(resource, 0)


class _Wanted(NamedTuple):
    """A resource that counts for this pod: the amount it adds, and the resource's weight."""

    resource: str
    amount: int
    weight: int


def _wanted(pod: PodInfo, resources: Sequence[ResourceWeight], use_requested: bool) -> tuple[_Wanted, ...]:
    found = []
    for name, weight in resources:
        amount = _pod_amount(pod, name, use_requested)
        if name != PODS and (amount or not _is_scalar(name)):
            found.append(_Wanted(name, amount, weight))
    return tuple(found)


def _nothing_of(resources: Sequence[ResourceWeight]) -> tuple[_Wanted, ...] | None:
    """For a pod without requests; None if the resources that count depend on the pod."""
    if any(_is_scalar(resource.name) for resource in resources):
        return None
    return tuple(_Wanted(name, 0, weight) for name, weight in resources)


# --- scores of one resource ------------------------------------------------------------------------------------------


def least_requested(requested: int, capacity: int) -> int:
    return 0 if requested > capacity else (capacity - requested) * MAX_NODE_SCORE // capacity


def most_requested(requested: int, capacity: int) -> int:
    return min(requested, capacity) * MAX_NODE_SCORE // capacity


def _least_requested_columns(requested: IntArray, capacity: IntArray) -> IntArray:
    if int(capacity.max(initial=0)) >= HUNDREDFOLD_FITS_BELOW:
        return _one_by_one(least_requested, requested, capacity)
    left: IntArray = np.maximum(capacity - requested, 0)
    left *= MAX_NODE_SCORE
    return _divide(left, capacity)


def _most_requested_columns(requested: IntArray, capacity: IntArray) -> IntArray:
    if int(capacity.max(initial=0)) >= HUNDREDFOLD_FITS_BELOW:
        return _one_by_one(most_requested, requested, capacity)
    return _divide(np.minimum(requested, capacity) * MAX_NODE_SCORE, capacity)


def _one_by_one(score: Callable[[int, int], int], requested: IntArray, capacity: IntArray) -> IntArray:
    """For amounts whose hundredfold exceeds int64 (90 PB): slow, but exact."""
    pairs = zip(requested.tolist(), capacity.tolist(), strict=True)
    return np.array([score(r, c) if c else 0 for r, c in pairs], np.int64)


def _divide(numerator: IntArray, capacity: IntArray) -> IntArray:
    """`numerator // capacity` for numerators from 0 to 100 x capacity; 0 where the capacity is 0.

    numpy vectorises division of floats, not of int64, so this divides floats. Half a unit is added first: the true
    quotient is then at least 0.5 / capacity away from every integer, and a rounding error below 2**-46 cannot reach one
    while capacities are below 2**44."""
    divisor = np.maximum(capacity, 1)
    if int(divisor.max(initial=1)) >= HALF_IS_ENOUGH_BELOW:
        exact: IntArray = numerator // divisor * (capacity != 0)
        return exact
    quotient: IntArray = ((numerator + 0.5) / divisor).astype(np.int64)
    if not capacity.all():
        quotient[capacity == 0] = 0
    return quotient


class Shape:
    """A piecewise-linear function from utilisation in percent to score 0..100; slopes truncate towards zero."""

    def __init__(self, points: Sequence[tuple[int, int]]) -> None:
        self.points = tuple(points)

    def at(self, utilization: int) -> int:
        points = self.points
        for i, (x, y) in enumerate(points):
            if utilization <= x:
                if i == 0:
                    return y
                x0, y0 = points[i - 1]
                rise = (y - y0) * (utilization - x0)
                return y0 + (rise // (x - x0) if rise >= 0 else -(-rise // (x - x0)))
        return points[-1][1]

    def ratio(self, requested: int, capacity: int) -> int:
        if requested > capacity:
            return self.at(100)
        return self.at(requested * 100 // capacity)

    def ratio_columns(self, requested: IntArray, capacity: IntArray) -> IntArray:
        utilization = _most_requested_columns(requested, capacity)
        table = np.array([self.at(u) for u in range(101)], np.int64)
        found: IntArray = np.where(capacity != 0, table[utilization], 0)
        return found


def parse_shape(value: Any, where: str) -> Shape:
    """`[{utilization 0..100, score 0..10}]`, utilisation strictly rising. Raises: ArgsError."""
    if not value:
        raise ArgsError(f"{where}: Required value: at least one point must be specified")
    points: list[tuple[int, int]] = []
    for i, item in enumerate(value):
        x, y = item.get("utilization", 0), item.get("score", 0)
        if not isinstance(x, int) or not 0 <= x <= 100:
            raise ArgsError(f"{where}[{i}].utilization: Invalid value: {x}: not in valid range [0-100]")
        if points and x <= points[-1][0]:
            raise ArgsError(f"{where}[{i}].utilization: Invalid value: {x}: values must be sorted in increasing order")
        if not isinstance(y, int) or not 0 <= y <= MAX_CUSTOM_SCORE:
            raise ArgsError(f"{where}[{i}].score: Invalid value: {y}: not in valid range [0-{MAX_CUSTOM_SCORE}]")
        points.append((x, y * (MAX_NODE_SCORE // MAX_CUSTOM_SCORE)))
    return Shape(points)


# --- Fit -------------------------------------------------------------------------------------------------------------


def codes_of(
    crowded: BoolArray, lacking: Mapping[str, BoolArray], beyond: BoolArray
) -> tuple[IntArray, Callable[[int], Status]]:
    """What `reject_codes` returns, from masks over nodes: too many pods, too little of a resource, and whether
    preemption cannot help. A bit each; where an int64 has too few, equal nodes are numbered."""
    masks = (crowded, *lacking.values(), beyond)

    def status(code: int) -> Status:
        reasons = [TOO_MANY_PODS] if code & 1 else []
        reasons += [f"Insufficient {resource}" for i, resource in enumerate(lacking) if code & 2 << i]
        return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE if code >> len(lacking) + 1 else Code.UNSCHEDULABLE, *reasons)

    if len(masks) <= BITS_MAX:
        codes = np.zeros(len(crowded), np.int64)
        for i, mask in enumerate(masks):
            codes |= mask.astype(np.int64) << i
        return codes, status
    packed = np.packbits(np.array(masks), axis=0, bitorder="little")
    rows, numbers = np.unique(packed.T, axis=0, return_inverse=True)
    return numbers.reshape(-1), lambda number: status(int.from_bytes(rows[number].tobytes(), "little"))


class NodeResourcesFit:
    """Filter: the pod's requests fit the node's free amounts, and the pod count its limit.

    Score: by `scoringStrategy` LeastAllocated (default), MostAllocated or RequestedToCapacityRatio; containers without
    cpu or memory requests count 100m and 200Mi."""

    name = "NodeResourcesFit"
    node_local = True
    of_pods = OF_REQUESTS
    bounded = True

    def __init__(self, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        args = args or {}
        self._devices = ByDevices(handle)
        self.kinds_needed, self.sign_pod = self._devices.kinds_needed, self._devices.sign_pod
        self.ignored_resources = frozenset(args.get("ignoredResources") or ())
        self.ignored_groups = frozenset(args.get("ignoredResourceGroups") or ())
        strategy = args.get("scoringStrategy") or {}
        self.strategy = strategy.get("type") or "LeastAllocated"
        self.resources = parse_resources(strategy.get("resources"), "scoringStrategy.resources")
        self._one: Callable[[int, int], int]
        self._many: Callable[[IntArray, IntArray], IntArray]
        if self.strategy == "LeastAllocated":
            self._one, self._many = least_requested, _least_requested_columns
        elif self.strategy == "MostAllocated":
            self._one, self._many = most_requested, _most_requested_columns
        elif self.strategy == "RequestedToCapacityRatio":
            ratio = strategy.get("requestedToCapacityRatio") or {}
            shape = parse_shape(ratio.get("shape"), "scoringStrategy.requestedToCapacityRatio.shape")
            self._one, self._many = shape.ratio, shape.ratio_columns
        else:
            supported = '"LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"'
            text = f'Unsupported value: "{self.strategy}": supported values: {supported}'
            raise ArgsError(f"scoringStrategy.type: {text}")
        self._key = f"{self.name}/{next(_instances)}"
        self._nothing = _nothing_of(self.resources) if self.strategy == "LeastAllocated" else None

    def events_to_register(self) -> Sequence[EventRegistration]:
        return (
            EventRegistration(ClusterEvent(ASSIGNED_POD, Action.DELETE | Action.UPDATE_POD_SCALE_DOWN)),
            EventRegistration(ClusterEvent(NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE)),
            EventRegistration(ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_SCALE_DOWN), own_update),
            EventRegistration(ClusterEvent(CLASSES.name, Action.ADD | Action.UPDATE), self._after_class),
        )

    def _after_class(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        old, new = change.old, change.new
        if old is not None and old.extended_resource == new.extended_resource:
            return QueueingHint.SKIP
        names = {new.extended_resource} if old is not None else {new.extended_resource, CLASS_PREFIX + new.name}
        return QueueingHint.SKIP if names.isdisjoint(names_in(pod.spec)) else QueueingHint.QUEUE

    def _ignored(self, resource: str) -> bool:
        if resource in NATIVE_RESOURCES or "/" not in resource:
            return False
        return resource in self.ignored_resources or resource.split("/", 1)[0] in self.ignored_groups

    def _checked(self, pod: PodInfo) -> tuple[tuple[str, int], ...]:
        """The requests to check against the node, native resources first."""
        found: tuple[tuple[str, int], ...] | None = pod.spec.cache.get(self._key)
        if found is None:
            requests = pod.spec.requests
            native = [(r, pod.spec.request(r)) for r in (CPU, MEMORY, EPHEMERAL_STORAGE) if pod.spec.request(r)]
            others = [(r, amount) for r, amount in requests if r not in NATIVE_RESOURCES and not self._ignored(r)]
            found = pod.spec.cache[self._key] = (*native, *others)
        return found

    def bounds(self, pod: PodInfo) -> Iterator[Bound]:
        yield Bound(Dimension(DimensionKind.FREE, PODS), 1)
        by_devices = self._devices.of(pod)
        for resource, amount in self._checked(pod):
            if resource not in by_devices:
                yield Bound(Dimension(DimensionKind.FREE, resource), amount)

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        allocatable, requested = node.allocatable, node.requested
        reasons: list[str] | None = None
        code = Code.UNSCHEDULABLE
        if requested[PODS] + 1 > allocatable.get(PODS, 0):
            reasons = [TOO_MANY_PODS]
        by_devices = self._devices.of(pod)
        for resource, amount in self._checked(pod):
            capacity = allocatable.get(resource, 0)
            if not capacity and resource in by_devices:
                continue
            if amount > capacity - requested.get(resource, 0):
                reasons = reasons or []
                reasons.append(f"Insufficient {resource}")
                if amount > capacity:
                    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return None if reasons is None else Status(code, *reasons)

    def filter_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> BoolArray | None:
        mask: BoolArray = nodes.free(PODS) >= 1
        by_devices = self._devices.of(pod)
        for resource, amount in self._checked(pod):
            enough = nodes.free(resource) >= amount
            mask &= enough | (nodes.allocatable(resource) == 0) if resource in by_devices else enough
        return mask

    def reject_codes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> tuple[IntArray, Callable[[int], Status]]:
        by_devices = self._devices.of(pod)
        beyond: BoolArray = np.zeros(len(nodes), np.bool_)
        lacking: dict[str, BoolArray] = {}
        for resource, amount in self._checked(pod):
            capacity = nodes.allocatable(resource)
            mask = lacking[resource] = capacity - nodes.requested(resource) < amount
            if resource in by_devices:
                mask &= capacity != 0
            beyond |= mask & (capacity < amount)
        return codes_of(nodes.requested(PODS) >= nodes.allocatable(PODS), lacking, beyond)

    def _scored(self, pod: PodInfo) -> tuple[_Wanted, ...]:
        key = self._key + "/score"
        found: tuple[_Wanted, ...] | None = pod.spec.cache.get(key)
        if found is None:
            found = pod.spec.cache[key] = _wanted(pod, self.resources, use_requested=False)
        return found

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        return self._score_node(self._scored(pod), node, self._devices.of(pod))

    def _score_node(self, wanted: Sequence[_Wanted], node: NodeInfo, by_devices: Classes = NO_CLASSES) -> int:
        total = weights = 0
        allocatable, ratio = node.allocatable, self.strategy == "RequestedToCapacityRatio"
        for resource, amount, weight in wanted:
            capacity = allocatable.get(resource, 0)
            used = _node_amount(node, resource, False)
            if not capacity and resource in by_devices:
                capacity, used = self._devices.totals(node, by_devices[resource])
            if capacity:
                score = self._one(used + amount, capacity)
                if score > 0 or not ratio:
                    total += score * weight
                    weights += weight
        if not weights:
            return 0
        return floor(total / weights + 0.5) if ratio else total // weights

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray | None:
        return self._score_columns(self._scored(pod), nodes, self._devices.of(pod))

    def _score_columns(self, wanted: Sequence[_Wanted], nodes: Nodes, by_devices: Classes = NO_CLASSES) -> IntArray:
        total = np.zeros(len(nodes), np.int64)
        weights: IntArray | int = 0
        ratio = self.strategy == "RequestedToCapacityRatio"
        for resource, amount, weight in wanted:
            capacity, used = nodes.allocatable(resource), nodes.nonzero_requested(resource)
            if resource in by_devices:
                capacity, used = self._devices.columns(nodes, by_devices[resource], capacity, used)
            scores = self._many(used + amount, capacity)
            total += scores * weight if weight != 1 else scores
            if not ratio and capacity.all():
                weights = weights + weight
            else:
                weights = weights + ((capacity != 0) & (scores > 0) if ratio else capacity != 0) * weight
        weights = np.maximum(weights, 1)
        if ratio:
            return np.floor(total / weights + 0.5).astype(np.int64)
        found: IntArray = (total / weights).astype(np.int64)
        return found

    def score_ceiling(self, node: NodeInfo) -> int:
        return MAX_NODE_SCORE if self._nothing is None else self._score_node(self._nothing, node)

    def score_ceilings(self, nodes: Nodes) -> IntArray:
        """With LeastAllocated, the score without the pod: higher usage never scores more."""
        if self._nothing is None:
            return np.full(len(nodes), MAX_NODE_SCORE, np.int64)
        return self._score_columns(self._nothing, nodes)


# --- balance ---------------------------------------------------------------------------------------------------------


def balance(fractions: Sequence[float]) -> int:
    """100 minus the standard deviation of the resources' usage shares, in percent, truncated."""
    if len(fractions) < 2:
        return MAX_NODE_SCORE
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    else:
        # Not sum(): since Python 3.12 it compensates for rounding, unlike upstream and numpy.
        total = squares = 0.0
        for fraction in fractions:
            total += fraction
        mean = total / len(fractions)
        for fraction in fractions:
            squares += (fraction - mean) * (fraction - mean)
        deviation = sqrt(squares / len(fractions))
    return int((1 - deviation) * MAX_NODE_SCORE)


class NodeResourcesBalancedAllocation:
    """Score: 50 to 100; 75 if the pod does not change the balance between resources, more if it improves it.

    Pods without requests are skipped: they would all go to one node."""

    name = "NodeResourcesBalancedAllocation"
    node_local = True
    bounded = True

    def __init__(self, args: Mapping[str, Any] | None = None, handle: object = None) -> None:
        self.resources = parse_resources((args or {}).get("resources"), "resources")
        if any(resource.weight != 1 for resource in self.resources):
            raise ArgsError("resources: Invalid value: weights must be 1: the balance knows no weights")
        self._key = f"{self.name}/{next(_instances)}"
        self._nothing = _nothing_of(self.resources)
        self._devices = ByDevices(handle)
        self.kinds_needed, self.sign_pod = self._devices.kinds_needed, self._devices.sign_pod

    def _scored(self, pod: PodInfo) -> tuple[_Wanted, ...]:
        found: tuple[_Wanted, ...] | None = pod.spec.cache.get(self._key)
        if found is None:
            found = pod.spec.cache[self._key] = _wanted(pod, self.resources, use_requested=True)
        return found

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> Status | None:
        return None if any(wanted.amount for wanted in self._scored(pod)) else SKIP

    def _shares(
        self, wanted: Sequence[_Wanted], node: NodeInfo, by_devices: Classes = NO_CLASSES
    ) -> tuple[list[float], list[float]]:
        """The usage shares of the node's resources before and after the pod."""
        before: list[float] = []
        after: list[float] = []
        allocatable, requested = node.allocatable, node.requested
        for resource, amount, _ in wanted:
            capacity, used = allocatable.get(resource, 0), requested.get(resource, 0)
            if not capacity and resource in by_devices:
                capacity, used = self._devices.totals(node, by_devices[resource])
            if capacity:
                before.append(min(used / capacity, 1.0))
                after.append(min((used + amount) / capacity, 1.0))
        return before, after

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        wanted = self._scored(pod)
        if not wanted[0].amount and not any(each.amount for each in wanted):
            # Only where a profile has no PreScore, which skips such pods.
            return 0
        before, after = self._shares(wanted, node, self._devices.of(pod))
        # Not // 2: the halves stay within 0..100, where truncation equals flooring.
        return MAX_NODE_SCORE // 2 + (MAX_NODE_SCORE // 2 + balance(after) - balance(before)) // 2

    def score_ceiling(self, node: NodeInfo) -> int:
        if self._nothing is None:
            return MAX_NODE_SCORE
        before, _ = self._shares(self._nothing, node)
        return MAX_NODE_SCORE // 2 + (3 * (MAX_NODE_SCORE // 2) - balance(before)) // 2

    def score_ceilings(self, nodes: Nodes) -> IntArray:
        """At best, a pod makes the balance perfect."""
        if self._nothing is None:
            return np.full(len(nodes), MAX_NODE_SCORE, np.int64)
        before, _, have = self._shares_columns(self._nothing, nodes)
        ceilings: IntArray = (3 * (MAX_NODE_SCORE // 2) - _balance_columns(before, have)) >> 1
        ceilings += MAX_NODE_SCORE // 2
        return ceilings

    def score_nodes(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> IntArray | None:
        wanted = self._scored(pod)
        if not wanted[0].amount and not any(each.amount for each in wanted):
            return None
        before, after, have = self._shares_columns(wanted, nodes, self._devices.of(pod))
        difference: IntArray = _balance_columns(after, have) - _balance_columns(before, have)
        difference += MAX_NODE_SCORE // 2
        difference >>= 1
        difference += MAX_NODE_SCORE // 2
        return difference

    def _shares_columns(
        self, wanted: Sequence[_Wanted], nodes: Nodes, by_devices: Classes = NO_CLASSES
    ) -> tuple[list[FloatArray], list[FloatArray], BoolArray | None]:
        """By resource, every node's usage share before and after the pod, and the nodes that have it; None for all."""
        before: list[FloatArray] = []
        after: list[FloatArray] = []
        counted: list[BoolArray] = []
        complete = True
        for resource, amount, _ in wanted:
            capacity, used = nodes.allocatable(resource), nodes.requested(resource)
            if resource in by_devices:
                capacity, used = self._devices.columns(nodes, by_devices[resource], capacity, used)
            divisor = capacity
            if not capacity.all():
                complete = False
                divisor = np.maximum(capacity, 1)
            shares = used / divisor
            before.append(np.minimum(shares, 1.0, out=shares))
            shares = (used + amount) / divisor if amount else shares
            after.append(np.minimum(shares, 1.0, out=shares))
            counted.append(capacity != 0)
        return before, after, None if complete else np.array(counted)


def _balance_columns(fractions: list[FloatArray], counted: BoolArray | None) -> IntArray:
    """`balance` for every node. `counted`: by resource, the nodes that have it; None if all have all."""
    number = len(fractions)
    if number < 2:
        return np.full(len(fractions[0]), MAX_NODE_SCORE, np.int64)
    if counted is None and number == 2:
        deviation = np.abs(fractions[0] - fractions[1])
        deviation /= 2
    else:
        deviation = _deviation(np.array(fractions), counted)
    np.subtract(1, deviation, out=deviation)
    deviation *= MAX_NODE_SCORE
    return deviation.astype(np.int64)


def _deviation(fractions: FloatArray, counted: BoolArray | None) -> FloatArray:
    """The standard deviation over the node's resources; for two, half their difference; for fewer, 0."""
    have = np.ones(fractions.shape, np.bool_) if counted is None else counted
    numbers = have.sum(axis=0)
    shares = np.where(have, fractions, 0.0)
    divisor = np.maximum(numbers, 1)
    mean = shares.sum(axis=0) / divisor
    off = shares - mean
    squares = np.where(have, off * off, 0.0)
    deviation: FloatArray = np.sqrt(squares.sum(axis=0) / divisor)
    deviation[numbers < 2] = 0.0
    if (numbers == 2).any():
        deviation = np.where(numbers == 2, _pair_deviation(shares, have), deviation)
    return deviation


def _pair_deviation(shares: FloatArray, counted: BoolArray) -> FloatArray:
    """|a - b| / 2 of the two counted resources; meaningless unless there are two."""
    first = np.argmax(counted, axis=0)
    last = len(counted) - 1 - np.argmax(counted[::-1], axis=0)
    columns = np.arange(shares.shape[1])
    found: FloatArray = np.abs(shares[first, columns] - shares[last, columns]) / 2
    return found
