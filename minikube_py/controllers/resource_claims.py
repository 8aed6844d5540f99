"""Creates the device claims of pods that name a template, and maintains reservations: an unused claim releases its
devices.

Source: `pkg/controller/resourceclaim`, without PodGroups, whose gate is off.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.client.events import Involved
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, Object
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.controllers.base import BY_CONTROLLER, BY_DEVICES, ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.views import PodClaim, PodView
from minikube_py.controllers.volume_views import DEVICE_CLAIMS, DEVICE_TEMPLATES, WholeView
from minikube_py.errors import MinikubeError

ANNOTATION: Final = "resource.kubernetes.io/pod-claim-name"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
ENDED_PODS_MAX: Final = 500
_NAME_MAX: Final = 57
"""Length limit of the generated name's prefix: with a hyphen and five characters it fits into a label."""


class ResourceClaims(QueueController):
    name = "resourceclaim-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._claims: Informer[WholeView] = context.informers.of(DEVICE_CLAIMS)
        self._templates: Informer[WholeView] = context.informers.of(DEVICE_TEMPLATES)
        self._workers = QueueWorkers(context, self.name, self._sync)
        self._events = context.recorder("resource_claim")
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._made: dict[tuple[str, str], str] = {}
        """Created claims, by pod and the pod's name for them. Like upstream's cache, deleted claims stay until their
        pod is gone: otherwise claims of finished pods would be created and deleted forever."""
        self._pods.add_handler(Handler(self._pod_seen, lambda old, new: self._pod_seen(new), self._pod_gone))
        self._claims.add_handler(Handler(self._claim_seen, lambda old, new: self._claim_seen(new), self._wake_pods))
        self._templates.add_handler(Handler(self._template_seen, lambda old, new: self._template_seen(new)))

    # --- events -----------------------------------------------------------------------------------------------------

    def _pod_seen(self, pod: PodView) -> None:
        if not pod.devices:
            return
        if _is_done(pod):
            self._look_at_claims(pod)
        if self._needs_work(pod):
            self._workers.queue.add(f"pod:{pod.key}")

    def _pod_gone(self, pod: PodView) -> None:
        if not pod.devices:
            return
        self._ended[pod.uid] = None
        if len(self._ended) > ENDED_PODS_MAX:
            self._ended.popitem(last=False)
        for wanted in pod.devices:
            self._made.pop((pod.uid, wanted.name), None)
        self._look_at_claims(pod)

    def _look_at_claims(self, pod: PodView) -> None:
        for wanted in pod.devices:
            if wanted.claim:
                self._workers.queue.add(f"claim:{pod.namespace}/{wanted.claim}")

    def _claim_seen(self, claim: WholeView) -> None:
        self._workers.queue.add(f"claim:{claim.key}")
        self._wake_pods(claim)

    def _wake_pods(self, claim: WholeView) -> None:
        for pod in self._pods.store.by_index(BY_DEVICES, ("claim", claim.key)):
            self._pod_seen(pod)

    def _template_seen(self, template: WholeView) -> None:
        for pod in self._pods.store.by_index(BY_DEVICES, ("template", template.key)):
            self._pod_seen(pod)

    def _needs_work(self, pod: PodView) -> bool:
        if pod.deleting:
            return False
        for wanted in pod.devices:
            if wanted.extended:
                continue
            if not wanted.known:
                return True
            if wanted.claim is None:
                continue
            claim = self._claims.store.get(f"{pod.namespace}/{wanted.claim}")
            if claim is None:
                if wanted.template:
                    return True
            elif not (wanted.template and not belongs_to(claim, pod)) and _lacks_reservation(claim, pod):
                return True
        return False

    # --- pods -------------------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        what, _, key = key.partition(":")
        await (self._sync_pod(key) if what == "pod" else self._sync_claim(key))

    async def _sync_pod(self, key: str) -> None:
        pod = self._pods.store.get(key)
        if pod is None or pod.deleting:
            return
        made: dict[str, str] = {}
        for wanted in pod.devices:
            if wanted.extended:
                continue
            try:
                name = await self._claim_for(pod, wanted)
            except MinikubeError as error:
                involved = Involved("Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.resource_version)
                why = f"PodResourceClaim {wanted.name}: {error}"
                self._events.event(involved, "Warning", "FailedResourceClaimCreation", why)
                raise
            if name:
                made[wanted.name] = name
        if made:
            statuses = [{"name": name, "resourceClaimName": claim} for name, claim in made.items()]
            change = {"status": {"resourceClaimStatuses": statuses}}
            await self._client.patch(
                PODS, pod.name, change, pod.namespace, content_type=STRATEGIC_MERGE_PATCH, subresource="status"
            )
        if pod.node:
            await self._reserve_all(pod)

    async def _claim_for(self, pod: PodView, wanted: PodClaim) -> str:
        """The claim's name if the pod's status lacks it, otherwise ""; creates a missing claim."""
        if wanted.known:
            if wanted.claim is None:
                return ""
            found = self._claims.store.get(f"{pod.namespace}/{wanted.claim}")
            if found is not None and (not wanted.template or belongs_to(found, pod)):
                return ""
        if not wanted.template:
            return ""
        if (name := self._made.get((pod.uid, wanted.name))) is not None:
            return name
        for claim in self._claims.store.by_index(BY_CONTROLLER, pod.uid):
            if (claim.obj["metadata"].get("annotations") or {}).get(ANNOTATION) == wanted.name:
                return claim.name
        return await self._make(pod, wanted)

    async def _make(self, pod: PodView, wanted: PodClaim) -> str:
        template = self._templates.store.get(f"{pod.namespace}/{wanted.template}")
        if template is None:
            missing = f'resourceclaimtemplate.resource.k8s.io "{wanted.template}" not found'
            raise _NotMade(f'resource claim template "{wanted.template}": {missing}')
        spec = template.obj["spec"]
        given = spec.get("metadata") or {}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
        metadata: Object = {
            "generateName": _generated(pod.name, wanted.name),
            "annotations": {**(given.get("annotations") or {}), ANNOTATION: wanted.name},
            "ownerReferences": [owner],
        }
        if given.get("labels"):
            metadata["labels"] = given["labels"]
        try:
            claim = await self._client.create(
                DEVICE_CLAIMS, {"metadata": metadata, "spec": spec.get("spec") or {}}, pod.namespace
            )
        except StatusError as error:
            raise _NotMade(f"create ResourceClaim : {error}") from error
        name: str = claim["metadata"]["name"]
        self._made[pod.uid, wanted.name] = name
        return name

    async def _reserve_all(self, pod: PodView) -> None:
        """For a bound pod whose scheduler did not reserve its claims."""
        for wanted in pod.devices:
            if wanted.extended or (wanted.known and wanted.claim is None):
                continue
            claim = self._claims.store.get(f"{pod.namespace}/{wanted.claim}") if wanted.known else None
            if claim is None:
                return
            if wanted.template and not belongs_to(claim, pod):
                return
            if _lacks_reservation(claim, pod):
                status = claim.obj["status"]
                consumer = {"resource": "pods", "name": pod.name, "uid": pod.uid}
                reserved = [*(status.get("reservedFor") or ()), consumer]
                await self._client.update_status(
                    DEVICE_CLAIMS, {**claim.obj, "status": {**status, "reservedFor": reserved}}
                )

    # --- claims -----------------------------------------------------------------------------------------------------

    async def _sync_claim(self, key: str) -> None:
        claim = self._claims.store.get(key)
        if claim is None:
            return
        obj, status = claim.obj, claim.obj.get("status") or {}
        before = status.get("reservedFor") or ()
        remaining = [consumer for consumer in before if await self._still_uses(claim.namespace, consumer)]
        protected = FINALIZER in claim.finalizers
        if len(remaining) < len(before):
            after = _with_reservations(status, remaining, give_back=protected)
            await self._write(obj, after, may_free=True)
        elif protected and claim.deleting and not remaining:
            after = {name: value for name, value in status.items() if name != "allocation"}
            await self._write(obj, after, may_free=True)
        if not remaining:
            await self._end_unused(claim)

    async def _write(self, obj: Object, status: Mapping[str, Any], may_free: bool) -> None:
        """Writes the status; then, if no devices are held, removes the claim's finalizer."""
        if status != (obj.get("status") or {}):
            obj = await self._client.update_status(DEVICE_CLAIMS, {**obj, "status": dict(status)})
        metadata = obj["metadata"]
        finalizers = metadata.get("finalizers") or []
        if may_free and FINALIZER in finalizers and (obj.get("status") or {}).get("allocation") is None:
            left = [each for each in finalizers if each != FINALIZER]
            await self._client.update(DEVICE_CLAIMS, {**obj, "metadata": {**metadata, "finalizers": left}})

    async def _still_uses(self, namespace: str, consumer: Mapping[str, Any]) -> bool:
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        uid = consumer.get("uid")
        if uid in self._ended:
            return False
        pod = self._pods.store.get(f"{namespace}/{consumer.get('name')}")
        if pod is not None:
            return pod.uid == uid and not _is_done(pod)
        # The scheduler may reserve for a pod that the informer does not show yet.
        try:
            found = await self._client.get(PODS, str(consumer.get("name")), namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        return bool(found["metadata"]["uid"] == uid)

    async def _end_unused(self, claim: WholeView) -> None:
        """Deletes claims of a pod that will not run again, although the pod may stay for long."""
        owner = claim.controller
        if owner is None or (owner.api_version, owner.kind) != ("v1", "Pod"):
            return
        pod = self._pods.store.get(f"{claim.namespace}/{owner.name}")
        if pod is not None and (pod.uid != owner.uid or _is_done(pod)):
            await self._client.delete(DEVICE_CLAIMS, claim.name, claim.namespace)


class _NotMade(MinikubeError):
    """Why a pod's claim could not be created."""


def _with_reservations(status: Mapping[str, Any], remaining: list[Any], give_back: bool) -> dict[str, Any]:
    """A claim without reservations releases its allocation."""
    after = {name: value for name, value in status.items() if name != "reservedFor"}
    if remaining:
        after["reservedFor"] = remaining
    elif give_back:
        after.pop("allocation", None)
    return after


def _is_done(pod: PodView) -> bool:
    """Whether nothing of it runs or ever will."""
    return pod.terminal or bool(pod.deleting and not pod.node)


def belongs_to(claim: WholeView, pod: PodView) -> bool:
    owner = claim.controller
    return owner is not None and owner.uid == pod.uid


def _lacks_reservation(claim: WholeView, pod: PodView) -> bool:
    status = claim.obj.get("status") or {}
    reserved = status.get("reservedFor") or ()
    return bool(pod.node and status.get("allocation") is not None) and all(each["uid"] != pod.uid for each in reserved)


def _generated(pod: str, claim: str) -> str:
    """The prefix of the claim's name; long names are shortened in proportion."""
    name = f"{pod}-{claim}-"
    if len(name) <= _NAME_MAX:
        return name
    return f"{pod[: len(pod) * _NAME_MAX // len(name)]}-{claim[: len(claim) * _NAME_MAX // len(name)]}"
