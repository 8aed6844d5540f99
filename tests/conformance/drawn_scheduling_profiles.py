"""Themes of plugins that look at a node's status (its images, its declared features), and of profiles: plugins that are
disabled, weighted, ordered otherwise or given other arguments, in several profiles of one scheduler."""

# ruff: noqa: E501

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from scripts_of_scheduling import (
    ROOMY,
    Obj,
    Script,
    amounts,
    labels,
    node,
    node_affinity,
    pod,
    sized,
    taints,
    tolerations,
    with_ports,
)

from minikube_py.scheduler.configuration.merging import READ_BEFORE, UPSTREAM_DEFAULTS

MI = 1 << 20
SIZES = (0, 1, 22 * MI, 23 * MI, 23 * MI + 1, 250 * MI, 999 * MI, 1000 * MI, 1001 * MI, 40_000 * MI, 2**62, 2**63 - 1)
"""Of images, around the bounds of ImageLocality: 23 and 1000 MiB for each container."""
IMAGES = ("web", "web:latest", "web:v1", "registry.example.com:5000/web", "registry.example.com:5000/web:v1", "docker.io/library/web:latest", "db:1", f"db@sha256:{'a' * 64}")


def images(s: Script) -> None:
    rng = s.rng
    sizes = {name: rng.choice(SIZES) for name in IMAGES}
    for i in range(rng.randint(2, 6)):
        found = node(f"n{i}", ROOMY)
        listed = []
        for name in rng.sample(IMAGES, rng.randint(0, 5)):
            # Nodes may tell different sizes of one image, and several names of one.
            size = sizes[name] if rng.random() < 0.8 else rng.choice(SIZES)
            listed.append({"names": [name, *rng.sample(IMAGES, rng.choice((0, 0, 1)))], "sizeBytes": size})
        found["status"]["images"] = listed
        s.put("Node", found)
    for i in range(5):
        wanted = pod(f"p{i}")
        wanted["spec"]["containers"] = [{"name": f"c{j}", "image": rng.choice((*IMAGES, "absent"))} for j in range(rng.choice((1, 1, 2, 4)))]
        if rng.random() < 0.4:
            wanted["spec"]["initContainers"] = [{"name": "i", "image": rng.choice(IMAGES)}]
        s.attempt(wanted)


FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "Unknown")


def features(s: Script) -> None:
    rng = s.rng
    made = []
    for i in range(rng.randint(1, 5)):
        found = node(f"n{i}", ROOMY)
        declared = sorted(rng.sample(FEATURES, rng.choice((0, 1, 1, 2, 3))))
        if declared or rng.random() < 0.5:
            found["status"]["declaredFeatures"] = declared
        if (obj := s.put("Node", found)) is not None:
            made.append(obj)
    for i in range(5):
        wanted = pod(f"p{i}", **rng.choice(({}, {"hostNetwork": True}, {"hostUsers": False})))
        if rng.random() < 0.8:
            rules = [{"action": rng.choice(("Restart", *["RestartAllContainers"] * 3)), "exitCodes": {"operator": "In", "values": [7]}}]
            wanted["spec"]["containers"][0] |= {"restartPolicy": rng.choice(("Never", "OnFailure")), "restartPolicyRules": rules}
        s.attempt(wanted)
        if made and rng.random() < 0.3:
            changed = rng.choice(made)
            changed["status"]["declaredFeatures"] = sorted(rng.sample(FEATURES, rng.randint(0, 3)))
            s.put_again({**changed, "status": dict(changed["status"])})


FILTERS = ("NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "VolumeRestrictions", "NodeVolumeLimits", "VolumeZone", "PodTopologySpread", "InterPodAffinity")
SCORES = ("TaintToleration", "NodeAffinity", "NodeResourcesFit", "NodeResourcesBalancedAllocation", "PodTopologySpread", "InterPodAffinity", "ImageLocality")


def _profile(rng: random.Random, name: str) -> Obj:
    plugins: Obj = {}
    if rng.random() < 0.6:
        plugins["filter"] = {"disabled": [{"name": each} for each in rng.sample(FILTERS, rng.randint(1, 3))]}
    if rng.random() < 0.2:
        plugins["filter"] = {"disabled": [{"name": "*"}], "enabled": [{"name": each} for each in rng.sample(FILTERS, rng.randint(1, 5))]}
    if rng.random() < 0.6:
        weighted = rng.sample(SCORES, rng.randint(1, 4))
        everything = rng.random() < 0.4
        plugins["score"] = {
            "disabled": [{"name": "*"}] if everything else [{"name": each} for each in rng.sample(SCORES, rng.randint(1, 4))],
            "enabled": [{"name": each, "weight": rng.choice((1, 2, 7, 100))} for each in weighted] if everything else [],
        }
    if rng.random() < 0.3:
        again = rng.sample(("TaintToleration", "NodeAffinity", "PodTopologySpread", "InterPodAffinity"), 2)
        plugins["multiPoint"] = {"enabled": [{"name": each, "weight": rng.choice((1, 3, 50))} for each in again]}
        if rng.random() < 0.5:
            plugins["multiPoint"]["disabled"] = [{"name": each} for each in rng.sample(SCORES, rng.randint(1, 2))]
    _leave_out_refused(plugins)
    if rng.random() < 0.2:
        plugins["postFilter"] = {"disabled": [{"name": "*"}]}
    found: Obj = {"schedulerName": name, "plugins": plugins}
    if rng.random() < 0.4:
        found["pluginConfig"] = [{"name": "NodeAffinity", "args": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": rng.choice(("Exists", "DoesNotExist"))}]}]}}}}]
    return found


def _leave_out_refused(plugins: Obj) -> None:
    """Profiles whose every pod ends in an error upstream (`differences.SCHEDULER`)."""
    listed = {each["name"] for point in ("filter", "score") for each in plugins.get(point, {}).get("enabled", ())}
    reading = {name for points in READ_BEFORE.values() for names in points.values() for name in names}
    multi = plugins.get("multiPoint", {})
    if "disabled" in multi:
        multi["disabled"] = [each for each in multi["disabled"] if each["name"] not in listed & reading]


def profiles(s: Script) -> None:
    """The nodes of `everything`, without topology; pods that name one of the profiles."""
    rng = s.rng
    names = ["default-scheduler", *rng.sample(("second", "third"), rng.randint(0, 2))]
    rng.shuffle(names)
    s.config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [_profile(rng, name) for name in names]}
    nodes = [f"n{i}" for i in range(rng.randint(2, 5))]
    for name in nodes:
        s.put("Node", node(name, rng.choice((ROOMY, amounts(rng))), labels(rng), taints=taints(rng)[:2], **({"unschedulable": True} if rng.random() < 0.15 else {})))
    for i in range(rng.randint(0, 4)):
        s.put("Pod", (with_ports if rng.random() < 0.4 else sized)(rng, f"run{i}", nodeName=rng.choice(nodes)))
    for i in range(5):
        spec: dict[str, Any] = {"schedulerName": rng.choice(names), "tolerations": tolerations(rng)}
        if rng.random() < 0.5:
            spec["affinity"] = {"nodeAffinity": node_affinity(rng)}
        s.attempt((with_ports if rng.random() < 0.4 else sized)(rng, f"p{i}", **spec))


POINTS = ("preEnqueue", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "preBind")


def at_points(rng: random.Random) -> Obj:
    """A profile of which one or two points lack some plugins, but for profiles that are refused."""
    plugins: Obj = {}
    for point in rng.sample(POINTS, rng.randint(1, 2)):
        reading = {name for names in READ_BEFORE.get(point, {}).values() for name in names}
        names = [name for name, _ in UPSTREAM_DEFAULTS if name not in reading]
        plugins[point] = {"disabled": [{"name": each} for each in rng.sample(names, rng.randint(1, 3))]}
    return {"schedulerName": "default-scheduler", "plugins": plugins}


THEMES: dict[str, Callable[[Script], None]] = {"images": images, "features": features, "profiles": profiles}
