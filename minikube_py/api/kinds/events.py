"""The group `events.k8s.io`: the newer form of events, stored as core events.

Source: `pkg/apis/events/v1/conversion.go`, `pkg/apis/core/validation/events.go`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import orjson

from minikube_py.api import go_json, meta
from minikube_py.api.defaulting import part
from minikube_py.api.errors import FieldError, Json, invalid_value, required
from minikube_py.api.kind import NAMESPACED, Conversion, Kind, Selectable
from minikube_py.api.kinds.core.events import EVENTS, TTL_S, print_event, validate_event
from minikube_py.api.meta import FIELD_IS_IMMUTABLE, is_dns1123_subdomain
from minikube_py.api.printing import Age
from minikube_py.api.validation.pod_diff import internal

_TO_CORE: Final = {
    "regarding": "involvedObject", "note": "message", "deprecatedSource": "source", "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp",
    "reportingController": "reportingComponent",
}  # fmt: skip
_FROM_CORE: Final = {core: own for own, core in _TO_CORE.items()}
_SET: Final = ("reportingComponent", "reportingInstance")
"""Fields that the core group writes even if empty, unlike this one."""


def _default(event: Json) -> None:
    for name in ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"):
        event.setdefault(name, None)
    part(event, "regarding")
    part(event, "deprecatedSource")
    _fill_series(event)


def _fill_series(event: Json) -> None:
    if (series := event.get("series")) is not None:
        series.setdefault("count", 0)
        series.setdefault("lastObservedTime", None)


def _renamed(event: Json, names: dict[str, str]) -> None:
    for before, name in names.items():
        if before in event:
            event[name] = event.pop(before)


def _to_core(event: Json) -> None:
    _renamed(event, _TO_CORE)
    for name in _SET:
        event.setdefault(name, "")
    if (series := event.get("series")) is not None and not series.get("count"):
        series.pop("count", None)


def _read(value: bytes) -> bytes:
    event = orjson.loads(value)
    for name in _SET:
        if not event.get(name):
            event.pop(name, None)
    _renamed(event, _FROM_CORE)
    _fill_series(event)
    return go_json.dumps(event)


# --- rules ----------------------------------------------------------------------------------------------------------


def _validate_series(event: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    if (series := event.get("series")) is not None:
        if (series.get("count") or 0) < 2:
            errors.append(invalid_value("series.count", "", "should be at least 2"))
        if not series.get("lastObservedTime"):
            errors.append(required("series.lastObservedTime"))
    return errors


def _validate(event: Json) -> list[FieldError]:
    errors = validate_event(event, "reportingController")
    errors += meta.validate_object_meta(event["metadata"], True, is_dns1123_subdomain) + _validate_series(event)
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    if (type_ := event.get("type") or "") not in ("Normal", "Warning"):
        errors.append(invalid_value("type", "", f"has invalid value: {type_}"))
    for name in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(name):
            errors.append(invalid_value(name, "", "needs to be unset"))
    return errors


_FIXED: Final = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "reason", "type",
    "eventTime", "action", "related", "reportingController", "reportingInstance",
)  # fmt: skip
_STRUCTS: Final = {"involvedObject": "ObjectReference", "related": "ObjectReference", "source": "EventSource"}
_MISSING: Final[Json] = {
    "related": None, "count": 0, "firstTimestamp": None, "lastTimestamp": None, "eventTime": None,
}  # fmt: skip
"""Text that errors show instead of the value, or ""."""


def _validate_update(new: Json, old: Json) -> list[FieldError]:
    errors = validate_event(new, "reportingController")
    errors += meta.validate_object_meta_update(new["metadata"], old["metadata"])
    if new.get("series") != old.get("series"):
        errors += _validate_series(new)
    for name in _FIXED:
        held, missing = _TO_CORE.get(name, name), _MISSING.get(name, "")
        value, before = (each.get(held, missing) for each in (new, old))
        if value != before:
            told = internal(value, _STRUCTS[name]) if isinstance(value, dict) else value
            errors.append(invalid_value(name, told, FIELD_IS_IMMUTABLE))
    return errors


# --- the kind -------------------------------------------------------------------------------------------------------


def _print(event: Json, age: Age) -> list[Any]:
    _to_core(event)
    return print_event(event, age)


def _regarding(name: str) -> Selectable:
    return Selectable(("regarding", name))


_STORED: Final = replace(EVENTS, validate=_validate, validate_update={"": _validate_update}, checks_metadata=True)
"""Core events validated by this group's rules."""

EVENTS_V1: Final = Kind(
    "events.k8s.io", "v1", "Event", "events", "event", True,
    short_names=("ev",),
    selectable={
        **NAMESPACED,
        **{f"regarding.{name}": _regarding(name) for name in (
            "kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath",
        )},
        "reason": Selectable(("reason",)),
        "reportingController": Selectable(("reportingController",)),
        "type": Selectable(("type",)),
    },
    allow_create_on_update=True,
    ttl_s=TTL_S,
    has_dependents=False,
    default=_default,
    converts=Conversion(_STORED, _to_core),
    read=_read,
    printer=EVENTS.printer._replace(cells=_print),
)  # fmt: skip

KINDS: Final[tuple[Kind, ...]] = (EVENTS_V1,)
