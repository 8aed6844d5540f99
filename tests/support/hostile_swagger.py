"""Documents of OpenAPI version 2 as a hostile server tells them: drawn from the schema of documents, with values of any
type at any place, long chains of levels, many kinds, names that collide, and references in circles."""

from __future__ import annotations

import random
from typing import Any, Final

from minikube_py.api.openapi_v2 import GVK

Shape = Any
"""A message's name, a tuple of a list's shape, a set of a map's shape, or None: anything."""
NAMES: Final = ("T", "T_v2", "T_v2_v2", "T_v3", "U", "$ref", "", 'a"b', "a\\b", "a/b~1", "é", GVK)
_LEVELS: Final = 4
_SCHEMA: Final[dict[str, Shape]] = {
    "$ref": "reference", "format": "text", "title": "text", "description": "text", "default": None,
    "multipleOf": "number", "maximum": "number", "exclusiveMaximum": "number", "minimum": "number",
    "maxLength": "number", "minLength": "number", "pattern": "text", "maxItems": "number", "uniqueItems": "number",
    "maxProperties": "number", "required": ("text",), "enum": (None,), "additionalProperties": "Schema",
    "type": "text", "items": "Schema", "allOf": ("Schema",), "properties": {"Schema"}, "readOnly": "number",
    "example": None, "discriminator": "text", "xml": None, "x-any": None, GVK: "kinds",
}  # fmt: skip
_PARAMETER: Final[dict[str, Shape]] = {
    "in": "place", "name": "text", "description": "text", "required": "number", "type": "text", "format": "text",
    "uniqueItems": "number", "schema": "Schema", "items": "Schema", "x-any": None, "$ref": "reference",
}  # fmt: skip
_MESSAGES: Final[dict[str, dict[str, Shape]]] = {
    "PathItem": {"get": "Operation", "head": "Operation", "parameters": ("Parameter",), "x-any": None},
    "Operation": {
        "tags": ("text",), "description": "text", "operationId": "text", "produces": ("text",), "consumes": ("text",),
        "parameters": ("Parameter",), "responses": {"Response"}, "schemes": ("text",), "x-any": None,
    },
    "Response": {"description": "text", "schema": "Schema", "headers": {"Schema"}, "$ref": "reference"},
    "Parameter": _PARAMETER,
    "Schema": _SCHEMA,
}  # fmt: skip
_ANYTHING: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 1 << 63, 1e308, -0.5, "", "x", "#/definitions/T", [], {}, [[]], [None], [1, "x"], {"": {}},
    {"$ref": 1}, {"$ref": "#/definitions/T"}, {"in": []}, {"in": "nowhere"}, [{"group": 1}],
)  # fmt: skip


class Hostile:
    """Draws documents; each place is of another type than it should be with the probability `wrong`."""

    def __init__(self, rng: random.Random, wrong: float) -> None:
        self._rng = rng
        self._wrong = wrong

    def document(self, root: str) -> Any:
        of = {"paths": "PathItem", "definitions": "Schema", "parameters": "Parameter"}
        return self._or_wrong({name: self._or_wrong(self._entries(root, name, shape)) for name, shape in of.items()})

    def _entries(self, root: str, of: str, shape: str) -> dict[str, Any]:
        rng = self._rng
        names = [each for each in NAMES if rng.random() < 0.7]
        there = [rng.choice((root, "/other/")) + each for each in names] if of == "paths" else names
        return {name: self._value(shape, _LEVELS) for name in there}

    def _or_wrong(self, value: Any) -> Any:
        return self._rng.choice(_ANYTHING) if self._rng.random() < self._wrong else value

    def _value(self, shape: Shape, levels: int) -> Any:
        return self._or_wrong(self._right(shape, levels))

    def _right(self, shape: Shape, levels: int) -> Any:
        rng = self._rng
        if shape is None:
            return rng.choice(_ANYTHING)
        if isinstance(shape, tuple):
            return [self._value(shape[0], levels - 1) for _ in range(rng.randrange(3))]
        if isinstance(shape, set):
            (within,) = shape
            return {name: self._value(within, levels - 1) for name in rng.sample(NAMES, rng.randrange(3))}
        if shape in _MESSAGES:
            return self._message(shape, levels)
        if shape == "kinds":
            return [self._kind() for _ in range(rng.choice((0, 1, 3, 400, 2000) if rng.random() < 0.1 else (1, 2)))]
        return {
            "text": rng.choice(("", "x", "body", "string")),
            "number": rng.choice((0, 1, -1, 1.5, True)),
            "place": rng.choice(("body", "query", "path", "header", "formData")),
            "reference": f"#/{rng.choice(('definitions', 'parameters', 'responses'))}/{rng.choice(NAMES)}",
        }[shape]

    def _message(self, shape: str, levels: int) -> Any:
        rng, fields = self._rng, _MESSAGES[shape]
        if levels <= 0:
            # A reference, or a chain of levels on one side or the other of any limit.
            value: Any = {"$ref": f"#/definitions/{rng.choice(NAMES)}"} if shape != "Parameter" else {"in": "header"}
            long = rng.choice((20, 40, 60, 95, 240, 600)) if shape == "Schema" and rng.random() < 0.02 else 0
            wrapped = rng.choice(("items", "additionalProperties"))
            for _ in range(long):
                value = {wrapped: value}
            return value
        chosen = rng.sample(sorted(fields), rng.randrange(min(6, len(fields))))
        found = {name: self._value(fields[name], levels - 1) for name in chosen}
        if shape == "Parameter" and ("$ref" not in found or levels == _LEVELS):
            # Those that are shared are no references.
            found.pop("$ref", None)
            return {"in": self._value("place", 0), **found}
        return found

    def _kind(self) -> Any:
        rng = self._rng
        value = {"group": f"g{rng.randrange(5000)}", "version": "v1", "kind": "K", "more": "x"}
        return self._or_wrong({name: self._or_wrong(each) for name, each in value.items() if rng.random() < 0.9})
