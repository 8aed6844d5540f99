"""JSON patches, as upstream applies them.

Source: RFC 6902, RFC 6901; behaviour where it differs (replace of a missing member adds it, negative indices count from
the end, `test` compares numbers as written) as evanphx/json-patch v4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson

Json = Any
MAX_OPERATIONS: Final = 10_000
COPIED_BYTES_MAX: Final = 3 << 20
"""Bytes that one patch's copies may add; each can double the document (AccumulatedCopySizeLimit of json-patch)."""

Operation = dict[str, Any]


class JsonPatchError(ValueError):
    """The patch does not apply; the message is upstream library's."""


class TestFailed(JsonPatchError):
    """A `test` operation failed."""


_INDEX = re.compile(r"[+-]?[0-9]+")


def apply(document: Json, operations: list[Operation], touched: set[int] | None = None) -> Json:
    """The document after all operations. `document` is changed in place: give a copy.

    `touched` takes the ids of the objects that upstream re-encodes with sorted keys. Raises: JsonPatchError.
    """
    state = _State(document, touched if touched is not None else set())
    for operation in operations:
        kind = operation.get("op")
        action = _ACTIONS.get(kind) if isinstance(kind, str) else None
        if action is None:
            raise JsonPatchError(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
        action(state, operation)
    return state.document


class _State:
    def __init__(self, document: Json, touched: set[int]) -> None:
        self.document = document
        self.touched = touched
        self.copied_bytes = 0
        touched.add(id(document))

    def container(self, path: str) -> tuple[Json, str]:
        """The container that a pointer's last part is looked up in, and that part; (None, "") where there is none."""
        parts = path.split("/")
        if len(parts) < 2:
            return None, ""
        found = self.document
        for part in parts[1:-1]:
            try:
                found = _get(found, _unescape(part))
            except JsonPatchError:
                return None, ""
            if not isinstance(found, dict | list):
                return None, ""
            self.touched.add(id(found))
        return found, _unescape(parts[-1])


def _unescape(part: str) -> str:
    return re.sub("~[01]", lambda match: "/" if match[0] == "~1" else "~", part) if "~" in part else part


def _path(operation: Operation, name: str = "path") -> str | None:
    path = operation.get(name)
    return path if isinstance(path, str) else None


def _number(key: str) -> int:
    if _INDEX.fullmatch(key) is None:
        raise JsonPatchError(f'strconv.Atoi: parsing "{key}": invalid syntax')
    if len(key) > 19:
        raise JsonPatchError(f'strconv.Atoi: parsing "{key}": value out of range')
    return int(key)


def _out_of_range(index: int) -> JsonPatchError:
    return JsonPatchError(f"Unable to access invalid index: {index}: invalid index referenced")


def _index(items: list[Json], key: str, size: int) -> int:
    """An index below `size`; negative ones count from its end."""
    index = _number(key)
    if index >= size or index < -size:
        raise _out_of_range(index)
    return index + size if index < 0 else index


def _get(container: Json, key: str) -> Json:
    if isinstance(container, dict):
        return container.get(key)
    return container[_index(container, key, len(container))]


def _add_to(container: Json, key: str, value: Json) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        try:
            _number(key)
        except JsonPatchError as error:
            raise JsonPatchError(f"value was not a proper array index: '{key}': {error}") from None
        container.insert(_index(container, key, len(container) + 1), value)


def _remove_from(container: Json, key: str) -> None:
    if isinstance(container, dict):
        if key not in container:
            raise JsonPatchError(f"Unable to remove nonexistent key: {key}: missing value")
        del container[key]
    else:
        del container[_index(container, key, len(container))]


@contextmanager
def _within(where: str) -> Iterator[None]:
    try:
        yield
    except JsonPatchError as error:
        raise JsonPatchError(f"{where}: {error}") from None


def _add(state: _State, operation: Operation) -> None:
    container, key, path = _destination(state, operation, "add")
    with _within(f"error in add for path: '{path}'"):
        _add_to(container, key, operation.get("value"))


def _remove(state: _State, operation: Operation) -> None:
    container, key, path = _destination(state, operation, "remove")
    with _within(f"error in remove for path: '{path}'"):
        _remove_from(container, key)


def _replace(state: _State, operation: Operation) -> None:
    path = _path(operation)
    if path is None:
        raise JsonPatchError("replace operation failed to decode path: operation missing path field: missing value")
    if path == "":
        value = operation.get("value")
        if not isinstance(value, dict | list):
            raise JsonPatchError("replace operation value must be object or array: %!w(<nil>)")
        state.document = value
        state.touched.add(id(value))
        return
    container, key = state.container(path)
    if container is None:
        raise JsonPatchError(f"replace operation does not apply: doc is missing path: {path}: missing value")
    if isinstance(container, dict):
        container[key] = operation.get("value")
        return
    try:
        container[_index(container, key, len(container))] = operation.get("value")
    except JsonPatchError:
        raise JsonPatchError(f"replace operation does not apply: doc is missing key: {path}: missing value") from None


def _source(state: _State, operation: Operation, verb: str) -> tuple[Json, str, Json]:
    """Where a move or copy takes its value from, and the value."""
    origin = _path(operation, "from")
    if origin is None:
        raise JsonPatchError(f"{verb} operation failed to decode from: operation, missing from field: missing value")
    container, key = state.container(origin)
    if container is None:
        raise JsonPatchError(f"{verb} operation does not apply: doc is missing from path: {origin}: missing value")
    with _within(f"error in {verb} for " + (f"path: '{key}'" if verb == "move" else f"from: '{origin}'")):
        return container, key, _get(container, key)


def _destination(
    state: _State, operation: Operation, verb: str, missing: str = 'path: "{}"'
) -> tuple[Json, str, str]:
    path = _path(operation)
    if path is None:
        raise JsonPatchError(f"{verb} operation failed to decode path: missing value")
    container, key = state.container(path)
    if container is None:
        raise JsonPatchError(f"{verb} operation does not apply: doc is missing {missing.format(path)}: missing value")
    return container, key, path


_ELSEWHERE: Final = "destination path: {}"


def _move(state: _State, operation: Operation) -> None:
    container, key, value = _source(state, operation, "move")
    with _within(f"error in move for path: '{key}'"):
        _remove_from(container, key)
    target, last, path = _destination(state, operation, "move", _ELSEWHERE)
    with _within(f"error in move for path: '{path}'"):
        _add_to(target, last, value)


def _copy(state: _State, operation: Operation) -> None:
    _, _, value = _source(state, operation, "copy")
    target, last, _ = _destination(state, operation, "copy", _ELSEWHERE)
    copied = _copied(state, value)
    with _within("error while adding value during copy"):
        _add_to(target, last, copied)


def _copied(state: _State, value: Json) -> Json:
    """A copy, once its size was found to be within what all copies of a patch may add."""
    if value is None:
        return None
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise JsonPatchError(f"error while performing deep copy: {error}") from None
    state.copied_bytes += len(text)
    if state.copied_bytes > COPIED_BYTES_MAX:
        raise JsonPatchError(
            f"Unable to complete the copy, the accumulated size increase of copy is {state.copied_bytes}, exceeding "
            f"the limit {COPIED_BYTES_MAX}"
        )
    return orjson.loads(text)


def _test(state: _State, operation: Operation) -> None:
    path = _path(operation)
    if path is None:
        raise JsonPatchError("test operation failed to decode path: operation missing path field: missing value")
    expected = operation.get("value")
    if path == "":
        found = state.document
    else:
        container, key = state.container(path)
        if container is None:
            raise JsonPatchError(f"test operation does not apply: is missing path: {path}: missing value")
        try:
            found = _get(container, key)
        except JsonPatchError as error:
            raise JsonPatchError(f"error in test for path: '{path}': {error}") from None
    if not equal(found, expected):
        raise TestFailed(f"testing value {path} failed: test failed")


def equal(left: Json, right: Json) -> bool:
    """JSON equality that distinguishes 1, 1.0 and true."""
    if left.__class__ is not right.__class__:
        return False
    if isinstance(left, dict):
        return len(left) == len(right) and all(key in right and equal(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


_ACTIONS: Final[dict[str, Callable[[_State, Operation], None]]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "test": _test,
    "copy": _copy,
}
