"""The scheduler's knowledge of devices, shared by the plugins of all profiles, with their pending allocations.

Source: `dynamicresources/dra_manager.go`. As there, a claim is what the API server returned for a write until the
informer has caught up, and a pending allocation counts as allocated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.client.informer import Handler
from minikube_py.client.store import ObjectStore
from minikube_py.env import Clock, run_until
from minikube_py.scheduler.devices.allocated import Allocated
from minikube_py.scheduler.devices.allocator import (
    LOOKS_MAX,
    NODE_LOOKS_MAX,
    AllocationError,
    Search,
    SelectorError,
    Solution,
    TooLong,
)
from minikube_py.scheduler.devices.extended import IN_MEMORY, ClassesByResource, pod_of_special
from minikube_py.scheduler.devices.pools import Inventory, Pool
from minikube_py.scheduler.devices.results import Allocation, allocations
from minikube_py.scheduler.devices.selecting import Selecting
from minikube_py.scheduler.devices.views import CLAIMS, CLASSES, SLICES, ClaimView, ClassView
from minikube_py.scheduler.objects import NodeInfo, PodInfo

if TYPE_CHECKING:
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.kinds import LentKinds

ALL: Final = (SLICES, CLASSES, CLAIMS)
WISHES_KEPT_MAX: Final = 32
_Results = Sequence[Mapping[str, Any]]


class Outcome(NamedTuple):
    """The result on a node, with the pools and allocation versions it was computed from."""

    pools: tuple[Pool, ...]
    versions: tuple[int, ...]
    allocations: list[Allocation] | None
    why_not: str


class Devices:
    """`claim(key)` includes assumed state. Results for equal claims on a node are cached until something changes."""

    def __init__(self, kinds: LentKinds) -> None:
        slices, classes, claims = kinds.of(SLICES), kinds.of(CLASSES), kinds.of(CLAIMS)
        self.classes: ObjectStore[ClassView] = classes.store
        self.allocated = Allocated()
        self._selecting = Selecting()
        self._looks_left = LOOKS_MAX
        self._inventory = Inventory()
        self._served: ObjectStore[ClaimView] = claims.store
        self._assumed: dict[str, ClaimView] = {}
        self.supposed: dict[str, ClaimView] = {}
        """Claims that do not exist, while a question about their pod is answered."""
        self._pending: dict[str, tuple[str, Allocation]] = {}
        self._held: dict[str, _Results] = {}
        self._kept: dict[tuple[str, ...], dict[str, Outcome]] = {}
        self._by_resource = ClassesByResource()
        self._special: dict[str, ClaimView] = {}
        self._watching: dict[asyncio.Future[None], None] = {}
        slices.add_handler(
            Handler(
                lambda new: self._inventory.put(None, new),
                lambda old, new: self._inventory.put(old, new),
                lambda old: self._inventory.put(old, None),
            )
        )
        classes.add_handler(
            Handler(
                lambda new: self._class_changed(None, new),
                self._class_changed,
                lambda old: self._class_changed(old, None),
            )
        )
        claims.add_handler(Handler(self._claim_changed, lambda old, new: self._claim_changed(new), self._claim_changed))

    @staticmethod
    def of(handle: Handle) -> Devices:
        return handle.kinds.shared("devices", lambda: Devices(handle.kinds))

    # --- claims -------------------------------------------------------------------------------------------------------

    def claim(self, key: str) -> ClaimView | None:
        served = self._served.get(key) or self.supposed.get(key)
        assumed = self._assumed.get(key)
        if served is None or assumed is None or assumed.uid != served.uid:
            return served
        return assumed if int(assumed.resource_version) > int(served.resource_version) else served

    def assume(self, written: ClaimView) -> None:
        """Until the informer catches up, the claim is what the API server returned."""
        self._assumed[written.key] = written
        self._pending.pop(written.uid, None)
        self._hold(written.key)

    def promise(self, claim: ClaimView, allocation: Allocation) -> None:
        """The claim is about to get this allocation. An in-memory claim has no name: it holds devices by uid."""
        key = claim.uid if claim.name == IN_MEMORY else claim.key
        self._pending[claim.uid] = key, allocation
        self._hold(key)

    def is_promised(self, claim: ClaimView) -> bool:
        return claim.uid in self._pending

    def break_promise(self, claim: ClaimView) -> None:
        """The pending allocation will not be written."""
        pending = self._pending.pop(claim.uid, None)
        if pending is not None:
            self._hold(pending[0])

    def special_of(self, pod: PodInfo) -> ClaimView | None:
        """The claim for the pod's extended resources from an earlier attempt."""
        found = self._special.get(pod.uid)
        return None if found is None else self.claim(found.key)

    async def until(self, done: Callable[[], bool], clock: Clock, deadline_s: float) -> bool:
        """Waits until `done`, checked on claim changes. False at the deadline. Raises what `done` raises."""

        async def watch() -> None:
            while not done():
                changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._watching[changed] = None
                try:
                    await changed
                finally:
                    del self._watching[changed]

        if done():
            return True
        try:
            await run_until(clock, deadline_s, watch())
        except TimeoutError:
            return False
        return True

    def _claim_changed(self, claim: ClaimView) -> None:
        if pod := pod_of_special(claim):
            if claim.key in self._served:
                self._special[pod] = claim
            else:
                self._special.pop(pod, None)
        for waiting in self._watching:
            if not waiting.done():
                waiting.set_result(None)
        served, assumed = self._served.get(claim.key), self._assumed.get(claim.key)
        if assumed is not None and (
            served is None or served.uid != assumed.uid or int(served.resource_version) >= int(assumed.resource_version)
        ):
            del self._assumed[claim.key]
        self._hold(claim.key)

    def _hold(self, key: str) -> None:
        """Updates what the claim of that key holds."""
        claim = self.claim(key)
        results: _Results = ()
        if claim is None and key in self._pending:
            results = self._pending[key][1]["devices"].get("results") or ()
        elif claim is not None:
            results = claim.results
            if claim.allocation is None and claim.uid in self._pending:
                results = self._pending[claim.uid][1]["devices"].get("results") or ()
        held = self._held.pop(key, ())
        if held != results:
            self.allocated.remove(held)
            self.allocated.add(results)
        if results:
            self._held[key] = results

    # --- results ------------------------------------------------------------------------------------------------------

    def _class_changed(self, old: ClassView | None, new: ClassView | None) -> None:
        self._kept.clear()
        if new is not None:
            self._by_resource.put(new, old)
        elif old is not None:
            self._by_resource.remove(old)

    def class_of(self, resource: str) -> ClassView | None:
        """The class that backs an extended resource."""
        return self._by_resource.get(resource)

    def totals(self, node: NodeInfo, view: ClassView) -> tuple[int, int]:
        """How many devices of the class the node can reach, and how many are held; zeros if a selector fails. Raises:
        TooLong."""
        count = held = 0
        try:
            for device in self._inventory.devices(node):
                if all(each is None or self._selecting.selects(each, device) for each in view.expressions):
                    count += 1
                    held += self.allocated.is_held(device.id)
        except SelectorError:
            return 0, 0
        return count, held

    def finder(self, claims: Sequence[ClaimView]) -> Finder:
        """Searches devices for all the claims, within one cycle."""
        signature = tuple(claim.signature for claim in claims)
        kept = self._kept.pop(signature, None)
        if kept is None:
            kept = {}
            if len(self._kept) >= WISHES_KEPT_MAX:
                del self._kept[next(iter(self._kept))]
        self._kept[signature] = kept
        return Finder(self, claims, kept)

    def pools(self, node: NodeInfo) -> tuple[Pool, ...]:
        return self._inventory.pools(node)

    def begin(self) -> None:
        """A pod's cycle begins: resets its search limits."""
        self._selecting.begin()
        self._looks_left = LOOKS_MAX

    def search(self, pools: tuple[Pool, ...], node: NodeInfo, claims: Sequence[ClaimView]) -> Solution | None:
        """Raises: AllocationError, TooLong."""
        classes, selects = self.classes.get, self._selecting.selects
        search = Search(pools, self.allocated, classes, selects, node, min(NODE_LOOKS_MAX, self._looks_left))
        try:
            return search.run(claims)
        except TooLong:
            if search.looks <= NODE_LOOKS_MAX:
                raise
            text = f"node {node.name}: timed out trying to allocate devices, after {NODE_LOOKS_MAX:,} looks at one"
            raise AllocationError(text, is_of_node=True) from None
        finally:
            self._looks_left -= search.looks


class Finder:
    """`kept`: by node, the results for equal claims."""

    __slots__ = ("_claims", "_devices", "_kept")

    def __init__(self, devices: Devices, claims: Sequence[ClaimView], kept: dict[str, Outcome]) -> None:
        self._devices = devices
        self._claims = claims
        self._kept = kept

    def on(self, node: NodeInfo) -> Outcome:
        """Raises: AllocationError, TooLong, ValueError."""
        pools = self._devices.pools(node)
        version = self._devices.allocated.version
        versions = tuple([version(pool.id) for pool in pools])
        known = self._kept.get(node.name)
        if known is not None and known.pools is pools and known.versions == versions:
            return known
        why_not = ""
        found: list[Allocation] | None = None
        try:
            solution = self._devices.search(pools, node, self._claims)
            found = None if solution is None else allocations(solution, self._claims, node.name)
        except AllocationError as error:
            if not error.is_of_node:
                raise
            why_not = str(error)
        outcome = self._kept[node.name] = Outcome(pools, versions, found, why_not)
        return outcome
