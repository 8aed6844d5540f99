"""Objects under drawn schemas: what is pruned, dropped and filled in where properties, values of any name, lists, and
what is preserved or embedded lie in one another."""

from __future__ import annotations

import random
from typing import Any, Final

from custom_cases import DEFINITIONS, OBJECTS, Case, Json, definition, of, thing

FIELDS: Final = 40
VALUES_OF_EACH: Final = 4
_NAMES: Final = ("a", "b", "c")
_SCALARS: Final[tuple[tuple[str, Any], ...]] = (("string", "x"), ("integer", 7), ("boolean", True))


def _schema(rng: random.Random, depth: int) -> Json:
    form = rng.choice(("scalar", "map", "list", "object", "object", "object", "object") if depth else ("scalar",))
    nullable = {"nullable": True} if rng.random() < 0.25 else {}
    if form == "scalar":
        name, value = rng.choice(_SCALARS)
        return {"type": name, **nullable, **({"default": value} if rng.random() < 0.4 else {})}
    if form == "map":
        return {"type": "object", "additionalProperties": _schema(rng, depth - 1), **nullable}
    if form == "list":
        return {"type": "array", "items": _schema(rng, depth - 1), **nullable}
    made = {**of(**{name: _schema(rng, depth - 1) for name in _NAMES if rng.random() < 0.6}), **nullable}
    if rng.random() < 0.3:
        made["x-kubernetes-preserve-unknown-fields"] = True
    if rng.random() < 0.15:
        made |= {"x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    elif rng.random() < 0.3:
        made["default"] = {}
    return made


def _value(rng: random.Random, schema: Json | None, depth: int) -> Any:
    """Mostly of the schema's type, with members that it does not name, and nulls."""
    if rng.random() < 0.15:
        return None
    if schema is None:
        return rng.choice((1, "y", {"a": 1, "z": {"a": 2}}, [{"b": 3, "z": None}])) if depth else 1
    form = schema["type"]
    if form == "array":
        return [_value(rng, schema["items"], depth - 1) for _ in range(rng.randint(0, 2))]
    if form != "object":
        return dict(_SCALARS)[form]
    extra = schema.get("additionalProperties")
    known = schema.get("properties", {})
    names = [name for name in (*_NAMES, "z") if rng.random() < 0.6]
    made = {name: _value(rng, known.get(name, extra), depth - 1) for name in names}
    if schema.get("x-kubernetes-embedded-resource"):
        made |= {"apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "z": 1}}
    return made


def cases() -> list[Case]:
    rng = random.Random(41)
    schemas = {f"f{number}": _schema(rng, 3) for number in range(FIELDS)}
    found = [Case("POST", DEFINITIONS, definition("shapes", of(spec=of(**schemas))), await_names=True)]
    for field, schema in schemas.items():
        for number in range(VALUES_OF_EACH):
            spec = {field: _value(rng, schema, 3)}
            validation = rng.choice(("Warn", "Ignore", "Ignore", "Strict"))
            path = f"{OBJECTS}/shapes?dryRun=All&fieldValidation={validation}"
            found.append(Case("POST", path, thing("Shape", f"{field}-{number}", spec=spec)))
    return found
