"""The fast checker agrees with the thorough reader; protobuf agrees with JSON; patches obey their laws."""

from __future__ import annotations

import base64
import copy
import datetime
import json
import struct
from collections.abc import Callable
from typing import Any

import jsonpatch
import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from minikube_py.api import json_patch, merge_patch
from minikube_py.api.decode import _fast, _thorough, decode, no_repeats, target
from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.core import CONFIGMAPS, PODS, REPLICATIONCONTROLLERS
from minikube_py.api.patch import STRATEGIC_MERGE_PATCH, apply_patch
from minikube_py.api.protobuf import decode_message
from minikube_py.api.registry import REGISTRY
from minikube_py.api.schema import SCHEMA, Field, Message, Type

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=1000), max_size=6)
WORDS = st.sampled_from(["", "a", "b", "name", "x/y", "0", "Always"])
QUANTITIES = st.sampled_from(["1", "100m", "0.5", "1Gi", "1e3", "0", "1000m", "5k"])
TIMES = st.sampled_from(["2024-01-02T03:04:05Z", "2024-01-02T03:04:05+01:00", "1999-12-31T23:59:59.5Z"])
MICRO_TIMES = st.sampled_from(["2024-01-02T03:04:05.000006Z", "2024-01-02T03:04:05.123456-02:00"])
RAW = st.dictionaries(WORDS, st.integers(-5, 5), max_size=2)
JUNK = st.one_of(st.none(), st.booleans(), st.integers(-(1 << 70), 1 << 70), st.floats(allow_nan=False), TEXT, RAW)

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.one_of(WORDS, TEXT),
    "bool": st.booleans(),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float64": st.integers(-1000, 1000),
    "bytes": st.binary(max_size=5).map(lambda data: base64.b64encode(data).decode()),
    "time": TIMES,
    "microtime": MICRO_TIMES,
    "quantity": QUANTITIES,
    "intorstring": st.one_of(st.integers(0, 70000), WORDS),
    "raw": RAW,
    "duration": st.just("1m0s"),
    "any": st.integers(0, 3),
    "schema-or": st.just({}),
    "uint8": st.integers(0, 255),
}
MESSAGES = [
    "core/v1.Pod", "core/v1.Service", "core/v1.Node", "core/v1.Secret", "coordination/v1.Lease", "core/v1.Event",
    "core/v1.ReplicationController", "core/v1.Endpoints", "authorization/v1.SelfSubjectAccessReview",
    "apps/v1.Deployment", "policy/v1.Eviction",
]  # fmt: skip


@st.composite
def values(draw: st.DrawFn, type: Type, depth: int) -> Any:
    if type.kind == "message":
        return draw(objects(SCHEMA.message(type.message), depth + 1))
    if type.kind == "list":
        assert type.element is not None
        return draw(st.lists(values(type.element, depth + 1), max_size=2))
    if type.kind == "map":
        assert type.element is not None
        return draw(st.dictionaries(WORDS, values(type.element, depth + 1), max_size=2))
    return draw(SCALARS[type.kind])


@st.composite
def objects(draw: st.DrawFn, message: Message, depth: int = 0) -> dict[str, Any]:
    names = sorted(name for name in message.fields if name not in ("kind", "apiVersion"))
    if not names or depth > 7:
        return {}
    chosen = draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
    return {name: draw(values(message.fields[name].type, depth)) for name in chosen}


@st.composite
def messages(draw: st.DrawFn) -> tuple[Message, dict[str, Any]]:
    message = SCHEMA.message(draw(st.sampled_from(MESSAGES)))
    return message, draw(objects(message))


def damaged(draw: Callable[[st.SearchStrategy[Any]], Any], value: Any) -> Any:
    """The value with something odd somewhere."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: damaged(draw, value[key])}
    if isinstance(value, list) and value and draw(st.booleans()):
        return [damaged(draw, value[0]), *value[1:]]
    if isinstance(value, dict) and draw(st.booleans()):
        return {**value, draw(WORDS): draw(JUNK)}
    return draw(JUNK)


def expected_of(message: Message) -> Any:
    known = SCHEMA.kinds_of(message.name)[0]
    return target(known["group"], known["version"], known["kind"])


SLOW = settings(max_examples=150, suppress_health_check=list(HealthCheck))


@SLOW
@given(messages())
def test_the_fast_way_gives_what_the_thorough_way_gives(drawn: tuple[Message, dict[str, Any]]) -> None:
    message, obj = drawn
    expected = expected_of(message)
    body = orjson.dumps(obj)
    thorough, problems = _thorough(expected, body, "application/json", True)
    assert problems == []
    fast = _fast(expected, body, True)
    assert fast is None or fast == thorough
    again, _ = _thorough(expected, orjson.dumps(thorough), "application/json", True)
    assert again == thorough, "what was read is its own canonical form"


@SLOW
@given(st.data())
def test_a_damaged_object_gets_one_verdict_from_both_ways(data: st.DataObject) -> None:
    message, obj = data.draw(messages())
    broken = damaged(data.draw, obj)
    assume(isinstance(broken, dict))
    expected = expected_of(message)
    try:
        body = orjson.dumps(broken)
    except TypeError:
        body = json.dumps(broken).encode()
    fast = _fast(expected, body, False)
    try:
        thorough, _ = _thorough(expected, body, "application/json", False)
    except StatusError as error:
        assert error.code == 400
        assert fast is None, error.message
        return
    assert fast is None or fast == thorough


@SLOW
@given(st.binary(max_size=40) | TEXT.map(str.encode) | st.sampled_from([b'{"a":[', b'{"a":1e999}', b'["\\ud800"]']))
def test_no_bytes_crash_the_reader(body: bytes) -> None:
    for media in ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf"):
        for prefix in (b"", b"k8s\x00", b'{"metadata":', b"metadata: "):
            try:
                decode(PODS, prefix + body, media)
            except StatusError as error:
                assert error.code == 400


LEAVES = st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["", ":", '":', '\\"', "a"]))
KEYS = st.sampled_from(["a", "b", ":", '"'])


@SLOW
@given(st.recursive(LEAVES, lambda inner: st.lists(st.tuples(KEYS, inner), max_size=3)))
def test_repeated_members_are_never_missed(tree: Any) -> None:
    repeated = False

    def write(node: Any) -> str:
        nonlocal repeated
        if not isinstance(node, list):
            return json.dumps(node)
        keys = [key for key, _ in node]
        repeated = repeated or len(set(keys)) < len(keys)
        return "{" + ",".join(f"{json.dumps(key)} : {write(item)}" for key, item in node) + "}"

    body = write(tree).encode()
    assume(body.startswith(b"{"))
    if no_repeats(body, orjson.loads(body)):
        assert not repeated


# --- protobuf -------------------------------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def delimited(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def seconds_of(text: str) -> tuple[int, int]:
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return int(moment.timestamp() // 1), moment.microsecond * 1000


def encoded(number: int, type: Type, value: Any) -> bytes:
    """An encoder of its own: JSON form to protobuf."""
    kind = type.kind
    if kind == "list" and type.named.endswith(("ExtraValue", "Verbs")):
        return delimited(number, b"".join(delimited(1, item.encode()) for item in value))
    if kind == "list":
        assert type.element is not None
        return b"".join(encoded(number, type.element, item) for item in value)
    if kind == "map":
        assert type.element is not None
        items = (delimited(1, key.encode()) + encoded(2, type.element, item) for key, item in value.items())
        return b"".join(delimited(number, item) for item in items)
    if kind in ("bool", "int32", "int64"):
        return varint(number << 3) + varint(int(value))
    if kind == "float64":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if kind == "string":
        return delimited(number, value.encode())
    return delimited(number, inner(type, value))


def inner(type: Type, value: Any) -> bytes:
    kind = type.kind
    if kind == "message":
        return encode(SCHEMA.message(type.message), value)
    if kind == "bytes":
        return base64.b64decode(value)
    if kind in ("time", "microtime"):
        seconds, nanos = seconds_of(value)
        return varint(1 << 3) + varint(seconds) + varint(2 << 3) + varint(nanos if kind == "microtime" else 0)
    if kind == "intorstring":
        if isinstance(value, str):
            return varint(1 << 3) + varint(1) + delimited(3, value.encode())
        return varint(1 << 3) + varint(0) + varint(2 << 3) + varint(value)
    if kind == "quantity":
        return delimited(1, value.encode())
    return delimited(1, orjson.dumps(value))


def encode(message: Message, obj: dict[str, Any]) -> bytes:
    found = b""
    for field in message.declared:
        if field.inline and field.number:
            embedded = SCHEMA.message(field.type.message)
            found += delimited(field.number, encode(embedded, {k: v for k, v in obj.items() if k in embedded.fields}))
        elif field.name in obj and field.number:
            found += encoded(field.number, field.type, obj[field.name])
    return found


def without_protobuf(message: Message, obj: dict[str, Any]) -> bool:
    """Whether the object holds fields that protobuf has no number for."""

    def bad(field: Field) -> bool:
        return not field.number and not field.embedded

    return any(bad(message.fields[name]) for name in obj)


@SLOW
@given(messages())
def test_protobuf_reads_as_the_same_json(drawn: tuple[Message, dict[str, Any]]) -> None:
    message, obj = drawn
    assume(not without_protobuf(message, obj))
    expected, _ = _thorough(expected_of(message), orjson.dumps(obj), "application/json", True)
    del expected["kind"], expected["apiVersion"]
    found = decode_message(message, encode(message, obj))
    assert drop_empty(found) == drop_empty(expected)


def drop_empty(value: Any) -> Any:
    """Protobuf cannot tell an empty list or map, or an absent struct, from none."""
    if isinstance(value, dict):
        kept = {key: drop_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [], None)}
    if isinstance(value, list):
        return [drop_empty(item) for item in value]
    return value


# --- patches --------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "b"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


@SLOW
@given(DOCUMENTS, DOCUMENTS)
def test_a_json_patch_of_the_difference_gives_the_other_document(left: Any, right: Any) -> None:
    operations = json.loads(jsonpatch.make_patch(left, right).to_string())
    assert json_patch.apply(copy.deepcopy(left), operations) == right


POINTERS = st.lists(st.sampled_from(["a", "b", "0", "1", "-"]), min_size=1, max_size=3).map(lambda p: "/" + "/".join(p))


def pointers_of(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Every place in a document, with what is there; and the places after the ends of its lists."""
    found = [(path, value)] if path else []
    if isinstance(value, list):
        found.append((f"{path}/-", None))
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += pointers_of(item, f"{path}/{key}")
    return found


@st.composite
def documents_and_patches(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    """Mostly of places that are there, so that a patch gets through its operations."""
    document = draw(DOCUMENTS)
    places = pointers_of(document)
    operations: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(1, 4))):
        op = draw(st.sampled_from(["add", "replace", "test", "test", "remove", "move", "copy"]))
        path, there = draw(st.sampled_from(places)) if places and draw(st.integers(0, 5)) else (draw(POINTERS), None)
        operation = {"op": op, "path": path}
        if op in ("add", "replace", "test"):
            operation["value"] = there if op == "test" and draw(st.integers(0, 3)) else draw(JSON)
        elif op in ("move", "copy"):
            operation["from"] = draw(st.sampled_from(places))[0] if places else draw(POINTERS)
        operations.append(operation)
    return document, operations


@SLOW
@given(documents_and_patches())
def test_json_patches_agree_with_an_independent_library(drawn: tuple[Any, list[dict[str, Any]]]) -> None:
    document, operations = drawn
    try:
        theirs = jsonpatch.apply_patch(copy.deepcopy(document), copy.deepcopy(operations))
    except jsonpatch.JsonPatchTestFailed:
        # A member that is not there passes for null, as in upstream.
        if all(op["value"] is not None for op in operations if op["op"] == "test"):
            with pytest.raises(json_patch.JsonPatchError):
                json_patch.apply(copy.deepcopy(document), copy.deepcopy(operations))
        return
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError, IndexError):
        # Ours is more lenient where upstream is, as in replacing a member that is not there.
        return
    try:
        ours = json_patch.apply(copy.deepcopy(document), copy.deepcopy(operations))
    except json_patch.JsonPatchError:
        # Moves into themselves and through nulls are refused by upstream; 1 and true are not equal.
        assert any(op["op"] in ("move", "copy", "test") for op in operations)
        return
    assert ours == theirs


def rfc_7386(target: Any, patch: Any) -> Any:
    """The RFC's own pseudo-code."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = rfc_7386(target.get(name), value)
    return target


def list_holds_object(value: Any) -> bool:
    if isinstance(value, list):
        return any(isinstance(item, dict | list) for item in value)
    return isinstance(value, dict) and any(map(list_holds_object, value.values()))


@SLOW
@given(DOCUMENTS, DOCUMENTS)
def test_merge_patches_obey_the_rfc(document: Any, patch: Any) -> None:
    assume(not list_holds_object(patch))
    expected = rfc_7386(copy.deepcopy(document), copy.deepcopy(patch))
    assert merge_patch.apply(copy.deepcopy(document), copy.deepcopy(patch)) == expected


def container(name: str, image: str) -> dict[str, Any]:
    return {"name": name, "image": image, "resources": {}}


CONTAINERS = st.lists(
    st.builds(container, st.sampled_from("abcde"), st.sampled_from(["i", "j"])),
    max_size=4,
    unique_by=lambda c: c["name"],
)


def controller(containers: list[dict[str, Any]]) -> dict[str, Any]:
    spec = {"containers": containers} if containers else {}
    template = {"metadata": {}, "spec": spec}
    return {
        "kind": "ReplicationController", "apiVersion": "v1", "metadata": {"name": "r"},
        "spec": {"template": template}, "status": {"replicas": 0},
    }  # fmt: skip


@SLOW
@given(CONTAINERS, CONTAINERS)
def test_strategic_merge_is_union_by_key_and_keeps_its_input(live: list[Any], patch: list[Any]) -> None:
    original = controller(live)
    before = copy.deepcopy(original)
    body = orjson.dumps({"spec": {"template": {"spec": {"containers": patch}}}})
    found = apply_patch(STRATEGIC_MERGE_PATCH, REPLICATIONCONTROLLERS, original, body, "Strict")
    assert original == before
    merged = {item["name"]: item for item in live} | {item["name"]: item for item in patch}
    # Upstream writes a required list without items as null.
    items = found["spec"]["template"]["spec"]["containers"] or []
    names = [item["name"] for item in items]
    assert sorted(names) == sorted(merged)
    assert {item["name"]: item["image"] for item in items} == {name: item["image"] for name, item in merged.items()}
    # Items of the patch keep the patch's order, the others the live one's.
    assert [name for name in names if name in {c["name"] for c in patch}] == [c["name"] for c in patch]
    rest = [name for name in names if name not in {c["name"] for c in patch}]
    assert rest == [c["name"] for c in live if c["name"] in rest]
    again = apply_patch(STRATEGIC_MERGE_PATCH, REPLICATIONCONTROLLERS, found, body, "Strict")
    assert again == found


@SLOW
@given(CONTAINERS, CONTAINERS)
def test_deletions_with_an_element_order_give_the_wanted_list(live: list[Any], wanted: list[Any]) -> None:
    """The patch as kubectl apply makes it turns the live list into the wanted one."""
    names = [item["name"] for item in wanted]
    gone = [{"name": item["name"], "$patch": "delete"} for item in live if item["name"] not in names]
    items = [*wanted, *gone]
    spec: dict[str, Any] = {"$setElementOrder/containers": [{"name": name} for name in names]}
    if items:
        spec["containers"] = items
    body = orjson.dumps({"spec": {"template": {"spec": spec}}})
    if not live and not items:
        return
    found = apply_patch(STRATEGIC_MERGE_PATCH, REPLICATIONCONTROLLERS, controller(live), body, "Strict")
    assert (found["spec"]["template"]["spec"]["containers"] or []) == wanted


@SLOW
@given(DOCUMENTS | JSON, st.sampled_from(["json-patch+json", "merge-patch+json", "strategic-merge-patch+json"]))
def test_no_patch_crashes(patch: Any, kind: str) -> None:
    metadata = {"name": "c", "labels": {"a": "b"}}
    original = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"a": "b"}}
    before = copy.deepcopy(original)
    for body in (patch, {"data": patch}, {"metadata": {"labels": patch}}, {"metadata": {"ownerReferences": patch}}):
        try:
            apply_patch(f"application/{kind}", CONFIGMAPS, original, orjson.dumps(body), "Strict")
        except StatusError as error:
            assert error.code in (400, 422)
        assert original == before


NESTS = {"lists": ("[", "]"), "objects": ('{"a":', "}"), "both": ('[{"b": ', "}]")}


def nested(levels: int, kind: str = "lists", leaf: str = "1") -> str:
    opening, closing = NESTS[kind]
    count = levels // 2 if kind == "both" else levels
    return opening * count + leaf + closing * count


@pytest.mark.parametrize("kind", NESTS)
@pytest.mark.parametrize("levels", [199, 200, 201, 254, 300, 1100, 9998])
def test_what_is_nested_deeply_is_read_as_upstream_reads_it(levels: int, kind: str) -> None:
    body = f'{{"metadata":{{"name":"a"}},"unknown":{nested(levels, kind)},"data":{{"a":"]}}"}}}}'.encode()
    found, warnings = decode(CONFIGMAPS, body, field_validation="Warn")
    assert warnings == ['unknown field "unknown"'] and found["data"] == {"a": "]}"} and "unknown" not in found
    assert decode(CONFIGMAPS, body, field_validation="Ignore") == (found, [])
    with pytest.raises(StatusError, match='unknown field "unknown"'):
        decode(CONFIGMAPS, body)
    original = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}
    for media, patch in (
        ("merge-patch", f'{{"unknown":{nested(levels, kind)},"data":{{"a":"b"}}}}'),
        ("strategic-merge-patch", f'{{"unknown":{nested(levels, kind)},"data":{{"a":"b"}}}}'),
        ("json-patch", f'[{{"op":"add","path":"/unknown","value":{nested(levels - 1, kind)}}},'
                       '{"op":"add","path":"/data","value":{"a":"b"}}]'),
    ):  # fmt: skip
        patched = apply_patch(f"application/{media}+json", CONFIGMAPS, original, patch.encode(), "Warn")
        assert patched["data"] == {"a": "b"} and "unknown" not in patched


@pytest.mark.parametrize("levels", [10_000, 20_000, 400_000])
def test_the_limit_of_nesting_is_upstreams(levels: int) -> None:
    for body in (f'{{"unknown":{nested(levels)}}}', '{"unknown":' + "[" * levels):
        with pytest.raises(StatusError, match=r"invalid character '\[' exceeded max depth"):
            decode(CONFIGMAPS, body.encode())


@pytest.mark.parametrize("levels", [300, 9000])
def test_what_is_wrong_deep_down_is_found(levels: int) -> None:
    for leaf, why in (("x", "invalid character 'x' looking for beginning of value"), ('"a', "unexpected end of JSON")):
        with pytest.raises(StatusError, match=why):
            decode(CONFIGMAPS, f'{{"unknown":{nested(levels, leaf=leaf)}}}'.encode())
    with pytest.raises(StatusError, match=r"cannot unmarshal array into Go struct field ConfigMap\.data of"):
        decode(CONFIGMAPS, f'{{"data":{{"a":{nested(levels)}}}}}'.encode())


def test_operations_that_nest_what_none_of_them_holds_are_refused() -> None:
    original = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}
    operations = [{"op": "add", "path": "/x" + "/x" * at, "value": {}} for at in range(1500)]
    with pytest.raises(StatusError, match="more deeply than 200 levels") as refused:
        apply_patch("application/json-patch+json", CONFIGMAPS, original, orjson.dumps(operations), "Warn")
    assert refused.value.code == 400


REVISIONS = next(kind for kind in REGISTRY.kinds if kind.plural == "controllerrevisions")


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
def test_what_would_be_kept_as_it_is_has_a_limit_of_its_own(validation: str) -> None:
    def revision(levels: int) -> bytes:
        return f'{{"metadata":{{"name":"a"}},"revision":1,"data":{nested(levels)}}}'.encode()

    found, _ = decode(REVISIONS, revision(199), field_validation=validation)
    assert orjson.dumps(found["data"]).decode() == nested(199)
    for levels in (200, 300, 2000):
        with pytest.raises(StatusError, match="more deeply than 200 levels"):
            decode(REVISIONS, revision(levels), field_validation=validation)

