# ruff: noqa: E501
"""What few clients ask: Scales of other objects, watches in YAML, OPTIONS through proxies, evictions of nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from asking import Ask

Json = dict[str, Any]
NAMESPACE = "small"
IN, APPS = f"/api/v1/namespaces/{NAMESPACE}", f"/apis/apps/v1/namespaces/{NAMESPACE}"
_MERGE, _JSON_PATCH, _YAML, _LIST = "application/merge-patch+json", "application/json-patch+json", "application/yaml", "application/json"
_TEMPLATE: Json = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
_TABLE = ";as=Table;v=v1;g=meta.k8s.io"
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_NODES: dict[str, dict[str, str]] = {"small-bare": {"a": "b"}, "small-region": {_REGION: "r1"}, "small-both": {_ZONE: "z1", _REGION: "r1", "rack": "4"}}
_SCALED = {"deployments": APPS, "replicasets": APPS, "statefulsets": APPS, "replicationcontrollers": IN}


def setup() -> Iterator[Ask]:
    yield Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for plural, at in _SCALED.items():
        selector: Json = {"a": "b"} if plural == "replicationcontrollers" else {"matchLabels": {"a": "b"}}
        spec = {"replicas": 1, "selector": selector, "template": _TEMPLATE, **({"serviceName": "s"} if plural == "statefulsets" else {})}
        yield Ask("setup", "POST", f"{at}/{plural}", {"metadata": {"name": "n"}, "spec": spec})
    for name, labels in _NODES.items():
        yield Ask("setup", "POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})


def cases() -> Iterator[Ask]:
    yield from _scales()
    yield from _watches()
    yield from _options()
    yield from _evictions()
    yield from _untabled()
    yield from _topology()
    yield from _former()
    yield from _empties()


def known() -> tuple[Ask, bytes]:
    """Once a pod made so has the label, admission knows the nodes."""
    spec = {**_TEMPLATE["spec"], "nodeName": [*_NODES][-1]}
    return Ask("setup", "POST", f"{IN}/pods?dryRun=All", {"metadata": {"name": "probe"}, "spec": spec}), _ZONE.encode()


def _former() -> Iterator[Ask]:
    """A patch may say a version that nobody serves any more, a new object may not."""
    rights = "rbac.authorization.k8s.io"
    said = (
        (f"{APPS}/deployments", "Deployment", {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}, ("apps/v1beta1", "apps/v1beta2", "extensions/v1beta1", "apps/v1alpha1", "batch/v1beta1")),
        (f"{APPS}/statefulsets", "StatefulSet", {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE, "serviceName": "s"}, ("apps/v1beta1", "apps/v1beta2")),
        (f"{APPS}/daemonsets", "DaemonSet", {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}, ("apps/v1beta2", "extensions/v1beta1", "apps/v1beta1")),
        (f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets", "PodDisruptionBudget", {"minAvailable": 1}, ("policy/v1beta1",)),
        (f"/apis/{rights}/v1/namespaces/{NAMESPACE}/roles", "Role", {}, (f"{rights}/v1beta1", f"{rights}/v1alpha1")),
    )
    for at, kind, spec, versions in said:
        more = {"spec": spec} if spec else {}
        yield Ask("setup", "POST", at, {"metadata": {"name": "former"}, **more})
        for version in versions:
            body = {"apiVersion": version, "kind": kind, "metadata": {"labels": {"x": version.replace("/", "-")}}}
            yield Ask("former version", "PATCH", f"{at}/former", body, _MERGE)
            yield Ask("former version", "PATCH", f"{at}/former", [{"op": "replace", "path": "/apiVersion", "value": version}], _JSON_PATCH)
            yield Ask("former version", "POST", at, {**body, "metadata": {"name": "other"}, **more})
    yield from _former_fields(rights)


def _former_fields(rights: str) -> Iterator[Ask]:
    """Fields that only those versions have."""
    at = f"{APPS}/deployments/former"
    kept = {"metadata": {"annotations": {"deprecated.deployment.rollback.to": "2", "a": "b"}}}
    for version in ("apps/v1beta1", "apps/v1beta2", "extensions/v1beta1"):
        for rollback in ({}, {"revision": 3}, {"revision": None}, {"revision": -1}, None, {"revision": 1, "x": 1}, {"revision": "3"}, {"revision": 1.5}, {"revision": 1 << 63}, 7, [], "absent"):
            yield Ask("setup", "PATCH", at, kept, _MERGE)
            spec = {} if rollback == "absent" else {"spec": {"rollbackTo": rollback}}
            yield Ask("former fields", "PATCH", at, {"apiVersion": version, **spec}, _MERGE)
        yield Ask("former fields", "PATCH", f"{at}?fieldValidation=Strict", {"apiVersion": version, "spec": {"rollbackTo": {"revision": 1, "x": 1}}}, _MERGE)
    at = f"{APPS}/daemonsets/former"
    for version in ("apps/v1beta2", "extensions/v1beta1"):
        for generation in (7, None, "7"):
            yield Ask("former fields", "PATCH", at, {"apiVersion": version, "spec": {"templateGeneration": generation}}, _MERGE)
    at = f"/apis/{rights}/v1/namespaces/{NAMESPACE}/rolebindings"
    role = {"apiGroup": rights, "kind": "Role", "name": "former"}
    user, group = ({"kind": kind, "name": "n"} for kind in ("User", "Group"))
    account = {"kind": "ServiceAccount", "name": "n", "namespace": NAMESPACE}
    subjects = (
        [user], [group], [account], [{**user, "name": "*"}], [{**group, "name": "*"}], [{"kind": "Odd", "name": "n"}], [{**user, "apiGroup": rights}], [{**user, "apiVersion": f"{rights}/v1alpha1"}],
        [{"kind": "Odd", "name": "n", "apiVersion": "odd.example.com/v1"}], [{**account, "apiVersion": "v1"}], [{**user, "apiVersion": "a/b/c"}], [{"kind": "Odd", "name": "n", "apiVersion": "a/b/c"}],
        [user, {**group, "apiGroup": ""}], [{"name": "n"}], [{**user, "apiVersion": 7}], [None], [7], [], None, "x",
    )
    for version in ("v1alpha1", "v1beta1"):
        yield Ask("setup", "POST", at, {"metadata": {"name": f"former-{version}"}, "roleRef": role, "subjects": [{**user, "apiGroup": rights}]})
        for each in subjects:
            yield Ask("former subjects", "PATCH", f"{at}/former-{version}", {"apiVersion": f"{rights}/{version}", "subjects": each}, _MERGE)
        yield Ask("former subjects", "PATCH", f"{at}/former-{version}?fieldValidation=Strict", {"apiVersion": f"{rights}/{version}", "subjects": [{**user, "apiGroup": rights}]}, _MERGE)


def _topology() -> Iterator[Ask]:
    """Pods get the zone and region of their node."""
    pods, spec = f"{IN}/pods", _TEMPLATE["spec"]
    for node in ("", *_NODES, "small-none"):
        for labels in ({}, {"app": "x", _ZONE: "own"}):
            name = f"on-{node or 'none'}-{len(labels)}"
            placed = {**spec, **({"nodeName": node} if node else {})}
            yield Ask("pod on a node", "POST", pods, {"metadata": {"name": name, "labels": labels}, "spec": placed})
            for number, kind in enumerate(("Node", "")) if node else ():
                for at in ("{}/{}/binding", f"{IN}/bindings"):
                    bound = f"to-{node}-{len(labels)}-{number}-{at.count('{')}"
                    metadata = {"name": bound, "labels": labels}
                    yield Ask("pod to bind", "POST", pods, {"metadata": metadata, "spec": spec})
                    body = {"metadata": {"name": bound}, "target": {"name": node, **({"kind": kind} if kind else {})}}
                    yield Ask("binding", "POST", at.format(pods, bound), body)
                    yield Ask("bound pod", "GET", f"{pods}/{bound}")


def _untabled() -> Iterator[Ask]:
    """What has no Table, above all reviews, whose verdict one would lose."""
    pods, review = f"{IN}/pods", {"nonResourceAttributes": {"path": "/", "verb": "get"}}
    yield Ask("setup", "POST", pods, {"metadata": {"name": "untabled"}, "spec": _TEMPLATE["spec"]})
    written: list[tuple[str, str, Any]] = [
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": review}),
        ("POST", f"/apis/authorization.k8s.io/v1/namespaces/{NAMESPACE}/localsubjectaccessreviews", {"spec": {"user": "u", "resourceAttributes": {"verb": "get", "namespace": NAMESPACE}}}),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": {"user": "u", **review}}),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}),
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
        ("POST", f"{IN}/bindings?dryRun=All", {"metadata": {"name": "untabled"}, "target": {"kind": "Node", "name": "n"}}),
        ("POST", f"{pods}/untabled/binding?dryRun=All", {"metadata": {"name": "untabled"}, "target": {"kind": "Node", "name": "n"}}),
        ("POST", f"{pods}/untabled/eviction?dryRun=All", {"metadata": {"name": "untabled"}}),
        *(("GET", f"{pods}/untabled/{sub}", None) for sub in ("status", "resize", "ephemeralcontainers")),
        *(("PATCH", f"{pods}/untabled/{sub}?dryRun=All", {}) for sub in ("status", "resize", "ephemeralcontainers")),
        ("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1./status", None), ("GET", f"/api/v1/namespaces/{NAMESPACE}/status", None),
    ]
    for accept in (_LIST + _TABLE, f"{_LIST}{_TABLE},{_LIST}", f"{_YAML}{_TABLE},{_YAML}", "application/*", "text/html", f"{_LIST};q=0"):
        for method, path, body in written:
            yield Ask("no table", method, path, body, _MERGE if method == "PATCH" else "", accept)


def _scales() -> Iterator[Ask]:
    for plural, at in _SCALED.items():
        for uid, version in (("1-2-3", ""), ("1-2-3", "1"), ("", "1"), ("", "x")):
            metadata = {"name": "n", "namespace": NAMESPACE, **({"uid": uid} if uid else {}), **({"resourceVersion": version} if version else {})}
            yield Ask(f"scale of {plural}", "PUT", f"{at}/{plural}/n/scale", {"metadata": metadata, "spec": {"replicas": 2}})
            changed = {key: value for key, value in metadata.items() if key not in ("name", "namespace")}
            yield Ask(f"scale of {plural}", "PATCH", f"{at}/{plural}/n/scale", {"metadata": changed, "spec": {"replicas": 2}}, _MERGE)
        yield Ask(f"scale of {plural}", "PUT", f"{at}/{plural}/n/scale", {"metadata": {"name": "n", "namespace": NAMESPACE, "uid": "1-2-3"}, "spec": {"replicas": -2}})
        yield Ask(f"scale of {plural}", "PUT", f"{at}/{plural}/absent/scale", {"metadata": {"name": "absent", "namespace": NAMESPACE, "uid": "1-2-3"}, "spec": {"replicas": 2}})


def _watches() -> Iterator[Ask]:
    accepted = (
        _YAML, f"{_YAML},{_LIST}", f"{_LIST};q=0.5,{_YAML}", f"{_YAML};q=0.1,{_LIST}", f"{_YAML}{_TABLE}", f"{_YAML}{_TABLE},{_LIST}{_TABLE}", f"{_YAML};as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        f"{_YAML};stream=watch", f"{_LIST};stream=watch", f"{_LIST};stream=other", f"{_YAML},*/*", "text/plain", "text/plain,application/yaml",
    )  # fmt: skip
    for at in (f"{IN}/configmaps", f"{APPS}/deployments"):
        for accept in accepted:
            yield Ask("watch in YAML", "GET", f"{at}?watch=true&timeoutSeconds=1&resourceVersion=1&fieldSelector=metadata.name%3Dnone", accept=accept)
            if at == f"{IN}/configmaps":
                yield Ask("watch in YAML by path", "GET", f"/api/v1/watch/namespaces/{NAMESPACE}/configmaps?timeoutSeconds=1&fieldSelector=metadata.name%3Dnone", accept=accept)
    for at in (f"{IN}/configmaps", f"{APPS}/deployments", f"{APPS}/deployments/absent"):
        for accept in (f"{_YAML}{_TABLE}", f"{_YAML}{_TABLE},{_LIST}", f"{_LIST}{_TABLE},{_YAML}", f"{_YAML};as=Table;v=v1beta1;g=meta.k8s.io"):
            yield Ask("table in YAML", "GET", f"{at}?labelSelector=x%3Dy&includeObject=None", accept=accept)
    for query in ("resourceVersion=x", "fieldSelector=a%3Db", "labelSelector=%21%21", "resourceVersionMatch=Exact", "sendInitialEvents=x"):
        yield Ask("wrong watch in YAML", "GET", f"{IN}/configmaps?watch=true&timeoutSeconds=1&{query}", accept=_YAML)


def _options() -> Iterator[Ask]:
    for place in ("/api/v1/nodes", f"{IN}/pods", f"{IN}/services"):
        for name in ("nope", "nope:80", "a:b:c:d", "ftp:nope:80", ""):
            for rest in ("", "/", "/deeper"):
                for method in ("OPTIONS", "GET"):
                    yield Ask(f"{method} through a proxy", method, f"{place}/{name}/proxy{rest}")


_WRONG: tuple[Json, ...] = (
    {"propagationPolicy": "Wrong"}, {"orphanDependents": True, "propagationPolicy": "Orphan"}, {"dryRun": ["Some"]}, {"preconditions": {"uid": "x"}}, {"gracePeriodSeconds": -1},
)  # fmt: skip


def _evictions() -> Iterator[Ask]:
    yield Ask("eviction", "POST", f"{IN}/pods", {"metadata": {"name": "here"}, "spec": {"nodeName": "n", **_TEMPLATE["spec"]}})
    for name in ("absent", "here"):
        for query in ("", "?dryRun=All"):
            if name == "here" and not query:
                continue
            for options in _WRONG:
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
                yield Ask(f"eviction of {name}", "POST", f"{IN}/pods/{name}/eviction{query}", body)


def _empties() -> Iterator[Ask]:
    """Of a ResourceSlice's two lists, either alone may be there, even empty."""
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    device, counters = {"name": "d"}, {"name": "c", "counters": {"a": {"value": "1"}}}
    absent = "absent"
    for at, some in enumerate((absent, None, [], [device])):
        for other, counted in enumerate((absent, None, [], [counters])):
            lists = {name: each for name, each in (("devices", some), ("sharedCounters", counted)) if each != absent}
            spec = {"driver": "d.io", "allNodes": True, "pool": {"name": "p", "resourceSliceCount": 1}, **lists}
            body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"small-{at}-{other}"}, "spec": spec}
            yield Ask("create with empties", "POST", f"{slices}?dryRun=All", yaml.safe_dump(body), _YAML)
            yield Ask("create with empties", "POST", slices, body)
            yield Ask("patch with empties", "PATCH", f"{slices}/small-{at}-{other}", {"spec": {"devices": [], "sharedCounters": []}}, _MERGE)
            yield Ask("patch with empties", "PATCH", f"{slices}/small-{at}-{other}?fieldManager=a&force=true", body, "application/apply-patch+yaml")
