"""A simulated CSI driver: its volumes exist only as objects, without storage.

Its provisioner creates a volume for a claim that the binder assigns to it, and deletes it after the claim if the class
says Delete. Its attacher attaches volumes at once.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.core.volumes import class_of
from minikube_py.api.meta import annotations_of
from minikube_py.api.volume_binding import PROVISIONED_BY, PROVISIONER, SELECTED_NODE, waits_for_consumer
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import Object
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.volume_views import ATTACHMENTS, CLAIMS, STORAGE_CLASSES, VOLUMES, WholeView, about

SIMULATED: Final = "simulated.minikube-py"
"""The provisioner of a StorageClass, and the CSI driver of its volumes."""


class SimulatedProvisioner(QueueController):
    name = "simulated-volume-provisioner"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._claims: Informer[WholeView] = context.informers.of(CLAIMS)
        self._volumes: Informer[WholeView] = context.informers.of(VOLUMES)
        self._classes: Informer[WholeView] = context.informers.of(STORAGE_CLASSES)
        self._events = context.recorder(SIMULATED)
        self._workers = QueueWorkers(context, self.name, self._sync)
        self._claims.add_handler(Handler(on_add=self._claim, on_update=lambda old, new: self._claim(new)))
        self._volumes.add_handler(Handler(on_add=self._volume, on_update=lambda old, new: self._volume(new)))

    def _claim(self, claim: WholeView) -> None:
        if annotations_of(claim.obj).get(PROVISIONER) == SIMULATED and not claim.obj["spec"].get("volumeName"):
            self._workers.queue.add(f"claim/{claim.key}")

    def _volume(self, volume: WholeView) -> None:
        if annotations_of(volume.obj).get(PROVISIONED_BY) == SIMULATED:
            self._workers.queue.add(f"volume/{volume.name}")

    async def _sync(self, key: str) -> None:
        what, _, name = key.partition("/")
        if what == "claim":
            claim = self._claims.store.get(name)
            if claim is not None and not claim.deleting and not claim.obj["spec"].get("volumeName"):
                await self._make(claim)
            return
        volume = self._volumes.store.get(name)
        if volume is None or volume.deleting:
            return
        phase = (volume.obj.get("status") or {}).get("phase")
        if phase == "Released" and volume.obj["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            await self._client.delete(VOLUMES, name)

    async def _make(self, claim: WholeView) -> None:
        view = self._classes.store.get(class_of(claim.obj))
        if view is None or view.obj.get("provisioner") != SIMULATED:
            return
        if waits_for_consumer(view.obj) and SELECTED_NODE not in annotations_of(claim.obj):
            return
        volume = _volume_for(claim, view.obj)
        involved = about("PersistentVolumeClaim", claim.obj)
        told = f'External provisioner is provisioning volume for claim "{claim.key}"'
        self._events.event(involved, "Normal", "Provisioning", told)
        try:
            await self._client.create(VOLUMES, volume)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
        told = f"Successfully provisioned volume {volume['metadata']['name']}"
        self._events.event(involved, "Normal", "ProvisioningSucceeded", told)


class SimulatedAttacher(QueueController):
    """Detaching takes no more than the end of the VolumeAttachment."""

    name = "simulated-volume-attacher"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._attachments: Informer[WholeView] = context.informers.of(ATTACHMENTS)
        self._workers = QueueWorkers(context, self.name, self._sync)

    def start(self) -> None:
        super().start()
        self._attachments.add_handler(Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new)))

    def _waits(self, view: WholeView) -> bool:
        return view.obj["spec"]["attacher"] == SIMULATED and not (view.obj.get("status") or {}).get("attached")

    def _seen(self, view: WholeView) -> None:
        if self._waits(view) and not view.deleting:
            self._workers.queue.add(view.name)

    async def _sync(self, name: str) -> None:
        view = self._attachments.store.get(name)
        if view is not None and self._waits(view):
            patch = {"metadata": {"uid": view.uid}, "status": {"attached": True}}
            await self._client.patch(ATTACHMENTS, name, patch, subresource="status")


def _volume_for(claim: WholeView, storage_class: Object) -> Object:
    name, spec = f"pvc-{claim.uid}", claim.obj["spec"]
    made: dict[str, Any] = {
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
        "accessModes": spec["accessModes"],
        "csi": {"driver": SIMULATED, "volumeHandle": name},
        "claimRef": {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": claim.uid,
            "resourceVersion": claim.resource_version,
        },
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "storageClassName": storage_class["metadata"]["name"],
        "volumeMode": spec.get("volumeMode") or "Filesystem",
    }
    if options := storage_class.get("mountOptions"):
        made["mountOptions"] = options
    if attributes := spec.get("volumeAttributesClassName"):
        made["volumeAttributesClassName"] = attributes
    if topologies := storage_class.get("allowedTopologies"):
        terms = [
            {
                "matchExpressions": [
                    {"key": each["key"], "operator": "In", "values": each["values"]}
                    for each in topology.get("matchLabelExpressions") or ()
                ]
            }
            for topology in topologies
        ]
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {"metadata": {"name": name, "annotations": {PROVISIONED_BY: SIMULATED}}, "spec": made}
