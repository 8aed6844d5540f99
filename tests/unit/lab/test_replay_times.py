"""The replay's samples: times never fall, whatever pauses, and pauses are not part of them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.lab.progress import progress
from minikube_py.lab.replay import SAMPLE_EVERY_S, Mark, Replay
from minikube_py.lab.trace import load
from minikube_py.lab.workload import trace_nodes


@pytest.mark.parametrize("seed", range(6))
def test_times_never_fall_though_marks_take_their_time(seed: int) -> None:
    rng = random.Random(seed)
    trace = load()
    trace = replace(trace, nodes=trace.nodes[:12], pods=trace.pods[:60])
    paused_s: list[float] = []
    with VirtualCluster(f"replay {seed}", nodes=trace_nodes(trace.nodes)) as cluster:
        replay = Replay(trace, cluster.transport(), cluster.clock)

        async def pause(share: float) -> None:
            paused_s.append(rng.choice((0.0, SAMPLE_EVERY_S / 3, SAMPLE_EVERY_S, 7.0, 60.0)))
            await cluster.clock.sleep(paused_s[-1])

        async def run() -> None:
            with progress("pods", len(trace.pods)) as shown:
                await replay.run(shown, [Mark(share, pause) for share in sorted(rng.uniform(0, 0.9) for _ in range(3))])

        before_s = cluster.now_s
        cluster.run(run)
        passed_s = cluster.now_s - before_s
    for series in (replay.series, replay.live_series):
        times_s = [time_s for time_s, _ in series]
        assert len(times_s) >= 2 and times_s[0] >= 0
        assert all(one <= other for one, other in pairwise(times_s)), times_s
        assert times_s[-1] == pytest.approx(replay.duration_s)
    assert len(paused_s) == 3 and replay.standing_s == pytest.approx(sum(paused_s))
    assert replay.duration_s <= passed_s - sum(paused_s) + 1e-6
