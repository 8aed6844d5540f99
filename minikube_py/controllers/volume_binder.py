"""Binds claims to volumes, one to one, and maintains the phases of both.

Source: `pkg/controller/volume/persistentvolume/pv_controller.go`. A binding is four writes: the volume names the claim,
the volume is Bound, the claim names the volume, the claim is Bound. A stop may follow any of them; the next sync
continues from there.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.core.volumes import class_of
from minikube_py.api.kinds.storage import is_default_class
from minikube_py.api.meta import annotations_of, parse_timestamp
from minikube_py.api.volume_binding import (
    BETA_PROVISIONER,
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    NO_PROVISIONER,
    PROVISIONED_BY,
    PROVISIONER,
    SELECTED_NODE,
    best_volume,
    claimed,
    has_class,
    is_claimed_by,
    same_mode,
    size_of,
    waits_for_consumer,
    why_unsuitable,
)
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, Object
from minikube_py.controllers.base import BY_CLAIM, ControllerContext, QueueWorkers
from minikube_py.controllers.views import PodView
from minikube_py.controllers.volume_views import CLAIMS, STORAGE_CLASSES, VOLUMES, WholeView, about
from minikube_py.env import ended

RESYNC_S: Final = 15.0
"""Pending claims are resynced, and repeat their event; so are volumes of claims that are not there."""
_NO_CLASS: Final = "no persistent volumes available for this claim and no storage class is set"
_LOST: Final = "Bound claim has lost {} PersistentVolume. Data on the volume is lost!"
_EXTERNAL: Final = (
    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system "
    "administrator. If volume creation is delayed, please verify that the provisioner is running and correctly "
    "registered."
)


class VolumeBinder:
    name = "persistentvolume-binder-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._clock = context.clock
        self._volumes: Informer[WholeView] = context.informers.of(VOLUMES)
        self._claims: Informer[WholeView] = context.informers.of(CLAIMS)
        self._classes: Informer[WholeView] = context.informers.of(STORAGE_CLASSES)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._events = context.recorder("persistentvolume-controller")
        # One queue with one worker: two claims must not choose the same volume.
        self._workers = QueueWorkers(context, self.name, self._sync, 1)
        self._written: dict[str, Object] = {}
        self._task: asyncio.Task[None] | None = None
        self._claims.add_handler(
            Handler(on_add=self._claim, on_update=lambda old, new: self._claim(new), on_delete=self._claim_gone)
        )
        self._volumes.add_handler(
            Handler(on_add=self._volume, on_update=lambda old, new: self._volume(new), on_delete=self._volume_gone)
        )

    def start(self) -> None:
        self._workers.start()
        self._task = asyncio.get_running_loop().create_task(self._resync(), name=self.name)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await ended(self._task)
        await self._workers.stop()

    def metrics(self) -> dict[str, float]:
        return self._workers.metrics()

    # --- triggers ----------------------------------------------------------------------------------------------------

    def _claim(self, claim: WholeView) -> None:
        self._workers.queue.add(f"claim/{claim.key}")

    def _claim_gone(self, claim: WholeView) -> None:
        self._written.pop(f"claim/{claim.key}", None)
        if volume := claim.obj["spec"].get("volumeName"):
            self._workers.queue.add(f"volume/{volume}")

    def _volume(self, volume: WholeView) -> None:
        self._workers.queue.add(f"volume/{volume.name}")

    def _volume_gone(self, volume: WholeView) -> None:
        self._written.pop(f"volume/{volume.name}", None)
        reference = volume.obj["spec"].get("claimRef")
        if reference is not None:
            self._workers.queue.add(f"claim/{reference.get('namespace')}/{reference.get('name')}")

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(RESYNC_S)
            for claim in sorted(self._claims.store.values(), key=lambda view: view.key):
                if (claim.obj.get("status") or {}).get("phase") != "Bound":
                    self._claim(claim)
            for volume in sorted(self._volumes.store.values(), key=lambda view: view.name):
                if reference := volume.obj["spec"].get("claimRef"):
                    # Its end did not lead here if the claim, as last seen, named no volume yet.
                    found = self._claims.store.get(f"{reference.get('namespace')}/{reference.get('name')}")
                    if found is None or found.uid != reference.get("uid"):
                        self._volume(volume)

    def _latest(self, key: str, view: WholeView | None) -> Object | None:
        """The last written version, until the informer shows it."""
        if view is None:
            return None
        written = self._written.get(key)
        if written is not None and int(written["metadata"]["resourceVersion"]) > int(view.resource_version):
            return written if written["metadata"]["uid"] == view.uid else view.obj
        self._written.pop(key, None)
        return view.obj

    def _volume_named(self, name: str) -> Object | None:
        return self._latest(f"volume/{name}", self._volumes.store.get(name))

    def _claim_named(self, key: str) -> Object | None:
        return self._latest(f"claim/{key}", self._claims.store.get(key))

    async def _sync(self, key: str) -> None:
        what, _, name = key.partition("/")
        if what == "volume":
            volume = self._volume_named(name)
            if volume is not None:
                await self._sync_volume(volume)
            return
        claim = self._claim_named(name)
        if claim is None:
            return
        if BIND_COMPLETED in annotations_of(claim):
            await self._sync_bound(claim)
        else:
            await self._sync_unbound(claim)

    # --- claims -------------------------------------------------------------------------------------------------------

    async def _sync_unbound(self, claim: Object) -> None:
        name = claim["spec"].get("volumeName")
        if not name:
            await self._find(claim)
            return
        volume = self._volume_named(name)
        if volume is None:
            await self._claim_phase(claim, "Pending")
        elif volume["spec"].get("claimRef") is None:
            if why := why_unsuitable(volume, claim):
                told = f'Cannot bind to requested volume "{name}": {why}'
                self._tell("PersistentVolumeClaim", claim, "Warning", "VolumeMismatch", told)
                await self._claim_phase(claim, "Pending")
            else:
                await self._bind(volume, claim)
        elif is_claimed_by(volume, claim):
            await self._bind(volume, claim)
        else:
            told = f'volume "{name}" already bound to a different claim.'
            self._tell("PersistentVolumeClaim", claim, "Warning", "FailedBinding", told)
            await self._claim_phase(claim, "Pending")

    async def _find(self, claim: Object) -> None:
        wanted = class_of(claim)
        found_class = self._class(wanted)
        delayed = waits_for_consumer(found_class)
        for volumes in self._by_modes():
            volume = best_volume(claim, volumes, delayed=delayed)
            if volume is not None:
                await self._bind(volume, claim)
                return
        if await self._give_class(claim):
            return
        if delayed and SELECTED_NODE not in annotations_of(claim):
            self._tell_of_waiting(claim)
        elif wanted:
            await self._provision(claim, wanted, found_class)
            return
        else:
            self._tell("PersistentVolumeClaim", claim, "Normal", "FailedBinding", _NO_CLASS)
        await self._claim_phase(claim, "Pending")

    def _by_modes(self) -> list[list[Object]]:
        """The volumes sorted by access modes, fewest first; then by name."""
        groups: dict[tuple[str, ...], list[Object]] = {}
        for name in sorted(self._volumes.store.keys()):
            volume = self._volume_named(name)
            if volume is not None:
                groups.setdefault(tuple(volume["spec"].get("accessModes") or ()), []).append(volume)
        return [groups[modes] for modes in sorted(groups, key=lambda modes: (len(modes), modes))]

    def _class(self, name: str) -> Object | None:
        view = self._classes.store.get(name) if name else None
        return None if view is None else view.obj

    async def _give_class(self, claim: Object) -> bool:
        """Sets the default class if there was none when the claim was created."""
        if has_class(claim):
            return False
        found = [view for view in self._classes.store.values() if is_default_class(view.obj)]
        found.sort(key=lambda view: view.name)
        chosen = max(found, key=lambda view: parse_timestamp(view.created), default=None)
        if chosen is None:
            return False
        spec = {**claim["spec"], "storageClassName": chosen.name}
        await self._save(CLAIMS, {**claim, "spec": spec})
        return True

    def _tell_of_waiting(self, claim: Object) -> None:
        metadata = claim["metadata"]
        pods = self._pods.store.by_index(BY_CLAIM, f"{metadata['namespace']}/{metadata['name']}")
        waiting = sorted(pod.name for pod in pods if not pod.node and not pod.terminal)
        reason, told = "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
        if waiting:
            reason = "WaitForPodScheduled"
            told = f"waiting for pod{'s' if len(waiting) > 1 else ''} {','.join(waiting)} to be scheduled"
        self._tell("PersistentVolumeClaim", claim, "Normal", reason, told)

    async def _provision(self, claim: Object, name: str, found: Object | None) -> None:
        """Names the claim's provisioner, which watches for such claims."""
        if found is None:
            told = f'storageclass.storage.k8s.io "{name}" not found'
            self._tell("PersistentVolumeClaim", claim, "Warning", "ProvisioningFailed", told)
            return
        provisioner = found["provisioner"]
        if provisioner == NO_PROVISIONER:
            told = 'no volume plugin matched name: kubernetes.io/no-provisioner'
            self._tell("PersistentVolumeClaim", claim, "Warning", "ProvisioningFailed", told)
            return
        annotations = annotations_of(claim)
        if annotations.get(PROVISIONER) != provisioner:
            named = {**annotations, BETA_PROVISIONER: provisioner, PROVISIONER: provisioner}
            claim = await self._save(CLAIMS, {**claim, "metadata": {**claim["metadata"], "annotations": named}})
        told = _EXTERNAL.format(provisioner)
        self._tell("PersistentVolumeClaim", claim, "Normal", "ExternalProvisioning", told)

    async def _sync_bound(self, claim: Object) -> None:
        name = claim["spec"].get("volumeName")
        volume = self._volume_named(name) if name else None
        if volume is None:
            told = _LOST.format("its" if name else "reference to")
            await self._lose(claim, "ClaimLost", told)
            return
        reference = volume["spec"].get("claimRef")
        if reference is None or reference.get("uid") == claim["metadata"]["uid"]:
            await self._bind(volume, claim)
        else:
            told = "Two claims are bound to the same volume, this one is bound incorrectly"
            await self._lose(claim, "ClaimMisbound", told)

    async def _lose(self, claim: Object, reason: str, told: str) -> None:
        if (claim.get("status") or {}).get("phase") != "Lost":
            await self._claim_phase(claim, "Lost")
            self._tell("PersistentVolumeClaim", claim, "Warning", reason, told)

    # --- volumes ------------------------------------------------------------------------------------------------------

    async def _sync_volume(self, volume: Object) -> None:
        reference = volume["spec"].get("claimRef")
        if reference is None or not reference.get("uid"):
            await self._volume_phase(volume, "Available")
            return
        key = f"{reference.get('namespace')}/{reference.get('name')}"
        claim = await self._claim_of(volume, key, reference["uid"])
        if claim is None:
            await self._release(volume)
        elif not claim["spec"].get("volumeName"):
            if not same_mode(volume, claim):
                self._tell_of_modes(volume, claim)
                return
            self._workers.queue.add(f"claim/{key}")
        elif claim["spec"]["volumeName"] == volume["metadata"]["name"]:
            await self._volume_phase(volume, "Bound")
        elif PROVISIONED_BY in annotations_of(volume) and (
            volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
        ):
            await self._release(volume)
        else:
            await self._unbind(volume)

    async def _claim_of(self, volume: Object, key: str, uid: str) -> Object | None:
        """The claim that the volume names, by uid; checked against the server before a release."""
        claim = self._claim_named(key)
        if claim is not None and claim["metadata"]["uid"] == uid:
            return claim
        if claim is None and (volume.get("status") or {}).get("phase") in ("Released", "Failed"):
            return None
        namespace, _, name = key.partition("/")
        try:
            found = await self._client.get(CLAIMS, name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return None
        return found if found["metadata"]["uid"] == uid else None

    def _tell_of_modes(self, volume: Object, claim: Object) -> None:
        names = claim["metadata"]["name"], volume["metadata"]["name"]
        why = "due to incompatible volumeMode."
        told = f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{names[0]}" {why}'
        self._tell("PersistentVolume", volume, "Warning", "VolumeMismatch", told)
        told = f'Cannot bind PersistentVolume "{names[1]}" to requested PersistentVolumeClaim {why}'
        self._tell("PersistentVolumeClaim", claim, "Warning", "VolumeMismatch", told)

    async def _release(self, volume: Object) -> None:
        phase = (volume.get("status") or {}).get("phase")
        if phase not in ("Released", "Failed"):
            volume = await self._volume_phase(volume, "Released")
        policy, name = volume["spec"].get("persistentVolumeReclaimPolicy"), volume["metadata"]["name"]
        by = annotations_of(volume).get(PROVISIONED_BY) or ""
        # The provisioner deletes its volumes, as with CSI; other storage is out of reach here.
        if policy == "Retain" or by or volume["spec"].get("csi") is not None:
            return
        what, reason = ("deleter", "VolumeFailedDelete") if policy == "Delete" else ("recycler", "VolumeFailedRecycle")
        told = f'error getting {what} volume plugin for volume "{name}": no volume plugin matched'
        folder = (volume["spec"].get("hostPath") or {}).get("path") or ""
        if policy == "Delete" and re.search("/tmp/.+", folder):
            # Upstream's deleter removes that folder. Here volumes hold no data.
            await self._client.delete(VOLUMES, name)
            return
        if policy == "Delete" and folder:
            told = f"host_path deleter only supports /tmp/.+ but received provided {folder}"
        if (volume.get("status") or {}).get("phase") != "Failed":
            volume = await self._volume_phase(volume, "Failed", told)
            self._tell("PersistentVolume", volume, "Warning", reason, told)

    async def _unbind(self, volume: Object) -> None:
        annotations, spec = dict(annotations_of(volume)), dict(volume["spec"])
        metadata = {**volume["metadata"]}
        if annotations.pop(BOUND_BY_CONTROLLER, None) is not None:
            del spec["claimRef"]
            metadata["annotations"] = annotations
        else:
            spec["claimRef"] = {key: value for key, value in spec["claimRef"].items() if key != "uid"}
        volume = await self._save(VOLUMES, {**volume, "metadata": metadata, "spec": spec})
        await self._volume_phase(volume, "Available")

    # --- writes -------------------------------------------------------------------------------------------------------

    async def _bind(self, volume: Object, claim: Object) -> None:
        changed = claimed(volume, claim)
        if changed is not None:
            volume = await self._save(VOLUMES, changed)
        volume = await self._volume_phase(volume, "Bound")
        annotations, name = dict(annotations_of(claim)), volume["metadata"]["name"]
        spec = claim["spec"]
        if spec.get("volumeName") != name:
            spec = {**spec, "volumeName": name}
            annotations.setdefault(BOUND_BY_CONTROLLER, "yes")
        annotations.setdefault(BIND_COMPLETED, "yes")
        if annotations != annotations_of(claim) or spec is not claim["spec"]:
            metadata = {**claim["metadata"], "annotations": annotations}
            claim = await self._save(CLAIMS, {**claim, "metadata": metadata, "spec": spec})
        await self._claim_phase(claim, "Bound", volume)

    async def _claim_phase(self, claim: Object, phase: str, volume: Object | None = None) -> None:
        before = claim.get("status") or {}
        status: dict[str, Any] = {**before, "phase": phase}
        if volume is None:
            for name in ("accessModes", "capacity", "currentVolumeAttributesClassName"):
                status.pop(name, None)
        else:
            spec = volume["spec"]
            status["accessModes"] = spec.get("accessModes")
            if before.get("phase") != phase and size_of(volume) != size_of({"spec": before}):
                status["capacity"] = spec.get("capacity")
            attributes = spec.get("volumeAttributesClassName")
            if before.get("phase") == "Pending" and phase == "Bound" and attributes is not None:
                status["currentVolumeAttributesClassName"] = attributes
        if status != before:
            await self._save(CLAIMS, {**claim, "status": status}, "status")

    async def _volume_phase(self, volume: Object, phase: str, message: str = "") -> Object:
        before = volume.get("status") or {}
        if before.get("phase") == phase:
            return volume
        status = {key: value for key, value in before.items() if key != "message"}
        status |= {"phase": phase, "message": message} if message else {"phase": phase}
        return await self._save(VOLUMES, {**volume, "status": status}, "status")

    async def _save(self, resource: Any, obj: Object, subresource: str = "") -> Object:
        written = await self._client.update(resource, obj, subresource)
        namespace, name = written["metadata"].get("namespace"), written["metadata"]["name"]
        self._written[f"claim/{namespace}/{name}" if namespace else f"volume/{name}"] = written
        return written

    def _tell(self, kind: str, obj: Object, type_: str, reason: str, message: str) -> None:
        self._events.event(about(kind, obj), type_, reason, message)
