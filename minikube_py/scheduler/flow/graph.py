"""The graph of one round: classes of equal pods, the model's arcs to machines, machines, the sink.

Everything between a class and the machines is the class's own copy, so that machines rejected by its filters are left
out, and no arc carries more pods than fit there. Classes meet at the machines (and at machine classes, each of which
takes one pod of any class) and at their jobs' unscheduled aggregators, and where classes of equal requests send more
pods to a machine than fit of these: all their arcs to it lead through one node, with room for as many.

Of the arcs from one node of a class to machines, only the cheapest are in the problem, with room for as many pods as
the round has: a pod on any other arc could as well take one of these that no pod of the round takes, and pay no more,
since all else of its path stays. So the problem grows with pods, not with machines. And a machine with room for all
that may arrive is no node of the problem: the arcs of its machine classes lead to the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from minikube_py.scheduler.columns import NodeColumns
from minikube_py.scheduler.flow.checking import Asking
from minikube_py.scheduler.flow.model import Arc, CostModel, EquivClass, Machines, MinimumUnmet, ModelError, Task
from minikube_py.scheduler.flow.problem import Infeasible, Problem
from minikube_py.scheduler.flow.solvers import Solved, Solver
from minikube_py.scheduler.framework import BoolArray, IntArray
from minikube_py.scheduler.objects import PodInfo

SINK = 0
UNKNOWN = "(unknown)"
_UNDER_WAY = -1
SOLVES_MAX: Final = 64
"""Of one graph, in search of the classes whose `min_flow` cannot be met: nobody else has a turn meanwhile."""


class TaskClass(NamedTuple):
    """`slots`: where the pods pass the filters, ascending; `room`: how many of them fit each slot on their own."""

    task: Task
    slots: IntArray
    room: IntArray

    @property
    def name(self) -> str:
        return self.named(self.task)

    @staticmethod
    def named(task: Task) -> str:
        return f"{task.job or task.pod.namespace} ({task.count} pods like {task.pod.name})"


class Step(NamedTuple):
    """One arc of a pod's path."""

    to: str
    cost: int


class Placement(NamedTuple):
    """Where one pod of a class goes. `path`: up to the machine; `leaf_cost`: from there to the sink."""

    slot: int
    path: tuple[Step, ...]
    leaf_cost: int

    @property
    def price(self) -> int:
        return sum(step.cost for step in self.path) + self.leaf_cost


class _Part(NamedTuple):
    """Arcs of a class to machines, from `node`; arc `first + i` leads to the machine at `positions[i]`."""

    node: int
    first: int
    positions: IntArray
    label: str


class _Tier(NamedTuple):
    """Arcs to machines: the node of the first of all machines, places among these, capacities and costs."""

    base: int
    places: IntArray
    room: IntArray
    cost: IntArray


class _Ways(NamedTuple):
    """Arcs from an equivalence class to machines. `slots` and `room`: of the classes of pods that have them in
    common."""

    slots: IntArray
    room: IntArray
    tiers: list[_Tier]


class _Fits:
    """Classes of equal requests. `room`: how many of their pods fit each machine; `chunks`: of their arcs to machines,
    by index."""

    __slots__ = ("chunks", "room")

    def __init__(self, room: IntArray) -> None:
        self.room = room
        self.chunks: list[int] = []


class _Own:
    """A class's part of the graph. `inner`: its arcs between its own nodes, as (arc, from, to, label); `lower`: by arc,
    the least flow, which a class without supply could not have; `aside`: the price from its job's aggregator on."""

    __slots__ = ("aside", "fits", "inner", "lower", "node", "parts", "pods", "unscheduled")

    def __init__(self, node: int, pods: int, fits: _Fits) -> None:
        self.node = node
        self.pods = pods
        self.fits = fits
        self.aside = 0
        self.parts: list[_Part] = []
        self.inner: list[tuple[int, int, int, str]] = []
        self.lower: dict[int, int] = {}
        self.unscheduled = -1


class _Job:
    """Its unscheduled aggregator, from which a pod costs `cost`."""

    __slots__ = ("cost", "count", "node")

    def __init__(self, node: int, cost: int) -> None:
        self.node = node
        self.cost = cost
        self.count = 0


class Graph:
    """`failed`: classes left out because the model gave no usable result, with the error."""

    def __init__(
        self,
        model: CostModel,
        columns: NodeColumns,
        arcs_max: int = 1 << 20,
        seen: Callable[[Machines], Machines] | None = None,
        extra: Mapping[int, int] | None = None,
    ) -> None:
        """`seen`: maps machines to the model's view, if it differs; `extra`: by slot, a price on top of the model's. A
        machine with such a price takes one pod."""
        self._model = model
        self._seen = seen
        self._extra = extra or {}
        self._columns = columns
        self._arcs_max = arcs_max
        self._chunks: list[tuple[IntArray, ...]] = [(np.zeros(0, np.int64),) * 4]
        self._arcs = 0
        self.machine_slots = np.flatnonzero(columns.present[: columns.size])
        self._place = np.full(columns.size, -1, np.int64)
        self._place[self.machine_slots] = np.arange(len(self.machine_slots))
        self._nodes = 1 + len(self.machine_slots)
        self._count = 0
        self._supply: list[tuple[int, int]] = []
        self._jobs: dict[str, _Job] = {}
        self._classes: list[_Own | None] = []
        self._tiers: list[int] = []
        """For each index, the first of its machine classes; each leads to its machine."""
        self._sharing: set[int] = set()
        """The nodes from which arcs lead to machine classes."""
        self._ways: dict[EquivClass, list[_Ways]] = {}
        self._fits: dict[Hashable, _Fits] = {}
        self._pods = 0
        self.failed: dict[int, ModelError] = {}

    @property
    def size(self) -> tuple[int, int]:
        """Number of nodes and of arcs."""
        return self._count, self._arcs

    # --- building ---------------------------------------------------------------------------------------------------

    def _machines(self, slots: IntArray) -> Machines:
        machines = Machines(self._columns.some(slots), slots)
        return machines if self._seen is None else self._seen(machines)

    def _node(self) -> int:
        self._nodes += 1
        return self._nodes - 1

    def _add(self, start: IntArray | int, end: IntArray | int, capacity: IntArray | int, cost: IntArray | int) -> int:
        """Returns the number of the first arc."""
        chunk = np.broadcast_arrays(*(np.atleast_1d(np.asarray(a, np.int64)) for a in (start, end, capacity, cost)))
        self._chunks.append(tuple(chunk))
        self._arcs += len(chunk[0])
        return self._arcs - len(chunk[0])

    def build(self, classes: Sequence[TaskClass]) -> Problem:
        """Raises: ModelError, if it concerns all classes."""
        asking = Asking(self._model.name, "all", Task(classes[0].task.pod))
        with asking.guarded(UNKNOWN):
            return self._built(classes, asking)

    def _built(self, classes: Sequence[TaskClass], asking: Asking) -> Problem:
        model = self._model
        machines = self._machines(self.machine_slots)
        asking.ask("stats", model.prepare_stats, machines)
        asking.ask("stats", model.update_stats, machines)
        self._pods = total = sum(each.task.count for each in classes)
        pairs = sum(len(each.slots) for each in classes)
        most = min(model.machine_classes, total, max(1, self._arcs_max // max(1, pairs)))
        self._tiers = [self._nodes + index * len(self.machine_slots) for index in range(most)]
        self._nodes += most * len(self.machine_slots)
        self._price_leaves(machines)
        for number, each in enumerate(classes):
            self._classes.append(self._class(number, each))
        if len(self._sharing) == 1:
            self._lead_on()
        for job in self._jobs.values():
            self._add(job.node, SINK, job.count, job.cost)
        self._bound()
        self._leave()
        return self._problem()

    def _problem(self, held: Collection[int] | None = None) -> Problem:
        """`held`: the classes whose `min_flow` counts; None: all."""
        start, end, capacity, cost = (np.concatenate(part) for part in zip(*self._chunks, strict=True))
        used = np.zeros(self._nodes, np.bool_)
        used[SINK] = used[start] = used[end] = True
        # Only nodes with arcs are nodes of the problem. Each class with supply has the arc to its job.
        number = np.cumsum(used) - 1
        self._count = int(number[-1]) + 1
        start, end = number[start], number[end]
        supply = np.zeros(self._count, np.int64)
        for node, count in self._supply:
            supply[number[node]] = count
        supply[SINK] = -supply.sum()
        # Twice the price, plus 1 for staying: of equally cheap flows every solver prefers the one placing more pods.
        cost, lower = 2 * cost, np.zeros_like(cost)
        for each, own in enumerate(self._classes):
            if own is None:
                continue
            cost[own.unscheduled] += 1
            if held is None or each in held:
                lower[list(own.lower)] = list(own.lower.values())
        return Problem(supply, start, end, capacity, cost, lower if lower.any() else None)

    def solved(self, classes: Sequence[TaskClass], problem: Problem, solver: Solver) -> tuple[Problem, Solved]:
        """Without the classes whose `min_flow` cannot be met together with those of the classes before them: these
        fail, as do all that are left after SOLVES_MAX solves. `classes`, `problem`: as built. Raises: Infeasible, for
        another reason."""
        try:
            return problem, solver.solved(problem)
        except Infeasible:
            least = [number for number, own in enumerate(self._classes) if own is not None and own.lower]
        held: list[int] = []
        # All together were just tried; the last solve is of what holds.
        groups, solves = _halves(least), SOLVES_MAX - 2
        while groups and solves:
            group, solves = groups.pop(), solves - 1
            why = self._cannot(held + group, solver)
            if not why:
                held += group
            elif len(group) > 1:
                groups += _halves(group)
            else:
                beside = f" together with those of {len(held)} classes before it" if held else ""
                self._fail_minimum(group[0], classes[group[0]], f"cannot be met{beside}: {why}")
        for number in (each for group in groups for each in group):
            among = f"is among those of {len(least)} classes that cannot all be met"
            self._fail_minimum(number, classes[number], f"{among}; {SOLVES_MAX} solves did not tell which can")
        there = {own.node for own in self._classes if own is not None}
        self._supply = [each for each in self._supply if each[0] in there]
        problem = self._problem()
        return problem, solver.solved(problem)

    def _cannot(self, held: Collection[int], solver: Solver) -> str:
        """Why the minimums of these classes cannot be met together; "" if they can."""
        try:
            solver.solve(self._problem(held))
        except Infeasible as error:
            return str(error)
        return ""

    def _fail_minimum(self, number: int, each: TaskClass, why: str) -> None:
        own = self._classes[number]
        assert own is not None
        arc, least = next(iter(own.lower.items()))
        label = next(label for known, _, _, label in own.inner if known == arc)
        asking = Asking(self._model.name, each.name, each.task)
        self.failed[number] = asking.fail(label, f"min_flow is {least}, and {why}", MinimumUnmet)
        self._classes[number] = None

    def _lead_on(self) -> None:
        """Machine classes to which one node leads limit nothing that its arcs do not: these lead to the machines."""
        count = len(self.machine_slots)
        first, last = self._tiers[0], self._tiers[-1] + count
        for at, (start, end, *rest) in enumerate(self._chunks):
            on = np.where((end >= first) & (end < last), 1 + (end - first) % count, end)
            self._chunks[at] = (start, on, *rest)
        self._tiers = []

    def _price_leaves(self, machines: Machines) -> None:
        asking = Asking(self._model.name, "machines", Task(_NOBODY))
        inner = asking.arcs(machines, "machine", self._model.resource_nodes_to_resource_nodes, machines)
        outer = asking.arcs(machines, "leaf", self._model.leaf_resource_nodes_to_sink, machines)
        self._leaf_room = np.minimum(inner[1], outer[1])
        self._leaf_cost = inner[0] + outer[0]
        for slot, price in self._extra.items():
            place = self._place[slot]
            self._leaf_cost[place] += price
            self._leaf_room[place] = min(1, self._leaf_room[place])

    def _bound(self) -> None:
        """Lets no more pods of equal requests to a machine than fit there."""
        count = len(self.machine_slots)
        for fits in self._fits.values():
            arrives = np.zeros(count)
            for at in fits.chunks:
                _, end, capacity, _ = self._chunks[at]
                arrives += np.bincount(end - 1, capacity, count)
            over = np.flatnonzero((arrives > fits.room) & (self._leaf_room > fits.room))
            on = 1 + np.arange(count)
            on[over] = self._nodes + np.arange(len(over))
            self._nodes += len(over)
            if len(over):
                for at in fits.chunks:
                    start, end, *rest = self._chunks[at]
                    self._chunks[at] = (start, on[end - 1], *rest)
                self._add(on[over], 1 + over, fits.room[over], 0)

    def _leave(self) -> None:
        """Adds the arcs from machines to the sink, and from machine classes to machines, where an arc leads there."""
        used = np.zeros(self._nodes, np.bool_)
        for chunk in self._chunks:
            used[chunk[1]] = True
        count = len(self.machine_slots)
        arrives = np.zeros(count, np.int64)
        for base in self._tiers:
            arrives += used[base : base + count]
        straight = self._roomy(used[1 : 1 + count], arrives)
        for base in self._tiers:
            places = np.flatnonzero(used[base : base + count])
            ends = np.where(straight[places], SINK, 1 + places)
            used[ends] = True
            if len(places):
                self._add(base + places, ends, 1, np.where(straight[places], self._leaf_cost[places], 0))
        places = np.flatnonzero(used[1 : 1 + count])
        if len(places):
            self._add(1 + places, SINK, self._leaf_room[places], self._leaf_cost[places])

    def _roomy(self, directly: BoolArray, arrives: IntArray) -> BoolArray:
        """Machines to which arcs lead from machine classes alone, and never more pods than fit."""
        return ~directly & (arrives <= self._leaf_room)

    def _class(self, number: int, of: TaskClass) -> _Own | None:
        """None if the model failed: nodes already added stay, without supply."""
        fits = self._fits.setdefault(of.task.pod.spec.requests, _Fits(np.zeros(len(self.machine_slots), np.int64)))
        places = self._place[of.slots]
        fits.room[places] = np.maximum(fits.room[places], of.room)
        own = _Own(self._node(), of.task.count, fits)
        try:
            with Asking(self._model.name, of.name, of.task).guarded(UNKNOWN):
                self._arcs_of(own, of)
        except ModelError as error:
            self.failed[number] = error
            return None
        self._supply.append((own.node, of.task.count))
        return own

    def _unscheduled(self, own: _Own, task: Task, asking: Asking) -> None:
        arc = asking.arc("task -> unscheduled", self._model.task_to_unscheduled_agg, task)
        job = self._jobs.get(task.job)
        if job is None:
            label = f"unscheduled {task.job} -> sink"
            cost = asking.arc(label, self._model.unscheduled_agg_to_sink, task.job).cost
            job = self._jobs[task.job] = _Job(self._node(), cost)
        job.count += task.count
        own.unscheduled, own.aside = self._add(own.node, job.node, task.count, arc.cost), job.cost

    def _arcs_of(self, own: _Own, of: TaskClass) -> None:
        model, task = self._model, of.task
        asking = Asking(model.name, of.name, task)
        asking.ask("add_task", model.add_task, task)
        machines = self._machines(of.slots)
        self._unscheduled(own, task, asking)
        seen: dict[Hashable, int] = {}
        for ec in asking.classes("task -> class", model.get_task_equiv_classes, task):
            arc = asking.arc(f"task -> {ec}", model.task_to_equiv_class_aggregator, task, ec)
            if arc.capacity:
                node = self._equiv_class(own, of, ec, machines, asking, seen)
                self._inner(own, own.node, node, arc._replace(capacity=task.count), str(ec), asking)
        preferred = asking.positions("task -> machine", len(machines), model.get_task_preference_arcs, task, machines)
        for position in () if preferred is None else preferred.tolist():
            machine = machines[position]
            arc = asking.arc(f"task -> {machine.name}", model.task_to_resource_node, task, machine)
            if arc.min_flow:
                raise asking.fail(f"task -> {machine.name}", f"min_flow is {arc.min_flow}; 0 is expected")
            room = min(arc.capacity * task.count, int(of.room[position]))
            place = self._place[of.slots[position : position + 1]]
            self._part(own, own.node, self._open(_Tier(1, place, np.array([room]), np.array([arc.cost]))), "")

    def _inner(self, own: _Own, start: int, end: int, of: Arc, label: str, asking: Asking) -> None:
        arc = self._add(start, end, of.capacity, of.cost)
        own.inner.append((arc, start, end, label))
        if of.min_flow > of.capacity:
            text = f"min_flow is {of.min_flow}, and the arc has room for {of.capacity} (the class has {own.pods} pods)"
            # An arc from the task has as much room as there are pods; others have what the model says.
            raise asking.fail(label, text, MinimumUnmet if start == own.node else ModelError)
        if of.min_flow:
            own.lower[arc] = of.min_flow

    def _equiv_class(
        self, own: _Own, of: TaskClass, ec: EquivClass, machines: Machines, asking: Asking, seen: dict[Hashable, int]
    ) -> int:
        if ec in seen:
            if seen[ec] == _UNDER_WAY:
                raise asking.fail(str(ec), "equivalence classes lead to each other in a circle")
            return seen[ec]
        seen[ec] = _UNDER_WAY
        node = self._node()
        model, name = self._model, str(ec)
        for other in asking.classes(f"{name} -> class", model.get_equiv_class_to_equiv_classes_arcs, ec):
            arc = asking.arc(f"{name} -> {other}", model.equiv_class_to_equiv_class, ec, other)
            if arc.capacity:
                end = self._equiv_class(own, of, other, machines, asking, seen)
                self._inner(own, node, end, arc, str(other), asking)
        for tier in self._ways_from(of, ec, machines, asking):
            self._part(own, node, tier, name)
        seen[ec] = node
        return node

    def _ways_from(
        self, of: TaskClass, ec: EquivClass, machines: Machines, asking: Asking
    ) -> list[_Tier]:
        """The arcs to machines that the class may need; the model is asked once for all classes that differ in nothing
        that its prices may depend on."""
        known = self._ways.setdefault(ec, [])
        for each in known:
            if each.slots is of.slots and each.room is of.room:
                return each.tiers
        model, name = self._model, str(ec)
        some = asking.positions(
            f"{name} -> machines", len(machines), model.get_outgoing_equiv_class_pref_arcs, ec, machines
        )
        chosen, room, slots = machines, of.room, of.slots
        if some is not None:
            chosen, room, slots = self._machines(slots[some]), room[some], slots[some]
        places, tiers = self._place[slots], []
        if model.machine_classes:
            for index, base in enumerate(self._tiers):
                cost, capacity = asking.arcs(chosen, name, model.equiv_class_to_machine_classes, ec, chosen, index)
                tiers.append(_Tier(base, places, np.minimum(capacity, room > index), cost))
        elif len(chosen):
            cost, capacity = asking.arcs(chosen, name, model.equiv_class_to_resource_nodes, ec, chosen)
            tiers.append(_Tier(1, places, np.minimum(capacity, room), cost))
        tiers = self._cheapest(tiers)
        known.append(_Ways(of.slots, of.room, tiers))
        return tiers

    def _cheapest(self, tiers: Sequence[_Tier]) -> list[_Tier]:
        """The cheapest arcs with room for as many pods as there are, by the price up to the sink; ties in order. What
        exceeds a machine's way to the sink is no room: beside the cheapest arcs with as much, no pod needs the others.
        """
        tiers = [self._open(each) for each in tiers]
        if not tiers:
            return []
        places, room, cost = (np.concatenate(part) for part in list(zip(*tiers, strict=True))[1:])
        price, room = cost + self._leaf_cost[places], self._within_leaves(places, room, cost)
        kept: IntArray = np.flatnonzero(room > 0)
        if len(kept) > self._pods:
            limit = np.partition(price[kept], self._pods - 1)[self._pods - 1]
            kept = kept[price[kept] <= limit]
        # Of those in order, as many as the pods need.
        kept = kept[np.argsort(price[kept], kind="stable")]
        kept = np.sort(kept[: 1 + np.searchsorted(np.cumsum(room[kept]), self._pods)])
        found, first = [], 0
        for each in tiers:
            own = kept[(kept >= first) & (kept < first + len(each.places))] - first
            found.append(_Tier(each.base, each.places[own], each.room[own], each.cost[own]))
            first += len(each.places)
        return found

    def _open(self, tier: _Tier) -> _Tier:
        """Its arcs that a pod can use."""
        room = np.minimum(tier.room, self._leaf_room[tier.places])
        used = np.flatnonzero(room > 0)
        return _Tier(tier.base, tier.places[used], room[used], tier.cost[used])

    def _within_leaves(self, places: IntArray, room: IntArray, cost: IntArray) -> IntArray:
        """The room of each arc after that of the cheaper ones to its machine, within the machine's way to the sink."""
        if (np.bincount(places, room, len(self._leaf_room)) <= self._leaf_room).all():
            return room
        order = np.lexsort((cost, places))
        ordered, before = places[order], np.cumsum(room[order]) - room[order]
        first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        before -= np.repeat(before[first], np.diff(np.append(first, len(ordered))))
        found = np.empty_like(room)
        found[order] = np.clip(self._leaf_room[ordered] - before, 0, room[order])
        return found

    def _part(self, own: _Own, node: int, tier: _Tier, label: str) -> None:
        """Arcs to machines, or to their machine classes."""
        if len(tier.places):
            first = self._add(node, tier.places + tier.base, tier.room, tier.cost)
            own.parts.append(_Part(node, first, tier.places, label))
            if tier.base > 1:
                self._sharing.add(node)
            else:
                own.fits.chunks.append(len(self._chunks) - 1)

    # --- reading the flow -------------------------------------------------------------------------------------------

    def placements(self, number: int, flow: IntArray, problem: Problem) -> Iterator[Placement]:
        """The class's placed pods, one by one."""
        own = self._classes[number]
        if own is None:
            return
        left = {arc: int(flow[arc]) for arc, *_ in own.inner}
        into: dict[int, list[tuple[int, int, str]]] = {}
        for arc, start, end, label in own.inner:
            into.setdefault(end, []).append((arc, start, label))
        for part in own.parts:
            carried = flow[part.first : part.first + len(part.positions)]
            used = np.flatnonzero(carried)
            for i, amount in zip(used.tolist(), carried[used].tolist(), strict=True):
                place = int(part.positions[i])
                slot = int(self.machine_slots[place])
                info = self._columns.by_slot[slot]
                last = Step(info.name if info is not None else "", _price(problem, part.first + i))
                for _ in range(amount):
                    path = (*_back(own.node, part.node, into, left, problem), last)
                    yield Placement(slot, path, int(self._leaf_cost[place]))

    def unscheduled_price(self, number: int, problem: Problem) -> int:
        """The price of leaving one of its pods unscheduled, up to the sink."""
        own = self._classes[number]
        return 0 if own is None else _price(problem, own.unscheduled) + own.aside


def _halves(group: list[int]) -> list[list[int]]:
    """In the order of a stack; of one, itself."""
    half = len(group) // 2
    return [each for each in (group[half:], group[:half]) if each]


def _price(problem: Problem, arc: int) -> int:
    return int(problem.cost[arc]) // 2


def _back(
    root: int, node: int, into: dict[int, list[tuple[int, int, str]]], left: dict[int, int], problem: Problem
) -> list[Step]:
    """A path from the class's node to `node` with remaining flow, which it consumes."""
    steps: list[Step] = []
    while node != root:
        arc, start, label = next(each for each in into[node] if left[each[0]])
        left[arc] -= 1
        steps.append(Step(label, _price(problem, arc)))
        node = start
    steps.reverse()
    return steps


class _Nobody:
    """Placeholder in messages for arcs that belong to no pod."""

    key = "(none)"
    name = "(none)"
    namespace = ""
    labels: dict[str, str] = {}


_NOBODY: PodInfo = _Nobody()  # type: ignore[assignment]
