"""DynamicResources: a pod with claims goes where devices are for them; they are allocated to it before it is bound.

Source: `plugins/dynamicresources/dynamicresources.go`, with the gates that are on by default in 1.36, but for extended
resources that a DeviceClass stands for: a pod that asks for one stays unschedulable for want of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from minikube_py.api.values import duration_ns
from minikube_py.errors import MinikubeError
from minikube_py.scheduler.configuration.args import with_defaults
from minikube_py.scheduler.devices.allocator import AllocationError, TooLong
from minikube_py.scheduler.devices.known import ALL, Devices
from minikube_py.scheduler.devices.results import Allocation
from minikube_py.scheduler.devices.views import CLAIMS, CLASSES, SLICES, ClaimView
from minikube_py.scheduler.devices.writing import (
    LOOK_S,
    BindingFailed,
    bind,
    deallocate,
    has_conditions,
    is_late,
    is_ready,
    unreserve,
    with_share_ids,
)
from minikube_py.scheduler.framework import (
    NODE,
    SKIP,
    UNSCHEDULED_POD,
    Action,
    ClusterChange,
    ClusterEvent,
    Code,
    CycleState,
    Diagnosis,
    EventRegistration,
    Normalize,
    PostFilterResult,
    PreFilterResult,
    QueueingHint,
    Status,
)
from minikube_py.scheduler.objects import NodeInfo, PodInfo
from minikube_py.scheduler.plugins.node_affinity import Term, parse_selector

if TYPE_CHECKING:
    from minikube_py.scheduler.columns import NodeColumns
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.kinds import NeededKind

NOT_AVAILABLE = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "resourceclaim not available on the node")
CANNOT_ALLOCATE = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "cannot allocate all claims")
NO_CLAIMS = Status(Code.UNSCHEDULABLE, "no new claims to deallocate")
DEALLOCATING = Status(Code.UNSCHEDULABLE, "deallocation of ResourceClaim completed")
STILL_NOT = Status(Code.UNSCHEDULABLE, "still not schedulable")
CHOICES_MAX: Final = 8
_STATE: Final = "DynamicResources"
_NS_PER_S: Final = 1_000_000_000


class Unusable(Exception):
    """One of the pod's claims is not there, or cannot be used."""


class _State:
    """One pod's claims in one cycle. `reached`: of those that are allocated, where; None for everywhere. `promised`: by
    the claim's place, what Reserve has given it. `unavailable`: the places of claims that some node cannot use."""

    def __init__(self, claims: list[ClaimView], devices: Devices) -> None:
        self.claims = claims
        self.wanting = [claim for claim in claims if claim.allocation is None]
        self.finder = devices.finder(self.wanting)
        self.reached = [_reached(claim) for claim in claims]
        self.promised: dict[int, Allocation] = {}
        self.unavailable: dict[int, None] = {}


def _reached(claim: ClaimView) -> tuple[Term, ...] | None:
    selector = (claim.allocation or {}).get("nodeSelector")
    return None if selector is None else parse_selector(selector)


class DynamicResources:
    name = "DynamicResources"
    normalize = Normalize()

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle
        full = with_defaults(self.name, args or {})
        self._binding_timeout_s = duration_ns(full["bindingTimeout"]) / _NS_PER_S
        self._latest: tuple[str, _State | None] = ("", None)

    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        if not pod.claims:
            return ()
        # What it hears of them counts from the first one on.
        Devices.of(self._handle)
        return ALL

    def claims_of(self, pod: PodInfo) -> list[ClaimView]:
        """Raises: Unusable."""
        found = []
        for each in pod.claims:
            if each.problem:
                raise Unusable(each.problem)
            if each.claim is None:
                # None was made, on purpose.
                continue
            claim = Devices.of(self._handle).claim(f"{pod.namespace}/{each.claim}")
            if claim is None:
                raise Unusable(f'could not find ResourceClaim "{pod.namespace}/{each.claim}"')
            if claim.is_deleting:
                raise Unusable(f'resourceclaim "{claim.name}" is being deleted')
            if each.is_generated and not claim.is_controlled_by(pod.uid):
                why = f"was not created for Pod {pod.key} (Pod is not owner)"
                raise Unusable(f"ResourceClaim {claim.key} {why}")
            found.append(claim)
        return found

    # --- the queue ----------------------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[EventRegistration]:
        changed = Action.ADD | Action.UPDATE
        node = Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
        named = ClusterEvent(UNSCHEDULED_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
        return (
            EventRegistration(ClusterEvent(NODE, node)),
            EventRegistration(ClusterEvent(CLAIMS.name, changed), self._after_claim),
            EventRegistration(named, self._after_pod),
            EventRegistration(ClusterEvent(CLASSES.name, changed)),
            EventRegistration(ClusterEvent(SLICES.name, changed)),
        )

    def _after_claim(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        old, new = change.old, change.new
        try:
            is_used = any(claim.uid == new.uid for claim in self.claims_of(pod))
        except Unusable:
            return QueueingHint.SKIP
        if old is not None and old.allocation is not None and new.allocation is None:
            # What it held may serve another claim.
            return QueueingHint.QUEUE
        helps = is_used and (old is None or old.status != new.status)
        return QueueingHint.QUEUE if helps else QueueingHint.SKIP

    def _after_pod(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        if change.new.uid != pod.uid:
            return QueueingHint.SKIP
        try:
            self.claims_of(change.new)
        except Unusable:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        if not pod.claims:
            return None
        try:
            self.claims_of(pod)
        except Unusable as error:
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, str(error))
        return None

    # --- finding a node -----------------------------------------------------------------------------------------------

    def pre_filter(
        self, state: CycleState, pod: PodInfo, nodes: NodeColumns
    ) -> tuple[PreFilterResult | None, Status | None]:
        if not pod.claims:
            return None, SKIP
        self._latest = pod.uid, None
        try:
            claims = self.claims_of(pod)
        except Unusable as error:
            return None, Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, str(error))
        if not claims:
            return None, SKIP
        found = _State(claims, Devices.of(self._handle))
        for claim in found.wanting:
            status = self._why_not(claim)
            if status is not None:
                return None, status
        self._latest = pod.uid, found
        state.write(_STATE, found)
        return None, None

    def _why_not(self, claim: ClaimView) -> Status | None:
        devices = Devices.of(self._handle)
        if devices.is_promised(claim):
            text = f"resource claim {claim.key} is in the process of being allocated"
            return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text)
        for wish in claim.wishes:
            for request in wish.choices:
                if not request.class_name:
                    return Status(Code.ERROR, f"request {request.full_name}: unsupported request type")
                if request.class_name not in devices.classes:
                    text = f"request {request.full_name}: device class {request.class_name} does not exist"
                    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        found: _State = state.read(_STATE)
        unavailable = [place for place, claim in enumerate(found.claims) if self._is_out(found, place, claim, node)]
        if found.wanting:
            try:
                outcome = found.finder.on(node)
            except TooLong:
                return Status(Code.ERROR, f"node {node.name}: timed out trying to allocate devices")
            except (AllocationError, ValueError) as error:
                return Status(Code.ERROR, str(error))
            if outcome.why_not:
                return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, outcome.why_not)
            if outcome.allocations is None:
                return CANNOT_ALLOCATE
        if unavailable:
            found.unavailable |= dict.fromkeys(unavailable)
            return NOT_AVAILABLE
        return None

    def _is_out(self, found: _State, place: int, claim: ClaimView, node: NodeInfo) -> bool:
        """Whether a claim that is allocated cannot be used on the node, or at all."""
        terms = found.reached[place]
        if terms is not None and not any(term.matches(node) for term in terms):
            return True
        if claim.allocation is None:
            return False
        try:
            return not is_ready(claim) and self._is_late(claim)
        except BindingFailed:
            return True

    def _is_late(self, claim: ClaimView) -> bool:
        return is_late(claim, self._handle.clock.wall_s(), self._binding_timeout_s)

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, Status]:
        if diagnosis.pre_filter_message and self.name not in diagnosis.unschedulable_plugins:
            # Upstream's plugin looks for what its own PreFilter wrote.
            return None, Status(Code.ERROR, "not found")
        uid, found = self._latest
        if not pod.claims or uid != pod.uid or found is None:
            return None, NO_CLAIMS
        for place in found.unavailable:
            claim = found.claims[place]
            users = claim.reserved_for
            if not users or (len(users) == 1 and users[0].get("uid") == pod.uid):
                self._handle.kinds.run(self._deallocate(claim, pod))
                return None, DEALLOCATING
        return None, STILL_NOT

    async def _deallocate(self, claim: ClaimView, pod: PodInfo) -> None:
        try:
            await deallocate(self._handle, claim)
        except MinikubeError:
            # Nothing may come that wakes it.
            self._handle.activate([pod])
            raise

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> Status | None:
        """Only alternatives make one node better than another."""
        if not pod.claims:
            return SKIP
        found = _state_of(state)
        has_choice = found is not None and any(wish.has_choice for claim in found.claims for wish in claim.wishes)
        return None if has_choice else SKIP

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """The earlier the alternatives that it offers, the better."""
        found: _State = state.read(_STATE)
        outcome = found.finder.on(node) if found.wanting else None
        given = list((outcome and outcome.allocations) or ())
        score = 0
        for claim in found.claims:
            allocation = claim.allocation or given.pop(0)
            results = allocation["devices"].get("results") or ()
            allocated = {result["request"] for result in results}
            for wish in claim.wishes:
                if wish.has_choice:
                    places = [i for i, request in enumerate(wish.choices) if request.full_name in allocated]
                    score += sum(CHOICES_MAX - i for i in places)
        return score

    # --- taking it ----------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        found = _state_of(state) if pod.claims else None
        if found is None or not found.wanting:
            return None
        devices = Devices.of(self._handle)
        outcome = found.finder.on(self._handle.columns.by_name[node_name])
        if outcome.allocations is None:
            return Status(Code.ERROR, "claim allocation not found for node")
        given = iter(outcome.allocations)
        for place, claim in enumerate(found.claims):
            if claim.allocation is None:
                allocation = with_share_ids(next(given), self._handle.rng)
                found.promised[place] = allocation
                devices.promise(claim, allocation)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        found = _state_of(state) if pod.claims else None
        if found is None:
            return
        for place in found.promised:
            Devices.of(self._handle).break_promise(found.claims[place])
        found.promised.clear()
        for claim in found.claims:
            if claim.allocation is not None and claim.is_reserved_for(pod.uid):
                self._handle.kinds.run(unreserve(self._handle, claim, pod))

    def has_pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> bool:
        return bool(pod.claims) and _state_of(state) is not None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        found: _State = state.read(_STATE)
        devices = Devices.of(self._handle)
        try:
            for place, claim in enumerate(found.claims):
                if not claim.is_reserved_for(pod.uid):
                    allocation = found.promised.get(place)
                    found.claims[place] = await bind(self._handle, devices, claim, allocation, pod)
            if has_conditions(found.claims):
                text = f"waiting for binding conditions for device on node {node_name}"
                self._handle.tell(pod, "BindingConditionsPending", text)
                await self._wait_ready(found)
        except BindingFailed as error:
            return Status(Code.ERROR, str(error))
        except MinikubeError as error:
            return Status(Code.ERROR, str(error) or type(error).__name__)
        return None

    async def _wait_ready(self, found: _State) -> None:
        """Raises: BindingFailed."""
        clock, devices = self._handle.clock, Devices.of(self._handle)
        deadline_s = clock.monotonic_s() + self._binding_timeout_s
        while not self._are_ready(devices, found):
            left_s = deadline_s - clock.monotonic_s()
            if left_s <= 0:
                raise BindingFailed("device binding timeout: context deadline exceeded")
            await clock.sleep(min(LOOK_S, left_s))

    def _are_ready(self, devices: Devices, found: _State) -> bool:
        """Raises: BindingFailed."""
        for place, claim in enumerate(found.claims):
            now = devices.claim(claim.key)
            if now is None or now.uid != claim.uid:
                # What stands there under its name is another pod's.
                raise BindingFailed(f'could not find ResourceClaim "{claim.key}"')
            found.claims[place] = now
            if not is_ready(now):
                if self._is_late(now):
                    raise BindingFailed(f"device binding timeout: claim={now.name}")
                return False
        return True


def _state_of(state: CycleState) -> _State | None:
    try:
        found: _State = state.read(_STATE)
    except KeyError:
        return None
    return found
