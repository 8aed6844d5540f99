"""API errors: a `Status` object with code, reason, message and details.

Shapes and wordings are those of apimachinery (`pkg/api/errors`, `pkg/util/validation/field`). Every refusal of the API
server is a `StatusError`; validation collects `FieldError`s and turns them into one by `invalid`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import orjson

from minikube_py.api.go_format import go_float
from minikube_py.errors import MinikubeError

Json = dict[str, Any]


class NamedResource(Protocol):
    """A resource in an error: a registry row, or a `GroupResource` without one."""

    @property
    def group(self) -> str: ...

    @property
    def plural(self) -> str: ...

    @property
    def kind(self) -> str: ...


class GroupResource(NamedTuple):
    group: str
    plural: str
    kind: str = ""


class StatusError(MinikubeError):
    """An error response. `details` is as in the Status object; `retry_after_s` also goes into the `Retry-After` header.
    `warnings` are those of a body that was read before it was refused."""

    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s
        self.warnings: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickling, for worker processes."""
        given = (self.code, self.reason, self.message, self.details, self.retry_after_s)
        return type(self), given, {"warnings": self.warnings}

    def to_status(self) -> Json:
        """The `Status` object, its keys in upstream's order; what is empty is left out."""
        status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        if self.message:
            status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None or self.retry_after_s:
            given = self.details or {}
            details = {key: given[key] for key in _DETAIL_KEYS if given.get(key)}
            if self.retry_after_s:
                details["retryAfterSeconds"] = self.retry_after_s
            status["details"] = details
        status["code"] = self.code
        return status

    @staticmethod
    def from_status(status: Json) -> StatusError:
        """The error in a received `Status` object."""
        details = status.get("details")
        retry_after_s = details.get("retryAfterSeconds") if isinstance(details, dict) else None
        return StatusError(
            int(status.get("code") or 500),
            str(status.get("reason") or ""),
            str(status.get("message") or ""),
            details if isinstance(details, dict) else None,
            retry_after_s,
        )


_DETAIL_KEYS: Final = ("name", "group", "kind", "uid", "causes", "retryAfterSeconds")


# --- one wrong field ------------------------------------------------------------------------------------------------

NOT_FOUND: Final = "FieldValueNotFound"
REQUIRED: Final = "FieldValueRequired"
DUPLICATE: Final = "FieldValueDuplicate"
INVALID: Final = "FieldValueInvalid"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
FORBIDDEN: Final = "FieldValueForbidden"
TOO_LONG: Final = "FieldValueTooLong"
TOO_MANY: Final = "FieldValueTooMany"
TOO_FEW: Final = "FieldValueTooFew"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
TOO_SHORT: Final = "FieldValueTooShort"
INTERNAL: Final = "InternalError"

_TITLES: Final = {
    NOT_FOUND: "Not found",
    REQUIRED: "Required value",
    DUPLICATE: "Duplicate value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    TOO_FEW: "Too few",
    TYPE_INVALID: "Invalid value",
    TOO_SHORT: "Too short",
    INTERNAL: "Internal error",
}
_WITHOUT_VALUE: Final = frozenset((REQUIRED, FORBIDDEN, TOO_LONG, TOO_SHORT, INTERNAL))


class Verbatim(str):
    """Text that a field error prints unchanged, where upstream has a custom format."""

    __slots__ = ()


_OMITTED: Final = Verbatim("")


class FieldError(NamedTuple):
    """One wrong field: `reason` is the cause's reason, `field` its path, `value` the invalid value."""

    reason: str
    field: str
    value: Any = ""
    detail: str = ""

    def body(self) -> str:
        """The text without the field: title, value, detail."""
        text = _TITLES[self.reason]
        if self.reason not in _WITHOUT_VALUE and self.value is not _OMITTED:
            text = f"{text}: {go_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body()}"

    def cause(self) -> Json:
        return {"reason": self.reason, "message": self.body(), "field": self.field}


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(REQUIRED, field, "", detail)


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    return FieldError(INVALID, field, value, detail)


def omitted(field: str, detail: str) -> FieldError:
    """The value at `field` is invalid, and not shown."""
    return FieldError(INVALID, field, _OMITTED, detail)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError(DUPLICATE, field, value)


def value_not_found(field: str, value: Any) -> FieldError:
    return FieldError(NOT_FOUND, field, value)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    """`supported` in the order to print."""
    quoted = ", ".join(go_quote(item) for item in supported)
    return FieldError(NOT_SUPPORTED, field, value, f"supported values: {quoted}" if quoted else "")


def forbidden_value(field: str, detail: str) -> FieldError:
    return FieldError(FORBIDDEN, field, "", detail)


def internal_value(field: str, detail: str) -> FieldError:
    return FieldError(INTERNAL, field, "", detail)


def too_long(field: str, limit: int, unit: str = "byte") -> FieldError:
    return FieldError(TOO_LONG, field, "", f"may not be more than {limit} {unit}{'' if limit == 1 else 's'}")


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError(TOO_MANY, field, count, f"must have at most {limit} item{'' if limit == 1 else 's'}")


# --- Go's way of printing -------------------------------------------------------------------------------------------

_GO_ESCAPES: Final = {
    7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\", 34: '\\"',
}  # fmt: skip


def go_quote(text: str) -> str:
    """`text` as Go's `%q` prints it (strconv.Quote)."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_go_escape, text)) + '"'


def _go_escape(char: str) -> str:
    code = ord(char)
    if code in _GO_ESCAPES:
        return _GO_ESCAPES[code]
    if char.isprintable():
        return char
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_GO_JSON_ESCAPES: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def go_json(value: Any) -> str:
    """`value` as Go's json.Marshal prints it: `<`, `>`, `&` and the two line separators escaped."""
    text = orjson.dumps(value).decode()
    return text.translate(_GO_JSON_ESCAPES)


def go_value(value: Any) -> str:
    """A wrong value as a field error prints it."""
    if isinstance(value, Verbatim):
        return str(value)
    if isinstance(value, str | bytes):
        return go_quote(base64.b64encode(value).decode() if isinstance(value, bytes) else value)
    return go_float(value) if isinstance(value, float) else go_json(value)


def qualified(group: str, name: str) -> str:
    """`name.group`, or `name` alone in the core group."""
    return f"{name}.{group}" if group else name


# --- constructors ---------------------------------------------------------------------------------------------------


def _details(resource: NamedResource, name: str = "") -> Json:
    return {"name": name, "group": resource.group, "kind": resource.plural}


def _title(resource: NamedResource) -> str:
    return qualified(resource.group, resource.plural)


def not_found(resource: NamedResource, name: str) -> StatusError:
    message = f"{_title(resource)} {go_quote(name)} not found"
    return StatusError(404, "NotFound", message, _details(resource, name))


def path_not_found() -> StatusError:
    """No such path below a served prefix."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


class PageNotFound(StatusError):
    """No such path anywhere: answered as plain text, as Go's servers do."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found", {})


def already_exists(resource: NamedResource, name: str, leaving: bool = False) -> StatusError:
    """`leaving`: it is being deleted, so a retry makes sense."""
    message = f"{_title(resource)} {go_quote(name)} already exists"
    message = f"object is being deleted: {message}" if leaving else message
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def generate_name_conflict(resource: NamedResource, name: str, retry_after_s: int = 1) -> StatusError:
    """Every generated name was taken."""
    message = (
        f"{_title(resource)} {go_quote(name)} already exists, the server was not able to generate a unique name "
        "for the object"
    )
    return StatusError(409, "AlreadyExists", message, _details(resource, name), retry_after_s)


STALE_WRITE: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(resource: NamedResource, name: str, why: str = STALE_WRITE) -> StatusError:
    message = f"Operation cannot be fulfilled on {_title(resource)} {go_quote(name)}: {why}"
    return StatusError(409, "Conflict", message, _details(resource, name))


def apply_conflict(causes: Sequence[Json], message: str) -> StatusError:
    """Server-side apply conflicts with other managers; one cause per field (reason FieldManagerConflict)."""
    return StatusError(409, "Conflict", message, {"causes": list(causes)})


def gone(message: str) -> StatusError:
    return StatusError(410, "Gone", message)


def expired(message: str) -> StatusError:
    """The resourceVersion asked for is compacted, or a continue token too old."""
    return StatusError(410, "Expired", message)


def aggregate(messages: Iterable[str]) -> str:
    """Several messages as one: `[a, b]`, each once; a single one bare."""
    distinct = list(dict.fromkeys(messages))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


ERRORS_LISTED_MAX: Final = 1000
ERRORS_CHARS_MAX: Final = 1 << 20
"""An error may show a whole list, with another error per item."""
TOLD_CHARS_MAX: Final = 256 << 10
"""Maximum length of one error text; a worker truncates longer ones."""


def invalid(
    resource: NamedResource, name: str, errors: Sequence[FieldError], *, group: str | None = None
) -> StatusError:
    """422 with one cause a field error. `resource.kind` names the object; `group` where its kind's group differs.

    Above `ERRORS_LISTED_MAX` errors the answer lists the first and says how many there are: a body of three megabytes
    can hold a hundred thousand errors, and the answer would be thirty times as long. Upstream lists them all."""
    kind_group = resource.group if group is None else group
    # Upstream leaves access reviews unnamed.
    kind = "" if resource.kind.endswith("AccessReview") else resource.kind
    message = f"{qualified(kind_group, kind)} {go_quote(name)} is invalid"
    causes: list[Json] = []
    size = 0
    for error in errors[:ERRORS_LISTED_MAX]:
        causes.append(error.cause())
        size += len(causes[-1]["message"])
        if size > ERRORS_CHARS_MAX:
            break
    if causes:
        told = aggregate(f"{cause['field']}: {cause['message']}" for cause in causes)
        message = f"{message}: {told}"
    if len(causes) < len(errors):
        message = f"{message}: {len(errors)} errors in all, of which {len(causes)} are listed"
    details = {"name": name, "group": kind_group, "kind": kind, "causes": causes}
    return StatusError(422, "Invalid", message, details)


def shortened(error: StatusError) -> StatusError:
    """Truncates long texts: an error may show a body of megabytes, more than once."""
    error.message = _short(error.message)
    causes = (error.details or {}).get("causes") or ()
    room = ERRORS_CHARS_MAX
    for cause in causes:
        cause["message"] = _short(str(cause.get("message") or ""), max(min(room, TOLD_CHARS_MAX), 256))
        room -= len(cause["message"])
    return error


def _short(text: str, limit: int = TOLD_CHARS_MAX) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters in all, limit is {limit})"


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> StatusError:
    return StatusError(401, "Unauthorized", message)


def forbidden(resource: NamedResource | None, name: str, why: str) -> StatusError:
    """`resource` is None for a non-resource path."""
    if resource is None:
        return StatusError(403, "Forbidden", f"forbidden: {why}", {})
    title = f"{_title(resource)} {go_quote(name)}" if name else _title(resource)
    return StatusError(403, "Forbidden", f"{title} is forbidden: {why}", _details(resource, name))


def method_not_supported(resource: NamedResource, action: str) -> StatusError:
    """`action` is the verb (`create`, `deletecollection`, ...)."""
    message = f"{action} is not supported on resources of kind {go_quote(_title(resource))}"
    return StatusError(405, "MethodNotAllowed", message, _details(resource))


def method_not_allowed() -> StatusError:
    """The path is served, but not with this HTTP method."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_acceptable(accepted: Iterable[str]) -> StatusError:
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return StatusError(406, "NotAcceptable", message)


def no_representation(available: Iterable[str]) -> StatusError:
    """go-restful's 406, if routes are selected by Accept."""
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(available)}"
    return StatusError(406, "NotAcceptable", message, {})


def unsupported_media_type(accepted: Iterable[str]) -> StatusError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", message)


def timeout(message: str, retry_after_s: int = 0, causes: Sequence[Json] = ()) -> StatusError:
    return StatusError(504, "Timeout", f"Timeout: {message}", {"causes": list(causes)}, retry_after_s or None)


def too_large_resource_version(asked: int, current: int, retry_after_s: int = 1) -> StatusError:
    """A resourceVersion above the server's current one."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return timeout(f"Too large resource version: {asked}, current: {current}", retry_after_s, (cause,))


def too_many_requests(message: str, retry_after_s: int = 0, causes: Sequence[Json] = ()) -> StatusError:
    return StatusError(429, "TooManyRequests", message, {"causes": list(causes)}, retry_after_s or None)


def request_entity_too_large(message: str) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def service_unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message)


def internal(message: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})
