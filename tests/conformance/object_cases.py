"""What becomes of an object: drawn scripts of writes to one object each, the same to ours and to upstream.

A script is a list of requests in their order. `setup` comes before all scripts; `await_code` is asked again until it
answers 200, as a definition is served a moment after it was made.
"""

from __future__ import annotations

from typing import Any

from asking import JSON, Ask
from drawn_objects import JSON_PATCH, MERGE, VERSION
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

APPLY, YAML = "application/apply-patch+yaml", "application/yaml"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NUMBERS = "/apis/numbers.example.com/v1/namespaces/default/nums"

# --- numbers of custom objects ----------------------------------------------------------------------------------------

_INTEGER = {"type": "integer"}
_TOO_BIG = [{"rule": "self < 5 || self == 1000"}]
_FIELDS: dict[str, Any] = {
    "i": _INTEGER, "i32": {**_INTEGER, "format": "int32"}, "f": {"type": "number"}, "s": {"x-kubernetes-int-or-string": True},
    "l": {"type": "array", "items": _INTEGER}, "set": {"type": "array", "items": _INTEGER, "x-kubernetes-list-type": "set"},
    "m": {"type": "object", "additionalProperties": {"type": "number"}}, "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "d": {"type": "object", "default": {"a": 2.0}, "properties": {"a": _INTEGER, "b": {**_INTEGER, "default": 7.0}, "c": {"type": "number", "default": 1e22}}},
    "mul": {"type": "number", "multipleOf": 0.5}, "en": {"type": "number", "enum": [1, 2.0, 1.5]}, "str": {"type": "string"},
    "ci": {**_INTEGER, "x-kubernetes-validations": _TOO_BIG}, "cf": {"type": "number", "x-kubernetes-validations": [{"rule": "self < 5.0 || self > 100.5"}]},
}  # fmt: skip
_TEXTS = (
    "3.0", "3", "1e3", "1E+3", "1e18", "1e19", "1e21", "1e22", "1e-7", "0.00001", "-0", "-0.0", "0.0", "1.10", "1e6", "1.5",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616",
    "9007199254740993.0", "0.1", "1e23", "1e400", "2147483648", "2147483648.0", "123456789012345678901234567890.0",
    "5e-324", "4.0e0", '"3.0"', "true",
)  # fmt: skip
_PART = {"type": "object", "properties": _FIELDS}


def _definition() -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": _PART, "status": {**_PART, "default": {"f": 1.0}}}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"plural": "nums", "kind": "Num"}
    spec = {"group": "numbers.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": "nums.numbers.example.com"}, "spec": spec}


SETUP = (Ask("definition", "POST", DEFINITIONS, _definition()),)
AWAITED = (Ask("served", "GET", NUMBERS),)

_WRITES = {
    "put": JSON,
    "merge": MERGE,
    "apply": APPLY,
    "apply yaml": APPLY,
    "json": JSON_PATCH,
    "strategic": "application/strategic-merge-patch+json",
}


@st.composite
def numbers(draw: st.DrawFn, name: str) -> list[Ask]:
    """Creates and changes an object, with numbers in all the ways in."""
    path = f"{NUMBERS}/{name}"

    def body(part: str, version: str = "") -> str:
        field = draw(st.sampled_from(sorted(_FIELDS)))
        value = draw(st.sampled_from(_TEXTS))
        holds = {
            "l": f"[{value},3.0]",
            "set": f"[{value},3]",
            "m": f'{{"a":{value}}}',
            "any": f'{{"a":{value},"b":[{value}]}}',
            "d": f'{{"a":{value}}}',
        }
        meta = f'{{"name":"{name}"{version}}}'
        text = holds.get(field, value)
        return f'{{"apiVersion":"numbers.example.com/v1","kind":"Num","metadata":{meta},"{part}":{{"{field}":{text}}}}}'

    media = draw(st.sampled_from((JSON, YAML)))
    asks = [Ask("number created", "POST", f"{NUMBERS}?fieldManager=maker", body("spec"), media)]
    for _ in range(draw(st.integers(2, 6))):
        part = draw(st.sampled_from(("spec", "spec", "status")))
        sub = "/status" if part == "status" else ""
        way = draw(st.sampled_from(sorted(_WRITES)))
        method, query = "PUT" if way == "put" else "PATCH", f"?fieldManager={draw(st.sampled_from(('maker', 'one')))}"
        query += "&force=true" if "apply" in way else ""
        if way == "json":
            op = draw(st.sampled_from(("add", "replace", "test")))
            text = draw(st.sampled_from(("3", "3.0", "1e3", "1.5") if op == "test" else _TEXTS))
            sent = f'[{{"op":"{op}","path":"/{part}/{draw(st.sampled_from(("i", "f", "any")))}","value":{text}}}]'
        else:
            sent = body(part, f',"resourceVersion":"{VERSION}"' if way == "put" else "")
        sent = sent.replace(":", ": ") if way == "apply yaml" else sent
        asks.append(Ask(f"number by {way}", method, f"{path}{sub}{query}", sent, _WRITES[way]))
        asks.append(Ask("number read", "GET", path, accept=draw(st.sampled_from((JSON, JSON, YAML)))))
    return [
        *asks,
        Ask("numbers listed", "GET", f"{NUMBERS}?fieldSelector=metadata.name={name}"),
        Ask("number gone", "DELETE", path),
    ]


SCRIPTS: dict[str, Any] = {"numbers": numbers}
"""By name, what draws a script for an object of a given name."""


def drawn(number: int) -> SearchStrategy[list[Ask]]:
    return st.sampled_from(sorted(SCRIPTS)).flatmap(lambda each: SCRIPTS[each](f"{each}-{number}"))
