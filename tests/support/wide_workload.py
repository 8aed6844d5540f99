"""A virtual cluster with a little of everything: Jobs, quotas, an autoscaler, budgets, preemption with several victims,
devices, custom resources, policies, a webhook, volumes, faults, evictions and a restore. So what depends on
anything but the seed has a place to show."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from minikube_py import Cluster

CONTAINER = {"name": "c", "image": "i"}
NAMESPACES = ("a", "b")


def wide_digest(seed: str) -> str:
    with Cluster(nodes=4, clock="virtual", seed=seed) as cluster:
        jobs(cluster)
        quotas(cluster)
        preemption(cluster)
        devices(cluster)
        custom_resources(cluster)
        admission(cluster)
        volumes(cluster)
        faults(cluster)
        assert len(cluster.objects("pods")) > 20
        for name in (*(f"ns/{each}" for each in NAMESPACES), "crd/foos.ex.org"):
            cluster.delete(name)
        cluster.request("DELETE", "/api/v1/namespaces/default/pods", params={"labelSelector": "app=low"})
        cluster.advance(60)
        assert not cluster.objects("pods", namespace="a")
        return cluster.digest


def quotas(cluster: Cluster) -> None:
    for namespace in NAMESPACES:
        team(cluster, namespace)
    cluster.advance(30)


def part_digest(part: str, seed: str) -> str:
    with Cluster(nodes=4, clock="virtual", seed=seed) as cluster:
        PARTS[part](cluster)
        return cluster.digest


def jobs(cluster: Cluster) -> None:
    for at, policy in enumerate(("Allow", "Replace")):
        job = {"parallelism": 2, "completions": 3, "template": task(seconds=50 + 60 * at)}
        spec = {"schedule": "*/2 * * * *", "concurrencyPolicy": policy, "jobTemplate": {"spec": job}}
        cluster.apply(made("batch/v1", "CronJob", f"cron-{at}", spec=spec))
    for at in range(2):
        spec = {"completionMode": "Indexed", "backoffLimitPerIndex": 1, "completions": 4, "parallelism": 3}
        spec |= {"maxFailedIndexes": 2, "template": task(seconds=3 + at, code=at)}
        cluster.apply(made("batch/v1", "Job", f"job-{at}", spec=spec))
    rules = [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]
    spec = {"podFailurePolicy": {"rules": rules}, "ttlSecondsAfterFinished": 100, "template": task(code=42)}
    cluster.apply(made("batch/v1", "Job", "refused", spec=spec))


def team(cluster: Cluster, namespace: str) -> None:
    """More is wanted than its quotas allow."""
    cluster.apply(made("v1", "Namespace", namespace))
    for at in range(5):
        hard = {"pods": "7", "requests.cpu": "4", "count/configmaps": "9", "services": "5"}
        cluster.apply(made("v1", "ResourceQuota", f"quota-{at}", namespace, spec={"hard": hard}))
    limit = {"type": "Container", "defaultRequest": {"cpu": "50m"}, "default": {"cpu": "100m"}}
    cluster.apply(made("v1", "LimitRange", "limits", namespace, spec={"limits": [limit]}))
    for at in range(2):
        name = f"web-{at}"
        selector = {"matchLabels": {"app": name}}
        spread: dict[str, Any] = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        spread["whenUnsatisfiable"] = "DoNotSchedule"
        pod = {"containers": [CONTAINER], "topologySpreadConstraints": [spread]}
        template = {"metadata": {"labels": {"app": name}}, "spec": pod}
        spec: dict[str, Any] = {"replicas": 5, "selector": selector, "template": template}
        cluster.apply(made("apps/v1", "Deployment", name, namespace, spec=spec))
        ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
        cluster.apply(made("v1", "Service", name, namespace, spec={"selector": {"app": name}, "ports": ports}))
        budget = {"maxUnavailable": "30%", "selector": selector}
        cluster.apply(made("policy/v1", "PodDisruptionBudget", name, namespace, spec=budget))
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web-0"}
    scaling = {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 4}
    scaling["metrics"] = [{"type": "Resource", "resource": cpu}]
    cluster.apply(made("autoscaling/v2", "HorizontalPodAutoscaler", "scaler", namespace, spec=scaling))


def preemption(cluster: Cluster) -> None:
    """Each pod that preempts has several victims, and some preempt each other. Many wait, no two of them alike."""
    for name, value in (("low", 1), ("high", 1000), ("top", 5000)):
        cluster.apply(made("scheduling.k8s.io/v1", "PriorityClass", name, value=value))
    low = [pod(f"low-{at}", f"{6000 + at}m", priorityClassName="low") for at in range(60)]
    cluster.apply([{**each, "metadata": {**each["metadata"], "labels": {"app": "low"}}} for each in low])
    budget = {"minAvailable": 8, "selector": {"matchLabels": {"app": "low"}}}
    cluster.apply(made("policy/v1", "PodDisruptionBudget", "low", spec=budget))
    cluster.advance(10)
    cluster.apply([pod(f"high-{at}", "13", priorityClassName=("top", "high")[at % 2]) for at in range(6)])
    cluster.advance(40)
    bound = [each for each in cluster.objects("pods") if each["spec"].get("nodeName")]
    assert sum(each["metadata"]["name"].startswith("high") for each in bound) == 6
    assert any("Preempted by pod" in each.get("message", "") for each in cluster.objects("events"))


def devices(cluster: Cluster) -> None:
    selectors = [{"cel": {"expression": "device.driver == 'd.example.com'"}}]
    cluster.apply(made("resource.k8s.io/v1", "DeviceClass", "gpu", spec={"selectors": selectors}))
    for at in range(3):
        pool = {"name": f"node-{at}", "generation": 1, "resourceSliceCount": 1}
        slice_of = {"driver": "d.example.com", "nodeName": f"node-{at}", "pool": pool}
        slice_of["devices"] = [{"name": f"gpu-{each}", "attributes": {"model": {"string": "m"}}} for each in range(4)]
        cluster.apply(made("resource.k8s.io/v1", "ResourceSlice", f"slice-{at}", spec=slice_of))
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}
    claim = {"spec": {"devices": {"requests": [request]}}}
    cluster.apply(made("resource.k8s.io/v1", "ResourceClaimTemplate", "two", spec=claim))
    wanted = [{"name": "x", "resourceClaimTemplateName": "two"}]
    cluster.apply([pod(f"device-{at}", resourceClaims=wanted) for at in range(4)])
    cluster.advance(10)


def custom_resources(cluster: Cluster) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    for kind in ("Foo", "Bar"):
        names = {"plural": f"{kind.lower()}s", "kind": kind}
        spec = {"group": "ex.org", "scope": "Namespaced", "names": names, "versions": [version]}
        name = f"{kind.lower()}s.ex.org"
        cluster.apply(made("apiextensions.k8s.io/v1", "CustomResourceDefinition", name, spec=spec))
    cluster.advance(3)
    for at in range(3):
        cluster.apply([made("ex.org/v1", kind, f"x-{at}", a=at) for kind in ("Foo", "Bar")])
        owner = {"apiVersion": "ex.org/v1", "kind": "Foo", "name": f"x-{at}"}
        owner["uid"] = cluster.get(f"foos/x-{at}")["metadata"]["uid"]
        owned = made("v1", "ConfigMap", f"owned-{at}")
        cluster.apply({**owned, "metadata": {**owned["metadata"], "ownerReferences": [owner]}})
    for manager, data in (("one", {"a": "1", "b": "2"}), ("two", {"q": "1", "b": "2"})):
        body = json.dumps(made("v1", "ConfigMap", "shared", data=data)).encode()
        path = "/api/v1/namespaces/default/configmaps/shared"
        cluster.request("PATCH", path, body, {"fieldManager": manager}, "application/apply-patch+yaml")


def admission(cluster: Cluster) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    checks = [{"expression": "object.metadata.name != 'no'"}]
    group = "admissionregistration.k8s.io/v1"
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": checks}
    cluster.apply(made(group, "ValidatingAdmissionPolicy", "named", spec=policy))
    binding = {"policyName": "named", "validationActions": ["Deny"]}
    cluster.apply(made(group, "ValidatingAdmissionPolicyBinding", "named", spec=binding))
    for at in range(3):
        rules = [{"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["get"]}]
        role = made("rbac.authorization.k8s.io/v1", "ClusterRole", f"role-{at}", rules=rules)
        cluster.apply({**role, "metadata": {**role["metadata"], "labels": {"joins": "1"}}})
    joined = {"clusterRoleSelectors": [{"matchLabels": {"joins": "1"}}]}
    cluster.apply(made("rbac.authorization.k8s.io/v1", "ClusterRole", "all", aggregationRule=joined, rules=[]))
    patch = [{"op": "add", "path": "/data", "value": {"m": "1"}}]
    hook = cluster.webhook("mutating", lambda review: {"allowed": True, "patch": patch})
    called = {"name": "g.example.com", "clientConfig": {"url": hook.url}, "rules": [rule], "sideEffects": "None"}
    called |= {"admissionReviewVersions": ["v1"], "failurePolicy": "Ignore"}
    cluster.apply(made(group, "MutatingWebhookConfiguration", "mutating", webhooks=[called]))
    cluster.apply([made("v1", "ConfigMap", f"hooked-{at}") for at in range(3)])
    assert cluster.get("configmaps/hooked-0")["data"] == {"m": "1"}


def volumes(cluster: Cluster) -> None:
    late = {"provisioner": "simulated.minikube-py", "volumeBindingMode": "WaitForFirstConsumer"}
    cluster.apply(made("storage.k8s.io/v1", "StorageClass", "made", **late))
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "made", "resources": {"requests": {"storage": "1Gi"}}}
    for at in range(3):
        cluster.apply(made("v1", "PersistentVolumeClaim", f"claim-{at}", spec=spec))
        disk = {"name": "d", "persistentVolumeClaim": {"claimName": f"claim-{at}"}}
        cluster.apply(pod(f"volume-{at}", volumes=[disk]))
    cluster.advance(10)


def faults(cluster: Cluster) -> None:
    """A node that fails and comes back, evictions, and a return to the state before."""
    before = cluster.snapshot()
    cluster.node("node-2").down()
    cluster.conflict_next("configmaps")
    cluster.fail_next("pods", times=2, done=True)
    cluster.advance(60)
    cluster.node("node-2").up()
    cluster.all_well()
    cluster.advance(20)
    for each in cluster.objects("pods", namespace="a"):
        name = each["metadata"]["name"]
        body = json.dumps(made("policy/v1", "Eviction", name, "a")).encode()
        cluster.request("POST", f"/api/v1/namespaces/a/pods/{name}/eviction", body)
    cluster.advance(20)
    cluster.restore(before)
    cluster.advance(20)


def made(version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def pod(name: str, cpu: str = "10m", **spec: Any) -> dict[str, Any]:
    container = {**CONTAINER, "resources": {"requests": {"cpu": cpu}}}
    return made("v1", "Pod", name, spec={"containers": [container], **spec})


def task(seconds: int = 1, code: int = 0) -> dict[str, Any]:
    """A template of a Job's pods."""
    notes = {"minikube-py.io/run-seconds": str(seconds), "minikube-py.io/exit-code": str(code)}
    return {"metadata": {"annotations": notes}, "spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}


PARTS: dict[str, Callable[[Cluster], None]] = {"quotas": quotas, "preemption": preemption}
"""Those that also run alone: a planted bug that one of them shows needs no other."""
