"""StatefulSet: pods with stable names, volumes and order."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_claim_spec
from minikube_py.api.equality import same_message
from minikube_py.api.errors import (
    FieldError,
    Json,
    forbidden_value,
    invalid_value,
    required,
)
from minikube_py.api.gates import of_pods
from minikube_py.api.kind import NAMESPACED, Kind, status_of
from minikube_py.api.kinds.apps.common import BY_SELECTOR, READY, default_template
from minikube_py.api.kinds.workloads import (
    CONTAINER_COLUMNS,
    SCALE,
    at_most_all,
    changes,
    collisions_grow,
    container_cells,
    counts,
    int_or_percent,
    internal,
    meta_update,
    mismatch,
    number_of,
    of_new,
    readable_selector,
    runs_always,
    selector_errors,
    template_labels,
    template_warnings,
    validate_template,
)
from minikube_py.api.meta import is_dns1123_label, validate_annotations, validate_labels
from minikube_py.api.pod_warnings import claim_warnings
from minikube_py.api.printing import AGE, NAME, Age, Printer
from minikube_py.api.rules import at, defaults, non_negative, one_of, rules
from minikube_py.api.validation.claims import validate_claim_spec
from minikube_py.api.validation.metadata import validate_object_meta
from minikube_py.api.validation.pods import validate_pod_annotations

_fill_stateful_set: Final = defaults(
    {
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 10,
            "persistentVolumeClaimRetentionPolicy": {},
            "updateStrategy": {},
        }
    }
)
_MAY_CHANGE: Final = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip


def _default_stateful_set(obj: Json) -> None:
    default_template(obj)
    _fill_stateful_set(obj)
    spec = obj["spec"]
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    strategy = spec["updateStrategy"]
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        part(strategy, "rollingUpdate")
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        rolling = strategy["rollingUpdate"]
        if rolling.get("partition") is None:
            rolling["partition"] = 0
    retention = spec["persistentVolumeClaimRetentionPolicy"]
    for name in ("whenDeleted", "whenScaled"):
        if not retention.get(name):
            retention[name] = "Retain"
    for claim in spec.get("volumeClaimTemplates") or ():
        claim |= {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
        part(claim, "metadata")
        default_claim_spec(part(claim, "spec"))
        status = part(claim, "status")
        if not status.get("phase"):
            status["phase"] = "Pending"
    obj["status"].setdefault("replicas", 0)
    obj["status"].setdefault("availableReplicas", 0)


def _create_stateful_set(obj: Json) -> None:
    obj["status"] = {"replicas": 0, "availableReplicas": 0}
    obj["metadata"]["generation"] = 1
    _update_stateful_set(obj, {"spec": {}})


def _update_stateful_set(new: Json, old: Json) -> None:
    """maxUnavailable is a field of a disabled feature gate: dropped unless already set."""
    before = (old["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    if before.get("maxUnavailable") is None:
        ((new["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}).pop("maxUnavailable", None)


def _stateful_set_name(obj: Json) -> list[FieldError]:
    return validate_object_meta(obj["metadata"], True, is_dns1123_label)


def _management(value: str | None, path: str) -> list[FieldError]:
    if not value:
        return [required(path)]
    known = value in ("OrderedReady", "Parallel")
    return [] if known else [invalid_value(path, value, "must be 'OrderedReady' or 'Parallel'")]


def _stateful_strategy(obj: Json) -> list[FieldError]:
    path, strategy = "spec.updateStrategy", obj["spec"].get("updateStrategy") or {}
    kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    shown = None if rolling is None else {"Partition": rolling.get("partition") or 0}
    if shown is not None and rolling is not None:
        shown["MaxUnavailable"] = rolling.get("maxUnavailable")
    if not kind:
        return [required(path)]
    if kind == "OnDelete":
        value, detail = internal(**shown or {}), "only allowed for updateStrategy 'RollingUpdate'"
        return [] if shown is None else [invalid_value(f"{path}.rollingUpdate", value, detail)]
    if kind != "RollingUpdate":
        value = internal(Type=kind, RollingUpdate=shown)
        return [invalid_value(path, value, "must be 'RollingUpdate' or 'OnDelete'")]
    if rolling is None:
        return []
    errors = non_negative(rolling.get("partition"), f"{path}.rollingUpdate.partition")
    unavailable, at_unavailable = rolling.get("maxUnavailable"), f"{path}.rollingUpdate.maxUnavailable"
    if unavailable is None:
        return errors
    errors += int_or_percent(unavailable, at_unavailable)
    if number_of(unavailable) == 0:
        errors.append(invalid_value(at_unavailable, unavailable, "cannot be 0"))
    return errors + at_most_all(unavailable, at_unavailable)


def _claim_templates(obj: Json) -> list[FieldError]:
    return [
        error
        for i, claim in enumerate(obj["spec"].get("volumeClaimTemplates") or ())
        for error in validate_claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{i}].spec")
    ]


def _service_name(obj: Json) -> list[FieldError]:
    name = obj["spec"].get("serviceName")
    return [invalid_value("spec.serviceName", name, message) for message in is_dns1123_label(name)] if name else []


def _as_made(spec: Json) -> Json:
    """The template less what the controller overwrites: host names, and volumes that are claims."""
    template = spec.get("template") or {}
    pod = {name: value for name, value in (template.get("spec") or {}).items() if name not in ("subdomain", "hostname")}
    claims = {(claim.get("metadata") or {}).get("name") or "" for claim in spec.get("volumeClaimTemplates") or ()}
    if claims:
        own = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in sorted(claims)]
        pod["volumes"] = own + [each for each in pod.get("volumes") or () if each.get("name") not in claims]
    return {**template, "spec": pod}


def _stateful_template(obj: Json, whole: bool) -> list[FieldError]:
    spec, path = obj["spec"], "spec.template"
    errors = selector_errors(spec.get("selector"), "statefulset")
    selector, unreadable = readable_selector(spec, "")
    errors += unreadable
    if selector is not None:
        labels, template = template_labels(spec), _as_made(spec)
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        if selector and not selector.matches(labels):
            errors.append(mismatch(labels))
        if whole:
            errors += validate_template(template, path)
        errors += validate_labels(labels or {}, f"{path}.labels")
        errors += validate_annotations(annotations, f"{path}.annotations")
        errors += validate_pod_annotations(annotations, template["spec"], f"{path}.annotations")
    return errors + runs_always(spec.get("template") or {}, "StatefulSet")


_stateful_head: Final = rules(
    at("spec.podManagementPolicy", _management),
    _stateful_strategy,
    at("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", one_of("Retain", "Delete")),
    at("spec.persistentVolumeClaimRetentionPolicy.whenScaled", one_of("Retain", "Delete")),
)
_stateful_counts: Final = rules(
    at("spec.replicas", non_negative),
    at("spec.minReadySeconds", non_negative),
    at("spec.ordinals", lambda ordinals, path: non_negative((ordinals or {}).get("start"), f"{path}.start")),
)


def _stateful_set_update(new: Json, old: Json) -> list[FieldError]:
    def standing(obj: Json, whole: bool) -> list[FieldError]:
        return _stateful_head(obj) + _stateful_counts(obj) + _stateful_template(obj, whole)

    # Existing values that violate newer rules must not block every update.
    errors = meta_update(new, old) + standing(new, whole=not standing(old, whole=True))
    others = [{name: value for name, value in each["spec"].items() if name not in _MAY_CHANGE} for each in (new, old)]
    if not same_message("apps/v1.StatefulSetSpec", *others):
        listed = ", ".join(f"'{name}'" for name in _MAY_CHANGE[:-1]) + f" and '{_MAY_CHANGE[-1]}'"
        detail = f"updates to statefulset spec for fields other than {listed} are forbidden"
        errors.append(forbidden_value("spec", detail))
    return errors


_STATEFUL: Final = ("replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")


def _history_warnings(new: Json, old: Json | None) -> list[str]:
    said = _stateful_template_warnings(new, old)
    for i, claim in enumerate(new["spec"].get("volumeClaimTemplates") or ()):
        at = f"spec.volumeClaimTemplates[{i}]"
        said += claim_warnings(claim.get("spec") or {}, at if old is None else f"{at}.Spec")
    limit = new["spec"].get("revisionHistoryLimit")
    if limit is not None and limit < 0:
        what = "a negative value retains all historical revisions; a value >= 0 is recommended"
        said.append(f"spec.revisionHistoryLimit: {what}")
    return said


_stateful_template_warnings: Final = template_warnings()


def _print_stateful_set(obj: Json, age: Age) -> list[Any]:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    ready = f"{status.get('readyReplicas') or 0}/{spec.get('replicas') or 0}"
    return [metadata["name"], ready, age(metadata.get("creationTimestamp")), *container_cells(spec.get("template"))]


STATEFULSETS: Final = Kind(
    "apps", "v1", "StatefulSet", "statefulsets", "statefulset", True,
    short_names=("sts",),
    categories=("all",),
    subresources=(SCALE, status_of("StatefulSet")),
    selectable=NAMESPACED,
    generation=True,
    scale=BY_SELECTOR,
    default=_default_stateful_set,
    prepare_create=_create_stateful_set,
    prepare_update=_update_stateful_set,
    validate=rules(
        _stateful_set_name, _stateful_head, _claim_templates, _stateful_counts, _service_name,
        lambda obj: _stateful_template(obj, whole=True),
    ),
    validate_update={
        "": _stateful_set_update,
        "status": changes(
            of_new(counts((*_STATEFUL, "observedGeneration", "collisionCount"), _STATEFUL[1:], "status.readyReplicas")),
            meta_update,
            collisions_grow,
        ),
    },
    gated=of_pods("spec", "template", "spec"),
    warn=_history_warnings,
    printer=Printer((NAME, READY, AGE, *CONTAINER_COLUMNS), _print_stateful_set),
)  # fmt: skip
