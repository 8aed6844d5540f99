"""The statuses that a fake kubelet writes, assembled from prepared pieces: one patch per pod.

Pure. Parts shared by all pods of one second, or with the same containers, are encoded once. A patch then costs a few
joins of bytes. Source: kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.api.memo import Bounded
from minikube_py.fields.resource_requests import repeats, resource_requests

_UID: Final = b"@uid@"
_NOW: Final = b"@now@"
_STARTED: Final = b"@started@"
_CODE: Final = b'"exitCode":0,"reason":"Completed"'
_BEGAN: Final = re.compile(b'"startedAt":"@([^@"]*)@"')
KILLED: Final = 137
LATE: Final = (
    b'"reason":"DeadlineExceeded","message":"Pod was active on the node longer than the specified deadline",'
)
"""Of a pod that outlives its activeDeadlineSeconds. Source: kubernetes `pkg/kubelet/active_deadline.go`."""
_asked: Final = Bounded()


def is_ready(status: Mapping[str, Any]) -> bool:
    """Of a pod or a node."""
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ())


class Container(NamedTuple):
    """`kind`: "main", "init" (runs to its end), "sidecar" or "ephemeral"; "pod": pod-level requests; "overhead": the
    pod overhead. `resources`: as JSON."""

    name: str
    image: str
    kind: str
    resources: str = "{}"


Containers = tuple[Container, ...]
Granted = frozenset[tuple[str, str]]
"""Container and resource that a claim for devices serves, and not the node's own count."""


def granted_of(claim: Mapping[str, Any] | None) -> Granted:
    """Of a pod's `status.extendedResourceClaimStatus`."""
    mappings = (claim or {}).get("requestMappings") or ()
    return frozenset((each.get("containerName", ""), each.get("resourceName", "")) for each in mappings)


def containers_of(spec: Mapping[str, Any]) -> Containers:
    found = [_container_of(c, "main") for c in spec.get("containers") or ()]
    if inits := spec.get("initContainers"):
        found[:0] = [_container_of(c, "sidecar" if c.get("restartPolicy") == "Always" else "init") for c in inits]
    if ephemeral := spec.get("ephemeralContainers"):
        found += [_container_of(c, "ephemeral") for c in ephemeral]
    if own := spec.get("resources"):
        found.append(Container("", "", "pod", orjson.dumps(own).decode()))
    if overhead := spec.get("overhead"):
        found.append(Container("", "", "overhead", orjson.dumps(overhead).decode()))
    return tuple(found)


def _container_of(container: Mapping[str, Any], kind: str) -> Container:
    resources = container.get("resources")
    text = orjson.dumps(resources).decode() if resources else "{}"
    return Container(container["name"], container.get("image", ""), kind, text)


class Behind(IntEnum):
    """Changes in a running pod's spec that its status lacks."""

    NOTHING = 0
    EPHEMERAL = 1
    RESIZE = 2


def behind(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Behind:
    """A container without resources in its status is not resized."""
    for group, states in () if repeats(status, spec) else _GROUPS:
        if group in spec:
            known = {each.get("name"): each.get("resources") for each in status.get(states) or ()}
            for each in spec[group] or ():
                now = known.get(each["name"])
                if now is not None and now != (each.get("resources") or {}):
                    return Behind.RESIZE
    if status.get("resources") and status["resources"] != spec.get("resources"):
        return Behind.RESIZE
    if "ephemeralContainers" in spec:
        told = {each.get("name") for each in status.get("ephemeralContainerStatuses") or ()}
        if any(each["name"] not in told for each in spec["ephemeralContainers"] or ()):
            return Behind.EPHEMERAL
    return Behind.NOTHING


_GROUPS: Final = (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses"))


def asked_by(containers: Containers, granted: Granted = frozenset()) -> Mapping[str, int]:
    """The node resources requested by a pod of these containers: cpu in milli-units, all else in units."""
    known: Mapping[str, int] | None = _asked.known((containers, granted))
    return known if known is not None else _asked((containers, granted), _asked_by(containers, granted))


def _asked_by(containers: Containers, granted: Granted) -> Mapping[str, int]:
    spec: dict[str, Any] = {"containers": [], "initContainers": []}
    for each in containers:
        resources = orjson.loads(each.resources)
        if granted and (requests := resources.get("requests")):
            resources["requests"] = {name: of for name, of in requests.items() if (each.name, name) not in granted}
        if each.kind in ("pod", "overhead"):
            spec["resources" if each.kind == "pod" else "overhead"] = resources
        elif each.kind == "main":
            spec["containers"].append({"resources": resources})
        elif each.kind != "ephemeral":
            restarts = {"restartPolicy": "Always"} if each.kind == "sidecar" else {}
            spec["initContainers"].append({"resources": resources, **restarts})
    return resource_requests({"spec": spec})


@dataclass(frozen=True, slots=True)
class Plan:
    """Container statuses as JSON with marks for the pod's uid and times."""

    running: bytes
    finished: bytes


def _container(container: Container, state: Mapping[str, Any], running: bool) -> dict[str, Any]:
    entry = {
        "name": container.name,
        "state": state,
        "lastState": {},
        "ready": running or container.kind == "init",
        "restartCount": 0,
        "image": container.image,
        "imageID": container.image,
        "containerID": f"minikube-py://@uid@/{container.name}",
        "started": running,
    }
    if container.kind == "ephemeral":
        del entry["started"]
        return entry | {"ready": False}
    return entry | _in_force(container)


def _in_force(container: Container) -> dict[str, Any]:
    resources = orjson.loads(container.resources)
    requests = resources.get("requests")
    return {"resources": resources, **({"allocatedResources": requests} if requests else {})}


def _terminated(container: Container, finished: str) -> Mapping[str, Any]:
    state = {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": "@started@",
        "finishedAt": finished,
        "containerID": f"minikube-py://@uid@/{container.name}",
    }
    return {"terminated": state}


def _statuses(containers: Containers, running: bool) -> bytes:
    """`"containerStatuses":[...]`, and further fields: init containers, ephemeral ones, resources of the pod."""
    groups: dict[str, Any] = {}
    for container in containers:
        if container.kind == "pod":
            groups |= _in_force(container)
        if container.kind in ("pod", "overhead"):
            continue
        started = f"@{container.name}@" if container.kind == "ephemeral" else "@started@"
        if container.kind == "init":
            entry = _container(container, _terminated(container, "@started@"), False)
        elif running:
            entry = _container(container, {"running": {"startedAt": started}}, True)
        else:
            entry = _container(container, _terminated(container, "@now@"), False)
        group = _STATUSES.get(container.kind, "initContainerStatuses")
        groups.setdefault(group, []).append(entry)
    return b",".join(b'"%s":%s' % (name.encode(), orjson.dumps(entries)) for name, entries in groups.items())


_STATUSES: Final = {"main": "containerStatuses", "ephemeral": "ephemeralContainerStatuses"}


class PodStatuses:
    """Makes the patches. Strategic merge: PodScheduled and fields of others are kept."""

    def __init__(self) -> None:
        self._plans = Bounded()
        self._conditions: tuple[str, bytes] = ("", b"")

    def running(self, uid: str, containers: Containers, host_ip: str, pod_ip: str, now: str) -> bytes:
        """Pending to Running, and Ready."""
        at = now.encode()
        if self._conditions[0] != now:
            self._conditions = (now, _started_conditions(now))
        statuses = self._plan(containers).running.replace(_UID, uid.encode()).replace(_STARTED, at)
        return b"".join(
            (
                b'{"metadata":{"uid":"',
                uid.encode(),
                b'"},"status":{"phase":"Running","hostIP":"',
                host_ip.encode(),
                b'","hostIPs":[{"ip":"',
                host_ip.encode(),
                b'"}],"podIP":"',
                pod_ip.encode(),
                b'","podIPs":[{"ip":"',
                pod_ip.encode(),
                b'"}],"startTime":"',
                at,
                b'","conditions":',
                self._conditions[1],
                b",",
                statuses,
                b"}}",
            )
        )

    def adjusted(
        self, uid: str, containers: Containers, started: str, since: Mapping[str, str], generation: int
    ) -> bytes:
        """For a running pod: its current spec is in effect. `since`: when its ephemeral containers began."""
        statuses = self._plan(containers).running.replace(_UID, uid.encode()).replace(_STARTED, started.encode())
        if since:
            began = {name.encode(): at.encode() for name, at in since.items()}
            statuses = _BEGAN.sub(lambda found: b'"startedAt":"%b"' % began.get(found[1], b"@%b@" % found[1]), statuses)
        gone = orjson.dumps([{"$patch": "delete", "type": kind} for kind in _RESIZES])
        return b'{"metadata":{"uid":"%b"},"status":{"observedGeneration":%d,"conditions":%b,%b}}' % (
            uid.encode(), generation, gone, statuses,
        )  # fmt: skip

    def ended(
        self, uid: str, containers: Containers, started: str, now: str, exit_code: int = 0, why: bytes = b""
    ) -> bytes:
        """Running to Succeeded, or to Failed by the code of its containers. `why`: reason and message, as members."""
        statuses = self._plan(containers).finished.replace(_UID, uid.encode())
        statuses = statuses.replace(_STARTED, started.encode()).replace(_NOW, now.encode())
        if exit_code:
            statuses = statuses.replace(_CODE, b'"exitCode":%d,"reason":"Error"' % exit_code)
        return b"".join(
            (
                b'{"metadata":{"uid":"',
                uid.encode(),
                b'"},"status":{"phase":"%b",%b"conditions":' % (b"Failed" if exit_code else b"Succeeded", why),
                _finished_conditions(now, "PodFailed" if exit_code else "PodCompleted"),
                b",",
                statuses,
                b"}}",
            )
        )

    def _plan(self, containers: Containers) -> Plan:
        plan: Plan | None = self._plans.known(containers)
        if plan is None:
            plan = Plan(_statuses(containers, True), _statuses(containers, False))
            self._plans(containers, plan, len(plan.running) + len(plan.finished))
        return plan


def _started_conditions(now: str) -> bytes:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
    return orjson.dumps([{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds])


def _finished_conditions(now: str, reason: str) -> bytes:
    done = {"status": "False", "reason": reason, "lastTransitionTime": now}
    return orjson.dumps(
        [
            {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": now},
            {"type": "Initialized", "status": "True", "reason": reason},
            {"type": "Ready", **done},
            {"type": "ContainersReady", **done},
        ]
    )


_RESIZES: Final = ("PodResizePending", "PodResizeInProgress")


def resizing(uid: str, now: str, generation: int, deferred: str) -> bytes:
    """A resize has started, or why it is pending."""
    told = {"type": _RESIZES[0 if deferred else 1], "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
    why = {"reason": "Deferred", "message": deferred} if deferred else {}
    other = [] if deferred else [{"$patch": "delete", "type": _RESIZES[0]}]
    conditions = [{**told, **why, "observedGeneration": generation}, *other]
    status = {"conditions": conditions, "observedGeneration": generation}
    return orjson.dumps({"metadata": {"uid": uid}, "status": status})


def rejected(uid: str, now: str, reason: str, message: str) -> bytes:
    """Failed without having started."""
    status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}", "startTime": now}
    return orjson.dumps({"metadata": {"uid": uid}, "status": status})


def ready_again(uid: str, now: str) -> bytes:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    return orjson.dumps({"metadata": {"uid": uid}, "status": {"conditions": [condition]}})


def deletion(uid: str) -> bytes:
    """DeleteOptions that delete this pod (by uid) immediately."""
    return (
        b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"%b"}}' % uid.encode()
    )
