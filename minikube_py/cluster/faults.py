"""Faults on demand, as methods of the public API: each starts a fault of the registry (`sim.fault_schedule`).

They affect clients and `transport()`, but not the components of the control plane or the API's own methods (`apply`,
`wait`, ...)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from minikube_py.cluster.arguments import Checked, Flag, Lasting, Name, On, Seconds, Times
from minikube_py.cluster.errors import ClusterError
from minikube_py.sim.faults import Fault, S

Inject = Callable[[Fault], None]

METHODS: Final = {
    "expire": "expire_watches()",
    "cut_watch": "cut_watches()",
    "repeat": "repeat_events()",
    "slow_events": "delay_events()",
    "unseen": "hide_events()",
    "stale": "stale_list()",
    "conflict": "conflict_next()",
    "fail": "fail_next()",
    "lost_answer": "fail_next(done=True)",
    "throttle": "throttle_next()",
    "slow": "slow()",
    "no_leader": "no_leader()",
    "node_down": "node().down()",
    "node_up": "node().up()",
    "crash_client": "crash() of the program",
}
"""By the name of a fault in reports and `inputs`: the call for it."""


class Faults(Checked):
    """`on`: a resource by any name that kubectl accepts, such as "pods"; "" for all. In virtual time they are inputs of
    the history. All raise: ClusterError if it is not served or impossible."""

    def _inject(self, fault: Fault) -> None:
        raise NotImplementedError

    def _plural(self, on: str) -> str:
        """The plural of `on` in paths. Raises: ClusterError if it is not served."""
        raise NotImplementedError

    def expire_watches(self, on: On = "") -> None:
        """Watches end with 410 Gone, and cannot be resumed: clients list again."""
        self._inject(Fault(0, "expire", subject=self._plural(on)))

    def cut_watches(self, on: On = "") -> None:
        """Watches end; they can be resumed."""
        self._inject(Fault(0, "cut_watch", subject=self._plural(on)))

    def repeat_events(self, on: On = "") -> None:
        """Watches deliver their last events again."""
        self._inject(Fault(0, "repeat", subject=self._plural(on)))

    def delay_events(self, seconds: Lasting, on: On = "") -> None:
        """Watches deliver nothing for this long, and then everything that happened."""
        self._inject(Fault(0, "slow_events", (), (), _us(seconds), 1, self._plural(on)))

    def hide_events(self, seconds: Lasting, on: On = "") -> None:
        """Watches deliver nothing for this long, and then end with 410: the events are never seen."""
        self._inject(Fault(0, "unseen", (), (), _us(seconds), 1, self._plural(on)))

    def stale_list(self, revisions: Times = 1, on: On = "") -> None:
        """Watches end with 410, and the next list is this many revisions old, from where a watch continues: a lagging
        API server."""
        self._inject(Fault(0, "stale", amount=revisions, subject=self._plural(on)))

    def conflict_next(self, on: On = "", *, times: Times = 1) -> None:
        """The next updates and patches are refused with 409 Conflict."""
        self._inject(Fault(0, "conflict", amount=times, subject=self._plural(on)))

    def fail_next(self, on: On = "", *, times: Times = 1, done: Flag = False) -> None:
        """The next requests but watches are answered by 500 without being executed; with `done`, the next writes are
        executed and answered by 504."""
        self._inject(Fault(0, "lost_answer" if done else "fail", amount=times, subject=self._plural(on)))

    def throttle_next(self, on: On = "", *, times: Times = 1) -> None:
        """The next requests but watches are answered by 429 Too Many Requests without being executed, with
        `Retry-After: 1`."""
        self._inject(Fault(0, "throttle", amount=times, subject=self._plural(on)))

    def slow(self, seconds: Lasting, on: On = "", *, for_s: Seconds = 0.0) -> None:
        """Each request but a watch takes this much longer, for `for_s` seconds; without it, until `all_well()`."""
        self._inject(Fault(0, "slow", (), (), _us(for_s), seconds * 1000, self._plural(on)))

    def no_leader(self, seconds: Lasting) -> None:
        """For this long every request but a watch is answered by 503, as while the store elects a leader."""
        self._inject(Fault(0, "no_leader", (), (), _us(seconds), 1))

    def node(self, name: Name) -> Node:
        """One of the fake nodes: `node("node-0").down()`, `.up()`."""
        return Node(name, self._inject)


class Node(Checked):
    """A fake node of a running cluster. Raises: ClusterError if it does not run here."""

    def __init__(self, name: str, inject: Inject) -> None:
        self.name = name
        self._inject = inject

    def down(self, seconds: Seconds = 0.0) -> None:
        """It loses power, for this long or until `up()`: no heartbeats, and its pods stay as they are. After 40 s it
        counts as lost."""
        self._inject(Fault(0, "node_down", (), (), _us(seconds), 1, self.name))

    def up(self) -> None:
        """Restores its power; it then handles requests about its pods made meanwhile. Idempotent."""
        self._inject(Fault(0, "node_up", subject=self.name))


def _us(seconds: float) -> int:
    """Rounded up: 0 means without an end."""
    return math.ceil(seconds * S)


def ended_status(pod: dict[str, Any], code: int, container: str, reason: str, now: str) -> dict[str, Any]:
    """The status a kubelet writes after a container ended: by restartPolicy it is restarted at once, or the pod ends.
    `container` "": the first. Raises: ClusterError. Source: KEP-753, pod-lifecycle."""
    status, spec = pod.get("status") or {}, pod["spec"]
    statuses = [dict(each) for each in status.get("containerStatuses") or ()]
    name = container or spec["containers"][0]["name"]
    names = [each["name"] for each in spec["containers"]]
    if name not in names:
        raise ClusterError(f"pod {pod['metadata']['name']} has no container {name}; it has {', '.join(names)}")
    mine = next((each for each in statuses if each["name"] == name), None)
    if mine is None or status.get("phase") != "Running":
        raise ClusterError(f"container {name} of pod {pod['metadata']['name']} does not run ({status.get('phase')})")
    started = (mine.get("state") or {}).get("running", {}).get("startedAt", now)
    ended = {
        "exitCode": code, "reason": reason or ("Completed" if code == 0 else "Error"), "startedAt": started,
        "finishedAt": now, "containerID": mine.get("containerID", ""),
    }  # fmt: skip
    policy = spec.get("restartPolicy", "Always")
    if policy == "Always" or (policy == "OnFailure" and code):
        mine["restartCount"] = mine.get("restartCount", 0) + 1
        mine["lastState"], mine["state"] = {"terminated": ended}, {"running": {"startedAt": now}}
        return {"containerStatuses": statuses}
    mine |= {"state": {"terminated": ended}, "ready": False, "started": False}
    if any("terminated" not in each["state"] for each in statuses):
        return {"containerStatuses": statuses}
    failed = any(each["state"]["terminated"]["exitCode"] for each in statuses)
    conditions = [
        {**each, "status": "False", "reason": "PodFailed" if failed else "PodCompleted", "lastTransitionTime": now}
        if each["type"] in ("Ready", "ContainersReady") else each
        for each in status.get("conditions") or ()
    ]  # fmt: skip
    return {"phase": "Failed" if failed else "Succeeded", "containerStatuses": statuses, "conditions": conditions}
