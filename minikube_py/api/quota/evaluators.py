"""Quota usage of pods, services, claims, and object counts.

Source: `pkg/quota/v1/evaluator/core`, `apiserver/pkg/quota/v1/generic`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from minikube_py.api.errors import Json, qualified
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core.volumes import class_of
from minikube_py.api.quota import pods
from minikube_py.api.quota.amounts import ONE, Amounts
from minikube_py.fields import quantity
from minikube_py.fields.quantity import ZERO, Quantity


def _knows_no_pod(claim: Json) -> Json | None:
    return None


class Seen(NamedTuple):
    """What else counts. `extended`: device class to the extended resource that it stands for, "" for none. `pod_of`:
    the pod for whose extended resources this claim was made, where there is one: see `payer`."""

    wall_s: float
    extended: Mapping[str, str] = {}
    pod_of: Callable[[Json], Json | None] = _knows_no_pod


def _needs_nothing(required: Collection[str], obj: Json) -> str:
    return ""


def _has_no_scopes(scope: str, operator: str, values: Collection[str], obj: Json) -> bool:
    return False


def _never(new: Json, old: Json) -> bool:
    return False


def _always(new: Json, old: Json) -> bool:
    return True


class Evaluator(NamedTuple):
    """`matching(names, seen)`: those of a quota's resources that this kind uses. `missing`: required fields that an
    object lacks. `updates`, by subresource: whether such an update is looked at."""

    matching: Callable[[Iterable[str], Seen], list[str]]
    usage: Callable[[Json, Seen], Amounts]
    is_in: Callable[[str, str, Collection[str], Json], bool] = _has_no_scopes
    missing: Callable[[Collection[str], Json], str] = _needs_nothing
    updates: Mapping[str, Callable[[Json, Json], bool]] = {}

    def handles(self, sub: str, new: Json, old: Json | None) -> bool:
        return not sub if old is None else self.updates.get(sub, _never)(new, old)

    def matches(self, quota: Json, obj: Json, seen: Seen) -> bool:
        return bool(self.matching(hard_of(quota), seen)) and self.scopes_match(quota, obj)

    def scopes_match(self, quota: Json, obj: Json) -> bool:
        return all(self.is_in(scope, operator, values, obj) for scope, operator, values in _scopes_of(quota))


def hard_of(quota: Json) -> Mapping[str, str]:
    found: Mapping[str, str] = (quota.get("status") or {}).get("hard") or {}
    return found


def _scopes_of(quota: Json) -> list[tuple[str, str, Collection[str]]]:
    spec = quota["spec"]
    selector = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    return [(scope, "Exists", ()) for scope in spec.get("scopes") or ()] + [
        (one.get("scopeName") or "", one.get("operator") or "", one.get("values") or ()) for one in selector
    ]


# --- services ---------------------------------------------------------------------------------------------------------


def _service_usage(service: Json, seen: Seen) -> Amounts:
    spec = service["spec"]
    kind, ports = spec.get("type"), spec.get("ports") or ()
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [port for port in ports if port.get("nodePort")]
    return {
        "count/services": ONE,
        "services": ONE,
        "services.loadbalancers": ONE if kind == "LoadBalancer" else ZERO,
        "services.nodeports": quantity.from_value(len(ports)) if kind in ("NodePort", "LoadBalancer") else ZERO,
    }


# --- claims of volumes ------------------------------------------------------------------------------------------------

_BY_CLASS: Final = ".storageclass.storage.k8s.io/"
_CLAIMS: Final = ("persistentvolumeclaims", "requests.storage")


def _matching_claims(names: Iterable[str], seen: Seen) -> list[str]:
    own, ends = ("count/persistentvolumeclaims", *_CLAIMS), tuple(f"{_BY_CLASS}{name}" for name in _CLAIMS)
    return [name for name in names if name in own or name.endswith(ends)]


def _whole(text: str) -> Quantity:
    given = quantity.parse(text)
    return given if given.scale >= 0 else quantity.from_value(given.value(), given.format)


def _claim_usage(claim: Json, seen: Seen) -> Amounts:
    used = {"persistentvolumeclaims": ONE, "count/persistentvolumeclaims": ONE}
    asked = ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage")
    if asked is not None:
        amount = _whole(asked)
        allocated = ((claim.get("status") or {}).get("allocatedResources") or {}).get("storage")
        if allocated is not None and quantity.parse(allocated).compare(amount) > 0:
            amount = _whole(allocated)
        used["requests.storage"] = amount
    if name := class_of(claim):
        used |= {f"{name}{_BY_CLASS}{each}": used[each] for each in _CLAIMS if each in used}
    return used


def _claim_is_in(scope: str, operator: str, values: Collection[str], claim: Json) -> bool:
    status = claim.get("status") or {}
    modifying = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    current = status.get("currentVolumeAttributesClassName")
    named = [name for name in (claim["spec"].get("volumeAttributesClassName"), current, modifying) if name]
    return scope == "VolumeAttributesClass" and pods.selects(operator, values, named)


# --- claims of devices ------------------------------------------------------------------------------------------------

_DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
_ALL_DEVICES: Final = 32
"""The maximum per claim, charged for "all"."""


def _matching_devices(names: Iterable[str], seen: Seen) -> list[str]:
    """An extended resource is also known by its class."""
    own = {"count/resourceclaims.resource.k8s.io", *(f"requests.{pods.BY_CLASS}{name}" for name in seen.extended)}
    own |= {f"requests.{name}" for name in seen.extended.values() if name}
    return [name for name in names if name in own or name.endswith(_DEVICES)]


def _devices(request: Json) -> int:
    mode = request.get("allocationMode")
    return int(request.get("count") or 0) if mode == "ExactCount" else _ALL_DEVICES if mode == "All" else 0


def _device_usage(claim: Json, seen: Seen) -> Amounts:
    counts: dict[str, int] = {}
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        most: dict[str, int] = {}
        exactly = request.get("exactly")
        for one in request.get("firstAvailable") or ([exactly] if exactly is not None else ()):
            name = one.get("deviceClassName") or ""
            most[name] = max(most.get(name, 0), _devices(one))
        for name, count in most.items():
            # Alternatives that need none are not mentioned; a request that needs none is, as zero.
            if count or exactly is not None:
                counts[name] = counts.get(name, 0) + count
    used: Amounts = {f"{name}{_DEVICES}": quantity.from_value(count) for name, count in counts.items()}
    pod = seen.pod_of(claim)
    paid = pods.usage(pod, seen.wall_s) if pod is not None else {}
    also: dict[str, int] = {}
    for name, count in counts.items():
        if name:
            also[f"requests.{pods.BY_CLASS}{name}"] = count
            if extended := seen.extended.get(name):
                also[f"requests.{extended}"] = count
    for name, count in also.items():
        rest = quantity.from_value(count)
        rest = rest.minus(paid[name]) if name in paid else rest
        if rest.unscaled > 0:
            used[name] = rest
    return {"count/resourceclaims.resource.k8s.io": ONE, **used}


def payer(
    claim: Json, pod_of: Callable[[str, str], Json | None], claims: Callable[[str], Iterable[Json]]
) -> Json | None:
    """The pod for whose extended resources this claim was made: the pod is charged, not the claim. `pod_of` and
    `claims` find a pod by namespace and name, and the claims of a namespace."""
    metadata = claim["metadata"]
    owner = _controlling_pod(claim)
    if owner is None:
        return None
    namespace = metadata.get("namespace") or ""
    pod = pod_of(namespace, owner["name"])
    if pod is None or pod["metadata"]["uid"] != owner.get("uid"):
        return None
    named = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if named is not None:
        return pod if named.get("resourceClaimName") == metadata["name"] else None
    # Only the first of several belongs to the pod.
    own = metadata.get("creationTimestamp") or "", metadata["name"]
    for other in claims(namespace):
        rival = _controlling_pod(other) or {}
        known = other["metadata"].get("creationTimestamp") or "", other["metadata"]["name"]
        if rival.get("uid") == owner.get("uid") and known < own:
            return None
    return pod


def _controlling_pod(claim: Json) -> Json | None:
    if (claim["metadata"].get("annotations") or {}).get("resource.kubernetes.io/extended-resource-claim") != "true":
        return None
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Json = owner
            return found if (found.get("kind"), found.get("apiVersion")) == ("Pod", "v1") else None
    return None


# --- all of them ------------------------------------------------------------------------------------------------------

_EVALUATORS: Final[Mapping[tuple[str, str], Evaluator]] = {
    ("", "pods"): Evaluator(
        lambda names, seen: pods.matching(names),
        lambda pod, seen: pods.usage(pod, seen.wall_s),
        pods.is_in,
        pods.missing,
        {"": pods.changes_scope, "resize": _always},
    ),
    ("", "services"): Evaluator(
        lambda names, seen: [
            name
            for name in names
            if name in ("count/services", "services", "services.nodeports", "services.loadbalancers")
        ],
        _service_usage,
        updates={"": _always},
    ),
    ("", "persistentvolumeclaims"): Evaluator(
        _matching_claims, _claim_usage, _claim_is_in, updates={"": _always, "status": _always}
    ),
    ("resource.k8s.io", "resourceclaims"): Evaluator(_matching_devices, _device_usage, updates={"": _always}),
}
_ALIASED: Final = frozenset(("configmaps", "resourcequotas", "replicationcontrollers", "secrets"))
_IGNORED: Final = frozenset((("", "events"), ("events.k8s.io", "events")))


def counter(group: str, plural: str) -> Evaluator:
    """Of what is only counted."""
    own = {f"count/{qualified(group, plural)}"} | ({plural} if not group and plural in _ALIASED else set())
    used = dict.fromkeys(sorted(own), ONE)
    return Evaluator(lambda names, seen: [name for name in names if name in own], lambda obj, seen: dict(used))


@lru_cache(512)
def named(group: str, plural: str) -> Evaluator | None:
    """Of a kind with a namespace. None: its objects use nothing of quotas."""
    name = group, plural
    return None if name in _IGNORED else _EVALUATORS.get(name) or counter(*name)


def evaluator_of(kind: Kind) -> Evaluator | None:
    return named(kind.group, kind.plural) if kind.namespaced and kind.stored else None
