"""Definitions whose schemas hold values of any JSON type at any place, `items` and `additionalProperties` included."""

from __future__ import annotations

import random
from typing import Any, Final

from custom_cases import DEFINITIONS, Case, definition, of

from minikube_py.api.schema import SCHEMA

DRAWN: Final = 150
FIELDS: Final = tuple(SCHEMA.message("apiextensions/v1.JSONSchemaProps").fields)
VALUES: Final[tuple[Any, ...]] = (
    None, "", "x", "5", 0, 5, -1, 1.5, 1 << 63, True, False, [], {}, [None], ["x"], [5], [{}], {"a": None}, {"a": 5},
    {"a": {}}, {"a": {"type": 5}}, {"type": "string"}, {"type": "string", "maxLength": "5"}, [{"type": "string"}],
    {"type": "string", "unknown": 1}, {"rule": 5}, [{"rule": 5}],
)  # fmt: skip


def _below(place: str, inner: Any) -> Any:
    if place == "items":
        return {"type": "array", "items": inner}
    if place == "additionalProperties":
        return {"type": "object", "additionalProperties": inner}
    if place == "properties":
        return of(b=inner)
    return {"type": "string", place: [inner] if place == "anyOf" else inner}


def _drawn(rng: random.Random, field: str) -> Any:
    """A schema with `field` of a drawn value, below one to three others."""
    schema: Any = {"type": rng.choice(("string", "object", "integer")), field: rng.choice(VALUES)}
    if rng.random() < 0.1:
        schema = rng.choice(VALUES)
    for _ in range(rng.choice((1, 1, 2, 3))):
        schema = _below(rng.choice(("items", "items", "additionalProperties", "properties", "not", "anyOf")), schema)
    return schema


def cases() -> list[Case]:
    rng = random.Random(36)
    schemas = [_drawn(rng, FIELDS[number % len(FIELDS)]) for number in range(DRAWN)]
    paths = [f"{DEFINITIONS}?dryRun=All{rng.choice(('', '', '&fieldValidation=Strict'))}" for _ in schemas]
    return [Case("POST", path, definition("gauges", of(a=schema))) for path, schema in zip(paths, schemas)]
