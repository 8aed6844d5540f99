# ruff: noqa: E501
"""Requests designed to be slow: every shape of body at a given size, and other expensive requests.

`bodies(size)` makes each shape about `size` bytes long; tests count the work they cause, `bench_stalls` measures it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.work import is_large, is_large_patch

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
JSON_PATCH: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
NS: Final = "/api/v1/namespaces/default"
SIZES: Final = (64 << 10, 256 << 10, 3_000_000)


class Hostile(NamedTuple):
    """`undo`: what to delete after it, so that it can be repeated."""

    name: str
    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    accept: str = JSON
    undo: str = ""


def pod(name: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "nginx:1.29"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


Shape = Callable[[int], bytes]


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _map(size: int, key: str, value: str) -> dict[str, str]:
    each = len(key) + len(value) + 16
    return {f"{key}{at:08d}": value for at in range(size // each)}


def _object(**parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "hostile", **parts.pop("metadata", {})},
        **parts,
    }


def _many(size: int, each: str) -> str:
    return ",".join([each] * (size // (len(each) + 1)))


def _pod(size: int, part: str, item: Callable[[int], Any]) -> bytes:
    """A pod whose list `part` of its first container, or of its spec, is as long as possible."""
    count = size // (len(_dump(item(10_000))) + 1)
    items = [item(at) for at in range(count)]
    obj = pod("hostile")
    if part in ("env", "ports", "volumeMounts", "args", "envFrom"):
        obj["spec"]["containers"][0][part] = items
    else:
        obj["spec"][part] = items
    return _dump(obj)


def _meta(size: int, part: str, item: Callable[[int], Any]) -> bytes:
    count = size // (len(_dump(item(10_000))) + 1)
    return _dump(_object(metadata={part: [item(at) for at in range(count)]}))


CONFIG_MAPS: Final[dict[str, Shape]] = {
    "a long text": lambda size: _dump(_object(data={"a": "x" * size})),
    "a text of escapes": lambda size: _dump(_object(data={"a": ""})).replace(b'""', b'"' + b"\\u0041" * (size // 6) + b'"'),
    "a text of wide characters": lambda size: _dump(_object(data={"a": "x"})).replace(b'"x"', b'"' + "👩".encode() * (size // 4) + b'"'),
    "lone surrogates": lambda size: _dump(_object(data={"a": ""})).replace(b'""', b'"' + b"\\ud800" * (size // 6) + b'"'),
    "bad bytes": lambda size: _dump(_object(data={"a": ""})).replace(b'""', b'"' + b"\xff" * size + b'"'),
    "many members": lambda size: _dump(_object(data=_map(size, "k", "v"))),
    "bad labels": lambda size: _dump(_object(metadata={"labels": _map(size, "-bad/", "-bad-")})),
    "good labels": lambda size: _dump(_object(metadata={"labels": _map(size, "good/", "good")})),
    "annotations": lambda size: _dump(_object(metadata={"annotations": _map(size, "a/", "b")})),
    "bad annotations": lambda size: _dump(_object(metadata={"annotations": _map(size, "-a/", "b")})),
    "bad keys of data": lambda size: _dump(_object(data=_map(size, "a b/", "v"))),
    "unknown members": lambda size: _dump(_object(**_map(size, "unknown", "v"))),
    "one member repeated": lambda size: b'{"metadata":{"name":"hostile"},"data":{' + _many(size, '"a":"b"').encode() + b"}}",
    "wrong types": lambda size: _dump(_object(data=[[]] * (size // 3))),
    "small lists": lambda size: b'{"metadata":{"name":"hostile"},"data":[' + _many(size, "[]").encode() + b"]}",
    "deep lists": lambda size: b'{"metadata":{"name":"hostile"},"data":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}",
    "deep objects": lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "only opened": lambda size: b"[" * size,
    "numbers": lambda size: b'{"metadata":{"name":"hostile"},"data":[' + _many(size, "1").encode() + b"]}",
    "a long number": lambda size: b'{"metadata":{"name":"hostile","generation":' + b"9" * size + b"}}",
    "a list at the top": lambda size: b"[" + _many(size, '{"a":1}').encode() + b"]",
    "cut short": lambda size: _dump(_object(data=_map(size, "k", "v")))[:-3],
    "cut short with escapes": lambda size: b'{"metadata":{"name":"a","x":"' + b"\\n" * (size // 2),
    "more behind": lambda size: _dump(_object(data=_map(size, "k", "v"))) + b"}",
    "blanks": lambda size: b" " * size + b"x",
    "finalizers": lambda size: _meta(size, "finalizers", lambda at: f"a.example/{at}"),
    "bad finalizers": lambda size: _meta(size, "finalizers", lambda at: f"-{at}"),
    "owners": lambda size: _meta(size, "ownerReferences", lambda at: {"apiVersion": "v1", "kind": "Pod", "name": f"n{at}", "uid": f"u{at}", "controller": True}),
    "managed fields": lambda size: _meta(size, "managedFields", lambda at: {"manager": f"m{at}", "operation": "Apply"}),
}  # fmt: skip

POD_SHAPES: Final[dict[str, Shape]] = {
    "containers": lambda size: _pod(size, "containers", lambda at: {"name": f"c{at}", "image": "i"}),
    "containers with requests": lambda size: _pod(size, "containers", lambda at: {"name": f"c{at}", "image": "i", "resources": {"requests": {"cpu": f"{at}m"}}}),
    "init containers with requests": lambda size: _pod(size, "initContainers", lambda at: {"name": f"i{at}", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"memory": f"{at}Mi"}}}),
    "containers of one name": lambda size: _pod(size, "containers", lambda at: {"name": "c", "image": "i"}),
    "env": lambda size: _pod(size, "env", lambda at: {"name": f"A{at}", "value": f"$(A{at - 1})"}),
    "bad env": lambda size: _pod(size, "env", lambda at: {"name": f"={at}"}),
    "ports": lambda size: _pod(size, "ports", lambda at: {"containerPort": at % 65535 + 1, "hostPort": at % 65535 + 1}),
    "named ports": lambda size: _pod(size, "ports", lambda at: {"containerPort": 80, "name": f"p{at}"}),
    "mounts": lambda size: _pod(size, "volumeMounts", lambda at: {"name": "v", "mountPath": f"/{at}"}),
    "volumes": lambda size: _pod(size, "volumes", lambda at: {"name": f"v{at}", "emptyDir": {}}),
    "bad volumes": lambda size: _pod(size, "volumes", lambda at: {"name": f"v{at}"}),
    "arguments": lambda size: _pod(size, "args", lambda at: "x"),
    "tolerations": lambda size: _pod(size, "tolerations", lambda at: {"key": f"k{at}", "operator": "Exists"}),
    "gates": lambda size: _pod(size, "schedulingGates", lambda at: {"name": f"a.b/{at}"}),
    "spread": lambda size: _pod(size, "topologySpreadConstraints", lambda at: {"maxSkew": 1, "topologyKey": f"k{at}", "whenUnsatisfiable": "DoNotSchedule"}),
    "host aliases": lambda size: _pod(size, "hostAliases", lambda at: {"ip": "1.2.3.4", "hostnames": ["a"]}),
    "pull secrets": lambda size: _pod(size, "imagePullSecrets", lambda at: {"name": f"s{at}"}),
}  # fmt: skip

YAML_SHAPES: Final[dict[str, Shape]] = {
    "YAML members": lambda size: b"metadata: {name: hostile}\ndata:\n" + b"".join(b"  k%08d: v\n" % at for at in range(size // 15)),
    "YAML items": lambda size: b"metadata: {name: hostile}\ndata:\n" + b"- a\n" * (size // 4),
    "YAML aliases": lambda size: b"a: &a [" + b"x," * 100 + b"]\nb:\n" + b"- *a\n" * (size // 5),
    "YAML bomb": lambda size: b"".join(b"a%d: &a%d [%b]\n" % (at, at, b",".join([b"*a%d" % (at - 1)] * 9) if at else b"x") for at in range(40)),
    "YAML deep": lambda size: b"a: " + b"[" * size,
    "YAML deep by indent": lambda size: b"".join(b" " * at + b"a:\n" for at in range(int(size**0.5))),
    "YAML text": lambda size: b"metadata: {name: hostile}\ndata:\n  a: |\n" + b"    text\n" * (size // 9),
    "YAML tabs": lambda size: b"a:\n" + b"\t" * size,
    "YAML comments": lambda size: b"#\n" * (size // 2),
    "YAML anchors": lambda size: b"".join(b"- &a%d b\n" % at for at in range(size // 13)),
    "YAML documents": lambda size: b"---\n" * (size // 4),
}  # fmt: skip


def _workload(version: str, kind: str, item: Shape, **more: Any) -> Shape:
    """An object of this kind with the pod that `item` makes as its template."""

    def made(size: int) -> bytes:
        spec = json.loads(item(size))["spec"]
        labels = {"matchLabels": {"a": "b"}}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
        return _dump(
            {
                "apiVersion": version,
                "kind": kind,
                "metadata": {"name": "hostile"},
                "spec": {"selector": labels, "template": template, **more},
            }
        )

    return made


def _claims(size: int) -> bytes:
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    claims = [{"metadata": {"name": f"v{at}"}, **claim} for at in range(size // 115)]
    return _workload(
        "apps/v1", "StatefulSet", POD_SHAPES["pull secrets"], serviceName="s", volumeClaimTemplates=claims
    )(300)


def _terms(size: int) -> bytes:
    terms = [
        {"matchExpressions": [{"key": f"k{at}", "operator": "In", "values": ["a", "b"]}]} for at in range(size // 70)
    ]
    affinity = {"required": {"nodeSelectorTerms": terms}}
    capacity = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}}
    return _dump({"metadata": {"name": "hostile"}, "spec": {**capacity, "nodeAffinity": affinity}})


def _expressions(size: int) -> bytes:
    expressions = [{"key": f"k{at}", "operator": "In", "values": ["a", "-"]} for at in range(size // 50)]
    return _dump(
        {"metadata": {"name": "hostile"}, "spec": {"minAvailable": 1, "selector": {"matchExpressions": expressions}}}
    )


APPS: Final = "/apis/apps/v1/namespaces/default"
OTHER_KINDS: Final[dict[str, tuple[str, Shape]]] = {
    "a deployment of containers": (f"{APPS}/deployments", _workload("apps/v1", "Deployment", POD_SHAPES["containers"])),
    "a deployment of volumes": (f"{APPS}/deployments", _workload("apps/v1", "Deployment", POD_SHAPES["volumes"])),
    "a replica set of env": (f"{APPS}/replicasets", _workload("apps/v1", "ReplicaSet", POD_SHAPES["env"])),
    "a daemon set of tolerations": (f"{APPS}/daemonsets", _workload("apps/v1", "DaemonSet", POD_SHAPES["tolerations"])),
    "a stateful set of mounts": (f"{APPS}/statefulsets", _workload("apps/v1", "StatefulSet", POD_SHAPES["mounts"], serviceName="s")),
    "a stateful set of claims": (f"{APPS}/statefulsets", _claims),
    "a controller's template": (f"{NS}/podtemplates", lambda size: _dump({"metadata": {"name": "hostile"}, "template": {"spec": json.loads(POD_SHAPES["spread"](size))["spec"]}})),
    "a volume of terms": ("/api/v1/persistentvolumes", _terms),
    "a budget of expressions": ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", _expressions),
    "subsets of endpoints": (f"{NS}/endpoints", lambda size: _dump({"metadata": {"name": "hostile"}, "subsets": [{"addresses": [{"ip": f"10.1.{at % 250}.{at // 250 % 250}"} for at in range(size // 20)], "ports": [{"port": 1}]}]})),
    "members of a secret": (f"{NS}/secrets", lambda size: _dump({"metadata": {"name": "hostile"}, "data": _map(size, "k", "YWJj")})),
    "images of a node": ("/api/v1/nodes", lambda size: _dump({"metadata": {"name": "hostile"}, "status": {"images": [{"names": [f"i{at}"], "sizeBytes": at} for at in range(size // 40)]}})),
}  # fmt: skip
"""The path and shape of kinds other than pods and config maps."""


class Change(NamedTuple):
    """A write to a stored object, both of the requested size. `content_type` JSON: a PUT."""

    plural: str
    stored: Shape
    body: Shape
    content_type: str
    sub: str = ""


def _spec(size: int, **parts: Any) -> bytes:
    return _dump({**pod("hostile"), "spec": parts})


def _named(size: int, length: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"c{at:06d}", **more} for at in range(size // length)]


def _conditions(size: int, value: str) -> bytes:
    conditions = [{"type": f"t{at:06d}", "status": value} for at in range(size // 40)]
    return _dump({**pod("hostile"), "status": {"conditions": conditions}})


def _operations(size: int, length: int, **operation: Any) -> bytes:
    each = [
        {name: value(at) if callable(value) else value for name, value in operation.items()}
        for at in range(size // length)
    ]
    return _dump(each[:10_000])


def _containers(size: int) -> bytes:
    return _dump({**pod("hostile"), "spec": {"containers": _named(size, 35, image="i")}})


def _env(size: int) -> bytes:
    return _pod(size, "env", lambda at: {"name": f"c{at:06d}", "value": "v"})


def _data(size: int) -> bytes:
    return _dump(_object(data=_map(size, "k", "v")))


def _owners(size: int) -> bytes:
    owner = {"apiVersion": "v1", "kind": "Pod"}
    return _meta(size, "ownerReferences", lambda at: {**owner, "name": f"n{at}", "uid": f"u{at}"})


_FINALIZERS: Final[Shape] = CONFIG_MAPS["finalizers"]
_MADE: Final = {"metadata": {"name": "hostile"}}

CHANGES: Final[dict[str, Change]] = {
    "strategic: deletions by key": Change("pods", _containers, lambda size: _spec(size, containers=_named(size, 35, **{"$patch": "delete"})), STRATEGIC),
    "strategic: items by key": Change("pods", _containers, lambda size: _spec(size, containers=_named(size, 40, image="j")), STRATEGIC),
    "strategic: an order turned round": Change("pods", _containers, lambda size: _spec(size, **{"$setElementOrder/containers": _named(size, 20)[::-1]}), STRATEGIC),
    "strategic: items and their order": Change("pods", _containers, lambda size: _spec(size, **{"containers": _named(size // 2, 40, image="j"), "$setElementOrder/containers": _named(size // 2, 40)}), STRATEGIC),
    "strategic: items of one key": Change("pods", _containers, lambda size: _spec(size, containers=[{"name": "c000001", "image": "j"}] * (size // 34)), STRATEGIC),
    "strategic: retained keys": Change("pods", _containers, lambda size: _spec(size, **{"$retainKeys": [f"k{at}" for at in range(size // 9)]}), STRATEGIC),
    "strategic: texts of a set": Change("configmaps", _FINALIZERS, lambda size: _dump({"metadata": {"finalizers": [f"b.example/{at}" for at in range(size // 18)]}}), STRATEGIC),
    "strategic: texts deleted of a set": Change("configmaps", _FINALIZERS, lambda size: _dump({"metadata": {"$deleteFromPrimitiveList/finalizers": [f"a.example/{at}" for at in range(size // 18)]}}), STRATEGIC),
    "strategic: owners by key": Change("configmaps", _owners, lambda size: _dump({"metadata": {"ownerReferences": [{"uid": f"u{at}", "name": "m"} for at in range(size // 27)]}}), STRATEGIC),
    "strategic: conditions": Change("pods", lambda size: _conditions(size, "True"), lambda size: _conditions(size, "False"), STRATEGIC, "status"),
    "merge patch": Change("configmaps", _data, lambda size: _dump({"data": _map(size, "k", "w")}), MERGE),
    "merge patch of nulls": Change("configmaps", _data, lambda size: _dump({"data": dict.fromkeys(_map(size, "k", "w"))}), MERGE),
    "merge patch of owners": Change("configmaps", _owners, lambda size: _meta(size, "ownerReferences", lambda at: {"apiVersion": "v1", "kind": "Pod", "name": f"n{at}", "uid": f"w{at}"}), MERGE),
    "JSON patch: added": Change("configmaps", _data, lambda size: _operations(size, 50, op="add", path=lambda at: f"/data/n{at}", value="v"), JSON_PATCH),
    "JSON patch: removed": Change("configmaps", _data, lambda size: _operations(size, 40, op="remove", path=lambda at: f"/data/k{at:08d}"), JSON_PATCH),
    "JSON patch: at the front": Change("pods", _env, lambda size: _operations(size, 85, op="add", path="/spec/containers/0/env/0", value={"name": "a"}), JSON_PATCH),
    "JSON patch: moved": Change("configmaps", _data, lambda size: _operations(size, 60, op="move", path="/data/a", **{"from": lambda at: f"/data/k{at:08d}"}), JSON_PATCH),
    "JSON patch: tests": Change("configmaps", _data, lambda size: _operations(size, 55, op="test", path=lambda at: f"/data/k{at % 100:08d}", value="v"), JSON_PATCH),
    "JSON patch: tests of everything": Change("configmaps", _data, lambda size: _operations(size, 40, op="test", path="", value={}), JSON_PATCH),
    "PUT: data": Change("configmaps", _data, lambda size: _dump({**_MADE, "data": _map(size, "k", "w")}), JSON),
    "PUT: owners": Change("configmaps", _owners, _owners, JSON),
    "PUT: finalizers": Change("configmaps", _FINALIZERS, _FINALIZERS, JSON),
    "PUT: containers": Change("pods", _containers, _containers, JSON),
    "PUT: env": Change("pods", _env, _env, JSON),
    "PUT: a status": Change("pods", lambda size: _conditions(size, "True"), lambda size: _conditions(size, "False"), JSON, "status"),
}  # fmt: skip
"""Stored objects and changes to them."""


def stored_by(change: Change, size: int) -> bytes:
    """Stores the object directly, without any check, so that it may have any shape."""
    obj = json.loads(change.stored(size))
    metadata = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "namespace": "default", **obj.pop("metadata")}
    return _dump(
        {"metadata": metadata, **{key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}}
    )


def _field(number: int, value: bytes) -> bytes:
    """One field of a protobuf message, of bytes."""
    length, size = bytearray(), len(value)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes([*length, size]) + value


def protobuf_map(size: int) -> bytes:
    """A config map with data, as kubectl sends it."""
    members = (_field(2, _field(1, b"k%07d" % at) + _field(2, b"v")) for at in range(size // 15))
    raw = _field(1, _field(1, b"hostile")) + b"".join(members)
    return b"k8s\0" + _field(1, _field(1, b"v1") + _field(2, b"ConfigMap")) + _field(2, raw)


EDGES: Final = [int(600 * 1.1**step) for step in range(43)]


def at_the_edge(is_large: Callable[[Hostile], bool]) -> list[Hostile]:
    """The largest of each shape, within a tenth, that does not count as large."""
    found = {one.name: one for size in EDGES for one in bodies(size) if not is_large(one)}
    return list(found.values())


def bodies(size: int) -> Iterator[Hostile]:
    for name, shape in CONFIG_MAPS.items():
        yield Hostile(name, "POST", f"{NS}/configmaps", shape(size), undo=f"{NS}/configmaps/hostile")
    for name, shape in POD_SHAPES.items():
        yield Hostile(name, "POST", f"{NS}/pods", shape(size), undo=f"{NS}/pods/hostile?gracePeriodSeconds=0")
    for name, shape in YAML_SHAPES.items():
        yield Hostile(name, "POST", f"{NS}/configmaps", shape(size), YAML, undo=f"{NS}/configmaps/hostile")
    proto = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12"
    yield Hostile("protobuf of nothing", "POST", f"{NS}/configmaps", proto + b"\x0a\0" * (size // 2), PROTOBUF)
    services = {
        "metadata": {"name": "hostile"},
        "spec": {"ports": [{"port": at % 65535 + 1, "name": f"p{at}"} for at in range(size // 24)]},
    }
    yield Hostile("ports of a service", "POST", f"{NS}/services", _dump(services), undo=f"{NS}/services/hostile")
    taints = {
        "metadata": {"name": "hostile"},
        "spec": {"taints": [{"key": f"k{at}", "effect": "NoSchedule"} for at in range(size // 36)]},
    }
    yield Hostile("taints", "POST", "/api/v1/nodes", _dump(taints), undo="/api/v1/nodes/hostile")
    for name, (path, shape) in OTHER_KINDS.items():
        yield Hostile(name, "POST", path, shape(size), undo=f"{path}/hostile")
    yield Hostile(
        "protobuf of labels", "POST", f"{NS}/configmaps", protobuf_map(size), PROTOBUF, undo=f"{NS}/configmaps/hostile"
    )
    # Bodies of other kinds of requests.
    dry = _dump({"dryRun": ["All"] * (size // 6)})
    yield Hostile("options of a deletion", "DELETE", f"{NS}/configmaps/absent", dry)
    yield Hostile("unknown options", "DELETE", f"{NS}/configmaps/absent", _dump(_map(size, "x", "y")))
    yield Hostile("options of a collection", "DELETE", f"{NS}/replicationcontrollers", dry)
    review = {
        "spec": {"resourceAttributes": {"resource": "pods"}, "extra": {f"k{at:07d}": ["v"] for at in range(size // 18)}}
    }
    yield Hostile("a review", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", _dump(review))
    binding = {"metadata": {"name": "pod-00001", "labels": _map(size, "a", "b")}, "target": {"name": "n"}}
    yield Hostile("a binding", "POST", f"{NS}/pods/pod-00001/binding", _dump({**binding, "target": {}}))
    yield Hostile(
        "an eviction", "POST", f"{NS}/pods/absent/eviction", _dump({"metadata": {"labels": _map(size, "a", "b")}})
    )
    yield from _updates(size)
    yield from _patches(size)


def _updates(size: int) -> Iterator[Hostile]:
    yield Hostile(
        "an update",
        "PUT",
        f"{NS}/configmaps/map-00001",
        _dump({"metadata": {"name": "map-00001"}, "data": _map(size, "k", "v")}),
    )
    yield Hostile(
        "an update of a status",
        "PUT",
        f"{NS}/pods/pod-00001/status",
        _dump(
            {
                **pod("pod-00001"),
                "status": {"conditions": [{"type": f"t{at}", "status": "True"} for at in range(size // 33)]},
            }
        ),
    )
    yield Hostile(
        "a small update of that", "PUT", f"{NS}/configmaps/map-00001", _dump({"metadata": {"name": "map-00001"}})
    )


def _patches(size: int) -> Iterator[Hostile]:
    target, of_pod = f"{NS}/configmaps/map-00002", f"{NS}/pods/pod-00002"

    def operations(each: Callable[[int], dict[str, Any]], length: int) -> bytes:
        return _dump([each(at) for at in range(min(size // length, 10_001))])

    adds = operations(lambda at: {"op": "add", "path": f"/data/k{at}", "value": "v"}, 48)
    yield Hostile("patch: operations", "PATCH", target, adds, JSON_PATCH)
    args = pod("pod-00002")
    args["spec"]["containers"][0]["args"] = ["x"] * (size // 8)
    lists = _dump([{"op": "add", "path": "/spec/containers/0/args", "value": ["x"] * (size // 8)},
                   *[{"op": "add", "path": "/spec/containers/0/args/0", "value": "y"}] * min(size // 120, 9000)])  # fmt: skip
    yield Hostile("patch: inserted at the front", "PATCH", of_pod, lists, JSON_PATCH)
    copies = operations(lambda at: {"op": "copy", "from": "/data/big", "path": f"/data/c{at}"}, 48)
    yield Hostile("patch: copies", "PATCH", target, copies, JSON_PATCH)
    tests = operations(lambda at: {"op": "test", "path": "", "value": {}}, 34)
    yield Hostile("patch: tests", "PATCH", target, tests, JSON_PATCH)
    deep = operations(lambda at: {"op": "add", "path": "/data" + "/a" * 40, "value": 1}, 130)
    yield Hostile("patch: deep paths", "PATCH", target, deep, JSON_PATCH)
    yield Hostile(
        "patch: one long path",
        "PATCH",
        target,
        _dump([{"op": "add", "path": "/a" * (size // 2), "value": 1}]),
        JSON_PATCH,
    )
    yield Hostile("merge patch", "PATCH", target, _dump({"data": _map(size, "k", "v")}), MERGE)
    yield Hostile(
        "merge patch of nulls",
        "PATCH",
        target,
        b'{"data":{' + b",".join(b'"k%07d":null' % at for at in range(size // 16)) + b"}}",
        MERGE,
    )
    yield Hostile("strategic merge", "PATCH", target, _dump({"data": _map(size, "k", "v")}), STRATEGIC)
    containers = [{"name": f"c{at}", "image": "i"} for at in range(size // 28)]
    yield Hostile(
        "strategic merge of containers", "PATCH", of_pod, _dump({"spec": {"containers": containers}}), STRATEGIC
    )
    gone = [{"name": f"c{at}", "$patch": "delete"} for at in range(size // 36)]
    yield Hostile("strategic merge of deletions", "PATCH", of_pod, _dump({"spec": {"containers": gone}}), STRATEGIC)
    order = {
        "$setElementOrder/containers": [{"name": f"c{at}"} for at in range(size // 18)],
        "containers": [{"name": "c1", "image": "i"}],
    }
    yield Hostile("strategic merge with an order", "PATCH", of_pod, _dump({"spec": order}), STRATEGIC)
    fins = {"metadata": {"$deleteFromPrimitiveList/finalizers": [f"a/{at}" for at in range(size // 12)]}}
    yield Hostile("strategic merge of a list of texts", "PATCH", of_pod, _dump(fins), STRATEGIC)


def small() -> Iterator[Hostile]:
    """Two kilobytes or less, or no body."""
    target = f"{NS}/configmaps/map-00003"
    doubling = [
        {"op": "add", "path": "/data/a", "value": {"x": 1}},
        *({"op": "copy", "from": "/data", "path": f"/data/a{at}"} for at in range(40)),
    ]
    yield Hostile("40 doublings", "PATCH", target, _dump(doubling), JSON_PATCH)
    odd = _dump(doubling).replace(b'"copy"', b'"c\\u006fpy"')
    yield Hostile("40 doublings in disguise", "PATCH", target, odd, JSON_PATCH)
    for count in (3, 8):
        yield Hostile(f"{count} doublings", "PATCH", target, _dump(doubling[: count + 1]), JSON_PATCH)
    label_terms = ",".join(f"k{at} in (a,b)" for at in range(5000))
    values = ",".join(f"v{at}" for at in range(10_000))
    field_terms = ",".join(["metadata.name!=a"] * 4000)
    for name, query in {
        "label terms": f"labelSelector={label_terms}",
        "label values": f"labelSelector=k in ({values})",
        "bad label values": f"labelSelector=k in ({values.replace('v', '-')})",
        "field terms": f"fieldSelector={field_terms}",
        "unknown field terms": f"fieldSelector={field_terms.replace('name', 'nope')}",
        "brackets": f"labelSelector={'(' * 60_000}",
        "many terms": "&".join(["a"] * 30_000),
        "a long token": f"continue={'A' * 60_000}",
        "a long revision": f"resourceVersion={'9' * 60_000}",
        "a long limit": f"limit={'9' * 60_000}",
    }.items():
        yield Hostile(f"query: {name}", "GET", f"{NS}/pods?{query}")
    yield Hostile("a watch by label values", "GET", f"{NS}/pods?watch=1&timeoutSeconds=1&labelSelector=k in ({values})")
    yield Hostile("a watch of everything", "GET", "/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=0")
    yield Hostile("a watch as table", "GET", "/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=0", accept=TABLE)
    for resource in ("pods", "configmaps"):
        for name, accept in {"": JSON, " as table": TABLE, " as metadata": PARTIAL}.items():
            yield Hostile(f"{resource}{name}", "GET", f"/api/v1/{resource}", accept=accept)
            yield Hostile(f"{resource} by label{name}", "GET", f"/api/v1/{resource}?labelSelector=app=x", accept=accept)
            yield Hostile(
                f"{resource} by field{name}", "GET", f"/api/v1/{resource}?fieldSelector=metadata.name!=x", accept=accept
            )
            yield Hostile(f"a page of {resource}{name}", "GET", f"/api/v1/{resource}?limit=500", accept=accept)
    yield Hostile("pods by phase", "GET", "/api/v1/pods?fieldSelector=status.phase=Running")
    yield Hostile("pods, pretty", "GET", "/api/v1/pods?pretty=true")
    yield Hostile("a large map", "GET", f"{NS}/configmaps/large-00000", accept=TABLE)
    yield Hostile(
        "a label of a large map", "PATCH", f"{NS}/configmaps/large-00000", b'{"metadata":{"labels":{"a":"b"}}}', MERGE
    )
    yield Hostile("a collection", "DELETE", f"{NS}/configmaps?labelSelector=doomed=yes")
    for path in (
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/api/v1",
        "/api",
        "/apis",
        "/api/v1",
        "/metrics",
        "/readyz?verbose",
    ):
        yield Hostile(path, "GET", path, accept="*/*")
    yield Hostile(
        "aggregated discovery",
        "GET",
        "/apis",
        accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    )


def goes_elsewhere(one: Hostile) -> bool:
    """Whether workers handle it; for a patch, if its target is small."""
    if one.method == "PATCH":
        return is_large_patch(one.body, one.content_type, b'{"metadata":{}}')
    return is_large(one.body, one.content_type)


def requests() -> Iterator[Hostile]:
    yield from small()
    for one in at_the_edge(goes_elsewhere):
        yield one._replace(name=f"{one.name}, inline")
    for size in SIZES:
        for one in bodies(size):
            yield one._replace(name=f"{one.name}, {size >> 10} KiB")


PODS: Final = 3_000
MAPS: Final = 3_000
LARGE: Final = 6


async def prepare(core: Any, pods: int = PODS, maps: int = MAPS, large: int = LARGE) -> None:
    """Prepares the target of the requests."""
    from minikube_py.apiserver.auth import ADMIN

    async def create(plural: str, obj: Any) -> None:
        answer = await core.handle(Request("POST", f"{NS}/{plural}", {}, _dump(obj), ADMIN))
        assert answer.status == 201, answer.body[:300]

    for at in range(pods):
        await create("pods", pod(f"pod-{at:05d}"))
    for at in range(maps):
        meta = {"name": f"map-{at:05d}", "labels": {"doomed": "yes"} if at > maps // 2 else {}}
        await create("configmaps", {"metadata": meta, "data": {"a": "b", "big": "x" * 200}})
    for at in range(large):
        await create("configmaps", {"metadata": {"name": f"large-{at:05d}"}, "data": _map(1_200_000, "k", "v")})
