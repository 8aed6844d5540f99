"""Decodes and verifies webhook responses and applies their patches; in a worker process if large.

Source: apiserver `pkg/admission/plugin/webhook/{request,mutating}`; client-go `rest/request.go`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from minikube_py.api import json_patch, json_text, yaml_text
from minikube_py.api.decode import JSON, decode_value, restored, target
from minikube_py.api.errors import Json, StatusError, go_quote, internal, shortened
from minikube_py.api.kind import Kind
from minikube_py.api.registry import Registry
from minikube_py.api.typed import DecodeError
from minikube_py.api.values import json_type
from minikube_py.apiserver.messages import WARNINGS_CHARS_MAX

if TYPE_CHECKING:
    from minikube_py.apiserver.preparing import Body

GROUP: Final = "admission.k8s.io"
KIND: Final = "AdmissionReview"
_V1: Final = f"{GROUP}/v1"
_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
FAILED: Final = "failed to call webhook: "
_INVALID: Final = "received invalid webhook response: "
_ERROR_BYTES_MAX: Final = 2048
"""As upstream, of the body of an error."""
_CAUSES_MAX: Final = 1_000
_STATUS_TEXTS: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    406: "the server was unable to respond with a content type that the client supports",
    409: "the server reported a conflict",
    415: "the server was unable to respond with a content type that the client supports",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class Wrong(Exception):
    """An invalid response; the text is upstream's."""


class Review(NamedTuple):
    allowed: bool
    status: Json | None
    warnings: list[str]
    patch: bytes
    patch_type: str
    notes: dict[str, str]
    """For the audit log."""


def looks_like_json(body: bytes) -> bool:
    return body.lstrip(b" \t\r\n").startswith(b"{")


def reviewed(
    kinds: Registry, status: int, media: str, body: bytes, version: str, uid: str, mutating: bool
) -> Review | str:
    """A review's response; an error text if it is invalid."""
    try:
        return _verified(_decoded(status, media, body, version), uid, mutating, version)
    except Wrong as error:
        return str(error)


def _decoded(status: int, media: str, body: bytes, version: str) -> Json:
    """Raises: Wrong."""
    found = document(status, media, body, f"{GROUP}/{version}", KIND)
    said = {name: found.get(name) or "" for name in ("kind", "apiVersion")}
    try:
        return {**decode_value(target(GROUP, version, KIND), found, False)[0], **said}
    except DecodeError as error:
        raise Wrong(f"{FAILED}{error}") from None


def document(status: int, media: str, body: bytes, wanted: str, wanted_kind: str) -> Json:
    """A webhook's response of the requested kind and apiVersion. Raises: Wrong."""
    group, _, version = wanted.partition("/")
    if not 200 <= status <= 206:
        raise Wrong(FAILED + _http_error(status, media, body))
    if not body:
        raise Wrong(f"{FAILED}0-length response with status code: {status} and content type: {media}")
    try:
        found: Any = _read(body)
    except json_text.Syntax as error:
        raise Wrong(f"{FAILED}couldn't get version/kind; json parse error: {error}") from None
    except yaml_text.YamlError as error:
        raise Wrong(f"{FAILED}error converting YAML to JSON: {error}") from None
    if not isinstance(found, dict):
        why = f"json: cannot unmarshal {json_type(found)} into Go value of type {_TYPE_META}"
        raise Wrong(f"{FAILED}couldn't get version/kind; json parse error: {why}")
    given, kind = found.get("apiVersion") or wanted, found.get("kind") or wanted_kind
    if kind != wanted_kind or given not in (f"{group}/v1", f"{group}/v1beta1"):
        scheme = 'in scheme "pkg/runtime/scheme.go:111"'
        raise Wrong(f"{FAILED}no kind {go_quote(kind)} is registered for version {go_quote(given)} {scheme}")
    if given != wanted:
        other = given.rpartition("/")[2]
        raise Wrong(f"{FAILED}converting ({other}.{kind}) to ({version}.{kind}): unknown conversion")
    return found


def _read(body: bytes) -> Any:
    """Not a JSON object: read as YAML. Raises: Syntax, YamlError."""
    if looks_like_json(body):
        return json_text.plain(json_text.read(body))
    return yaml_text.read(body)[0]


def _http_error(status: int, media: str, body: bytes) -> str:
    if (message := _failure_of(media, body)) is not None:
        return shortened(StatusError(0, "", message)).message
    text = body[:_ERROR_BYTES_MAX].decode(errors="replace").strip() if media.startswith("text/") else "unknown"
    if status == 403:
        return text
    if status in _STATUS_TEXTS:
        return _STATUS_TEXTS[status]
    if status >= 500:
        return f"an error on the server ({go_quote(text)}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


def _failure_of(media: str, body: bytes) -> str | None:
    """The message of a Status that says what failed; None: it is none."""
    try:
        found: Any = _read(body) if media.partition(";")[0].strip() in ("", JSON, "application/yaml") else None
    except (json_text.Syntax, yaml_text.YamlError):
        return None
    if not isinstance(found, dict) or found.get("status") != "Failure":
        return None
    said, message = (found.get("apiVersion") or "v1", found.get("kind") or "Status"), found.get("message") or ""
    return message if said == ("v1", "Status") and isinstance(message, str) else None


def _verified(review: Json, uid: str, mutating: bool, version: str) -> Review:
    """Raises: Wrong."""
    response = review.get("response")
    if response is None:
        raise Wrong(f"{_INVALID}webhook response was absent")
    patch, patch_type = base64.b64decode(response.get("patch") or ""), response.get("patchType")
    if version == "v1":
        why = _wrong(review, response, uid) or _wrong_patch(patch, patch_type, mutating)
        if why:
            raise Wrong(_INVALID + why)
    elif patch:
        patch_type = "JSONPatch"
    return Review(
        bool(response.get("allowed")), _told(response.get("status")), _heard(response.get("warnings") or ()),
        patch if mutating else b"", patch_type or "", response.get("auditAnnotations") or {},
    )  # fmt: skip


def _wrong(review: Json, response: Json, uid: str) -> str:
    found = response.get("uid") or ""
    if found != uid:
        return f"expected response.uid={go_quote(uid)}, got {go_quote(found)}"
    said = review.get("apiVersion") or "", review.get("kind") or ""
    if said != (_V1, KIND):
        return f"expected webhook response of {_V1}, Kind={KIND}, got {said[0] or '/'}, Kind={said[1]}"
    return ""


def _wrong_patch(patch: bytes, patch_type: str | None, mutating: bool) -> str:
    if not mutating:
        if patch:
            return "validating webhook may not return response.patch"
        return "validating webhook may not return response.patchType" if patch_type is not None else ""
    if patch and patch_type is None:
        return "webhook returned response.patch but not response.patchType"
    if not patch and patch_type is not None:
        return "webhook returned response.patchType but not response.patch"
    return f"webhook returned invalid response.patchType of {go_quote('')}" if patch_type == "" else ""


def _heard(warnings: Iterable[str]) -> list[str]:
    """Limited in number and length to what response headers can hold."""
    most = WARNINGS_CHARS_MAX + 1
    return list(islice(dict.fromkeys(text[:most] for text in warnings if text), most))


def _told(status: Json | None) -> Json | None:
    """Limited to a reasonable response size."""
    causes = ((status or {}).get("details") or {}).get("causes")
    if status is None or not (causes or status.get("message")):
        return status
    if causes:
        del causes[_CAUSES_MAX:]
    error = shortened(StatusError(0, "", status.get("message") or "", status.get("details")))
    return {**status, "message": error.message}


# --- patches ----------------------------------------------------------------------------------------------------------


class Patched(NamedTuple):
    value: bytes
    changed: bool


def patched(kind: Kind, asked: Body, before: bytes, said: tuple[str, str, str]) -> Patched | str | None:
    """`before` (of kind `said`, as the webhook saw it) after the patch in the body of `asked`; None without a patch, an
    error text if it is invalid. Raises: StatusError 500."""
    try:
        operations = orjson.loads(orjson.dumps(json_text.plain(json_text.read(asked.body))))
    except json_text.Syntax as error:
        return f"received undecodable patch in webhook response: {error}"
    if why := _no_operations(operations):
        return f"received undecodable patch in webhook response: {why}"
    if not operations:
        return None
    shown: Json | None = orjson.loads(before)
    if shown is None:
        why = "attempted to modify the object, which is not supported for this operation"
        raise internal(f"admission webhook {go_quote(asked.name)} {why}")
    if asked.content_type != "JSONPatch":
        return f"unsupported patch type {go_quote(asked.content_type)}"
    group, version, name = said
    try:
        found = json_patch.apply(orjson.loads(before), [each or {} for each in operations])
        if not isinstance(found, dict):
            raise internal("the patch leaves no object")
        _check_said(found, shown)
        sub = kind.subresource(asked.sub) if name != kind.kind else None
        after = restored(kind, sub, {**found, "apiVersion": f"{group}/{version}" if group else version})
    except (json_patch.JsonPatchError, DecodeError) as error:
        raise internal(str(error)) from None
    changed = _sorted(after) != _sorted({**shown, "apiVersion": after.get("apiVersion")})
    if sub is None:
        kind.default(after)
    return Patched(orjson.dumps(after), changed)


def _sorted(obj: Json) -> bytes:
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)


def _no_operations(found: object) -> str:
    if found is None:
        return ""
    if not isinstance(found, list):
        return f"json: cannot unmarshal {json_type(found)} into Go value of type jsonpatch.Patch"
    wrong = next((each for each in found if each is not None and not isinstance(each, dict)), None)
    if wrong is None:
        return ""
    return f"json: cannot unmarshal {json_type(wrong)} into Go value of type jsonpatch.Operation"


def _check_said(patched: Json, shown: Json) -> None:
    for name in ("kind", "apiVersion"):
        if patched.get(name) != shown[name]:
            raise internal(f"a webhook may not change {name} from {shown[name]!r} to {patched.get(name)!r}")
