"""The whole control plane in virtual time: one seed, one history; looking does not change it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from minikube_py import SimFailure
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.errors import InvalidRequest
from minikube_py.kubelet.config import numbered_nodes
from minikube_py.sim.inspection import TooLong

PODS = "/api/v1/namespaces/default/pods"


def controller(name: str, replicas: int) -> bytes:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": replicas, "selector": labels, "template": template}
    return orjson.dumps({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name}, "spec": spec})


def pods_of(cluster: VirtualCluster) -> list[dict[str, Any]]:
    return orjson.loads(cluster.request("GET", PODS).body)["items"]


def scaled(seed: int, *, looks: int = 0) -> VirtualCluster:
    with VirtualCluster(seed, numbered_nodes(3)) as cluster:
        made = cluster.request("POST", "/api/v1/namespaces/default/replicationcontrollers", controller("web", 5))
        assert made.status == 201
        for _ in range(20):
            cluster.advance(1)
            for _ in range(looks):
                assert len(pods_of(cluster)) == 5
        assert [pod["status"]["phase"] for pod in pods_of(cluster)] == ["Running"] * 5
    return cluster


def test_one_seed_gives_one_history_and_another_seed_another() -> None:
    first, again, other = scaled(7), scaled(7), scaled(8)
    assert first.digest == again.digest
    assert first.steps == again.steps
    assert other.digest != first.digest


def test_a_store_of_three_members_comes_to_one_history_too_and_survives_its_leader() -> None:
    def run() -> tuple[str, list[Any]]:
        config = VirtualConfig(nodes=tuple(numbered_nodes(3)), members=3)
        with VirtualCluster(7, config=config) as cluster:
            path = "/api/v1/namespaces/default/replicationcontrollers"
            assert cluster.request("POST", path, controller("web", 5)).status == 201
            cluster.advance(10)
            members = cluster.members
            assert members is not None
            (leader,) = [host for host, member in members.members.items() if member.raft.role == "LEADER"]
            members.world.kill(leader)
            cluster.advance(10)
            assert cluster.request("POST", path, controller("more", 2)).status == 201
            cluster.advance(10)
            states = [member.state.hash() for host, member in members.members.items() if host != leader]
            assert [pod["status"]["phase"] for pod in pods_of(cluster)] == ["Running"] * 7
            assert len(states) == 2 and states[0] == states[1]
        return cluster.digest, states

    assert run() == run()


@pytest.mark.parametrize("members", [-1, 0, 8])
def test_a_store_has_one_to_seven_members(members: int) -> None:
    with pytest.raises(InvalidRequest, match=f"1 to 7 members, not {members}"):
        VirtualCluster(1, config=VirtualConfig(members=members)).start()


def test_reads_between_two_advances_leave_the_history_as_it_was() -> None:
    assert scaled(7, looks=3).digest == scaled(7).digest


def test_an_advance_ends_at_its_moment_with_all_done_that_was_due() -> None:
    with VirtualCluster(1, numbered_nodes(1)) as cluster:
        begun_s = cluster.now_s
        cluster.advance(60)
        assert cluster.now_s == pytest.approx(begun_s + 60)
        revision = cluster.history.revision
        cluster.advance(0)
        assert cluster.history.revision == revision


def test_a_look_that_waits_has_time_pass_for_itself_alone_and_not_without_end() -> None:
    async def wait(duration_s: float) -> float:
        await cluster.clock.sleep(duration_s)
        return cluster.now_s

    with VirtualCluster(1, numbered_nodes(1)) as cluster:
        begun_s = cluster.now_s
        assert cluster.look(lambda: wait(3)) == pytest.approx(begun_s + 3)
        with pytest.raises(TooLong):
            cluster.look(lambda: wait(61))
        with pytest.raises(TooLong):
            cluster.look(asyncio.Event().wait)
        assert cluster.now_s == begun_s


def test_what_a_look_leaves_behind_goes_on_at_its_time_and_is_no_part_of_the_history() -> None:
    seen: list[float] = []

    async def leave() -> asyncio.Task[None]:
        async def work() -> None:
            while True:
                await asyncio.sleep(7)
                seen.append(cluster.now_s)

        return asyncio.get_running_loop().create_task(work())

    digests = []
    for looks in (False, True):
        with VirtualCluster(1, numbered_nodes(2)) as cluster:
            begun_s = cluster.now_s
            kept = cluster.look(leave) if looks else None
            cluster.advance(70)
            digests.append((cluster.digest, cluster.steps, cluster.now_s))
            assert kept is None or not kept.done()
    assert digests[0] == digests[1]
    assert seen == [pytest.approx(begun_s + 7 * number) for number in range(1, 11)]


def test_a_look_that_writes_is_found_out() -> None:
    async def write() -> None:
        path = "/api/v1/namespaces/default/configmaps"
        await cluster.transport().request("POST", path, None, b'{"metadata":{"name":"a"}}')

    with pytest.raises(SimFailure, match="part of the history"), VirtualCluster(1) as cluster:
        cluster.advance(1)
        cluster.look(write)
        cluster.advance(1)


def test_the_digest_is_of_every_change_in_order() -> None:
    told: list[tuple[int, int]] = []
    with VirtualCluster(1) as cluster:
        before = cluster.history.changes
        cluster.on_change(lambda now_ns, event: told.append((now_ns, event.kv.mod_revision)))
        cluster.request("POST", "/api/v1/namespaces/default/configmaps", b'{"metadata":{"name":"a"}}')
        cluster.request("DELETE", "/api/v1/namespaces/default/configmaps/a")
        assert cluster.history.changes == before + len(told)
    assert told == sorted(told)
    assert told[-1][1] == cluster.history.revision
    assert told[-2][1] == told[-1][1] - 1


def test_a_component_that_ends_by_itself_ends_the_run() -> None:
    with pytest.raises(SimFailure, match="broken on purpose"), VirtualCluster(1, numbered_nodes(1)) as cluster:
        scheduler: Any = cluster.plane.components["scheduler"]

        def broken(queued: object) -> None:
            raise RuntimeError("broken on purpose")

        scheduler._schedule_one = broken
        cluster.request("POST", PODS, b'{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}')
        cluster.advance(1)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_time_passes_forward_and_by_something_finite(seconds: float) -> None:
    with VirtualCluster(1) as cluster, pytest.raises(InvalidRequest, match="time passes by 0 s or more"):
        cluster.advance(seconds)


def test_time_passes_by_hours_minutes_and_seconds() -> None:
    with VirtualCluster(1) as cluster:
        begun_s = cluster.now_s
        cluster.advance(5, minutes=1, hours=0.5)
        assert cluster.now_s == pytest.approx(begun_s + 1865)


def test_only_a_node_that_there_is_goes_down() -> None:
    with VirtualCluster(1, nodes=1) as cluster, pytest.raises(InvalidRequest, match="no simulated node is named n9"):
        cluster.node_down("n9")
    alone = VirtualCluster(1, config=VirtualConfig(components=()))
    with alone as cluster, pytest.raises(InvalidRequest, match="no kubelet"):
        cluster.node_up("node-0")


def test_two_clusters_live_side_by_side() -> None:
    with VirtualCluster(7, numbered_nodes(2)) as first, VirtualCluster(7, numbered_nodes(2)) as second:
        first.advance(5)
        second.advance(5)
        assert first.digest == second.digest
        second.advance(5)
        assert first.now_s < second.now_s
