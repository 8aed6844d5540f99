"""A request's body, from bytes to an object: JSON, YAML or protobuf, checked against its kind.

The object comes as Go would print it after reading (see `typed`), with `kind` and `apiVersion` set. Unknown and
repeated fields are refused (Strict), reported as warnings (Warn), or dropped (Ignore). Statuses and wordings are
upstream's.

Source: apiserver pkg/endpoints/handlers/{create,rest}.go, apimachinery pkg/runtime/serializer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import orjson

from minikube_py.api import json_text, yaml_text
from minikube_py.api.document import PROTOBUF
from minikube_py.api.errors import StatusError, bad_request, go_quote, request_entity_too_large, unsupported_media_type
from minikube_py.api.go_format import go_text
from minikube_py.api.json_text import Members, Number, Syntax, text_of
from minikube_py.api.kind import Kind, Subresource
from minikube_py.api.protobuf import ProtobufError, decode_message, open_envelope
from minikube_py.api.schema import SCHEMA, Message, Type
from minikube_py.api.typed import DecodeError, Reader, Undecided, checker
from minikube_py.api.values import is_text, json_type
from minikube_py.api.yaml_text import YamlError

FieldValidation = Literal["Strict", "Warn", "Ignore"]
MAX_BODY_BYTES: Final = 3 * 1024 * 1024
JSON: Final = "application/json"
YAML: Final = "application/yaml"
ACCEPTED: Final = (JSON, YAML, PROTOBUF)
SCHEME: Final = "pkg/runtime/scheme.go:111"
"""The name of upstream's kind table in its messages."""

Object = dict[str, Any]


Read = Callable[[Message], tuple[Object, list[str]]]
"""Reads a body as a message: the object and the strict errors."""


class Target(NamedTuple):
    """The kind that a body is expected to be of."""

    group: str
    version: str
    kind: str
    message: Message

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def internal(self) -> str:
        """As upstream names its internal type: `core.Pod`."""
        return f"{self.group.split('.')[0] or 'core'}.{self.kind}"


@lru_cache(maxsize=1024)
def target(group: str, version: str, kind: str) -> Target:
    """Raises: KeyError where the kind has no message."""
    message = SCHEMA.kind(group, version, kind)
    if message is None:
        raise KeyError(f"{group}/{version} {kind}")
    return Target(group, version, kind, message)


def target_of(resource: Kind, subresource: Subresource | None = None) -> Target:
    """The body's message for a resource or subresource (Binding, Eviction, Scale, ...)."""
    if subresource is None:
        return target(resource.group, resource.version, resource.kind)
    origin = subresource if subresource.version else resource
    return target(origin.group, origin.version, subresource.kind)


def media_type(content_type: str | None) -> str:
    """The media type of a Content-Type header; JSON where there is none. Raises: StatusError (415)."""
    if not content_type:
        return JSON
    media = content_type.partition(";")[0].strip().lower()
    if media not in ACCEPTED:
        raise unsupported_media_type(ACCEPTED)
    return media


def decode(
    resource: Kind,
    body: bytes,
    content_type: str | None = JSON,
    field_validation: str = "Strict",
    *,
    subresource: Subresource | None = None,
) -> tuple[Object, list[str]]:
    """The object in `body`, and warnings for the `Warning: 299` header.

    Raises: StatusError (400, 413, 415).
    """
    if resource.codec is not None and subresource is None:
        return resource.codec.decode(body, content_type, field_validation)
    return decode_kind(target_of(resource, subresource), body, content_type, field_validation)


def decode_kind(
    expected: Target, body: bytes, content_type: str | None = JSON, field_validation: str = "Strict"
) -> tuple[Object, list[str]]:
    """As `decode`, for a kind that is not a resource."""
    media = JSON if content_type == JSON else media_type(content_type)
    check_size(body)
    strict = field_validation != "Ignore"
    if media == JSON:
        # Elsewhere, deep nesting means an unknown field; the thorough reader finds it.
        deep = keeps_raw(expected.message.name) and json_text.is_deep(body)
        found = None if deep else _fast(expected, body, strict)
        if found is not None:
            return found, []
    obj, problems = _thorough(expected, body, media, strict)
    if media == JSON:
        refuse_cut(obj, body)
    if problems and field_validation == "Strict":
        why = "strict decoding error: " + ", ".join(problems)
        raise _cannot_be_handled(expected.kind, expected.version, expected, why)
    return obj, [line for problem in problems for line in warning_lines(problem)]


def refuse_cut(obj: Object, body: bytes) -> None:
    """Raises: StatusError (400) where `obj`, made of `body`, would keep too deep nesting."""
    if json_text.is_deep(body) and json_text.CUT.encode() in orjson.dumps(obj):
        raise bad_request(json_text.TOO_DEEP)


def check_size(body: bytes) -> None:
    """Raises: StatusError (413)."""
    if len(body) > MAX_BODY_BYTES:
        raise request_entity_too_large(f"limit is {MAX_BODY_BYTES}")


def normalize(resource: Kind, obj: Object) -> Object:
    """`obj`, as Go would print it after reading: the same dict on the fast path, changed in place. For objects made by
    patches and by the server itself. Unknown fields are dropped. Raises: typed.DecodeError."""
    message = target_of(resource).message
    try:
        checker(message)(obj)
        return obj
    except Undecided:
        return Reader(False).read(_members(obj), message)


def decode_value(expected: Target, value: Any, strict: bool) -> tuple[Object, list[str]]:
    """The object from plain JSON values, and the strict errors: for patch results. `value` may be changed.

    Raises: typed.DecodeError, with upstream's message but without the handlers' frame.
    """
    said = (value.get("kind"), value.get("apiVersion")) if isinstance(value, dict) else None
    if said and said[0] == expected.kind and said[1] != expected.api_version:
        # Rarely needed.
        from minikube_py.api.former_versions import in_present_words

        if (present := in_present_words(value, expected.api_version)) is not None:
            found, more = decode_value(expected, present[0], strict)
            return found, [*present[1], *more] if strict else []
    if said == (expected.kind, expected.api_version):
        try:
            checker(expected.message)(value)
            return value, []
        except Undecided:
            pass
    members = _members(value)
    try:
        actual = _with_defaults(*_interpret(members), expected)
        return _read_as(expected, actual, _reading(members, "", strict), strict)
    except (_Bare, StatusError) as error:
        raise DecodeError(str(error)) from None


def restored(kind: Kind, subresource: Subresource | None, obj: Object, strict: bool = False) -> Object:
    """Reads changed plain values with the kind's codec; drops unknown fields.

    Raises: typed.DecodeError, also for unknown fields if requested."""
    if kind.codec is not None and subresource is None:
        return kind.codec.value(obj, False)[0]
    found, wrong = decode_value(target_of(kind, subresource), obj, strict)
    if wrong:
        raise DecodeError(f"strict decoding error: {', '.join(wrong)}")
    return found


class Named(NamedTuple):
    """A kind without a message."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


FREE_FORMS: Final = (JSON, YAML)
Settle = Callable[[Object, bool], list[str]]
"""Turns plain values into an object in place; returns strict errors. Raises: DecodeError."""


def decode_free(
    expected: Named, body: bytes, content_type: str | None, field_validation: str, settle: Settle
) -> tuple[Object, list[str]]:
    """As `decode`, for a kind without a message: plain JSON or YAML, completed by `settle`."""
    media = media_type(content_type)
    check_size(body)
    if media not in FREE_FORMS:
        raise unsupported_media_type(FREE_FORMS)
    if json_text.is_deep(body):
        raise bad_request(json_text.TOO_DEEP)
    strict = field_validation != "Ignore"
    try:
        value, problems = _free_value(body, media, strict)
        actual = _with_defaults(*_interpret(_members(value) if isinstance(value, dict) else value), expected)
    except OverflowError as error:
        why = f"json: cannot unmarshal number {error} into Go value of type float64"
        raise _cannot_be_handled(expected.kind, expected.version, expected, why) from None
    except (Syntax, YamlError, _Bare) as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {expected.kind}): {error} ({_summary(body)})"
        ) from None
    if not isinstance(value, dict) or not value.get("kind"):
        shown = go_text(body if media == JSON else orjson.dumps(value))
        raise bad_request(
            f"the object provided is unrecognized (must be of type {expected.kind}): Object 'Kind' is missing in "
            f"'{shown}' ({_summary(body)})"
        )
    try:
        said = value.get("apiVersion") or ""
        if said != expected.api_version:
            raise bad_request(_other_version(said, expected))
        problems += settle(value, strict)
    except DecodeError as error:
        raise _cannot_be_handled(actual[2], actual[1], expected, str(error)) from None
    if problems and field_validation == "Strict":
        why = "strict decoding error: " + ", ".join(problems)
        raise _cannot_be_handled(actual[2], actual[1], expected, why)
    return value, [line for problem in problems for line in warning_lines(problem)] if strict else []


def _free_value(body: bytes, media: str, strict: bool) -> tuple[Any, list[str]]:
    """Plain values, and the complaints about repeated members."""
    if media == JSON:
        try:
            value = orjson.loads(body)
            if no_repeats(body, value):
                return value, []
        except orjson.JSONDecodeError:
            pass
    parsed, repeated = _parse(body, media)
    return json_text.plain(parsed), [*([repeated] if repeated else ()), *repeats(parsed)] if strict else []


def repeats(parsed: Any, path: str = "") -> list[str]:
    """Repeated members anywhere, as strict errors; a dict has none."""
    found: dict[str, None] = {}
    if isinstance(parsed, Members):
        seen: set[str] = set()
        for name, value in parsed:
            where = f"{path}.{name}" if path else name
            if name in seen:
                found[f"duplicate field {go_quote(where)}"] = None
            seen.add(name)
            found |= dict.fromkeys(repeats(value, where))
    elif isinstance(parsed, list):
        for index, value in enumerate(parsed):
            found |= dict.fromkeys(repeats(value, f"{path}[{index}]"))
    return list(found)


_OBJECT_META: Final = "meta/v1.ObjectMeta"


def metadata_of(value: Any, lenient: bool = False) -> tuple[Object, list[str]]:
    """Metadata of an object of any kind, and the paths of unknown fields. `lenient`: malformed members are dropped.

    Raises: DecodeError."""
    message = SCHEMA.message(_OBJECT_META)
    if isinstance(value, dict):
        try:
            checker(message)(value)
            return value, []
        except Undecided:
            pass
    reader = Reader(True)
    try:
        found = reader.read(_members(value), message)
    except DecodeError:
        if not lenient or not isinstance(value, dict):
            raise
        found = {}
        for name, item in value.items():
            try:
                found |= Reader(False).read(Members([(name, _members(item))]), message)
            except DecodeError:
                continue
        return found, []
    return found, [problem.partition('"')[2][:-1] for problem in reader.strict_errors]


class Document(NamedTuple):
    """A document of a file: apiVersion and kind, its members, and its strict decoding."""

    api_version: str
    kind: str
    names: frozenset[str]
    read: Read


def open_document(body: bytes) -> Document:
    """JSON, whose numbers stay as they were written, or YAML. Raises: typed.DecodeError, upstream's message."""
    try:
        value, repeats = _parse_either(body)
        api_version, kind = _interpret(value)
    except (YamlError, _Bare) as error:
        raise DecodeError(str(error)) from None
    names = frozenset(text_of(key) for key, _ in value) if isinstance(value, Members) else frozenset()
    return Document(api_version, kind, names, _reading(value, repeats, True))


def read_value(value: Any, message: Message) -> tuple[Object, list[str]]:
    """Plain JSON values as a message, and the strict errors. Raises: typed.DecodeError."""
    return _reading(_members(value), "", True)(message)


def decode_delete_options(body: bytes, content_type: str | None = JSON) -> Object:
    """The DeleteOptions of a DELETE's body; empty for an empty body. Unknown fields are dropped.

    Raises: StatusError (400, 413, 415).
    """
    if not body:
        return {}
    media = media_type(content_type)
    check_size(body)
    expected = target("", "v1", "DeleteOptions")._replace(group="meta.k8s.io")
    try:
        obj, _ = _thorough(expected, body, media, False, bare=True)
    except _Bare as error:
        why = str(error) or "Object 'apiVersion' is missing in '" + body.decode(errors="replace") + "'"
        raise bad_request(why) from None
    return obj


@lru_cache(1024)
def keeps_raw(name: str) -> bool:
    """Whether objects of this message keep JSON as it was sent; except managed fields, which are dropped."""
    looked_at = {name, "meta/v1.ObjectMeta"}
    waiting = [name]
    while waiting:
        for field in SCHEMA.message(waiting.pop()).fields.values():
            type: Type | None = field.type
            while type is not None and type.kind in ("list", "map"):
                type = type.element
            if type is None or type.kind in ("raw", "any", "schema-or"):
                return True
            if type.kind == "message" and type.message not in looked_at:
                looked_at.add(type.message)
                waiting.append(type.message)
    return False


# --- the fast path
# -----------------------------------------------------------------------------------------------------


def _fast(expected: Target, body: bytes, strict: bool) -> Object | None:
    """The object, or None if the thorough path is needed."""
    try:
        obj = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if obj.__class__ is not dict:
        return None
    kind, api_version = expected.kind, expected.api_version
    if obj.get("kind", kind) != kind or obj.get("apiVersion", api_version) != api_version:
        return None
    if strict and not no_repeats(body, obj):
        return None
    try:
        checker(expected.message)(obj)
    except Undecided:
        return None
    obj["kind"] = kind
    obj["apiVersion"] = api_version
    return obj  # type: ignore[no-any-return]


def no_repeats(body: bytes, obj: Any) -> bool:
    """Whether no object in `body` repeats a member; False may also mean that this is not cheap to tell.

    orjson keeps the last of repeated members, so the object written again has fewer colons: one less for the member,
    and those in what it held. Only an escape (`\\u003a`) can write a colon otherwise.
    """
    if b"\\" in body and b"\\u" in body:
        return False
    try:
        return body.count(b":") == orjson.dumps(obj).count(b":")
    except TypeError:
        return False


# --- the thorough path
# -------------------------------------------------------------------------------------------------


class _Bare(Exception):
    """A failure in upstream's words, without the frame that the handlers put around it."""


def _thorough(
    expected: Target, body: bytes, media: str, strict: bool, *, bare: bool = False
) -> tuple[Object, list[str]]:
    """The object and the strict errors. Raises: StatusError, or _Bare where `bare`."""
    try:
        if media == PROTOBUF:
            envelope = open_envelope(body)
            actual = _with_defaults(envelope.api_version, envelope.kind, expected)
            read: Read = lambda message: (decode_message(message, envelope.raw), [])  # noqa: E731
        else:
            value, repeats = _parse(body, media)
            actual = _with_defaults(*_interpret(value), expected)
            read = _reading(value, repeats, strict)
    except (Syntax, YamlError, ProtobufError, _Bare) as error:
        if bare:
            raise _Bare(str(error)) from None
        raise bad_request(
            f"the object provided is unrecognized (must be of type {expected.kind}): {error} ({_summary(body)})"
        ) from None
    try:
        return _read_as(expected, actual, read, strict)
    except (DecodeError, ProtobufError, _Bare) as error:
        if bare:
            raise _Bare(str(error)) from None
        raise _cannot_be_handled(actual[2], actual[1], expected, str(error)) from None


def _reading(value: Any, repeats: str, strict: bool) -> Read:
    def read(message: Message) -> tuple[Object, list[str]]:
        reader = Reader(strict)
        obj = reader.read(value if value is not None else Members(), message)
        return obj, [*([repeats] if repeats and strict else ()), *reader.strict_errors]

    return read


def _parse_either(body: bytes) -> tuple[Any, str]:
    if body.lstrip()[:1] == b"{":
        with suppress(Syntax):
            return json_text.read(body), ""
    return _parse(body, YAML)


def _parse(body: bytes, media: str) -> tuple[Any, str]:
    """The value, and the complaint about repeated YAML keys."""
    if media == YAML:
        value, repeats = yaml_text.read(body)
        return _members(value), repeats
    try:
        return json_text.read(body), ""
    except Syntax as error:
        raise Syntax(f"couldn't get version/kind; json parse error: {error}") from None


def _members(value: Any) -> Any:
    """Plain values in the form of the thorough reader."""
    if isinstance(value, dict):
        return Members((key, _members(item)) for key, item in value.items())
    if isinstance(value, list):
        return [_members(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Number(orjson.dumps(value).decode() if isinstance(value, float) else str(value))
    return value


_FIND_KIND: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


def _interpret(value: Any) -> tuple[str, str]:
    """apiVersion and kind as the value says them. Raises: _Bare."""
    found = {"apiversion": "", "kind": ""}
    if value is None:
        return "", ""
    if not isinstance(value, Members):
        raise _Bare(
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_type(value)} into Go value of "
            f"type {_FIND_KIND}"
        )
    for key, item in value:
        # Here alone, upstream is case-insensitive.
        lowered = key.lower()
        if lowered not in found or item is None:
            continue
        if not is_text(item):
            name = "kind" if lowered == "kind" else "apiVersion"
            raise _Bare(
                f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_type(item)} into Go struct "
                f"field .{name} of type string"
            )
        found[lowered] = item
    return found["apiversion"], found["kind"]


def _with_defaults(api_version: str, kind: str, expected: Target | Named) -> tuple[str, str, str]:
    """Group, version and kind, defaulted from the expected kind. Raises: _Bare."""
    group, version = "", ""
    if api_version and api_version != "/":
        parts = api_version.split("/")
        if len(parts) > 2:
            raise _Bare(f"unexpected GroupVersion string: {api_version}")
        group, version = parts if len(parts) == 2 else ("", parts[0])
    if not version and group in ("", expected.group):
        group, version = expected.group, expected.version
    actual = group, version, kind or expected.kind
    return _SAME_AS.get(actual, actual)


_SAME_AS: Final = {("policy", "v1beta1", "Eviction"): ("policy", "v1", "Eviction")}
"""Versions that are read as another, of the same fields. Source: `pkg/registry/core/pod/storage/eviction.go`."""


def _read_as(
    expected: Target,
    actual: tuple[str, str, str],
    read: Read,
    strict: bool,
) -> tuple[Object, list[str]]:
    group, version, kind = actual
    api_version = f"{group}/{version}" if group else version
    if not version and expected.kind == "DeleteOptions":
        raise _Bare("")
    # Options are accepted in every version of every group.
    options = expected.kind == kind == "DeleteOptions"
    message = expected.message if options else SCHEMA.kind(group, version, kind)
    if message is None or (expected.kind == "DeleteOptions" and kind != expected.kind):
        from minikube_py.api.former_versions import was_served

        if kind == expected.kind and was_served(api_version, kind):
            raise bad_request(_other_version(api_version, expected))
        version_text, scheme = go_quote(api_version), go_quote(SCHEME)
        raise _Bare(f"no kind {go_quote(kind)} is registered for version {version_text} in scheme {scheme}")
    obj, problems = read(message)
    if actual == (expected.group, expected.version, expected.kind) or expected.kind == "DeleteOptions":
        obj["kind"], obj["apiVersion"] = kind, api_version
        return obj, problems
    if kind == expected.kind and (group == expected.group or kind == "Event"):
        if problems and strict:
            raise _Bare("strict decoding error: " + ", ".join(problems))
        raise bad_request(_other_version(api_version, expected))
    raise _Bare(f"converting ({message.text}) to ({expected.internal}): unknown conversion")


def _other_version(said: str, expected: Target | Named) -> str:
    return f"the API version in the data ({said}) does not match the expected API version ({expected.api_version})"


def _cannot_be_handled(kind: str, version: str, expected: Target | Named, why: str) -> StatusError:
    return bad_request(f"{kind} in version {go_quote(version)} cannot be handled as a {expected.kind}: {why}")


_SUMMARY_BYTES: Final = 30


def _summary(body: bytes) -> str:
    """The head of a body, as text where it looks like JSON, else in hex."""
    if not body:
        return "<empty>"
    head = body[:_SUMMARY_BYTES]
    text = go_text(head) if body.startswith(b"{") else head.hex()
    return f"{text} ..." if len(body) > _SUMMARY_BYTES else text


_YAML_PREFIX: Final = "yaml: unmarshal errors:\n"


def warning_lines(problem: str) -> list[str]:
    """One warning each for the lines of a YAML complaint."""
    lines = problem.removeprefix("error converting YAML to JSON: ")
    if lines.startswith(_YAML_PREFIX):
        return [line.strip() for line in lines.removeprefix(_YAML_PREFIX).split("\n")]
    return [problem]
