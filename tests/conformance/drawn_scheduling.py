"""Scripts for two schedulers, drawn from a seed: a cluster, what happens to it, and pods that are to be placed.

A theme draws what one plugin is about, with the edges of each type in it; other plugins have their say besides.
"""

# ruff: noqa: E501

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import drawn_devices
import drawn_scheduling_later
import drawn_scheduling_lives
import drawn_scheduling_profiles
import drawn_topology
import drawn_volumes
from drawn_scheduling_events import binding, preemption, wake_ups
from scripts_of_scheduling import (
    GPU,
    HOSTNAME,
    KINDS,
    ROOMY,
    ZONE,
    Obj,
    Script,
    amounts,
    labels,
    node,
    node_affinity,
    pod,
    resized,
    sized,
    taints,
    tolerations,
    with_ports,
)

# --- themes -----------------------------------------------------------------------------------------------------------


def fit(s: Script) -> None:
    rng = s.rng
    names = [f"n{i}" for i in range(rng.randint(1, 5))]
    for name in names:
        s.put("Node", node(name, amounts(rng)))
    for i in range(rng.randint(0, 5)):
        running = sized(rng, f"run{i}", nodeName=rng.choice(names))
        s.put("Pod", resized(rng, running) if rng.random() < 0.3 else running)
    for i in range(5):
        s.attempt(sized(rng, f"p{i}"))


LARGE = ("72P", "63Pi", "72057594037927934", "72057594037927935", "36028797018963968", "30Pi", "45P", "8Gi", "1")


def huge(s: Script) -> None:
    """Amounts up to the highest that differ from one another (`differences.SCHEDULER`)."""
    rng = s.rng
    names = [f"n{i}" for i in range(rng.randint(1, 4))]
    for name in names:
        s.put("Node", node(name, {"cpu": rng.choice(("4", "4", "70T")), "memory": rng.choice(LARGE), "pods": "9", GPU: rng.choice(("2", "60P"))}))

    def asking(name: str, **spec: Any) -> Obj:
        found = pod(name, **spec)
        requests = {"memory": rng.choice(LARGE)}
        if rng.random() < 0.3:
            requests["cpu"] = rng.choice(("1", "69T"))
        if rng.random() < 0.2:
            requests[GPU] = rng.choice(("1", "60P"))
        found["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": {key: each for key, each in requests.items() if key == GPU}}
        return found

    for i in range(rng.randint(0, 2)):
        s.put("Pod", asking(f"run{i}", nodeName=names[i % len(names)]))
    for i in range(5):
        s.attempt(asking(f"p{i}"))


def taint_toleration(s: Script) -> None:
    rng = s.rng
    for i in range(rng.randint(2, 5)):
        s.put("Node", node(f"n{i}", ROOMY, labels(rng), taints=taints(rng), **({"unschedulable": True} if rng.random() < 0.25 else {})))
    for i in range(5):
        s.attempt(pod(f"p{i}", tolerations=tolerations(rng)))


def affinity_to_nodes(s: Script) -> None:
    rng = s.rng
    for i in range(rng.randint(2, 5)):
        s.put("Node", node(f"n{i}", ROOMY, labels(rng)))
    for i in range(5):
        spec: Obj = {}
        if rng.random() < 0.9:
            spec["affinity"] = {"nodeAffinity": node_affinity(rng)}
        if rng.random() < 0.25:
            spec["nodeSelector"] = {rng.choice((ZONE, "disk", "absent")): rng.choice(("a", "ssd", ""))}
        s.attempt(pod(f"p{i}", **spec))


def ports(s: Script) -> None:
    rng = s.rng
    names = [f"n{i}" for i in range(rng.randint(1, 4))]
    for name in names:
        s.put("Node", node(name, ROOMY))
    for i in range(rng.randint(1, 6)):
        s.put("Pod", with_ports(rng, f"run{i}", nodeName=rng.choice(names)))
    for i in range(5):
        s.attempt(with_ports(rng, f"p{i}"))


def _topology(s: Script, kind: str) -> None:
    rng = s.rng
    for name, own in {"default": {}, **drawn_topology.TEAMS}.items():
        s.put("Namespace", {"metadata": {"name": name, "labels": own}})
    if rng.random() < 0.6:
        s.put("Service", {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}], "clusterIP": "None"}})
    nodes = drawn_topology.nodes(rng, "n")
    for obj in nodes:
        s.put("Node", {**obj, "metadata": {**obj["metadata"], "uid": obj["metadata"]["name"]}})
    for i in range(rng.randint(2, 12)):
        own, spec = drawn_topology.shape(rng, rng.choice(("plain", "affinity")))
        running = pod(f"run{i}", own, **spec, nodeName=rng.choice(nodes)["metadata"]["name"])
        running["metadata"]["namespace"] = rng.choice(("default", "default", *drawn_topology.TEAMS))
        s.put("Pod", running)
    for i in range(5):
        own, spec = drawn_topology.shape(rng, rng.choice((kind, kind, kind, "plain")))
        s.attempt(pod(f"p{i}", own, **spec))


def spread(s: Script) -> None:
    _topology(s, "spread")


def affinity_between_pods(s: Script) -> None:
    _topology(s, "affinity")


def volumes(s: Script) -> None:
    rng = s.rng
    for obj in rng.sample(drawn_volumes.NODES, rng.randint(3, 6)):
        s.put("Node", obj)
    for obj in drawn_volumes.running():
        s.put("Pod", obj)
    s.put("CSIDriver", drawn_volumes.COUNTED)
    for obj in drawn_volumes.node_drivers():
        s.put("CSINode", obj)
    for i in range(3):
        made, wanted = drawn_volumes.Draw(rng.getrandbits(32)).case(f"-{i}", "default-scheduler")
        if rng.random() < 0.7:
            wanted["spec"].pop("nodeSelector", None)
        if rng.random() < 0.3:
            user = {**wanted, "metadata": {"name": f"user-{i}"}, "spec": {**wanted["spec"], "nodeName": rng.choice(drawn_volumes.NODES)["metadata"]["name"]}}
            s.put("Pod", user)
        for resource, obj in made:
            kind = next(kind.kind for kind in KINDS.values() if (kind.group, kind.plural) == (resource.group, resource.plural))
            status = {"phase": "Bound"} if kind == "PersistentVolumeClaim" and obj["spec"].get("volumeName") else None
            s.put(kind, {**obj, "status": status} if status else obj)
        s.attempt(wanted)


def bound_volumes(s: Script) -> None:
    """Claims that have their volumes: what is left is where these may be, how many a node attaches, and who else has them."""
    rng = s.rng
    names = []
    for obj in rng.sample(drawn_volumes.NODES, rng.randint(2, 5)):
        s.put("Node", {**obj, "spec": {"unschedulable": True}} if rng.random() < 0.15 else obj)
        names.append(obj["metadata"]["name"])
    for obj in drawn_volumes.node_drivers():
        s.put("CSINode", obj)
    s.put("StorageClass", {"metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner"})
    for i in range(6):
        own = rng.choice(({}, {ZONE: "a"}, {ZONE: "b"}, {ZONE: "a__b"}, {"topology.kubernetes.io/region": "r"}, {"failure-domain.beta.kubernetes.io/zone": "c"}))
        modes = [rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))]
        source = {"csi": {"driver": "limited.example.com", "volumeHandle": f"h{rng.choice((0, i))}"}} if rng.random() < 0.6 else {"hostPath": {"path": "/d"}}
        volume = {"capacity": {"storage": "1Gi"}, "accessModes": modes, "storageClassName": "static", **source, "claimRef": {"namespace": "default", "name": f"c{i}", "uid": f"uid-c{i}"}}
        s.put("PersistentVolume", {"metadata": {"name": f"v{i}", "labels": own}, "spec": volume, "status": {"phase": "Bound"}})
        claim = {"accessModes": modes, "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "static", "volumeName": f"v{i}"}
        s.put("PersistentVolumeClaim", {"metadata": {"name": f"c{i}", "annotations": {drawn_volumes.COMPLETED: "yes"}}, "spec": claim, "status": {"phase": "Bound"}})

    def using(name: str, **spec: Any) -> Obj:
        claims = [{"name": f"v{j}", "persistentVolumeClaim": {"claimName": f"c{each}"}} for j, each in enumerate(rng.sample(range(6), rng.choice((1, 1, 2, 3))))]
        return pod(name, volumes=claims, **spec)

    for i in range(rng.randint(1, 3)):
        s.put("Pod", using(f"run{i}", nodeName=rng.choice(names)))
    for i in range(5):
        s.attempt(using(f"p{i}"))


def devices(s: Script) -> None:
    rng = s.rng
    case = drawn_devices.Draw(rng.getrandbits(32)).case()
    names = ("n0", "n1", "n2")[: rng.randint(1, 3)]
    for name in names:
        s.put("Node", node(name, ROOMY, {"zone": rng.choice("ab")}))
    for kind, objects in (("DeviceClass", case["classes"]), ("ResourceSlice", case["slices"])):
        for obj in objects:
            s.put(kind, obj)
    claims = [{**obj, "metadata": {**obj["metadata"], "namespace": "default"}} for obj in case["claims"]]
    there = [each for each in claims if s.put("ResourceClaim", each)]
    for i in range(4):
        wanted = [each["metadata"]["name"] for each in rng.sample(there, min(len(there), rng.choice((1, 1, 2))))]
        if rng.random() < 0.1:
            wanted.append("missing")
        named = [{"name": f"c{j}", "resourceClaimName": each} for j, each in enumerate(wanted)]
        if rng.random() < 0.08:
            named.append({"name": "made", "resourceClaimTemplateName": "template"})
        s.attempt(pod(f"p{i}", resourceClaims=named))


def gates(s: Script) -> None:
    """Pods with gates stay out; without them they come in by priority, and of equals the older first."""
    rng = s.rng
    s.put("Node", node("n0", ROOMY))
    made = []
    for i in range(4):
        spec: Obj = {"priority": rng.choice((-5, 0, 0, 7))}
        if rng.random() < 0.7:
            spec["schedulingGates"] = [{"name": f"example.com/{gate}"} for gate in "ab"[: rng.randint(1, 2)]]
        if (obj := s.put("Pod", pod(f"p{i}", **spec), hold=True)) is not None:
            made.append(obj)
            s.tries += 1
    s.look()
    for obj in rng.sample(made, len(made)):
        kept = rng.random() < 0.3
        for key in ([f"{obj['spec']['schedulingGates'][0]['name']}"] if kept and obj["spec"].get("schedulingGates") else [""]):
            changed = copy.deepcopy(obj)
            left = [gate for gate in changed["spec"].pop("schedulingGates", ()) if key and gate["name"] == key]
            if left:
                changed["spec"]["schedulingGates"] = left
            s.put_again(changed)
    s.look()


def everything(s: Script) -> None:
    """A little of each on one pod, so that plugins meet."""
    rng = s.rng
    names = [f"n{i}" for i in range(rng.randint(2, 6))]
    for name in names:
        s.put("Node", node(name, rng.choice((ROOMY, amounts(rng))), labels(rng), taints=taints(rng)[:1]))
    for i in range(rng.randint(0, 6)):
        own, spec = drawn_topology.shape(rng, rng.choice(("plain", "affinity")))
        base = with_ports(rng, f"run{i}") if rng.random() < 0.3 else sized(rng, f"run{i}")
        base["metadata"]["labels"] = own
        base["spec"] |= {**spec, "nodeName": rng.choice(names)}
        s.put("Pod", base)
    for i in range(5):
        own, spec = drawn_topology.shape(rng, rng.choice(("plain", "affinity", "spread")))
        base = with_ports(rng, f"p{i}") if rng.random() < 0.3 else sized(rng, f"p{i}")
        base["metadata"]["labels"] = own
        base["spec"] |= {**spec, "tolerations": tolerations(rng)}
        if rng.random() < 0.4:
            base["spec"].setdefault("affinity", {})["nodeAffinity"] = node_affinity(rng)
        s.attempt(base)


def configured(s: Script) -> None:
    """Other arguments of plugins than their defaults."""
    rng = s.rng
    resources = [{"name": name, "weight": rng.choice((1, 3, 100))} for name in rng.sample(("cpu", "memory", GPU, "ephemeral-storage"), rng.randint(1, 3))]
    strategy: Obj = {"type": rng.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")), "resources": resources}
    if strategy["type"] == "RequestedToCapacityRatio":
        points = sorted(rng.sample(range(0, 101, 10), rng.choice((2, 3))))
        strategy["requestedToCapacityRatio"] = {"shape": [{"utilization": at, "score": rng.randint(0, 10)} for at in points]}
    args = {"NodeResourcesFit": {"scoringStrategy": strategy}}
    if rng.random() < 0.4:
        args["NodeResourcesFit"]["ignoredResources"] = ["example.com/gpu"]  # type: ignore[assignment]
    if rng.random() < 0.5:
        args["InterPodAffinity"] = {"hardPodAffinityWeight": rng.choice((0, 1, 100)), "ignorePreferredTermsOfExistingPods": rng.random() < 0.5}
    if rng.random() < 0.5:
        args["PodTopologySpread"] = {"defaultingType": "List", "defaultConstraints": [{"maxSkew": rng.randint(1, 2), "topologyKey": rng.choice((ZONE, HOSTNAME)), "whenUnsatisfiable": rng.choice(("DoNotSchedule", "ScheduleAnyway"))}]}
    if rng.random() < 0.4:
        args["NodeAffinity"] = {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]}}
    s.config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": [{"name": name, "args": each} for name, each in args.items()]}],
    }  # fmt: skip
    rng.choice((fit, everything, spread, affinity_between_pods))(s)


def points(s: Script) -> None:
    """Plugins that are missing at some of their points."""
    s.config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [drawn_scheduling_profiles.at_points(s.rng)]}
    s.rng.choice((fit, taint_toleration, affinity_to_nodes, ports, spread, affinity_between_pods, volumes, bound_volumes, devices, gates, everything, binding, preemption))(s)


def sampled(s: Script) -> None:
    """More nodes than a search looks at, in zones of unlike sizes; they come, go and move between the pods."""
    rng = s.rng
    s.config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "percentageOfNodesToScore": rng.choice((0, 1, 50, 85))}
    zones = [_place(rng) for _ in range(rng.randint(1, 4))]

    def made(i: int) -> Obj:
        return node(f"n{i}", ROOMY, {**rng.choice(zones), "disk": rng.choice(("ssd", "ssd", "ssd", "hdd"))})

    nodes = [obj for i in range(rng.randint(100, 150)) if (obj := s.put("Node", made(i)))]
    for i in range(9):
        what = rng.choice(("nothing", "nothing", "gone", "back", "new", "moved"))
        place = rng.randrange(len(nodes))
        if what in ("gone", "back"):
            gone = nodes.pop(place)
            s.delete(gone)
            if what == "back":
                nodes.append(gone)
                s.put_again(gone)
        elif what == "new" and (obj := s.put("Node", made(200 + i))):
            nodes.append(obj)
        elif what == "moved":
            moved = copy.deepcopy(nodes[place])
            moved["metadata"]["labels"] |= rng.choice(zones)
            nodes[place] = moved
            s.put_again(moved)
        spec: Obj = rng.choice(({}, {}, {"nodeSelector": {"disk": "ssd"}}, {"nodeSelector": {"disk": "absent"}}))
        if rng.random() < 0.15:
            field = {"key": "metadata.name", "operator": "In", "values": [rng.choice(nodes)["metadata"]["name"]]}
            spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}}}
        s.attempt(pod(f"p{i}", **spec))


def _place(rng: random.Random) -> Obj:
    beta, stable = "failure-domain.beta.kubernetes.io/", "topology.kubernetes.io/"
    found = {f"{rng.choice((beta, stable, stable))}{key}": rng.choice(("", "a", "b", "c")) for key in ("region", "zone", "zone")}
    return {key: value for key, value in found.items() if rng.random() < 0.8}


THEMES: dict[str, Callable[[Script], None]] = {
    "fit": fit,
    "taints": taint_toleration,
    "node affinity": affinity_to_nodes,
    "ports": ports,
    "spread": spread,
    "pod affinity": affinity_between_pods,
    "volumes": volumes,
    "bound volumes": bound_volumes,
    "devices": devices,
    "gates": gates,
    "everything": everything,
    "binding": binding,
    "preemption": preemption,
    "wake-ups": wake_ups,
    "configured": configured,
    "sampled": sampled,
    "huge": huge,
    "points": points,
    **drawn_scheduling_profiles.THEMES,
    **drawn_scheduling_later.THEMES,
    **drawn_scheduling_lives.THEMES,
}


def script(theme: str, seed: int) -> Obj:
    s = Script(random.Random(f"{theme} {seed}"))
    THEMES[theme](s)
    return {"name": f"{theme} {seed}", **({"config": s.config} if s.config else {}), "steps": s.steps}
