"""The statuses that a fake kubelet writes, assembled from prepared pieces: one patch a pod. Pure.

What is the same for all pods of one second, or for all pods with the same containers, is encoded once. A patch then
costs a few joins of bytes. Source: kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

_UID: Final = b"@uid@"
_NOW: Final = b"@now@"
_STARTED: Final = b"@started@"
_CODE: Final = b'"exitCode":0,"reason":"Completed"'
KILLED: Final = 137
PLANS_MAX: Final = 10_000


def is_ready(status: Mapping[str, Any]) -> bool:
    """Of a pod or a node."""
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ())


class Container(NamedTuple):
    """`kind`: "main", "init" (runs to its end) or "sidecar"."""

    name: str
    image: str
    kind: str


Containers = tuple[Container, ...]


def containers_of(spec: Mapping[str, Any]) -> Containers:
    main = [Container(c["name"], c.get("image", ""), "main") for c in spec.get("containers") or ()]
    inits = spec.get("initContainers")
    if not inits:
        return tuple(main)
    return (
        *(
            Container(c["name"], c.get("image", ""), "sidecar" if c.get("restartPolicy") == "Always" else "init")
            for c in inits
        ),
        *main,
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """Container statuses as JSON with marks for the pod's uid and times."""

    running: bytes
    finished: bytes


def _container(container: Container, state: Mapping[str, Any], running: bool) -> dict[str, Any]:
    return {
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
    """`"containerStatuses":[...]`, and those of init containers if there are any."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for container in containers:
        if container.kind == "init":
            entry = _container(container, _terminated(container, "@started@"), False)
        elif running:
            entry = _container(container, {"running": {"startedAt": "@started@"}}, True)
        else:
            entry = _container(container, _terminated(container, "@now@"), False)
        group = "containerStatuses" if container.kind == "main" else "initContainerStatuses"
        groups.setdefault(group, []).append(entry)
    return b",".join(b'"%s":%s' % (name.encode(), orjson.dumps(entries)) for name, entries in groups.items())


class PodStatuses:
    """Makes the patches. Strategic merge: PodScheduled and whatever others set stays."""

    def __init__(self) -> None:
        self._plans: dict[Containers, Plan] = {}
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

    def ended(self, uid: str, containers: Containers, started: str, now: str, exit_code: int = 0) -> bytes:
        """Running to Succeeded, or to Failed by the code of its containers."""
        statuses = self._plan(containers).finished.replace(_UID, uid.encode())
        statuses = statuses.replace(_STARTED, started.encode()).replace(_NOW, now.encode())
        if exit_code:
            statuses = statuses.replace(_CODE, b'"exitCode":%d,"reason":"Error"' % exit_code)
        return b"".join(
            (
                b'{"metadata":{"uid":"',
                uid.encode(),
                b'"},"status":{"phase":"%b","conditions":' % (b"Failed" if exit_code else b"Succeeded"),
                _finished_conditions(now, "PodFailed" if exit_code else "PodCompleted"),
                b",",
                statuses,
                b"}}",
            )
        )

    def _plan(self, containers: Containers) -> Plan:
        plan = self._plans.get(containers)
        if plan is None:
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            plan = self._plans[containers] = Plan(_statuses(containers, True), _statuses(containers, False))
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


def ready_again(uid: str, now: str) -> bytes:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": now}
    return orjson.dumps({"metadata": {"uid": uid}, "status": {"conditions": [condition]}})


def deletion(uid: str) -> bytes:
    """DeleteOptions that end a pod's grace: at once, and only this very pod."""
    return (
        b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"%b"}}' % uid.encode()
    )
