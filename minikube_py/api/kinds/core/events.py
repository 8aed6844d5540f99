"""Event: what happened to an object, kept for an hour."""

from __future__ import annotations

from typing import Any, Final

from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, invalid_value, required
from minikube_py.api.kind import NAMESPACED, Kind, Selectable
from minikube_py.api.meta import is_dns1123_subdomain, is_qualified_name
from minikube_py.api.printing import NAME, Age, Printer, column

TTL_S: Final = 3600


def _default_event(obj: Json) -> None:
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(name, None)
    part(obj, "source")
    part(obj, "involvedObject")
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")


_EVENT_LIMITS: Final = (("reportingInstance", 128), ("action", 128), ("reason", 128))
_NOTE_LIMIT: Final = 1024


def validate_event(event: Json, reporting: str = "reportingComponent") -> list[FieldError]:
    """`reporting`: that field's name in the sent version."""
    errors: list[FieldError] = []
    namespace = event["metadata"].get("namespace") or ""
    involved = (event.get("involvedObject") or {}).get("namespace") or ""
    mismatch = invalid_value("involvedObject.namespace", involved, "does not match event.namespace")
    if not event.get("eventTime"):
        if (involved and namespace != involved) or (not involved and namespace not in ("", "default")):
            errors.append(mismatch)
    else:
        if not involved and namespace not in ("default", "kube-system"):
            errors.append(mismatch)
        component = event.get("reportingComponent") or ""
        if not component:
            errors.append(required(reporting))
        errors += [invalid_value(reporting, component, message) for message in is_qualified_name(component)]
        for name, limit in _EVENT_LIMITS:
            text = event.get(name) or ""
            if not text:
                errors.append(required(name))
            if len(text.encode()) > limit:
                errors.append(invalid_value(name, "", f"can have at most {limit} characters"))
        if len((event.get("message") or "").encode()) > _NOTE_LIMIT:
            errors.append(invalid_value("message", "", f"can have at most {_NOTE_LIMIT} characters"))
    errors += [invalid_value("namespace", namespace, message) for message in is_dns1123_subdomain(namespace)]
    return errors


def print_event(event: Json, age: Age) -> list[Any]:
    get = event.get
    first = age(get("firstTimestamp") or get("eventTime"))
    last = age(get("lastTimestamp")) if get("lastTimestamp") else first
    count = get("count") or 1
    if (series := get("series")) is not None:
        last, count = age(series.get("lastObservedTime")), series.get("count") or 0
    target, source = get("involvedObject") or {}, get("source") or {}
    kind, name = (target.get("kind") or "").lower(), target.get("name")
    component = source.get("component") or get("reportingComponent") or ""
    instance = source.get("host") or get("reportingInstance") or ""
    return [
        last,
        get("type") or "",
        get("reason") or "",
        f"{kind}/{name}" if name else kind,
        target.get("fieldPath") or "",
        f"{component}, {instance}" if instance else component,
        (get("message") or "").strip(),
        first,
        count,
        event["metadata"]["name"],
    ]


def _involved(name: str) -> Selectable:
    return Selectable(("involvedObject", name))


EVENTS: Final = Kind(
    "", "v1", "Event", "events", "event", True,
    short_names=("ev",),
    selectable={
        **NAMESPACED,
        "involvedObject.kind": _involved("kind"),
        "involvedObject.namespace": _involved("namespace"),
        "involvedObject.name": _involved("name"),
        "involvedObject.uid": _involved("uid"),
        "involvedObject.apiVersion": _involved("apiVersion"),
        "involvedObject.resourceVersion": _involved("resourceVersion"),
        "involvedObject.fieldPath": _involved("fieldPath"),
        "reason": Selectable(("reason",)),
        "reportingComponent": Selectable(("reportingComponent",)),
        "source": Selectable(("source", "component"), "", ("reportingComponent",)),
        "type": Selectable(("type",)),
    },
    allow_create_on_update=True,
    ttl_s=TTL_S,
    has_dependents=False,
    default=_default_event,
    validate=validate_event,
    checks_metadata=False,
    validate_update={"": lambda new, old: validate_event(new)},
    printer=Printer(
        (
            column("Last Seen", "Time since it last happened."),
            column("Type", "Normal or Warning."),
            column("Reason", "Why it happened, in one word."),
            column("Object", "What it happened to."),
            column("Subobject", "Which part of the object.", 1),
            column("Source", "Who reported it.", 1),
            column("Message", "What happened."),
            column("First Seen", "Time since it first happened.", 1),
            column("Count", "How often it happened.", 1),
            NAME._replace(priority=1),
        ),
        print_event,
    ),
)  # fmt: skip
