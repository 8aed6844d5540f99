"""Scripts for two schedulers: their steps, and the parts of objects that themes draw.

A script is a list of steps, each with whole objects as an API server stores them:

    put      an object comes, or changes; `hold`: a node is found for the pod, and then it is kept from it
    merge    an object changes as by a merge patch, if it is there, and time passes: upstream looks at volumes that are
             being bound each second, at devices each five
    try      a pod comes, held, and goes again: what was found for it is all that matters
    delete   an object goes
    sleep    time passes
    look     what the pods look like, and which of them wait
"""

# ruff: noqa: E501

from __future__ import annotations

import copy
import random
from typing import Any

import orjson

from minikube_py.api import strategy
from minikube_py.api.decode import decode
from minikube_py.api.errors import StatusError
from minikube_py.api.kind import EmptyCluster
from minikube_py.api.registry import REGISTRY
from minikube_py.api.validation.dispatch import validate_create

Obj = dict[str, Any]
Steps = list[Obj]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
KINDS = {kind.kind: kind for kind in REGISTRY.kinds if kind.version == "v1"}
BORN = "1999-01-01T00:00:00Z"
"""Earlier than any clock of a judge shows."""

CPU = ("0", "1m", "100m", "0.1", "300m", "999m", "1", "1500m", "2", "3.5", "1e0", "4")
MEMORY = ("0", "1", "64Mi", "128974848", "129e6", "123Mi", "1Ki", "0.5Gi", "1Gi", "3000Mi", "2G")
GPU, HUGE = "example.com/gpu", "hugepages-2Mi"


ADMITTED = ("priority", "preemptionPolicy", "overhead")


class Refused(Exception):
    """An object that no API server would let in."""


def stored(kind: str, obj: Obj) -> Obj:
    """As an API server keeps it. Raises: Refused."""
    resource = KINDS[kind]
    given = copy.deepcopy(obj)
    given.setdefault("apiVersion", f"{resource.group}/v1" if resource.group else "v1")
    given["kind"] = kind
    status = given.pop("status", None) if kind != "Node" else None
    # What admission works out from classes that are not there.
    admitted = {key: given["spec"].pop(key) for key in ADMITTED if key in given["spec"]} if kind == "Pod" else {}
    try:
        made, _ = decode(resource, orjson.dumps(given), "application/json", "Ignore")
        metadata = made.setdefault("metadata", {})
        metadata["creationTimestamp"] = BORN
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        resource.default(made)
        strategy.prepare_for_create(resource, made, EmptyCluster())
        metadata["uid"] = given["metadata"].get("uid") or f"uid-{metadata['name']}"
        if validate_create(resource, made):
            raise Refused
        resource.canonicalize(made)
    except StatusError as error:
        raise Refused from error
    if kind == "Node":
        # The API server's own admission taints a node that is new; its kubelet is up here.
        made["spec"].pop("taints", None)
        if taints := (obj.get("spec") or {}).get("taints"):
            made["spec"]["taints"] = taints
    if admitted:
        made["spec"] |= admitted
    if status is not None:
        made["status"] = {**(made.get("status") or {}), **status}
    made["apiVersion"], made["kind"] = given["apiVersion"], kind
    return made


def _path(name: str) -> str:
    kind = KINDS[name]
    return f"{kind.group}/{kind.version}/{kind.plural}" if kind.group else kind.plural


class Script:
    """`tries`: how many pods are to be placed."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.steps: Steps = []
        self.config: Obj = {}
        self.tries = 0

    def put(self, kind: str, obj: Obj, **more: Any) -> Obj | None:
        try:
            made = stored(kind, obj)
        except Refused:
            return None
        self.steps.append({"do": "put", "object": made, **more})
        return made

    def wait(self, obj: Obj) -> Obj | None:
        """A pod that is kept from the node that is found for it."""
        made = self.put("Pod", obj, hold=True)
        self.tries += made is not None
        return made

    def put_again(self, obj: Obj, **more: Any) -> None:
        self.steps.append({"do": "put", "object": obj, **more})

    def attempt(self, obj: Obj) -> None:
        try:
            self.steps.append({"do": "try", "object": stored("Pod", obj)})
        except Refused:
            return
        self.tries += 1

    def merge(self, kind: str, name: str, patch: Obj) -> None:
        self.steps.append({"do": "merge", "kind": _path(kind), "key": f"default/{name}", "object": patch, "seconds": 12})

    def delete(self, obj: Obj) -> None:
        kind, plural = KINDS[obj["kind"]], _path(obj["kind"])
        metadata = obj["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if kind.namespaced else metadata["name"]
        self.steps.append({"do": "delete", "kind": plural, "key": key})

    def look(self) -> None:
        self.steps.append({"do": "look"})

    def sleep(self, seconds: float) -> None:
        self.steps.append({"do": "sleep", "seconds": seconds})


# --- parts of objects -------------------------------------------------------------------------------------------------


def pod(name: str, labels: Obj | None = None, status: Obj | None = None, **spec: Any) -> Obj:
    container = {"name": "c", "image": "x"}
    body = {"containers": [container], "terminationGracePeriodSeconds": 30, **spec}
    found: Obj = {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels or {}}, "spec": body}
    return {**found, "status": status} if status else found


def amounts(rng: random.Random) -> Obj:
    found = {"cpu": rng.choice(("0", "1", "2", "3500m", "4", "8")), "memory": rng.choice(("0", "1Gi", "3000Mi", "8Gi", "90P"))}
    found["pods"] = rng.choice(("0", "1", "3", "110", "110", "110", "110"))
    found["ephemeral-storage"] = rng.choice(("0", "1Gi", "100Gi"))
    for name in (GPU, HUGE):
        if rng.random() < 0.4:
            found[name] = "2" if name == GPU else "64Mi"
    for name in list(found):
        if rng.random() < 0.04:
            del found[name]
    return found


def node(name: str, allocatable: Obj, labels: Obj | None = None, **spec: Any) -> Obj:
    metadata = {"name": name, "uid": f"uid-{name}", "labels": {HOSTNAME: name, **(labels or {})}}
    return {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable, "capacity": allocatable}}


ROOMY = {"cpu": "64", "memory": "256Gi", "pods": "110"}


def labels(rng: random.Random) -> Obj:
    found: Obj = {}
    for key, values in ((ZONE, "ab"), ("disk", ("ssd", "hdd", "")), ("size", ("0", "7", "12", "-3", "9223372036854775807", "x", "+7"))):
        if rng.random() < 0.75:
            found[key] = rng.choice(values)
    return found


EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule")


def taints(rng: random.Random) -> list[Obj]:
    found = {}
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        one = {"key": rng.choice("klm"), "effect": rng.choice(EFFECTS)}
        if value := rng.choice(("", "v", "w")):
            one["value"] = value
        found[one["key"], one["effect"]] = one
    return list(found.values())


def tolerations(rng: random.Random) -> list[Obj]:
    found = []
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        one: Obj = {"operator": rng.choice(("Exists", "Equal", "Equal"))}
        if one["operator"] == "Equal" or rng.random() < 0.8:
            one["key"] = rng.choice("klm")
        if one["operator"] == "Equal" and rng.random() < 0.7:
            one["value"] = rng.choice(("", "v", "w"))
        if rng.random() < 0.7:
            one["effect"] = rng.choice(EFFECTS)
        if one.get("effect") == "NoExecute" and rng.random() < 0.3:
            one["tolerationSeconds"] = 5
        found.append(one)
    if rng.random() < 0.15:
        found.append({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"})
    return found


def expression(rng: random.Random) -> Obj:
    operator = rng.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    found: Obj = {"key": rng.choice((ZONE, "disk", "size", "absent")), "operator": operator}
    if operator in ("In", "NotIn"):
        found["values"] = rng.sample(("a", "b", "ssd", "", "7", "nowhere", "not valid!"), rng.randint(1, 3))
    elif operator in ("Gt", "Lt"):
        found["key"], found["values"] = "size", [rng.choice(("6", "7", "-4", "9223372036854775806", "x"))]
    return found


def node_term(rng: random.Random) -> Obj:
    found: Obj = {}
    if rng.random() < 0.85:
        found["matchExpressions"] = [expression(rng) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.25:
        field = {"key": "metadata.name", "operator": rng.choice(("In", "In", "NotIn")), "values": [rng.choice(("n0", "n1", "n9"))]}
        found["matchFields"] = [field]
    return found


def node_affinity(rng: random.Random) -> Obj:
    found: Obj = {}
    if rng.random() < 0.7:
        terms = [node_term(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if rng.random() < 0.7 or not found:
        weighted = [{"weight": rng.choice((1, 2, 50, 100)), "preference": node_term(rng)} for _ in range(rng.choice((1, 2, 3)))]
        found["preferredDuringSchedulingIgnoredDuringExecution"] = weighted
    return found


def requests(rng: random.Random) -> Obj:
    found: Obj = {}
    for name, values, likely in (("cpu", CPU, 0.75), ("memory", MEMORY, 0.7), ("ephemeral-storage", ("0", "1Gi", "2Gi"), 0.15)):
        if rng.random() < likely:
            found[name] = rng.choice(values)
    if rng.random() < 0.2:
        found[GPU] = rng.choice(("1", "2", "3"))
    if rng.random() < 0.12:
        found[HUGE] = rng.choice(("2Mi", "64Mi", "66Mi"))
        found.setdefault("memory", "1Gi")
    if rng.random() < 0.04:
        found["other.io/thing"] = "1"
    return found


def container(rng: random.Random, name: str) -> Obj:
    asked = requests(rng)
    resources: Obj = {"requests": asked} if asked else {}
    if limits := {key: value for key, value in asked.items() if key in (GPU, HUGE, "other.io/thing")}:
        resources["limits"] = limits
    return {"name": name, "image": "x", "resources": resources}


def sized(rng: random.Random, name: str, **spec: Any) -> Obj:
    """A pod with all that its requests may come of."""
    body: Obj = {"containers": [container(rng, f"c{i}") for i in range(rng.choice((1, 1, 2)))], **spec}
    if rng.random() < 0.3:
        inits = []
        for i in range(rng.choice((1, 2, 3))):
            one = container(rng, f"i{i}")
            if rng.random() < 0.5:
                one["restartPolicy"] = "Always"
            inits.append(one)
        body["initContainers"] = inits
    if rng.random() < 0.15:
        body["overhead"] = {"cpu": "250m", "memory": "120Mi"}
    if rng.random() < 0.15:
        body["resources"] = {"requests": {key: rng.choice(values) for key, values in (("cpu", ("3", "4", "6")), ("memory", ("2Gi", "9Gi"))) if rng.random() < 0.7}}
        if not body["resources"]["requests"]:
            del body["resources"]
    return pod(name, **body)


def resized(rng: random.Random, obj: Obj) -> Obj:
    """A pod that runs and is being resized, or cannot be."""
    containers = obj["spec"]["containers"]
    statuses = []
    for each in containers:
        status: Obj = {"name": each["name"], "ready": True, "restartCount": 0, "image": "x", "imageID": "", "state": {"running": {}}}
        if rng.random() < 0.8:
            status["allocatedResources"] = {"cpu": rng.choice(CPU[2:]), "memory": rng.choice(MEMORY[2:])}
        if rng.random() < 0.8:
            status["resources"] = {"requests": {"cpu": rng.choice(CPU[2:]), "memory": rng.choice(MEMORY[2:])}}
        statuses.append(status)
    status = {"phase": "Running", "containerStatuses": statuses}
    if rng.random() < 0.5:
        reason = rng.choice(("Infeasible", "Deferred"))
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return {**obj, "status": status}


def with_ports(rng: random.Random, name: str, **spec: Any) -> Obj:
    found = []
    for _ in range(rng.choice((1, 1, 2))):
        one: Obj = {"containerPort": 80, "hostPort": rng.choice((80, 80, 443, 65535)), "protocol": rng.choice(("TCP", "TCP", "UDP", "SCTP"))}
        if rng.random() < 0.6:
            one["hostIP"] = rng.choice(("0.0.0.0", "127.0.0.1", "10.0.0.1", "::", ""))
        found.append(one)
    field = "initContainers" if rng.random() < 0.12 else "containers"
    extra: Obj = {"name": "p", "image": "x", "ports": found}
    if field == "initContainers" and rng.random() < 0.5:
        extra["restartPolicy"] = "Always"
    return pod(name, **({"initContainers": [extra]} if field == "initContainers" else {"containers": [extra]}), **spec)
