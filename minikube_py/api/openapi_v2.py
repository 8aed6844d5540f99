"""OpenAPI version 2, made of the documents of version 3: for kubectl before 1.27 and other clients.

What version 2 cannot say - alternatives, `nullable`, types beside a reference - is left
out as upstream leaves it out. In protobuf it is gnostic's `openapi.v2.Document`.

Source: kube-openapi pkg/builder, apiextensions-apiserver pkg/controller/openapi/v2, gnostic-models openapiv2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api import yaml_text
from minikube_py.api.protobuf_writing import sized, varint

Json = dict[str, Any]
_V3: Final = "#/components/schemas/"
_V2: Final = "#/definitions/"
GVK: Final = "x-kubernetes-group-version-kind"
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"
_BEYOND: Final = frozenset(("default", "oneOf", "anyOf", "allOf", "not", "nullable"))
_SPECIAL: Final[dict[str, Json]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
}
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
TOKEN: Final = {
    "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header",
}  # fmt: skip


class Entry(NamedTuple):
    """A path, a definition or a parameter with its name, as a member in JSON and as a field in protobuf."""

    json: bytes
    protobuf: bytes


class Part(NamedTuple):
    """What one group-version adds to the document."""

    info: Json
    paths: dict[str, Entry]
    definitions: dict[str, Entry]


def part(told: Json) -> Part:
    """Of a group-version's document in version 3."""
    paths = {path: _path(item) for path, item in told["paths"].items()}
    schemas = {name: definition(name, schema) for name, schema in told["components"]["schemas"].items()}
    return Part(
        told["info"],
        {path: entry("PathItem", path, item) for path, item in paths.items()},
        {name: entry("Schema", name, in_order(schema)) for name, schema in schemas.items()},
    )


def in_order(schema: Json) -> Json:
    if GVK in schema:
        schema[GVK].sort(key=lambda kind: (kind["group"], kind["version"]))
    return schema


def entry(message: str, name: str, value: Json) -> Entry:
    """`message`: PathItem, Schema or Parameter."""
    inner, put = _NAMED_IN[message]
    packed = sized(inner, _text(1, name) + put(2, value))
    return Entry(b"%b:%b" % (orjson.dumps(name), orjson.dumps(value)), packed)


def whole(
    info: Json, paths: dict[str, Entry], definitions: dict[str, Entry], parameters: dict[str, Entry]
) -> Generator[None, None, tuple[bytes, bytes]]:
    """The document in JSON and in protobuf; yields between steps."""
    named = [[each[name] for name in sorted(each)] for each in (paths, definitions, parameters)]
    yield
    members = [b",".join(each.json for each in group) for group in named]
    yield
    fields = [b"".join(each.protobuf for each in group) for group in named]
    yield
    head = {"swagger": "2.0", "info": info}
    tail = {"securityDefinitions": {"BearerToken": TOKEN}, "security": [{"BearerToken": []}]}
    more = b'"parameters":{%b},' % members[2] if parameters else b""
    middle = b'"paths":{%b},"definitions":{%b},%b' % (*members[:2], more)
    text = b"%b,%b%b" % (orjson.dumps(head)[:-1], middle, orjson.dumps(tail)[1:])
    yield
    shared = sized(10, fields[2]) if parameters else b""
    packed = _packed("Document", head), sized(8, fields[0]), sized(9, fields[1]), shared, _packed("Document", tail)
    return text, b"".join(packed)


def definition(name: str, schema: Json) -> Json:
    if schema.get(_PRESERVES):
        # Objects that keep unknown fields are just objects.
        return {"type": "object", GVK: schema[GVK]}
    return _schema(schema) | _SPECIAL.get(name, {})


def _reference(ref: str) -> str:
    return _V2 + ref.removeprefix(_V3)


def _schema(schema: Json) -> Json:
    """A schema in version 2. Nullable values have no type, so that upstream's clients accept anything."""
    if "$ref" in schema:
        return {"$ref": _reference(schema["$ref"])}
    found = {name: value for name, value in schema.items() if name not in _BEYOND}
    every = schema.get("allOf", ())
    if len(every) == 1 and "$ref" in every[0]:
        return {**found, "$ref": _reference(every[0]["$ref"])}
    whole = not schema.get("nullable")
    kept = whole and not schema.get(_PRESERVES)
    if schema.get(_PRESERVES) and schema.get("x-kubernetes-embedded-resource"):
        _put(found, "required", [each for each in found.get("required", ()) if each not in ("apiVersion", "kind")])
    if "properties" in found:
        properties = found.pop("properties")
        if kept:
            found["properties"] = {name: _schema(part) for name, part in properties.items()}
            needed = [name for name in found.get("required", ()) if not properties.get(name, {}).get("nullable")]
            _put(found, "required", needed)
    if "items" in found:
        items = found.pop("items")
        if kept:
            found["items"] = _schema(items)
    if isinstance(more := found.get("additionalProperties"), dict):
        if more.get("nullable"):
            found.pop("required", None)
        found["additionalProperties"] = _schema(more)
    untold = found.get("type") == "object" if not kept else found.get("type") == "array" and "items" not in found
    if not whole or untold:
        found.pop("type", None)
    return found


def _put(found: Json, name: str, value: list[Any]) -> None:
    found.pop(name, None)
    found.update({name: value} if value else {})


# --- paths ----------------------------------------------------------------------------------------------------------


def _path(item: Json) -> Json:
    found: Json = {method: _operation(item[method]) for method in _METHODS if method in item}
    return {**found, "parameters": [_parameter(each) for each in item["parameters"]]} if "parameters" in item else found


def _operation(operation: Json) -> Json:
    body = operation.get("requestBody", {}).get("content", {})
    answered = operation["responses"]["200"].get("content", {})
    built_in = "x-kubernetes-action" in operation and not {PROTOBUF, "*/*"}.isdisjoint(answered)
    parameters = [_parameter(each) for each in operation.get("parameters", ())]
    if body:
        required = {"required": True} if operation["requestBody"].get("required") else {}
        schema = _schema(next(iter(body.values()))["schema"])
        parameters.insert(0, {"name": "body", "in": "body", **required, "schema": schema})
    kept = {name: value for name, value in operation.items() if name.startswith("x-") or name in _KEPT}
    found = {**kept, "schemes": ["https"], "produces": list(answered)}
    consumed = list(body or (("*/*",) if built_in else answered))
    if body or built_in or "$ref" in next(iter(answered.values()))["schema"]:
        found["consumes"] = consumed
    if parameters:
        found["parameters"] = parameters
    return {**found, "responses": {code: _response(each) for code, each in operation["responses"].items()}}


_KEPT: Final = ("description", "tags", "operationId")


def _parameter(parameter: Json) -> Json:
    schema = parameter.get("schema", {})
    return {**{name: value for name, value in parameter.items() if name != "schema"}, **schema}


def _response(response: Json) -> Json:
    schemas = [_schema(each["schema"]) for each in response.get("content", {}).values()]
    return {"description": response["description"], **({"schema": schemas[0]} if schemas else {})}


# --- protobuf -------------------------------------------------------------------------------------------------------

_Put = Callable[[int, Any], bytes]


def _text(number: int, value: Any) -> bytes:
    return sized(number, str(value).encode()) if value else b""


def _texts(number: int, values: Any) -> bytes:
    """A list; of a type, which may be one text, too."""
    return b"".join(sized(number, each.encode()) for each in ([values] if isinstance(values, str) else values))


def _whole(number: int, value: Any) -> bytes:
    return varint(number << 3) + varint(int(value)) if value else b""


def _double(number: int, value: Any) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value) if value else b""


_OFTEN_BYTES_MAX: Final = 1024
"""Longer values are not the few that come again and again."""


@lru_cache(4096)
def _yaml(text: bytes) -> bytes:
    return yaml_text.write(orjson.loads(text)).replace(b"''", b'""')


def _any(number: int, value: Any) -> bytes:
    """A value of any kind, as YAML; the same few come again and again."""
    text = orjson.dumps(value)
    return sized(number, sized(2, _yaml(text) if len(text) <= _OFTEN_BYTES_MAX else _yaml.__wrapped__(text)))


def _all(put: _Put) -> _Put:
    return lambda number, values: b"".join(put(number, value) for value in values)


def _within(*numbers: int, put: _Put) -> _Put:
    """Inside messages that have this one member: the fields on the way, from the outermost."""

    def wrapped(number: int, value: Any) -> bytes:
        data = put(numbers[-1], value)
        for each in reversed((number, *numbers[:-1])):
            data = sized(each, data)
        return data

    return wrapped


def _named(inner: int, put: _Put) -> _Put:
    """A map as a message of names and values in its field `inner`."""

    def wrapped(number: int, values: Any) -> bytes:
        return sized(number, b"".join(sized(inner, _text(1, name) + put(2, each)) for name, each in values.items()))

    return wrapped


def _message(name: str) -> _Put:
    return lambda number, value: sized(number, _packed(name, value))


def _packed(name: str, value: Json) -> bytes:
    """A message's fields in their order, and what begins with `x-` as its extensions."""
    extensions, fields = _MESSAGES[name]
    parts = [put(number, value[key]) for key, (number, put) in fields.items() if key in value]
    more = [sized(extensions, _text(1, key) + _any(2, each)) for key, each in value.items() if key.startswith("x-")]
    return b"".join((*parts, *more))


def _more(number: int, value: Any) -> bytes:
    """What further members are: a schema, or whether there may be any."""
    return sized(number, _whole(2, value) if isinstance(value, bool) else _message("Schema")(1, value))


def _parameter_of(number: int, value: Json) -> bytes:
    return _PLACES[value["in"]](number, value)


def _parameters(number: int, values: Any) -> bytes:
    def one(each: Json) -> bytes:
        return sized(2, _text(1, each["$ref"])) if "$ref" in each else _parameter_of(1, each)

    return b"".join(sized(number, one(each)) for each in values)


_PLACES: Final[dict[str, _Put]] = {
    "body": _within(1, put=_message("Body")),
    "header": _within(2, 1, put=_message("Path")),  # Its fields have the numbers of a path's,
    "formData": _within(2, 2, put=_message("Query")),  # and these those of a query's.
    "query": _within(2, 3, put=_message("Query")),
    "path": _within(2, 4, put=_message("Path")),
}
_OPERATIONS: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}
_MESSAGES: Final[dict[str, tuple[int, dict[str, tuple[int, _Put]]]]] = {
    "Document": (16, {
        "swagger": (1, _text), "info": (2, _message("Info")), "paths": (8, _named(2, _message("PathItem"))),
        "definitions": (9, _named(1, _message("Schema"))), "parameters": (10, _named(1, _parameter_of)),
        "security": (12, _all(_named(1, _within(1, put=_texts)))),
        "securityDefinitions": (13, _named(1, _within(2, put=_message("ApiKey")))),
    }),
    "Info": (7, {"title": (1, _text), "version": (2, _text)}),
    "ApiKey": (5, {"type": (1, _text), "name": (2, _text), "in": (3, _text), "description": (4, _text)}),
    "PathItem": (10, {
        **{method: (number, _message("Operation")) for method, number in _OPERATIONS.items()},
        "parameters": (9, _parameters),
    }),
    "Operation": (13, {
        "tags": (1, _texts), "description": (3, _text), "operationId": (5, _text), "produces": (6, _texts),
        "consumes": (7, _texts), "parameters": (8, _parameters),
        "responses": (9, _named(1, _within(1, put=_message("Response")))), "schemes": (10, _texts),
    }),
    "Response": (5, {"description": (1, _text), "schema": (2, _within(1, put=_message("Schema")))}),
    "Body": (6, {
        "description": (1, _text), "name": (2, _text), "in": (3, _text), "required": (4, _whole),
        "schema": (5, _message("Schema")),
    }),
    "Query": (23, {
        "required": (1, _whole), "in": (2, _text), "description": (3, _text), "name": (4, _text), "type": (6, _text),
        "format": (7, _text), "uniqueItems": (20, _whole),
    }),
    "Path": (22, {
        "required": (1, _whole), "in": (2, _text), "description": (3, _text), "name": (4, _text), "type": (5, _text),
        "format": (6, _text), "uniqueItems": (19, _whole),
    }),
    "Schema": (31, {
        "$ref": (1, _text), "format": (2, _text), "title": (3, _text), "description": (4, _text), "default": (5, _any),
        "multipleOf": (6, _double), "maximum": (7, _double), "exclusiveMaximum": (8, _whole), "minimum": (9, _double),
        "exclusiveMinimum": (10, _whole), "maxLength": (11, _whole), "minLength": (12, _whole), "pattern": (13, _text),
        "maxItems": (14, _whole), "minItems": (15, _whole), "uniqueItems": (16, _whole), "maxProperties": (17, _whole),
        "minProperties": (18, _whole), "required": (19, _texts), "enum": (20, _all(_any)),
        "additionalProperties": (21, _more), "type": (22, _within(1, put=_texts)),
        "items": (23, _within(1, put=_message("Schema"))), "allOf": (24, _all(_message("Schema"))),
        "properties": (25, _named(1, _message("Schema"))),
        "readOnly": (27, _whole), "example": (30, _any),
    }),
}  # fmt: skip


_NAMED_IN: Final[dict[str, tuple[int, _Put]]] = {
    "PathItem": (2, _message("PathItem")), "Schema": (1, _message("Schema")), "Parameter": (1, _parameter_of),
}  # fmt: skip
"""The field of the paths, definitions or parameters that holds one of them."""


def protobuf(told: Json) -> bytes:
    """A whole document of version 2."""
    return _packed("Document", told)
