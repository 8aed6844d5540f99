"""Whatever happens between a snapshot and its restore: life afterwards leads to where it would have led from the
snapshot on. Deadlines, run times, backoffs, leases and grace periods are those of the restored objects."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from minikube_py import Cluster
from minikube_py.api.errors import StatusError

LONG_S = 700.0
"""Longer than all that is drawn."""
Object = dict[str, Any]
FOREVER = "1000000"


def template(run_s: str, code: int, policy: str) -> Object:
    annotations = {"minikube-py.io/run-seconds": run_s, "minikube-py.io/exit-code": str(code)}
    spec = {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}
    return {"metadata": {"annotations": annotations, "labels": {"app": "drawn"}}, "spec": spec}


def named(kind: str, group: str, name: str, spec: Object) -> Object:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}


@st.composite
def jobs(draw: st.DrawFn) -> Object:
    """One that has a deadline runs for good: with both due, the winner would be a matter of luck."""
    deadline_s = draw(st.none() | st.integers(5, 100))
    run_s = FOREVER if deadline_s is not None else str(draw(st.integers(0, 100)))
    spec: Object = {"template": template(run_s, draw(st.sampled_from((0, 0, 1))), "Never")}
    spec["backoffLimit"] = draw(st.integers(0, 2))
    if deadline_s is not None:
        spec["activeDeadlineSeconds"] = deadline_s
    if draw(st.booleans()):
        spec["ttlSecondsAfterFinished"] = draw(st.integers(0, 100))
    return named("Job", "batch/v1", "job", spec)


@st.composite
def cron_jobs(draw: st.DrawFn) -> Object:
    job = {"spec": {"template": template(str(draw(st.integers(0, 90))), 0, "Never")}}
    policy = draw(st.sampled_from(("Allow", "Forbid", "Replace")))
    spec = {"schedule": "*/2 * * * *", "concurrencyPolicy": policy, "jobTemplate": job}
    return named("CronJob", "batch/v1", "cron", spec)


@st.composite
def deployments(draw: st.DrawFn) -> Object:
    pod = template(FOREVER, 0, "Always")
    if draw(st.booleans()):
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1000"}}
    seconds = draw(st.sampled_from((0, 30, 200)))
    pod["spec"]["tolerations"] = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in ("not-ready", "unreachable")
    ]
    spec: Object = {"replicas": draw(st.integers(0, 3)), "template": pod}
    spec |= {"selector": {"matchLabels": {"app": "drawn"}}, "progressDeadlineSeconds": draw(st.integers(20, 200))}
    return named("Deployment", "apps/v1", "web", spec)


def outcome(cluster: Cluster) -> dict[str, Any]:
    """What a user would say of the state."""
    found: dict[str, Any] = {}
    for kind in ("jobs", "deployments", "nodes"):
        for each in cluster.objects(kind):
            if each["metadata"].get("ownerReferences"):
                continue
            conditions = each.get("status", {}).get("conditions", ())
            said = sorted((c["type"], c["status"], c.get("reason", "")) for c in conditions)
            found[f"{kind}/{each['metadata']['name']}"] = said
    for each in cluster.objects("cronjobs"):
        found["cron"] = "lastSuccessfulTime" in each.get("status", {})
    phases: Counter[tuple[str, str]] = Counter()
    for each in cluster.objects("pods"):
        owner = each["metadata"]["ownerReferences"][0]
        if not owner["name"].startswith("cron"):
            phases[owner["kind"], each["status"]["phase"]] += 1
    found["pods"] = phases
    return found


def forget(cluster: Cluster, name: str) -> None:
    try:
        cluster.delete(name)
    except StatusError as error:
        assert error.code == 404


def happen(cluster: Cluster, what: str, seconds: float) -> None:
    kind, _, name = what.partition(" ")
    if kind == "delete":
        forget(cluster, name)
    elif kind == "down" and name in {each["metadata"]["name"] for each in cluster.objects("nodes")}:
        cluster.node(name).down()
    elif kind == "up":
        cluster.all_well()
    elif kind == "scale":
        for each in cluster.objects("deployments"):
            # Without the version: the controller may have written since the list.
            named = {"name": each["metadata"]["name"]}
            cluster.apply({**each, "metadata": named, "spec": {**each["spec"], "replicas": 5}})
    cluster.advance(seconds)


HAPPENINGS = (
    "advance", "delete job/job", "delete cronjob/cron", "delete deploy/web", "delete node/node-0", "delete node/node-1",
    "down node-0", "down node-1", "up", "scale",
)  # fmt: skip
SECONDS = st.sampled_from((0.0, 1.0, 15.0, 60.0, 400.0))
STEPS = st.lists(st.tuples(st.sampled_from(HAPPENINGS), SECONDS), max_size=4)


@settings(
    max_examples=15, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck)
)
@given(
    workloads=st.tuples(st.none() | jobs(), st.none() | cron_jobs(), st.none() | deployments()),
    before_s=st.sampled_from((0.0, 0.5, 10.0, 70.0, 200.0)),
    down=st.sampled_from((None, None, "node-0")),
    down_s=SECONDS,
    steps=STEPS,
)
def test_what_follows_a_restore_is_what_would_have_followed_the_snapshot(
    workloads: tuple[Object | None, ...],
    before_s: float,
    down: str | None,
    down_s: float,
    steps: list[tuple[str, float]],
) -> None:
    outcomes = []
    for restores in (False, True):
        with Cluster(nodes=2, clock="virtual") as cluster:
            for each in filter(None, workloads):
                cluster.apply(each)
            cluster.advance(before_s)
            if down is not None:
                cluster.node(down).down()
                cluster.advance(down_s)
            snapshot = cluster.snapshot()
            if restores:
                for what, seconds in steps:
                    happen(cluster, what, seconds)
                revision = int(cluster._virtual().virtual.history.revision)
                cluster.restore(snapshot)
                assert int(cluster._virtual().virtual.history.revision) - revision < 300
            cluster.advance(LONG_S)
            outcomes.append(outcome(cluster))
    assert outcomes[0] == outcomes[1]
