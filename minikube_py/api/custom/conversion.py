"""Conversion of custom resources by a webhook: in which version each object is stored, what the webhook is sent, and
what its answer says. Pure.

A stored object of such a definition ends with the version that it was written in, as upstream's begin with it. One
without was written before there was a webhook: it counts as of the first of `status.storedVersions`.

Source: apiextensions-apiserver `pkg/apiserver/conversion/webhook_converter.go`.
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
    """`stored`: the apiVersion that objects are stored in; `assumed`: that of those which do not say it. `client` is
    the definition's clientConfig, `reviews` the versions of reviews that the webhook takes."""

    name: str
    kind: str
    stored: str
    assumed: str
    client: Json
    reviews: tuple[str, ...]


def webhook_of(content: Json) -> ConversionWebhook | None:
    """Of a `served_form`."""
    spec = content["spec"]
    conversion = spec.get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return None
    group, webhook = spec["group"], conversion["webhook"]
    stored = next(each["name"] for each in spec["versions"] if each.get("storage"))
    name = f"{spec['names']['plural']}.{group}"
    return ConversionWebhook(
        name, content["names"]["kind"], f"{group}/{stored}", f"{group}/{content['first']}",
        webhook.get("clientConfig") or {}, tuple(webhook.get("conversionReviewVersions") or ()),
    )  # fmt: skip


# --- in the store -----------------------------------------------------------------------------------------------------


def with_version(value: bytes, version: str) -> bytes:
    """The form in which the store holds an object of `version`."""
    return b'%b,"apiVersion":"%b"}' % (value[:-1], version.encode())


def split(webhook: ConversionWebhook, value: bytes) -> tuple[str, bytes]:
    """The version of a stored value, and the value without it."""
    head, found, tail = value.rpartition(b',"apiVersion":"')
    if found and tail.endswith(b'"}') and tail.count(b'"') == 1:
        return tail[:-2].decode(), head + b"}"
    if b'"apiVersion"' not in value:
        return webhook.assumed, value
    obj = orjson.loads(value)
    version = obj.pop("apiVersion", None) or webhook.assumed
    return version, orjson.dumps({"metadata": obj.pop("metadata"), **obj})


# --- reviews ----------------------------------------------------------------------------------------------------------


def review(
    webhook: ConversionWebhook, version: str, uid: str, wanted: str, objects: Sequence[tuple[str, bytes]]
) -> bytes:
    """What the webhook is sent: the `objects` (version, value) are wanted in another. `version` is the review's."""
    head = b'{"kind":"%b","apiVersion":"%b/%b","request":{"uid":"%b","desiredAPIVersion":"%b","objects":[' % tuple(
        each.encode() for each in (REVIEW, GROUP, version, uid, wanted)
    )
    opening = b'{"kind":"%b","apiVersion":"%b",%b'
    shown = (opening % (webhook.kind.encode(), of.encode(), value[1:]) for of, value in objects)
    return b"%b%b]}}" % (head, b",".join(shown))


class BadConversion(Exception):
    """Why the answer is none, in upstream's words."""


def results(answer: Json, version: str, uid: str) -> list[Any]:
    """The converted objects of an answer. Raises: BadConversion."""
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
    """What the store holds in a version, pruned and with its defaults; what is no object stays as it is."""
    try:
        return _codec(definition, version).read(value)
    except (ValueError, TypeError, AttributeError, LookupError):
        return value


def taken(definition: bytes, wanted: str, kind: str, original: Json, found: Any, prunes: bool) -> bytes:
    """The object that the webhook made of `original`, pruned by its version's schema where it `prunes`, without its
    defaults, as the store's bytes without the version. Raises: BadConversion."""
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
    """The metadata are those that were sent, but for labels and annotations. Gives what is wrong with those."""
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
