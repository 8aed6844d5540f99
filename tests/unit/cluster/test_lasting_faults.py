"""Faults that last in virtual time: each ends by itself, and ends no other."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest

from minikube_py import Cluster, ClusterError

POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip


def seconds_between(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


def down_until(cluster: Cluster, name: str) -> bool:
    """Whether the node is down for the control plane after all that a lost node takes."""
    cluster.advance(60)
    conditions = {each["type"]: each["status"] for each in cluster.get(f"node/{name}")["status"]["conditions"]}
    return conditions["Ready"] != "True"


def test_the_end_of_an_earlier_fault_ends_no_later_one() -> None:
    with Cluster(nodes=2, clock="virtual") as cluster:
        first, second = cluster.node("node-0"), cluster.node("node-1")
        first.down(100)
        first.up()
        first.down()
        second.down(100)
        cluster.advance(90)
        second.down(1000)
        cluster.advance(200)
        assert down_until(cluster, "node-0") and down_until(cluster, "node-1")
        cluster.all_well()
        assert not down_until(cluster, "node-0") and not down_until(cluster, "node-1")
        cluster.advance(1000)
        assert not down_until(cluster, "node-1")


def test_what_was_to_end_later_is_over_when_all_is_well() -> None:
    async def watches(clients: Any) -> None:
        async for batch in clients.transport.watch("/api/v1/secrets"):
            seen.extend(each.type for each in batch if each.type != "BOOKMARK")

    seen: list[str] = []
    with Cluster(nodes=0, clock="virtual") as cluster:
        cluster.program(watches)
        cluster.advance(1)
        cluster.hide_events(30)
        cluster.advance(1)
        cluster.all_well()
        cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
        cluster.advance(60)
        assert seen == ["ADDED"]


def test_a_list_that_names_its_revision_uses_no_stale_list_up() -> None:
    path = "/api/v1/namespaces/default/secrets"
    with Cluster(nodes=0, clock="virtual") as cluster:
        client = cluster.client.httpx()
        for name in "abc":
            cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
        first = client.get(path, params={"limit": 1}).json()["metadata"]
        cluster.stale_list(1, "secrets")
        assert len(client.get(path, params={"continue": first["continue"]}).json()["items"]) == 2
        exact = {"resourceVersion": first["resourceVersion"], "resourceVersionMatch": "Exact"}
        assert len(client.get(path, params=exact).json()["items"]) == 3
        assert len(client.get(path).json()["items"]) == 2
        assert len(client.get(path).json()["items"]) == 3


def test_a_container_ends_when_it_ends() -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        cluster.apply(POD)
        cluster.wait("pod/a", phase="Running")
        begun = cluster.get("pod/a")["status"]["startTime"]
        for hours in (2, 4):
            cluster.advance(hours=2)
            cluster.end_container("a", 1)
            (status,) = cluster.get("pod/a")["status"]["containerStatuses"]
            ended = status["lastState"]["terminated"]["finishedAt"]
            assert seconds_between(begun, ended) == pytest.approx(hours * 3600, abs=60)
            assert status["state"]["running"]["startedAt"] == ended
        with pytest.raises(ClusterError, match="has no container zz; it has c"):
            cluster.end_container("a", 1, container="zz")


def expected(rules: list[tuple[str, float]]) -> tuple[int, float]:
    """Status and seconds of the next GET under these faults, injected in this order."""
    taken_s = sum(value for name, value in rules if name == "slow")
    refusals = [name for name, _ in rules if name in ("fail", "no_leader")]
    return {"fail": 500, "no_leader": 503}.get(refusals[0], 0) if refusals else 200, taken_s


@pytest.mark.parametrize("seed", range(20))
def test_faults_act_together_whatever_their_order(seed: int) -> None:
    """Each delay counts, and the first refusal decides: none hides another."""
    rng = random.Random(seed)
    rules = [(rng.choice(("slow", "slow", "fail", "no_leader", "conflict")), rng.randint(1, 9)) for _ in range(4)]
    with Cluster(nodes=0, clock="virtual") as cluster:
        for name, value in rules:
            match name:
                case "slow":
                    cluster.slow(value, rng.choice(("", "secrets")))
                case "fail":
                    cluster.fail_next(rng.choice(("", "secrets")))
                case "no_leader":
                    cluster.no_leader(1000)
                case "conflict":
                    cluster.conflict_next()
        for _ in range(3):
            begun_s = cluster.now_s
            answered = cluster.client.httpx().get("/api/v1/namespaces/default/secrets")
            status, taken_s = expected(rules)
            assert (answered.status_code, round(cluster.now_s - begun_s, 1)) == (status, taken_s)
            if status == 500:
                rules.remove(next(each for each in rules if each[0] == "fail"))
