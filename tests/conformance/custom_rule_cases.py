"""Rules in CEL of custom resources, as requests in their order: definitions, good or not, and objects under them."""

from __future__ import annotations

from typing import Any

from custom_cases import (
    DEFINITIONS,
    GROUP,
    INTEGER,
    JSON_PATCH,
    MERGE,
    OBJECTS,
    STRING,
    Case,
    Json,
    definition,
    of,
    thing,
)

RULES = "x-kubernetes-validations"
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def ruled(schema: Json, *rules: Any) -> Json:
    """With rules: texts, or with more than a text."""
    return {**schema, RULES: [{"rule": each} if isinstance(each, str) else each for each in rules]}


def listed(items: Any, **members: Any) -> Json:
    return {"type": "array", "items": items, **{f"x-kubernetes-{k}" if k.startswith("list") else k: v for k, v in members.items()}}


def mapped(values: Any, **members: Any) -> Json:
    return {"type": "object", "additionalProperties": values, **members}


def keyed(items: Any, *keys: str, **members: Any) -> Json:
    return {**listed(items, **members), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


_LINES = {"rule": "self.a ==\n'x'"}
_OF_A = of(a=STRING)
_REFUSED: tuple[Json, ...] = tuple(of(spec=each) for each in (
    ruled(_OF_A, "self.a == 3"), ruled(_OF_A, "self.b == 'x'"), ruled(_OF_A, "self.a"), ruled(_OF_A, "self.a =="), ruled(_OF_A, ""), ruled(_OF_A, " "),
    ruled(_OF_A, "true", "self.c", "1 + 'x'"), ruled(_OF_A, {"rule": "true", "message": " "}), ruled(_OF_A, {"rule": "true", "message": "a\nb"}), ruled(_OF_A, _LINES),
    ruled(_OF_A, {**_LINES, "message": "x"}), ruled(_OF_A, {"rule": "true", "messageExpression": " "}), ruled(_OF_A, {"rule": "true", "messageExpression": "3"}),
    ruled(_OF_A, {"rule": "true", "messageExpression": "self.b"}), ruled(_OF_A, {"rule": "true", "reason": "Odd"}), ruled(_OF_A, {"rule": "true", "reason": "FieldValueNotFound"}),
    ruled(_OF_A, {"rule": "true", "fieldPath": " "}), ruled(_OF_A, {"rule": "true", "fieldPath": "a"}), ruled(_OF_A, {"rule": "true", "fieldPath": ".b"}), ruled(_OF_A, {"rule": "true", "fieldPath": ".a\n"}),
    ruled(_OF_A, {"rule": "true", "fieldPath": ".a"}), ruled(_OF_A, {"rule": "true", "fieldPath": "['a']"}), ruled(_OF_A, {"rule": "true", "fieldPath": "['a"}), ruled(_OF_A, {"rule": "true", "fieldPath": "[a]"}),
    ruled(_OF_A, {"rule": "true", "fieldPath": ".a.b"}), ruled(_OF_A, {"rule": "true", "fieldPath": ".a[0]"}), ruled(mapped(STRING), {"rule": "true", "fieldPath": ".a"}), ruled(mapped(STRING), {"rule": "true", "fieldPath": "['a\\'b']"}),
    ruled(_OF_A, {"rule": "true", "optionalOldSelf": True}), ruled(_OF_A, {"rule": "true", "optionalOldSelf": False}), ruled(_OF_A, {"rule": "oldSelf.orValue(self).a == ''", "optionalOldSelf": True}),
    ruled(_OF_A, {"rule": "oldSelf.a == ''", "optionalOldSelf": True}), ruled(_OF_A, {"rule": "oldSelf.hasValue()"}), ruled(_OF_A, "self == oldSelf"),
    {"type": "array", "items": ruled(STRING, "self == oldSelf")}, keyed({**ruled(of(k=STRING), "self == oldSelf"), "required": ["k"]}, "k"), of(l=listed(of(m=ruled(STRING, "oldSelf == self")), **{"list-type": "atomic"})),
    mapped(ruled(STRING, "self == oldSelf"), maxProperties=3), ruled({"x-kubernetes-preserve-unknown-fields": True}, "true"), of(a=ruled(ANY, "has(self.b)")), of(a=ruled(listed({"x-kubernetes-preserve-unknown-fields": True}), "true")),
    ruled(of(a={"x-kubernetes-preserve-unknown-fields": True}), "self.a == 'x'"), of(a=ruled({"x-kubernetes-int-or-string": True}, "self == 3", "self == 'x'", "type(self) == int")), of(a=ruled(STRING, "self.matches('(')")),
    of(a=ruled(STRING, "self.matches('a+')", "self.contains(self)")), of(a=ruled({**STRING, "maxLength": 10}, "self.matches('a+')")), listed(ruled(STRING, "self.contains('x')")), listed(listed(ruled(STRING, "self.contains('x')"))),
    ruled(listed(STRING), "self.all(x, self.all(y, x == y))"), ruled(listed({**STRING, "maxLength": 10}, maxItems=10), "self.all(x, self.all(y, x == y))"), ruled(mapped(listed(INTEGER)), "self.all(k, self[k].all(i, i > 3))"),
    listed(listed(ruled({**STRING, "maxLength": 5}, {"rule": "self == ''", "messageExpression": "self + self"}), maxItems=1000), maxItems=100000), listed(ruled(INTEGER, "self > 3"), maxItems=0),
    of(a=ruled(mapped(STRING), "self.all(k, self.all(l, k == l))", "self.all(k, self.exists(l, self.exists(m, m + k == l)))")), of(a=ruled(of(b={**STRING, "format": "date-time"}), "self.b > timestamp('x')")),
    of(a=ruled(of(b={**STRING, "format": "date-time"}, c={**STRING, "format": "duration"}, d={**STRING, "format": "byte"}, e={**STRING, "format": "date"}), "self.b + self.c > self.e && self.d == b'x'", "self.b == 'x'")),
    of(a={**ruled(STRING, "self == 'x'"), "default": "y"}), of(a={**ruled(STRING, "self == 'x'"), "default": "x"}), of(a={**ruled(_OF_A, "self.a == 'x'"), "default": {"a": "y"}}),
    of(a={**ruled(STRING, {"rule": "oldSelf.hasValue()", "optionalOldSelf": True}), "default": "x"}), of(a={**STRING, "anyOf": [{RULES: [{"rule": "true"}]}]}), of(a={**STRING, "allOf": [{RULES: [{"rule": "true"}]}]}), of(a={**STRING, "not": {RULES: [{"rule": "true"}]}}),
    of(**{"a-b": ruled(STRING, "self != ''"), "2x": ruled(STRING, "self != ''"), "in": STRING}) | {RULES: [{"rule": "self.a__dash__b == self.__in__"}]}, ruled(_OF_A, "type(self) == type(self.a)"),
    ruled(_OF_A, "self.a + self == ''"), ruled(_OF_A, "self.a in [self]"), ruled(listed(_OF_A), "self[0] + 1 == 2"), ruled(mapped(_OF_A), "self['x'] + 1 == 2"), ruled(_OF_A, "authorizer.path('/x').check('get').allowed()"), ruled(_OF_A, "self.metadata.name == 'x'"),
    {**ruled(_OF_A, "true"), "x-kubernetes-list-type": "set"}, of(b=INTEGER, a=ruled({"type": "oops"}, "self.x")), ruled({**_OF_A, "required": ["a"]}, *(["self.a.contains('x')"] * 3)), listed(ruled({**_OF_A, "required": ["a"]}, *(["self.a.contains('x')"] * 5)), maxItems=50),
    ruled(of(e={**STRING, "enum": ["aa", "b"]}), "self.e.matches('a+')"), ruled(of(e={**STRING, "maxLength": 1000000}), "self.e.matches('^a+$') && self.e.contains('b')"), ruled(of(o=_OF_A, p=_OF_A), "self.o == self.p"),
)) + (
    ruled(_OF_A, "self.metadata.name == self.a"), ruled(_OF_A, "self.metadata.labels == {}"), ruled(_OF_A, "self.kind == 'x' && self.apiVersion.startsWith('x') && self.metadata.generateName == ''"), ruled(_OF_A, "self.spec == 3"),
    ruled(of(a={**ruled(ANY, "self.kind == ''"), "x-kubernetes-embedded-resource": True}), "self.a.metadata.name == ''"), ruled(of(metadata=of(name={**STRING, "maxLength": 5})), "self.metadata.name.matches('a+')"),
    of(status=ruled(_OF_A, "self.a")), of(a=ruled(_OF_A, "self.b"), b=ruled({**STRING, "pattern": "("}, "self.b")),
)  # fmt: skip

_NUMBERS = of(l=listed(INTEGER, maxItems=5), s=listed({**STRING, "maxLength": 9}, maxItems=5))
_WORDS = ("as", "for", "if", "import", "namespace", "package", "while")
_ALSO: tuple[Json, ...] = (
    *(ruled(of(**{word: STRING}), f"has(self.{form})") for word in _WORDS for form in (word, f"__{word}__")),
    *(ruled(of(**{word: STRING}), f"has(self.__{word}__)") for word in ("in", "null")),
    of(metadata=of(namespace=STRING), spec=of(t=ruled(of(metadata=of(namespace=STRING)), "!has(self.metadata.namespace)"))),
    ruled(_OF_A, "cel.bind(x, 1, x == 1)"), ruled(_OF_A, "authorizer.path('/').check('get').allowed()"),
    *(ruled(_NUMBERS, each) for each in (
        "self.l.sort().exists_one(e, e == -1)", "self.l.reverse().all(e, e > 0)", "self.l.slice(0, 3).all(e, e > 0)", "self.l.distinct().isSorted()",
        "[self.l, self.l].flatten().all(i, v, i < v)", "self.s.sort().all(e, e != '')", "self.s.sortBy(e, size(e)).all(e, e != '')",
        "self.l.sort().sort().sort().sort().all(e, e > 0)", "sets.contains(self.l, lists.range(3))", "sets.contains(self.l, lists.range(self.l[0]))",
        "lists.range(self.l[0]).all(e, e > 0)", "format.dns1123Label().validate(self.s[0]).hasValue()", "format.named(self.s[0]).hasValue()",
    )),
    *(of(a={**STRING, "pattern": each}) for each in (
        "[a-z-.]", r"[\w-.]+", r"^\p{Greek}+$", r"\p{Old_Italic}", "(?i)*", "a(?i)*", "(?i", r"\x{110000}", r"(?i:[^\W])",
    )),
)

_HOST: Json = of(
    spec=ruled(
        of(
            lo=INTEGER, hi=INTEGER, name=ruled(STRING, {"rule": "self == oldSelf", "message": " name is fixed "}), mode={**STRING, "maxLength": 20}, ratio=ruled({"type": "number"}, "self < 2.0"), flag=ruled({"type": "boolean"}, "self"),
            port=ruled({"x-kubernetes-int-or-string": True}, "type(self) == int ? self < 100 : self.endsWith('%')", "self > 3"), when=ruled({**STRING, "format": "date-time"}, "self > timestamp('2020-01-01T00:00:00Z')"),
            long=ruled({**STRING, "format": "duration"}, "self > duration('1h')"), day=ruled({**STRING, "format": "date"}, "self.getFullYear() > 2000"), data=ruled({**STRING, "format": "byte"}, "self == b'ab'"),
            words=ruled(listed({**STRING, "maxLength": 9}, maxItems=9, **{"list-type": "set"}), "self.all(w, w != 'bad')", {"rule": "self == oldSelf", "message": "words are fixed", "reason": "FieldValueForbidden"}),
            parts=ruled(keyed({**ruled(of(k=STRING, v=ruled(INTEGER, {"rule": "self >= oldSelf", "messageExpression": "self < 1 ? 'shrinks below one' : 'shrinks'"}), w=ruled(INTEGER, "self < 9")), "self.k != 'no'", {"rule": "oldSelf.hasValue() || self.v == 1", "optionalOldSelf": True}), "required": ["k"]}, "k", maxItems=9), "self.exists(p, p.k == 'a')"),
            plain=listed(ruled({**STRING, "maxLength": 9}, {"rule": "self.size() > 1", "reason": "FieldValueDuplicate"}), maxItems=9), bag=ruled(mapped(ruled(INTEGER, "self != 3", {"rule": "self >= oldSelf"}), maxProperties=9), "self.all(k, k.startsWith('a'))"),
            deep=of(er={**ruled(of(x=STRING, y=STRING), {"rule": "has(self.x) != has(self.y)", "fieldPath": ".x", "reason": "FieldValueRequired", "message": "one of x and y"}, {"rule": "self.x != 'z'", "fieldPath": "['y']", "messageExpression": "self.x + '!'"})}),
            maybe={**ruled({**STRING, "nullable": True}, "self != 'x'")}, atom={**ruled(mapped(INTEGER, maxProperties=3), "self == oldSelf"), "x-kubernetes-map-type": "atomic"}, **{"a-b": ruled(STRING, "self != 'x'"), "in": STRING, "1a": ruled(STRING, "self != 'x'")},
            inner={**ruled({**ANY, **of(spec=of(x=INTEGER))}, "self.metadata.name != 'bad' && self.kind == 'Pod'"), "x-kubernetes-embedded-resource": True}, limit={**INTEGER, "minimum": 1}, must={**STRING, "enum": ["u", "v"]}, heavy=listed({**INTEGER}, maxItems=80), loose={**ANY, **of(p=ruled(STRING, "self != 'x'"))},
        ),
        "!has(self.lo) || !has(self.hi) || self.lo <= self.hi",
        {"rule": "!has(self.mode) || self.mode in ['on', 'off']", "messageExpression": "'mode ' + self.mode + (self.mode == 'nl' ? '\\n' : '') + ' is none'", "fieldPath": ".mode"},
        {"rule": "!has(self.mode) || self.mode != 'err'", "messageExpression": "string(1 / 0)", "message": "mode err"}, {"rule": "!has(self.mode) || self.mode != 'empty'", "messageExpression": "' '"},
        {"rule": "!has(self.mode) || !has(oldSelf.mode) || oldSelf.mode == self.mode || self.mode == 'on'", "message": "mode goes on alone"}, "!has(self.a__dash__b) || !has(self.__in__) || self.a__dash__b == self.__in__",
        "has(self.lo) && self.lo == 77 ? 1 / (self.lo - 77) > 0 : true", "has(self.heavy) ? self.heavy.all(a, self.heavy.all(b, self.heavy.exists(c, c == a + b - a - b + c))) : true", "!has(self.maybe) || self.maybe != 'y'", {"rule": "!has(self.lo) || self.lo != 66", "reason": "FieldValueInvalid"},
    ),
    status=ruled(of(n=ruled(INTEGER, "self >= oldSelf")), "!has(self.n) || self.n < 100"),
) | {RULES: [{"rule": "self.metadata.name.size() < 9", "fieldPath": ".metadata.name"}, {"rule": "!has(self.status) || !has(self.status.n) || self.status.n != 13"}]}
"""Not to be taken as one: `fieldPath` into metadata is no path of the schema."""
_RULED: Json = {**_HOST, RULES: [{"rule": "self.metadata.name.size() < 9"}, *_HOST[RULES][1:]]}

_SPECS: tuple[Json, ...] = (
    {}, {"lo": 1, "hi": 2}, {"lo": 2, "hi": 1}, {"lo": 77}, {"lo": 66}, {"mode": "on"}, {"mode": "x"}, {"mode": "nl"}, {"mode": "err"}, {"mode": "empty"}, {"ratio": 1}, {"ratio": 2}, {"ratio": 2.5}, {"flag": True}, {"flag": False},
    {"port": 5}, {"port": 500}, {"port": "5%"}, {"port": "x"}, {"when": "2024-01-01T00:00:00Z"}, {"when": "2010-01-01T00:00:00.5+01:00"}, {"long": "2h"}, {"long": "3 days"}, {"long": "1s"}, {"day": "2024-02-29"}, {"day": "1999-01-01"}, {"data": "YWI="}, {"data": "YWE="},
    {"words": ["a", "bad"]}, {"words": []}, {"parts": [{"k": "a", "v": 1}]}, {"parts": [{"k": "no", "v": 1}]}, {"parts": [{"k": "a"}]}, {"parts": [{"k": "a", "v": 2}]}, {"parts": [{"k": "a", "v": 1, "w": 9}]}, {"plain": ["aa", "a", "b"]}, {"bag": {"a": 3, "b": 1}}, {"bag": {}},
    {"deep": {"er": {}}}, {"deep": {"er": {"x": "z"}}}, {"deep": {"er": {"x": "1", "y": "2"}}}, {"deep": {"er": {"y": "2"}}}, {"maybe": None}, {"maybe": "x"}, {"maybe": "y"}, {"atom": {"a": 1}}, {"a-b": "x"}, {"a-b": "y", "in": "z"}, {"1a": "x"},
    {"inner": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}}}, {"inner": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ok"}, "spec": {"x": 1}}}, {"inner": {"apiVersion": "v1", "kind": "Pod"}}, {"inner": {"apiVersion": "v1", "kind": "Job", "metadata": {"name": "ok"}}},
    {"limit": 0, "lo": 2, "hi": 1}, {"must": "w", "lo": 2, "hi": 1}, {"lo": "x", "hi": 1}, {"heavy": [1, 2]}, {"heavy": list(range(80))}, {"loose": {"p": "x", "q": 1}},
)  # fmt: skip
_CHANGES: tuple[tuple[Json, Json], ...] = (
    ({"name": "a"}, {"name": "a"}), ({"name": "a"}, {"name": "b"}), ({}, {"name": "b"}), ({"name": "a"}, {}), ({"mode": "on"}, {"mode": "off"}), ({"mode": "off"}, {"mode": "on"}), ({"words": ["a", "b"]}, {"words": ["b", "a"]}), ({"words": ["a", "b"]}, {"words": ["b", "c"]}),
    ({"parts": [{"k": "a", "v": 1}]}, {"parts": [{"k": "a", "v": 0}]}), ({"parts": [{"k": "a", "v": 1}, {"k": "b", "v": 1}]}, {"parts": [{"k": "b", "v": 0}, {"k": "a", "v": 2}]}), ({"parts": [{"k": "a", "v": 1}]}, {"parts": [{"k": "a", "v": 5}, {"k": "c", "v": 2}]}),
    ({"bag": {"a": 2}}, {"bag": {"a": 1}}), ({"bag": {"a": 2}}, {"bag": {"a": 2, "ab": 1}}), ({"atom": {"a": 1}}, {"atom": {"a": 2}}), ({"maybe": None}, {"maybe": "a"}), ({"plain": ["aa"]}, {"plain": ["a", "aa"]}),
)  # fmt: skip
_WORSE: Json = {
    "lo": 2, "hi": 1, "flag": False, "bag": {"b": 3}, "plain": ["a"], "parts": [{"k": "no", "v": 1}, {"k": "x", "w": 99}], "deep": {"er": {"x": "1", "y": "2"}}, "a-b": "x", "limit": 0,
}  # fmt: skip
_RATCHETED: tuple[Json, ...] = (
    {}, {"lo": 3}, {"bag": {"b": 3, "c": 4}}, {"plain": ["a", "b"]}, {"parts": [{"k": "x", "w": 99}, {"k": "no", "v": 1}]}, {"parts": [{"k": "x", "w": 99, "v": 2}, {"k": "no", "v": 1}]}, {"deep": {"er": {"x": "1", "y": "3"}}}, {"loose": {"p": "x", "q": 2}}, {"loose": {"p": "x"}},
    {"flag": None}, {"a-b": "y"}, {"limit": 0, "lo": 4}, {"limit": -1},
)  # fmt: skip


def cases() -> list[Case]:
    found = [Case("POST", f"{DEFINITIONS}?dryRun=All", definition("probes", schema)) for schema in (*_REFUSED, *_ALSO, _HOST)]
    found.append(Case("POST", DEFINITIONS, definition("probes", _RULED, subresources={"status": {}}), await_names=True))
    probes = f"{OBJECTS}/probes"
    found += [Case("POST", probes, thing("Probe", f"p{index}", spec=spec)) for index, spec in enumerate(_SPECS)]
    found += [Case("POST", probes, thing("Probe", "toolongname", spec={})), Case("POST", probes, thing("Probe", "nospec"))]
    for index, (before, after) in enumerate(_CHANGES):
        found.append(Case("POST", probes, thing("Probe", f"c{index}", spec=before)))
        found.append(Case("PATCH", f"{probes}/c{index}", [{"op": "replace", "path": "/spec", "value": after}], JSON_PATCH))
    status = f"{probes}/c0/status"
    found += [Case("PATCH", status, {"status": {"n": n}}, MERGE) for n in (5, 4, 13, 100, 6)]
    found += [Case("PATCH", status, {"status": None}, MERGE), Case("PATCH", status, {"status": {"n": 1}, "spec": {"lo": 3, "hi": 1}}, MERGE)]
    # What was wrong before its rules came may stay as it is.
    found.append(Case("POST", DEFINITIONS, definition("relics", of(spec=ANY), subresources={"status": {}}), await_names=True))
    relics = f"{OBJECTS}/relics"
    found += [Case("POST", relics, thing("Relic", f"r{index}", spec=_WORSE)) for index in range(len(_RATCHETED))]
    strict = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties", "value": _RULED["properties"]}]
    found.append(Case("PATCH", f"{DEFINITIONS}/relics.{GROUP}", strict, JSON_PATCH))
    found.append(Case("POST", relics, thing("Relic", "new", spec=_WORSE), until_code=422))
    found += [Case("PATCH", f"{relics}/r{index}", {"spec": change, "metadata": {"labels": {"a": "b"}}}, MERGE) for index, change in enumerate(_RATCHETED)]
    found.append(Case("PATCH", f"{relics}/r0/status", {"status": {"n": 5}}, MERGE))
    return found
