"""Shared by kinds with a pod template: rules of templates, selectors and counts, warnings, columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from minikube_py.api.equality import same
from minikube_py.api.errors import (
    FieldError,
    Json,
    Verbatim,
    forbidden_value,
    go_json,
    invalid_value,
    not_supported,
    required,
)
from minikube_py.api.kind import STATUS_VERBS, Subresource, ValidateUpdate, Warn
from minikube_py.api.label_selectors import InvalidSelector, selector_of
from minikube_py.api.meta import (
    FIELD_IS_IMMUTABLE,
    begins_with,
    is_dns1123_subdomain,
    regex_message,
    validate_annotations,
    validate_labels,
)
from minikube_py.api.pod_warnings import name_warnings, pod_warnings
from minikube_py.api.printing import AGE, NAME, Age, Printer, column
from minikube_py.api.rules import Rule
from minikube_py.api.schema import SCHEMA
from minikube_py.api.selectors import LabelSelector
from minikube_py.api.validation.affinity import validate_label_selector
from minikube_py.api.validation.metadata import validate_object_meta, validate_object_meta_update
from minikube_py.api.validation.pods import validate_pod_annotations, validate_pod_spec
from minikube_py.api.validation.profiles import validate_fields_match
from minikube_py.api.validation.resources import NEGATIVE
from minikube_py.fields.digits import whole_number

SCALE: Final = Subresource("scale", "Scale", STATUS_VERBS, "autoscaling", "v1")
UNMATCHED: Final = "`selector` does not match template `labels`"


drop_status: Final = begins_with()


# --- metadata ---------------------------------------------------------------------------------------------------------


def subdomain_meta(obj: Json) -> list[FieldError]:
    """Of kinds whose names are DNS subdomains."""
    return validate_object_meta(obj["metadata"], True, is_dns1123_subdomain)


def changes(*parts: ValidateUpdate) -> ValidateUpdate:
    """All of `parts`, in their order."""
    return lambda new, old: [error for part in parts for error in part(new, old)]


def of_new(rule: Rule) -> ValidateUpdate:
    """Updates obey the rules of creates."""
    return lambda new, old: list(rule(new))


def meta_update(new: Json, old: Json) -> list[FieldError]:
    return validate_object_meta_update(new["metadata"], old["metadata"])


# --- templates and selectors ------------------------------------------------------------------------------------------


def validate_template(template: Json, path: str) -> list[FieldError]:
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    errors = validate_labels(metadata.get("labels") or {}, f"{path}.labels")
    errors += validate_annotations(annotations, f"{path}.annotations")
    errors += validate_pod_annotations(annotations, spec, f"{path}.annotations")
    errors += validate_pod_spec(spec, f"{path}.spec", is_pod=False)
    if annotations:
        errors += validate_fields_match(annotations, spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        where = f"{path}.spec.ephemeralContainers"
        errors += [
            required(f"{where}[{i}].{name}")
            for i, each in enumerate(spec["ephemeralContainers"])
            for name in ("name", "image")
            if not each.get(name)
        ]
        detail = "ephemeral containers not allowed in pod template"
        errors.append(forbidden_value(where, detail))
    return errors


def runs_always(template: Json, kind: str) -> list[FieldError]:
    """Pods of `kind` are restarted forever."""
    pod, errors = template.get("spec") or {}, []
    if pod.get("restartPolicy") != "Always":
        policy = pod.get("restartPolicy") or ""
        errors.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        errors.append(forbidden_value("spec.template.spec.activeDeadlineSeconds", detail))
    return errors


def mismatch(labels: Json | None) -> FieldError:
    shown = dict(sorted(labels.items())) if labels else None
    return invalid_value("spec.template.metadata.labels", shown, UNMATCHED)


def shown_selector(selector: Json | None) -> Json | None:
    """As Go prints it: members in their order, empty ones left out."""
    if selector is None:
        return None
    labels, expressions = selector.get("matchLabels"), selector.get("matchExpressions")
    shown: Json = {"matchLabels": dict(sorted(labels.items()))} if labels else {}
    if expressions:
        shown["matchExpressions"] = [
            {"key": each.get("key") or "", "operator": each.get("operator") or ""}
            | ({"values": each["values"]} if each.get("values") else {})
            for each in expressions
        ]
    return shown


def selector_stays(new: Json, old: Json) -> list[FieldError]:
    selector, before = ((each.get("spec") or {}).get("selector") for each in (new, old))
    if same(SCHEMA.type("*meta/v1.LabelSelector"), selector, before):
        return []
    return [invalid_value("spec.selector", shown_selector(selector), FIELD_IS_IMMUTABLE)]


def template_labels(spec: Json) -> Json | None:
    labels: Json | None = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    return labels


def selector_errors(selector: Json | None, of: str) -> list[FieldError]:
    """`spec.selector` is present, valid and not empty."""
    if selector is None:
        return [required("spec.selector")]
    return validate_label_selector(selector, "spec.selector") + empty_selector(selector, of)


def empty_selector(selector: Json | None, of: str) -> list[FieldError]:
    if selector is None or selector.get("matchLabels") or selector.get("matchExpressions"):
        return []
    return [invalid_value("spec.selector", {}, f"empty selector is invalid for {of}")]


def readable_selector(spec: Json, detail: str) -> tuple[LabelSelector | None, list[FieldError]]:
    selector = spec.get("selector")
    try:
        return selector_of(selector), []
    except InvalidSelector:
        return None, [invalid_value("spec.selector", shown_selector(selector), detail)]


def selects_its_template(obj: Json) -> list[FieldError]:
    """The selector and template of ReplicaSets and Deployments."""
    spec = obj.get("spec") or {}
    errors = selector_errors(spec.get("selector"), "deployment")
    selector, unreadable = readable_selector(spec, "invalid label selector")
    if selector is None:
        return errors + unreadable
    labels, template = template_labels(spec), spec.get("template") or {}
    if selector and not selector.matches(labels):
        errors.append(mismatch(labels))
    return errors + validate_template(template, "spec.template") + runs_always(template, "ReplicaSet")


# --- counts -----------------------------------------------------------------------------------------------------------


def counts(names: Sequence[str], most: Iterable[str] = (), ready: str = "") -> Rule:
    """`names` of the status are not negative, `most` not above `replicas`, and what is available is ready.

    `ready` names the ready ones in the text; "": not looked at."""

    def rule(obj: Json) -> list[FieldError]:
        status = obj.get("status") or {}
        count = {name: status.get(name) or 0 for name in ("replicas", *names, *most)}
        errors = [invalid_value(f"status.{name}", count[name], NEGATIVE) for name in names if count[name] < 0]
        errors += [
            invalid_value(f"status.{name}", count[name], "cannot be greater than status.replicas")
            for name in most
            if count[name] > count["replicas"]
        ]
        if ready and count["availableReplicas"] > count["readyReplicas"]:
            given = count["availableReplicas"]
            errors.append(invalid_value("status.availableReplicas", given, f"cannot be greater than {ready}"))
        return errors

    return rule


def collisions_grow(new: Json, old: Json) -> list[FieldError]:
    count, before = ((each.get("status") or {}).get("collisionCount") for each in (new, old))
    if before is None or (count is not None and count >= before):
        return []
    return [invalid_value("status.collisionCount", count or 0, "cannot be decremented")]


# --- numbers or percentages -------------------------------------------------------------------------------------------

_PERCENT: Final = "a valid percent string must be a numeric string followed by an ending '%'"
_SHOWN: Final = "[0-9]+%"


def percent_of(value: Any) -> int | None:
    """The number of a percentage; None if invalid."""
    if not isinstance(value, str) or not value.endswith("%"):
        return None
    digits = value[:-1]
    return whole_number(digits) if digits.isascii() and digits.isdigit() else None


def number_of(value: Any) -> int:
    """The number, also of a percentage; for other text its digits, or 0."""
    if isinstance(value, int):
        return value
    found = percent_of(value)
    if found is not None:
        return min(found, (1 << 63) - 1)
    text = str(value or "")
    digits = text[1:] if text[:1] in ("+", "-") else text
    return whole_number(text) if digits.isascii() and digits.isdigit() else 0


def int_or_percent(value: Any, path: str) -> list[FieldError]:
    if isinstance(value, str):
        message = regex_message(_PERCENT, _SHOWN, "1%", "93%")
        return [] if percent_of(value) is not None else [invalid_value(path, value, message)]
    return [invalid_value(path, value, NEGATIVE)] if (value or 0) < 0 else []


def at_most_all(value: Any, path: str) -> list[FieldError]:
    percent = percent_of(value)
    wrong = percent is not None and percent > 100
    return [invalid_value(path, value, "must not be greater than 100%")] if wrong else []


def internal(**fields: Any) -> Verbatim:
    """A value that upstream prints in its internal layout, by Go's names."""
    return Verbatim(go_json(fields))


# --- warnings and columns ---------------------------------------------------------------------------------------------


def generation_rose(new: Json, old: Json) -> bool:
    return bool(new["metadata"].get("generation") != old["metadata"].get("generation"))


def template_warnings(
    named: bool = False, path: str = "spec.template.", changed: Callable[[Json, Json], bool] = generation_rose
) -> Warn:
    """Warnings for a new or changed template; `named`: also for names that are invalid host names."""

    def warn(new: Json, old: Json | None) -> list[str]:
        metadata = new["metadata"]
        own: list[str] = []
        if old is None:
            if named:
                own = name_warnings(metadata.get("name") or "", "this is used in Pod names and hostnames")
        elif not changed(new, old):
            return []
        holder = new if path == "template." else new.get("spec") or {}
        template = holder.get("template")
        if template is None:
            return own
        return own + pod_warnings(template.get("metadata") or {}, template.get("spec") or {}, path)

    return warn


CONTAINER_COLUMNS: Final = (
    column("Containers", "Names of the template's containers.", 1),
    column("Images", "Images of the template's containers.", 1),
)
SELECTOR_COLUMN: Final = column("Selector", "Labels of its pods.", 1)
REPLICA_COLUMNS: Final = (
    column("Desired", "Replicas asked for.", 0, "integer"),
    column("Current", "Replicas there are.", 0, "integer"),
    column("Ready", "Replicas that are ready.", 0, "integer"),
    AGE,
    *CONTAINER_COLUMNS,
    SELECTOR_COLUMN,
)


def container_cells(template: Json | None) -> list[str]:
    """Names and images."""
    containers = ((template or {}).get("spec") or {}).get("containers") or ()
    return [",".join(container.get(name) or "" for container in containers) for name in ("name", "image")]


def replicas_printer(text: Callable[[Json | None], str]) -> Printer:
    """Of controllers of equal pods; `text` shows their selector."""

    def row(obj: Json, age: Age) -> list[Any]:
        metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        counts = spec.get("replicas"), status.get("replicas"), status.get("readyReplicas")
        rest = *container_cells(spec.get("template")), text(spec.get("selector"))
        return [metadata["name"], *(n or 0 for n in counts), age(metadata.get("creationTimestamp")), *rest]

    return Printer((NAME, *REPLICA_COLUMNS), row)
