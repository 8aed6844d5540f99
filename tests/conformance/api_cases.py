"""Bodies and patches, good and bad, that are put to upstream's API server; `record_api.py` keeps its answers."""

from __future__ import annotations

import json
from typing import Any

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

CORE = "/api/v1/namespaces/default"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
Case = dict[str, Any]


def pod(**spec: Any) -> dict[str, Any]:
    base = {"containers": [{"name": "a", "image": "b"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {**base, **spec}}


def container(**fields: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "a", "image": "b", **fields}])


def body(
    name: str, content: Any, *, plural: str = "pods", content_type: str | None = JSON, validation: str = "Strict"
) -> Case:
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    key = "hex" if isinstance(text, bytes) else "body"
    value = text.hex() if isinstance(text, bytes) else text
    return {"name": name, key: value, "plural": plural, "content_type": content_type, "validation": validation}


def envelope(raw: bytes, kind: bytes = b"Pod") -> bytes:
    type_meta = b"\x0a\x02v1\x12" + bytes([len(kind)]) + kind
    return b"k8s\x00\x0a" + bytes([len(type_meta)]) + type_meta + b"\x12" + bytes([len(raw)]) + raw


def named(**rest: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, **rest}


DUPLICATE = json.dumps(pod()).replace('"image": "b"', '"image": "b", "image": "c"')
DUPLICATE_YAML = """apiVersion: v1
kind: Pod
kind: Pod
metadata: {name: x, foo: 1}
spec: {containers: [{name: a, image: b, image: c}]}
"""

BODIES: list[Case] = [
    body("content type: text", pod(), content_type="text/plain"),
    body("content type: none", pod(), content_type=None),
    body("content type: charset", pod(), content_type="application/json; charset=utf-8"),
    body("content type: upper case", pod(), content_type="Application/JSON"),
    body("content type: any", pod(), content_type="*/*"),
    body("content type: cbor", b"\xa0", content_type="application/cbor"),
    body("content type: a patch's", pod(), content_type=STRATEGIC),
    body("empty", ""),
    body("array", "[]"),
    body("string", '"a"'),
    body("number", "1"),
    body("unclosed", "{"),
    body("trailing garbage", "{} x"),
    body("bad literal", '{"a":tru}'),
    body("bad escape", '{"a":"\\q"}'),
    body("control character", '{"a":"\x01"}'),
    body("bare key", "{a:1}"),
    body("trailing comma", '{"a":1,}'),
    body("bad number", '{"a":1.}'),
    body("kind is a number", {"kind": 5}),
    body("KIND in capitals", {"KIND": "Pod", "apiVersion": "v1"}),
    body("unknown kind", {"kind": "Foo", "apiVersion": "v1"}),
    body("unknown version", {"kind": "Pod", "apiVersion": "v2"}),
    body("other kind", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}}),
    body("other group", {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "x"}}),
    body("list kind", {"kind": "PodList", "apiVersion": "v1"}),
    body("bad group version", {"kind": "Pod", "apiVersion": "a/b/c"}),
    body("options kind", {"kind": "DeleteOptions", "apiVersion": "v1"}),
    body("status kind", {"kind": "Status", "apiVersion": "v1"}),
    body("other version of an event", {"kind": "Event", "apiVersion": "events.k8s.io/v1", **named()}, plural="events"),
    body(
        "other version of a lease",
        {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1beta1", **named()},
        plural="leases",
    ),
    body("YAML: JSON", pod(), content_type=YAML),
    body("YAML: nested colon", "a: b: c", content_type=YAML),
    body("YAML: tab", "a:\n\t- b", content_type=YAML),
    body("YAML: unclosed flow", "a: [1, 2\nb: 3", content_type=YAML),
    body("YAML: unknown anchor", "a: *b", content_type=YAML),
    body("YAML: repeated keys", DUPLICATE_YAML, content_type=YAML),
    body("YAML: repeated keys, warned", DUPLICATE_YAML, content_type=YAML, validation="Warn"),
    body("YAML: yes", "metadata: {name: yes}", content_type=YAML, plural="configmaps"),
    body("YAML: words", 'metadata: {name: x}\ndata: {a: "yes", b: y}', content_type=YAML, plural="configmaps"),
    body("YAML: octal", "metadata: {name: x}\nspec: {priority: 010, containers: []}", content_type=YAML),
    body("unknown fields", pod(foo=1, bar={"a": 1})),
    body("unknown fields, warned", pod(foo=1, bar={"a": 1}), validation="Warn"),
    body("unknown fields, ignored", pod(foo=1), validation="Ignore"),
    body("repeated field", DUPLICATE),
    body("repeated field, warned", DUPLICATE, validation="Warn"),
    body("repeated field, ignored", DUPLICATE, validation="Ignore"),
    body("repeated label", '{"metadata":{"labels":{"a":"b","a":"c"},"name":"x","x y":1},"spec":{}}'),
    body("string for int", pod(priority="a")),
    body("int beyond 32 bits", pod(priority=1 << 40)),
    body("float for int", pod(priority=1.5)),
    body("exponent for int", json.dumps(pod(priority=7)).replace("7", "1e3")),
    body("string for bool", pod(hostNetwork="true")),
    body("object for list", pod(containers={})),
    body("string for struct", pod(containers=["a"])),
    body("number for label", {"metadata": {"name": "x", "labels": {"a": 1}}}),
    body("list for struct", {"metadata": []}),
    body("number for enum", pod(restartPolicy=1)),
    body("time: no time", {"metadata": {"creationTimestamp": "abc"}}),
    body("time: number", {"metadata": {"creationTimestamp": 5}}),
    body("time: month 13", {"metadata": {"creationTimestamp": "2024-13-01T00:00:00Z"}}),
    body("time: 30 February", {"metadata": {"creationTimestamp": "2024-02-30T00:00:00Z"}}),
    body("time: no zone", {"metadata": {"creationTimestamp": "2024-02-03T00:00:00"}}),
    body("time: trailing", {"metadata": {"creationTimestamp": "2024-02-03T00:00:00Zx"}}),
    body("micro time without fraction", named(spec={"renewTime": "2024-01-01T00:00:00Z"}), plural="leases"),
    body("quantity: bad", container(resources={"requests": {"cpu": "1x"}})),
    body("quantity: bool", container(resources={"requests": {"cpu": True}})),
    body("quantity: object", container(resources={"requests": {"cpu": {}}})),
    body("embedded struct", pod(volumes=[{"name": "a", "hostPath": 5}])),
    body("a fatal mistake after another", pod(volumes=[{"name": "a", "emptyDir": {"medium": 5, "sizeLimit": "z"}}])),
    body("two mistakes and an unknown field", pod(priority="a", hostNetwork=1, foo=2)),
    body("base64: bad", named(data={"a": "###"}), plural="secrets"),
    body("base64: short", named(data={"a": "YWI"}), plural="secrets"),
    body("base64: padding inside", named(data={"a": "YQ==YQ=="}), plural="secrets"),
    body("base64: one pad", named(data={"a": "YQ="}), plural="secrets"),
    body("base64: number", named(data={"a": 5}), plural="secrets"),
    body("base64: list of numbers", named(data={"a": [97, 98]}), plural="secrets"),
    body("base64: line breaks", named(data={"a": "YW\nI="}), plural="secrets"),
    body("int or string: bool", named(spec={"ports": [{"port": 1, "targetPort": True}]}), plural="services"),
    body("int or string: float", named(spec={"ports": [{"port": 1, "targetPort": 1.5}]}), plural="services"),
    body("int or string: object", named(spec={"ports": [{"port": 1, "targetPort": {}}]}), plural="services"),
    body("int or string: string", named(spec={"ports": [{"port": 1, "targetPort": "a"}]}), plural="services"),
    body("zero values", pod(hostNetwork=False, nodeSelector={}, tolerations=[], nodeName="", priority=None)),
    body("quantities made canonical", container(resources={"requests": {"cpu": "0.5", "memory": 1000}})),
    body("nulls", container(env=None, resources=None, command=["a", None])),
    body("null label", {**pod(), "metadata": {"name": "x", "labels": {"a": None}}}),
    body("fractional time", {**pod(), "metadata": {"name": "x", "managedFields": [], "annotations": {}}}),
    body("lone surrogate", '{"metadata":{"name":"x"},"data":{"a":"\\ud800b"}}', plural="configmaps"),
    body("no UTF-8", b'{"metadata":{"name":"x"},"data":{"a":"b\xffc"}}', plural="configmaps"),
    body("protobuf: no magic", b"abc", content_type=PROTOBUF),
    body("protobuf: empty", b"", content_type=PROTOBUF),
    body("protobuf: magic alone", b"k8s\x00", content_type=PROTOBUF),
    body("protobuf: bad envelope", b"k8s\x00\xff\xff", content_type=PROTOBUF),
    body("protobuf: bad object", envelope(b"\x0a\xff\x01"), content_type=PROTOBUF),
    body("protobuf: unknown kind", envelope(b"\x0a\xff\x01", b"Foo"), content_type=PROTOBUF),
    body("protobuf: wrong wire type", envelope(b"\x08\x01"), content_type=PROTOBUF),
    body("protobuf: end group", envelope(b"\x0c"), content_type=PROTOBUF),
]

OBJECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "configmap": (
        f"{CORE}/configmaps",
        {
            "metadata": {"name": "p", "labels": {"a": "b"}, "finalizers": ["x.io/a", "x.io/b"]},
            "data": {"k": "v", "n": "1"},
        },
    ),
    "rc": (
        f"{CORE}/replicationcontrollers",
        {
            "metadata": {"name": "p"},
            "spec": {
                "replicas": 2,
                "selector": {"a": "b"},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {
                        "containers": [
                            {
                                "name": "c",
                                "image": "i",
                                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                                "args": ["x"],
                                "ports": [{"containerPort": 80}],
                            },
                            {"name": "d", "image": "j"},
                        ],
                        "tolerations": [{"key": "k", "operator": "Exists"}],
                        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}}],
                    },
                },
            },
        },
    ),
    "service": (
        f"{CORE}/services",
        {
            "metadata": {"name": "p"},
            "spec": {"clusterIP": "None", "ports": [{"name": "a", "port": 80}], "selector": {"a": "b"}},
        },
    ),
}


def patch(name: str, kind: str, content_type: str | None, content: Any, validation: str = "Strict") -> Case:
    text = content if isinstance(content, str) else json.dumps(content)
    return {"name": name, "object": kind, "content_type": content_type, "patch": text, "validation": validation}


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": spec}}}


def op(kind: str, path: str, **rest: Any) -> list[dict[str, Any]]:
    return [{"op": kind, "path": path, **rest}]


CONTAINERS = "/spec/template/spec/containers"
PATCHES: list[Case] = [
    patch("json: not a list", "configmap", JSON_PATCH, "{}"),
    patch("json: unclosed", "configmap", JSON_PATCH, "["),
    patch("json: not an operation", "configmap", JSON_PATCH, "[1]"),
    patch("json: op is a number", "configmap", JSON_PATCH, '[{"op":1}]'),
    patch("json: no path", "configmap", JSON_PATCH, '[{"op":"add"}]'),
    patch("json: unknown op", "configmap", JSON_PATCH, '[{"op":"foo","path":"/a"}]'),
    patch("json: unknown member", "configmap", JSON_PATCH, op("add", "/data/x", value="1", foo=1)),
    patch("json: unknown member, warned", "configmap", JSON_PATCH, op("add", "/data/x", value="1", foo=1), "Warn"),
    patch("json: test fails", "configmap", JSON_PATCH, op("test", "/data/k", value="x")),
    patch("json: remove what is not", "configmap", JSON_PATCH, op("remove", "/data/zz")),
    patch("json: replace what is not", "configmap", JSON_PATCH, op("replace", "/data/zz", value="1")),
    patch("json: add deep", "configmap", JSON_PATCH, op("add", "/foo/bar", value=1)),
    patch("json: add at the root", "configmap", JSON_PATCH, op("add", "", value=1)),
    patch("json: move", "configmap", JSON_PATCH, op("move", "/data/z", **{"from": "/data/k"})),
    patch("json: copy", "configmap", JSON_PATCH, op("copy", "/data/z", **{"from": "/data/k"})),
    patch("json: move what is not", "configmap", JSON_PATCH, op("move", "/data/z", **{"from": "/data/zz"})),
    patch("json: wrong type", "configmap", JSON_PATCH, op("replace", "/data/k", value=1)),
    patch("json: unknown field", "configmap", JSON_PATCH, op("add", "/foo", value=1)),
    patch("json: unknown field, ignored", "configmap", JSON_PATCH, op("add", "/foo", value=1), "Ignore"),
    patch("json: null", "configmap", JSON_PATCH, "null"),
    patch("json: unknown kind", "configmap", JSON_PATCH, op("replace", "/kind", value="Foo")),
    patch("json: other kind", "configmap", JSON_PATCH, op("replace", "/kind", value="Pod")),
    patch("json: no kind", "configmap", JSON_PATCH, op("remove", "/kind")),
    patch("json: index beyond", "rc", JSON_PATCH, op("add", f"{CONTAINERS}/5", value={})),
    patch("json: index is a word", "rc", JSON_PATCH, op("remove", f"{CONTAINERS}/x")),
    patch("json: append", "rc", JSON_PATCH, op("add", f"{CONTAINERS}/0/args/-", value="y")),
    patch("json: insert", "rc", JSON_PATCH, op("add", f"{CONTAINERS}/0/args/0", value="y")),
    patch("json: index -1", "rc", JSON_PATCH, op("add", f"{CONTAINERS}/0/args/-1", value="y")),
    patch("json: test null", "configmap", JSON_PATCH, op("test", "/data/zz", value=None)),
    patch("json: test 2.0", "rc", JSON_PATCH, '[{"op":"test","path":"/spec/replicas","value":2.0}]'),
    patch("json: escaped", "configmap", JSON_PATCH, op("add", "/metadata/labels/a~1b~0c", value="1")),
    patch("json: many operations", "configmap", JSON_PATCH, op("test", "/data/k", value="v") * 10001),
    patch("merge: unclosed", "configmap", MERGE, "{"),
    patch("merge: list", "configmap", MERGE, "[]"),
    patch("merge: list, ignored", "configmap", MERGE, "[]", "Ignore"),
    patch("merge: null", "configmap", MERGE, "null"),
    patch("merge: empty", "configmap", MERGE, ""),
    patch("merge: unknown field", "configmap", MERGE, '{"foo":1}'),
    patch("merge: unknown field, warned", "configmap", MERGE, '{"foo":1}', "Warn"),
    patch("merge: repeated", "configmap", MERGE, '{"data":{"a":"1","a":"2"}}'),
    patch("merge: repeated, warned", "configmap", MERGE, '{"data":{"a":"1","a":"2"}}', "Warn"),
    patch("merge: wrong type", "configmap", MERGE, '{"data":{"a":1}}'),
    patch("merge: wrong type deep", "rc", MERGE, '{"spec":{"template":{"spec":{"hostNetwork":1}}}}'),
    patch("merge: delete", "configmap", MERGE, '{"data":{"k":null,"q":null}}'),
    patch("merge: string for map", "configmap", MERGE, '{"data":"x"}'),
    patch("merge: unknown kind", "configmap", MERGE, '{"kind":"Foo"}'),
    patch("merge: unknown version", "configmap", MERGE, '{"apiVersion":"v2"}'),
    patch("merge: lists replaced", "rc", MERGE, template(containers=[{"name": "z", "image": "y"}])),
    patch("merge: nulls inside lists", "rc", MERGE, template(containers=[{"name": "z", "image": "y", "env": None}])),
    patch("strategic: unclosed", "configmap", STRATEGIC, "{"),
    patch("strategic: list", "configmap", STRATEGIC, "[]"),
    patch("strategic: null", "configmap", STRATEGIC, "null"),
    patch("strategic: empty", "configmap", STRATEGIC, ""),
    patch("strategic: unknown field", "configmap", STRATEGIC, '{"foo":1,"data":{"a":"b"}}'),
    patch("strategic: unknown field, warned", "configmap", STRATEGIC, '{"foo":1}', "Warn"),
    patch(
        "strategic: unknown fields deep", "rc", STRATEGIC,
        '{"spec":{"foo":{"a":1},"template":{"spec":{"q":1}}},"x":2}',
    ),
    patch("strategic: repeated", "configmap", STRATEGIC, '{"data":{"a":"1","a":"2"}}'),
    patch("strategic: int for string", "configmap", STRATEGIC, '{"data":{"a":1}}'),
    patch("strategic: string for int", "rc", STRATEGIC, '{"spec":{"replicas":"a"}}'),
    patch("strategic: list for struct", "rc", STRATEGIC, '{"spec":{"template":[]}}'),
    patch("strategic: list for map", "rc", STRATEGIC, '{"spec":{"selector":[1]}}'),
    patch("strategic: float for int", "rc", STRATEGIC, '{"spec":{"replicas":1.5}}'),
    patch("strategic: whole float for int", "rc", STRATEGIC, '{"spec":{"replicas":3.0}}'),
    patch("strategic: string for bool", "rc", STRATEGIC, template(hostNetwork="a")),
    patch("strategic: string for list", "rc", STRATEGIC, template(containers="a")),
    patch("strategic: mixed list", "rc", STRATEGIC, template(containers=["a"])),
    patch("strategic: no merge key", "rc", STRATEGIC, template(containers=[{"image": "a"}])),
    patch("strategic: unknown directive", "configmap", STRATEGIC, '{"data":{"$patch":"foo"}}'),
    patch("strategic: delete a map", "configmap", STRATEGIC, '{"data":{"$patch":"delete"}}'),
    patch("strategic: replace a map", "configmap", STRATEGIC, '{"data":{"$patch":"replace","z":"1"}}'),
    patch("strategic: retain keys", "configmap", STRATEGIC, '{"data":{"$retainKeys":["k"],"k":"z"}}'),
    patch("strategic: retain other keys", "configmap", STRATEGIC, '{"data":{"$retainKeys":["k"],"z":"z"}}'),
    patch("strategic: retain keys is no list", "configmap", STRATEGIC, '{"data":{"$retainKeys":"k"}}'),
    patch("strategic: order is no list", "rc", STRATEGIC, template(**{"$setElementOrder/containers": "x"})),
    patch(
        "strategic: order lacks an item", "rc", STRATEGIC,
        template(**{"$setElementOrder/containers": [{"name": "z"}], "containers": [{"name": "c", "image": "z"}]}),
    ),
    patch("strategic: order of no field", "rc", STRATEGIC, '{"spec":{"$setElementOrder/foo":[{"name":"z"}]}}'),
    patch(
        "strategic: order turned round", "rc", STRATEGIC,
        template(**{"$setElementOrder/containers": [{"name": "d"}, {"name": "c"}]}),
    ),
    patch(
        "strategic: order with an addition", "rc", STRATEGIC,
        template(**{
            "$setElementOrder/containers": [{"name": "n"}, {"name": "d"}, {"name": "c"}],
            "containers": [{"name": "n", "image": "z"}, {"name": "c", "image": "q"}],
        }),
    ),
    patch(
        "strategic: order and deletion", "rc", STRATEGIC,
        template(**{
            "$setElementOrder/containers": [{"name": "d"}],
            "containers": [{"name": "c", "$patch": "delete"}, {"name": "d", "image": "q"}],
        }),
    ),
    patch(
        "strategic: env in the middle", "rc", STRATEGIC,
        template(containers=[{
            "name": "c",
            "$setElementOrder/env": [{"name": "A"}, {"name": "N"}, {"name": "B"}],
            "env": [{"name": "N", "value": "3"}],
        }]),
    ),
    patch("strategic: merged item", "rc", STRATEGIC, template(containers=[{"name": "d", "image": "k", "args": ["q"]}])),
    patch("strategic: added item", "rc", STRATEGIC, template(containers=[{"name": "e", "image": "k"}])),
    patch("strategic: deleted item", "rc", STRATEGIC, template(containers=[{"name": "c", "$patch": "delete"}])),
    patch(
        "strategic: replaced list", "rc", STRATEGIC,
        template(containers=[{"name": "z", "image": "y"}, {"$patch": "replace"}]),
    ),
    patch(
        "strategic: replaced item", "rc", STRATEGIC,
        template(containers=[{"name": "c", "$patch": "replace", "image": "q"}]),
    ),
    patch("strategic: odd directive in a list", "rc", STRATEGIC, template(containers=[{"name": "c", "$patch": "x"}])),
    patch("strategic: merge in a list", "rc", STRATEGIC, template(containers=[{"name": "c", "$patch": "merge"}])),
    patch("strategic: atomic list", "rc", STRATEGIC, template(containers=[{"name": "c", "args": ["q"]}])),
    patch("strategic: atomic list of structs", "rc", STRATEGIC, template(tolerations=[{"operator": "Exists"}])),
    patch("strategic: ports", "rc", STRATEGIC, template(containers=[{"name": "c", "ports": [{"containerPort": 81}]}])),
    patch(
        "strategic: volume changes its source", "rc", STRATEGIC,
        template(volumes=[{"$retainKeys": ["name", "configMap"], "name": "v", "configMap": {"name": "n"}}]),
    ),
    patch("strategic: null", "rc", STRATEGIC, template(containers=[{"name": "c", "args": None}], subdomain=None)),
    patch("strategic: set union", "configmap", STRATEGIC, '{"metadata":{"finalizers":["x.io/c","x.io/a"]}}'),
    patch(
        "strategic: set deletion", "configmap", STRATEGIC,
        '{"metadata":{"$deleteFromPrimitiveList/finalizers":["x.io/a"]}}',
    ),
    patch(
        "strategic: set order", "configmap", STRATEGIC,
        '{"metadata":{"$setElementOrder/finalizers":["x.io/b","x.io/a"]}}',
    ),
    patch(
        "strategic: deletion names no list", "configmap", STRATEGIC,
        '{"metadata":{"$deleteFromPrimitiveList":["x"]}}',
    ),
    patch(
        "strategic: bad quantity", "rc", STRATEGIC,
        template(containers=[{"name": "c", "resources": {"requests": {"cpu": "x"}}}]),
    ),
    patch("strategic: service ports", "service", STRATEGIC, '{"spec":{"ports":[{"port":81,"name":"b"}]}}'),
    patch("strategic: service port by key", "service", STRATEGIC, '{"spec":{"ports":[{"port":80,"name":"c"}]}}'),
    patch("strategic: selector", "service", STRATEGIC, '{"spec":{"selector":{"c":"d","a":null}}}'),
]  # fmt: skip
