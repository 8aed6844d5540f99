"""A bookmark's object beside its metadata: the kind's zero value, as Go encodes it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from minikube_py.api.decode import target_of
from minikube_py.api.errors import Json
from minikube_py.api.kind import Kind
from minikube_py.api.schema import SCHEMA, Message, Type
from minikube_py.api.typed import zero

_NO_REPLICAS: Final = {"spec": {"replicas": 0}}
_CONVERTED: Final[dict[tuple[str, str], Json]] = {
    ("apps", "Deployment"): _NO_REPLICAS,
    ("apps", "ReplicaSet"): _NO_REPLICAS,
    ("apps", "StatefulSet"): _NO_REPLICAS,
    ("apps", "DaemonSet"): {"metadata": {"annotations": {"deprecated.daemonset.template.generation": "0"}}},
}
"""Fields that upstream's conversion from internal types always sets."""


def bookmark_object(kind: Kind, metadata: Json) -> Json:
    """The object of a bookmark with this metadata."""
    body, annotations = _zero(kind)
    if annotations:
        metadata = {**metadata, "annotations": {**annotations, **metadata.get("annotations", {})}}
    return {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata, **body}


@lru_cache(256)
def _zero(kind: Kind) -> tuple[Json, Json]:
    if kind.codec is not None:
        return {}, {}
    body = _printed(target_of(kind, None).message)
    body.pop("metadata", None)
    converted = _CONVERTED.get((kind.group, kind.kind), {})
    for name, members in converted.items():
        if name != "metadata":
            body[name] = {**members, **body[name]}
    return body, converted.get("metadata", {}).get("annotations", {})


def _printed(message: Message) -> Json:
    return {
        field.name: _value(field.type)
        for field in message.fields.values()
        if field.name not in ("kind", "apiVersion") and not _left_out(field.left_out_when_zero, field.type)
    }


def _left_out(when_zero: bool, type: Type) -> bool:
    """Go omits no struct unless it is behind a pointer."""
    return when_zero and (type.pointer or type.kind != "message")


def _value(type: Type) -> Any:
    if type.kind == "message" and not type.pointer:
        return _printed(SCHEMA.message(type.message))
    return zero(type)
