"""A small run, recorded: who caused which calls; and nothing of the recorder where none is wanted."""

import random
from functools import partial
from pathlib import Path

import pytest
from patience import PATIENCE_S
from virtual_time import LoopClock

from minikube_py.apiserver.core import ApiServer
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.lab.calls import tables
from minikube_py.lab.calls.matches import Path as WayThrough
from minikube_py.lab.calls.published import mix
from minikube_py.lab.calls.recorded import RecordedControlPlane
from minikube_py.lab.calls.recorder import Recorder
from minikube_py.lab.calls.story import pod_story
from minikube_py.lab.cluster import Ground, cluster
from minikube_py.lab.load import create_namespaces, create_pod
from minikube_py.lab.measure import PodRecorder
from minikube_py.lab.workload import RUN_LABEL, seeded_nodes, seeded_pods
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Put, RangeRequest
from minikube_py.store.embedded import EmbeddedStorage

PODS = 4


@pytest.mark.real_time("a whole control plane as the lab runs it")
async def test_a_run_tells_who_caused_which_calls() -> None:
    recorder = Recorder(LoopClock())
    rng = random.Random(1)
    plane = partial(RecordedControlPlane, recorder)
    shapes = seeded_nodes(rng, 2)
    own = cluster(shapes, Ground(step=_ignore, seed=1, plane=plane))
    async with own as running:
        await create_namespaces(running.transport, ["run-0"])
        watched = PodRecorder(running.transport, running.clock, f"{RUN_LABEL}=run")
        await watched.start()
        for pod in seeded_pods(rng, PODS, 1, "run"):
            await create_pod(running.transport, pod, watched)
        assert await watched.wait_until(lambda: watched.running >= PODS, PATIENCE_S)
        await watched.stop()
    counts = {(kind.shape, kind.resource, kind.role): len(found) for kind, found in recorder.latencies_s.items()}
    assert counts["create", "pods", "user"] == PODS
    assert counts["update: bind", "pods", "scheduler"] == PODS
    assert counts["update: status", "pods", "kubelet"] == PODS
    assert counts["create", "nodes", "kubelet"] == 2
    assert counts["all keys, from a revision", "(all keys)", "API server"] == 1
    assert sum(line.ours or 0 for line in mix(recorder) if line.of == "calls") > 0.9
    missing = tables.unused(recorder)
    assert "compact" in missing["operations"] and "txn" not in missing["operations"]
    assert "Compare MOD =" not in missing["compares"] and "Compare VALUE =" in missing["compares"]
    drawn = pod_story(recorder.between(0.0, recorder.clock.monotonic_s()))
    assert drawn is not None and {"user", "scheduler", "kubelet", "API server", "store"} <= set(drawn.lanes)
    assert tables.figures(recorder, 1.0)["calls"] == recorder.total == sum(counts.values())


def _ignore(name: str, note: str) -> None:
    """Steps are of no interest here."""


def test_where_nothing_is_recorded_there_is_nothing_of_the_recorder(tmp_path: Path) -> None:
    class Member:
        storage = EmbeddedStorage.__new__(EmbeddedStorage)

    plane = ControlPlane(ControlPlaneConfig(tmp_path), LoopClock(), random.Random(1))
    plane.member = Member()  # type: ignore[assignment]
    core = plane.make_core({}, random.Random(2))
    assert type(core) is ApiServer and core.storage is plane.member.storage


def test_the_way_of_a_read_is_told_by_the_parts_it_crosses() -> None:
    state = StateMachine()
    state.apply(Put(b"a", b"1"))
    with WayThrough("client") as path:
        state.range(RangeRequest(b"a", b"b"))
    assert path.lanes() == ("client", "store member", "mvcc.reads", "mvcc.key_index")
    texts = [(arrow.source, arrow.target, arrow.text) for arrow in path.arrows()]
    assert ("store member", "mvcc.reads", "Reads.range()") in texts
    assert ("mvcc.reads", "store member", "RangeResult: 1 of 1") in texts
    assert path.decoded() == 0
