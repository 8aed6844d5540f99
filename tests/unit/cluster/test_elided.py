"""Virtual time without heartbeats: the same placements, no Leases of nodes, and a digest that says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from minikube_py.cli.main import main
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.errors import InvalidRequest
from minikube_py.lab.nodes import wait_ready
from minikube_py.lab.progress import progress
from minikube_py.lab.replay import Replay
from minikube_py.lab.trace import TraceError, load, of_day
from minikube_py.lab.virtual import History, in_virtual_time
from minikube_py.lab.workload import trace_nodes

pytestmark = pytest.mark.real_time("virtual time of its own")
SPEED = 400.0


def replayed(heartbeats: Literal["written", "elided"], seed: int = 3) -> tuple[tuple[str, int, int], History]:
    """Placements, pods that ran, and Leases of nodes, of the first pods of the busiest day on some of its nodes."""
    day = of_day(load(), 148)
    trace = replace(day, nodes=day.nodes[600:630], pods=day.pods[:25])

    async def run(cluster: VirtualCluster) -> tuple[str, int, int]:
        await cluster.bring_up(replace(cluster.config, nodes=trace_nodes(trace.nodes)))
        await wait_ready(cluster.transport(), len(trace.nodes))
        replay = Replay(trace, cluster.transport(), cluster.clock, in_flight=1)
        with progress("pods", len(trace.pods)) as shown:
            await replay.run_with_departures(shown, SPEED)
        leases: Any = (await cluster.transport().request("GET", "/apis/coordination.k8s.io/v1/leases")).body
        return replay.placements_sum(), replay.recorder.running, leases.count(b'"kube-node-lease"')

    return in_virtual_time(seed, run, VirtualConfig(heartbeats=heartbeats))


def test_placements_are_the_same_with_and_without_heartbeats() -> None:
    (written, ran, leases), of_written = replayed("written")
    (elided, also_ran, none), of_elided = replayed("elided")
    assert written == elided and ran == also_ran == 25
    assert leases == 30 and none == 0
    assert of_written.digest != of_elided.digest and of_elided.changes < of_written.changes
    assert "(heartbeats elided)" in of_elided.lines("x")[0] and "(heartbeats" not in of_written.lines("x")[0]
    assert replayed("elided", seed=4)[0][0] != elided


def test_nodes_stay_ready_though_nobody_hears_of_them() -> None:
    digests = []
    for heartbeats in ("elided", "written"):
        config = VirtualConfig(nodes=(), heartbeats=heartbeats)  # type: ignore[arg-type]
        with VirtualCluster(7, config=config) as empty:
            digests.append(empty.digest)
    # The same changes, if any, under another name.
    assert digests[0] != digests[1]
    shapes = trace_nodes(load().nodes[:3])
    with VirtualCluster(7, config=VirtualConfig(nodes=shapes, heartbeats="elided")) as cluster:
        cluster.advance(minutes=10)
        body = cluster.request("GET", "/api/v1/nodes").body
        assert body.count(b'"type":"Ready","status":"True"') + body.count(b'"status":"True","type":"Ready"') == 3
        assert b"unreachable" not in body
        with pytest.raises(InvalidRequest, match="no node is ever lost"):
            cluster.node_down("openb-node-0000")


def test_a_day_of_the_trace_begins_at_its_start() -> None:
    whole = load()
    day = of_day(whole, 148)
    assert len(day.pods) == 678 and day.nodes == whole.nodes
    assert all(0 <= pod.arrival_s < 86_400 for pod in day.pods)
    assert sum(len(of_day(whole, number).pods) for number in {pod.arrival_s // 86_400 for pod in whole.pods}) == len(
        whole.pods
    )
    with pytest.raises(TraceError, match="no pod of the trace arrives on day 100000"):
        of_day(whole, 100_000)


def test_several_members_go_with_virtual_time_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "openb", "--members", "3"]) == 2
    assert "--members needs a trace and --virtual" in capsys.readouterr().err


def test_it_goes_with_virtual_time_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "openb", "--heartbeats", "elided"]) == 2
    assert "--heartbeats needs a trace and --virtual" in capsys.readouterr().err
