"""HorizontalPodAutoscalers, their targets and pods, and what these use step by step, drawn from a seed.

No controller makes the pods of a target: they stay as drawn, so that what an autoscaler comes to depends on nothing but
the order of its steps. Windows and periods are far shorter or far longer than a step.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from metrics_server import Measured

from minikube_py.client.rest import (
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    ResourceRef,
)

Json = dict[str, Any]
STEPS = 4
TARGETS = {
    "ReplicaSet": REPLICA_SETS, "Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS,
    "ReplicationController": REPLICATION_CONTROLLERS,
}  # fmt: skip
_PODS = ("steady",) * 8 + (
    "young",
    "fresh",
    "never ready",
    "was ready",
    "unknown",
    "pending",
    "failed",
    "ended",
    "leaving",
    "no condition",
    "no start",
)
_LOADS = (0, 1, 20, 40, 49, 50, 54, 55, 56, 80, 88, 89, 100, 120, 150, 200, 400, 1000)
_VALUES = ("0", "1", "500m", "900m", "1050m", "3", "10", "25", "1k", "1500", "2", "1u")
_DESCRIBED = (
    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "o"}, {"apiVersion": "v1", "kind": "Service", "name": "o"},
    {"apiVersion": "v1", "kind": "Namespace", "name": "scaled"},
)  # fmt: skip
_LONG_S, _NONE_S = 1800, 1


class Pod(NamedTuple):
    name: str
    body: Json
    sort: str


class Step(NamedTuple):
    """One change: what is used (None: as before), or other metrics, by name, or a merge patch of the autoscaler's spec,
    or the target's count."""

    used: list[Json] | tuple[int, str] | None = None
    measured: dict[str, Measured | tuple[int, str]] | None = None
    spec: Json | None = None
    replicas: int | None = None


class Drawn(NamedTuple):
    app: str
    resource: ResourceRef
    target: Json
    pods: list[Pod]
    autoscaler: Json
    used: list[Json]
    steps: list[Step]
    measured: dict[str, Measured]


def ages(sort: str) -> tuple[int, int]:
    """How long ago a pod started, and its readiness changed, in seconds."""
    return {"young": (100, 95), "fresh": (100, 5), "never ready": (7200, 7190), "no condition": (100, 95)}.get(
        sort, (7200, 3600)
    )


def draw(seed: int, app: str) -> Drawn:
    rng = random.Random(f"{seed} {app}")
    kind = rng.choice(list(TARGETS))
    count = rng.choice((1, 2, 2, 3, 3, 4, 5))
    pods = _pods(rng, app, count)
    replicas = rng.choice((count, count, count, count, 0, count + 1, 9, max(1, count - 1)))
    target = _target(kind, app, replicas)
    autoscaler = {"metadata": {"name": app}, "spec": _spec(rng, kind, app)}
    load = rng.choice(_LOADS)
    steps = [_step(rng, app, pods) for _ in range(STEPS - 1)]
    return Drawn(
        app, TARGETS[kind], target, pods, autoscaler, _used(rng, app, pods, load), [*steps, _last(rng, app, pods)],
        _measured(rng, app, pods),
    )  # fmt: skip


def _target(kind: str, app: str, replicas: int) -> Json:
    labels = {"app": app}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    more = {"serviceName": "s"} if kind == "StatefulSet" else {}
    return {"metadata": {"name": app}, "spec": {"replicas": replicas, "selector": selector, "template": pod, **more}}


def _pods(rng: random.Random, app: str, count: int) -> list[Pod]:
    side, whole, beside, bare = (rng.random() < share for share in (0.4, 0.1, 0.1, 0.1))
    found = []
    for at in range(count):
        requests = {"cpu": rng.choice(("100m", "200m", "1")), "memory": rng.choice(("64Mi", "100M", "1Gi"))}
        if bare and at == count - 1:
            requests.pop(rng.choice(("cpu", "memory")))
        names = ["main", "side"] if side else ["main"]
        containers: list[Json] = [{"name": name, "image": "x", "resources": {"requests": requests}} for name in names]
        spec: Json = {"containers": containers, "nodeName": "n"}
        if whole:
            spec["resources"] = {"requests": {"cpu": "3", "memory": "3Gi"}}
        if beside:
            spec["initContainers"] = [{**containers[0], "name": "beside", "restartPolicy": "Always"}]
        sort = rng.choice(_PODS)
        metadata: Json = {"name": f"{app}-{at}", "labels": {"app": app}}
        if sort == "leaving":
            metadata["finalizers"] = ["example.com/stay"]
        found.append(Pod(f"{app}-{at}", {"metadata": metadata, "spec": spec}, sort))
    return found


def _used(rng: random.Random, app: str, pods: list[Pod], load: int, lost: float = 0.0) -> list[Json]:
    """`load`: in percent of 100m and of 64Mi for each container; `lost`: the share of what is not told."""
    items = []
    for pod in pods:
        if items and rng.random() < lost:
            continue
        containers = []
        for container in (*pod.body["spec"].get("initContainers", ()), *pod.body["spec"]["containers"]):
            each = load + rng.choice((0, 0, 0, 1, -1, 7)) if load > 1 else load
            cpu = rng.choice((f"{each}m", f"{each * 1_000_000}n", f"{each * 1000}u", f"{each * 1_000_000 + 1}n"))
            usage = {
                "cpu": cpu,
                "memory": rng.choice((f"{each * 655}Ki", str(each * 671_088), f"{each * 671_088_001}m")),
            }
            if rng.random() < lost:
                usage.pop(rng.choice(("cpu", "memory")))
            containers.append({"name": container["name"], "usage": usage})
        if rng.random() < lost / 2:
            containers.pop()
        items.append({"metadata": {"name": pod.name, "namespace": "", "labels": {"app": app}},
                      "window": rng.choice(("30s", "30s", "15.5s", "1m0s")), "containers": containers})  # fmt: skip
    if rng.random() < lost / 2:
        stranger = {"name": "main", "usage": {"cpu": "500m", "memory": "1Gi"}}
        items.append({"metadata": {"name": f"{app}-stranger"}, "window": "30s", "containers": [stranger]})
    return items


def _measured(rng: random.Random, app: str, pods: list[Pod]) -> dict[str, Measured]:
    return {
        name: Measured([(pod.name, rng.choice(_VALUES)) for pod in pods], [rng.choice(_VALUES)])
        for name in (f"{app}-x", f"{app}-y")
    }


def _lost(rng: random.Random, app: str, pods: list[Pod]) -> dict[str, Measured | tuple[int, str]]:
    named = [(pod.name, rng.choice(_VALUES)) for pod in pods if rng.random() < 0.6]
    several = [rng.choice(_VALUES) for _ in range(rng.choice((0, 2, 3)))]
    error = rng.choice(((500, "it broke"), (403, "not you"), (404, "nobody"), (503, "not now")))
    return {f"{app}-x": Measured(named, several), f"{app}-y": error}


def _other(rng: random.Random, app: str) -> Json:
    """A metric that another API server measures."""
    kind = rng.choice(("Pods", "Object", "External"))
    metric: Json = {"name": f"{app}-{rng.choice('xy')}"}
    if rng.random() < 0.3:
        metric["selector"] = {"matchLabels": {"b": "c"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
    goal = rng.choice(("1", "10", "500m", "2500m", "1k"))
    averaged = kind == "Pods" or rng.random() < 0.5
    target = {"type": "AverageValue", "averageValue": goal} if averaged else {"type": "Value", "value": goal}
    described = {"describedObject": rng.choice(_DESCRIBED)} if kind == "Object" else {}
    return {"type": kind, kind.lower(): {**described, "metric": metric, "target": target}}


def _step(rng: random.Random, app: str, pods: list[Pod]) -> Step:
    roll = rng.random()
    if roll < 0.25:
        return Step(measured={**_measured(rng, app, pods)})
    if roll < 0.6:
        return Step(used=_used(rng, app, pods, rng.choice(_LOADS)))
    if roll < 0.75:
        return Step(used=_used(rng, app, pods, rng.choice(_LOADS), lost=0.3))
    if roll < 0.85:
        return Step(replicas=rng.choice((0, 1, 2, 5, 9, 12)))
    told = {"metrics": _metrics(rng, app), "behavior": _behavior(rng)}
    return Step(spec=_limits(rng) if rng.random() < 0.5 else told)


def _last(rng: random.Random, app: str, pods: list[Pod]) -> Step:
    """May fail at each sync: from 25 events on, those of one object are held back."""
    roll = rng.random()
    if roll < 0.25:
        return Step(measured=_lost(rng, app, pods))
    if roll < 0.4:
        return Step(used=rng.choice(((500, "it broke"), (403, "not you"), (404, "nobody"), (503, "not now"))))
    if roll < 0.5:
        return Step(used=[])
    if roll < 0.7:
        return Step(used=_used(rng, app, pods, rng.choice(_LOADS), lost=0.8))
    external: Json = {
        "type": "External",
        "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "3"}},
    }
    return Step(spec={"metrics": [*_metrics(rng, app), external]})


def _limits(rng: random.Random) -> Json:
    least = rng.choice((1, 1, 2, 3))
    return (
        {"minReplicas": least, "maxReplicas": rng.choice((least, 4, 6, 8, 8))}
        if rng.random() < 0.8
        else {"maxReplicas": 5}
    )


def _spec(rng: random.Random, kind: str, app: str) -> Json:
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    found = {
        "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": app},
        **_limits(rng),
        "metrics": _metrics(rng, app),
    }
    behavior = _behavior(rng)
    return found if behavior is None else {**found, "behavior": behavior}


def _metrics(rng: random.Random, app: str) -> list[Json]:
    found = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.4:
            found.append(_other(rng, app))
            continue
        name = rng.choice(("cpu", "cpu", "memory"))
        share = rng.choice((1, 10, 50, 80, 100, 150))
        average = rng.choice(
            ("1m", "50m", "100m", "333m", "2") if name == "cpu" else ("1Ki", "32Mi", "64Mi", "100M", "1Gi")
        )
        target: Json = (
            {"type": "Utilization", "averageUtilization": share}
            if rng.random() < 0.6
            else {"type": "AverageValue", "averageValue": average}
        )
        if rng.random() < 0.75:
            found.append({"type": "Resource", "resource": {"name": name, "target": target}})
        else:
            container = rng.choice(("main", "main", "side", "beside"))
            found.append(
                {
                    "type": "ContainerResource",
                    "containerResource": {"name": name, "container": container, "target": target},
                }
            )
    return found


def _behavior(rng: random.Random) -> Json | None:
    if rng.random() < 0.35:
        return None
    return {
        "scaleUp": _rules(rng, rng.choice((0, 0, 0, 3600))),
        "scaleDown": _rules(rng, rng.choice((0, 0, None, 3600))),
    }


def _rules(rng: random.Random, window_s: int | None) -> Json:
    policies = [
        {
            "type": rng.choice(("Pods", "Percent")),
            "value": rng.choice((1, 2, 4, 10, 50, 100, 200)),
            "periodSeconds": rng.choice((_LONG_S, _LONG_S, _NONE_S)),
        }
        for _ in range(rng.choice((1, 1, 2)))
    ]
    found: Json = {"policies": policies}
    if window_s is not None:
        found["stabilizationWindowSeconds"] = window_s
    if rng.random() < 0.6:
        found["selectPolicy"] = rng.choice(("Max", "Min", "Disabled"))
    if rng.random() < 0.4:
        found["tolerance"] = rng.choice(("0", "50m", "0.2", "0.5", "1", "100u"))
    return found
