"""The group `node.k8s.io`: runtime classes, with their overhead and scheduling.

Source: `pkg/apis/node/validation`, `pkg/registry/node/runtimeclass`.
"""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, duplicate, required
from minikube_py.api.kind import NAMESPACED, Kind
from minikube_py.api.meta import is_dns1123_label, is_dns1123_subdomain, validate_immutable, validate_labels
from minikube_py.api.pod_warnings import DEPRECATED_LABELS
from minikube_py.api.printing import AGE, NAME, Printer, column
from minikube_py.api.rules import at, named_by, rules
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.pod_diff import internal
from minikube_py.api.validation.resources import validate_requirements
from minikube_py.api.validation.taints import validate_tolerations


def _default(runtime: Json) -> None:
    if not runtime.get("handler"):
        runtime["handler"] = ""
    if runtime.get("overhead") is not None and not runtime["overhead"].get("podFixed"):
        runtime["overhead"].pop("podFixed", None)


def _validate_handler(handler: str | None, path: str) -> list[FieldError]:
    return list(named_by(is_dns1123_label)(handler, path)) if handler else [required(path)]


def _validate_overhead(overhead: Json | None, path: str) -> list[FieldError]:
    return validate_requirements({"limits": (overhead or {}).get("podFixed")}, path)


def _validate_tolerations(tolerations: Any, path: str) -> list[FieldError]:
    given = tolerations or ()
    errors, known = validate_tolerations(given, path), set()
    for i, each in enumerate(given):
        key = tuple(each.get(name) or "" for name in ("key", "operator", "value", "effect"))
        if key in known:
            errors.append(duplicate(f"{path}[{i}]", internal(each, "Toleration")))
        known.add(key)
    return errors


_validate = rules(
    lambda runtime: validate_object_meta(runtime["metadata"], False, is_dns1123_subdomain),
    at("handler", _validate_handler),
    at("overhead", _validate_overhead),
    at("scheduling.nodeSelector", lambda labels, path: validate_labels(labels or {}, path)),
    at("scheduling.tolerations", _validate_tolerations),
)


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    errors = _validate(new) + validate_object_meta_update(new["metadata"], old["metadata"])
    return errors + validate_immutable(new["handler"], old["handler"], "handler")


def _warnings(runtime: Json, old: Json | None) -> list[str]:
    labels = (runtime.get("scheduling") or {}).get("nodeSelector") or {}
    return [f"scheduling.nodeSelector: {DEPRECATED_LABELS[key]}" for key in labels if key in DEPRECATED_LABELS]


RUNTIMECLASSES: Final = Kind(
    "node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass", False,
    selectable=NAMESPACED,
    allow_create_on_update=True,
    allow_unconditional_update=False,
    default=_default,
    validate=_validate,
    validate_update={"": _validate_update},
    warn=_warnings,
    printer=Printer(
        (NAME, column("Handler", "What runs its containers."), AGE),
        lambda obj, age: [
            obj["metadata"]["name"], obj.get("handler") or "", age(obj["metadata"].get("creationTimestamp")),
        ],
    ),
)  # fmt: skip


# --- pods -----------------------------------------------------------------------------------------------------------


def _covers(wide: Json, narrow: Json) -> bool:
    """Whether one toleration covers the other."""
    if wide == narrow:
        return True
    exists = wide.get("operator") == "Exists"
    if (narrow.get("key") or "") != (wide.get("key") or "") and (wide.get("key") or not exists):
        return False
    effect = wide.get("effect") or ""
    if effect and (narrow.get("effect") or "") != effect:
        return False
    if effect == "NoExecute" and (most_s := wide.get("tolerationSeconds")) is not None:
        own_s = narrow.get("tolerationSeconds")
        if own_s is None or own_s > most_s:
            return False
    # As upstream compares: no operator means Equal, yet differs from an explicit one.
    return exists or (narrow.get("operator") == "Equal" and (narrow.get("value") or "") == (wide.get("value") or ""))


def merge_tolerations(tolerations: list[Json]) -> list[Json]:
    """Without those that others cover."""
    merged: list[Json] = []
    for i, each in enumerate(tolerations):
        later = (other for other in tolerations[i + 1 :] if other != each)
        if not any(_covers(other, each) for other in merged) and not any(_covers(other, each) for other in later):
            merged.append(each)
    return merged


def take_scheduling(runtime: Json, spec: Json) -> str:
    """Puts the class's selector and tolerations into a pod's spec; or returns the conflict."""
    scheduling = runtime.get("scheduling")
    if scheduling is None:
        return ""
    if labels := scheduling.get("nodeSelector"):
        selector = part(spec, "nodeSelector")
        for key, value in labels.items():
            if selector.get(key, value) != value:
                path = f"nodeSelector[{key}]"
                return f"conflict: runtimeClass.scheduling.{path} = {value}; pod.spec.{path} = {selector[key]}"
            selector[key] = value
    if merged := merge_tolerations([*(spec.get("tolerations") or ()), *(scheduling.get("tolerations") or ())]):
        spec["tolerations"] = merged
    return ""


KINDS: Final[tuple[Kind, ...]] = (RUNTIMECLASSES,)
