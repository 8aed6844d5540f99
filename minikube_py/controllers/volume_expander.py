"""Says of claims that ask for more storage that another controller has to expand their volumes.

That is all that upstream's does, now that no plugin of its own expands volumes. Source: `pkg/controller/volume/expand`.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.meta import annotations_of
from minikube_py.api.volume_binding import asked_size, held_size
from minikube_py.api.volume_translation import in_tree_of
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import Object
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.volume_views import CLAIMS, VOLUMES, WholeView, about, wants_more
from minikube_py.errors import MinikubeError

RESIZER: Final = "volume.kubernetes.io/storage-resizer"


class _NotItsOwn(MinikubeError):
    """The volume is not bound to the claim."""


class VolumeExpander(QueueController):
    name = "persistentvolume-expander-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._claims: Informer[WholeView] = context.informers.of(CLAIMS)
        self._volumes: Informer[WholeView] = context.informers.of(VOLUMES)
        self._events = context.recorder("volume_expand")
        self._workers = QueueWorkers(context, self.name, self._sync)

    def start(self) -> None:
        super().start()
        self._claims.add_handler(Handler(on_add=self._seen, on_update=self._changed))

    def _seen(self, claim: WholeView) -> None:
        if wants_more(claim):
            self._workers.queue.add(claim.key)

    def _changed(self, old: WholeView, new: WholeView) -> None:
        if any(size(new.obj).compare(size(old.obj)) > 0 for size in (asked_size, held_size)):
            self._seen(new)

    async def _sync(self, key: str) -> None:
        claim = self._claims.store.get(key)
        if claim is None or not wants_more(claim):
            return
        volume: Object = await self._client.get(VOLUMES, claim.obj["spec"].get("volumeName") or "")
        reference = volume["spec"].get("claimRef") or {}
        if (reference.get("namespace"), reference.get("uid")) != (claim.namespace, claim.uid):
            raise _NotItsOwn(f"persistent Volume is not bound to PVC being updated : {key}")
        told, found = "waiting for an external controller to expand this PVC", in_tree_of(volume["spec"])
        if found is not None:
            waits = "waiting for external resizer to expand the pvc"
            told = f"CSI migration enabled for {found[0].plugin}; {waits}"
        involved = about("PersistentVolumeClaim", claim.obj)
        self._events.event(involved, "Normal", "ExternalExpanding", told)
        if found is None or annotations_of(claim.obj).get(RESIZER) == found[0].driver:
            return
        patch = {"metadata": {"uid": claim.uid, "annotations": {RESIZER: found[0].driver}}}
        try:
            await self._client.patch(
                CLAIMS, claim.name, patch, claim.namespace, content_type=STRATEGIC_MERGE_PATCH, subresource="status"
            )
        except MinikubeError as error:
            told = f"error setting resizer annotation to pvc {key}, with error {error}"
            self._events.event(involved, "Warning", "ExternalExpanding", told)
            raise
