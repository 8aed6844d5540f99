"""Server-side apply of custom resources, as requests in their order; every object begins with an apply."""

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

APPLY = "application/apply-patch+yaml"
_PRESERVES = {"x-kubernetes-preserve-unknown-fields": True}


def _list(items: Json, kind: str = "", *keys: str) -> Json:
    found: Json = {"type": "array", "items": items}
    found |= {"x-kubernetes-list-type": kind} if kind else {}
    return found | ({"x-kubernetes-list-map-keys": list(keys)} if keys else {})


_ITEM = {**of(a=STRING, b={**INTEGER, "default": 1}, c=of(d=STRING), e=_list(STRING, "set")), "required": ["a"]}
_SCHEMA = of(
    spec=of(
        size=INTEGER, name=STRING, words=_list(STRING, "set"), parts=_list(_ITEM, "map", "a", "b"), plain=_list(STRING), deep=of(er=of(x=STRING, y=STRING)), whole={**of(x=STRING, y=STRING), "x-kubernetes-map-type": "atomic"},
        bag={"type": "object", "additionalProperties": STRING}, lists={"type": "object", "additionalProperties": _list(STRING, "set")}, free={"type": "object", **_PRESERVES}, any=_PRESERVES, half={**of(known=_list(STRING, "set")), **_PRESERVES},
        port={"x-kubernetes-int-or-string": True}, when={**STRING, "format": "date-time"}, empty={"type": "object"}, inner={"type": "object", "x-kubernetes-embedded-resource": True, **of(spec=of(x=INTEGER)), **_PRESERVES},
        default={**STRING, "default": "d"}, maybe={**STRING, "nullable": True}, numbers=_list(INTEGER, "set"), ruled={**INTEGER, "x-kubernetes-validations": [{"rule": "self < 5"}]},
    ),
    status=of(replicas=INTEGER, note=STRING),
)  # fmt: skip
_ONE = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}, "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}}}
_TWO = {**_ONE, "name": "v2", "storage": False, "schema": {"openAPIV3Schema": of(spec=of(size=INTEGER, name=STRING, words=_list(STRING), bag={"type": "object", "additionalProperties": STRING}), status=of(replicas=INTEGER))}}
_SHAPE = definition("shapes", None, spec={"versions": [_ONE, _TWO]})
_FREE = definition("blobs", {"type": "object", **_PRESERVES})
_SPECS: tuple[tuple[str, Json], ...] = (
    ("one", {"size": 1, "name": "a", "words": ["x", "y"], "bag": {"a": "1"}}), ("two", {"words": ["z"], "bag": {"b": "2"}}), ("two", {"words": ["x"], "bag": {"a": "3"}}), ("one", {"size": 1, "words": ["y"]}),
    ("one", {"parts": [{"a": "k", "c": {"d": "1"}, "e": ["p"]}, {"a": "k", "b": 2}]}), ("two", {"parts": [{"a": "k", "b": 1, "c": {"d": "2"}}]}), ("two", {"parts": [{"a": "k", "b": 1, "e": ["q"]}, {"a": "l"}]}), ("one", {"parts": [{"a": "k", "b": 2}]}),
    ("one", {"plain": ["a", "b"], "whole": {"x": "1"}, "deep": {"er": {"x": "1"}}}), ("two", {"plain": ["a", "b"], "deep": {"er": {"y": "2"}}}), ("two", {"plain": ["b"]}), ("two", {"whole": {"y": "1"}}), ("two", {"whole": {"x": "1"}}),
    ("one", {"lists": {"a": ["1"]}, "free": {"a": {"b": [1, 2]}, "c": None}, "any": {"a": [1]}, "half": {"known": ["a"], "un": {"k": ["a"]}}}), ("two", {"lists": {"a": ["2"], "b": []}, "free": {"a": {"d": 1}}, "any": {"b": 1}, "half": {"known": ["b"], "un": {"l": 1}}}),
    ("two", {"free": {"a": {"b": [3]}}}), ("two", {"any": 3}), ("one", {"any": [1]}), ("one", {"port": 1, "when": "2024-01-01T00:00:00Z", "empty": {"x": 1}}), ("two", {"port": "x"}), ("one", {"port": None}),
    ("one", {"inner": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"x": 1, "y": [1]}}}), ("two", {"inner": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"c": "d"}}}}), ("two", {"inner": {"apiVersion": "v1", "kind": "Pod", "metadata": {"odd": 1}}}),
    ("one", {"odd": 1}), ("one", {"size": "x"}), ("one", {"name": 3}), ("one", {"words": ["x", "x"]}), ("one", {"words": [None]}), ("one", {"numbers": [1, 1.0]}), ("one", {"numbers": [1, 2]}), ("two", {"numbers": [2, 3]}), ("one", {"words": "x"}), ("one", {"parts": [{"b": 1}]}), ("one", {"parts": [{"a": "k"}, {"a": "k"}]}),
    ("one", {"parts": [{"a": "k", "odd": 1}]}), ("one", {"parts": [{"a": None}]}), ("one", {"ruled": 7}), ("one", {"ruled": 3}), ("one", {"default": None, "maybe": None}), ("two", {"default": "e"}), ("two", {"maybe": "x"}), ("one", {}), ("two", {}),
)  # fmt: skip


def cases() -> list[Case]:
    found = [Case("POST", DEFINITIONS, _SHAPE, await_names=True), Case("POST", DEFINITIONS, _FREE, await_names=True)]
    shapes, newer = f"{OBJECTS}/shapes", f"/apis/{GROUP}/v2/namespaces/default/shapes"

    def applied(name: str, manager: str, members: Json, more: str = "", at: str = shapes, kind: str = "Shape", **over: Any) -> Case:
        config = {**thing(kind, name.partition("/")[0], **members), **over}
        return Case("PATCH", f"{at}/{name}?fieldManager={manager}{more}", config, APPLY)

    for manager, spec in _SPECS:
        found += [applied("a", manager, {"spec": spec}), applied("a", manager, {"spec": spec}, "&force=true")]
    for index, (manager, spec) in enumerate(_SPECS):
        found.append(applied(f"b{index}", manager, {"spec": spec}))
    v2 = f"{GROUP}/v2"
    found += [
        applied("c", "one", {"spec": {"size": 2, "words": ["a"]}, "status": {"note": "x"}}), applied("c/status", "st", {"status": {"replicas": 1}, "spec": {"size": 5}}), applied("c/status", "st2", {"status": {"replicas": 2}}), applied("c/status", "st2", {"status": {"replicas": 2}}, "&force=true"),
        applied("none/status", "st", {"status": {"replicas": 1}}), Case("PATCH", f"{shapes}/c/status?fieldManager=p", {"status": {"note": "y"}}, MERGE),
        Case("PATCH", f"{shapes}/c?fieldManager=p", {"spec": {"name": "n", "words": ["a", "b"]}}, MERGE), Case("PATCH", f"{shapes}/c?fieldManager=q", [{"op": "add", "path": "/spec/bag", "value": {"k": "v"}}], JSON_PATCH),
        applied("c", "one", {"spec": {"size": 2, "name": "m"}}), applied("c", "one", {"spec": {"size": 2, "name": "m"}}, "&force=true"), applied("c", "two", {"spec": {"words": ["b"]}}, at=newer), applied("c", "two", {"spec": {"words": ["b"]}}, at=newer, apiVersion=v2),
        applied("c", "two", {"spec": {"words": ["b"], "size": 3}}, "&force=true", at=newer, apiVersion=v2), applied("c", "one", {"spec": {"size": 3}}), applied("c", "three", {"spec": {"words": ["q"]}}), applied("c", "three", {"spec": {"deep": {}}}, at=newer, apiVersion=v2),
        applied("c", "one", {}, kind="Other"), applied("c", "one", {}, apiVersion="v1"), applied("c", "one", {}, metadata={"name": "d"}), applied("c", "one", {}, metadata={"name": "c", "managedFields": []}), applied("c", "one", {}, metadata={"name": "c", "resourceVersion": "1"}),
        applied("c", "", {}), applied("c", "one", {}, "&dryRun=All"), Case("PATCH", f"{shapes}/c?fieldManager=one", b"spec: [", APPLY), Case("PATCH", f"{shapes}/c?fieldManager=one", b"[]", APPLY),
        Case("PATCH", f"{shapes}/c?fieldManager=one", f"apiVersion: {GROUP}/v1\nkind: Shape\nspec: {{size: 3, size: 3}}\n".encode(), APPLY),
        Case("PATCH", f"{shapes}/c?fieldManager=one", {}, "application/strategic-merge-patch+json"),
    ]  # fmt: skip
    read, by_scale = Case("GET", f"{shapes}/s?fieldManager="), Case("PATCH", f"{shapes}/s/scale?fieldManager=m", {"spec": {"replicas": 5}}, MERGE)
    found += [applied("s", "one", {"spec": {"size": 2, "name": "n"}}), by_scale, read, applied("s", "one", {"spec": {"size": 2, "name": "n"}}), applied("s", "one", {"spec": {"name": "n"}}), read]
    blobs = f"{OBJECTS}/blobs"
    for manager, more in (("one", ""), ("two", ""), ("two", "&force=true")):
        for members in ({"spec": {"a": [1], "b": {"c": 1}}, "x": 1}, {"spec": {"b": {"d": 2}}, "x": 2}, {"spec": {"a": [2]}, "y": None}):
            found.append(applied("x", manager, members, more, blobs, "Blob"))
    return found
