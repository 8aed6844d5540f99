"""Finds devices on a node for the claims of a pod: the first that fit, in the order of pools, slices and devices.

Source: `k8s.io/dynamic-resource-allocation/structured/internal/incubating`, with the gates that are on by default in
1.36. The search is exhaustive and backtracks; it tries and undoes choices in upstream's order, and so finds the same
result. It is pure: the caller assigns share ids.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikube_py.scheduler.devices.allocated import Allocated, put_capacity, take_capacity
from minikube_py.scheduler.devices.capacity import consumed, fits
from minikube_py.scheduler.devices.constraints import Constraint, constraint_of
from minikube_py.scheduler.devices.pools import Candidate, Pool
from minikube_py.scheduler.devices.views import (
    ALL,
    EXACT_COUNT,
    Amounts,
    ClaimView,
    ClassView,
    Device,
    DeviceId,
    PoolId,
    Request,
)
from minikube_py.scheduler.objects import NodeInfo

RESULTS_MAX: Final = 32
"""Maximum devices of a claim."""
LOOKS_MAX: Final = 100_000
"""Maximum devices examined in one cycle of a pod, over all nodes: some 200 ms."""
NODE_LOOKS_MAX: Final = 20_000
"""On one node, which is then unavailable until its devices change; upstream gives up on it after ten seconds."""
_FRAMES_MAX: Final = 50_000
_PREVENTING: Final = ("NoExecute", "NoSchedule")

Selects = Callable[[str, Device], bool]
"""Whether an expression selects a device. Raises: SelectorError."""


class SelectorError(Exception):
    """An expression does not compile, or cannot be evaluated; the message is upstream's."""


class TooCostly(SelectorError):
    """The expression takes too many steps; the device, and with it the node, is unavailable."""


class AllocationError(Exception):
    """A claim or class is invalid, so no node can be found. `is_of_node`: applies only to this node."""

    def __init__(self, message: str, is_of_node: bool = False) -> None:
        super().__init__(message)
        self.is_of_node = is_of_node


class TooLong(Exception):
    """The search exceeded its limit."""


class _TooMany(Exception):
    """With these alternatives the claim would exceed its device limit."""


class Given(NamedTuple):
    """A device given to a request."""

    request: Request
    candidate: Candidate
    taken: Amounts | None
    """None: the device is not shared."""


class Asked:
    """A request, or one of its alternatives, prepared before the search."""

    __slots__ = ("class_view", "count", "every", "matches", "request")

    def __init__(self, request: Request, class_view: ClassView) -> None:
        self.request = request
        self.class_view = class_view
        self.count = request.count
        self.every: list[Candidate] | None = None
        """All matching devices if the request asks for all."""
        self.matches: dict[DeviceId, bool] = {}
        """Cached results of whether a device is selected."""


class Solution(NamedTuple):
    """By claim: its devices, and for each request the chosen alternative."""

    given: list[list[Given]]
    chosen: list[list[Asked]]


class Search:
    """One search on one node. `calls`: steps to a next device, request or claim."""

    def __init__(
        self,
        pools: Sequence[Pool],
        allocated: Allocated,
        classes: Callable[[str], ClassView | None],
        selects: Selects,
        node: NodeInfo,
        looks_max: int = 500_000,
    ) -> None:
        self.calls = 0
        self.looks = 0
        self._looks_max = looks_max
        self._pools = pools
        self._allocated = allocated
        self._classes = classes
        self._selects = selects
        self._node = node
        self._candidates = [each for pool in pools if pool.is_usable for each in pool.candidates]
        self._claims: Sequence[ClaimView] = ()
        self._asked: list[list[list[Asked]]] = []
        self._chosen: list[list[int]] = []
        self._constraints: list[list[Constraint]] = []
        self._given: list[list[Given]] = []
        self._taking: dict[DeviceId, set[int]] = {}
        self._capacity: dict[DeviceId, Amounts] = {}
        self._consumed: dict[PoolId, dict[str, Amounts]] = {}

    def run(self, claims: Sequence[ClaimView]) -> Solution | None:
        """None if the node cannot satisfy all claims. Raises: AllocationError, TooLong."""
        self._claims = claims
        for claim in claims:
            self._prepare(claim)
        before = sys.getrecursionlimit()
        # One frame per device, request and claim.
        sys.setrecursionlimit(before + min(_FRAMES_MAX, 3 * len(claims) * (2 * RESULTS_MAX + 4)))
        try:
            found = self._claim(0)
        except _TooMany as error:
            raise AllocationError("allocation max size exceeded") from error
        finally:
            sys.setrecursionlimit(before)
        if found:
            chosen = [
                [choices[which] for choices, which in zip(asked, picks, strict=True)]
                for asked, picks in zip(self._asked, self._chosen, strict=True)
            ]
            return Solution(self._given, chosen)
        if any(pool.problem for pool in self._pools):
            raise AllocationError("invalid resource pools were encountered", is_of_node=True)
        return None

    # --- before the search --------------------------------------------------------------------------------------------

    def _prepare(self, claim: ClaimView) -> None:
        least = 0
        asked = []
        for wish in claim.wishes:
            choices = [self._look_up(claim, request) for request in wish.choices]
            least += min(each.count for each in choices)
            asked.append(choices)
        if least > RESULTS_MAX:
            text = f"number of requested devices {least} exceeds the claim limit of {RESULTS_MAX}"
            raise AllocationError(f"claim {claim.key}: {text}")
        constraints = []
        for i, spec in enumerate(claim.spec.get("constraints") or ()):
            constraint = constraint_of(spec)
            if constraint is None:
                text = "empty constraint (unsupported constraint type?)"
                raise AllocationError(f"claim {claim.key}, constraint #{i}: {text}")
            constraints.append(constraint)
        self._asked.append(asked)
        self._chosen.append([0] * len(asked))
        self._constraints.append(constraints)
        self._given.append([])

    def _look_up(self, claim: ClaimView, request: Request) -> Asked:
        where = f"claim {claim.key}, request {request.name}"
        for i, expression in enumerate(request.expressions):
            if expression is None:
                text = "CEL expression empty (unsupported selector type?)"
                raise AllocationError(f"{where}, selector #{i}: {text}")
        if not request.class_name:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        class_view = self._classes(request.class_name)
        if class_view is None:
            missing = f'deviceclass.resource.k8s.io "{request.class_name}" not found'
            raise AllocationError(f"{where}: could not retrieve device class {request.class_name}: {missing}")
        asked = Asked(request, class_view)
        if request.mode == ALL:
            self._take_every(claim, asked, where)
        elif request.mode != EXACT_COUNT:
            raise AllocationError(f"{where}: unsupported count mode {request.mode}")
        return asked

    def _take_every(self, claim: ClaimView, asked: Asked, where: str) -> None:
        """An incomplete pool may hold more devices: allocation has to wait."""
        asked.every = []
        for pool in self._pools:
            if not pool.is_usable:
                state = "invalid" if pool.is_whole else "being updated"
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {pool.id} is currently {state}"
                )
            for candidate in pool.candidates:
                if self._is_selected(claim, asked, candidate) and self._has_capacity(asked.request, candidate.device):
                    asked.every.append(candidate)
        asked.count = len(asked.every)

    # --- the search ---------------------------------------------------------------------------------------------------

    def _claim(self, at: int) -> bool:
        if at >= len(self._claims):
            self.calls += 1
            return True
        return self._request(at, 0)

    def _request(self, claim: int, at: int) -> bool:
        """Raises: _TooMany."""
        self.calls += 1
        if at >= len(self._asked[claim]):
            try:
                return self._claim(claim + 1)
            except _TooMany:
                # Other alternatives of this claim would not reduce the next one's devices.
                return False
        choices = self._asked[claim][at]
        if not self._claims[claim].wishes[at].has_choice:
            return self._device(claim, at, choices[0], 0, 0)
        too_many = True
        for which, asked in enumerate(choices):
            self.calls += 1
            try:
                found = self._device(claim, at, asked, 0, 0)
            except _TooMany:
                continue
            too_many = False
            if found:
                self._chosen[claim][at] = which
                return True
        if too_many:
            raise _TooMany
        return False

    def _device(self, claim: int, at: int, asked: Asked, index: int, start: int) -> bool:
        """Finds device number `index` of the request among the candidates from `start` on: order within a request is
        irrelevant, so each set is tried once. Raises: _TooMany."""
        if asked.every is not None and not asked.every:
            return False
        if index >= asked.count:
            return self._request(claim, at + 1)
        if len(self._given[claim]) + asked.count - index > RESULTS_MAX:
            raise _TooMany
        if asked.every is not None:
            return self._take_and_go_on(claim, at, asked, index, asked.every[index], 0, must=True)
        request, view = asked.request, self._claims[claim]
        for place in range(start, len(self._candidates)):
            candidate = self._candidates[place]
            self.looks += 1
            if self.looks > self._looks_max:
                raise TooLong("the search for devices takes too long")
            if self._is_out_of_reach(claim, request, candidate.device.id):
                continue
            if not self._is_selected(view, asked, candidate) or not self._has_capacity(request, candidate.device):
                continue
            if self._take_and_go_on(claim, at, asked, index, candidate, place + 1, must=False):
                return True
        return False

    def _take_and_go_on(
        self, claim: int, at: int, asked: Asked, index: int, candidate: Candidate, start: int, must: bool
    ) -> bool:
        if not self._take(claim, asked, candidate, must):
            return False
        self.calls += 1
        try:
            done = self._device(claim, at, asked, index + 1, start)
        except _TooMany:
            self._give_back(claim)
            raise
        if not done:
            self._give_back(claim)
        return done

    def _is_out_of_reach(self, claim: int, request: Request, id: DeviceId) -> bool:
        """Whether the device is taken; admin access only conflicts within its own claim."""
        if request.is_admin:
            return claim in self._taking.get(id, ())
        return id in self._allocated.devices or bool(self._taking.get(id))

    def _is_selected(self, claim: ClaimView, asked: Asked, candidate: Candidate) -> bool:
        device = candidate.device
        known = asked.matches.get(device.id)
        if known is None:
            known = (
                self._all_select(asked.class_view.expressions, device, f"class {asked.class_view.name}")
                and self._all_select(asked.request.expressions, device, f"claim {claim.key}")
                and (not candidate.slice.is_per_device or device.reach.holds(self._node))
            )
            asked.matches[device.id] = known
        return known

    def _all_select(self, expressions: Sequence[str | None], device: Device, where: str) -> bool:
        for i, expression in enumerate(expressions):
            assert expression is not None
            try:
                if not self._selects(expression, device):
                    return False
            except SelectorError as error:
                told = f"{where}: selector #{i}: {error}"
                raise AllocationError(told, is_of_node=isinstance(error, TooCostly)) from error
        return True

    def _has_capacity(self, request: Request, device: Device) -> bool:
        if not device.capacity and not request.capacity:
            return True
        in_use = self._allocated.capacity.get(device.id), self._capacity.get(device.id)
        return fits(request.capacity, device.capacity, *in_use)

    # --- allocating and releasing -------------------------------------------------------------------------------------

    def _take(self, claim: int, asked: Asked, candidate: Candidate, must: bool) -> bool:
        """Gives a selected device to the claim. Raises: AllocationError."""
        device, request = candidate.device, asked.request
        if self._is_out_of_reach(claim, request, device.id) and not (device.allows_many and request.is_admin):
            return False
        in_part = device.allows_many and (device.id in self._allocated.capacity or device.id in self._capacity)
        if device.consumes and not in_part and not self._count(candidate):
            return False
        if any(taint.get("effect") in _PREVENTING and not _tolerated(taint, request) for taint in device.taints):
            return False
        added: list[Constraint] = []
        for constraint in self._constraints[claim]:
            if not constraint.add(request, device):
                if must:
                    text = f"cannot add device {device.id} because a claim constraint would not be satisfied"
                    raise AllocationError(f"claim {self._claims[claim].key}, request {request.name}: {text}")
                for other in added:
                    other.remove(request, device)
                return False
            added.append(constraint)
        taking = self._taking.setdefault(device.id, set())
        if not device.allows_many:
            taking.add(claim)
        if not self._has_capacity(request, device):
            return False
        taken = None
        if device.allows_many:
            taken = consumed(request.capacity, device.capacity)
            put_capacity(self._capacity, device.id, taken)
        self._given[claim].append(Given(request, candidate, taken))
        return True

    def _give_back(self, claim: int) -> None:
        request, candidate, taken = self._given[claim].pop()
        device = candidate.device
        for constraint in self._constraints[claim]:
            constraint.remove(request, device)
        if taken is None:
            self._taking[device.id].discard(claim)
            if device.consumes:
                self._uncount(candidate)
        elif taken:
            take_capacity(self._capacity, device.id, taken)

    def _count(self, candidate: Candidate) -> bool:
        """Charges the counters that the device consumes, if enough is left."""
        available = self._available(candidate.pool)
        taking = self._consumed.setdefault(candidate.pool.id, {})
        for name, counters in candidate.device.consumes:
            put = taking.setdefault(name, {})
            for counter, amount in counters.items():
                put[counter] = put[counter].plus(amount) if counter in put else amount
        for name, left in available.items():
            consumed_of_set = taking.get(name, {})
            for counter, amount in left.items():
                used = consumed_of_set.get(counter)
                short = amount.unscaled < 0 if used is None else amount.compare(used) < 0
                if short:
                    self._uncount(candidate)
                    return False
        return True

    def _uncount(self, candidate: Candidate) -> None:
        taking = self._consumed[candidate.pool.id]
        for name, counters in candidate.device.consumes:
            put = taking[name]
            for counter, amount in counters.items():
                put[counter] = put[counter].minus(amount)

    def _available(self, pool: Pool) -> dict[str, Amounts]:
        """What held devices leave of the pool's counters, possibly negative."""
        version = self._allocated.version(pool.id)
        if pool.available is not None and pool.available[0] == version:
            return pool.available[1]
        left = {name: dict(counters) for name, counters in pool.counter_sets.items()}
        for device in pool.consuming:
            if self._allocated.is_held(device.id):
                for name, counters in device.consumes:
                    for counter, amount in counters.items():
                        left[name][counter] = left[name][counter].minus(amount)
        pool.available = version, left
        return left


def _tolerated(taint: Mapping[str, Any], request: Request) -> bool:
    return any(_tolerates(toleration, taint) for toleration in request.tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(operator == "Exists")
