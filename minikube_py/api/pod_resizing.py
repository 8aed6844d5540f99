"""Writes of a pod's `resize`: changes of a running pod's cpu and memory.

Source: `pkg/registry/core/pod/strategy.go`, `pkg/apis/core/validation` (ValidatePodResize), `plugin/pkg/admission`
(podresize, nodedeclaredfeatures).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from minikube_py.api.equality import same_message
from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid_value
from minikube_py.api.pod_resources import given, qos_class, requests_of
from minikube_py.api.validation.metadata import validate_object_meta_update
from minikube_py.api.validation.pods import MIRROR, validate_metadata_and_spec
from minikube_py.fields import quantity

_RESIZED: Final = ("cpu", "memory")
_WHICH: Final = ("requests", "limits")
_ONLY: Final = "only cpu and memory resources {}are mutable"


def resized(new: Json, old: Json) -> Json:
    """The spec of `new` with only the fields that a resize may change. Added, removed or reordered containers are kept,
    and rejected later."""
    now: Json = new["spec"]
    before: Json = old["spec"]
    lists = {name: (now.get(name) or [], before.get(name) or []) for name in ("containers", "initContainers")}
    if any(len(wanted) != len(known) for wanted, known in lists.values()):
        return now
    spec: Json = {**before, **{name: _merged(*pair) for name, pair in lists.items() if pair[0]}}
    spec.pop("resources", None)
    return spec | ({"resources": now["resources"]} if "resources" in now else {})


def _merged(new: list[Json], old: list[Json]) -> list[Json]:
    if any(each.get("name") != known.get("name") for each, known in zip(new, old)):
        return new
    ours = ("resources", "resizePolicy")
    return [
        {key: value for key, value in known.items() if key not in ours}
        | {key: value for key, value in each.items() if key in ours}
        for each, known in zip(new, old)
    ]


def validate_pod_resize(new: Json, old: Json) -> list[FieldError]:
    now, before, status = new["spec"], old["spec"], old.get("status") or {}
    errors = validate_object_meta_update(new["metadata"], old["metadata"]) + validate_metadata_and_spec(new)
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden_value("[]", "static pods cannot be resized")]
    if (before.get("os") or {}).get("name") == "windows":
        return [forbidden_value("[]", "windows pods cannot be resized")]
    if (status.get("qosClass") or qos_class(before)) != qos_class(now):
        shown = (new.get("status") or {}).get("qosClass") or ""
        errors.append(invalid_value("spec", shown, "Pod QOS Class may not change as a result of resizing"))
    states = status.get("containerStatuses") or ()
    running = [each.get("resources") for each in states if (each.get("state") or {}).get("running") is not None]
    if running and running[0] is None:
        errors.append(forbidden_value("spec", "Pod running on node without support for resize"))
    left = dict(now)
    if any(given(spec, which) for spec in (before, now) for which in _WHICH):
        errors += _validate_pod_level(left, before)
    if moved := [*_moved(now, before)]:
        return errors + moved
    for name in ("initContainers", "containers"):
        for i, container in enumerate(before.get(name) or ()):
            errors += _removed(now[name][i], container, f"spec.{name}[{i}].resources", "resource ")
    for name, message in (("containers", "core/v1.Container"), ("initContainers", "core/v1.Container")):
        if not now.get(name):
            continue
        left[name] = [_with_old_amounts(each, known) for each, known in zip(now[name], before[name])]
        for i, (each, known) in enumerate(zip(left[name], before[name])):
            if name == "containers":
                at, words = "spec", _ONLY.format("")
            else:
                at, words = f"spec.{name}[{i}]", _ONLY.format("for init or sidecar containers ")
            if not same_message(message, each, known):
                errors.append(forbidden_value(at, words))
            if name == "containers" or now[name][i].get("restartPolicy") == "Always":
                continue
            if not same_message(message, now[name][i], known):
                why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
                restarts = (p for p in each.get("resizePolicy") or () if p.get("restartPolicy") == "RestartContainer")
                errors += [forbidden_value(at, why) for _ in restarts]
    if not errors and not same_message("core/v1.PodSpec", left, before):
        errors.append(forbidden_value("spec", _ONLY.format("")))
    return errors


def _moved(now: Json, before: Json) -> Iterator[FieldError]:
    for name in ("containers", "initContainers"):
        wanted, known = now.get(name) or [], before.get(name) or []
        if len(wanted) != len(known):
            yield forbidden_value(f"spec.{name}", f"{name} may not be added or removed on resize")
            continue
        for i, (each, old) in enumerate(zip(wanted, known)):
            if each.get("name") != old.get("name"):
                yield forbidden_value(f"spec.{name}[{i}].name", f"{name} may not be renamed or reordered on resize")


def _removed(new: Json, old: Json, path: str, what: str) -> list[FieldError]:
    return [
        forbidden_value(f"{path}.{which}", f"{what}{which} cannot be removed")
        for which in _WHICH
        if given(old, which).keys() - given(new, which).keys()
    ]


def _validate_pod_level(left: Json, before: Json) -> list[FieldError]:
    """Restores the mutable amounts in `left`."""
    known = before.get("resources")
    if left.get("resources") is None:
        return [forbidden_value("spec.resources", "pod-level resources cannot be removed")] if known is not None else []
    errors = [] if known is None else _removed(left, before, "spec.resources", "pod-level resource ")
    mine = {**left["resources"], **_with_old_amounts(left, before)["resources"]}
    left["resources"] = mine if known is not None or any(mine.values()) else None
    if not same_message("core/v1.PodSpec", _level(left), _level(before)):
        errors.append(forbidden_value("spec", _ONLY.format("") + " at pod-level"))
    return errors


def _with_old_amounts(new: Json, old: Json) -> Json:
    found: Json = {}
    for which in _WHICH:
        was = given(old, which)
        kept = {name: amount for name, amount in given(new, which).items() if name not in _RESIZED}
        found[which] = {**kept, **{name: was[name] for name in _RESIZED if name in was}}
    return {**new, "resources": found}


# --- admission ------------------------------------------------------------------------------------------------------


def features_needed(new: Json, old: Json) -> list[str]:
    """The kubelet features that the resize needs."""
    now, before = new["spec"], old["spec"]
    inits = zip(now.get("initContainers") or (), before.get("initContainers") or ())
    of_inits = any(
        known.get("restartPolicy") != "Always" and (each.get("resources") or {}) != (known.get("resources") or {})
        for each, known in inits
    )
    of_pod = not same_message("core/v1.PodSpec", _level(now), _level(before))
    asked = {"InPlacePodLevelResourcesVerticalScaling": of_pod, "InPlacePodVerticalScalingInitContainers": of_inits}
    return [name for name, needed in asked.items() if needed]


def _level(spec: Json) -> Json:
    return {"resources": spec.get("resources")}


def beyond_node(pod: Json, allocatable: Any) -> str:
    """Why a node of that size can never hold the pod, in upstream's words; "": it can."""
    asked, told = requests_of({"spec": pod["spec"]}), []
    for name in _RESIZED:
        wanted, most = asked.get(name, quantity.parse("0")), quantity.parse((allocatable or {}).get(name) or "0")
        if wanted.compare(most) > 0:
            a, b = (each.milli_value() if name == "cpu" else each.value() for each in (wanted, most))
            told.append(f"{name}, requested: {a}, allocatable: {b}")
    return f"node didn't have enough allocatable resources: {'; '.join(told)}" if told else ""
