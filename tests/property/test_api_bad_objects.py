"""However an object is damaged, it is judged: with a 4xx at worst, and nothing shared changes.

Every node of every object of `validation_cases` is in turn removed, emptied, or put out of range.
"""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from validation_cases import CREATES, UPDATES

from minikube_py.api import strategy
from minikube_py.api.decode import decode
from minikube_py.api.errors import StatusError, invalid
from minikube_py.api.kind import EmptyCluster, Kind
from minikube_py.api.registry import REGISTRY
from minikube_py.api.tables import cells
from minikube_py.api.validation.dispatch import validate_create, validate_update

CONFORMANCE = pathlib.Path(__file__).parents[1] / "conformance"

Json = dict[str, Any]
BY_PLURAL = {resource.plural: resource for resource in reversed(REGISTRY.kinds)}
SIZE_LIMIT_BYTES = 5000
UPSTREAM_FAILURES = ("resource name may not be empty",)
"""What upstream answers with 500: it looks for a RuntimeClass whose name is empty."""


def damaged(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [0, -1, 1 << 31, -(1 << 63)]
    if isinstance(value, str):
        return ["", "/", "a/b/c", "\x00é", "-1", "9" * 30]
    if isinstance(value, list):
        return [[], value * 2]
    return [{}]


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        yield from nodes(part, (*path, key))


def variants(body: Json) -> Iterator[Json]:
    for path in nodes(body):
        holder = body
        for key in path[:-1]:
            holder = holder[key]
        for replacement in [*damaged(holder[path[-1]]), None]:
            out = copy.deepcopy(body)
            target: Any = out
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = replacement
            yield out


def judge(resource: Kind, body: Json) -> Json | None:
    """The object as it would be stored, or None where it is refused."""
    try:
        obj, _ = decode(resource, orjson.dumps(body), "application/json", "Ignore")
        metadata = obj.setdefault("metadata", {})
        if resource.namespaced:
            metadata["namespace"] = "default"
        resource.default(obj)
        strategy.prepare_for_create(resource, obj, EmptyCluster())
        if errors := validate_create(resource, obj):
            raise invalid(resource, metadata.get("name") or "", errors)
        resource.canonicalize(obj)
    except StatusError as refused:
        assert 400 <= refused.code < 500 or refused.message in UPSTREAM_FAILURES, refused.message
        orjson.dumps(refused.to_status())
        return None
    return obj


@pytest.mark.parametrize("plural", sorted({case.plural for case in CREATES}))
def test_damaged_objects_are_judged(plural: str) -> None:
    resource = BY_PLURAL[plural]
    for case in CREATES:
        if case.plural != plural or len(orjson.dumps(case.body)) > SIZE_LIMIT_BYTES:
            continue
        for body in variants(case.body):
            stored = judge(resource, body)
            if stored is not None and resource.stored:
                assert cells(resource, stored, 0.0)


@pytest.mark.parametrize("plural", sorted({case.plural for case in UPDATES}))
def test_damaged_updates_are_judged_and_leave_the_old_alone(plural: str) -> None:
    resource = BY_PLURAL[plural]
    done = set()
    for case in UPDATES:
        if case.plural != plural or (key := (orjson.dumps(case.stored), case.subresource)) in done:
            continue
        done.add(key)
        old = judge(resource, case.stored)
        assert old is not None
        old["metadata"] |= {"uid": "u", "resourceVersion": "5", "creationTimestamp": "2024-01-01T00:00:00Z"}
        before = orjson.dumps(old)
        for body in variants(orjson.loads(before)):
            try:
                new, _ = decode(resource, orjson.dumps(body), "application/json", "Ignore")
                new.setdefault("metadata", {})
                resource.default(new)
                strategy.prepare_for_update(resource, new, old, case.subresource, EmptyCluster())
                errors = validate_update(resource, new, old, case.subresource)
                orjson.dumps([error.cause() for error in errors])
            except StatusError as refused:
                assert 400 <= refused.code < 500 or refused.message in UPSTREAM_FAILURES, refused.message
            assert orjson.dumps(old) == before
