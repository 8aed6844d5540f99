"""Carries out a pod's choice of volumes: assumes it, writes it, and waits for the binding.

Source: `volumebinding/binder.go`. Upstream polls each second until the volumes are bound; here changes of volumes and
claims are checked as they arrive, and the pod and its node each second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.api.meta import annotations_of
from minikube_py.api.volume_binding import SELECTED_NODE, claimed
from minikube_py.api.volume_translation import TranslationError
from minikube_py.env import ended
from minikube_py.scheduler.volumes.finding import Found
from minikube_py.scheduler.volumes.storage import Storage
from minikube_py.scheduler.volumes.views import CLAIMS, VOLUMES, ClaimView, VolumeView, reached

if TYPE_CHECKING:
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.objects import NodeInfo, PodInfo

LOOK_S: Final = 1.0


class BindingFailed(Exception):
    """The pod must be scheduled again."""


class Chosen(NamedTuple):
    """Volumes naming their claims, and claims naming their node."""

    bindings: tuple[tuple[VolumeView, ClaimView], ...]
    provisions: tuple[ClaimView, ...]


def assume(storage: Storage, found: Found, node: str) -> Chosen:
    """Raises: OutOfSync, without assuming anything."""
    bindings: list[tuple[VolumeView, ClaimView]] = []
    provisions: list[ClaimView] = []
    try:
        for volume, claim in found.bindings:
            changed = claimed(volume.obj, claim.obj)
            if changed is not None:
                volume = VolumeView(changed)
                storage.volumes.assume(volume)
            bindings.append((volume, claim))
        for claim in found.provisions:
            metadata = claim.obj["metadata"]
            annotations = {**annotations_of(claim.obj), SELECTED_NODE: node}
            chosen = ClaimView({**claim.obj, "metadata": {**metadata, "annotations": annotations}})
            storage.claims.assume(chosen)
            provisions.append(chosen)
    except BaseException:
        restore(storage, Chosen(tuple(bindings), tuple(provisions)))
        raise
    return Chosen(tuple(bindings), tuple(provisions))


def restore(storage: Storage, chosen: Chosen) -> None:
    for volume, _ in chosen.bindings:
        storage.volumes.restore(volume)
    for claim in chosen.provisions:
        storage.claims.restore(claim)


async def wait_bound(
    handle: Handle, storage: Storage, pod: PodInfo, node: str, written: Chosen, timeout_s: float
) -> None:
    """Returns when all of the pod's claims are bound. Raises: BindingFailed."""
    deadline_s = handle.clock.monotonic_s() + timeout_s
    changed = asyncio.Event()
    storage.watch(changed.set)
    try:
        while not _is_bound(handle, storage, pod, node, written):
            left_s = deadline_s - handle.clock.monotonic_s()
            if left_s <= 0:
                raise BindingFailed("binding volumes: context deadline exceeded")
            await _first(changed, handle.clock.sleep(min(LOOK_S, left_s)))
            changed.clear()
    finally:
        storage.unwatch(changed.set)


async def _first(changed: asyncio.Event, pause: Any) -> None:
    tasks = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(pause)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await ended(*tasks)


async def write(client: Any, storage: Storage, chosen: Chosen) -> Chosen:
    """The written objects as returned by the API server; they stay assumed until the informer has them, whatever
    happens to the pod. If a write fails, it and the later ones are reverted. A lost response counts as a failure, as
    upstream: if two volumes end up naming a claim, the binder releases one.

    Raises the client's errors."""
    bindings: list[tuple[VolumeView, ClaimView]] = []
    provisions: list[ClaimView] = []
    try:
        for volume, claim in chosen.bindings:
            answer = await client.update(VOLUMES.resource, volume.obj)
            bindings.append((VolumeView(answer), claim))
        for claim in chosen.provisions:
            answer = await client.update(CLAIMS.resource, claim.obj)
            provisions.append(ClaimView(answer))
    except BaseException:
        rest = Chosen(chosen.bindings[len(bindings) :], chosen.provisions[len(provisions) :])
        restore(storage, rest)
        raise
    return Chosen(tuple(bindings), tuple(provisions))


def _is_bound(handle: Handle, storage: Storage, pod: PodInfo, node_name: str, written: Chosen) -> bool:
    """By the served objects, not the assumed ones. Raises: BindingFailed."""
    node = handle.columns.by_name.get(node_name)
    if node is None or not node.present:
        raise BindingFailed(f'binding volumes: failed to get node "{node_name}": node "{node_name}" not found')
    known = handle.pod(pod.key)
    if known is None or known.uid != pod.uid:
        raise BindingFailed(f'binding volumes: pod does not exist any more: pod "{pod.name}" not found')
    if not all(_is_claim_bound(storage, volume, claim, node) for volume, claim in written.bindings):
        return False
    return all(_is_provisioned(storage, claim, node) for claim in written.provisions)


def _is_claim_bound(storage: Storage, written: VolumeView, of: ClaimView, node: NodeInfo) -> bool:
    volume, claim = storage.volumes.served(written.name), storage.claims.served(of.key)
    if volume is None:
        raise BindingFailed(f'binding volumes: failed to check binding: persistentvolume "{written.name}" not found')
    if claim is None:
        raise BindingFailed(f'binding volumes: failed to check binding: persistentvolumeclaim "{of.key}" not found')
    if int(written.resource_version) > int(volume.resource_version):
        return False
    _check_reached(storage, volume, node, "binding volumes: failed to translate pv to csi: could not translate pv: ")
    if volume.claim is None or not volume.claim.get("uid"):
        raise BindingFailed(f'binding volumes: ClaimRef got reset for pv "{volume.name}"')
    return claim.is_fully_bound


def _is_provisioned(storage: Storage, written: ClaimView, node: NodeInfo) -> bool:
    claim = storage.claims.served(written.key)
    if claim is None:
        missing = f'persistentvolumeclaim "{written.key}" not found'
        raise BindingFailed(f"binding volumes: failed to check provisioning pvc: {missing}")
    if int(written.resource_version) > int(claim.resource_version):
        return False
    annotations = annotations_of(claim.obj)
    if not annotations:
        raise BindingFailed(f'binding volumes: selectedNode annotation reset for PVC "{claim.name}"')
    if annotations.get(SELECTED_NODE) != node.name:
        # A provisioner that cannot create the volume removes the node, so that another one is chosen.
        raise BindingFailed(f'binding volumes: provisioning failed for PVC "{claim.name}"')
    if claim.volume_name:
        volume = storage.volumes.served(claim.volume_name)
        if volume is None:
            return False
        _check_reached(storage, volume, node, "binding volumes: could not translate pv: ")
    return claim.is_fully_bound


def _check_reached(storage: Storage, volume: VolumeView, node: NodeInfo, failed: str) -> None:
    try:
        terms = storage.terms_on(volume, node.name)
    except TranslationError as error:
        raise BindingFailed(f"{failed}{error}") from error
    if terms is not None and not reached(terms, node.labels):
        why = "no matching NodeSelectorTerms"
        raise BindingFailed(
            f'binding volumes: pv "{volume.name}" node affinity doesn\'t match node "{node.name}": {why}'
        )
