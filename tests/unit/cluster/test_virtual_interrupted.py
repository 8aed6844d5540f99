"""An advance that a signal interrupts: the cluster goes on, and its log tells how far it came."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

from minikube_py import Cluster, ClusterError
from minikube_py.cluster.input_log import InputLog

pytestmark = pytest.mark.real_time("signals of this process")
RC = {
    "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"},
    "spec": {"replicas": 3, "selector": {"app": "web"}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "c", "image": "i"}]}}},
}  # fmt: skip


class Stopped(Exception):
    pass


def after_steps(cluster: Cluster, steps: int, *, twice: bool = False) -> None:
    """A signal comes in the middle of that step."""
    loop, left = cluster._engine.virtual.loop, [steps]  # type: ignore[union-attr]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            for _ in range(1 + twice):
                signal.raise_signal(signal.SIGUSR1)

    loop.after_step = count


@pytest.mark.parametrize("raised", [KeyboardInterrupt, Stopped])
def test_the_history_goes_on_from_where_it_was_interrupted(raised: type[BaseException], tmp_path: Path) -> None:
    def handle(*_: Any) -> None:
        raise raised

    drawn, before = random.Random(f"interrupts {raised}"), signal.signal(signal.SIGUSR1, handle)
    try:
        for steps in (1, *(drawn.randrange(2, 900) for _ in range(5))):
            with Cluster(nodes=3, clock="virtual", seed=7) as cluster:
                cluster.apply(RC)
                begun_s = cluster.now_s
                after_steps(cluster, steps)
                with pytest.raises(raised):
                    cluster.advance(hours=1)
                came_s = cluster.now_s
                assert begun_s <= came_s < 3600
                assert cluster.inputs[-1].arguments == (
                    pytest.approx(came_s - begun_s),
                    round((came_s - begun_s) * 1e9),
                )
                assert len(cluster.objects("pods")) in (0, 1, 2, 3) and cluster.now_s == came_s
                cluster.advance(60)
                cluster.wait("rc/web", ready=3)
                cluster.save_log(log := tmp_path / "log")
                digest = cluster.digest
            assert signal.getsignal(signal.SIGUSR1) is handle
            engine = InputLog.read(log).start()
            try:
                assert InputLog.read(log).play(engine) and engine.virtual.digest == digest
            finally:
                engine.stop(quietly=True)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_request_is_done_whole_before_a_signal_is_heard() -> None:
    def handle(*_: Any) -> None:
        raise Stopped

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with Cluster(nodes=0, clock="virtual") as cluster:
            after_steps(cluster, 2)
            with pytest.raises(Stopped):
                cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
            assert "a" in [each["metadata"]["name"] for each in cluster.objects("cm")] or cluster.inputs == ()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_that_comes_twice_ends_the_cluster_and_everything_says_so(tmp_path: Path) -> None:
    def handle(*_: Any) -> None:
        raise Stopped

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        cluster = Cluster(nodes=1, clock="virtual").start()
        after_steps(cluster, 20, twice=True)
        with pytest.raises(Stopped):
            cluster.advance(60)
        for use in (
            lambda: cluster.advance(1), lambda: cluster.objects("pods"), lambda: cluster.save_log(tmp_path / "log"),
        ):  # fmt: skip
            with pytest.raises(ClusterError, match="in the middle of a step"):
                use()
        cluster.stop()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_is_no_coroutine_and_no_program_is_refused_and_the_cluster_goes_on() -> None:
    with Cluster(nodes=1, clock="virtual") as cluster:
        with pytest.raises(ClusterError, match="not one that returns int"):
            cluster.run(lambda: 3)  # type: ignore[arg-type,return-value]
        with pytest.raises(ClusterError):
            cluster.program(3)  # type: ignore[arg-type]
        with pytest.raises(ClusterError, match="name is a text of a line that is not empty, not ''"):
            cluster.program(lambda clients: None, name="")
        with pytest.raises(ClusterError):
            cluster.advance(-1)
        assert [each.kind for each in cluster.inputs] == []
        cluster.advance(5)


def test_an_interrupt_that_an_async_program_raises_is_its_error() -> None:
    async def interrupted(clients: object) -> None:
        raise KeyboardInterrupt

    with Cluster(nodes=0, clock="virtual") as cluster:
        program = cluster.program(interrupted)
        cluster.advance(minutes=2)
        assert program.starts > 2 and "KeyboardInterrupt" in str(program.error)
        assert cluster.objects("namespaces")
