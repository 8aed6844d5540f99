"""Creates the claims of ephemeral volumes. Each is owned by its pod and deleted with it.

Source: `pkg/controller/volume/ephemeral`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minikube_py.client.events import Involved
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS
from minikube_py.controllers.base import BY_CLAIM, ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.views import PodView
from minikube_py.controllers.volume_views import CLAIMS, WholeView
from minikube_py.errors import MinikubeError


class EphemeralVolumes(QueueController):
    name = "ephemeral-volume-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._claims: Informer[WholeView] = context.informers.of(CLAIMS)
        self._workers = QueueWorkers(context, self.name, self._sync)
        self._events = context.recorder("ephemeral_volume")
        self._pods.add_handler(Handler(on_add=self._seen))
        self._claims.add_handler(Handler(on_delete=self._lost))

    def _seen(self, pod: PodView) -> None:
        if pod.ephemeral and not pod.deleting:
            self._workers.queue.add(pod.key)

    def _lost(self, claim: WholeView) -> None:
        """A claim was deleted: its pod needs a new one."""
        for pod in self._pods.store.by_index(BY_CLAIM, claim.key):
            self._seen(pod)

    async def _sync(self, key: str) -> None:
        pod = self._pods.store.get(key)
        if pod is None or pod.deleting:
            return
        for volume, claim, template in pod.ephemeral:
            try:
                await self._make(pod, claim, template)
            except (MinikubeError, _NotItsOwn) as error:
                involved = Involved("Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.resource_version)
                self._events.event(involved, "Warning", "FailedBinding", f"ephemeral volume {volume}: {error}")
                raise

    async def _make(self, pod: PodView, name: str, template: Mapping[str, Any]) -> None:
        found = self._claims.store.get(f"{pod.namespace}/{name}")
        if found is not None:
            if not any(owner.controller and owner.uid == pod.uid for owner in found.owners):
                raise _NotItsOwn(
                    f"PVC {found.key} was not created for pod {pod.key} (pod is not owner)"
                )
            return
        given = template.get("metadata") or {}
        owner = {
            "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True,
            "blockOwnerDeletion": True,
        }  # fmt: skip
        metadata = {"name": name, "ownerReferences": [owner]}
        metadata |= {part: given[part] for part in ("annotations", "labels") if given.get(part)}
        await self._client.create(CLAIMS, {"metadata": metadata, "spec": template.get("spec") or {}}, pod.namespace)


class _NotItsOwn(MinikubeError):
    """A claim of that name exists, but not for this pod."""
