"""Requests told one by one, good and bad, in order: what one leaves behind the next may use."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from asking import Ask

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
YAML = "application/yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def C(
    name: str, method: str, path: str, body: Any = None, content_type: str = "", accept: str = JSON,
    token: str | None = None, headers: dict[str, str] | None = None,
) -> Ask:  # fmt: skip
    target = quote(path, safe="/?=&%(),:!")
    return Ask(name, method, target, body, content_type, accept, token, tuple((headers or {}).items()))


NS = "/api/v1/namespaces/raw"
PODS = NS + "/pods"
CMS = NS + "/configmaps"


def pod(name: str | None, **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "nginx"}], **more.pop("spec", {})}
    meta = {**({"name": name} if name else {}), **more.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, **more}


def cm(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more.pop("metadata", {})}, "data": {"a": "1"}, **more}


def lots(depth: int) -> str:
    return '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"data":' + '{"a":' * depth + "1" + "}" * depth + "}"


PATHS = [
    C("api", "GET", "/api"),
    C("unknown path", "GET", "/nope"),
    C("unknown resource", "GET", "/api/v1/gadgets"),
    C("unknown group", "GET", "/apis/nope/v1"),
    C("unknown group resource", "GET", "/apis/nope/v1/things"),
    *(C(f"unknown group {m}", m, "/apis/nope/v1/things/x", None if m == "DELETE" else {}, MERGE if m == "PATCH" else "") for m in ("PATCH", "PUT", "POST", "DELETE")),
    C("patch unknown group version", "PATCH", "/apis/nope/v1", {}, MERGE),
    C("patch unknown group itself", "PATCH", "/apis/nope", {}, MERGE),
    C("unknown version", "GET", "/api/v2/pods"),
    C("unknown subresource", "GET", PODS + "/x/nope"),
    C("healthz", "GET", "/healthz"),
    C("livez", "GET", "/livez"),
    C("readyz", "GET", "/readyz"),
    C("wrong token", "GET", "/api/v1/pods", token="wrong"),
    C("no token", "GET", "/api/v1/pods", token=""),
    C("no token get", "GET", PODS + "/a", token=""),
    C("no token create", "POST", PODS, pod("a"), token=""),
    C("no token path", "GET", "/api", token=""),
    C("no token version", "GET", "/version", token=""),
    C("malformed authorization", "GET", "/api/v1/pods", token="", headers={"Authorization": "Basic abc"}),
    C("trace", "TRACE", "/api/v1/pods"),
    C("options", "OPTIONS", "/api/v1/pods"),
    C("head list", "HEAD", "/api/v1/namespaces"),
    C("unknown verb", "FROB", "/api/v1/pods"),
    C("post to named", "POST", "/api/v1/namespaces/default", {}),
    C("put to collection", "PUT", "/api/v1/namespaces", {}),
    C("patch collection", "PATCH", "/api/v1/namespaces", {}, MERGE),
    C("delete namespaces collection", "DELETE", "/api/v1/namespaces"),
    C("post pods cluster wide", "POST", "/api/v1/pods", pod("a")),
]

NAMESPACE = [
    C("create namespace", "POST", "/api/v1/namespaces", {"metadata": {"name": "raw"}}),
    C("create namespace again", "POST", "/api/v1/namespaces", {"metadata": {"name": "raw"}}),
    C("create namespace bad name", "POST", "/api/v1/namespaces", {"metadata": {"name": "Raw_1"}}),
    C("create namespace no name", "POST", "/api/v1/namespaces", {}),
    C("get namespace", "GET", NS),
    C("namespace table", "GET", NS, accept=TABLE),
    C("status of namespace", "GET", NS + "/status"),
]

CREATE = [
    C("create pod", "POST", PODS, pod("a", metadata={"labels": {"app": "a"}})),
    C("create pod again", "POST", PODS, pod("a")),
    C("create pod yaml", "POST", PODS, "apiVersion: v1\nkind: Pod\nmetadata: {name: yam}\nspec: {containers: [{name: c, image: x}]}\n", YAML),
    C("create generate name", "POST", PODS, pod(None, metadata={"generateName": "gen-"})),
    C("create without name", "POST", PODS, pod(None)),
    C("create no body", "POST", PODS, b""),
    C("create empty object", "POST", PODS, {}),
    C("create no kind", "POST", PODS, {"metadata": {"name": "nk"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}),
    C("create array", "POST", PODS, []),
    C("create string", "POST", PODS, '"text"'),
    C("create null", "POST", PODS, "null"),
    C("create wrong kind", "POST", PODS, cm("x")),
    C("create unknown kind", "POST", PODS, {"apiVersion": "v1", "kind": "Gadget", "metadata": {"name": "x"}}),
    C("create wrong version", "POST", PODS, {**pod("x"), "apiVersion": "v2"}),
    C("create wrong group", "POST", PODS, {**pod("x"), "apiVersion": "apps/v1"}),
    C("create truncated json", "POST", PODS, '{"apiVersion":"v1","kind":"Pod"'),
    C("create bad json", "POST", PODS, "{bad}"),
    C("create trailing garbage", "POST", PODS, json.dumps(pod("tg")) + "xyz"),
    C("create bad utf8", "POST", PODS, b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"u\xff"}}'),
    C("create bad yaml", "POST", PODS, "a: [b", YAML),
    C("create text", "POST", PODS, pod("x"), "text/plain"),
    C("create xml", "POST", PODS, "<a/>", "application/xml"),
    C("create bad protobuf", "POST", PODS, b"k8s\x00\x01\x02", "application/vnd.kubernetes.protobuf"),
    C("create protobuf without magic", "POST", PODS, b"abc", "application/vnd.kubernetes.protobuf"),
    C("create wrong namespace", "POST", PODS, pod("x", metadata={"namespace": "other"})),
    C("create missing namespace", "POST", "/api/v1/namespaces/none/pods", pod("x")),
    C("create with resourceVersion", "POST", PODS, pod("x", metadata={"resourceVersion": "5"})),
    C("create with uid", "POST", PODS, pod("withuid", metadata={"uid": "mine"})),
    C("create strict unknown", "POST", PODS + "?fieldValidation=Strict", pod("x", spec={"foo": 1})),
    C("create strict two unknown", "POST", PODS + "?fieldValidation=Strict", pod("x", spec={"foo": 1, "bar": 2}, metadata={"baz": 3})),
    C("create strict duplicate", "POST", PODS + "?fieldValidation=Strict", '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"d","name":"e"},"spec":{"containers":[{"name":"c","image":"x"}]}}'),
    C("create ignore unknown", "POST", PODS + "?fieldValidation=Ignore", pod("ign", spec={"foo": 1})),
    C("create warn unknown", "POST", PODS + "?fieldValidation=Warn", pod("wrn", spec={"foo": 1})),
    C("create bad field validation", "POST", PODS + "?fieldValidation=Sure", pod("x")),
    C("create dry run", "POST", PODS + "?dryRun=All", pod("dry")),
    C("dry run left nothing", "GET", PODS + "/dry"),
    C("create bad dry run", "POST", PODS + "?dryRun=Some", pod("x")),
    C("create wrong type string", "POST", PODS, pod("x", spec={"containers": "c"})),
    C("create wrong type int", "POST", PODS, pod("x", spec={"priority": "high"})),
    C("create wrong type bool", "POST", PODS, pod("x", spec={"hostNetwork": "yes"})),
    C("create float for int", "POST", PODS, pod("x", spec={"terminationGracePeriodSeconds": 1.5})),
    C("create int overflow", "POST", PODS, pod("x", spec={"priority": 3000000000})),
    C("create metadata string", "POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": "m"}),
    C("create label not string", "POST", PODS, pod("x", metadata={"labels": {"a": 1}})),
    C("create bad quantity", "POST", PODS, pod("x", spec={"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "lots"}}}]})),
    C("create negative quantity", "POST", PODS, pod("x", spec={"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1"}}}]})),
    C("create bad time", "POST", PODS, pod("x", metadata={"creationTimestamp": "yesterday"})),
    C("create deep", "POST", CMS, lots(200)),
    C("create very deep", "POST", CMS, lots(20_000)),
    C("create 4 MB", "POST", CMS, cm("big", data={"a": "x" * 4_000_000})),
    C("create 2 MB", "POST", CMS, cm("big", data={"a": "x" * 2_000_000})),
    C("create null fields", "POST", PODS, pod("nulls", metadata={"labels": None, "annotations": None}, spec={"nodeSelector": None})),
    C("create cm", "POST", CMS, cm("one")),
    C("create cm binary", "POST", CMS, cm("two", binaryData={"b": "AAEC"})),
    C("create cm bad base64", "POST", CMS, cm("three", binaryData={"b": "***"})),
    C("create cm bad key", "POST", CMS, cm("three", data={"a b": "1"})),
    C("create immutable cm", "POST", CMS, cm("fixed", immutable=True)),
    C("create many problems", "POST", PODS, pod("p", spec={"restartPolicy": "No", "dnsPolicy": "Odd", "containers": [{"name": "C_1", "image": "", "ports": [{"containerPort": 0}]}, {"name": "C_1"}]})),
]

READ = [
    C("get", "GET", PODS + "/a"),
    C("get missing", "GET", PODS + "/zzz"),
    C("get rv 0", "GET", PODS + "/a?resourceVersion=0"),
    C("get bad rv", "GET", PODS + "/a?resourceVersion=abc"),
    C("get table", "GET", CMS + "/one", accept=TABLE),
    C("get partial", "GET", CMS + "/one", accept=PARTIAL),
    C("get not acceptable", "GET", CMS + "/one", accept="application/xml"),
    C("get accept any", "GET", CMS + "/one", accept="*/*"),
    C("get yaml", "GET", CMS + "/one", accept=YAML),
    C("list", "GET", CMS + "?labelSelector=none"),
    C("list cms", "GET", CMS + "?fieldSelector=metadata.name=one"),
    C("list partial", "GET", CMS + "?fieldSelector=metadata.name=one", accept=PARTIAL_LIST),
    C("list table object", "GET", CMS + "?fieldSelector=metadata.name=one&includeObject=Object", accept=TABLE),
    C("list table none", "GET", CMS + "?fieldSelector=metadata.name=one&includeObject=None", accept=TABLE),
    C("list table bad include", "GET", CMS + "?includeObject=Some", accept=TABLE),
    C("list negative limit", "GET", CMS + "?limit=-1"),
    C("list bad limit", "GET", CMS + "?limit=abc"),
    C("list bad continue", "GET", CMS + "?limit=1&continue=abc"),
    C("list bad continue base64", "GET", CMS + "?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTIsInN0YXJ0IjoiIn0"),
    C("list continue and rv", "GET", CMS + "?limit=1&continue=abc&resourceVersion=5"),
    C("list match without rv", "GET", CMS + "?resourceVersionMatch=Exact"),
    C("list match bad", "GET", CMS + "?resourceVersion=1&resourceVersionMatch=Sure"),
    C("list match exact zero", "GET", CMS + "?resourceVersion=0&resourceVersionMatch=Exact"),
    C("list match with continue", "GET", CMS + "?limit=1&continue=abc&resourceVersion=1&resourceVersionMatch=Exact"),
    C("list bad rv", "GET", CMS + "?resourceVersion=abc"),
    C("list future exact", "GET", CMS + "?resourceVersion=99999999&resourceVersionMatch=Exact"),
    C("list bad label selector", "GET", CMS + "?labelSelector=a%20in%20(b"),
    C("list bad label key", "GET", CMS + "?labelSelector=-a=b"),
    C("list bad label value", "GET", CMS + "?labelSelector=a=b/c"),
    C("list bad field selector", "GET", CMS + "?fieldSelector=data.a=1"),
    C("list malformed field selector", "GET", CMS + "?fieldSelector=data"),
    C("list field a=b>c", "GET", CMS + "?fieldSelector=metadata.name=b%3Ec"),
    C("list field x>1", "GET", CMS + "?fieldSelector=metadata.name%3E1"),
    C("list field x>=1", "GET", CMS + "?fieldSelector=metadata.name%3E=1"),
    C("list nodes field x>=1", "GET", "/api/v1/nodes?fieldSelector=spec.foo%3E=1"),
    C("list field escaped", "GET", CMS + "?fieldSelector=metadata.name=a%5C,b"),
    C("list field bad escape", "GET", CMS + "?fieldSelector=metadata.name=a%5Cb"),
    C("watch future", "GET", CMS + "?watch=1&resourceVersion=99999999&timeoutSeconds=1"),
    C("watch bad rv", "GET", CMS + "?watch=1&resourceVersion=abc"),
    C("watch from zero", "GET", CMS + "?watch=1&fieldSelector=metadata.name=one&timeoutSeconds=1"),
    C("watch initial events no match", "GET", CMS + "?watch=1&sendInitialEvents=true"),
    C("watch match without initial", "GET", CMS + "?watch=1&resourceVersionMatch=NotOlderThan"),
    C("watch initial events", "GET", CMS + "?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&fieldSelector=metadata.name=one&timeoutSeconds=1"),
    C("list send initial", "GET", CMS + "?sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
]

WRITE = [
    C("put stale", "PUT", CMS + "/one", cm("one", metadata={"resourceVersion": "1"})),
    C("put without rv", "PUT", CMS + "/one", cm("one", data={"a": "2"})),
    C("put same", "PUT", CMS + "/one", cm("one", data={"a": "2"})),
    C("put other name", "PUT", CMS + "/one", cm("other")),
    C("put missing", "PUT", CMS + "/absent", cm("absent")),
    C("put wrong uid", "PUT", CMS + "/one", cm("one", metadata={"uid": "11111111-1111-1111-1111-111111111111"})),
    C("put bad rv", "PUT", CMS + "/one", cm("one", metadata={"resourceVersion": "abc"})),
    C("put no body", "PUT", CMS + "/one", b""),
    C("put immutable", "PUT", CMS + "/fixed", cm("fixed", data={"a": "9"}, immutable=True)),
    C("put pod spec", "PUT", PODS + "/a", pod("a", spec={"nodeName": "other"})),
    C("put dry run", "PUT", CMS + "/one?dryRun=All", cm("one", data={"a": "3"})),
    C("merge patch", "PATCH", CMS + "/one", {"data": {"b": "2", "a": None}}, MERGE),
    C("merge patch not object", "PATCH", CMS + "/one", [1], MERGE),
    C("merge patch bad json", "PATCH", CMS + "/one", "{", MERGE),
    C("merge patch empty", "PATCH", CMS + "/one", b"", MERGE),
    C("merge patch wrong type", "PATCH", CMS + "/one", {"data": {"a": 1}}, MERGE),
    C("merge patch strict", "PATCH", CMS + "/one?fieldValidation=Strict", {"foo": 1}, MERGE),
    C("merge patch warn", "PATCH", CMS + "/one?fieldValidation=Warn", {"foo": 1}, MERGE),
    C("merge patch name", "PATCH", CMS + "/one", {"metadata": {"name": "n2"}}, MERGE),
    C("merge patch rv stale", "PATCH", CMS + "/one", {"metadata": {"resourceVersion": "1"}}, MERGE),
    C("strategic patch", "PATCH", PODS + "/a", {"metadata": {"annotations": {"k": "v"}}}, STRATEGIC),
    C("strategic patch bad directive", "PATCH", PODS + "/a", {"spec": {"containers": [{"$patch": "odd", "name": "c"}]}}, STRATEGIC),
    C("strategic patch no merge key", "PATCH", PODS + "/a", {"spec": {"containers": [{"image": "y"}]}}, STRATEGIC),
    C("strategic patch wrong type", "PATCH", PODS + "/a", {"spec": {"containers": "x"}}, STRATEGIC),
    C("json patch", "PATCH", CMS + "/one", [{"op": "add", "path": "/data/c", "value": "3"}], JSON_PATCH),
    C("json patch not list", "PATCH", CMS + "/one", {"op": "add"}, JSON_PATCH),
    C("json patch unknown op", "PATCH", CMS + "/one", [{"op": "frob", "path": "/data/c"}], JSON_PATCH),
    C("json patch missing path", "PATCH", CMS + "/one", [{"op": "remove", "path": "/data/zzz"}], JSON_PATCH),
    C("json patch test fails", "PATCH", CMS + "/one", [{"op": "test", "path": "/data/c", "value": "9"}], JSON_PATCH),
    C("patch no content type", "PATCH", CMS + "/one", "{}", ""),
    C("patch bad content type", "PATCH", CMS + "/one", "{}", "application/json"),
    C("patch missing", "PATCH", CMS + "/absent", {}, MERGE),
    C("patch dry run", "PATCH", CMS + "/one?dryRun=All", {"data": {"z": "9"}}, MERGE),
    C("after dry runs", "GET", CMS + "/one"),
    C("pod status patch", "PATCH", PODS + "/a/status", {"status": {"reason": "Because"}, "spec": {"nodeName": "no"}}, MERGE),
    C("pod status get", "GET", PODS + "/a/status"),
    C("pod spec ignored by status", "GET", PODS + "/a"),
    C("cm status", "GET", CMS + "/one/status"),
]

SUB = [
    C("bind", "POST", PODS + "/a/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "node-x"}}),
    C("bind again", "POST", PODS + "/a/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "node-y"}}),
    C("bind missing", "POST", PODS + "/zzz/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "zzz"}, "target": {"kind": "Node", "name": "node-y"}}),
    C("bind no target", "POST", PODS + "/yam/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "yam"}, "target": {}}),
    C("bind wrong kind", "POST", PODS + "/yam/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "yam"}, "target": {"kind": "Pod", "name": "x"}}),
    C("bound", "GET", PODS + "/a"),
    C("create rc", "POST", NS + "/replicationcontrollers", {"metadata": {"name": "rc"}, "spec": {"replicas": 0, "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
    C("get scale", "GET", NS + "/replicationcontrollers/rc/scale"),
    C("put scale", "PUT", NS + "/replicationcontrollers/rc/scale", {"metadata": {"name": "rc", "namespace": "raw"}, "spec": {"replicas": 0}}),
    C("patch scale bad", "PATCH", NS + "/replicationcontrollers/rc/scale", {"spec": {"replicas": -1}}, MERGE),
    C("get scale missing", "GET", NS + "/replicationcontrollers/zz/scale"),
    C("create service", "POST", NS + "/services", {"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 80}]}}),
    C("create headless", "POST", NS + "/services", {"metadata": {"name": "headless"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}}),
    C("create service bad ip", "POST", NS + "/services", {"metadata": {"name": "bad"}, "spec": {"clusterIP": "1.2.3", "ports": [{"port": 80}]}}),
    C("create service no ports", "POST", NS + "/services", {"metadata": {"name": "bad"}, "spec": {}}),
    C("change cluster ip", "PATCH", NS + "/services/svc", {"spec": {"clusterIP": "10.0.0.77"}}, MERGE),
    C("create secret string data", "POST", NS + "/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}}),
    C("create secret bad type data", "POST", NS + "/secrets", {"metadata": {"name": "t"}, "type": "kubernetes.io/tls", "data": {}}),
    C("change secret type", "PATCH", NS + "/secrets/s", {"type": "other"}, MERGE),
    C("create event", "POST", NS + "/events", {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "a", "namespace": "raw"}, "reason": "R", "message": "m", "type": "Normal"}),
    C("create event other ns", "POST", NS + "/events", {"metadata": {"name": "e2"}, "involvedObject": {"kind": "Pod", "name": "a", "namespace": "other"}}),
    C("create lease", "POST", "/apis/coordination.k8s.io/v1/namespaces/raw/leases", {"metadata": {"name": "l"}, "spec": {"holderIdentity": "h", "leaseDurationSeconds": 10}}),
    C("create lease bad", "POST", "/apis/coordination.k8s.io/v1/namespaces/raw/leases", {"metadata": {"name": "l2"}, "spec": {"leaseDurationSeconds": 0}}),
    C("create endpoints", "POST", NS + "/endpoints", {"metadata": {"name": "ep"}, "subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}]}),
    C("create endpoints bad", "POST", NS + "/endpoints", {"metadata": {"name": "ep2"}, "subsets": [{"addresses": [{"ip": "127.0.0.1"}], "ports": [{"port": 0}]}]}),
    C("create node", "POST", "/api/v1/nodes", {"metadata": {"name": "raw-node"}, "spec": {"taints": [{"key": "k", "effect": "Odd"}]}}),
    C("create sa", "POST", NS + "/serviceaccounts", {"metadata": {"name": "sa"}}),
    C("access review", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}),
    C("evict", "POST", PODS + "/yam/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "yam", "namespace": "raw"}}),
    C("evict missing", "POST", PODS + "/zzz/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "zzz", "namespace": "raw"}}),
]

DELETE = [
    C("delete missing", "DELETE", PODS + "/zzz"),
    C("delete wrong uid", "DELETE", CMS + "/one", {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}}),
    C("delete wrong rv", "DELETE", CMS + "/one", {"preconditions": {"resourceVersion": "1"}}),
    C("delete bad propagation", "DELETE", CMS + "/one", {"propagationPolicy": "Sideways"}),
    C("delete both options", "DELETE", CMS + "/one", {"propagationPolicy": "Orphan", "orphanDependents": True}),
    C("delete negative grace", "DELETE", PODS + "/ign", {"gracePeriodSeconds": -1}),
    C("delete bad body", "DELETE", CMS + "/one", "{"),
    C("delete dry run", "DELETE", CMS + "/one?dryRun=All"),
    C("delete cm", "DELETE", CMS + "/one"),
    C("delete bound pod", "DELETE", PODS + "/a"),
    C("terminating pod", "GET", PODS + "/a"),
    C("delete terminating now", "DELETE", PODS + "/a?gracePeriodSeconds=0"),
    C("deleted", "GET", PODS + "/a"),
    C("create finalized", "POST", CMS, cm("fin", metadata={"finalizers": ["example.com/f"]})),
    C("bad finalizer", "POST", CMS, cm("fin2", metadata={"finalizers": ["Not A Name"]})),
    C("delete finalized", "DELETE", CMS + "/fin"),
    C("still there", "GET", CMS + "/fin"),
    C("add finalizer late", "PATCH", CMS + "/fin", {"metadata": {"finalizers": ["example.com/f", "example.com/g"]}}, MERGE),
    C("finish", "PATCH", CMS + "/fin", {"metadata": {"finalizers": None}}, MERGE),
    C("finished", "GET", CMS + "/fin"),
    C("delete service", "DELETE", NS + "/services/headless"),
    C("delete secret", "DELETE", NS + "/secrets/s"),
    C("delete lease", "DELETE", "/apis/coordination.k8s.io/v1/namespaces/raw/leases/l"),
    C("delete sa", "DELETE", NS + "/serviceaccounts/sa"),
    C("delete event", "DELETE", NS + "/events/e"),
    C("delete collection", "DELETE", NS + "/secrets"),
    C("delete default namespace", "DELETE", "/api/v1/namespaces/kube-system"),
    C("finalize namespace", "PUT", NS + "/finalize", {"metadata": {"name": "raw"}, "spec": {"finalizers": ["kubernetes", "example.com/keep"]}}),
    C("delete namespace", "DELETE", NS),
    C("create in terminating", "POST", CMS, cm("late")),
    C("finish namespace", "PUT", NS + "/finalize", {"metadata": {"name": "raw"}, "spec": {"finalizers": []}}),
]

CASES = [*PATHS, *NAMESPACE, *CREATE, *READ, *WRITE, *SUB, *DELETE]
