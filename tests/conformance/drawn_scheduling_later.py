"""Themes in which what a pod waits for comes later, or goes again: claims, volumes, classes, slices."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import drawn_devices
from drawn_scheduling_events import started
from scripts_of_scheduling import BORN, HOSTNAME, ROOMY, ZONE, Obj, Script, node, pod

LOCAL = "kubernetes.io/no-provisioner"


def devices_later(s: Script) -> None:
    rng = s.rng
    case = drawn_devices.Draw(rng.getrandbits(32)).case()
    for name in ("n0", "n1"):
        s.put("Node", node(name, ROOMY, {"zone": rng.choice("ab")}))
    later: list[tuple[str, Obj]] = []
    for kind, objects in (("DeviceClass", case["classes"]), ("ResourceSlice", case["slices"])):
        for obj in objects:
            if rng.random() < 0.5:
                s.put(kind, obj)
            else:
                later.append((kind, obj))
    claims = [{**obj, "metadata": {**obj["metadata"], "namespace": "default"}} for obj in case["claims"]]
    there = [each for each in claims if s.put("ResourceClaim", each)]
    for i in range(4 if there else 0):
        chosen = rng.sample(there, min(len(there), rng.choice((1, 2))))
        named = [{"name": f"c{j}", "resourceClaimName": each["metadata"]["name"]} for j, each in enumerate(chosen)]
        s.wait(pod(f"p{i}", resourceClaims=named, preemptionPolicy="Never"))
    s.look()
    for kind, obj in later:
        s.put(kind, obj)
        s.look()


def claims_later(s: Script) -> None:
    """Each pod is gated by claims of its own: what helps one does not help the next."""
    rng = s.rng
    s.put("Node", node("n0", ROOMY))
    s.put("DeviceClass", {"metadata": {"name": "c"}, "spec": {}})
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    s.put("ResourceSlice", {"metadata": {"name": "s"}, "spec": {"driver": "d.io", "nodeName": "n0", "pool": pool, "devices": [{"name": f"d{i}"} for i in range(6)]}})

    def claim(name: str) -> Obj | None:
        requests = [{"name": "r", "exactly": {"deviceClassName": "c"}}]
        return s.put("ResourceClaim", {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}})

    names = [f"c{i}" for i in range(4)]
    there: dict[str, Any] = {name: claim(name) for name in names if rng.random() < 0.3}
    for i in range(4):
        chosen = rng.sample(names, rng.choice((1, 1, 2)))
        s.wait(pod(f"p{i}", resourceClaims=[{"name": f"x{j}", "resourceClaimName": name} for j, name in enumerate(chosen)], priority=rng.choice((0, 0, 5))))
    s.look()
    for _ in range(8):
        name = rng.choice(names)
        if name in there and rng.random() < 0.4:
            s.delete(there.pop(name))
        elif name not in there:
            there[name] = claim(name)
        elif rng.random() < 0.3:
            s.sleep(rng.choice((2, 30)))
        s.look()


def volumes_later(s: Script) -> None:
    rng = s.rng
    for name in ("n0", "n1"):
        s.put("Node", node(name, ROOMY, {ZONE: name[1]}))
    for name, mode in (("later", "WaitForFirstConsumer"), ("now", "Immediate")):
        s.put("StorageClass", {"metadata": {"name": name}, "provisioner": LOCAL, "volumeBindingMode": mode})
    names = [f"c{i}" for i in range(4)]
    for i in range(5):
        chosen = [{"name": f"x{j}", "persistentVolumeClaim": {"claimName": each}} for j, each in enumerate(rng.sample(names, rng.choice((1, 1, 2))))]
        spec: Obj = {"nodeSelector": {ZONE: rng.choice("01")}} if rng.random() < 0.3 else {}
        s.wait(pod(f"p{i}", volumes=chosen, preemptionPolicy="Never", **spec))
    s.look()
    there: dict[str, Any] = {}
    for i in range(10):
        name, what = rng.choice(names), rng.choice(("claim", "claim", "volume", "class", "delete", "sleep"))
        if what == "claim" and name not in there:
            spec = {"accessModes": [rng.choice(("ReadWriteOnce", "ReadWriteOncePod"))], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": rng.choice(("later", "now", "absent"))}
            there[name] = s.put("PersistentVolumeClaim", {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Pending"}})
        elif what == "volume":
            terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [rng.choice("01")]}]}]
            spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"], "storageClassName": "later", "local": {"path": "/d"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
            s.put("PersistentVolume", {"metadata": {"name": f"v{i}"}, "spec": spec, "status": {"phase": "Available"}})
        elif what == "class":
            s.put("StorageClass", {"metadata": {"name": "absent"}, "provisioner": "x.io/p", "volumeBindingMode": "WaitForFirstConsumer"})
        elif what == "delete" and name in there:
            s.delete(there.pop(name))
        elif what == "sleep":
            s.sleep(rng.choice((2, 30)))
        s.look()


def bindings_later(s: Script) -> None:
    """Pods whose volumes and devices are bound later. Until then others may need their room, or they go."""
    rng = s.rng
    for name in ("n0", "n1"):
        s.put("Node", node(name, {"cpu": rng.choice("23"), "memory": "8Gi", "pods": "110"}))
        devices = [{"name": f"d{i}", "attributes": {"i": {"int": i}}, "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]} for i in range(9)]
        if rng.random() < 0.3:
            devices = [{"name": each["name"], "attributes": each["attributes"]} for each in devices]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        s.put("ResourceSlice", {"metadata": {"name": f"s-{name}"}, "spec": {"driver": "d.io", "nodeName": name, "pool": pool, "devices": devices}})
    s.put("DeviceClass", {"metadata": {"name": "c"}, "spec": {}})
    s.put("StorageClass", {"metadata": {"name": "later"}, "provisioner": "x.io/p", "volumeBindingMode": "WaitForFirstConsumer"})
    made: dict[int, Obj] = {}
    for i in range(9):
        what = rng.choice(("pod", "pod", "pod", "important", "bound", "bound", "reset", "ready", "ready", "failed", "gone", "time"))
        if not made or what in ("pod", "important"):
            if (obj := _bound_later(s, i, what == "important")) is not None:
                made[i] = obj
                s.tries += 1
        elif what == "time":
            s.sleep(30)
        else:
            _bind(s, rng.choice(sorted(made)), what, made)
        s.look()


def _bound_later(s: Script, i: int, important: bool) -> Obj | None:
    rng = s.rng
    # Of equal pods without a start, upstream's order in a node decides who goes, which changes as pods are bound.
    wanted = pod(f"p{i}", status=started(rng), priority=rng.choice((10, 20)) if important else rng.choice((0, 0, 5)), terminationGracePeriodSeconds=rng.choice((0, 30)))
    wanted["spec"]["containers"][0]["resources"] = {"requests": {"cpu": rng.choice("23" if important else ("500m", "1", "1"))}}
    # Which of equals is chosen is left to chance: each pod names its node.
    wanted["spec"]["nodeSelector"] = {HOSTNAME: rng.choice(("n0", "n1"))}
    # Not both: the judge's upstream has one worker, which binds them one after the other.
    kind = rng.choice(("plain", "volume", "device") if important else ("volume", "device"))
    if kind == "volume":
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "later"}
        s.put("PersistentVolumeClaim", {"metadata": {"name": f"c{i}"}, "spec": spec, "status": {"phase": "Pending"}})
        wanted["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": f"c{i}"}}]
    if kind == "device":
        exactly = {"deviceClassName": "c", "selectors": [{"cel": {"expression": f'device.attributes["d.io"].i == {i}'}}]}
        s.put("ResourceClaim", {"metadata": {"name": f"r{i}"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
        wanted["spec"]["resourceClaims"] = [{"name": "d", "resourceClaimName": f"r{i}"}]
    return s.put("Pod", wanted)


def _bind(s: Script, i: int, what: str, made: dict[int, Obj]) -> None:
    """As provisioners and drivers do, or a user who deletes the pod."""
    spec = made[i]["spec"]
    if what == "gone":
        s.delete(made.pop(i))
        s.sleep(6)
    elif what == "bound" and "volumes" in spec:
        volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "later", "hostPath": {"path": "/d"}, "claimRef": {"namespace": "default", "name": f"c{i}", "uid": f"uid-c{i}"}}
        s.put("PersistentVolume", {"metadata": {"name": f"v{i}"}, "spec": volume, "status": {"phase": "Bound"}})
        bound = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": f"v{i}"}, "status": {"phase": "Bound"}}
        s.merge("PersistentVolumeClaim", f"c{i}", bound)
    elif what == "reset" and "volumes" in spec:
        s.merge("PersistentVolumeClaim", f"c{i}", {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n9"}}})
    elif what in ("ready", "failed") and "resourceClaims" in spec:
        condition = {"type": what, "status": "True", "reason": "r", "message": "m", "lastTransitionTime": BORN}
        device = {"driver": "d.io", "pool": spec["nodeSelector"][HOSTNAME], "device": f"d{i}", "conditions": [condition]}
        s.merge("ResourceClaim", f"r{i}", {"status": {"devices": [device]}})


THEMES: dict[str, Callable[[Script], None]] = {
    "bindings later": bindings_later,
    "devices later": devices_later,
    "claims later": claims_later,
    "volumes later": volumes_later,
}
