"""What becomes of an object: drawn scripts of writes to one object each, the same to ours and to upstream.

A script is a list of requests in their order. `setup` comes before all scripts; `await_code` is asked again until it
answers 200, as a definition is served a moment after it was made.
"""

from __future__ import annotations

from typing import Any

from asking import JSON, Ask
from connect_cases import connections
from drawn_objects import JSON_PATCH, MERGE, VERSION
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from windows_cases import windows

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


# --- services ---------------------------------------------------------------------------------------------------------

_IN = "/api/v1/namespaces/default"
_STRATEGIC = "application/strategic-merge-patch+json"
_PORTS = ([{"port": 80}], [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}], [{"port": 80, "name": "a"}, {"port": 80, "name": "u", "protocol": "UDP"}], [])
_SERVICE: dict[str, tuple[Any, ...]] = {
    "type": ("ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName", None), "ports": _PORTS,
    "externalTrafficPolicy": ("Local", "Local", "Cluster", None), "internalTrafficPolicy": ("Local", "Cluster", None),
    "externalName": ("a.b", "", None), "sessionAffinity": ("ClientIP", "None", None), "selector": ({"a": "b"}, None),
    "sessionAffinityConfig": ({"clientIP": {"timeoutSeconds": 5}}, {"clientIP": {}}, None), "clusterIP": ("None", "", None),
    "clusterIPs": (["None"], [], None), "ipFamilies": (["IPv4"], ["IPv6"], ["IPv4", "IPv6"], [], None),
    "ipFamilyPolicy": ("SingleStack", "PreferDualStack", "RequireDualStack", None), "healthCheckNodePort": (0, None),
    "allocateLoadBalancerNodePorts": (True, False, None), "loadBalancerClass": ("x.io/y", None), "externalIPs": (["1.2.3.4"], ["::FFFF:1.2.3.4"], None),
    "loadBalancerIP": ("1.2.3.4", "01.2.3.4", "FD00::1", None), "loadBalancerSourceRanges": (["10.0.0.0/8"], ["10.0.0.1/8"], None),
    "publishNotReadyAddresses": (True, None), "trafficDistribution": ("PreferClose", "PreferSameZone", None),
}  # fmt: skip


@st.composite
def services(draw: st.DrawFn, name: str) -> list[Ask]:
    """Creates a service and takes it through changes of type, policy, families and affinity."""

    def spec(most: int) -> dict[str, Any]:
        fields = draw(st.lists(st.sampled_from(sorted(_SERVICE)), max_size=most, unique=True))
        return {field: draw(st.sampled_from(_SERVICE[field])) for field in fields}

    path, first = f"{_IN}/services/{name}", spec(4)
    first = {"ports": [{"port": 80}], "type": draw(st.sampled_from(_SERVICE["type"])), **first}
    notes = draw(st.sampled_from(({}, {}, {"service.kubernetes.io/topology-aware-hints": "auto"})))
    asks = [Ask("service created", "POST", f"{_IN}/services?fieldManager=maker", {"metadata": {"name": name, "annotations": notes}, "spec": first})]
    for _ in range(draw(st.integers(2, 6))):
        changed, dry = spec(3), draw(st.sampled_from(("", "", "", "&dryRun=All")))
        for field in ("clusterIP", "clusterIPs"):
            # Upstream panics where an address is taken away.
            changed.pop(field, None)
        if draw(st.booleans()):
            asks.append(Ask("service patched", "PATCH", f"{path}?fieldManager=one{dry}", {"spec": changed}, draw(st.sampled_from((MERGE, _STRATEGIC)))))
        else:
            body = {"metadata": {"name": name}, "spec": {**first, **changed}}
            asks.append(Ask("service put", "PUT", f"{path}?fieldManager=one{dry}", body))
    return [*asks, Ask("service read", "GET", path), Ask("service gone", "DELETE", path)]


# --- what is said of pods, and of what holds them ---------------------------------------------------------------------

_SECCOMP, _ARMOR = "container.seccomp.security.alpha.kubernetes.io/", "container.apparmor.security.beta.kubernetes.io/"
_PROFILES = ("runtime/default", "docker/default", "unconfined", "localhost/a", "localhost/", "localhost/../a", "x", "")
_NOTES = ("seccomp.security.alpha.kubernetes.io/pod", *(f"{prefix}{name}" for prefix in (_SECCOMP, _ARMOR) for name in ("c", "d", "i")))
_FIELDS_OF_PROFILES = ({"type": "RuntimeDefault"}, {"type": "Unconfined"}, {"type": "Localhost", "localhostProfile": "a"}, {"type": "Localhost"})
_POD: dict[str, tuple[Any, ...]] = {
    "overhead": ({"memory": "1500m"}, {"ephemeral-storage": "1m", "cpu": "1m"}), "terminationGracePeriodSeconds": (-1, 0, 5),
    "hostAliases": ([{"ip": "01.2.3.4"}], [{"ip": "::FFFF:1.2.3.4"}], [{"ip": "FD00::1"}, {"ip": "FD00::1"}]), "os": ({"name": "windows"}, {"name": "linux"}),
    "dnsConfig": ({"nameservers": ["FD00::1"]}, {"nameservers": ["1.2.3.4"]}), "nodeSelector": ({"beta.kubernetes.io/os": "x"},),
    "imagePullSecrets": ([{"name": "a"}, {"name": "a"}], [{}]),
    "topologySpreadConstraints": ([{"maxSkew": 1, "topologyKey": "failure-domain.beta.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}],),
    "volumes": (
        [{"name": "v", "configMap": {"name": "k", "items": [{"key": "a", "path": "p"}, {"key": "b", "path": "p/q"}, {"key": "c", "path": "p"}]}}],
        [{"name": "v", "secret": {"secretName": "k", "items": [{"key": "a", "path": "p/q/"}, {"key": "b", "path": "p"}]}}],
        [{"name": "v", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}, {"path": "p", "fieldRef": {"fieldPath": "metadata.uid"}}]}}],
        [{"name": "v", "projected": {"sources": [{"configMap": {"name": "k", "items": [{"key": "a", "path": "t"}]}}, {"serviceAccountToken": {"path": "t"}}, {"secret": {"name": "s", "items": [{"key": "a", "path": "t/u"}]}}]}}],
        [{"name": "v", "emptyDir": {}}, {"name": "w", "gitRepo": {"repository": "r"}}],
        [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1500m"}}}}}}],
    ),
}  # fmt: skip
_CONTAINER: dict[str, tuple[Any, ...]] = {
    "ports": ([{"containerPort": 80, "hostIP": "1.2.3.4"}], [{"containerPort": 80}, {"containerPort": 80, "hostPort": 80}], [{"containerPort": 80, "name": "a"}]),
    "env": ([{"name": "A", "value": "1"}, {"name": "A", "value": "1"}], [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]),
    "resources": ({"requests": {"memory": "1m"}}, {"limits": {"ephemeral-storage": "1500m", "memory": "1.5"}}),
}  # fmt: skip
_OWNERS = [{"apiVersion": "v1", "kind": "A", "name": name, "uid": uid} for name, uid in (("a", "u"), ("b", "u"), ("a", "v"))]


@st.composite
def pods(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Annotations and spec of a pod or a template."""

    def some(fields: dict[str, tuple[Any, ...]], most: int) -> dict[str, Any]:
        names = draw(st.lists(st.sampled_from(sorted(fields)), max_size=most, unique=True))
        return {name: draw(st.sampled_from(fields[name])) for name in names}

    def context() -> dict[str, Any]:
        names = draw(st.lists(st.sampled_from(("seccompProfile", "appArmorProfile")), max_size=1))
        found = {name: draw(st.sampled_from(_FIELDS_OF_PROFILES)) for name in names}
        return {"securityContext": found} if found else {}

    # Of several keys of one kind, upstream tells in the order of a Go map.
    kinds = draw(st.lists(st.sampled_from(_NOTES), max_size=2, unique_by=lambda key: key.rpartition("/")[0]))
    notes = {key: draw(st.sampled_from(_PROFILES)) for key in kinds}
    containers = [{"name": each, "image": "i", **some(_CONTAINER, 1), **(context() if notes else {})} for each in draw(st.sampled_from((("c",), ("c", "d"))))]
    spec = {"containers": containers, **(context() if notes else {}), **some(_POD, 2)}
    if draw(st.integers(0, 3)) == 0:
        spec["initContainers"] = [{"name": "i", "image": "i", **some(_CONTAINER, 1)}]
    return notes, spec


@st.composite
def said(draw: st.DrawFn, name: str) -> list[Ask]:
    """Creates and changes of a pod, or of what holds its template, and what is said of them."""
    notes, spec = draw(pods())
    owners = draw(st.lists(st.sampled_from(_OWNERS), max_size=4))
    meta = {"name": name, **({"ownerReferences": owners} if owners else {})}
    labels = {"labels": {"a": "b"}}
    template = {"metadata": {**labels, "annotations": notes}, "spec": spec}
    chosen = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    claim = {"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": draw(st.sampled_from(("1", "1500m")))}}}}
    bare = {"metadata": {"annotations": notes, **draw(st.sampled_from(({}, labels, {"labels": {}})))}, "spec": {**spec, "restartPolicy": "Never"}}
    match draw(st.sampled_from(("pods", "pods", "deployments", "statefulsets", "podtemplates", "jobs", "cronjobs"))):
        case "pods":
            root, body = f"{_IN}/pods", {"metadata": {**meta, "annotations": notes}, "spec": spec}
        case "deployments":
            root, body = "/apis/apps/v1/namespaces/default/deployments", {"metadata": meta, "spec": chosen}
        case "statefulsets":
            more = {"serviceName": "s", "revisionHistoryLimit": draw(st.sampled_from((-1, 1))), "volumeClaimTemplates": [claim]}
            root, body = "/apis/apps/v1/namespaces/default/statefulsets", {"metadata": meta, "spec": {**chosen, **more}}
        case "podtemplates":
            root, body = f"{_IN}/podtemplates", {"metadata": meta, "template": template}
        case "jobs":
            root, body = "/apis/batch/v1/namespaces/default/jobs", {"metadata": {**meta, **draw(st.sampled_from(({}, {"labels": {"x": "y"}})))}, "spec": {"template": bare}}
        case _:
            root, body = "/apis/batch/v1/namespaces/default/cronjobs", {"metadata": meta, "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": bare}}}}
    plural, path = root.rpartition("/")[2], f"{root}/{name}"
    asks = [Ask(f"{plural} created", "POST", f"{root}?fieldManager=maker", body), Ask(f"{plural} put", "PUT", f"{path}?fieldManager=maker", body)]
    again = draw(st.lists(st.sampled_from(_OWNERS), min_size=1, max_size=3))
    change: dict[str, Any] = {"metadata": {"ownerReferences": again, "labels": {"z": "z"}}}
    if plural == "pods":
        change["metadata"]["annotations"] = {draw(st.sampled_from(_NOTES)): draw(st.sampled_from((None, *_PROFILES)))}
    asks.append(Ask(f"{plural} patched", "PATCH", f"{path}?fieldManager=one", change, MERGE))
    return [*asks, Ask(f"{plural} read", "GET", path), Ask(f"{plural} gone", "DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")]


_BARE = {"containers": [{"name": "c", "image": "i"}]}
_PROJECTED = ({"clusterTrustBundle": {"name": "b", "path": "p"}}, {"podCertificate": {"signerName": "x.io/y", "keyType": "ED25519", "keyPath": "k"}})
_SPECS: tuple[dict[str, Any], ...] = (
    *({"volumes": [{"name": "v", "projected": {"sources": [each]}}]} for each in _PROJECTED),
    *({"volumes": [{"name": "v", "projected": {"sources": [each, {"configMap": {"name": "c"}}]}}]} for each in _PROJECTED),
    {"containers": [{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGTERM"}}], "os": {"name": "linux"}},
    {"containers": [{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGTERM", "preStop": {"sleep": {"seconds": 1}}}}]},
    {"tolerations": [{"key": "k", "operator": "Lt", "value": "5"}]}, {"tolerations": [{"key": "k", "operator": "Gt", "value": "x"}]},
    {"hostUsers": False, "hostNetwork": True}, {"schedulingGroup": {"podGroupName": "g"}},
    {"volumes": [{"name": "v", "image": {"reference": "r"}}]}, {"securityContext": {"seLinuxChangePolicy": "Recursive"}},
)  # fmt: skip
_SOURCES: tuple[dict[str, Any], ...] = (
    {"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "x", "namespace": "y"}}, {"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}},
    {"dataSourceRef": {"apiGroup": "x.io", "kind": "K", "name": "x", "namespace": "y"}}, {"dataSource": {"apiGroup": "x.io", "kind": "K", "name": "x"}},
)  # fmt: skip


@st.composite
def gates(draw: st.DrawFn, name: str) -> list[Ask]:
    """Fields whose gate is off."""
    more = {**_BARE, **draw(st.sampled_from(_SPECS))}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": more}
    chosen = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    match draw(st.sampled_from(("pods", "deployments", "statefulsets", "persistentvolumeclaims", "leases", "csidrivers", "horizontalpodautoscalers"))):
        case "pods":
            root, spec = f"{_IN}/pods", more
        case "deployments":
            root, spec = "/apis/apps/v1/namespaces/default/deployments", chosen
        case "statefulsets":
            limit = draw(st.sampled_from((0, 1, 2, "50%", "x")))
            root, spec = "/apis/apps/v1/namespaces/default/statefulsets", {**chosen, "updateStrategy": {"rollingUpdate": {"maxUnavailable": limit}}}
        case "persistentvolumeclaims":
            wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
            root, spec = f"{_IN}/persistentvolumeclaims", {**wanted, **draw(st.sampled_from(_SOURCES))}
        case "leases":
            held = {"preferredHolder": draw(st.sampled_from(("y", ""))), "strategy": draw(st.sampled_from(("OldestEmulationVersion", "x")))}
            root, spec = "/apis/coordination.k8s.io/v1/namespaces/default/leases", {"holderIdentity": "x", **held}
        case "csidrivers":
            root, spec = "/apis/storage.k8s.io/v1/csidrivers", {"preventPodSchedulingIfMissing": True, "nodeAllocatableUpdatePeriodSeconds": draw(st.sampled_from((5, 20)))}
        case _:
            scaled = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
            root, spec = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", {"minReplicas": draw(st.sampled_from((0, 1))), "maxReplicas": 3, "scaleTargetRef": scaled}
    plural, path = root.rpartition("/")[2], f"{root}/{name}"
    asks = [Ask(f"{plural} gated", "POST", f"{root}?fieldManager=maker", {"metadata": {"name": name}, "spec": spec})]
    change = {"metadata": {"labels": {"z": "z"}}, "spec": spec}
    asks.append(Ask(f"{plural} gated again", "PATCH", f"{path}?fieldManager=one", change, draw(st.sampled_from((MERGE, _STRATEGIC)))))
    return [*asks, Ask(f"{plural} gated gone", "DELETE", f"{path}?gracePeriodSeconds=0&propagationPolicy=Background")]


# --- owners -----------------------------------------------------------------------------------------------------------

_OWNED: dict[str, tuple[str, str, dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "pods": (_IN, "v1/Pod", {"spec": _BARE}, (
        {"spec": {"containers": [{"name": "c", "image": "j"}]}}, {"metadata": {"labels": {"l": "2"}}}, {"spec": {**_BARE, "activeDeadlineSeconds": 5}},
        {"status": {"phase": "Running"}}, {"status": {"conditions": [{"type": "x.io/y", "status": "True"}]}},
    )),
    "services": (_IN, "v1/Service", {"spec": {"type": "NodePort", "ports": [{"port": 80, "name": "a"}], "selector": {"a": "b"}}}, (
        {"spec": {"ports": [{"port": 80, "name": "a", "targetPort": 81}]}}, {"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80, "name": "a"}]}},
        {"spec": {"selector": {"a": "c"}}}, {"spec": {"sessionAffinity": "ClientIP"}}, {"spec": {"ipFamilyPolicy": "PreferDualStack"}},
        {"status": {"conditions": [{"type": "T", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}},
    )),
    "deployments": ("/apis/apps/v1/namespaces/default", "apps/v1/Deployment", {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": _BARE}}}, (
        {"spec": {"replicas": 3}}, {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}, {"metadata": {"labels": {"l": "2"}}},
        {"status": {"observedGeneration": 1, "replicas": 1}}, {"spec": {"revisionHistoryLimit": 10}},
    )),
    "persistentvolumeclaims": (_IN, "v1/PersistentVolumeClaim", {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}, (
        {"metadata": {"finalizers": ["x.io/y"]}}, {"spec": {"volumeMode": "Filesystem"}}, {"status": {"phase": "Bound"}}, {"status": {"phase": "Lost"}}, {"metadata": {"labels": {"l": "2"}}},
    )),
    "jobs": ("/apis/batch/v1/namespaces/default", "batch/v1/Job", {"spec": {"template": {"spec": {**_BARE, "restartPolicy": "Never"}}}}, (
        {"spec": {"parallelism": 3}}, {"metadata": {"labels": {"l": "2"}}}, {"spec": {"suspend": True}}, {"spec": {"backoffLimit": 6}},
    )),
    "configmaps": (_IN, "v1/ConfigMap", {"data": {"a": "1", "b": "2"}}, ({"data": {"a": "2"}}, {"data": {"c": "1"}}, {"metadata": {"annotations": {"x": "y"}}})),
}  # fmt: skip


@st.composite
def owners(draw: st.DrawFn, name: str) -> list[Ask]:
    """Creates by somebody who does or does not name a manager; then applies and other writes, of status as well."""
    plural = draw(st.sampled_from(sorted(_OWNED)))
    root, told, body, changes = _OWNED[plural]
    version, _, kind = told.rpartition("/")
    named = draw(st.booleans())
    made = {**body, "metadata": {"name": name, "labels": {"l": "1"}}}
    asks = [Ask(f"{plural} owned", "POST", f"{root}/{plural}{'?fieldManager=maker' if named else ''}", made)]
    for number in range(draw(st.integers(1, 5))):
        change = draw(st.sampled_from(changes))
        sub = "/status" if "status" in change else ""
        # Who made an object without a name is not known apart from those who write before the first apply succeeds.
        way = draw(st.sampled_from(("apply", "apply", "merge", "put"))) if named or number else "apply"
        manager = draw(st.sampled_from(("one", "two", "maker")))
        target = f"{root}/{plural}/{name}{sub}?fieldManager={manager}"
        meta = {"name": name, **change.get("metadata", {})}
        if way == "apply":
            force = draw(st.sampled_from(("", "&force=true"))) if named or number else "&force=true"
            asks.append(Ask(f"{plural} applied{sub}", "PATCH", target + force, {"apiVersion": version, "kind": kind, **change, "metadata": meta}, APPLY))
        elif way == "put" and not sub:
            asks.append(Ask(f"{plural} put{sub}", "PUT", target, {**made, **{key: {**made.get(key, {}), **part} for key, part in change.items()}, "metadata": meta}))
        else:
            asks.append(Ask(f"{plural} merged{sub}", "PATCH", target, change, MERGE))
        asks.append(Ask(f"{plural} read", "GET", f"{root}/{plural}/{name}"))
    return [*asks, Ask(f"{plural} gone", "DELETE", f"{root}/{plural}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")]


SCRIPTS: dict[str, Any] = {
    "numbers": numbers, "owners": owners, "services": services, "said": said, "gates": gates, "connections": connections,
    "windows": windows,
}  # fmt: skip
"""By name, what draws a script for an object of a given name."""


def drawn(number: int) -> SearchStrategy[list[Ask]]:
    return st.sampled_from(sorted(SCRIPTS)).flatmap(lambda each: SCRIPTS[each](f"{each}-{number}"))
