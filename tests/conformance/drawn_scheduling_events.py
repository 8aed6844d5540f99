"""Themes of scripts in which much happens: pods are bound, evicted, and woken by events."""

# ruff: noqa: E501

from __future__ import annotations

import copy
import random

import drawn_topology
from scripts_of_scheduling import (
    BORN,
    HOSTNAME,
    ROOMY,
    ZONE,
    Obj,
    Script,
    labels,
    node,
    node_affinity,
    pod,
    taints,
    with_ports,
)


def binding(s: Script) -> None:
    """Pods that are bound, one after the other, onto nodes that fill up; and some of them go again."""
    rng = s.rng
    for i in range(rng.randint(1, 3)):
        s.put("Node", node(f"n{i}", {"cpu": str(rng.choice((1, 2, 3))), "memory": "8Gi", "pods": rng.choice(("2", "110"))}))
    # Which of equals is chosen is left to chance: each pod names its node.
    made = []
    for i in range(6):
        wanted = pod(f"p{i}", containers=[{"name": "c", "image": "x", "resources": {"requests": {"cpu": rng.choice(("500m", "1", "2"))}}}])
        wanted["spec"]["nodeSelector"] = {HOSTNAME: f"n{rng.randrange(3)}"}
        if (obj := s.put("Pod", wanted)) is not None:
            made.append(obj)
            s.tries += 1
        if rng.random() < 0.3 and made:
            s.delete(made.pop(rng.randrange(len(made))))
        s.look()


PRIORITIES = (-(1 << 31), -10, 0, 0, 5, 9)


def started(rng: random.Random) -> Obj:
    """Nobody starts when another does: which of two equal sets of victims goes is left to chance."""
    return {"phase": "Running", "startTime": f"1999-0{rng.randint(1, 9)}-{rng.randint(10, 28)}T{rng.randint(10, 23)}:{rng.randint(10, 59)}:{rng.randint(10, 59)}Z"}


def preemption(s: Script) -> None:
    """Nodes that are full of pods of less importance, budgets over some of them, nominations in the way."""
    rng = s.rng
    names = [f"n{i}" for i in range(rng.randint(1, 4))]
    for i, name in enumerate(names):
        more = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]} if rng.random() < 0.1 else {}
        s.put("Node", node(name, {"cpu": rng.choice(("2", "3", "4")), "memory": "8Gi", "pods": rng.choice(("3", "110", "110"))}, {ZONE: "ab"[i % 2]}, **more))
    running = []
    for i in range(rng.randint(2, 9)):
        base = with_ports(rng, f"run{i}") if rng.random() < 0.2 else pod(f"run{i}")
        base["spec"]["containers"] = base["spec"]["containers"] or []
        base["spec"]["containers"][0]["resources"] = {"requests": {"cpu": rng.choice(("500m", "1", "1500m", "2"))}}
        base["spec"] |= {"priority": rng.choice(PRIORITIES), "nodeName": rng.choice(names), "terminationGracePeriodSeconds": rng.choice((0, 30, 30))}
        base["metadata"]["labels"] = {"team": rng.choice("abc"), "app": rng.choice(("web", "db"))}
        if rng.random() < 0.15:
            term = {"topologyKey": rng.choice((ZONE, HOSTNAME)), "labelSelector": {"matchLabels": {"app": "web"}}}
            base["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if rng.random() < 0.9:
            base["status"] = started(rng)
        if (obj := s.put("Pod", base)) is not None:
            running.append(obj)
    for i in range(rng.choice((0, 0, 1, 1, 2))):
        selector = rng.choice(({"matchLabels": {"team": rng.choice("abc")}}, {}, {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}))
        status = {"disruptionsAllowed": rng.randint(0, 2), "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        if rng.random() < 0.2:
            status["disruptedPods"] = {"run0": BORN}
        s.put("PodDisruptionBudget", {"metadata": {"name": f"b{i}"}, "spec": {"minAvailable": 1, "selector": selector}, "status": status})
    if rng.random() < 0.3:
        promised = pod("promised", status={"nominatedNodeName": rng.choice(names)}, priority=rng.choice((5, 10, 20)), schedulingGates=[{"name": "example.com/later"}])
        promised["spec"]["containers"][0]["resources"] = {"requests": {"cpu": rng.choice(("1", "2"))}}
        s.put("Pod", promised)
    for i in range(rng.choice((1, 1, 2))):
        wanted = with_ports(rng, f"high{i}") if rng.random() < 0.2 else pod(f"high{i}", {"app": "web"})
        for each in wanted["spec"]["containers"]:
            each["resources"] = {"requests": {"cpu": rng.choice(("1", "2", "3", "4"))}}
        wanted["spec"] |= {"priority": rng.choice((6, 10, 10, 15))}
        if rng.random() < 0.12:
            wanted["spec"]["preemptionPolicy"] = "Never"
        if rng.random() < 0.2:
            term = {"topologyKey": rng.choice((ZONE, HOSTNAME)), "labelSelector": {"matchLabels": {"app": rng.choice(("web", "db"))}}}
            kind = rng.choice(("podAffinity", "podAntiAffinity"))
            wanted["spec"]["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if rng.random() < 0.15:
            wanted["spec"]["topologySpreadConstraints"] = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]
        s.put("Pod", wanted)
        s.tries += 1
        s.look()
    for obj in rng.sample(running, min(len(running), 3)):
        s.delete(obj)
        s.look()


def wake_ups(s: Script) -> None:
    """Pods that fit nowhere for all kinds of reasons, and events: which of them is tried again?"""
    rng = s.rng
    nodes: dict[str, Obj] = {}
    for i in range(rng.randint(1, 3)):
        made = s.put("Node", node(f"n{i}", {"cpu": "1", "memory": "1Gi", "pods": rng.choice(("1", "2", "110"))}, labels(rng), taints=taints(rng)[:1], **({"unschedulable": True} if rng.random() < 0.2 else {})))
        if made:
            nodes[made["metadata"]["name"]] = made
    if not nodes:
        nodes["n0"] = s.put("Node", node("n0", {"cpu": "1", "memory": "1Gi", "pods": "1"})) or {}
    running = [obj for i in range(rng.randint(1, 4)) if (obj := s.put("Pod", neighbour(rng, f"run{i}", rng.choice(sorted(nodes)))))]
    for name, mode in (("later", "WaitForFirstConsumer"), ("at-once", "Immediate")):
        s.put("StorageClass", {"metadata": {"name": name}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode})
    claims = [obj for i in range(3) if rng.random() < 0.7 and (obj := s.put("PersistentVolumeClaim", _claim(rng, f"c{i}")))]
    waiting = [obj for i in range(4) if (obj := s.put("Pod", waiting_pod(rng, f"w{i}"), hold=True))]
    s.tries += len(waiting)
    s.look()
    for i in range(6):
        event(s, f"{i}", nodes, running, claims, waiting)
        s.look()


def neighbour(rng: random.Random, name: str, where: str) -> Obj:
    own, spec = drawn_topology.shape(rng, rng.choice(("plain", "plain", "affinity")))
    base = with_ports(rng, name) if rng.random() < 0.3 else pod(name)
    base["metadata"]["labels"] = own
    if base["spec"]["containers"]:
        base["spec"]["containers"][0]["resources"] = {"requests": {"cpu": rng.choice(("100m", "500m", "1"))}}
    base["spec"] |= {**spec, "nodeName": where}
    return base


def _claim(rng: random.Random, name: str) -> Obj:
    spec = {"accessModes": [rng.choice(("ReadWriteOnce", "ReadWriteOncePod"))], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": rng.choice(("later", "at-once"))}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}}


def waiting_pod(rng: random.Random, name: str) -> Obj:
    kind = rng.choice(("large", "port", "affinity", "spread", "node", "toleration", "claim", "gate", "device", "plain"))
    own, spec = drawn_topology.shape(rng, kind if kind in ("affinity", "spread") else "plain")
    base = with_ports(rng, name) if kind == "port" else pod(name)
    base["metadata"]["labels"] = own
    base["spec"] |= spec
    if kind == "large":
        base["spec"]["containers"][0]["resources"] = {"requests": {"cpu": rng.choice(("1", "2", "3"))}}
    elif kind == "node":
        base["spec"]["affinity"] = {"nodeAffinity": node_affinity(rng)}
        base["spec"]["nodeSelector"] = {rng.choice((ZONE, "disk", "absent")): rng.choice(("a", "ssd"))}
    elif kind == "claim":
        base["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{rng.randrange(3)}"}}]
    elif kind == "gate":
        base["spec"]["schedulingGates"] = [{"name": "example.com/g"}]
    elif kind == "device":
        base["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimName": "d0"}]
    base["spec"]["priority"] = rng.choice((0, 0, 1))
    base["spec"]["preemptionPolicy"] = "Never"
    return base


def event(s: Script, i: str, nodes: dict[str, Obj], running: list[Obj], claims: list[Obj], waiting: list[Obj]) -> None:
    rng = s.rng
    what = rng.choice(
        ("node", "labels", "taints", "room", "cordon", "pod gone", "pod gone", "pod labels", "pod shrinks", "new pod", "claim", "volume",
         "class", "namespace", "gates", "toleration", "own labels", "device", "service", "csi node", "annotation", "condition", "node gone")
    )  # fmt: skip
    name = rng.choice(sorted(nodes))
    obj = copy.deepcopy(nodes[name])
    if what == "node":
        s.put("Node", node(f"new{i}", rng.choice((ROOMY, {"cpu": "1", "memory": "1Gi", "pods": "0"})), labels(rng), taints=taints(rng)[:1]))
        return
    if what in ("labels", "taints", "room", "cordon", "annotation", "condition"):
        if what == "labels":
            obj["metadata"]["labels"] = {HOSTNAME: name, **labels(rng)}
        elif what == "taints":
            obj["spec"]["taints"] = taints(rng)[:1]
        elif what == "room":
            obj["status"]["allocatable"] = {"cpu": rng.choice(("1", "2", "8")), "memory": "1Gi", "pods": rng.choice(("1", "2", "110"))}
        elif what == "cordon":
            obj["spec"]["unschedulable"] = not obj["spec"].get("unschedulable", False)
        elif what == "annotation":
            obj["metadata"]["annotations"] = {"a": i}
        else:
            obj["status"]["conditions"] = [{"type": "Ready", "status": rng.choice(("True", "False"))}]
        nodes[name] = obj
        s.put_again(obj)
    elif what == "node gone" and len(nodes) > 1:
        s.delete(nodes.pop(name))
    elif what == "pod gone" and running:
        s.delete(running.pop(rng.randrange(len(running))))
    elif what in ("pod labels", "pod shrinks") and running:
        place = rng.randrange(len(running))
        changed = copy.deepcopy(running[place])
        if what == "pod labels":
            changed["metadata"]["labels"] = drawn_topology.labels(rng)
        elif changed["spec"]["containers"]:
            changed["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "50m"}}
        running[place] = changed
        s.put_again(changed)
    elif what == "new pod":
        if (made := s.put("Pod", neighbour(rng, f"run-new{i}", name))) is not None:
            running.append(made)
    elif what in ("gates", "toleration", "own labels") and waiting:
        place = rng.randrange(len(waiting))
        changed = copy.deepcopy(waiting[place])
        if what == "gates":
            changed["spec"].pop("schedulingGates", None)
        elif what == "toleration":
            changed["spec"]["tolerations"] = [*changed["spec"].get("tolerations", ()), {"key": rng.choice("klm"), "operator": "Exists"}]
        else:
            changed["metadata"]["labels"] = drawn_topology.labels(rng)
        waiting[place] = changed
        s.put_again(changed)
    else:
        _kinds_event(s, i, what, claims)


def _kinds_event(s: Script, i: str, what: str, claims: list[Obj]) -> None:
    rng = s.rng
    if what == "claim":
        s.put("PersistentVolumeClaim", _claim(rng, f"c{rng.randrange(3)}"))
    elif what == "volume":
        spec = {"capacity": {"storage": rng.choice(("1Gi", "512Mi"))}, "accessModes": ["ReadWriteOnce"], "storageClassName": rng.choice(("later", "at-once")), "hostPath": {"path": "/d"}}
        s.put("PersistentVolume", {"metadata": {"name": f"v{i}"}, "spec": spec, "status": {"phase": "Available"}})
    elif what == "class":
        s.put("StorageClass", {"metadata": {"name": f"s{i}"}, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"})
    elif what == "namespace":
        obj = {"metadata": {"name": rng.choice(("default", *drawn_topology.TEAMS)), "labels": rng.choice(({}, {"team": "x"}))}}
        if (made := s.put("Namespace", obj)) is not None and rng.random() < 0.4:
            s.look()
            s.delete(made)
    elif what == "device":
        s.put("ResourceClaim", {"metadata": {"name": "d0"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "one"}}]}}})
    elif what == "service":
        s.put("Service", {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}], "clusterIP": "None"}})
    elif what == "csi node":
        s.put("CSINode", {"metadata": {"name": "n0"}, "spec": {"drivers": [{"name": "x.io", "nodeID": "n", "topologyKeys": [], "allocatable": {"count": 1}}]}})
