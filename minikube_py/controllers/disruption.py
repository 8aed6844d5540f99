"""Maintains the status of PodDisruptionBudgets: healthy pods, required pods and allowed disruptions.

Source: `pkg/controller/disruption`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from minikube_py.api.budgets import SYNC_FAILED, allowed_condition, with_condition
from minikube_py.api.errors import StatusError
from minikube_py.api.label_selectors import NOTHING, InvalidSelector, selector_of
from minikube_py.api.meta import parse_timestamp
from minikube_py.api.selectors import LabelSelector
from minikube_py.client.events import Involved, timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, REPLICATION_CONTROLLERS, Object, ResourceRef
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.views import OwnerRef, PodView
from minikube_py.controllers.volume_views import BUDGETS, WholeView, about
from minikube_py.fields.digits import whole_number

logger = logging.getLogger(__name__)

DELETION_TIMEOUT_S: Final = 120.0
"""After this time a granted eviction without a deletion is forgotten."""
_SCALED: Final = {
    ("v1", "ReplicationController"): REPLICATION_CONTROLLERS,
    ("apps/v1", "ReplicaSet"): ResourceRef("apps", "v1", "replicasets"),
    ("apps/v1", "Deployment"): ResourceRef("apps", "v1", "deployments"),
    ("apps/v1", "StatefulSet"): ResourceRef("apps", "v1", "statefulsets"),
}
_UNMANAGED: Final = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of "
    "the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please "
    'set ".spec.minAvailable" field of the PDB to an integer value.'
)
_SEVERAL: Final = 'Pod "{}"/"{}" matches multiple PodDisruptionBudgets.  Chose "{}" arbitrarily.'


class _Uncounted(Exception):
    """The expected number of pods cannot be determined."""


class DisruptionController(QueueController):
    name = "disruption-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._budgets: Informer[WholeView] = context.informers.of(BUDGETS)
        self._workers = QueueWorkers(context, self.name, self._sync, 1)
        self._events = context.recorder("controllermanager")
        self._by_namespace: dict[str, set[str]] = {}
        self._selectors: dict[str, tuple[Object | None, LabelSelector]] = {}
        """Of each budget: parsed again only when it has changed, not at each event of a pod."""
        self._budgets.add_handler(
            Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new), on_delete=self._gone)
        )
        self._pods.add_handler(
            Handler(on_add=self._pod, on_update=lambda old, new: self._pod(new), on_delete=self._pod)
        )

    def _seen(self, budget: WholeView) -> None:
        self._by_namespace.setdefault(budget.namespace, set()).add(budget.key)
        self._workers.queue.add(budget.key)

    def _gone(self, budget: WholeView) -> None:
        self._by_namespace.get(budget.namespace, set()).discard(budget.key)
        self._selectors.pop(budget.key, None)

    def _selector(self, budget: WholeView) -> LabelSelector:
        document = (budget.obj.get("spec") or {}).get("selector")
        known = self._selectors.get(budget.key)
        if known is None or (known[0] is not document and known[0] != document):
            try:
                known = document, selector_of(document)
            except InvalidSelector:
                known = document, NOTHING
            self._selectors[budget.key] = known
        return known[1]

    def _pod(self, pod: PodView) -> None:
        matching: list[WholeView] = []
        for key in sorted(self._by_namespace.get(pod.namespace, ())):
            budget = self._budgets.store.get(key)
            if budget is None:
                continue
            # One whose selector was not parsed yet is in the queue: each is parsed in a step of its own.
            known = key in self._selectors
            if not known or self._selector(budget).matches(pod.labels):
                self._workers.queue.add(key)
                matching += [budget] if known else []
        if len(matching) > 1:
            why = _SEVERAL.format(pod.namespace, pod.name, matching[0].name)
            involved = Involved("Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.resource_version)
            self._events.event(involved, "Warning", "MultiplePodDisruptionBudgets", why)

    async def _sync(self, key: str) -> None:
        budget = self._budgets.store.get(key)
        if budget is None:
            return
        try:
            await self._count(budget)
        except (StatusError, _Uncounted, ValueError) as error:
            if isinstance(error, StatusError) and error.code == 409:
                raise
            await self._fail(budget, str(error))

    async def _count(self, budget: WholeView) -> None:
        matches, there = self._selector(budget).matches, self._pods.store.values()
        pods = [pod for pod in there if pod.namespace == budget.namespace and matches(pod.labels)]
        pods.sort(key=lambda pod: pod.name)
        involved = about("PodDisruptionBudget", budget.obj, "policy/v1")
        if not pods:
            self._events.event(involved, "Normal", "NoPods", "No matching pods found")
        try:
            expected, desired, unmanaged = await self._expected(budget.obj["spec"], pods)
        except _Uncounted as error:
            why = f"Failed to calculate the number of expected pods: {error}"
            self._events.event(involved, "Warning", "CalculateExpectedPodCountFailed", why)
            raise
        if unmanaged:
            shown = go_selector(budget.obj["spec"].get("selector"))
            self._events.event(involved, "Warning", "UnmanagedPods", _UNMANAGED.format(shown))
        now_s = self._clock.wall_s()
        disrupted, recheck_s = self._disrupted(budget, pods, now_s)
        healthy = sum(pod.ready and not pod.deleting and pod.name not in disrupted for pod in pods)
        await self._write(budget, expected, desired, healthy, disrupted)
        if recheck_s is not None:
            self._workers.queue.add_after(budget.key, max(recheck_s - now_s, 0.0))

    async def _expected(self, spec: Object, pods: Sequence[PodView]) -> tuple[int, int, bool]:
        """The expected pods, the required healthy pods, and whether some have no controller."""
        most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
        if most is not None:
            expected, unmanaged = await self._scale(pods)
            return expected, max(0, expected - _share(most, expected)), unmanaged
        if isinstance(least, str):
            expected, unmanaged = await self._scale(pods)
            return expected, _share(least, expected), unmanaged
        return (len(pods), least, False) if least is not None else (0, 0, False)

    async def _scale(self, pods: Sequence[PodView]) -> tuple[int, bool]:
        """The replicas that the pods' controllers want, and whether some pods have no controller."""
        scales: dict[str, int] = {}
        looked_at: set[str] = set()
        unmanaged = False
        for pod in pods:
            owner = pod.controller
            if owner is None:
                unmanaged = True
            elif owner.uid not in looked_at:
                looked_at.add(owner.uid)
                found = await self._controller(owner, pod.namespace)
                if found is None:
                    raise _Uncounted(f'found no controllers for pod "{pod.name}"')
                scales[found["metadata"]["uid"]] = int((found.get("spec") or {}).get("replicas") or 0)
        return sum(scales.values()), unmanaged

    async def _controller(self, owner: OwnerRef, namespace: str) -> Object | None:
        """The object that sets the replica count: for a ReplicaSet, its Deployment if it has one."""
        resource = _SCALED.get((owner.api_version, owner.kind))
        if resource is None:
            return None
        try:
            found = await self._client.get(resource, owner.name, namespace)
        except StatusError as error:
            if error.code == 404:
                return None
            raise
        if found["metadata"]["uid"] != owner.uid:
            return None
        for above in found["metadata"].get("ownerReferences") or ():
            if above.get("controller") and above.get("kind") == "Deployment":
                named = OwnerRef(above["apiVersion"], above["kind"], above["name"], above["uid"], True, False)
                return await self._controller(named, namespace)
        return found

    def _disrupted(
        self, budget: WholeView, pods: Sequence[PodView], now_s: float
    ) -> tuple[dict[str, str], float | None]:
        """Granted evictions not yet observed, and when to check again."""
        known: dict[str, str] = (budget.obj.get("status") or {}).get("disruptedPods") or {}
        left: dict[str, str] = {}
        recheck_s: float | None = None
        for pod in pods:
            if pod.deleting or pod.name not in known:
                continue
            until_s = parse_timestamp(known[pod.name]) + DELETION_TIMEOUT_S
            if until_s < now_s:
                why = f"Pod was expected by PDB {budget.namespace}/{budget.namespace} to be deleted but it wasn't"
                involved = Involved("Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.resource_version)
                self._events.event(involved, "Warning", "NotDeleted", why)
                continue
            recheck_s = until_s if recheck_s is None else min(recheck_s, until_s)
            left[pod.name] = known[pod.name]
        return left, recheck_s

    async def _write(
        self, budget: WholeView, expected: int, desired: int, healthy: int, disrupted: dict[str, str]
    ) -> None:
        before, generation = budget.obj.get("status") or {}, budget.obj["metadata"].get("generation") or 0
        status: dict[str, Any] = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": max(0, healthy - desired) if expected > 0 else 0,
            "observedGeneration": generation,
        }
        if disrupted:
            status["disruptedPods"] = disrupted
        status["conditions"] = allowed_condition(
            {**status, "conditions": before.get("conditions")}, timestamp(self._clock.wall_s())
        )
        if status != before:
            await self._client.update_status(BUDGETS, {**budget.obj, "status": status})

    async def _fail(self, budget: WholeView, why: str) -> None:
        """If the count is unknown, no disruption is allowed."""
        before = budget.obj.get("status") or {}
        status = {**before, "disruptionsAllowed": 0}
        status["conditions"] = with_condition(status, "False", SYNC_FAILED, why, timestamp(self._clock.wall_s()))
        if status != before:
            await self._client.update_status(BUDGETS, {**budget.obj, "status": status})


def _share(value: int | str, of: int) -> int:
    """A count, or a percentage of `of` rounded up."""
    return value if isinstance(value, int) else -(-of * whole_number(value.removesuffix("%")) // 100)


def go_selector(selector: Object | None) -> str:
    """As Go prints a pointer to a selector."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.get('key') or ''},Operator:{each.get('operator') or ''},"
        f"Values:[{' '.join(each.get('values') or ())}],}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
