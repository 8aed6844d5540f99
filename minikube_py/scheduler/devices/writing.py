"""Writes a choice, the claim's allocation and reservation, and reverts it.

Source: `bindClaim`, `PostFilter` and `Unreserve` of `dynamicresources/dynamicresources.go`.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Coroutine, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.api.meta import new_uid
from minikube_py.client.events import timestamp
from minikube_py.client.rest import PODS
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.env import ended
from minikube_py.errors import MinikubeError, OutcomeUnknown
from minikube_py.fields.times import parse_time
from minikube_py.scheduler.devices.known import Devices
from minikube_py.scheduler.devices.results import Allocation
from minikube_py.scheduler.devices.views import CLAIMS, ClaimView
from minikube_py.scheduler.objects import PodInfo

if TYPE_CHECKING:
    from minikube_py.client.rest import Object
    from minikube_py.env import Rng
    from minikube_py.scheduler.framework import Handle

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
TRIES_MAX: Final = 5
TRY_AFTER_S: Final = 0.01
SEEN_AFTER_MAX_S: Final = 120.0
"""How long the informer may take to show a created claim."""
_US_PER_S: Final = 1_000_000


class BindingFailed(Exception):
    """The claim could not be bound to the pod."""


async def to_its_end(write: Coroutine[Any, Any, None]) -> None:
    """Also if cancelled meanwhile; only then it raises CancelledError. Until it is known whether something was written,
    its devices must not be given to others."""
    task = asyncio.get_running_loop().create_task(write)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await ended(task)
        raise


def with_share_ids(allocation: Allocation, rng: Rng) -> Allocation:
    """A modified copy."""
    found = copy.deepcopy(allocation)
    for result in found["devices"].get("results") or ():
        if "shareID" in result:
            result["shareID"] = new_uid(rng)
    return found


async def bind(
    handle: Handle, devices: Devices, claim: ClaimView, allocation: Allocation | None, pod: PodInfo
) -> ClaimView:
    """Returns the claim as written. Raises: BindingFailed, and the client's errors."""
    obj: Object = copy.deepcopy(dict(claim.obj))
    try:
        for tries in range(TRIES_MAX):
            if tries:
                await handle.clock.sleep(TRY_AFTER_S)
                obj = await _refreshed(handle, claim)
                if _is_done(obj, allocation, pod):
                    break
            try:
                obj = await _write(handle, obj, claim.key, allocation, pod)
                break
            except OutcomeUnknown:
                # Of two writes to one version, the second is refused.
                if tries == TRIES_MAX - 1:
                    raise
            except StatusError as error:
                if error.code != 409 or tries == TRIES_MAX - 1:
                    raise BindingFailed(f"{_doing(allocation)} claim {claim.key}: {error}") from error
        written = ClaimView(obj)
        devices.assume(written)
        return written
    finally:
        devices.break_promise(claim)


def _doing(allocation: Allocation | None) -> str:
    return "add reservation to" if allocation is None else "add allocation and reservation to"


async def _refreshed(handle: Handle, claim: ClaimView) -> Object:
    try:
        found: Object = await handle.client.get(CLAIMS.resource, claim.name, claim.namespace)
    except StatusError as error:
        raise BindingFailed(f"get updated claim {claim.key} after conflict: {error}") from error
    return found


def _is_done(obj: Object, allocation: Allocation | None, pod: PodInfo) -> bool:
    """Whether a write whose response was lost took effect."""
    status = obj.get("status") or {}
    if not any(each.get("uid") == pod.uid for each in status.get("reservedFor") or ()):
        return False
    found: Mapping[str, Any] = status.get("allocation") or {}
    return allocation is None or found.get("devices") == allocation["devices"]


async def _write(handle: Handle, obj: Object, key: str, allocation: Allocation | None, pod: PodInfo) -> Object:
    if "deletionTimestamp" in obj["metadata"]:
        raise BindingFailed(f"claim {key} got deleted in the meantime")
    if allocation is not None:
        if (obj.get("status") or {}).get("allocation") is not None:
            raise BindingFailed(f"claim {key} got allocated elsewhere in the meantime")
        finalizers = obj["metadata"].setdefault("finalizers", [])
        if FINALIZER not in finalizers:
            finalizers.append(FINALIZER)
            obj = await handle.client.update(CLAIMS.resource, obj)
    status = obj.setdefault("status", {})
    if allocation is not None:
        status["allocation"] = dict(allocation)
    status.setdefault("reservedFor", []).append({"resource": "pods", "name": pod.name, "uid": pod.uid})
    if status.get("allocation") is None:
        raise BindingFailed(f"claim {key} got deallocated elsewhere in the meantime")
    status["allocation"].setdefault("allocationTimestamp", timestamp(handle.clock.wall_s()))
    written: Object = await handle.client.update_status(CLAIMS.resource, obj)
    return written


async def create_special(handle: Handle, special: ClaimView) -> ClaimView:
    """Returns the created claim, without its allocation. Raises: BindingFailed."""
    metadata = {name: value for name, value in special.obj["metadata"].items() if name not in ("name", "uid")}
    obj = {**special.obj, "metadata": metadata}
    try:
        made = await handle.client.create(CLAIMS.resource, obj, special.namespace)
    except MinikubeError as error:
        handle.count("scheduler_resourceclaim_creates_total", (("status", "failure"),))
        raise BindingFailed(f"create claim for extended resources {special.key}: {error}") from error
    handle.count("scheduler_resourceclaim_creates_total", (("status", "success"),))
    return ClaimView(made)


async def tell_pod(handle: Handle, pod: PodInfo, claim: ClaimView, mappings: Sequence[Object]) -> None:
    """Records in the pod which request serves which resource of which container. Raises: BindingFailed."""
    about = f"pod {pod.key} ExtendedResourceClaimStatus"
    if not mappings:
        raise BindingFailed(f"nil or empty request mappings, no update of {about}")
    status = {"extendedResourceClaimStatus": {"requestMappings": list(mappings), "resourceClaimName": claim.name}}
    patch, kind = {"status": status}, STRATEGIC_MERGE_PATCH
    try:
        await handle.client.patch(PODS, pod.name, patch, pod.namespace, content_type=kind, subresource="status")
    except MinikubeError as error:
        raise BindingFailed(f"update {about}: {error}") from error


async def delete_special(handle: Handle, claim: ClaimView) -> None:
    """Also releases its devices. Raises the client's errors, except if the claim is gone."""
    obj: Object = copy.deepcopy(dict(claim.obj))
    try:
        for tries in range(TRIES_MAX):
            if tries:
                await handle.clock.sleep(TRY_AFTER_S)
                obj = await handle.client.get(CLAIMS.resource, claim.name, claim.namespace)
            finalizers = obj["metadata"].get("finalizers") or []
            obj["metadata"]["finalizers"] = [each for each in finalizers if each != FINALIZER]
            try:
                await handle.client.update(CLAIMS.resource, obj)
                break
            except StatusError as error:
                if error.code != 409 or tries == TRIES_MAX - 1:
                    raise
        await handle.client.delete(CLAIMS.resource, claim.name, claim.namespace)
    except StatusError as error:
        if error.code != 404:
            raise


async def unreserve(handle: Handle, claim: ClaimView, pod: PodInfo) -> None:
    """Raises the client's errors."""
    gone = [{"$patch": "delete", "uid": pod.uid}]
    patch = {"metadata": {"uid": claim.uid}, "status": {"reservedFor": gone}}
    await handle.client.patch(
        CLAIMS.resource,
        claim.name,
        patch,
        claim.namespace,
        content_type=STRATEGIC_MERGE_PATCH,
        subresource="status",
    )


async def deallocate(handle: Handle, claim: ClaimView) -> None:
    """Raises the client's errors."""
    obj = copy.deepcopy(dict(claim.obj))
    for name in ("reservedFor", "allocation", "devices"):
        obj["status"].pop(name, None)
    await handle.client.update_status(CLAIMS.resource, obj)


# --- binding conditions ---------------------------------------------------------------------------------------------


def has_conditions(claims: Sequence[ClaimView]) -> bool:
    return any(result.get("bindingConditions") for claim in claims for result in claim.results)


def is_ready(claim: ClaimView) -> bool:
    """Whether the pod may use all its devices now. Raises: BindingFailed."""
    if claim.allocation is None:
        return False
    for result in claim.results:
        if not result.get("bindingConditions"):
            continue
        conditions = _conditions_of(claim, result)
        if conditions is None:
            return False
        for name in result.get("bindingFailureConditions") or ():
            failed = conditions.get(name)
            if failed is not None and failed.get("status") == "True":
                why = f'reason={failed.get("reason", "")}, message="{failed.get("message", "")}"'
                raise BindingFailed(f"device binding failed: claim={claim.name}, {why}")
        if any((conditions.get(name) or {}).get("status") != "True" for name in result["bindingConditions"]):
            return False
    return True


def _conditions_of(claim: ClaimView, result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]] | None:
    for device in claim.status.get("devices") or ():
        if all(device.get(name) == result[name] for name in ("driver", "pool", "device")):
            return {each["type"]: each for each in device.get("conditions") or ()}
    return None


def left_s(claim: ClaimView, wall_s: float, timeout_s: float) -> float:
    """Seconds until its devices must be ready; negative once overdue."""
    since = (claim.allocation or {}).get("allocationTimestamp")
    if since is None or not any(result.get("bindingConditions") for result in claim.results):
        return inf
    since_us = parse_time(since)
    return inf if since_us is None else since_us / _US_PER_S + timeout_s - wall_s
