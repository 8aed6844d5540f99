"""Simulated histories of a whole control plane, judged; `make swarm-cluster` runs as many as one likes."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from depth import seeds

from minikube_py.env import Rng
from minikube_py.sim.api_calls import ApiCalls, CallTransport
from minikube_py.sim.checkers.control_plane import Acknowledged, History, unrest
from minikube_py.sim.fault_schedule import REGISTRY
from minikube_py.sim.histories import histories
from minikube_py.sim.loop import NS_PER_S
from minikube_py.sim.plane_run import PlaneRun, drawn_plane
from minikube_py.sim.run import drawn_faults
from minikube_py.sim.swarm import run_block, told
from minikube_py.sim.world import Process, World

CLUSTER = histories("cluster")


@pytest.mark.parametrize("seed", seeds(4, sampled=2))
def test_no_history_goes_wrong(seed: int) -> None:
    (done,) = run_block([seed], CLUSTER)
    assert not done.violations and not done.crashed, told(done, CLUSTER)
    assert done.counts["done"] and done.counts["changes of pods"] and done.counts["acknowledged"]


def test_one_seed_is_one_history() -> None:
    def history() -> tuple[str, list[str]]:
        lines: list[str] = []
        run = PlaneRun(drawn_plane(136), lines.append)
        run.go()
        return run.fingerprint(), lines

    (one, lines), (other, others) = history(), history()
    assert one == other and lines == others


def test_what_is_drawn_is_of_the_registry_and_hits_every_process() -> None:
    hit: dict[str, set[str]] = {}
    for seed in range(60):
        for fault in drawn_faults(drawn_plane(seed)):
            assert fault.kind in REGISTRY
            hit.setdefault(fault.kind, set()).add(fault.subject.partition("-")[0])
    for kind in ("part_kill", "part_pause", "part_cut"):
        assert hit[kind] == {"api", "scheduler", "controllers", "kubelet"}
    assert {"kill", "pause", "slow_sync"} <= hit.keys()


def test_some_histories_have_who_stands_by() -> None:
    parts = [set(drawn_plane(seed).plan.parts) for seed in range(60)]
    assert {"scheduler", "controllers"} <= set.intersection(*parts)
    assert {"scheduler-1", "controllers-1"} <= set.union(*parts)


def test_what_is_derived_may_not_be_wrong_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    run = PlaneRun(drawn_plane(1))
    since_s: dict[str, float] = {}
    time = run.world.scheduler
    for at_s, unrest_then, overdue in (
        (0.0, ["quotas: a", "pods run: b"], 0), (50.0, ["quotas: a"], 0), (55.0, [], 0), (60.0, ["quotas: a"], 0),
        (110.0, ["quotas: a", "pods run: b"], 0), (121.0, ["quotas: a", "pods run: b"], 1),
    ):  # fmt: skip
        monkeypatch.setattr(time, "now_ns", int(at_s * 1e9))
        run._unrest = unrest_then
        assert len(run._overdue(since_s)) == overdue, at_s


def test_watches_of_one_kind_are_late_and_stay_in_order() -> None:
    calls, got = ApiCalls(World(1), Rng("late")), list[int]()

    def send(plural: str, *events: int) -> None:
        for event in events:
            calls.deliver("controllers", plural, lambda event=event: got.append(event))  # type: ignore[misc]

    calls.delay_watches("controllers", "pods")
    send("pods", 1, 2)
    send("nodes", 3)
    assert got == [3]
    calls.delay_watches("controllers")
    calls.resume_watches("controllers", "pods")
    send("pods", 4)
    assert got == [3]
    calls.resume_watches("controllers")
    send("pods", 5)
    assert got == [3, 1, 2, 4, 5]


def test_a_watch_ends_however_many_faults_of_its_client_overlap() -> None:
    world, got = World(1), list[Any]()
    calls = ApiCalls(world, Rng("overlap"))

    class Silent:
        cache = SimpleNamespace(revision=7)

        async def next(self) -> Any:
            await asyncio.get_running_loop().create_future()

        async def handle(self, asked: Any) -> Any:
            return SimpleNamespace(stream=self, body=b"")

    async def server(process: Process) -> None:
        calls.serve(process, Silent())  # type: ignore[arg-type]
        await asyncio.get_running_loop().create_future()

    async def client(process: Process) -> None:
        transport = CallTransport(calls, process.loop, process.rng, ["api-0"], name="client")
        async for events in transport.watch("/api/v1/pods", {"resourceVersion": "5"}):
            got.extend(each.type for each in events)
        got.append("the end")
        await asyncio.get_running_loop().create_future()

    world.start("api-0", server)
    world.scheduler.after(1, lambda _: world.start("client", client))
    steps = (calls.delay_watches, calls.delay_watches, calls.expire_watches, calls.expire_watches)
    for at_s, step in enumerate(steps, start=2):
        world.scheduler.after(at_s, step, "client")
    world.scheduler.run_to(10 * NS_PER_S)
    assert got == ["ERROR", "the end"]


def test_only_creations_without_an_answer_are_unknown() -> None:
    calls = ApiCalls(World(1), Rng("unknown"))
    for number, (method, path) in enumerate((("POST", "pods"), ("POST", "pods"), ("PUT", "pods"), ("POST", "jobs"))):
        calls.asked(number, method, "controllers", path)
    calls.answered(0, known=True)
    calls.answered(0, known=False)
    assert not calls.unknown
    for number in (1, 2, 3, 3):
        calls.answered(number, known=False)
    assert calls.unknown == {("controllers", "pods"): 1, ("controllers", "jobs"): 1}


# -- the judges --------------------------------------------------------------------------------------------------------

NODE = {"metadata": {"name": "n", "uid": "node"}, "spec": {}, "status": {"allocatable": {"cpu": "2", "pods": "3"}}}


def pod(name: str, node: str = "", cpu: str = "1", phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    if node:
        spec["nodeName"] = node
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"phase": phase, "conditions": conditions, "podIP": f"10.0.0.{name}"}
    return {
        "metadata": {"namespace": "d", "name": name, "uid": f"uid-{name}"} | metadata,
        "spec": spec,
        "status": status,
    }


def history_of(*objects: tuple[str, dict[str, Any] | None]) -> History:
    history = History()
    for revision, (key, obj) in enumerate(objects, start=1):
        history.add(f"/registry/{key}".encode(), None if obj is None else json.dumps(obj).encode(), revision)
    return history


BROKEN: dict[str, tuple[str, list[tuple[str, dict[str, Any] | None]]]] = {
    "another node": ("bound once", [("pods/d/1", pod("1", "n")), ("pods/d/1", pod("1", "m"))]),
    "no node any more": ("bound once", [("pods/d/1", pod("1", "n")), ("pods/d/1", pod("1"))]),
    "alive again": ("phases", [("pods/d/1", pod("1", "n", phase="Failed")), ("pods/d/1", pod("1", "n"))]),
    "too much": ("overcommitted", [("nodes/n", NODE), *((f"pods/d/{each}", pod(each, "n")) for each in "123")]),
    "too many": (
        "overcommitted", [("nodes/n", NODE), *((f"pods/d/{each}", pod(each, "n", "0")) for each in "1234")],
    ),
    "made again": ("", [("pods/d/1", pod("1", "n")), ("pods/d/1", None), ("pods/d/1", pod("1", "m", uid="other"))]),
    "room again": (
        "", [("nodes/n", NODE), ("pods/d/1", pod("1", "n", "2")), ("pods/d/1", pod("1", "n", "2", "Succeeded")),
             ("pods/d/2", pod("2", "n", "2"))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_must_hold_always(name: str) -> None:
    promise, objects = BROKEN[name]
    problem = history_of(*objects).problem
    assert problem.startswith(promise + ":") if promise else not problem, problem


def test_an_acknowledged_write_is_looked_for_at_its_revision() -> None:
    history = history_of(("pods/d/1", pod("1", "n")))
    assert not history.lost([Acknowledged("create", "pods/d/1", "uid-1", 1)])
    assert history.lost([Acknowledged("create", "pods/d/1", "uid-1", 2)])
    assert history.lost([Acknowledged("create", "pods/d/1", "another", 1)])
    assert history.lost([Acknowledged("delete", "pods/d/1", "uid-1", 1)])
    assert not history.lost([Acknowledged("delete", "pods/d/1", "another", 1)])


def owner(kind: str, name: str) -> dict[str, Any]:
    return {"ownerReferences": [{"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]}


def replicated(wanted: int, told_of: int) -> dict[str, Any]:
    metadata = {"namespace": "d", "name": "rc", "uid": "uid-rc", "generation": 1}
    status = {"replicas": told_of, "readyReplicas": told_of, "observedGeneration": 1}
    return {"metadata": metadata, "spec": {"replicas": wanted}, "status": status}


def going() -> dict[str, Any]:
    return {"labels": {"app": "a"}, "deletionTimestamp": "now"}


def service() -> dict[str, Any]:
    return {"metadata": {"namespace": "d", "name": "s", "uid": "s"}, "spec": {"selector": {"app": "a"}}}


def slice_of(*addresses: str) -> tuple[str, dict[str, Any]]:
    endpoints = [{"addresses": [each], "conditions": {"ready": True}} for each in addresses]
    metadata = {"namespace": "d", "name": "s-1", "uid": "s-1", "labels": {"kubernetes.io/service-name": "s"}}
    return "discovery.k8s.io/endpointslices/d/s-1", {"metadata": metadata, "endpoints": endpoints}


def budget(healthy: int) -> dict[str, Any]:
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "a"}}}
    status = {"currentHealthy": healthy, "disruptionsAllowed": healthy}
    return {"metadata": {"namespace": "d", "name": "b", "uid": "b"}, "spec": spec, "status": status}


RC = "replicationcontrollers/d/rc"
READY = {**NODE, "status": {**NODE["status"], "conditions": [{"type": "Ready", "status": "True"}]}}  # type: ignore[dict-item]
UNREST: dict[str, tuple[str, list[tuple[str, dict[str, Any] | None]]]] = {
    "all well": ("", [(RC, replicated(1, 1)), ("pods/d/1", pod("1", "n", **owner("RC", "rc")))]),
    "one too few": ("replicas", [(RC, replicated(2, 1)), ("pods/d/1", pod("1", "n", **owner("RC", "rc")))]),
    "says another": ("replicas", [(RC, replicated(1, 0)), ("pods/d/1", pod("1", "n", **owner("RC", "rc")))]),
    "an orphan": ("no orphan", [("pods/d/1", pod("1", "n", **owner("RC", "rc")))]),
    "a lost node": ("no orphan", [("pods/d/1", pod("1", "gone"))]),
    "pending": ("pods run", [("pods/d/1", pod("1"))]),
    "never ends": ("deletions end", [("pods/d/1", pod("1", "n", deletionTimestamp="now"))]),
    "a job": ("jobs end", [("batch/jobs/d/j", {"metadata": {"name": "j", "uid": "j"}, "spec": {"completions": 2}})]),
    "a slice that serves who goes": (
        "endpoints",
        [("services/d/s", service()), slice_of("10.0.0.1"), ("pods/d/1", pod("1", "n", **going()))],
    ),
    "a slice without who goes": (
        "deletions end", [("services/d/s", service()), slice_of(), ("pods/d/1", pod("1", "n", **going()))],
    ),
    "a budget that counts who goes": (
        "budgets", [("policy/poddisruptionbudgets/d/b", budget(1)), ("pods/d/1", pod("1", "n", **going()))],
    ),
    "a taint": (
        "nodes are healthy", [("nodes/n", {**READY, "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREST)
def test_what_must_hold_at_rest(name: str) -> None:
    promise, objects = UNREST[name]
    found = unrest(history_of(("nodes/n", READY), *objects).objects)
    assert any(each.startswith(promise + ":") for each in found) if promise else not found, found
