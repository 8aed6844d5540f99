"""Finalizers keep deleted volumes, claims and classes while they are in use.

Source: `pkg/controller/volume/{pvcprotection,pvprotection,vacprotection}`.
"""

from __future__ import annotations

from typing import Final

from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, Object, ResourceRef
from minikube_py.controllers.base import BY_CLAIM, ControllerContext, QueueController, QueueWorkers, pod_claims
from minikube_py.controllers.views import PodView
from minikube_py.controllers.volume_views import ATTRIBUTES_CLASSES, CLAIMS, VOLUMES, WholeView

CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"
CLASS_FINALIZER: Final = "kubernetes.io/vac-protection"


class Protection(QueueController):
    """Adds the finalizer where missing, and removes it from deleted objects no longer in use."""

    name = ""

    def __init__(self, context: ControllerContext, resource: ResourceRef, finalizer: str) -> None:
        self._client = context.client
        self._resource = resource
        self._finalizer = finalizer
        self._objects: Informer[WholeView] = context.informers.of(resource)
        self._workers = QueueWorkers(context, self.name, self._sync, 1)
        self._objects.add_handler(Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new)))

    def _seen(self, view: WholeView) -> None:
        if bool(view.deleting) == (self._finalizer in view.finalizers):
            self._workers.queue.add(view.key)

    async def _sync(self, key: str) -> None:
        view = self._objects.store.get(key)
        if view is None:
            return
        if view.deleting and self._finalizer in view.finalizers:
            if not await self._is_used(view):
                await self._write(view, [each for each in view.finalizers if each != self._finalizer])
        elif not view.deleting and self._finalizer not in view.finalizers:
            await self._write(view, [*view.finalizers, self._finalizer])

    async def _write(self, view: WholeView, finalizers: list[str]) -> None:
        changed: Object = {**view.obj, "metadata": {**view.obj["metadata"], "finalizers": finalizers}}
        await self._client.update(self._resource, changed)

    async def _is_used(self, view: WholeView) -> bool:
        raise NotImplementedError


class ClaimProtection(Protection):
    """Each pod with a node uses its claims, even a finished pod; ephemeral volumes only until the pod ends."""

    name = "persistentvolumeclaim-protection-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, CLAIMS, CLAIM_FINALIZER)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._pods.add_handler(Handler(on_update=self._changed, on_delete=self._left))

    def _changed(self, old: PodView, new: PodView) -> None:
        if new.terminal or new.deleting:
            self._left(new)

    def _left(self, pod: PodView) -> None:
        for key in pod_claims(pod):
            if key in self._objects.store:
                self._workers.queue.add(key)

    async def _is_used(self, view: WholeView) -> bool:
        if any(_uses(pod, view) for pod in self._pods.store.by_index(BY_CLAIM, view.key)):
            return True
        # A pod not yet in the cache may be running, so check on the server.
        async for page in self._client.pages(PODS, view.namespace):
            if any(_names(pod, view) for pod in page.items):
                return True
        return False


def _uses(pod: PodView, claim: WholeView) -> bool:
    if not pod.node:
        return False
    if claim.name in pod.claims:
        return True
    shut_down = pod.terminal and bool(pod.deleting)
    owned = any(owner.uid == pod.uid for owner in claim.owners)
    return not shut_down and owned and any(name == claim.name for _, name, _ in pod.ephemeral)


def _names(pod: Object, claim: WholeView) -> bool:
    spec = pod["spec"]
    if not spec.get("nodeName"):
        return False
    for volume in spec.get("volumes") or ():
        if (volume.get("persistentVolumeClaim") or {}).get("claimName") == claim.name:
            return True
        owned = any(owner.uid == pod["metadata"]["uid"] for owner in claim.owners)
        shut_down = bool(pod["metadata"].get("deletionTimestamp")) and (
            (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        )
        named = f"{pod['metadata']['name']}-{volume['name']}" == claim.name
        if volume.get("ephemeral") is not None and named and owned and not shut_down:
            return True
    return False


class VolumeProtection(Protection):
    """A volume is in use while it is bound."""

    name = "persistentvolume-protection-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, VOLUMES, VOLUME_FINALIZER)

    async def _is_used(self, view: WholeView) -> bool:
        return (view.obj.get("status") or {}).get("phase") == "Bound"


class AttributesClassProtection(Protection):
    """A VolumeAttributesClass is in use while it is a volume's or claim's current, former or target class."""

    name = "volumeattributesclass-protection-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, ATTRIBUTES_CLASSES, CLASS_FINALIZER)
        self._users: tuple[Informer[WholeView], ...] = (context.informers.of(CLAIMS), context.informers.of(VOLUMES))
        for users in self._users:
            users.add_handler(Handler(on_update=lambda old, new: self._left(old), on_delete=self._left))

    def _left(self, user: WholeView) -> None:
        for name in _classes(user.obj):
            if name in self._objects.store:
                self._workers.queue.add(name)

    async def _is_used(self, view: WholeView) -> bool:
        return any(view.name in _classes(user.obj) for users in self._users for user in users.store.values())


def _classes(user: Object) -> list[str]:
    """The VolumeAttributesClasses that a volume or claim names, each once."""
    spec, status = user.get("spec") or {}, user.get("status") or {}
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    named = (spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), target)
    return list(dict.fromkeys(name for name in named if name))
