"""A PATCH's body applied to an object: JSON patch, merge patch, or strategic merge patch.

Server-side apply is `api.apply`; here is only how its body is read. Statuses and wordings are
upstream's; where it answers 500 to a bad patch, the status here is 400.

Source: apiserver pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson

from minikube_py.api import go_numbers, json_patch, json_text, merge_patch, strategic_merge, yaml_text
from minikube_py.api.decode import Object, Target, check_size, decode_value, no_repeats, refuse_cut, repeats, target_of
from minikube_py.api.errors import (
    GroupResource,
    StatusError,
    Verbatim,
    bad_request,
    go_quote,
    invalid,
    invalid_value,
    request_entity_too_large,
    unsupported_media_type,
)
from minikube_py.api.go_format import go_format
from minikube_py.api.json_patch import JsonPatchError
from minikube_py.api.json_text import Members, Number, Syntax
from minikube_py.api.kind import Kind, Subresource
from minikube_py.api.restore import Restorer
from minikube_py.api.schema import SCHEMA, Message
from minikube_py.api.strategic_merge import StrategicMergeError
from minikube_py.api.typed import DecodeError, Undecided, checker
from minikube_py.api.values import is_text, json_type

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
ACCEPTED: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)
APPLY_PATCH: Final = "application/apply-patch+yaml"


def patch_type(content_type: str | None, structured: bool = True) -> str:
    """The patch type that a Content-Type header names; `structured`: of objects that have a message.

    Raises: StatusError (415)."""
    media = (content_type or "").partition(";")[0]
    if media not in ACCEPTED or (media == STRATEGIC_MERGE_PATCH and not structured):
        raise unsupported_media_type(ACCEPTED if structured else (JSON_PATCH, MERGE_PATCH, APPLY_PATCH))
    return media


def apply_patch(
    content_type: str | None,
    resource: Kind,
    original: Object,
    patch: bytes,
    field_validation: str = "Warn",
    *,
    subresource: Subresource | None = None,
    warnings: list[str] | None = None,
) -> Object:
    """The object after the patch, checked as `decode` checks it; `original`, which has kind and apiVersion, is left as
    it is. Warnings for the `Warning: 299` header are appended to `warnings`.

    Raises: StatusError (400, 413, 415, 422).
    """
    codec = resource.codec if subresource is None else None
    media = patch_type(content_type, codec is None)
    check_size(patch)
    strict = field_validation != "Ignore"
    try:
        if codec is not None:
            found, problems, shown = _json(codec.value, _sorted, original, patch, media, strict)
        elif media == STRATEGIC_MERGE_PATCH:
            found, problems, shown = _strategic(target_of(resource, subresource), original, patch, strict)
        else:
            expected = target_of(resource, subresource)
            read = partial(_in_version, expected, original)
            ordered = partial(_in_schema_order, message=expected.message)
            found, problems, shown = _json(read, ordered, original, patch, media, strict)
        refuse_cut(found, patch)
    except RecursionError:
        # JSON patch operations can nest deeper than any of their values.
        raise bad_request(json_text.TOO_DEEP) from None
    if problems and field_validation == "Strict":
        raise _invalid(shown(), "strict decoding error: " + ", ".join(problems))
    if warnings is not None:
        warnings += problems
    return found


def no_name(name: str) -> StatusError:
    """Of an object in a body for the path of `name`."""
    return bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")


def _in_version(expected: Target, original: Object, value: Any, strict: bool) -> tuple[Object, list[str]]:
    """As `decode_value`, of what says its version: upstream takes all else for its internal type, whose members have
    other names."""
    if isinstance(value, dict) and value.get("apiVersion") in (None, ""):
        raise no_name(original["metadata"]["name"])
    return decode_value(expected, value, strict)


def _copy(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value))


def _invalid(shown: str, why: str) -> StatusError:
    return invalid(GroupResource("", ""), "", [invalid_value("patch", Verbatim(go_quote(shown)), why)])


def is_apply(content_type: str) -> bool:
    return content_type.partition(";")[0] == APPLY_PATCH


def read_config(patch: bytes) -> tuple[Object, str]:
    """The configuration of an apply, in JSON or YAML; and the complaint about repeated keys, or "".

    Raises: StatusError (400, 413)."""
    check_size(patch)
    try:
        value = orjson.loads(patch) if patch.startswith(b"{") and not json_text.is_deep(patch) else None
        repeats = ""
        if value is None or not no_repeats(patch, value):
            value, repeats = yaml_text.read(patch)
    except (orjson.JSONDecodeError, yaml_text.YamlError):
        try:
            value, repeats = yaml_text.read(patch)
        except yaml_text.YamlError as error:
            raise bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None
    value = go_numbers.through_yaml(value)
    if value is not None and not isinstance(value, dict):
        raise bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
            f"{json_type(value)} into Go value of type map[string]interface {{}}"
        )
    return value or {}, f"error converting YAML to JSON: {repeats}" if repeats else ""


def canonical(resource: Kind, obj: Object) -> Object:
    """The result of an apply, as if read by `decode`. Raises: DecodeError."""
    document: Object = _copy(obj)
    if resource.codec is not None:
        return document
    message = target_of(resource).message
    try:
        checker(message)(document)
    except Undecided:
        document = Restorer().restore(_copy(obj), message)
    return document


# --- JSON and merge patches -----------------------------------------------------------------------------------------


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _json(
    read: Callable[[Any, bool], tuple[Object, list[str]]],
    ordered: Callable[[Object], Object],
    original: Object,
    patch: bytes,
    media: str,
    strict: bool,
) -> tuple[Object, list[str], Any]:
    """`read` makes an object of what the patch gave; `ordered` puts members in the order in which upstream writes."""
    try:
        parsed = _read(patch)
    except Syntax as error:
        raise bad_request(f"error decoding patch: {error}" if strict else _lenient(media, error)) from None
    problems = _check_operations(parsed, strict) if media == JSON_PATCH else _check_merge(parsed, strict)

    def patched(document: Object, touched: set[int] | None = None) -> Any:
        # Applying consumes the patch, and `shown` applies it again.
        holder = "Go struct field jsonPatchOp.value" if media == JSON_PATCH and strict else "Go value"
        changes = _plain(parsed if touched is None else _read(patch), holder)
        if media == JSON_PATCH:
            return _apply_operations(document, changes, touched)
        return merge_patch.apply(document, changes, touched)

    def shown() -> str:
        touched: set[int] = set()
        document = patched(ordered(_copy(original)), touched)
        return _written(document, touched)

    document = patched(_copy(original))
    try:
        found, unknown = read(document, strict)
    except DecodeError as error:
        raise _invalid(shown(), str(error)) from None
    if len(unknown) > 1:
        # In the order in which upstream writes what it reads then.
        unknown = read(orjson.loads(shown()), strict)[1]
    return found, problems + unknown, shown


def _lenient(media: str, error: Syntax) -> str:
    return str(error) if media == JSON_PATCH else "Invalid JSON Patch"


def _read(patch: bytes) -> Any:
    """A patch's value: plain where it is an object or list without repeated members, else as `json_text.read` gives it.

    Raises: Syntax."""
    try:
        value = orjson.loads(patch) if not json_text.is_deep(patch) else None
    except orjson.JSONDecodeError:
        return json_text.read(patch)
    if isinstance(value, dict | list) and no_repeats(patch, value):
        return value
    return json_text.read(patch)


def _is_plain(parsed: Any) -> bool:
    if isinstance(parsed, list) and not isinstance(parsed, Members):
        return not any(isinstance(item, Members | Number) for item in parsed)
    return isinstance(parsed, dict)


def _plain(parsed: Any, holder: str) -> Any:
    if _is_plain(parsed):
        return parsed
    try:
        return json_text.plain(parsed)
    except OverflowError as error:
        raise bad_request(
            f"error decoding patch: json: cannot unmarshal number {error} into {holder} of type float64"
        ) from None


_OPERATION_FIELDS: Final = ("op", "path", "from", "value")


def _check_operations(parsed: Any, strict: bool) -> list[str]:
    """Strict errors of a JSON patch. Raises: StatusError (400, 413)."""
    if parsed is None:
        return []
    go_list = "[]handlers.jsonPatchOp" if strict else "jsonpatch.Patch"
    go_item = "handlers.jsonPatchOp" if strict else "jsonpatch.Operation"
    prefix = "error decoding patch: " if strict else ""
    if not isinstance(parsed, list) or isinstance(parsed, Members):
        raise bad_request(f"{prefix}json: cannot unmarshal {json_type(parsed)} into Go value of type {go_list}")
    problems: list[str] = []
    for index, operation in enumerate(parsed):
        if operation is None:
            continue
        if not isinstance(operation, Members | dict):
            raise bad_request(f"{prefix}json: cannot unmarshal {json_type(operation)} into Go value of type {go_item}")
        if strict:
            problems += _check_operation(index, operation)
    if len(parsed) > json_patch.MAX_OPERATIONS:
        raise request_entity_too_large(
            f"The allowed maximum operations in a JSON patch is {json_patch.MAX_OPERATIONS}, got {len(parsed)}"
        )
    return problems


def _check_operation(index: int, operation: Members | Object) -> list[str]:
    problems: dict[str, None] = {}
    seen: set[str] = set()
    for name, value in operation.items() if isinstance(operation, dict) else operation:
        if name not in _OPERATION_FIELDS:
            problems[f'json patch unknown field "[{index}].{name}"'] = None
        elif name in seen:
            problems[f'json patch duplicate field "[{index}].{name}"'] = None
        elif name != "value" and value is not None and not is_text(value):
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {json_type(value)} into Go struct field "
                f"jsonPatchOp.{name} of type string"
            )
        seen.add(name)
    return list(problems)


def _apply_operations(document: Object, operations: Any, touched: set[int] | None) -> Any:
    try:
        return json_patch.apply(document, [operation or {} for operation in operations or []], touched)
    except JsonPatchError:
        # Upstream does not report the reason.
        message = "the server rejected our request due to an error in our request"
        raise StatusError(422, "Invalid", message, {}) from None


def _check_merge(parsed: Any, strict: bool) -> list[str]:
    """Strict errors of a merge patch. Raises: StatusError (400)."""
    if parsed is None:
        raise bad_request("Invalid JSON Patch")
    if not isinstance(parsed, Members | dict):
        if strict:
            raise _not_a_map(parsed, "error decoding patch: ")
        if not isinstance(parsed, list):
            raise bad_request("Invalid JSON Patch")
    return repeats(parsed) if strict else []


def _not_a_map(parsed: Any, prefix: str = "") -> StatusError:
    return bad_request(
        f"{prefix}json: cannot unmarshal {json_type(parsed)} into Go value of type map[string]interface {{}}"
    )


def _in_schema_order(value: Any, message: Message) -> Any:
    """The object with its members in the order in which Go writes them."""
    ordered = {}
    for name, field in message.fields.items():
        if name not in value:
            continue
        item = value[name]
        type = field.type
        if type.kind == "message" and isinstance(item, dict):
            item = _in_schema_order(item, SCHEMA.message(type.message))
        elif item is None:
            pass
        elif type.kind == "list" and type.element is not None and type.element.kind == "message":
            inner = SCHEMA.message(type.element.message)
            item = [_in_schema_order(one, inner) if isinstance(one, dict) else one for one in item]
        elif type.kind == "map":
            item = dict(sorted(item.items()))
        ordered[name] = item
    return ordered


def _written(value: Any, touched: set[int]) -> str:
    """JSON text in which the objects that the patch went through have sorted members, as upstream writes it."""
    if isinstance(value, dict):
        names = sorted(value) if id(value) in touched else list(value)
        return "{" + ",".join(f"{_written(name, touched)}:{_written(value[name], touched)}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_written(item, touched) for item in value) + "]"
    return orjson.dumps(value).decode()


# --- strategic merge patches ----------------------------------------------------------------------------------------


def _strategic(expected: Target, original: Object, patch: bytes, strict: bool) -> tuple[Object, list[str], Any]:
    changes, problems = _changes(patch, strict)
    document = _merged(original, changes, expected.message)
    try:
        checker(expected.message)(document)
    except Undecided:
        # The checker has modified both, so merge again.
        changes, _ = _changes(patch, strict)
        document = _merged(original, changes, expected.message)
        restorer = Restorer()
        try:
            document = restorer.restore(document, expected.message)
        except DecodeError as error:
            raise _invalid(go_format(changes), str(error)) from None
        problems += restorer.unknown if strict else []

    def shown() -> str:
        again, _ = _changes(patch, strict)
        _merged(original, again, expected.message)
        return go_format(again)

    document["kind"], document["apiVersion"] = expected.kind, expected.api_version
    return document, problems, shown


def _changes(patch: bytes, strict: bool) -> tuple[Object, list[str]]:
    """The patch as a dict, and its strict errors. Raises: StatusError (400)."""
    try:
        parsed = _read(patch)
    except Syntax as error:
        raise bad_request(str(error)) from None
    if isinstance(parsed, dict):
        return parsed, []
    if parsed is not None and not isinstance(parsed, Members):
        raise _not_a_map(parsed)
    try:
        changes: Object = json_text.plain(parsed) or {}
    except OverflowError as error:
        raise bad_request(f"json: cannot unmarshal number {error} into Go value of type float64") from None
    return changes, repeats(parsed) if strict else []


def _merged(original: Object, changes: Object, message: Message) -> Object:
    """Raises: StatusError (400, 422)."""
    try:
        return strategic_merge.merge(_copy(original), changes, message)
    except StrategicMergeError as error:
        if error.code == 422:
            raise StatusError(422, "Invalid", str(error), {}) from None
        if error.code == 413:
            raise request_entity_too_large(str(error)) from None
        raise bad_request(str(error)) from None
