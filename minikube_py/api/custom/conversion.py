"""Conversion of custom resources: the version of stored objects, webhook requests and responses.

Pure. A stored object ends with the version it was written in (upstream's begin with it). One without has the first of
`status.storedVersions`. Without a webhook, versions share their fields: what one of them lacks is pruned on the way.

Source: apiextensions-apiserver `pkg/apiserver/conversion/webhook_converter.go`, `customresource_handler.go`
(schemaCoercingConverter).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api import go_numbers, meta
from minikube_py.api.apply.managed_fields import told_kind
from minikube_py.api.custom.codec import CustomCodec
from minikube_py.api.custom.structural import structural
from minikube_py.api.decode import Named, decode_value, target
from minikube_py.api.errors import FieldError, Json, go_quote
from minikube_py.api.go_json import dumps
from minikube_py.api.typed import DecodeError
from minikube_py.api.values import json_type

GROUP: Final = "apiextensions.k8s.io"
REVIEW: Final = "ConversionReview"
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_META_FIELDS: Final = ("labels", "annotations")


class ConversionWebhook(NamedTuple):
    """`stored`: the apiVersion that objects are stored in; `assumed`: that of objects without one. `client` is the
    definition's clientConfig, `reviews` the review versions that the webhook accepts."""

    name: str
    kind: str
    stored: str
    assumed: str
    client: Json
    reviews: tuple[str, ...]


def webhook_of(content: Json) -> ConversionWebhook | None:
    """From a `served_form`."""
    spec = content["spec"]
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    webhook = conversion["webhook"]
    name = f"{spec['names']['plural']}.{spec['group']}"
    return ConversionWebhook(
        name, content["names"]["kind"], *_stored_versions(content),
        webhook.get("clientConfig") or {}, tuple(webhook.get("conversionReviewVersions") or ()),
    )  # fmt: skip


def _stored_versions(content: Json) -> tuple[str, str]:
    """The apiVersion that objects are stored in, and that of stored objects that do not tell theirs."""
    group, versions = content["spec"]["group"], content["spec"]["versions"]
    stored = next((each for each in versions if each.get("storage")), versions[0])["name"]
    return f"{group}/{stored}", f"{group}/{content['first'] or stored}"


# --- in the store -----------------------------------------------------------------------------------------------------


def with_version(value: bytes, version: str) -> bytes:
    """The form in which the store holds an object of `version`."""
    return b'%b,"apiVersion":"%b"}' % (value[:-1], version.encode())


def split(assumed: str, value: bytes) -> tuple[str, bytes]:
    """The version of a stored value (`assumed` where it has none), and the value without it."""
    head, found, tail = value.rpartition(b',"apiVersion":"')
    if found and tail.endswith(b'"}') and tail.count(b'"') == 1:
        return tail[:-2].decode(), head + b"}"
    if b'"apiVersion"' not in value:
        return assumed, value
    obj = orjson.loads(value)
    version = obj.pop("apiVersion", None) or assumed
    return version, orjson.dumps({"metadata": obj.pop("metadata"), **obj})


class SharedFields:
    """Strategy `None`: how objects of one version are written in the stored one, and read back."""

    def __init__(self, definition: bytes, own: str) -> None:
        """`definition`: a `served_form`."""
        content = orjson.loads(definition)
        group, versions = content["spec"]["group"], content["spec"]["versions"]
        self._own = own
        self._stored, self._assumed = _stored_versions(content)
        self._codecs = {name: _codec(definition, name) for name in (f"{group}/{each['name']}" for each in versions)}

    def write(self, value: bytes) -> bytes:
        """The stored form of an object, pruned by the stored version."""
        value = split(self._own, value)[1]
        if self._own != self._stored:
            value = self._codecs[self._stored].read(value, defaults=False)
        return value if self._stored == self._assumed else with_version(value, self._stored)

    def read(self, value: bytes) -> bytes:
        """A stored value, with the defaults of the version that it was written in, as upstream reads it."""
        version, value = split(self._assumed, value)
        own = self._codecs[self._own]
        if version == self._own or version not in self._codecs:
            return own.read(value)
        return own.read(self._codecs[version].read(value), defaults=False)


# --- reviews ----------------------------------------------------------------------------------------------------------


def review(
    webhook: ConversionWebhook, version: str, uid: str, wanted: str, objects: Sequence[tuple[str, bytes]]
) -> bytes:
    """The webhook's request to convert `objects` (version, value) to another version. `version` is the review's."""
    head = b'{"kind":"%b","apiVersion":"%b/%b","request":{"uid":"%b","desiredAPIVersion":"%b","objects":[' % tuple(
        each.encode() for each in (REVIEW, GROUP, version, uid, wanted)
    )
    opening = b'{"kind":"%b","apiVersion":"%b",%b'
    shown = (opening % (webhook.kind.encode(), of.encode(), value[1:]) for of, value in objects)
    return b"%b%b]}}" % (head, b",".join(shown))


class BadConversion(Exception):
    """Why the response is invalid, in upstream's words."""


def results(answer: Json, version: str, uid: str) -> list[Any]:
    """The converted objects of a response. Raises: BadConversion."""
    said = told_kind(answer)
    try:
        found = decode_value(target(GROUP, "v1", REVIEW), {**answer, "apiVersion": f"{GROUP}/v1"}, False)[0]
    except DecodeError as error:
        raise BadConversion(str(error)) from None
    wanted = f"{GROUP}/v1, Kind={REVIEW}"
    if version == "v1" and said != wanted:
        raise BadConversion(f"expected webhook response of {wanted}, got {said}")
    response = found.get("response")
    if response is None:
        raise BadConversion("no response provided")
    given = response.get("uid") or ""
    if version == "v1" and given != uid:
        raise BadConversion(f"expected response.uid={go_quote(uid)}, got {go_quote(given)}")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        told = f"response.result.status was '{result.get('status') or ''}', not 'Success'"
        raise BadConversion(result.get("message") or told)
    return response.get("convertedObjects") or []


def as_read(definition: bytes, version: str, value: bytes) -> bytes:
    """A stored value in a version, pruned and with defaults; non-objects are unchanged."""
    try:
        return _codec(definition, version).read(value)
    except (ValueError, TypeError, AttributeError, LookupError):
        return value


def taken(definition: bytes, wanted: str, kind: str, original: Json, found: Any, prunes: bool) -> bytes:
    """The webhook's result for `original`, pruned if its version `prunes`, without defaults, as stored bytes without
    the version. Raises: BadConversion."""
    if found is None:
        raise BadConversion("unexpected end of JSON input")
    if not isinstance(found, dict) or not found.get("kind"):
        raise BadConversion(f"failed: Object 'Kind' is missing in '{dumps(found).decode()}'")
    for what, expected, got in (
        ("groupVersion", wanted, found.get("apiVersion") or ""), ("kind", kind, found["kind"]),
    ):  # fmt: skip
        if expected != got:
            why = f"invalid {what} (expected {expected}, received {got})"
            raise BadConversion(f"returned invalid object at index 0: {why}")
    go_numbers.read(found)
    before, after = original["metadata"], found.get("metadata")
    same = after if isinstance(after, dict) else {}
    for name, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if (before.get(name) or "") != (same.get(name) or ""):
            why = f"must have the same {shown}: {before.get(name) or ''} != {same.get(name) or ''}"
            raise BadConversion(f"returned invalid object: {why}")
    if wrong := _restore(before, found):
        raise BadConversion(f"returned invalid metadata: {wrong}")
    found = {name: value for name, value in found.items() if name not in ("kind", "apiVersion")}
    value = dumps({"metadata": found.pop("metadata"), **found})
    return _codec(definition, wanted).read(value, defaults=False) if prunes else value


def _restore(before: Json, found: Json) -> str:
    """Keeps the sent metadata except labels and annotations. Returns errors in those."""
    if "metadata" not in found:
        return "missing metadata in converted object"
    given = found["metadata"]
    if not isinstance(given, dict):
        return f"invalid metadata of type {_go_type(given)} in converted object"
    kept = found["metadata"] = dict(before)
    for name in _META_FIELDS:
        new = given.get(name)
        if new is None:
            kept.pop(name, None)
            continue
        if not isinstance(new, dict):
            return f"invalid metadata.{name} of type {_go_type(new)} in converted object"
        for key, value in new.items():
            if not isinstance(value, str):
                return f"metadata.{name}[{key}] must be a string, but is {_go_type(value)} in converted object"
        if new != (before.get(name) or {}) and (errors := _field_errors(name, new)):
            told = [str(each) for each in errors]
            return told[0] if len(told) == 1 else f"[{', '.join(told)}]"
        kept[name] = new
    return ""


def _field_errors(name: str, values: Json) -> list[FieldError]:
    if name == "labels":
        return meta.validate_labels(values, "metadata.labels")
    return meta.validate_annotations(values, "metadata.annotation")


def _go_type(value: Any) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, list):
        return "[]interface {}"
    number = "int64" if isinstance(value, int) else "float64"
    told = json_type(value)
    return {"object": "map[string]interface {}", "number": number}.get(told, told)


@lru_cache(64)
def _codec(definition: bytes, version: str) -> CustomCodec:
    content = orjson.loads(definition)
    spec, names = content["spec"], content["names"]
    name = version.rpartition("/")[2]
    schema = next((each.get("schema") or {} for each in spec["versions"] if each["name"] == name), {})
    named = Named(spec["group"], name, names["kind"])
    return CustomCodec(named, names["plural"], structural(schema.get("openAPIV3Schema") or {}))
