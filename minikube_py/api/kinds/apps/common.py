"""Shared by the group's kinds, beyond `kinds.workloads`."""

from __future__ import annotations

from typing import Final

from minikube_py.api.defaulting import part
from minikube_py.api.defaults_pod import default_pod_spec
from minikube_py.api.errors import (
    Json,
    bad_request,
    go_quote,
)
from minikube_py.api.kind import ScalePaths
from minikube_py.api.label_selectors import selector_text
from minikube_py.api.printing import column
from minikube_py.api.values import INT64_MAX, INT64_MIN

ROLLBACK_TO: Final = "deprecated.deployment.rollback.to"
BY_SELECTOR: Final = ScalePaths(selector=lambda obj: selector_text(obj["spec"].get("selector"), "", ""))


def default_template(obj: Json) -> None:
    template = part(part(obj, "spec"), "template")
    part(template, "metadata")
    default_pod_spec(part(template, "spec"))
    part(obj, "status")


def number_in_annotation(obj: Json, name: str) -> None:
    """An annotation for a number of the internal type, normalized to Go's format."""
    annotations = obj["metadata"].get("annotations") or {}
    text = annotations.get(name)
    if text is None:
        return
    digits = text[1:] if text[:1] in ("-", "+") else text
    syntax = digits.isascii() and digits.isdigit()
    number = int(text) if syntax and len(digits) < 1000 else INT64_MAX + 1
    if not INT64_MIN <= number <= INT64_MAX:
        kind, why = obj.get("kind") or "", "value out of range" if syntax else "invalid syntax"
        parsed = f"strconv.ParseInt: parsing {go_quote(text)}: {why}"
        if name == ROLLBACK_TO:
            parsed = f"failed to parse annotation[{name}]={text} as int64: {parsed}"
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {parsed}')
    annotations[name] = str(number)


READY: Final = column("Ready", "Pods that are ready, of those asked for.")


def shown_rolling(rolling: Json | None) -> Json | None:
    """A rolling update of Deployments and DaemonSets as upstream prints it."""
    if rolling is None:
        return None
    return {"MaxUnavailable": rolling.get("maxUnavailable") or 0, "MaxSurge": rolling.get("maxSurge") or 0}
