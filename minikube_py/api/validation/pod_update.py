"""What an update of a pod may change: images, deadlines, tolerations added, gates removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from minikube_py.api.equality import same_message
from minikube_py.api.errors import FieldError, Json, forbidden_value, invalid_value, required
from minikube_py.api.meta import between
from minikube_py.api.validation.containers import WHITESPACE
from minikube_py.api.validation.pod_diff import spec_diff
from minikube_py.api.validation.taints import validate_tolerations

INT32_MAX: Final = (1 << 31) - 1
_SPEC: Final = "core/v1.PodSpec"
_UPDATABLE: Final = (
    "`spec.containers[*].image`",
    "`spec.initContainers[*].image`",
    "`spec.activeDeadlineSeconds`",
    "`spec.tolerations` (only additions to existing tolerations)",
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
)


def _validate_images(new: Sequence[Json], old: Sequence[Json], path: str) -> tuple[list[FieldError], bool]:
    """What is wrong, and whether to stop looking."""
    if len(new) != len(old):
        return [forbidden_value(path, "pod updates may not add or remove containers")], True
    errors: list[FieldError] = []
    for i, container in enumerate(new):
        image = container.get("image") or ""
        if not image:
            errors.append(required(f"{path}[{i}].image"))
        if image.strip() != image:
            errors.append(invalid_value(f"{path}[{i}].image", image, WHITESPACE))
    return errors, False


def _validate_deadline(new: int | None, old: int | None) -> tuple[list[FieldError], bool]:
    at = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            return [invalid_value(at, None, "must not update from a positive integer to nil value")], False
        return [], False
    if not 0 <= new <= INT32_MAX:
        return [invalid_value(at, new, between(0, INT32_MAX))], True
    if old is not None and old < new:
        return [invalid_value(at, new, "must be less than or equal to previous value")], True
    return [], False


def _only_added_tolerations(new: Sequence[Json], old: Sequence[Json]) -> list[FieldError]:
    def identity(toleration: Json) -> tuple[Any, ...]:
        return tuple(toleration.get(key) or "" for key in ("key", "operator", "value", "effect"))

    kept = {identity(toleration) for toleration in new}
    if any(identity(toleration) not in kept for toleration in old):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden_value("spec.tolerations", detail)]
    return validate_tolerations(new, "spec.tolerations")


def _only_removed_gates(new: Sequence[Json], old: Sequence[Json]) -> list[FieldError]:
    known = {gate.get("name") for gate in old}
    return [
        forbidden_value(
            f"spec.schedulingGates[{i}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name') or ''}'",
        )
        for i, gate in enumerate(new)
        if gate.get("name") not in known
    ]


def _with_old_images(new: Sequence[Json], old: Sequence[Json]) -> list[Json]:
    return [{**container, "image": before.get("image")} for container, before in zip(new, old)]


def validate_pod_spec_update(new: Json, old: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in ("containers", "initContainers"):
        found, stop = _validate_images(new.get(name) or (), old.get(name) or (), f"spec.{name}")
        errors += found
        if stop:
            return errors
    found, stop = _validate_deadline(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    errors += found
    if stop:
        return errors
    errors += _only_added_tolerations(new.get("tolerations") or (), old.get("tolerations") or ())
    errors += _only_removed_gates(new.get("schedulingGates") or (), old.get("schedulingGates") or ())
    if same_message(_SPEC, new, old):
        return errors
    munged = dict(new)
    for name in ("containers", "initContainers"):
        if new.get(name):
            munged[name] = _with_old_images(new[name], old.get(name) or ())
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        munged[name] = old.get(name)
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and munged.get("terminationGracePeriodSeconds") == 1:
        munged["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    if old.get("schedulingGates"):
        errors += _allow_placement(munged, old)
    if not same_message(_SPEC, munged, old):
        fields = ",".join(_UPDATABLE)
        detail = f"pod updates may not change fields other than {fields}\n{spec_diff(old, munged)}"
        errors.append(forbidden_value("spec", detail))
    return errors


# --- pods that are held back by scheduling gates --------------------------------------------------------------------

_POD_AFFINITIES: Final = ("podAffinity", "podAntiAffinity")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _allow_placement(munged: Json, old: Json) -> list[FieldError]:
    """Gated pods may still narrow their placement; resets mutable fields to the old value."""
    errors: list[FieldError] = []
    selector, before = munged.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    if selector != before:
        if any(selector.get(key) != value for key, value in before.items()):
            detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            errors.append(invalid_value("spec.nodeSelector", selector, detail))
        munged["nodeSelector"] = old.get("nodeSelector")
    affinity, old_affinity = munged.get("affinity") or {}, old.get("affinity") or {}
    own, old_own = affinity.get("nodeAffinity"), old_affinity.get("nodeAffinity")
    if (own is None) != (old_own is None) or not same_message("core/v1.NodeAffinity", own, old_own):
        errors += _validate_narrowing(own or {}, old_own or {})
        only_own = old.get("affinity") is None and not any(affinity.get(name) for name in _POD_AFFINITIES)
        munged["affinity"] = None if only_own else {**affinity, "nodeAffinity": old_own}
    return errors


def _as_internal(term: Json) -> Json:
    def part(name: str) -> Any:
        entries = term.get(name)
        if not entries:
            return None
        return [
            {"Key": entry.get("key", ""), "Operator": entry.get("operator", ""), "Values": entry.get("values")}
            for entry in entries
        ]

    return {"MatchExpressions": part("matchExpressions"), "MatchFields": part("matchFields")}


def _validate_narrowing(new: Json, old: Json) -> list[FieldError]:
    terms = (new.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    before = (old.get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if not before:
        return []
    if len(terms) != len(before):
        shown = list(map(_as_internal, terms)) or None
        return [invalid_value(path, shown, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")]
    return [
        invalid_value(f"{path}[{i}]", _as_internal(term), "only additions are allowed (no mutations or deletions)")
        for i, (term, was) in enumerate(zip(terms, before))
        if not _has_only_additions(term, was)
    ]


def _has_only_additions(new: Json, old: Json) -> bool:
    names = ("matchExpressions", "matchFields")
    if not any(old.get(name) for name in names):
        return not any(new.get(name) for name in names)
    return all((new.get(name) or [])[: len(old.get(name) or ())] == (old.get(name) or []) for name in names)
