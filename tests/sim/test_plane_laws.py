"""The laws over the changes of a control plane's objects: what breaks each, and what it permits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from minikube_py.sim.checkers.control_plane import History, unrest
from minikube_py.sim.checkers.plane_laws import BY_EVICTION, BY_PREEMPTION, BY_TAINT, tolerated_s

Object = dict[str, Any]
Step = tuple[float, str, Object | None]
"""When an object is seen under which key; None: it was removed."""
READY = {"type": "Ready", "status": "True"}
FREE = {"metadata": {"name": "n", "uid": "n"}, "spec": {}, "status": {}}
TAINTED = {**FREE, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}


def told(*steps: Step, lag_s: float = 5.0, unknown: int = 0) -> str:
    """The first law that is broken."""
    history = History(lambda namespace: unknown)
    history.lag_s = lag_s
    for revision, (at_s, key, obj) in enumerate(steps, start=1):
        value = None if obj is None else json.dumps(obj).encode()
        history.add(f"/registry/{key}".encode(), value, revision, at_s)
    return history.problem.partition(":")[0]


def pod(name: str = "p", reason: str = "", **spec: Any) -> Object:
    conditions = [READY, *([{"type": "DisruptionTarget", "status": "True", "reason": reason}] if reason else ())]
    metadata = {"namespace": "d", "name": name, "uid": f"uid-{name}", "labels": {"app": "a"}}
    return {"metadata": metadata, "spec": {"nodeName": "n", "containers": [], **spec},
            "status": {"phase": "Running", "conditions": conditions}}  # fmt: skip


def owned(obj: Object, kind: str) -> Object:
    owner = {"kind": kind, "name": "o", "uid": "uid-o", "controller": True}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [owner]}}


def owner(status: Object | None = None, **spec: Any) -> Object:
    return {"metadata": {"namespace": "d", "name": "o", "uid": "uid-o"}, "spec": spec, "status": status or {}}


def going(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "deletionTimestamp": "t"}}


def named(name: str, obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "name": name, "uid": f"uid-{name}"}}


def budget(allowed: int, *disrupted: str, generation: int = 1, seen: int = 1) -> Object:
    status = {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "t"), "observedGeneration": seen}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    metadata = {"namespace": "d", "name": "b", "uid": "b", "generation": generation}
    return {"metadata": metadata, "spec": spec, "status": status}


B, P, RS = "policy/poddisruptionbudgets/d/b", "pods/d/p", "apps/replicasets/d/o"
EVICTED = pod(reason=BY_EVICTION)
STANDS: list[Step] = [(0.0, B, budget(1)), (0.0, P, pod())]


def of_set(count: int, kind: str = "ReplicaSet") -> list[Step]:
    return [(1.0, f"pods/d/p{each}", owned(pod(f"p{each}"), kind)) for each in range(count)]


def pinned(name: str) -> Step:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    return 1.0, f"pods/d/{name}", owned(pod(name, affinity=affinity), "DaemonSet")


def taint(*steps: tuple[float, Object], at_s: float, tolerated: int | None = 10, lag_s: float = 5.0) -> str:
    """A pod that tolerates a taint for so long goes for it; `steps`: the node."""
    spec: Object = {"tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": tolerated}]}
    nodes: list[Step] = [(each_s, "nodes/n", node) for each_s, node in steps]
    return told((0.0, P, pod(**spec)), *nodes, (at_s, P, pod(reason=BY_TAINT, **spec)), lag_s=lag_s)


def came_later(lag_s: float, bound_s: float = 6.0, tolerated: int = 0) -> str:
    """The taint went at 3 s, and the pod came to the node after it; it goes 1 s later."""
    spec: Object = {"tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": tolerated}]}
    room = {"status": {"allocatable": {"pods": "9"}}}
    nodes: list[Step] = [(1.0, "nodes/n", TAINTED | room), (3.0, "nodes/n", FREE | room)]
    return told(*nodes, (bound_s, P, pod(**spec)), (bound_s + 1, P, pod(reason=BY_TAINT, **spec)), lag_s=lag_s)


def sets(*wanted: int, surge: int | str = 1) -> str:
    rolling = {"rollingUpdate": {"maxSurge": surge}}
    steps: list[Step] = [(0.0, "apps/deployments/d/o", owner(replicas=4, strategy=rolling))]
    for number, replicas in enumerate(wanted):
        name = f"s{number}"
        steps.append((1.0, f"apps/replicasets/d/{name}", owned(named(name, owner(replicas=replicas)), "Deployment")))
    return told(*steps)


def adopted() -> str:
    """More than is wanted, of an earlier Deployment; and a new set of none."""
    path, many = "apps/replicasets/d/s", named("s", owner(replicas=7))
    new = owned(named("t", owner(replicas=0)), "Deployment")
    return told(
        (0.0, "apps/deployments/d/o", owner(replicas=2)), (1.0, path, many), (2.0, path, owned(many, "Deployment")),
        (3.0, "apps/replicasets/d/t", new),
    )  # fmt: skip


def jobs(policy: str, *, ended: bool, later_s: float = 60.0, lag_s: float = 5.0) -> str:
    done = {"conditions": [{"type": "Complete", "status": "True"}]} if ended else {}
    first, second = (owned(named(name, owner(done)), "CronJob") for name in ("a", "b"))
    cron = owner(concurrencyPolicy=policy)
    return told(
        (0.0, "batch/cronjobs/d/o", cron), (0.0, "batch/jobs/d/a", first), (later_s, "batch/jobs/d/b", second),
        lag_s=lag_s,
    )  # fmt: skip


def preempted(waiting: int | None, *, lag_s: float = 5.0) -> str:
    high = named("q", pod(priority=waiting, nodeName=""))
    waits: list[Step] = [] if waiting is None else [(0.0, "pods/d/q", high)]
    return told((0.0, P, pod(priority=1)), *waits, (1.0, P, pod(priority=1, reason=BY_PREEMPTION)), lag_s=lag_s)


def ordinals(*ready: bool) -> str:
    spread = [(f"o-{number}", {"phase": "Running", "conditions": [READY] if is_ready else []})
              for number, is_ready in enumerate(ready)]  # fmt: skip
    made = [(1.0, f"pods/d/{name}", {**owned(pod(name), "StatefulSet"), "status": status}) for name, status in spread]
    return told((0.0, "apps/statefulsets/d/o", owner(replicas=3)), *made)


def filled(*created: str) -> str:
    """A StatefulSet of two has adopted pods of an earlier one of four, and creates these."""
    orphans = [pod(f"o-{number}") for number in range(1, 4)]
    found: list[Step] = [(1.0, f"pods/d/{each['metadata']['name']}", each) for each in orphans]
    taken = [(2.0, f"pods/d/{each['metadata']['name']}", owned(each, "StatefulSet")) for each in orphans]
    made = [(3.0, f"pods/d/{name}", owned(pod(name), "StatefulSet")) for name in created]
    return told((0.0, "apps/statefulsets/d/o", owner(replicas=2)), *found, *taken, *made)


def volume(*claims: str) -> str:
    made = [{"metadata": {"name": "v", "uid": "v"}, "spec": {"claimRef": {"uid": uid}}} for uid in claims]
    return told(*((0.0, "persistentvolumes/v", each) for each in made))


CASES: dict[str, tuple[str, Callable[[], str]]] = {
    "counted": ("", lambda: told(*STANDS, (9.0, B, budget(0, "p")), (9.0, P, EVICTED))),
    "not counted": ("evictions", lambda: told(*STANDS, (9.0, P, EVICTED))),
    "of a pod that goes": ("", lambda: told(*STANDS, (8.0, P, going(pod())), (9.0, P, going(EVICTED)))),
    "a budget of just now": ("", lambda: told(*STANDS, (2.0, P, EVICTED))),
    "faults, and a budget of long ago": ("evictions", lambda: told(*STANDS, (400.0, P, EVICTED), lag_s=float("inf"))),
    "not allowed": ("evictions", lambda: told((0.0, B, budget(0)), (9.0, B, budget(0, "p")))),
    "allowed, not subtracted": ("evictions", lambda: told((0.0, B, budget(1)), (9.0, B, budget(1, "p")))),
    "not observed": ("evictions", lambda: told((0.0, B, budget(1, generation=2)), (9.0, B, budget(0, "p")))),
    "stood": ("", lambda: taint((1.0, TAINTED), at_s=11.5)),
    "not long enough": ("taint evictions", lambda: taint((1.0, TAINTED), at_s=5.0)),
    "cancelled": ("taint evictions", lambda: taint((1.0, TAINTED), (3.0, FREE), at_s=11.5)),
    "cancelled, and nobody knows": ("", lambda: taint((1.0, TAINTED), (3.0, FREE), at_s=11.5, lag_s=float("inf"))),
    "cancelled just before": ("", lambda: taint((1.0, TAINTED), (8.0, FREE), at_s=11.5)),
    "begins again": ("taint evictions", lambda: taint((1.0, TAINTED), (3.0, FREE), (6.0, TAINTED), at_s=11.5)),
    "came after the taint, seen late": ("", lambda: came_later(5.0)),
    "came long after the taint": ("taint evictions", lambda: came_later(5.0, bound_s=9.0)),
    "came long after it, and nobody knows": ("", lambda: came_later(float("inf"), bound_s=99.0)),
    "came after it, and tolerates it": ("taint evictions", lambda: came_later(5.0, tolerated=10)),
    "tolerated forever": ("taint evictions", lambda: taint((1.0, TAINTED), at_s=999.0, tolerated=None)),
    "as many as wanted": ("", lambda: told((0.0, RS, owner(replicas=2)), *of_set(2))),
    "one more": ("creations", lambda: told((0.0, RS, owner(replicas=2)), *of_set(3))),
    "one more, unknown": ("", lambda: told((0.0, RS, owner(replicas=2)), *of_set(3), unknown=1)),
    "fewer than before": (
        "", lambda: told((0.0, RS, owner(replicas=3)), (0.5, RS, owner(replicas=1)), *of_set(3)),
    ),
    "of a job": ("creations", lambda: told((0.0, "batch/jobs/d/o", owner(parallelism=1)), *of_set(2, "Job"))),
    "a daemon": ("", lambda: told(pinned("p1"))),
    "two daemons": ("creations", lambda: told(pinned("p1"), pinned("p2"))),
    "surge": ("", lambda: sets(3, 2)),
    "surge in percent": ("", lambda: sets(4, 1, surge="25%")),
    "adopted": ("", adopted),
    "more than the surge": ("surges", lambda: sets(4, 2)),
    "one that lacks": ("", lambda: filled("o-0")),
    "one ordinal more": ("creations", lambda: filled("o-0", "o-4")),
    "in order": ("", lambda: ordinals(True, True, False)),
    "out of order": ("ordinals", lambda: ordinals(True, False, False)),
    "forbidden": ("schedules", lambda: jobs("Forbid", ended=False)),
    "forbidden, ended": ("", lambda: jobs("Forbid", ended=True)),
    "not seen yet": ("", lambda: jobs("Forbid", ended=False, later_s=2.0)),
    "allowed beside": ("", lambda: jobs("Allow", ended=False)),
    "for a higher one": ("", lambda: preempted(2)),
    "for an equal": ("preemptions", lambda: preempted(1)),
    "for nobody": ("preemptions", lambda: preempted(None)),
    "one claim": ("", lambda: volume("a", "a")),
    "another claim": ("volumes", lambda: volume("a", "b")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_a_law_permits_and_what_breaks_it(name: str) -> None:
    law, found = CASES[name]
    assert found() == law


def test_the_first_toleration_of_a_taint_counts() -> None:
    taints = [{"key": "k", "effect": "NoExecute"}]
    some, forever = {"key": "k", "operator": "Exists", "tolerationSeconds": 7}, {"operator": "Exists"}
    assert tolerated_s(taints, [some, forever]) == 7
    assert tolerated_s(taints, [forever, some]) == float("inf")
    assert tolerated_s(taints, []) == 0
    assert tolerated_s([], []) == float("inf")


def test_a_set_and_a_volume_without_what_they_need_are_no_rest() -> None:
    history = History()
    claim = {"metadata": {"namespace": "d", "name": "c", "uid": "c"}, "spec": {}, "status": {"phase": "Pending"}}
    scaler = owner(scaleTargetRef={"name": "o"}, minReplicas=1, maxReplicas=3)
    for key, obj in (
        ("nodes/n", {**FREE, "status": {"conditions": [READY]}}),
        ("apps/statefulsets/d/o", owner(replicas=1)), ("apps/daemonsets/d/o", named("ds", owner())),
        ("persistentvolumeclaims/d/c", claim), ("autoscaling/horizontalpodautoscalers/d/o", named("hpa", scaler)),
        ("apps/deployments/d/o", named("web", owner(replicas=5, template={"spec": {}}))),
    ):  # fmt: skip
        history.add(f"/registry/{key}".encode(), json.dumps(obj).encode(), 1)
    found = {each.partition(":")[0] for each in unrest(history.objects)}
    assert {"stateful sets", "daemon sets", "volumes", "autoscalers"} <= found
