"""Definitions of custom resources and custom objects, as requests in their order: the same to both servers.

`record_custom.py` asks upstream and keeps its answers as facts; a unit test asks ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

Json = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "cases.example.com"
OBJECTS = f"/apis/{GROUP}/v1/namespaces/default"
JSON, MERGE = "application/json", "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Case(NamedTuple):
    """`await_names`: the definition is to be established before the next case. `until_code`: it is asked again until a
    changed definition makes it so."""

    method: str
    path: str
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    await_names: bool = False
    until_code: int = 0

    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else b"" if self.body is None else orjson.dumps(self.body)


def definition(name: str, schema: Any, **version: Any) -> Json:
    """Of one version; `name` is the plural, such as `gauges`."""
    kind = name.removesuffix("s").capitalize()
    spec = version.pop("spec", {})
    one = {"name": "v1", "served": True, "storage": True, **version}
    if schema is not None:
        one["schema"] = {"openAPIV3Schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": name, "kind": kind}, "versions": [one], **spec},
    }  # fmt: skip


def thing(kind: str, name: str, **members: Any) -> Json:
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, **members}


def of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


STRING, INTEGER, ANY = {"type": "string"}, {"type": "integer"}, {"x-kubernetes-preserve-unknown-fields": True}
_REFUSED_SCHEMAS: tuple[Any, ...] = (
    {}, {"type": "string"}, {"type": "object", "nullable": True}, {"type": "object", "additionalProperties": STRING},
    of(a={}), of(a={"type": "array"}), of(a={"type": "array", "items": {}}), of(a={"type": "blob"}), of(a={"type": "null"}),
    of(a={"type": "string", "pattern": "("}), of(a={"type": "string", "default": 3}), of(a={"type": "integer", "default": 1.5}),
    of(a={**INTEGER, "default": 3, "minimum": 4}), of(a={**of(b=STRING), "default": {"c": 1}}),
    of(a={"anyOf": [{"type": "integer"}, {"type": "string"}]}), of(a={"anyOf": [{"minimum": 3}], "type": "integer", "title": "x", "not": {"title": "y"}}),
    of(a={**of(b=STRING), "anyOf": [{"properties": {"c": {"minLength": 1}}}]}), of(a={**of(b=STRING), "allOf": [{"properties": {"b": {"type": "string"}}}]}),
    of(a={"type": "object", "x-kubernetes-embedded-resource": True}), of(a={"x-kubernetes-embedded-resource": True, **ANY}),
    of(a={"x-kubernetes-int-or-string": True, **ANY}), of(a={"type": "string", "x-kubernetes-list-type": "set"}),
    of(a={"type": "array", "items": STRING, "x-kubernetes-list-type": "heap"}), of(a={"type": "array", "items": STRING, "x-kubernetes-list-map-keys": ["b"]}),
    of(a={"type": "array", "items": STRING, "x-kubernetes-list-type": "map"}),
    of(a={"type": "array", "items": of(b=STRING), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"]}),
    of(a={"type": "array", "items": of(b=STRING), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["c"]}),
    of(a={"type": "array", "items": of(b=STRING), "x-kubernetes-list-type": "set"}), of(a={**STRING, "x-kubernetes-map-type": "atomic"}),
    of(a={**of(b=STRING), "x-kubernetes-map-type": "loose"}), of(a={**of(b=STRING), "additionalProperties": STRING}),
    of(a={"type": "array", "items": STRING, "uniqueItems": True}), of(metadata=of(labels={"type": "object"})), of(metadata={"type": "string"}),
    of(kind=INTEGER), of(apiVersion={"type": "string", "default": "x"}), of(a={"type": "array", "items": [STRING]}),
    of(a={"type": "string", "$ref": "#/x"}), of(a={"type": "object", "patternProperties": {"a": STRING}}), of(a={"type": "object", "id": "x"}),
    of(a={"type": "object", "x-kubernetes-preserve-unknown-fields": False}), of(a={"type": "object", "definitions": {"b": STRING}}),
)  # fmt: skip


def _changed(**spec: Any) -> Json:
    return definition("gauges", of(spec=ANY), spec=spec)


def _columns(*columns: Json) -> Json:
    return definition("gauges", of(spec=ANY), additionalPrinterColumns=list(columns))


_VERSION = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": of(spec=ANY)}}
_REFUSED_SPECS: tuple[Json, ...] = (
    _changed(group=""), _changed(group="example"), _changed(group="Not.A.Group"), _changed(group="other.example.com"),
    _changed(group="x.k8s.io"), _changed(scope=""), _changed(scope="World"), _changed(names={}), _changed(names={"plural": "gauges"}),
    _changed(names={"plural": "gauges", "kind": "Gauge", "listKind": "Gauge"}), _changed(names={"plural": "gauges", "kind": "1x"}),
    _changed(names={"plural": "gauges", "kind": "Gauge", "shortNames": ["A"], "categories": ["B c"]}), _changed(versions=[]),
    _changed(versions=[{**_VERSION, "storage": False}]), _changed(versions=[_VERSION, _VERSION]),
    _changed(versions=[_VERSION, {**_VERSION, "name": "v2"}]), _changed(versions=[{**_VERSION, "name": "V1"}]),
    _changed(preserveUnknownFields=True), _changed(conversion={"strategy": "Magic"}), _changed(conversion={"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}),
    definition("gauges", None), definition("gauges", of(spec=ANY), deprecationWarning="x"),
    definition("gauges", of(spec=ANY), deprecated=True, deprecationWarning=""), definition("gauges", of(spec=ANY), deprecated=True, deprecationWarning="a\nb"),
    definition("gauges", of(spec=ANY), subresources={"scale": {"specReplicasPath": "", "statusReplicasPath": "status.x"}}),
    definition("gauges", of(spec=ANY), subresources={"scale": {"specReplicasPath": ".status.a", "statusReplicasPath": ".spec.x", "labelSelectorPath": ".metadata.x"}}),
    definition("gauges", {**of(spec=ANY), "maxProperties": 3}, subresources={"status": {}}),
    _columns({"name": "", "type": "", "jsonPath": ""}), _columns({"name": "a", "type": "date-time", "format": "x", "jsonPath": "spec"}),
    definition("gauges", of(spec=of(a=STRING)), selectableFields=[{"jsonPath": ".spec.b"}, {"jsonPath": ""}, {"jsonPath": ".spec"}, {"jsonPath": "spec"}, {"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}]),
)  # fmt: skip

_FORMATS = {
    "date": ("2024-02-29", "2023-02-29", "0000-01-01", "x"), "date-time": ("2024-01-01T00:00:00Z", "2024-01-01t23:59:59.1+01:00", "2024-01-01", "2024-01-01T24:00:00Z"),
    "ipv4": ("1.2.3.4", "01.2.3.4", "1.2.3", "::1"), "ipv6": ("::1", "1.2.3.4", "::ffff:1.2.3.4", "fe80::1%eth0"), "cidr": ("10.0.0.0/8", "10.0.0.0/33", "::/0", "10.0.0.0"),
    "uri": ("http://a/b", "/a", "a", "a:b", ""), "email": ("a@b", "a", "a <b@c>"), "hostname": ("a.bc", "-a", "a_b", "a"), "mac": ("00:11:22:33:44:55", "0011.2233.4455", "00:11"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000", "123E4567E89B12D3A456426614174000", "1"), "uuid4": ("123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    "byte": ("YQ==", "YQ", ""), "duration": ("1h", "3 days", "1.5h", "x", "-1s", ""), "hexcolor": ("#fff", "fff0"), "ssn": ("123-45-6789", "123456789"), "creditcard": ("4111-1111-1111-1111", "4111"),
    "isbn": ("0321751043", "978-0321751041", "1"), "bsonobjectid": ("507f1f77bcf86cd799439011", "x"), "rgbcolor": ("rgb(1,2,3)", "rgb(300,2,3)"), "password": ("",),
    "k8s-short-name": ("a-b", "A"), "k8s-long-name": ("a.b", "a..b"), "unknown": ("anything",),
}  # fmt: skip

_GAUGE = of(
    spec={
        **of(
            size={**INTEGER, "default": 3, "minimum": 1, "maximum": 10, "multipleOf": 1}, ratio={"type": "number", "exclusiveMinimum": True, "minimum": 0, "multipleOf": 0.5},
            name={**STRING, "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"}, level={**STRING, "enum": ["low", "high"]}, count={**INTEGER, "format": "int32", "enum": [1, 2, 99999999999]},
            port={"x-kubernetes-int-or-string": True}, free=ANY, maybe={**STRING, "nullable": True, "default": "x"}, must={**STRING, "default": "y"},
            words={"type": "array", "items": STRING, "x-kubernetes-list-type": "set", "maxItems": 3, "minItems": 1}, map={"type": "object", "additionalProperties": INTEGER, "maxProperties": 2, "minProperties": 1},
            parts={"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"], "items": {**of(a=STRING, b={**INTEGER, "default": 1}, c=of(d=STRING)), "required": ["a"]}},
            inner={"type": "object", "x-kubernetes-embedded-resource": True, **ANY}, one={**INTEGER, "oneOf": [{"minimum": 5}, {"maximum": 7}]}, some={**INTEGER, "anyOf": [{"minimum": 5}, {"multipleOf": 2}]},
            all={**INTEGER, "allOf": [{"minimum": 5}, {"multipleOf": 2}]}, never={**INTEGER, "not": {"enum": [3]}}, flag={"type": "boolean"},
        ),
        "required": ["name"],
    },
    status=ANY,
)  # fmt: skip
_SPECS: tuple[Any, ...] = (
    {"name": "ab"}, {}, 3, None, {"name": "a"}, {"name": "abcde"}, {"name": "AB"}, {"name": 5}, {"name": "ab", "size": 0}, {"name": "ab", "size": 11}, {"name": "ab", "size": 2.0}, {"name": "ab", "size": 2.5},
    {"name": "ab", "size": None, "must": None, "maybe": None, "flag": None}, {"name": "ab", "ratio": 0}, {"name": "ab", "ratio": 1}, {"name": "ab", "ratio": 0.75}, {"name": "ab", "level": "mid"},
    {"name": "ab", "count": 3}, {"name": "ab", "count": 99999999999}, {"name": "ab", "port": 80}, {"name": "ab", "port": "x"}, {"name": "ab", "port": True}, {"name": "ab", "port": 1.5},
    {"name": "ab", "free": {"x": [1, None, {"y": 1.5}]}}, {"name": "ab", "unknown": {"x": 1}, "parts": [{"a": "x", "zz": 1, "c": {"e": 1}}]}, {"name": "ab", "words": ["a", "b", "a"]}, {"name": "ab", "words": []},
    {"name": "ab", "words": ["a", 1, None]}, {"name": "ab", "words": ["a", "b", "c", "d"]}, {"name": "ab", "map": {}}, {"name": "ab", "map": {"a": 1, "b": "x"}}, {"name": "ab", "map": {"a": 1, "b": 2, "c": 3}},
    {"name": "ab", "map": {"a": None}}, {"name": "ab", "parts": [{"a": "x"}, {"a": "x", "b": 1}]}, {"name": "ab", "parts": [{"a": "x"}, {"a": "x", "b": 2}]}, {"name": "ab", "parts": [{"b": 1}, None]},
    {"name": "ab", "parts": "x"}, {"name": "ab", "inner": {}}, {"name": "ab", "inner": {"kind": "A b", "apiVersion": "a/b/c", "metadata": {"name": "x", "bad": 1}}},
    {"name": "ab", "inner": {"kind": "A", "apiVersion": "v1", "metadata": {"labels": {"a": 1}}}}, {"name": "ab", "inner": {"kind": 3, "apiVersion": "v1"}}, {"name": "ab", "inner": {"kind": "Pod", "apiVersion": "v1", "x": 1}},
    {"name": "ab", "one": 6}, {"name": "ab", "one": 5}, {"name": "ab", "one": 1}, {"name": "ab", "some": 3}, {"name": "ab", "some": 4}, {"name": "ab", "all": 3}, {"name": "ab", "all": 4}, {"name": "ab", "all": 6},
    {"name": "ab", "never": 3}, {"name": "ab", "flag": "true"}, {"name": "ab", "flag": 1}, {"name": "\u00e9\u00e9"}, {"name": "ab\n"},
)  # fmt: skip


def cases() -> list[Case]:
    found = [Case("POST", f"{DEFINITIONS}?dryRun=All", definition("gauges", schema)) for schema in _REFUSED_SCHEMAS]
    found += [Case("POST", f"{DEFINITIONS}?dryRun=All", each) for each in _REFUSED_SPECS]
    found.append(Case("POST", DEFINITIONS, definition(
        "gauges", _GAUGE, subresources={"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
        additionalPrinterColumns=[
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}, {"name": "Name", "type": "string", "jsonPath": ".spec.name", "priority": 1},
            {"name": "Words", "type": "string", "jsonPath": ".spec.words"}, {"name": "First", "type": "string", "jsonPath": ".spec.words[0]"}, {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
            {"name": "Odd", "type": "integer", "jsonPath": ".spec.name"}, {"name": "When", "type": "date", "jsonPath": ".spec.level"},
        ],
        selectableFields=[{"jsonPath": ".spec.name"}, {"jsonPath": ".spec.size"}],
    ), await_names=True))  # fmt: skip
    gauges = f"{OBJECTS}/gauges"
    for index, spec in enumerate(_SPECS):
        found.append(Case("POST", f"{gauges}?fieldValidation=Ignore", thing("Gauge", f"g{index}", spec=spec)))
    found += [
        Case("POST", f"{gauges}?fieldValidation=Strict", thing("Gauge", "strict", spec={"name": "ab", "x": 1, "parts": [{"a": "x", "y": 1}]}, more=1)),
        Case("POST", f"{gauges}?fieldValidation=Strict", b'{"apiVersion":"cases.example.com/v1","kind":"Gauge","kind":"Gauge","metadata":{"name":"x","x":1},"spec":{"name":"ab","name":"cd"}}'),
        Case("POST", gauges, {"metadata": {"name": "x"}}), Case("POST", gauges, {"kind": "Gauge", "metadata": {"name": "x"}}), Case("POST", gauges, {"kind": "Pod", "apiVersion": "v1"}),
        Case("POST", gauges, {**thing("Meter", "x")}), Case("POST", gauges, b"[]"), Case("POST", gauges, b"x"), Case("POST", gauges, b""), Case("POST", gauges, thing("Gauge", "Not A Name")),
        Case("POST", gauges, thing("Gauge", "x") | {"metadata": {"name": "x", "labels": {"a": 1}}}), Case("POST", gauges, b"x", "text/plain"),
        Case("GET", gauges), Case("GET", gauges, accept=TABLE), Case("GET", f"{gauges}/g0"), Case("GET", f"{gauges}?fieldSelector=spec.name=ab,spec.size=2"), Case("GET", f"{gauges}?fieldSelector=spec.level=x"),
        Case("PATCH", f"{gauges}/g0", {"spec": {"size": 5}, "status": {"x": 1}}, MERGE), Case("PATCH", f"{gauges}/g0", {"spec": {"size": 50}}, MERGE), Case("PATCH", f"{gauges}/g0", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        Case("PATCH", f"{gauges}/g0", [{"op": "add", "path": "/spec/level", "value": "low"}], JSON_PATCH), Case("PATCH", f"{gauges}/g0", [{"op": "remove", "path": "/spec/name"}], JSON_PATCH),
        Case("PATCH", f"{gauges}/g0", {"kind": "Meter"}, MERGE), Case("PATCH", f"{gauges}/g0", {}, "application/strategic-merge-patch+json"),
        Case("PATCH", f"{gauges}/g0/status", {"status": {"size": 2}, "spec": {"size": 9}, "metadata": {"labels": {"c": "d"}}}, MERGE), Case("PATCH", f"{gauges}/g0/status", {"status": {"size": "x"}}, MERGE),
        Case("GET", f"{gauges}/g0/scale"), Case("PATCH", f"{gauges}/g0/scale", {"spec": {"replicas": 7}}, MERGE), Case("PATCH", f"{gauges}/g0/scale", {"spec": {"replicas": 70}}, MERGE),
        Case("PATCH", f"{gauges}/g0", {"metadata": {"finalizers": ["a.b", "c"]}}, MERGE), Case("GET", f"/apis/{GROUP}"), Case("GET", f"/apis/{GROUP}/v1"), Case("PUT", f"{gauges}/g0", thing("Gauge", "g0", spec={"name": "ab"})),
        Case("DELETE", f"{gauges}/g1"), Case("DELETE", f"{gauges}/g10"), Case("GET", f"{gauges}/g0/log"), Case("GET", f"/apis/{GROUP}/v2/gauges"),
        Case("PATCH", f"{DEFINITIONS}/gauges.{GROUP}", {"spec": {"scope": "Cluster"}}, MERGE), Case("PATCH", f"{DEFINITIONS}/gauges.{GROUP}", {"spec": {"names": {"kind": "Other", "plural": "others"}, "group": "x.y"}}, MERGE),
    ]  # fmt: skip
    formats = {name.replace("-", ""): {**STRING, "format": name} for name in _FORMATS}
    found.append(Case("POST", DEFINITIONS, definition("texts", of(**formats)), await_names=True))
    for name, texts in _FORMATS.items():
        for index, text in enumerate(texts):
            found.append(Case("POST", f"{OBJECTS}/texts", thing("Text", f"{name}-{index}", **{name.replace("-", ""): text})))
    return found


_HIDDEN = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp")


def warning_texts(headers: Iterable[str]) -> list[str]:
    """Of `299 - "text"`."""
    return [each[7:-1].replace('\\"', '"').replace("\\\\", "\\") for each in headers]


def seen(code: int, body: bytes, warnings: Sequence[str] = (), path: str = "") -> Any:
    """An answer, to a request of `path`, without what differs between two servers; errors sorted, as upstream's order of members is random."""
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return [code, body.decode("utf-8", "replace")]
    owners: list[Json] = []
    if isinstance(told, dict) and "fieldManager=" in path:
        # Who owns what stands only where all writes have named their managers.
        owners = (told.get("metadata") or {}).get("managedFields") or []
    told_owners = [{name: value for name, value in each.items() if name != "time"} for each in owners]
    told_owners.sort(key=lambda each: orjson.dumps(each, option=orjson.OPT_SORT_KEYS))
    told = [told, told_owners] if told_owners else told
    return [code, _plain(told), *([sorted(warnings)] if warnings else [])]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get("kind") == "Status":
            value = {**value, "message": sorted(re.split(r", (?=[\w.<])", (value.get("message") or "").removesuffix("]")))}
            value["message"] = sorted(re.split(r", |: \[", ", ".join(value["message"])))
            details = dict(value.get("details") or {})
            details["causes"] = sorted(details.get("causes") or (), key=lambda each: orjson.dumps(each, option=orjson.OPT_SORT_KEYS))
            value["details"] = details
        return {key: _plain(item) for key, item in sorted(value.items()) if key not in (*_HIDDEN, "storageVersionHash", "lastTransitionTime", "continue")}
    if isinstance(value, str):
        return re.sub(r"selfType\d+", "selfType", value)
    return [_plain(item) for item in value] if isinstance(value, list) else value
