"""Themes in which what a pod waits for comes later, or goes again: claims, volumes, classes, slices."""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import drawn_devices
from scripts_of_scheduling import ROOMY, ZONE, Obj, Script, node, pod

LOCAL = "kubernetes.io/no-provisioner"


def _wait(s: Script, obj: Obj) -> None:
    if s.put("Pod", obj, hold=True) is not None:
        s.tries += 1


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
        _wait(s, pod(f"p{i}", resourceClaims=named, preemptionPolicy="Never"))
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
        _wait(s, pod(f"p{i}", resourceClaims=[{"name": f"x{j}", "resourceClaimName": name} for j, name in enumerate(chosen)], priority=rng.choice((0, 0, 5))))
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
        _wait(s, pod(f"p{i}", volumes=chosen, preemptionPolicy="Never", **spec))
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


THEMES: dict[str, Callable[[Script], None]] = {
    "devices later": devices_later,
    "claims later": claims_later,
    "volumes later": volumes_later,
}
