"""Writes in namespaces with ResourceQuotas: what is refused, in which words, and what is used afterwards.

No controller runs on either side: what quotas limit and how much of it is used is written by these cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from asking import Ask

CORE = "/api/v1"
_SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity")
_CLASS = "fast.storageclass.storage.k8s.io"
QUOTAS: dict[str, dict[str, Any]] = {
    "many": {"hard": {"pods": "1k", "cpu": "100", "memory": "1Ti", "limits.cpu": "100", "count/pods": "1000"}},
    "pods": {"hard": {"pods": "3", "count/pods": "3"}, "used": {"pods": "3", "count/pods": "2"}},
    "cpu": {"hard": {"requests.cpu": "2", "limits.cpu": "2500m"}, "used": {"requests.cpu": "1", "limits.cpu": "500m"}},
    "memory": {"hard": {"memory": "128Mi", "limits.memory": "1Gi"}, "used": {"memory": "64Mi"}},
    "ephemeral": {"hard": {"requests.ephemeral-storage": "1Gi", "limits.ephemeral-storage": "1Gi"}},
    "extended": {"hard": {"requests.x.io/y": "1", "hugepages-2Mi": "2Mi", "requests.hugepages-1Gi": "0"}},
    "unknown": {"hard": {"pods": "3", "cpu": "3"}, "used": None},
    "partly": {"hard": {"pods": "3", "services": "3"}, "used": {"services": "1"}},
    **{f"in-{name.lower()}": {"hard": {"pods": "0"}, "spec": {"scopes": [name]}} for name in _SCOPES},
    **{
        f"class-{operator.lower()}": {
            "hard": {"pods": "0"},
            "spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator} | more]}},
        }
        for operator, more in (
            ("In", {"values": ["system-node-critical"]}), ("NotIn", {"values": ["system-node-critical"]}), ("Exists", {}), ("DoesNotExist", {}),
        )
    },
    "services": {"hard": {"services": "2", "services.nodeports": "2", "services.loadbalancers": "0", "count/services": "9"}},
    "claims": {"hard": {
        "persistentvolumeclaims": "2", "requests.storage": "2Gi", f"{_CLASS}/requests.storage": "1Gi", f"{_CLASS}/persistentvolumeclaims": "1",
        "count/persistentvolumeclaims": "9",
    }},
    "attributes": {
        "hard": {"persistentvolumeclaims": "0"},
        "spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}]}},
    },
    "devices": {"hard": {
        "gpu.deviceclass.resource.k8s.io/devices": "3", "count/resourceclaims.resource.k8s.io": "2",
        "requests.deviceclass.resource.kubernetes.io/gpu": "30", "requests.example.com/gpu": "2",
    }},
    "counts": {"hard": {
        "configmaps": "1", "count/configmaps": "2", "secrets": "0", "replicationcontrollers": "0", "resourcequotas": "1", "count/deployments.apps": "0",
        "count/leases.coordination.k8s.io": "0", "count/endpoints": "0", "count/events": "0",
    }},
}  # fmt: skip

_RESOURCES: tuple[dict[str, Any], ...] = (
    {}, {"requests": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "3"}},
    {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1500m", "memory": "128Mi"}},
    {"requests": {"ephemeral-storage": "1Gi", "x.io/y": "1"}, "limits": {"ephemeral-storage": "2Gi", "x.io/y": "1", "cpu": "1"}},
    {"requests": {"x.io/y": "2", "hugepages-2Mi": "4Mi", "cpu": "1"}, "limits": {"x.io/y": "2", "hugepages-2Mi": "4Mi", "cpu": "1"}},
    {"requests": {"hugepages-1Gi": "1Gi", "cpu": "1500u"}, "limits": {"hugepages-1Gi": "1Gi"}},
)  # fmt: skip
_AFFINITY = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaceSelector": {}, "labelSelector": {}}},
]}}  # fmt: skip
_SPECS: tuple[dict[str, Any], ...] = (
    {}, {"activeDeadlineSeconds": 5}, {"priorityClassName": "system-node-critical"}, {"affinity": _AFFINITY},
    {"resources": {"requests": {"cpu": "3"}, "limits": {"memory": "1Gi"}}}, {"resources": {"limits": {"hugepages-2Mi": "2Mi", "cpu": "1"}}},
)  # fmt: skip


def _pod(first: dict[str, Any], second: dict[str, Any] | None = None, init: str = "", **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "x", "resources": first}], **spec}
    if second is not None:
        other = {"name": "b", "image": "x", "resources": second}
        if init:
            spec["initContainers"] = [other | ({"restartPolicy": "Always"} if init == "beside" else {})]
        else:
            spec["containers"].append(other)
    return {"metadata": {"name": "p"}, "spec": spec}


def _pods() -> Iterator[dict[str, Any]]:
    for first, second in itertools.product(_RESOURCES, _RESOURCES[:5]):
        for init in ("", "before", "beside"):
            yield _pod(first, second, init)
    for first, spec in itertools.product(_RESOURCES[:5], _SPECS):
        yield _pod(first, **spec)


def _services() -> Iterator[dict[str, Any]]:
    ports = [{"name": str(port), "port": port} for port in (80, 81, 82)]
    for kind, count, given in itertools.product(
        ("ClusterIP", "NodePort", "LoadBalancer"), (1, 2, 3), (None, True, False)
    ):
        more = {"allocateLoadBalancerNodePorts": given} if kind == "LoadBalancer" and given is not None else {}
        yield {"metadata": {"name": "s"}, "spec": {"type": kind, "ports": ports[:count], **more}}


def _claims() -> Iterator[dict[str, Any]]:
    for size, name, gold in itertools.product(
        ("1", "1500m", "1Gi", "2Gi", "3Gi"), ("fast", "slow", ""), ("gold", "base", None)
    ):
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": name,
            "volumeAttributesClassName": gold,
        }
        yield {"metadata": {"name": "v"}, "spec": spec}


def _device_claims() -> Iterator[dict[str, Any]]:
    one = {"deviceClassName": "gpu"}
    for count in (1, 3, 4):
        exact = {"name": "r", "exactly": {**one, "allocationMode": "ExactCount", "count": count}}
        yield {"metadata": {"name": "d"}, "spec": {"devices": {"requests": [exact]}}}
        first = [
            {"name": "s", **one, "count": count},
            {"name": "t", **one, "count": 2},
            {"name": "u", "deviceClassName": "tpu"},
        ]
        yield {"metadata": {"name": "d"}, "spec": {"devices": {"requests": [{"name": "q", "firstAvailable": first}]}}}
    yield {
        "metadata": {"name": "d"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {**one, "allocationMode": "All"}}]}},
    }


_META = {"metadata": {"name": "o"}}
_COUNTED: tuple[tuple[str, dict[str, Any]], ...] = (
    (f"{CORE}/namespaces/%s/configmaps", _META), (f"{CORE}/namespaces/%s/secrets", _META),
    (f"{CORE}/namespaces/%s/replicationcontrollers", {**_META, "spec": {"selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}}),
    (f"{CORE}/namespaces/%s/resourcequotas", _META),
    ("/apis/apps/v1/namespaces/%s/deployments", {**_META, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}}),
    ("/apis/coordination.k8s.io/v1/namespaces/%s/leases", _META), (f"{CORE}/namespaces/%s/endpoints", _META),
)  # fmt: skip


def setup(prefix: str) -> Iterator[Ask]:
    for name in ("gpu", "tpu"):
        spec = {"extendedResourceName": "example.com/gpu"} if name == "gpu" else {}
        yield Ask("quota", "POST", "/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": name}, "spec": spec})
    for name, quota in QUOTAS.items():
        where = f"{CORE}/namespaces/{prefix}-{name}/resourcequotas"
        body = {"metadata": {"name": "q"}, "spec": {"hard": quota["hard"], **quota.get("spec", {})}}
        yield Ask("quota", "POST", f"{CORE}/namespaces", {"metadata": {"name": f"{prefix}-{name}"}})
        yield Ask("quota", "POST", where, body)
        status = {"hard": quota["hard"], "used": dict.fromkeys(quota["hard"], "0") | (quota.get("used") or {})}
        if "used" in quota and (quota["used"] is None or name == "partly"):
            status["used"] = quota["used"] or {}
        yield Ask("quota", "PUT", f"{where}/q/status", {**body, "status": status})


def known(prefix: str) -> Iterator[tuple[Ask, bytes]]:
    """Asked until the word is said: then admission has heard of all quotas, and of the classes of devices."""
    counts, devices = (f"namespaces/{prefix}-{name}" for name in ("counts", "devices"))
    yield Ask("quota", "POST", f"{CORE}/{counts}/secrets?dryRun=All", _META), b"exceeded quota"
    gpus = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3}}
    body = {"metadata": {"name": "d"}, "spec": {"devices": {"requests": [gpus]}}}
    yield Ask("quota", "POST", f"/apis/resource.k8s.io/v1/{devices}/resourceclaims?dryRun=All", body), b"exceeded quota"


def cases(prefix: str) -> Iterator[Ask]:
    """In dry runs, so that each meets the same quotas."""
    groups: dict[str, Iterator[dict[str, Any]]] = {
        "services": _services(),
        "claims": _claims(),
        "attributes": _claims(),
    }
    of_pods = [name for name in QUOTAS if name not in (*groups, "devices", "counts")]
    for name in of_pods:
        for pod in _pods():
            yield Ask("quota of pods", "POST", f"{CORE}/namespaces/{prefix}-{name}/pods?dryRun=All", pod)
    for name, bodies in groups.items():
        plural = "services" if name == "services" else "persistentvolumeclaims"
        for body in bodies:
            yield Ask(f"quota of {plural}", "POST", f"{CORE}/namespaces/{prefix}-{name}/{plural}?dryRun=All", body)
    for body in _device_claims():
        target = f"/apis/resource.k8s.io/v1/namespaces/{prefix}-devices/resourceclaims?dryRun=All"
        yield Ask("quota of devices", "POST", target, body)
    for target, body in _COUNTED:
        yield Ask("quota of counts", "POST", f"{target % (prefix + '-counts')}?dryRun=All", body)


def charges(prefix: str) -> Iterator[Ask]:
    """One after the other, each followed by a look at what is used; upstream charges what it then refuses to create, so
    nothing here is created twice."""

    def look(name: str) -> Ask:
        return Ask("quota used", "GET", f"{CORE}/namespaces/{prefix}-{name}/resourcequotas/q")

    pods = [pod for pod in itertools.islice(_pods(), 60, 120) if "limits" in str(pod)]
    for i, pod in enumerate(pods):
        yield Ask(
            "quota charged", "POST", f"{CORE}/namespaces/{prefix}-many/pods", {**pod, "metadata": {"name": f"p{i}"}}
        )
        yield look("many")
    where = f"{CORE}/namespaces/{prefix}-services/services"
    base = {"metadata": {"name": "s"}, "spec": {"type": "ClusterIP", "ports": [{"port": 80, "name": "a"}]}}
    yield Ask("quota charged", "POST", where, base)
    yield look("services")
    for kind, count in (("NodePort", 2), ("NodePort", 3), ("LoadBalancer", 2), ("ClusterIP", 1), ("NodePort", 1)):
        ports = [
            {"port": 80 + i, "name": "abc"[i], "nodePort": 30100 + i if kind != "ClusterIP" else 0}
            for i in range(count)
        ]
        patch = {"spec": {"type": kind, "ports": ports}}
        yield Ask("quota charged", "PATCH", f"{where}/s", patch, "application/merge-patch+json")
        yield look("services")
    where = f"{CORE}/namespaces/{prefix}-claims/persistentvolumeclaims"
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "512Mi"}},
        "storageClassName": "fast",
    }
    for name in ("v", "w"):
        yield Ask("quota charged", "POST", where, {"metadata": {"name": name}, "spec": claim})
        yield look("claims")
    for allocated in ("700Mi", "5Gi"):
        patch = {"status": {"allocatedResources": {"storage": allocated}}}
        yield Ask("quota charged", "PATCH", f"{where}/v/status", patch, "application/merge-patch+json")
        yield look("claims")
    where = f"{CORE}/namespaces/{prefix}-counts/configmaps"
    for name in ("a", "b"):
        yield Ask("quota charged", "POST", where, {"metadata": {"name": name}})
        yield look("counts")
