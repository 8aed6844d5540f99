"""DynamicResources: places a pod where devices for its claims are available, and allocates them before it is bound.

Extended resources backed by DeviceClasses are requested by a special claim, created when the pod is bound; it omits
resources that the node itself offers, for example by a device plugin.

Source: `plugins/dynamicresources/dynamicresources.go`, `extendeddynamicresources.go`, with the gates that are on by
default in 1.36.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.api.values import duration_ns
from minikube_py.errors import MinikubeError
from minikube_py.scheduler.configuration.args import with_defaults
from minikube_py.scheduler.devices.allocator import AllocationError, TooLong
from minikube_py.scheduler.devices.extended import IN_MEMORY, names_in, requests_and_mappings, special_claim
from minikube_py.scheduler.devices.known import ALL, Devices, Finder
from minikube_py.scheduler.devices.results import Allocation
from minikube_py.scheduler.devices.views import CLAIMS, CLASSES, SLICES, ClaimView
from minikube_py.scheduler.devices.writing import (
    SEEN_AFTER_MAX_S,
    BindingFailed,
    bind,
    create_special,
    deallocate,
    delete_special,
    has_conditions,
    is_ready,
    left_s,
    tell_pod,
    to_its_end,
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
CANNOT_FIT = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "cannot fit resource")
LEFT_OVER = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "cannot schedule extended resource claim")
IN_USE = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "resourceclaim in use")
DEALLOCATING = Status(Code.UNSCHEDULABLE, "deallocation of ResourceClaim completed")
DELETING = Status(Code.UNSCHEDULABLE, "deletion of ResourceClaim completed")
STILL_NOT = Status(Code.UNSCHEDULABLE, "still not schedulable")
CHOICES_MAX: Final = 8
USERS_MAX: Final = 256
JUST_PAST_S: Final = 0.001
_STATE: Final = "DynamicResources"
_NS_PER_S: Final = 1_000_000_000


class Unusable(Exception):
    """One of the pod's claims is missing or cannot be used."""


class _Wanted(NamedTuple):
    """What to allocate on some nodes: `finder` None: nothing. `special`: the special claim for these nodes, the last
    one of the finder; None if the node itself offers all the extended resources."""

    finder: Finder | None
    special: ClaimView | None = None
    mappings: Sequence[dict[str, Any]] = ()


class _State:
    """One pod's claims in one cycle. `reached`: where allocated claims are usable; None for everywhere. `promised`: by
    claim index, its allocation from Reserve. `unavailable`: indexes of claims that some node cannot use. `special`: the
    claim for extended resources, the last one. `names`: those resources."""

    def __init__(self, pod: PodInfo, claims: list[ClaimView], special: ClaimView | None, devices: Devices) -> None:
        self.pod = pod
        self.claims = claims if special is None else [*claims, special]
        self.special = special
        self.names = () if special is None else names_in(pod.spec)
        self.wanting = [claim for claim in claims if claim.allocation is None]
        self.reached = [_reached(claim) for claim in self.claims]
        self.promised: dict[int, Allocation] = {}
        self.unavailable: dict[int, None] = {}
        self.chosen = _Wanted(None)
        self._devices = devices
        self._wanted: dict[tuple[str, ...], _Wanted] = {(): _Wanted(self._finder(self.wanting))}

    def _finder(self, claims: list[ClaimView]) -> Finder | None:
        return self._devices.finder(claims) if claims else None

    @property
    def is_left_over(self) -> bool:
        """Whether the special claim is from an earlier attempt."""
        return self.special is not None and self.special.name != IN_MEMORY

    def on(self, node: NodeInfo) -> _Wanted | Status:
        """What to allocate on the node, or why it is impossible there."""
        if self.special is None:
            return self._wanted[()]
        if self.is_left_over:
            return LEFT_OVER
        class_of = self._devices.class_of
        lacking = []
        for name in self.names:
            if class_of(name) is not None:
                if not node.allocatable.get(name):
                    lacking.append(name)
            elif name not in node.allocatable:
                return CANNOT_FIT
        key = tuple(lacking)
        found = self._wanted.get(key)
        if found is None:
            requests, mappings = requests_and_mappings(self.pod.spec.asks, key, class_of)
            special = special_claim(self.pod, requests)
            found = self._wanted[key] = _Wanted(self._finder([*self.wanting, special]), special, mappings)
        return found


def _reached(claim: ClaimView) -> tuple[Term, ...] | None:
    selector = (claim.allocation or {}).get("nodeSelector")
    return None if selector is None else parse_selector(selector)


class DynamicResources:
    name = "DynamicResources"
    parallel_pre_bind = True
    normalize = Normalize()

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle
        full = with_defaults(self.name, args or {})
        self._binding_timeout_s = duration_ns(full["bindingTimeout"]) / _NS_PER_S
        self._latest: tuple[str, _State | None] = ("", None)

    def kinds_needed(self, pod: PodInfo) -> Sequence[NeededKind]:
        if not self._may_want(pod):
            return ()
        # Its handlers must run from the first sync on.
        Devices.of(self._handle)
        return ALL

    def _may_want(self, pod: PodInfo) -> bool:
        """Without a cluster, no class backs any resource."""
        return bool(pod.claims) or (bool(names_in(pod.spec)) and getattr(self._handle, "kinds", None) is not None)

    def claims_of(self, pod: PodInfo) -> list[ClaimView]:
        """Raises: Unusable."""
        found = []
        for each in pod.claims:
            if each.problem:
                raise Unusable(each.problem)
            if each.claim is None:
                # None is needed.
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
            # The devices it held may serve another claim.
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

    def gate_key(self, pod: PodInfo) -> object:
        """While a claim has no name yet, only the pod's own update helps; then it matters which claims there are."""
        return () if any(claim.problem for claim in pod.claims) else None

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
        if not self._may_want(pod):
            return None, SKIP
        self._latest = pod.uid, None
        try:
            claims = self.claims_of(pod)
        except Unusable as error:
            return None, Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, str(error))
        devices = Devices.of(self._handle)
        devices.begin()
        special = None
        if any(devices.class_of(name) for name in names_in(pod.spec)):
            special = devices.special_of(pod) or special_claim(pod)
        if not claims and special is None:
            return None, SKIP
        found = _State(pod, claims, special, devices)
        for claim in found.claims:
            users = claim.reserved_for
            if claim.allocation is not None and len(users) >= USERS_MAX and not claim.is_reserved_for(pod.uid):
                return None, IN_USE
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
        wanted = found.on(node)
        if isinstance(wanted, Status):
            return wanted
        unavailable = [place for place, claim in enumerate(found.claims) if self._is_out(found, place, claim, node)]
        if wanted.finder is not None:
            try:
                outcome = wanted.finder.on(node)
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
        """Whether an allocated claim cannot be used on the node, or at all."""
        terms = found.reached[place]
        if terms is not None and not any(term.matches(node) for term in terms):
            return True
        if claim.allocation is None:
            return False
        try:
            return not is_ready(claim) and self._left_s(claim) < 0
        except BindingFailed:
            return True

    def _left_s(self, claim: ClaimView) -> float:
        return left_s(claim, self._handle.clock.wall_s(), self._binding_timeout_s)

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, Status]:
        if diagnosis.pre_filter_message and self.name not in diagnosis.unschedulable_plugins:
            # Upstream's plugin looks up the state of its own PreFilter.
            return None, Status(Code.ERROR, "not found")
        uid, found = self._latest
        if uid != pod.uid or found is None:
            return None, NO_CLAIMS
        for place in found.unavailable:
            claim = found.claims[place]
            users = claim.reserved_for
            if claim is found.special:
                continue
            if not users or (len(users) == 1 and users[0].get("uid") == pod.uid):
                self._handle.kinds.run(self._deallocate(claim, pod))
                return None, DEALLOCATING
        if found.special is not None and found.is_left_over:
            self._handle.kinds.run(self._delete(found.special, pod))
            return None, DELETING
        return None, STILL_NOT

    async def _delete(self, special: ClaimView, pod: PodInfo) -> None:
        devices, clock = Devices.of(self._handle), self._handle.clock
        failed = True
        try:
            await delete_special(self._handle, special)
            await devices.until(lambda: devices.special_of(pod) is None, clock, clock.monotonic_s() + SEEN_AFTER_MAX_S)
            failed = False
        finally:
            # None of its registered events reports this.
            self._handle.activate([pod], after_error=failed)

    async def _deallocate(self, claim: ClaimView, pod: PodInfo) -> None:
        try:
            await deallocate(self._handle, claim)
        except MinikubeError:
            # No event may come to wake the pod.
            self._handle.activate([pod], after_error=True)
            raise

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns) -> Status | None:
        """Nodes differ in score only by alternatives."""
        found = _state_of(state) if pod.claims else None
        has_choice = found is not None and any(wish.has_choice for claim in found.claims for wish in claim.wishes)
        return None if has_choice else SKIP

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Earlier alternatives score higher."""
        found: _State = state.read(_STATE)
        wanted = found.on(node)
        outcome = wanted.finder.on(node) if isinstance(wanted, _Wanted) and wanted.finder is not None else None
        given = list((outcome and outcome.allocations) or ())
        score = 0
        for claim in found.claims:
            if claim is found.special:
                continue
            allocation = claim.allocation or given.pop(0)
            results = allocation["devices"].get("results") or ()
            allocated = {result["request"] for result in results}
            for wish in claim.wishes:
                if wish.has_choice:
                    places = [i for i, request in enumerate(wish.choices) if request.full_name in allocated]
                    score += sum(CHOICES_MAX - i for i in places)
        return score

    # --- reserving and binding ----------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        found = _state_of(state) if self._may_want(pod) else None
        if found is None:
            return None
        node = self._handle.columns.by_name[node_name]
        wanted = found.on(node)
        if isinstance(wanted, Status):
            return wanted
        if wanted.finder is None:
            return None
        outcome = wanted.finder.on(node)
        if outcome.allocations is None:
            return Status(Code.ERROR, "claim allocation not found for node")
        given = iter(outcome.allocations)
        for place, claim in enumerate(found.claims):
            if claim.allocation is None and (claim is not found.special or wanted.special is not None):
                allocation = with_share_ids(next(given), self._handle.rng)
                found.promised[place] = allocation
                Devices.of(self._handle).promise(claim, allocation)
        found.chosen = wanted
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        found = _state_of(state) if self._may_want(pod) else None
        if found is None:
            return
        devices = Devices.of(self._handle)
        for place in found.promised:
            devices.break_promise(found.claims[place])
        found.promised.clear()
        claims = list(found.claims)
        if found.special is not None:
            special = claims.pop()
            devices.break_promise(found.special)
            if special.name != IN_MEMORY:
                self._handle.kinds.run(delete_special(self._handle, special))
        for claim in claims:
            if claim.allocation is not None and claim.is_reserved_for(pod.uid):
                self._handle.kinds.run(unreserve(self._handle, claim, pod))

    def has_pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> bool:
        return self._may_want(pod) and _state_of(state) is not None

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        found: _State = state.read(_STATE)
        try:
            for place, claim in enumerate(found.claims):
                allocation = found.promised.get(place)
                if claim is found.special:
                    if allocation is not None:
                        await self._bind_special(found, allocation, pod)
                elif not claim.is_reserved_for(pod.uid):
                    await to_its_end(self._bind(found, place, allocation, pod))
            if has_conditions(found.claims):
                text = f"waiting for binding conditions for device on node {node_name}"
                self._handle.tell(pod, "BindingConditionsPending", text)
                await self._wait_ready(found)
        except BindingFailed as error:
            return Status(Code.ERROR, str(error))
        except MinikubeError as error:
            return Status(Code.ERROR, str(error) or type(error).__name__)
        return None

    async def _bind(self, found: _State, place: int, allocation: Allocation | None, pod: PodInfo) -> None:
        claim, devices = found.claims[place], Devices.of(self._handle)
        found.claims[place] = await bind(self._handle, devices, claim, allocation, pod)

    async def _bind_special(self, found: _State, allocation: Allocation, pod: PodInfo) -> None:
        """Creates the special claim, allocates its devices, and updates the pod. Raises: BindingFailed, and the
        client's errors."""
        devices, clock, (_, special, mappings) = Devices.of(self._handle), self._handle.clock, found.chosen
        assert found.special is not None and special is not None

        async def make(special: ClaimView) -> None:
            found.claims[-1] = await create_special(self._handle, special)
            await self._bind(found, -1, allocation, pod)

        try:
            await to_its_end(make(special))
            made = found.claims[-1]
            # Until then the pending allocation holds its devices.
            deadline_s = clock.monotonic_s() + SEEN_AFTER_MAX_S
            await devices.until(lambda: devices.claim(made.key) is not None, clock, deadline_s)
        finally:
            devices.break_promise(found.special)
        await tell_pod(self._handle, pod, made, mappings)

    async def _wait_ready(self, found: _State) -> None:
        """Raises: BindingFailed."""
        clock, devices = self._handle.clock, Devices.of(self._handle)
        deadline_s = clock.monotonic_s() + self._binding_timeout_s
        while (unready := self._unready(devices, found)) is not None:
            now_s = clock.monotonic_s()
            if now_s >= deadline_s:
                raise BindingFailed("device binding timeout: context deadline exceeded")
            until_s = min(deadline_s, now_s + self._left_s(unready) + JUST_PAST_S)
            await devices.until(lambda: self._unready(devices, found) is None, clock, until_s)

    def _unready(self, devices: Devices, found: _State) -> ClaimView | None:
        """The first claim with devices that are not ready. Raises: BindingFailed."""
        for place, claim in enumerate(found.claims):
            if claim.name == IN_MEMORY:
                continue
            now = devices.claim(claim.key)
            if now is None or now.uid != claim.uid:
                # The claim of that name belongs to another pod.
                raise BindingFailed(f'could not find ResourceClaim "{claim.key}"')
            found.claims[place] = now
            if not is_ready(now):
                if self._left_s(now) < 0:
                    raise BindingFailed(f"device binding timeout: claim={now.name}")
                return now
        return None


def _state_of(state: CycleState) -> _State | None:
    try:
        found: _State = state.read(_STATE)
    except KeyError:
        return None
    return found
