"""Themes in which pods and nodes live on while others wait: they end, come again under their names, are bound by
another scheduler, resized, relabelled; and pods that evict others for more than cpu."""

# ruff: noqa: E501

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import drawn_topology
import drawn_volumes
from drawn_scheduling_events import PRIORITIES, event, neighbour, started, waiting_pod
from scripts_of_scheduling import (
    EFFECTS,
    GPU,
    HOSTNAME,
    ROOMY,
    ZONE,
    Obj,
    Script,
    labels,
    node,
    pod,
    taints,
    with_ports,
)

STEPS = 7
Objs = dict[str, Obj]


def _requests(obj: Obj, **requests: str) -> None:
    for each in obj["spec"]["containers"][:1]:
        each["resources"] = {"requests": requests}


def _wait(s: Script, obj: Obj, into: list[Obj]) -> None:
    if (made := s.wait(obj)) is not None:
        into.append(made)


def _changed(s: Script, among: list[Obj], change: Callable[[Obj], None]) -> None:
    if among:
        place = s.rng.randrange(len(among))
        among[place] = copy.deepcopy(among[place])
        change(among[place])
        s.put_again(among[place])


def _reborn(s: Script, obj: Obj, change: Callable[[Obj], None], i: int) -> Obj:
    """The same name, another object."""
    s.delete(obj)
    if s.rng.random() < 0.5:
        s.look()
    again = copy.deepcopy(obj)
    again["metadata"]["uid"] += f"-{i}"
    change(again)
    return again


def _life(s: Script, preempting: bool) -> None:
    rng = s.rng
    nodes: Objs = {}
    for i in range(rng.randint(1, 3)):
        made = s.put("Node", node(f"n{i}", {"cpu": "2", "memory": "1Gi", "pods": rng.choice(("2", "3", "110"))}, labels(rng), taints=taints(rng)[:1]))
        if made:
            nodes[made["metadata"]["name"]] = made
    running: list[Obj] = []
    waiting: list[Obj] = []
    for i in range(rng.randint(2, 5) if nodes else 0):
        base = neighbour(rng, f"run{i}", rng.choice(sorted(nodes)))
        base["spec"] |= {"priority": rng.choice((-10, 0, 0, 5)), "terminationGracePeriodSeconds": rng.choice((0, 30))}
        base["status"] = started(rng)
        if (obj := s.put("Pod", base)) is not None:
            running.append(obj)
    for i in range(rng.randint(2, 4) if nodes else 0):
        base = waiting_pod(rng, f"w{i}")
        if preempting and rng.random() < 0.6:
            base["spec"].pop("preemptionPolicy")
        base["spec"]["priority"] = rng.choice((0, 1, 6, 6))
        _wait(s, base, waiting)
    s.look()
    for i in range(STEPS if nodes else 0):
        _turn(s, i, nodes, running, waiting, preempting)
        s.look()


def _turn(s: Script, i: int, nodes: Objs, running: list[Obj], waiting: list[Obj], preempting: bool) -> None:
    rng = s.rng
    what = rng.choice(("end", "end", "terminating", "bound", "again", "node again", "node again", "event", "event", "sleep", "own spec"))
    if what == "end" and running:
        s.delete(running.pop(rng.randrange(len(running))))
    elif what == "terminating" and not preempting:
        _changed(s, running, lambda obj: obj["metadata"].update(deletionTimestamp="1999-06-01T00:00:00Z"))
    elif what == "bound" and waiting:
        obj = copy.deepcopy(waiting.pop(rng.randrange(len(waiting))))
        obj["spec"]["nodeName"] = rng.choice(sorted(nodes))
        obj["spec"].pop("schedulingGates", None)
        s.put_again(obj)
        running.append(obj)
    elif what == "again" and waiting:
        place = rng.randrange(len(waiting))
        own = drawn_topology.labels(rng) if rng.random() < 0.4 else waiting[place]["metadata"].get("labels", {})
        waiting[place] = _reborn(s, waiting[place], lambda obj: obj["metadata"].update(labels=own), i)
        s.put_again(waiting[place], hold=True)
    elif what == "node again":
        name = rng.choice(sorted(nodes))
        room = {"cpu": "3", "memory": "2Gi", "pods": "110"} if rng.random() < 0.5 else nodes[name]["status"]["allocatable"]
        nodes[name] = _reborn(s, nodes[name], lambda obj: obj["status"].update(allocatable=room), i)
        s.put_again(nodes[name])
    elif what == "sleep":
        s.sleep(rng.choice((1, 5, 30, 340)))
    elif what == "own spec":
        _changed(s, waiting, lambda obj: _loosened(rng, obj))
    elif what == "event":
        event(s, f"{i}", nodes, [] if preempting else running, [], waiting)


def _loosened(rng: random.Random, obj: Obj) -> None:
    obj["spec"]["tolerations"] = [*obj["spec"].get("tolerations", ()), {"key": rng.choice("klm"), "operator": "Exists"}]
    if obj["spec"].pop("schedulingGates", None) and rng.random() < 0.6:
        obj["spec"]["nodeSelector"] = {**obj["spec"].get("nodeSelector", {}), "disk": "ssd"}


def lives(s: Script) -> None:
    _life(s, preempting=False)


def lives_that_preempt(s: Script) -> None:
    _life(s, preempting=True)


def resizes(s: Script) -> None:
    """Running pods want, get and use other amounts; waiting pods ask for other ones."""
    rng = s.rng
    names = [f"n{i}" for i in range(rng.randint(1, 3))]
    for name in names:
        s.put("Node", node(name, {"cpu": "4", "memory": "4Gi", "pods": "110"}))
    running: list[Obj] = []
    for i in range(rng.randint(1, 4)):
        base = pod(f"run{i}", nodeName=rng.choice(names), priority=rng.choice((0, 5)))
        _requests(base, cpu=rng.choice(("1", "2", "3")), memory="1Gi")
        has = {"cpu": "2", "memory": "1Gi"}
        told = {"name": "c", "ready": True, "restartCount": 0, "image": "x", "imageID": "", "allocatedResources": dict(has), "resources": {"requests": dict(has)}}
        base["status"] = {**started(rng), "containerStatuses": [told]}
        if (obj := s.put("Pod", base)) is not None:
            running.append(obj)
    waiting: list[Obj] = []
    for i in range(3):
        base = pod(f"w{i}", priority=rng.choice((0, 1)), preemptionPolicy="Never")
        _requests(base, cpu=rng.choice(("1", "2", "3", "4", "5")), memory=rng.choice(("1Gi", "3Gi")))
        if rng.random() < 0.3:
            base["spec"]["resources"] = {"requests": {"cpu": "5"}}
        _wait(s, base, waiting)
    s.look()
    for _ in range(STEPS):
        what, cpu = rng.choice(("wants", "has", "uses", "told", "own", "own")), rng.choice(("500m", "1", "2", "4"))

        def resized(obj: Obj, what: str = what, cpu: str = cpu) -> None:
            if what in ("wants", "own"):
                obj["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
            elif what == "told":
                pending = [{"type": "PodResizePending", "status": "True", "reason": rng.choice(("Infeasible", "Deferred"))}]
                obj["status"]["conditions"] = rng.choice(([], pending))
            else:
                status = obj["status"]["containerStatuses"][0]
                (status["allocatedResources"] if what == "has" else status["resources"]["requests"])["cpu"] = cpu

        _changed(s, waiting if what == "own" else running, resized)
        s.look()


def spread_lives(s: Script) -> None:
    """Pods that are to be spread, or near others, wait; those others come, go, end and change, and so do zones."""
    rng = s.rng
    for name, own in {"default": {}, **drawn_topology.TEAMS}.items():
        s.put("Namespace", {"metadata": {"name": name, "labels": own}})
    nodes: Objs = {}
    for obj in drawn_topology.nodes(rng, "n"):
        if made := s.put("Node", {**obj, "metadata": {**obj["metadata"], "uid": obj["metadata"]["name"]}}):
            nodes[made["metadata"]["name"]] = made
    running: list[Obj] = []
    for i in range(rng.randint(2, 7) if nodes else 0):
        _beside(s, f"run{i}", rng.choice(sorted(nodes)), running)
    waiting: list[Obj] = []
    for i in range(4):
        own, spec = drawn_topology.shape(rng, rng.choice(("spread", "affinity")))
        base = pod(f"w{i}", own, **spec, priority=rng.choice((0, 3)), preemptionPolicy="Never")
        if rng.random() < 0.5:
            _requests(base, cpu=rng.choice(("1", "7", "8")))
        _wait(s, base, waiting)
    s.look()
    for i in range(STEPS if nodes else 0):
        what, name = rng.choice(("gone", "gone", "labels", "terminating", "zone", "taint", "cordon", "namespace", "new", "own labels", "node gone")), rng.choice(sorted(nodes))
        if what == "gone" and running:
            s.delete(running.pop(rng.randrange(len(running))))
        elif what == "labels":
            _changed(s, running, lambda obj: obj["metadata"].update(labels=drawn_topology.labels(rng)))
        elif what == "terminating":
            _changed(s, running, lambda obj: obj["metadata"].update(deletionTimestamp="1999-06-01T00:00:00Z"))
        elif what in ("zone", "taint", "cordon"):
            nodes[name] = copy.deepcopy(nodes[name])
            _moved(rng, nodes[name], what)
            s.put_again(nodes[name])
        elif what == "namespace":
            s.put("Namespace", {"metadata": {"name": rng.choice(("default", *drawn_topology.TEAMS)), "labels": rng.choice(({}, {"team": "x"}, {"team": "y"}))}})
        elif what == "new":
            _beside(s, f"new{i}", name, running)
        elif what == "own labels":
            _changed(s, waiting, lambda obj: obj["metadata"].update(labels=drawn_topology.labels(rng)))
        elif what == "node gone" and len(nodes) > 1:
            s.delete(nodes.pop(name))
        s.look()


def _beside(s: Script, name: str, where: str, running: list[Obj]) -> None:
    rng = s.rng
    own, spec = drawn_topology.shape(rng, rng.choice(("plain", "affinity")))
    base = pod(name, own, **spec, nodeName=where, priority=rng.choice((0, 0, 5)))
    base["metadata"]["namespace"] = rng.choice(("default", "default", *drawn_topology.TEAMS))
    base["status"] = started(rng)
    if (obj := s.put("Pod", base)) is not None:
        running.append(obj)


def _moved(rng: random.Random, obj: Obj, what: str) -> None:
    if what == "taint":
        obj["spec"]["taints"] = rng.choice(([], [{"key": "k", "value": "v", "effect": "NoSchedule"}]))
    elif what == "cordon":
        obj["spec"]["unschedulable"] = not obj["spec"].get("unschedulable", False)
    elif rng.random() < 0.3:
        obj["metadata"]["labels"].pop(ZONE, None)
    else:
        obj["metadata"]["labels"][ZONE] = rng.choice("abc")


def nominations(s: Script) -> None:
    """Pods that come with a node they were promised, and others beside them."""
    rng = s.rng
    names = [f"n{i}" for i in range(rng.randint(1, 3))]
    for name in names:
        s.put("Node", node(name, {"cpu": rng.choice(("2", "3", "4")), "memory": "8Gi", "pods": rng.choice(("2", "110"))}, {ZONE: rng.choice("ab")}))
    running: list[Obj] = []
    for i in range(rng.randint(0, 4)):
        base = pod(f"run{i}", {"app": rng.choice(("web", "db"))}, nodeName=rng.choice(names), priority=rng.choice((0, 5)))
        _requests(base, cpu=rng.choice(("500m", "1")))
        base["status"] = started(rng)
        if (obj := s.put("Pod", base)) is not None:
            running.append(obj)
    waiting: list[Obj] = []
    for i in range(5):
        own, spec = drawn_topology.shape(rng, rng.choice(("plain", "plain", "affinity", "spread")))
        base = with_ports(rng, f"p{i}", **spec) if rng.random() < 0.3 else pod(f"p{i}", own, **spec)
        if rng.random() < 0.5:
            base["status"] = {"nominatedNodeName": rng.choice((*names, "nowhere"))}
        _requests(base, cpu=rng.choice(("500m", "1", "2")))
        base["spec"] |= {"priority": rng.choice((0, 5, 9)), "preemptionPolicy": "Never"}
        if rng.random() < 0.5:
            base["spec"]["schedulingGates"] = [{"name": "example.com/g"}]
        if rng.random() < 0.5:
            _wait(s, base, waiting)
        elif s.put("Pod", base) is not None:
            s.tries += 1
        s.look()
    for obj in rng.sample(waiting, len(waiting)):
        changed = copy.deepcopy(obj)
        changed["spec"].pop("schedulingGates", None)
        s.put_again(changed)
        s.look()
    for obj in running:
        s.delete(obj)
        s.look()


def evictions(s: Script) -> None:
    """What blocks a pod is a device, a claim of one pod alone, a port, a count, or where the others are."""
    rng = s.rng
    names = [f"n{i}" for i in range(rng.randint(1, 3))]
    for name in names:
        s.put("Node", node(name, {"cpu": "8", "memory": "8Gi", "pods": rng.choice(("2", "3", "110")), GPU: "2"}, {ZONE: rng.choice("ab"), "disk": "ssd"}))
    _claims_of_one(s, names)
    running: list[Obj] = []
    for i in range(rng.randint(2, 7)):
        base = _greedy(rng, f"run{i}")
        base["spec"] |= {"nodeName": rng.choice(names), "priority": rng.choice(PRIORITIES), "terminationGracePeriodSeconds": rng.choice((0, 30))}
        base["status"] = started(rng)
        if (obj := s.put("Pod", base)) is not None:
            running.append(obj)
    if rng.random() < 0.5:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"team": "a"}}, "unhealthyPodEvictionPolicy": rng.choice(("AlwaysAllow", "IfHealthyBudget"))}
        status = {"disruptionsAllowed": rng.randint(0, 1), "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        s.put("PodDisruptionBudget", {"metadata": {"name": "b"}, "spec": spec, "status": status})
    for i in range(rng.randint(1, 3)):
        base = _greedy(rng, f"high{i}")
        base["spec"]["priority"] = rng.choice((6, 10, 15))
        s.put("Pod", base)
        s.tries += 1
        s.look()
        if rng.random() < 0.4:
            s.sleep(rng.choice((1, 3, 12)))
            s.look()
    for obj in rng.sample(running, min(len(running), 3)):
        s.delete(obj)
        s.look()


def _claims_of_one(s: Script, names: list[str]) -> None:
    rng = s.rng
    s.put("StorageClass", {"metadata": {"name": "static"}, "provisioner": "kubernetes.io/no-provisioner"})
    for i in range(2):
        shared: Obj = {"accessModes": ["ReadWriteOncePod"], "storageClassName": "static"}
        bound = {"csi": {"driver": "limited.example.com", "volumeHandle": f"h{i}"}, "claimRef": {"namespace": "default", "name": f"c{i}", "uid": f"uid-c{i}"}}
        s.put("PersistentVolume", {"metadata": {"name": f"v{i}"}, "spec": {"capacity": {"storage": "1Gi"}, **shared, **bound}, "status": {"phase": "Bound"}})
        claim = {**shared, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"v{i}"}
        s.put("PersistentVolumeClaim", {"metadata": {"name": f"c{i}", "annotations": {drawn_volumes.COMPLETED: "yes"}}, "spec": claim, "status": {"phase": "Bound"}})
    for name in names:
        if rng.random() < 0.5:
            driver = {"name": "limited.example.com", "nodeID": name, "topologyKeys": [], "allocatable": {"count": rng.choice((0, 1, 2))}}
            s.put("CSINode", {"metadata": {"name": name}, "spec": {"drivers": [driver]}})


def _greedy(rng: random.Random, name: str) -> Obj:
    kind = rng.choice(("gpu", "claim", "port", "near", "spread", "cpu", "gpu and claim"))
    found = with_ports(rng, name) if kind == "port" else pod(name, {"app": rng.choice(("web", "db")), "team": rng.choice("ab")})
    for each in found["spec"]["containers"][:1] if "gpu" in kind else ():
        asked = {GPU: rng.choice("12")}
        each["resources"] = {"requests": asked, "limits": dict(asked)}
    if "claim" in kind:
        found["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": rng.choice(("c0", "c1"))}}]
    elif kind == "near":
        term = {"topologyKey": rng.choice((ZONE, HOSTNAME)), "labelSelector": {"matchLabels": {"app": rng.choice(("web", "db"))}}}
        found["spec"]["affinity"] = {rng.choice(("podAntiAffinity", "podAffinity")): {drawn_topology.REQUIRED: [term]}}
    elif kind == "spread":
        found["spec"]["topologySpreadConstraints"] = [{"maxSkew": 1, "topologyKey": rng.choice((ZONE, HOSTNAME)), "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]
    elif kind == "cpu":
        _requests(found, cpu=rng.choice(("3", "5", "8")))
    return found


def tolerations_by_number(s: Script) -> None:
    rng = s.rng
    values = ("5", "10", "x", "")
    for i in range(rng.randint(2, 4)):
        given = [{"key": key, "value": rng.choice(values), "effect": rng.choice(EFFECTS)} for key in rng.sample("klm", rng.randint(0, 3))]
        s.put("Node", node(f"n{i}", ROOMY, labels(rng), taints=given))
    for i in range(5):
        operators, effects = ("Gt", "Lt", "Exists", "Equal", ""), ("", *EFFECTS)
        drawn = [{"key": rng.choice("klm"), "operator": rng.choice(operators), "value": rng.choice(values), "effect": rng.choice(effects)} for _ in range(rng.randint(0, 3))]
        s.attempt(pod(f"p{i}", tolerations=drawn))


THEMES: dict[str, Callable[[Script], None]] = {
    "lives": lives,
    "lives that preempt": lives_that_preempt,
    "resizes": resizes,
    "spread lives": spread_lives,
    "nominations": nominations,
    "evictions": evictions,
    "tolerations by number": tolerations_by_number,
}
