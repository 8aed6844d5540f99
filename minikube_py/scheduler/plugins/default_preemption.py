"""DefaultPreemption: makes room for a pod that fits nowhere by evicting pods of lower priority.

Nodes that the filters rejected as unresolvable are no candidates. On each of the others, all pods of lower priority are
assumed gone; if the pod then fits, as many of them as possible are restored, the most important first. The best
candidate is chosen, its victims are evicted while other pods are scheduled, and the pod is nominated to the node.
Disruption budgets are preferred, not guaranteed.
Source: pkg/scheduler/framework/plugins/defaultpreemption and pkg/scheduler/framework/preemption, 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from minikube_py.errors import MinikubeError
from minikube_py.scheduler.budgets import BUDGETS, Budgets, project_budget
from minikube_py.scheduler.configuration.args import with_defaults
from minikube_py.scheduler.framework import (
    POD,
    Action,
    ClusterChange,
    ClusterEvent,
    Code,
    CycleState,
    Diagnosis,
    EventRegistration,
    PostFilterResult,
    QueueingHint,
    Status,
)

if TYPE_CHECKING:
    from minikube_py.scheduler.dry_run import DryRuns, Trial
    from minikube_py.scheduler.extenders.asking import Extenders
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.lockstep import Lockstep
    from minikube_py.scheduler.objects import NodeInfo, PodInfo

ATTEMPTS = "scheduler_preemption_attempts_total"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "No preemption victims found for incoming pod")
NEVER = "preemption: not eligible due to preemptionPolicy=Never."
TERMINATING = "preemption: not eligible due to a terminating pod on the nominated node."
NO_CANDIDATE = Status(Code.UNSCHEDULABLE, "preemption: no candidate node for preemption")
UNDER_WAY = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "waiting for the preemption for this pod to be finished")
PRIORITY_OFFSET = 1 << 31
"""Added to each priority, so that a few victims of negative priority do not sum to more than many."""
TOGETHER_MIN, TOGETHER_MAX = 32, 256
"""Nodes tried together: a few cost little more than one."""
STARTED_NEVER = "9999"
"""Sorts after every start: a pod that has not started counts as started now."""


class Candidate(NamedTuple):
    """`victims`: most important first. `violations`: how many of them a disruption budget protects."""

    node: NodeInfo
    victims: tuple[PodInfo, ...]
    violations: int


class DefaultPreemption:
    name = "DefaultPreemption"

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle
        full = with_defaults(self.name, args or {})
        self._percentage: int = full["minCandidateNodesPercentage"]
        self._least: int = full["minCandidateNodesAbsolute"]
        self._budgets = handle.informer(BUDGETS, project_budget)

    # --- the queue --------------------------------------------------------------------------------------------------

    def gate_key(self, pod: PodInfo) -> object:
        return ()

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """A pod is not tried while its victims are being evicted."""
        return UNDER_WAY if self._handle.is_preempting(pod.uid) else None

    def events_to_register(self) -> Sequence[EventRegistration]:
        """A pod held back by `pre_enqueue` is woken on pod deletions, as its other plugins decide."""
        return (EventRegistration(ClusterEvent(POD, Action.DELETE), _no_help),)

    # --- PostFilter -------------------------------------------------------------------------------------------------

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, Status]:
        try:
            candidates, instead = self._find(pod, diagnosis)
            return instead or self._take(pod, candidates)
        finally:
            self._handle.count(ATTEMPTS)

    async def post_filter_through(
        self, extenders: Extenders, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, Status]:
        """As `post_filter`; extenders may reject candidates or name other victims."""
        try:
            candidates, instead = self._find(pod, diagnosis)
            if instead is not None:
                return instead
            try:
                agreed = await extenders.preempt(pod, candidates)
            except MinikubeError as error:
                return None, Status(Code.ERROR, f"preemption: {error}")
            left = [each for each in map(_as_it_is, agreed) if each is not None]
            return self._take(pod, left) if left else (None, NO_CANDIDATE)
        finally:
            self._handle.count(ATTEMPTS)

    def _find(
        self, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[list[Candidate], tuple[PostFilterResult | None, Status] | None]:
        """The candidates, or the result if there are none."""
        why_not = self._ineligible(pod, diagnosis)
        if why_not:
            return [], (None, Status(Code.UNSCHEDULABLE, why_not))
        candidates, statuses = self._candidates(pod, diagnosis)
        if not candidates:
            return [], (PostFilterResult(""), _no_candidate(diagnosis.node_count, statuses))
        return candidates, None

    def _take(self, pod: PodInfo, candidates: Sequence[Candidate]) -> tuple[PostFilterResult, Status]:
        best = best_of(candidates)
        self._handle.preempt(pod, best.node.name, best.victims)
        return PostFilterResult(best.node.name), Status(Code.SUCCESS)

    def candidate(self, pod: PodInfo, diagnosis: Diagnosis) -> Candidate | None:
        """The candidate it would choose now, without evicting; None if there is none."""
        if self._ineligible(pod, diagnosis):
            return None
        # Queries must not influence later decisions.
        before = self._handle.rng.getstate()
        try:
            candidates, _ = self._candidates(pod, diagnosis)
        finally:
            self._handle.rng.setstate(before)
        return best_of(candidates) if candidates else None

    def _ineligible(self, pod: PodInfo, diagnosis: Diagnosis) -> str:
        """Why the pod must not preempt others, or ""."""
        if pod.preemption_policy == "Never":
            return NEVER
        node = self._handle.columns.by_name.get(pod.nominated_node) if pod.nominated_node else None
        if node is None or node.slot not in diagnosis.unschedulable_slots:
            # Unresolvable or missing: the pod may look for another node.
            return ""
        going = any(other.preempted and other.priority < pod.priority for other in node.pods.values())
        return TERMINATING if going else ""

    def _candidates(self, pod: PodInfo, diagnosis: Diagnosis) -> tuple[list[Candidate], list[Status]]:
        """Enough candidates, those without budget violations first; and why the other nodes tried are none."""
        slots = diagnosis.unschedulable_slots
        if not slots:
            return [], []
        if self._handle.columns.lowest_priority() >= pod.priority:
            return [], [NO_VICTIMS] * len(slots)
        enough = self.enough(len(slots))
        offset = self._handle.rng.randrange(len(slots))
        budgets = Budgets(self._budgets.store.values())
        columns = self._handle.columns
        dry_run = self._handle.dry_run(pod)
        if dry_run is None:
            return [], []
        clean: list[Candidate] = []
        violating: list[Candidate] = []
        statuses: list[Status] = []
        order = [*slots[offset:], *slots[:offset]]
        while order:
            # As many as may suffice; if there are enough but all violate a budget, one that does not may be far off.
            lacking = enough - len(clean) - len(violating)
            number = max(lacking, TOGETHER_MIN) if lacking > 0 else TOGETHER_MAX
            nodes = [node for slot in order[:number] if (node := columns.by_slot[slot]) is not None]
            del order[:number]
            for found in select_in_all(dry_run, pod, nodes, budgets):
                if isinstance(found, Status):
                    statuses.append(found)
                    continue
                (violating if found.violations else clean).append(found)
                if clean and len(clean) + len(violating) >= enough:
                    return clean[:enough] + violating[:enough], statuses
        return clean[:enough] + violating[:enough], statuses

    def enough(self, nodes: int) -> int:
        """How many candidates suffice among `nodes`."""
        return min(max(nodes * self._percentage // 100, self._least), nodes)


def _as_it_is(candidate: Candidate) -> Candidate | None:
    """Without victims that left during extender calls; None if it is no longer a candidate."""
    node = candidate.node
    staying = tuple(victim for victim in candidate.victims if victim.uid in node.pods)
    return candidate._replace(victims=staying) if node.present and staying else None


def _no_help(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    return QueueingHint.SKIP


def _no_candidate(nodes: int, statuses: Sequence[Status]) -> Status:
    counts: dict[str, int] = {}
    for status in statuses:
        for reason in status.reasons:
            counts[reason] = counts.get(reason, 0) + 1
    if nodes > len(statuses):
        counts[NOT_HELPFUL] = nodes - len(statuses)
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return Status(Code.UNSCHEDULABLE, f"preemption: 0/{nodes} nodes are available: {told}.")


# --- one node -------------------------------------------------------------------------------------------------------


def importance(pod: PodInfo) -> tuple[int, str]:
    """Sort key, most important first: highest priority, then longest running."""
    return -pod.priority, pod.started or STARTED_NEVER


def select_in_all(
    dry_run: DryRuns, pod: PodInfo, nodes: Sequence[NodeInfo], budgets: Budgets
) -> list[Candidate | Status]:
    """`select_victims` for each of `nodes`. Raises: PluginError."""
    if not dry_run.can_go_together:
        return [select_victims(dry_run, pod, node, budgets) for node in nodes]
    found: dict[int, Candidate | Status] = {}
    trying: list[int] = []
    below: list[list[PodInfo]] = []
    for i, node in enumerate(nodes):
        potential = _below(pod, node)
        if potential and not dry_run.goes_alone(node):
            trying.append(i)
            below.append(sorted(potential, key=importance))
        else:
            found[i] = select_victims(dry_run, pod, node, budgets) if potential else NO_VICTIMS
    lockstep = dry_run.together([nodes[i] for i in trying], below)
    rejected = lockstep.rejections()
    found |= {trying[place]: status for place, status in rejected.items()}
    left = {place: by_budget(pods, budgets) for place, pods in enumerate(below) if place not in rejected}
    for place, victims in _victims_of_all(lockstep, {place: (*a, *b) for place, (a, b) in left.items()}).items():
        node = nodes[trying[place]]
        protected = {other.uid for other in left[place][0]}
        found[trying[place]] = _candidate(node, victims, sum(victim.uid in protected for victim in victims))
    return [found[i] for i in range(len(nodes))]


def _victims_of_all(lockstep: Lockstep, orders: Mapping[int, Sequence[PodInfo]]) -> dict[int, list[PodInfo]]:
    """By index, the victims; `orders`: by index, the pods in the order of their restoration."""
    victims: dict[int, list[PodInfo]] = {place: [] for place in orders}
    for turn in range(max(map(len, orders.values()), default=0)):
        places = [place for place, order in orders.items() if turn < len(order)]
        pods = [orders[place][turn] for place in places]
        fits = lockstep.let_back(np.array(places, np.int64), pods)
        for place, other, fit in zip(places, pods, fits.tolist(), strict=True):
            if not fit:
                victims[place].append(other)
    return victims


def select_victims(
    dry_run: Callable[[NodeInfo], Trial], pod: PodInfo, node: NodeInfo, budgets: Budgets
) -> Candidate | Status:
    """The fewest pods to evict from `node` for `pod`, or why none would help. Raises: PluginError."""
    potential = _below(pod, node)
    if not potential:
        return NO_VICTIMS
    trial = dry_run(node)
    for other in potential:
        trial.remove(other)
    rejected = trial.rejection()
    if rejected is not None:
        return rejected
    potential.sort(key=importance)
    violating, others = by_budget(potential, budgets)
    victims: list[PodInfo] = []
    violations = 0
    for group in (violating, others):
        for other in group:
            trial.add(other)
            if trial.rejection() is not None:
                trial.remove(other)
                victims.append(other)
                violations += group is violating
    return _candidate(node, victims, violations)


def _below(pod: PodInfo, node: NodeInfo) -> list[PodInfo]:
    return [other for other in node.pods.values() if other.priority < pod.priority]


def _candidate(node: NodeInfo, victims: Sequence[PodInfo], violations: int) -> Candidate | Status:
    if not victims:
        return Status(Code.ERROR, f'expected at least one victim pod on node "{node.name}"')
    return Candidate(node, tuple(sorted(victims, key=importance)), violations)


def by_budget(pods: Sequence[PodInfo], budgets: Budgets) -> tuple[list[PodInfo], list[PodInfo]]:
    """The pods whose eviction would violate a disruption budget if all before them are evicted too, and the others."""
    if not budgets:
        return [], list(pods)
    left: dict[str, int] = {}
    violating: list[PodInfo] = []
    others: list[PodInfo] = []
    for pod in pods:
        violates = False
        for budget in budgets.protecting(pod):
            left[budget.uid] = left.get(budget.uid, budget.allowed) - 1
            violates |= left[budget.uid] < 0
        (violating if violates else others).append(pod)
    return violating, others


# --- choosing a candidate -------------------------------------------------------------------------------------------


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    """By fewest violations, the lowest priority of the highest victim, the smallest sum of priorities, the fewest
    victims, and the latest start of the highest victims; then the first."""
    left = list(candidates)
    for cost in (
        lambda c: c.violations,
        lambda c: c.victims[0].priority,
        lambda c: sum(victim.priority + PRIORITY_OFFSET for victim in c.victims),
        lambda c: len(c.victims),
    ):
        least = min(map(cost, left))
        left = [each for each in left if cost(each) == least]
    latest = max(map(_start_of_highest, left))
    return next(each for each in left if _start_of_highest(each) == latest)


def _start_of_highest(candidate: Candidate) -> str:
    """The earliest start among the victims of the highest priority."""
    highest = candidate.victims[0].priority
    return min(victim.started or STARTED_NEVER for victim in candidate.victims if victim.priority == highest)
