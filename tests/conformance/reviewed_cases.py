# ruff: noqa: E501
"""Operations of every sort, drawn: what admission webhooks and policies are shown of each.

Everything is asked twice. As `SHOWN` it is refused by policies whose message is what they see; as the administrator, by
nobody, and a mutating and a validating webhook record what they are sent.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from asking import Ask
from hypothesis import strategies as st
from webhook_server import WebhookServer

Json = dict[str, Any]
NAMESPACE = "reviewed"
SHOWN = "shown"
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_IN = f"/api/v1/namespaces/{NAMESPACE}"
_APPS = f"/apis/apps/v1/namespaces/{NAMESPACE}"
_MERGE, _STRATEGIC, _APPLY = "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_JSON_PATCH = "application/json-patch+json"
_ALL = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
PARTS = ("object", "oldObject", "request")
_OURS = {"name": "ours", "expression": f"request.userInfo.username == 'admin' && !(request.resource.group in ['coordination.k8s.io', 'events.k8s.io'] && request.namespace != '{NAMESPACE}')"}
# Upstream's limit on a message is 5 KB; objects of the scripts stay below it.


def setup() -> Iterator[Ask]:
    yield Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE, "labels": {"a": "b"}}})
    yield Ask("setup", "POST", f"{_IN}/serviceaccounts", {"metadata": {"name": "robot"}})
    for part in PARTS:
        shown = {"name": SHOWN, "expression": f"request.userInfo.username == '{SHOWN}-{part}'"}
        spec = {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [_ALL]}, "matchConditions": [shown],
            "validations": [{"expression": "false", "messageExpression": f"'%s'.format([dyn({part})])"}],
        }  # fmt: skip
        yield Ask("setup", "POST", f"{_ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": f"shows-{part.lower()}"}, "spec": spec})
        bound = {"policyName": f"shows-{part.lower()}", "validationActions": ["Deny"]}
        yield Ask("setup", "POST", f"{_ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": f"shows-{part.lower()}"}, "spec": bound})


def known() -> list[Ask]:
    """Asked until all are refused with a message that says what is seen."""
    ask = Ask("known", "POST", f"{_IN}/configmaps?dryRun=All", {"metadata": {"name": "known"}})
    return shown(ask)


def shown(ask: Ask) -> list[Ask]:
    return [replace(ask, name=f"{ask.name}: {part}", headers=(*ask.headers, ("Impersonate-User", f"{SHOWN}-{part}"), ("Impersonate-Group", "system:masters"))) for part in PARTS]


def configurations(server: WebhookServer, side: str) -> Iterator[Ask]:
    for kind, plural in (("m", "mutatingwebhookconfigurations"), ("v", "validatingwebhookconfigurations")):
        client = {"url": f"https://127.0.0.1:{server.port}/{side}/allow/{kind}", "caBundle": server.bundle}
        hook = {
            "name": f"{kind}.reviewed.example.com", "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [_ALL], "matchConditions": [_OURS],
        }  # fmt: skip
        yield Ask("setup", "POST", f"{_ADMISSION}/{plural}", {"metadata": {"name": "reviewed"}, "webhooks": [hook]})


# --- drawn ------------------------------------------------------------------------------------------------------------

_CONTAINER = {"name": "c", "image": "x"}
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [_CONTAINER]}}
_PODS = (
    {"containers": [_CONTAINER]},
    {"containers": [{**_CONTAINER, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "ports": [{"containerPort": 80, "hostPort": 80}]}], "hostNetwork": True},
    {"containers": [{**_CONTAINER, "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}, "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}], "overhead": None},
    {"containers": [_CONTAINER], "initContainers": [{"name": "i", "image": "y", "resources": {"limits": {"memory": "1Mi"}}}], "volumes": [{"name": "v", "configMap": {"name": "m"}}, {"name": "e", "emptyDir": {}}]},
    {"containers": [{**_CONTAINER, "livenessProbe": {"httpGet": {"port": 80}}, "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}], "resources": {"limits": {"cpu": "1"}}, "serviceAccountName": "robot", "priority": None},
)  # fmt: skip
_QUERIES = ("", "", "?dryRun=All", "?fieldManager=f", "?fieldValidation=Strict", "?dryRun=All&fieldManager=f&fieldValidation=Warn&pretty=true", "?fieldManager=&fieldValidation=")


def _named(name: str, **more: Any) -> Json:
    return {"metadata": {"name": name, "labels": {"case": name}}, **more}


_KINDS: dict[str, tuple[str, tuple[Json, ...]]] = {
    "configmaps": (f"{_IN}/configmaps", ({"data": {"a": "1"}}, {"binaryData": {"a": "AAEC"}, "immutable": False})),
    "secrets": (f"{_IN}/secrets", ({"stringData": {"a": "1"}}, {"data": {"a": "AAEC"}, "type": "x/y"})),
    "pods": (f"{_IN}/pods", tuple({"spec": spec} for spec in _PODS)),
    "services": (f"{_IN}/services", ({"spec": {"ports": [{"port": 80}], "clusterIP": "None", "selector": {"a": "b"}}}, {"spec": {"type": "ExternalName", "externalName": "x.y"}})),
    "serviceaccounts": (f"{_IN}/serviceaccounts", ({}, {"secrets": [{"name": "s"}]})),
    "podtemplates": (f"{_IN}/podtemplates", ({"template": _TEMPLATE},)),
    "resourcequotas": (f"{_IN}/resourcequotas", ({"spec": {"hard": {"services.nodeports": "7"}}},)),
    "limitranges": (f"{_IN}/limitranges", ({"spec": {"limits": [{"type": "Pod", "max": {"x.io/y": "7"}}]}},)),
    "persistentvolumeclaims": (f"{_IN}/persistentvolumeclaims", ({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},)),
    "persistentvolumes": ("/api/v1/persistentvolumes", ({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}},)),
    "events": (f"{_IN}/events", ({"involvedObject": {"namespace": NAMESPACE}, "reason": "R"},)),
    "leases": (f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases", ({"spec": {"holderIdentity": "h"}},)),
    "deployments": (f"{_APPS}/deployments", ({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}},)),
    "replicasets": (f"{_APPS}/replicasets", ({"spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}},)),
    "statefulsets": (f"{_APPS}/statefulsets", ({"spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}},)),
    "daemonsets": (f"{_APPS}/daemonsets", ({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE}},)),
    "replicationcontrollers": (f"{_IN}/replicationcontrollers", ({"spec": {"selector": {"a": "b"}, "template": _TEMPLATE}},)),
    "jobs": (f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", ({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}}}},)),
    "cronjobs": (f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs", ({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}}}}}},)),
    "horizontalpodautoscalers": (f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers", ({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3}},)),
    "horizontalpodautoscalers v1": (f"/apis/autoscaling/v1/namespaces/{NAMESPACE}/horizontalpodautoscalers", ({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50}},)),
    "poddisruptionbudgets": (f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets", ({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"no": "pod"}}}},)),
    "networkpolicies": (f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies", ({"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}},)),
    "ingresses": (f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/ingresses", ({"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},)),
    "roles": (f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles", ({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},)),
    "clusterroles": ("/apis/rbac.authorization.k8s.io/v1/clusterroles", ({"rules": []},)),
    "nodes": ("/api/v1/nodes", ({}, {"spec": {"unschedulable": True}})),
    "namespaces": ("/api/v1/namespaces", ({},)),
    "priorityclasses": ("/apis/scheduling.k8s.io/v1/priorityclasses", ({"value": 3},)),
    "storageclasses": ("/apis/storage.k8s.io/v1/storageclasses", ({"provisioner": "x.io/y"},)),
    "certificatesigningrequests": ("/apis/certificates.k8s.io/v1/certificatesigningrequests", ()),
    "resourceclaims": (f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims", ({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}},)),
    "endpointslices": (f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", ({"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},)),
    "endpoints": (f"{_IN}/endpoints", ({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},)),
    "controllerrevisions": (f"{_APPS}/controllerrevisions", ({"data": {"a": 1}, "revision": 1},)),
    "runtimeclasses": ("/apis/node.k8s.io/v1/runtimeclasses", ({"handler": "h"},)),
}  # fmt: skip
del _KINDS["certificatesigningrequests"]
_SCALED = ("deployments", "replicasets", "statefulsets", "replicationcontrollers")
_WITH_STATUS = (
    "pods", "services", "resourcequotas", "persistentvolumeclaims", "persistentvolumes", "deployments", "replicasets", "statefulsets", "daemonsets",
    "replicationcontrollers", "jobs", "cronjobs", "horizontalpodautoscalers", "poddisruptionbudgets", "ingresses", "nodes", "namespaces", "resourceclaims",
)  # fmt: skip


@st.composite
def scripts(draw: st.DrawFn, kind: str, name: str) -> list[Ask]:
    """The life of one object."""
    collection, bodies = _KINDS[kind]
    at = f"{collection}/{name}"
    body = _named(name, **copy.deepcopy(draw(st.sampled_from(bodies))))
    query = st.sampled_from(_QUERIES)
    asks = [Ask(f"create {kind}", "POST", f"{collection}{draw(query).replace('dryRun=All', 'a=b')}", body)]
    if draw(st.integers(0, 3)) == 0:
        generated = {**body, "metadata": {"generateName": "g-", "labels": {"case": name}}}
        asks.append(Ask(f"create {kind} by generateName", "POST", f"{collection}?dryRun=All", generated))
    asks += draw(st.lists(_change(kind, at, body, query), min_size=2, max_size=4))
    asks += draw(_parts(kind, at, name))
    asks += draw(_ends(kind, collection, at, name))
    return asks


@st.composite
def _change(draw: st.DrawFn, kind: str, at: str, body: Json, query: st.SearchStrategy[str]) -> Ask:
    labels = {"case": at.rpartition("/")[2], "b": draw(st.sampled_from("123"))}
    metadata = {**body["metadata"], "labels": labels}
    way = draw(st.sampled_from(("put", "stale", "merge", "strategic", "json", "apply", "stale patch", "invalid", "absent")))
    asked = draw(query)
    if way == "put":
        return Ask(f"put {kind}", "PUT", f"{at}{asked}", {**body, "metadata": metadata})
    if way == "stale":
        return Ask(f"put a stale {kind}", "PUT", f"{at}{asked}", {**body, "metadata": {**metadata, "resourceVersion": draw(st.sampled_from(("1", "0")))}})
    if way == "stale patch":
        return Ask(f"patch a stale {kind}", "PATCH", f"{at}{asked}", {"metadata": {"resourceVersion": "1", "labels": labels}}, _MERGE)
    if way == "invalid":
        return Ask(f"invalid {kind}", "PATCH", f"{at}{asked}", {"metadata": {"labels": {"-": "-"}}}, _MERGE)
    if way == "absent":
        return Ask(f"put no {kind}", "PUT", f"{at}-absent{asked}", {**body, "metadata": {**metadata, "name": f"{metadata['name']}-absent"}})
    if way == "json":
        return Ask(f"json-patch {kind}", "PATCH", f"{at}{asked}", [{"op": "add", "path": "/metadata/annotations", "value": labels}], _JSON_PATCH)
    if way == "apply":
        asked = draw(st.sampled_from(("?fieldManager=f", "?fieldManager=f&force=true", "?fieldManager=f&force=false&dryRun=All")))
        version, plural = _version_of(at), kind.partition(" ")[0]
        named = {"apiVersion": version, "kind": _KIND_NAMES[plural], "metadata": {"name": metadata["name"], "labels": {"c": labels["b"]}}}
        return Ask(f"apply {kind}", "PATCH", f"{at}{asked}", named, _APPLY)
    media = _MERGE if way == "merge" else _STRATEGIC
    return Ask(f"{way} {kind}", "PATCH", f"{at}{asked}", {"metadata": {"labels": labels}}, media)


_KIND_NAMES = {
    "configmaps": "ConfigMap", "secrets": "Secret", "pods": "Pod", "services": "Service", "serviceaccounts": "ServiceAccount", "podtemplates": "PodTemplate",
    "resourcequotas": "ResourceQuota", "limitranges": "LimitRange", "persistentvolumeclaims": "PersistentVolumeClaim", "persistentvolumes": "PersistentVolume",
    "events": "Event", "leases": "Lease", "deployments": "Deployment", "replicasets": "ReplicaSet", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet",
    "replicationcontrollers": "ReplicationController", "jobs": "Job", "cronjobs": "CronJob", "horizontalpodautoscalers": "HorizontalPodAutoscaler",
    "poddisruptionbudgets": "PodDisruptionBudget", "networkpolicies": "NetworkPolicy", "ingresses": "Ingress", "roles": "Role", "clusterroles": "ClusterRole",
    "nodes": "Node", "namespaces": "Namespace", "priorityclasses": "PriorityClass", "storageclasses": "StorageClass", "resourceclaims": "ResourceClaim",
    "endpointslices": "EndpointSlice", "endpoints": "Endpoints", "controllerrevisions": "ControllerRevision", "runtimeclasses": "RuntimeClass",
}  # fmt: skip


def _version_of(path: str) -> str:
    parts = path.strip("/").split("/")
    return parts[1] if parts[0] == "api" else f"{parts[1]}/{parts[2]}"


@st.composite
def _parts(draw: st.DrawFn, kind: str, at: str, name: str) -> list[Ask]:
    asks = []
    labels = {"case": name, "d": draw(st.sampled_from("12"))}
    if kind in _WITH_STATUS:
        asks.append(Ask(f"status of {kind}", "PATCH", f"{at}/status", {"metadata": {"labels": labels}, "status": {}}, _MERGE))
        asks.append(Ask(f"stale status of {kind}", "PATCH", f"{at}/status", {"metadata": {"resourceVersion": "1"}}, _MERGE))
    if kind in _SCALED:
        scale = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"replicas": draw(st.integers(0, 3))}}
        asks.append(Ask(f"scale {kind}", "PUT", f"{at}/scale{draw(st.sampled_from(('', '?dryRun=All&fieldManager=x')))}", scale))
        asks.append(Ask(f"patch scale of {kind}", "PATCH", f"{at}/scale", {"spec": {"replicas": draw(st.integers(0, 3))}}, draw(st.sampled_from((_MERGE, _STRATEGIC)))))
        version = scale | {"metadata": scale["metadata"] | draw(st.sampled_from(({"resourceVersion": "1"}, {"uid": "1-2-3"}, {"labels": {"a": "b"}})))}
        asks.append(Ask(f"stale scale of {kind}", "PUT", f"{at}/scale", version))
        applied = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": 4}}
        asks.append(Ask(f"apply scale of {kind}", "PATCH", f"{at}/scale?fieldManager=s&force=true", applied, _APPLY))
    if kind == "serviceaccounts":
        spec = draw(st.sampled_from(({}, {"audiences": ["x"]}, {"expirationSeconds": 700})))
        asks.append(Ask("token", "POST", f"{at}/token{draw(st.sampled_from(('', '?dryRun=All')))}", {"spec": spec}))
        asks.append(Ask("token of another", "POST", f"{at}/token", {"metadata": {"name": "other"}, "spec": spec}))
        asks.append(Ask("token of nobody", "POST", f"{at}-absent/token", {"spec": spec}))
    if kind == "namespaces":
        asks.append(Ask("finalize", "PUT", f"{at}/finalize", {"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}}))
    if kind == "pods":
        asks += [draw(_into_pods(at, name)) for _ in range(draw(st.integers(3, 6)))]
    if kind == "services":
        asks.append(Ask("service proxy", draw(st.sampled_from(("GET", "POST", "PUT"))), f"{at}{draw(st.sampled_from(('', ':80', ':web')))}/proxy{draw(st.sampled_from(('', '/', '/a/b', '/a?b=c')))}"))
    if kind == "nodes":
        asks.append(Ask("node proxy", "GET", f"{at}/proxy/{draw(st.sampled_from(('', 'pods', 'a/b?c=d')))}"))
    return asks


@st.composite
def _into_pods(draw: st.DrawFn, at: str, name: str) -> Ask:
    way = draw(st.sampled_from(("exec", "attach", "portforward", "proxy", "eviction", "binding", "bindings", "ephemeralcontainers", "resize")))
    method = draw(st.sampled_from(("GET", "POST")))
    if way in ("exec", "attach"):
        flags = draw(st.lists(st.sampled_from(("stdin=true", "stdout=true", "stderr=true", "tty=true", "container=c", "container=", "stdin=false", "tty=false", *(("command=sh", "command=-c") if way == "exec" else ()))), max_size=4, unique=True))
        return Ask(way, method, f"{at}/{way}{'?' + '&'.join(flags) if flags else ''}")
    if way == "portforward":
        return Ask(way, method, f"{at}/portforward{draw(st.sampled_from(('', '?ports=80', '?ports=80&ports=81')))}")
    if way == "proxy":
        return Ask(way, method, f"{at}{draw(st.sampled_from(('', ':80')))}/proxy{draw(st.sampled_from(('', '/', '/a/b', '/a?b=c')))}")
    if way == "eviction":
        options = draw(st.sampled_from(({}, {"deleteOptions": {"gracePeriodSeconds": 3}}, {"deleteOptions": {"dryRun": ["All"], "propagationPolicy": "Background"}}, {"deleteOptions": {"preconditions": {"uid": "x"}}})))
        return Ask(way, "POST", f"{at}/eviction?dryRun=All", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **options})
    if way in ("binding", "bindings"):
        where = f"{at}/binding" if way == "binding" else f"{at.rpartition('/pods/')[0]}/bindings"
        return Ask(way, "POST", f"{where}?dryRun=All", {"metadata": {"name": name}, "target": draw(st.sampled_from(({"kind": "Node", "name": "n"}, {"name": "n"}, {"apiVersion": "v1", "kind": "Node", "name": "n"})))})
    if way == "ephemeralcontainers":
        return Ask(way, "PATCH", f"{at}/ephemeralcontainers?dryRun=All", {"spec": {"ephemeralContainers": [{"name": "e", "image": "y"}]}}, _STRATEGIC)
    return Ask(way, "PATCH", f"{at}/resize?dryRun=All", {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}, _STRATEGIC)


@st.composite
def _ends(draw: st.DrawFn, kind: str, collection: str, at: str, name: str) -> list[Ask]:
    options: list[Any] = [
        None, None, {}, {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 5}, {"propagationPolicy": "Foreground"}, {"propagationPolicy": "Background", "dryRun": ["All"]},
        {"orphanDependents": True}, {"preconditions": {"uid": "x"}}, {"preconditions": {"resourceVersion": "1"}}, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 1},
        {"ignoreStoreReadErrorWithClusterBreakingPotential": False},
    ]  # fmt: skip
    queries = ("", "", "?gracePeriodSeconds=0", "?propagationPolicy=Background&dryRun=All", "?orphanDependents=false", "?gracePeriodSeconds=7&propagationPolicy=Orphan&pretty=1")
    deletion = st.builds(lambda query, body: Ask(f"delete {kind}", "DELETE", f"{at}{query}", body), st.sampled_from(queries), st.sampled_from(options))
    asks = draw(st.lists(deletion, min_size=1, max_size=2))
    selected = f"labelSelector=case%3D{name}"
    if kind != "namespaces" and not (kind == "services" and draw(st.booleans())):
        more = draw(st.sampled_from(("", "&gracePeriodSeconds=0", "&dryRun=All", "&propagationPolicy=Background")))
        asks.append(Ask(f"delete all {kind}", "DELETE", f"{collection}?{selected}{more}", draw(st.sampled_from(options[:7]))))
    clear = {"metadata": {"finalizers": None}}
    return [*asks, Ask(f"release {kind}", "PATCH", at, clear, _MERGE), Ask(f"delete {kind}", "DELETE", f"{at}?gracePeriodSeconds=0")]


def reviews() -> Iterator[Ask]:
    """Kinds that are answered and not stored."""
    at = "/apis/authorization.k8s.io/v1"
    resource = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": NAMESPACE}}
    for query in ("", "?dryRun=All&fieldManager=f", "?fieldValidation=Strict"):
        yield Ask("subjectaccessreview", "POST", f"{at}/subjectaccessreviews{query}", {"spec": {**resource, "user": "u", "groups": ["g"], "extra": {"a": ["b"]}}})
        yield Ask("selfsubjectaccessreview", "POST", f"{at}/selfsubjectaccessreviews{query}", {"spec": resource})
        yield Ask("selfsubjectrulesreview", "POST", f"{at}/selfsubjectrulesreviews{query}", {"spec": {"namespace": NAMESPACE}})
        for metadata in ({}, {"namespace": NAMESPACE}, {"namespace": "other"}, {"name": "n", "labels": {"a": "b"}}):
            spec = {"metadata": metadata, "spec": {**resource, "user": "u"}}
            yield Ask("localsubjectaccessreview", "POST", f"{at}/namespaces/{NAMESPACE}/localsubjectaccessreviews{query}", spec)
        yield Ask("tokenreview", "POST", f"/apis/authentication.k8s.io/v1/tokenreviews{query}", {"spec": {"token": "x"}})
        yield Ask("selfsubjectreview", "POST", f"/apis/authentication.k8s.io/v1/selfsubjectreviews{query}", {})


KINDS = tuple(_KINDS)
