"""Workloads, PodGroups and gangs, beside upstream with the gates GenericWorkload and GangScheduling on.

Drawn writes go to both API servers, and the answers are compared. Drawn scripts of nodes, groups and pods go to the
real kube-scheduler and to ours, one after the other: as many pods of each group are bound, with the same conditions.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import judging
import needs
import ours
import pytest
from asking import JSON, Ask, Server
from drawn_objects import MERGE, changes, put
from edges import as_json
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from lockstep import ASKED_EVERY_S
from patience import PATIENCE_S

from minikube_py.api.feature_gates import known, parse
from minikube_py.api.schema import SCHEMA
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.rest import RestClient
from minikube_py.env import SystemClock
from minikube_py.scheduler.config import ProfileConfig, SchedulerConfig
from minikube_py.scheduler.scheduler import Scheduler

pytestmark = [pytest.mark.original]

GATES = "GangScheduling=true,GenericWorkload=true"
EXAMPLES = int(os.environ.get("MINIKUBE_PY_JUDGE_EXAMPLES", "1000"))
SEED = int(os.environ.get("MINIKUBE_PY_JUDGE_SEED", "7"))
CASES = int(os.environ.get("GANG_CASES", "12"))
Json = dict[str, Any]
NAMESPACE = "default"
GROUP = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{NAMESPACE}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_TEMPLATES = [
    {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}},
    {"name": "leader", "schedulingPolicy": {"basic": {}}},
]
_REFERENCE = {"workload": {"workloadName": "one", "podGroupTemplateName": "workers"}}
WORLD: dict[str, tuple[str, str, Json]] = {
    "workloads": (
        GROUP,
        "scheduling/v1alpha2.Workload",
        {"controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "j"}, "podGroupTemplates": _TEMPLATES},
    ),
    "podgroups": (
        GROUP,
        "scheduling/v1alpha2.PodGroup",
        {"podGroupTemplateRef": _REFERENCE, "schedulingPolicy": {"gang": {"minCount": 2}}},
    ),
}
_VERSIONS = {"workloads": "Workload", "podgroups": "PodGroup"}
_CONDITION = {
    "type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip


def _object(plural: str, name: str) -> Json:
    found = {
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": _VERSIONS[plural], "metadata": {"name": name},
        "spec": json.loads(json.dumps(WORLD[plural][2])),
    }  # fmt: skip
    if plural == "podgroups":
        found["status"] = {"conditions": [dict(_CONDITION)]}
    return found


def _referring(workload: str, template: str) -> Json:
    found = _object("podgroups", "x")
    reference = {"workloadName": workload, "podGroupTemplateName": template}
    found["spec"]["podGroupTemplateRef"] = {"workload": reference}
    return found


_PODS: tuple[Json, ...] = (
    {"schedulingGroup": {"podGroupName": "one"}}, {"schedulingGroup": {"podGroupName": "A_b"}},
    {"schedulingGroup": {}}, {"schedulingGroup": {"podGroupName": ""}}, {"schedulingGroup": None},
)  # fmt: skip


@st.composite
def writes(draw: st.DrawFn) -> Ask:
    """Mostly dry: what stands is the same for each of them."""
    plural = draw(st.sampled_from(("workloads", "podgroups", "podgroups")))
    folder, message, _ = WORLD[plural]
    how = draw(st.sampled_from(("create", "create", "update", "status", "patch", "pod")))
    if how == "pod":
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "x"}], **draw(st.sampled_from(_PODS))},
        }  # fmt: skip
        return Ask("create pods", "POST", f"{PODS}?dryRun=All", as_json(pod), JSON)
    obj = _object(plural, "one" if how != "create" else draw(st.sampled_from(("new", "new", "one", "", "a.b", "A"))))
    for _ in range(draw(st.integers(0, 3))):
        # Metadata is that of all kinds, and the order of several wrong labels is random.
        obj = put(obj, draw(changes(SCHEMA.message(message), obj).filter(lambda change: change.path[0] != "metadata")))
    if how == "create":
        return Ask(f"create {plural}", "POST", f"{folder}/{plural}?dryRun=All", as_json(obj), JSON)
    path = f"{folder}/{plural}/one"
    if how == "patch":
        part = {name: obj[name] for name in ("spec", "status") if name in obj}
        return Ask(f"patch {plural}", "PATCH", f"{path}?dryRun=All", as_json(part), MERGE)
    if how == "status" and plural == "podgroups":
        path += "/status"
    return Ask(f"{how} {plural}", "PUT", f"{path}?dryRun=All", as_json(obj), JSON)


FIRST = (
    *(Ask(f"setup {plural}", "POST", f"{GROUP}/{plural}", as_json(_object(plural, "one")), JSON) for plural in WORLD),
    Ask("discovery", "GET", "/apis/scheduling.k8s.io"),
    Ask("discovery", "GET", "/apis/scheduling.k8s.io/v1alpha2"),
    *(Ask("read", "GET", f"{GROUP}/{plural}/one") for plural in WORLD),
    *(
        Ask("table", "GET", f"{GROUP}/{plural}", accept="application/json;as=Table;v=v1;g=meta.k8s.io")
        for plural in WORLD
    ),
    Ask("view", "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregate-to-view"),
    Ask("edit", "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregate-to-edit"),
    Ask("scheduler", "GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:kube-scheduler"),
    *(
        Ask("template missing", "POST", f"{GROUP}/podgroups", as_json(_referring(*named)), JSON)
        for named in (("no", "workers"), ("one", "no"))
    ),
)  # fmt: skip


@pytest.mark.timeout(180 + EXAMPLES)
def test_groups_become_what_they_become_upstream() -> None:
    report = judging.Report()
    with (
        needs.original("--feature-gates", GATES) as upstream,
        ours.serve(started=ours.gated(GATES)) as local,
        Server(upstream["url"], upstream["token"]) as theirs,
        Server(local["url"], local["token"]) as mine,
    ):
        lockstep = judging.Lockstep(theirs, mine, report)
        for ask in FIRST:
            lockstep.take(ask)

        @seed(SEED)
        @settings(max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate])
        @given(writes())
        def drawn(ask: Ask) -> None:
            lockstep.take(ask)

        drawn()
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


# --- gangs ----------------------------------------------------------------------------------------------------------

THEIRS, OURS = "default-scheduler", "ours"


class Case:
    """`nodes`: their cpus. `groups`: by name the minimum, None for a basic one. `pods`: (name, group, cpu), in the
    order in which they come. `late`: the groups that are made after the pods."""

    def __init__(self, rng: random.Random) -> None:
        self.nodes = [rng.randint(1, 4) for _ in range(rng.randint(1, 3))]
        self.groups = {f"g{i}": rng.choice((None, 1, 2, 2, 3, 4)) for i in range(rng.randint(1, 2))}
        self.late = {name for name in self.groups if rng.random() < 0.3}
        # Of pods of one size it does not matter which are tried first.
        size = {name: rng.choice((1, 1, 2)) for name in (*self.groups, "")}
        of = [rng.choice((*self.groups, *self.groups, "")) for _ in range(rng.randint(1, 6))]
        self.pods = [(f"p{i}", group, size[group]) for i, group in enumerate(of)]

    def __repr__(self) -> str:
        return f"{self.nodes} {self.groups} late {sorted(self.late)} {self.pods}"


@asynccontextmanager
async def scheduling(kubeconfig: Path) -> AsyncIterator[RestClient]:
    transports = [HttpTransport(load_kubeconfig(kubeconfig)) for _ in range(2)]
    config = SchedulerConfig(profiles=(ProfileConfig(OURS),), gates=parse(GATES))
    scheduler = Scheduler(transports[1], SystemClock(), random.Random(1), config)
    await scheduler.start()
    try:
        yield RestClient(transports[0])
    finally:
        await scheduler.stop()
        assert scheduler.failure is None
        for transport in transports:
            await transport.close()


async def items(client: RestClient, path: str) -> list[Json]:
    found: list[Json] = (await client.request("GET", path))["items"]
    return found


async def until(question: Any, seconds: float = PATIENCE_S) -> Any:
    async with asyncio.timeout(seconds):
        while True:
            found = await question()
            if found is not None:
                return found
            await asyncio.sleep(ASKED_EVERY_S)


def state_of(pods: list[Json], groups: list[Json]) -> Json:
    """By group how many pods are bound, and the conditions of the others and of the group."""
    found: Json = {}
    for pod in pods:
        name = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
        of = found.setdefault(name, {"bound": 0, "told": []})
        conditions = [each for each in pod.get("status", {}).get("conditions", ()) if each["type"] == "PodScheduled"]
        told = [(each["reason"], each["message"]) for each in conditions if each["status"] == "False"]
        if pod["spec"].get("nodeName"):
            of["bound"] += 1
        else:
            of["told"] = sorted([*of["told"], *told])
    for group in groups:
        conditions = group.get("status", {}).get("conditions", ())
        found.setdefault(group["metadata"]["name"], {})["condition"] = [
            (each["type"], each["status"], each["reason"], each["message"]) for each in conditions
        ]
    return found


async def outcome(client: RestClient, case: Case, scheduler: str) -> Json:
    for i, cpu in enumerate(case.nodes):
        await client.request("POST", "/api/v1/nodes", None, {"metadata": {"name": f"n{i}"}})
        status = {"status": {"allocatable": {"cpu": str(cpu), "memory": "16Gi", "pods": "99"}}}
        await client.raw("PATCH", f"/api/v1/nodes/n{i}/status", None, json.dumps(status).encode(), MERGE)
        await client.raw("PATCH", f"/api/v1/nodes/n{i}", None, b'{"spec": {"taints": null}}', MERGE)

    async def make(name: str) -> None:
        minimum = case.groups[name]
        policy: Json = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
        made = {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}}
        await client.request("POST", f"{GROUP}/podgroups", None, made)

    for name in case.groups:
        if name not in case.late:
            await make(name)
    for name, group, cpu in case.pods:
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}
        spec: Json = {"containers": [container], "schedulerName": scheduler, "terminationGracePeriodSeconds": 0}
        if group:
            spec["schedulingGroup"] = {"podGroupName": group}
        await client.request("POST", PODS, None, {"metadata": {"name": name}, "spec": spec})
    for name in case.late:
        await make(name)
    seen: list[tuple[float, Json]] = []

    async def settled() -> Json | None:
        """The same for three seconds."""
        now_s = SystemClock().monotonic_s()
        state = state_of(await items(client, PODS), await items(client, f"{GROUP}/podgroups"))
        if not seen or seen[-1][1] != state:
            seen.append((now_s, state))
        return state if now_s - seen[-1][0] > 3 else None

    return await until(settled)  # type: ignore[no-any-return]


async def clear(client: RestClient, case: Case) -> None:
    for pod in await items(client, PODS):
        await client.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": "0"})
    for name in case.groups:
        await client.raw("PATCH", f"{GROUP}/podgroups/{name}", None, b'{"metadata": {"finalizers": null}}', MERGE)
        await client.request("DELETE", f"{GROUP}/podgroups/{name}")
    for i in range(len(case.nodes)):
        await client.request("DELETE", f"/api/v1/nodes/n{i}")


@pytest.mark.slow
@pytest.mark.timeout(120 + 60 * CASES)
async def test_gangs_fare_as_with_kube_scheduler() -> None:
    async def compare(kubeconfig: Path) -> list[str]:
        wrong = []
        async with scheduling(kubeconfig) as client:
            for number in range(CASES):
                case, found = Case(random.Random(f"{SEED} {number}")), {}
                for name in (THEIRS, OURS):
                    found[name] = await outcome(client, case, name)
                    await clear(client, case)
                if found[THEIRS] != found[OURS]:
                    wrong.append(f"case {number}: {case}\n  theirs {found[THEIRS]}\n  ours   {found[OURS]}")
        return wrong

    with needs.original("--scheduler", "--feature-gates", GATES) as ready:
        wrong = await compare(Path(ready["kubeconfig"]))
    assert not wrong, "\n".join(wrong)


def test_the_gates_are_those_that_upstream_knows_with_its_defaults() -> None:
    """`--help` names those that may be set."""
    import re
    import subprocess

    for name in ("kube-apiserver", "kube-scheduler"):
        command = [needs.original_program(name), "--help"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        told = re.findall(r"(?:kube:)?(\w+)=true\|false \(\w+ - default=(true|false)\)", text)
        assert len(told) > 100
        for gate, default in told:
            assert gate in ("AllAlpha", "AllBeta") or known()[gate][0] == (default == "true"), gate
