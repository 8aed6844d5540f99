"""Texts of more digits than `int` reads, in every field of every kind that holds a text: refused or stored, never an
error of the server; and controllers go on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from minikube_py.api.kind import Kind
from minikube_py.api.registry import REGISTRY
from minikube_py.api.schema import SCHEMA, Type
from minikube_py.cel.values import EvaluationError, duration_of, extended_duration_of
from minikube_py.cluster.virtual import VirtualCluster

LONG = "9" * 5000
TEXTS = (
    LONG, f"{LONG}%", f"{LONG}s", f"-{LONG}", f"1-{LONG}", f"v{LONG}", f"10.0.0.0/{LONG}", f"@every {LONG}s",
    f"[{LONG}]",
)  # fmt: skip
KINDS = [kind for kind in REGISTRY.kinds if kind.stored and "create" in kind.verbs]
DEPTH = 5
LEFT_OUT = frozenset(("kind", "apiVersion", "managedFields", "name", "generateName", "namespace"))


def places(type_: Type, depth: int) -> Iterator[tuple[Any, ...]]:
    """Paths to the texts in it; those in lists and maps lead to their first element."""
    if type_.kind == "message":
        for field in SCHEMA.message(type_.message).fields.values():
            if depth and field.name not in LEFT_OUT:
                yield from ((field.name, *rest) for rest in places(field.type, depth - 1))
    elif type_.kind == "list" and type_.element is not None:
        yield from ((0, *rest) for rest in places(type_.element, depth))
    elif type_.kind == "map" and type_.element is not None:
        yield from (("a", *rest) for rest in places(type_.element, depth))
    elif type_.kind in ("string", "intorstring", "duration", "time", "microtime", "quantity"):
        yield ()


def put(path: tuple[Any, ...], text: str) -> Any:
    value: Any = text
    for step in reversed(path):
        value = [value] if step == 0 else {step: value}
    return value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.group}/{kind.version}/{kind.plural}")
def test_no_text_of_digits_is_an_error_of_the_server(kind: Kind, served: VirtualCluster) -> None:
    message = SCHEMA.kind(kind.group, kind.version, kind.kind)
    assert message is not None
    path = _path(kind)
    fields = [field for field in message.fields.values() if field.name not in LEFT_OUT]
    count = 0
    for field in fields:
        for place in places(field.type, DEPTH):
            text = TEXTS[count % len(TEXTS)]
            obj = put((field.name, *place), text)
            obj["metadata"] = {"name": f"n{count}", **obj.get("metadata", {})}
            answer = served.request("POST", path, orjson.dumps(obj))
            assert answer.status < 500, (place, text[:12], answer.body[:300])
            count += 1
    served.advance(5)


def _path(kind: Kind) -> str:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{base}/namespaces/default/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"


@pytest.fixture(scope="module")
def served() -> Iterator[VirtualCluster]:
    with VirtualCluster(seed=1, nodes=1) as cluster:
        yield cluster


def test_durations_of_any_length_are_durations_or_none() -> None:
    assert duration_of(f"{LONG}s") is None and duration_of(f"0.{LONG}s") is not None
    assert extended_duration_of("3 days") is not None
    found = extended_duration_of(f"{LONG} days")
    assert found is None or not isinstance(found, EvaluationError)
