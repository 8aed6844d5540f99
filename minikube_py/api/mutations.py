"""MutatingAdmissionPolicy: applies a policy's mutations to one object. Pure: the caller has matched it.

Source: apiserver `pkg/admission/plugin/policy/mutating/{compilation,dispatcher}.go`,
`pkg/admission/plugin/policy/mutating/patch`, `pkg/cel/mutation/dynamic`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from minikube_py.api import json_patch
from minikube_py.api.admission_policies import COST_MAX, NoBudget, Policy
from minikube_py.api.apply import typed
from minikube_py.api.apply.managed_fields import field_manager
from minikube_py.api.apply.path_set import FIELD, INDEX, Path, shown
from minikube_py.api.apply.types import Ref, message_type
from minikube_py.api.decode import restored
from minikube_py.api.errors import Json, go_quote, internal
from minikube_py.api.kind import Kind
from minikube_py.api.schema import SCHEMA
from minikube_py.api.typed import DecodeError
from minikube_py.cel.environment import Expression
from minikube_py.cel.messages import Message
from minikube_py.cel.values import (
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    duration_text,
    pairs,
    timestamp_text,
    type_name,
)

Said = tuple[str, str, str]
"""Group, version and kind."""
Given = tuple[str, Said, Mapping[str, Any], Json | None, bool]
"""Subresource, kind, variables, the namespace, and whether only conditions are evaluated."""


class Mutated(NamedTuple):
    """`holds`: its conditions hold. `value`: the mutated object; None: no mutation was applied. `errors`: of the
    others."""

    holds: bool
    value: bytes | None = None
    errors: Sequence[str] = ()


class _Wrong(Exception):
    """Why a mutation cannot be applied, in upstream's words."""


class MutatingPolicy(Policy):
    @cached_property
    def _mutations(self) -> list[tuple[str, Expression | str]]:
        found = []
        for each in self._spec.get("mutations") or ():
            kind = each.get("patchType") or ""
            told = each.get(kind[:1].lower() + kind[1:]) or each.get("jsonPatch") or {}
            expression = told.get("expression") or ""
            found.append((kind, self.compiler.mutation(kind, expression)))
        return found

    def mutated(
        self, kind: Kind, sub: str, said: Said, bindings: Mapping[str, Any], namespace: Json | None, skipped: bool
    ) -> Mutated:
        """Of the object among the bindings, which is of the kind `said`. `skipped`: only conditions are evaluated.
        Raises: StatusError 500."""
        matched = self.matched(bindings)
        if matched.error or not matched.holds:
            return Mutated(False, errors=[matched.error] if matched.error else ())
        found, applied, errors = bindings["object"], False, []
        if skipped or found is None:
            return Mutated(True)
        bindings = {**bindings, "namespaceObject": namespace}
        for patch_type, expression in self._mutations:
            try:
                value = self._value(expression, {**bindings, "object": found})
                apply = _applied if patch_type == "ApplyConfiguration" else _patched
                found, applied = apply(kind, sub, said, found, value), True
            except (_Wrong, NoBudget) as error:
                errors.append(str(error))
        return Mutated(True, orjson.dumps(found) if applied else None, errors)

    def _value(self, expression: Expression | str, bindings: Mapping[str, Any]) -> Any:
        """Raises: _Wrong, NoBudget."""
        if isinstance(expression, str):
            raise _Wrong(expression)
        (value,), _ = self.evaluate([expression], bindings, COST_MAX)
        if type(value) is EvaluationError:
            raise _Wrong(str(value))
        return value


def _settled(kind: Kind, sub: str, said: Said, obj: Json, strict: bool) -> Json:
    """Decoded, with defaults. Raises: DecodeError."""
    part = kind.subresource(sub) if said[2] != kind.kind else None
    # A merge shares parts with its inputs.
    given, version = orjson.loads(orjson.dumps(obj)), _api_version(said)
    if part is None and given.get("apiVersion") == version:
        # It may be shown as another version that has the same form.
        given["apiVersion"] = kind.api_version
    after = restored(kind, part, given, strict)
    if part is None:
        kind.default(after)
    return {"kind": said[2], "apiVersion": version} | after | {"apiVersion": version}


def _api_version(said: Said) -> str:
    return f"{said[0]}/{said[1]}" if said[0] else said[1]


# --- what was evaluated, as JSON --------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """Raises: _Wrong."""
    if isinstance(value, Message):
        return {name: _plain(each) for name, each in value.fields.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        found = {}
        for key, each in pairs(value):
            if not isinstance(key, str):
                raise _Wrong(f"map key {go_quote(str(key))} is of type {type_name(key)}, not string")
            found[key] = _plain(each)
        return found
    if isinstance(value, Optional):
        return _plain(value.value) if value.present else None
    if isinstance(value, Timestamp):
        return timestamp_text(value)
    if isinstance(value, Duration):
        return duration_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        return int(value)
    raise _Wrong(f"{type_name(value)} is not JSON")


def _check_names(value: Any, path: str) -> None:
    """Checks that type names match their positions. Raises: _Wrong."""
    if wrong := list(_misnamed(value, path)):
        raise _Wrong("type mismatch: " + "\n".join(wrong))


def _misnamed(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Message):
        if value.of != path:
            wanted = f"expected {go_quote(path)}, which matches field name path from root Object type"
            yield f"unexpected type name {go_quote(value.of)}, {wanted}"
        for name, each in value.fields.items():
            yield from _misnamed(each, f"{path}.{name}")
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else value.values():
            yield from _misnamed(each, path)


# --- patches ----------------------------------------------------------------------------------------------------------


def _applied(kind: Kind, sub: str, said: Said, obj: Json, value: Any) -> Json:
    """Raises: _Wrong."""
    _check_names(value, "Object")
    patch = {**_plain(value), "kind": said[2], "apiVersion": _api_version(said)}
    ref = _type_of(kind, said)
    failed = "error applying patch: "
    try:
        typed.validate(patch, ref)
    except typed.TypedError as error:
        raise _Wrong(f"{failed}failed to convert patch object to typed object: {error}") from None
    if atomic := [shown(path) for path in _atomics(patch, ref, ())]:
        what = "may not mutate atomic arrays, maps or structs"
        raise _Wrong(f"{failed}invalid ApplyConfiguration: {what}: {', '.join(atomic)}")
    try:
        typed.validate(obj, ref, duplicates=True)
    except typed.TypedError as error:
        raise _Wrong(f"{failed}failed to convert original object to typed object: {error}") from None
    try:
        return _settled(kind, sub, said, typed.merge(obj, patch, ref), False)
    except typed.TypedError as error:
        raise _Wrong(f"{failed}failed to merge patch: {error}") from None
    except DecodeError as error:
        as_kind = f"{_api_version(said)}, Kind={said[2]}"
        raise _Wrong(f"unable to convert unstructured object to {as_kind}: {error}") from None


def _type_of(kind: Kind, said: Said) -> Ref:
    if said[2] == kind.kind:
        return field_manager(kind).type
    message = SCHEMA.kind(*said)
    assert message is not None, "what is sent to subresources has a message"
    return message_type(message.name)


def _atomics(value: Any, ref: Ref, path: Path) -> Iterator[Path]:
    atom = ref.atom
    if isinstance(value, dict) and atom.map is not None:
        if atom.map.atomic:
            yield path
        for name, each in value.items():
            declared = atom.map.fields.get(name)
            if declared is not None:
                yield from _atomics(each, declared.type, (*path, (FIELD, name)))
    if isinstance(value, list) and atom.list is not None:
        if not atom.list.associative:
            yield path
        for index, each in enumerate(value):
            yield from _atomics(each, atom.list.element, (*path, (INDEX, index)))


def _patched(kind: Kind, sub: str, said: Said, obj: Json, value: Any) -> Json:
    """Raises: _Wrong; StatusError 500."""
    try:
        after = json_patch.apply(orjson.loads(orjson.dumps(obj)), [_operation(each) for each in value])
    except json_patch.TestFailed:
        return _settled(kind, sub, said, obj, False)
    except json_patch.JsonPatchError as error:
        raise _Wrong(f"JSON Patch: {error}") from None
    try:
        return _settled(kind, sub, said, after, True)
    except DecodeError as error:
        raise internal(str(error)) from None


def _operation(given: Message) -> Json:
    """Raises: _Wrong."""
    fields = given.fields
    found = {"op": fields.get("op", ""), "path": fields.get("path", "")}
    if fields.get("from"):
        found["from"] = fields["from"]
    if "value" in fields:
        value = fields["value"]
        if isinstance(value, Message):
            _check_names(value, value.of)
        found["value"] = _plain(value)
    return found
