"""The density test, as in ClusterLoader2: fill the nodes with pods, then create single pods at a steady rate.

Saturation: all pods as fast as the API accepts them (or by ReplicationControllers of up to 3,000 replicas, one per
namespace; upstream uses Deployments). Latency: single pods at `latency_rate` per second on the full cluster; their
99th percentile must stay under 5 s. API calls are reported from the server's own SLI histogram.
Source: https://github.com/kubernetes/perf-tests/tree/master/clusterloader2/testing/density.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import orjson

from minikube_py.env import ended
from minikube_py.kubelet.config import NodeSpec
from minikube_py.lab import metrics, plots, report
from minikube_py.lab.cluster import Cluster, Ground, cluster
from minikube_py.lab.environment import Environment
from minikube_py.lab.load import LoadError, create_namespaces, create_pod, creations, run_bounded
from minikube_py.lab.measure import PodRecorder, percentile
from minikube_py.lab.progress import Progress, progress
from minikube_py.lab.workload import RUN_LABEL, PodBody, seeded_nodes, seeded_pods

RUN = "density"
REPLICAS_MAX = 3000
THRESHOLD_S = 5.0
QUIET_S = 60.0
THROUGHPUT_WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class DensityOptions:
    """`latency_rate`: pods per second of the latency phase. `controllers`: saturate by ReplicationControllers."""

    nodes: int
    pods: int
    latency_pods: int
    latency_rate: float
    controllers: bool
    in_flight: int
    seed: int


@dataclass(frozen=True, slots=True)
class Phase:
    """The time until the phase's last pod was Running, and its pods' latencies."""

    pods: int
    duration_s: float
    latencies: dict[str, dict[str, dict[str, float]]]
    bound_per_s: dict[str, float]

    @property
    def pods_per_s(self) -> float:
        return self.pods / self.duration_s if self.duration_s else math.nan


async def run_density(
    options: DensityOptions,
    ground: Ground,
    results: Path,
    on: Callable[[Sequence[NodeSpec]], AbstractAsyncContextManager[Cluster]] | None = None,
) -> bool:
    """Prints as it goes; returns whether the latency phase met its threshold. `on`: another cluster with these nodes.

    Raises: MinikubeError of every kind."""
    report.require_writable(results)
    rng = random.Random(options.seed)
    shapes = seeded_nodes(rng, options.nodes)
    namespaces = max(1, math.ceil(options.pods / REPLICAS_MAX))
    load = seeded_pods(rng, options.pods, namespaces, RUN)
    latency_load = seeded_pods(rng, options.latency_pods, namespaces, RUN, "latency")
    async with cluster(shapes, ground) if on is None else on(shapes) as running:
        running.environment.tell()
        await create_namespaces(running.transport, [f"{RUN}-{number}" for number in range(namespaces)])
        before = await metrics.scrape(running.transport)
        saturation = await _saturate(running, options, load, namespaces)
        latency = await _one_by_one(running, options, latency_load)
        after = await metrics.scrape(running.transport)
        environment = running.environment
    calls = metrics.api_call_slis(before, after)
    good = _tell(options, saturation, latency, calls)
    folder = report.results_folder(results, "density", datetime.now())
    report.print_written(_write(folder, environment, options, saturation, latency, calls, good))
    return good


async def _saturate(running: Cluster, options: DensityOptions, load: list[PodBody], namespaces: int) -> Phase:
    with progress("saturation", len(load)) as shown:
        if options.controllers:
            return await _phase(running, "load", len(load), shown, lambda _: _controllers(running, load, namespaces))
        return await _phase(
            running,
            "load",
            len(load),
            shown,
            lambda recorder: run_bounded(creations(running.transport, load, recorder), options.in_flight),
        )


async def _one_by_one(running: Cluster, options: DensityOptions, load: list[PodBody]) -> Phase:
    with progress(f"latency, {options.latency_rate:g} pods/s", len(load)) as shown:
        return await _phase(
            running,
            "latency",
            len(load),
            shown,
            lambda recorder: run_bounded(_paced(running, load, recorder, options.latency_rate), options.in_flight),
        )


async def _phase(
    running: Cluster, group: str, count: int, shown: Progress, feed: Callable[[PodRecorder], Awaitable[None]]
) -> Phase:
    """Raises: LoadError if not all pods become Running."""
    clock = running.clock
    recorder = PodRecorder(running.transport, clock, f"{RUN_LABEL}={RUN},group={group}")
    await recorder.start()
    started_s = clock.monotonic_s()
    show = asyncio.create_task(_show(recorder, shown))
    try:
        await feed(recorder)
        if not await recorder.wait_until(lambda: recorder.running >= count, QUIET_S):
            raise LoadError(
                f"{recorder.running:,} of {count:,} pods became Running, {len(recorder.unschedulable):,} fit on no "
                f"node, then nothing happened for {QUIET_S:.0f} s; fewer --pods or more --nodes may help"
            )
    finally:
        show.cancel()
        await ended(show)
        await recorder.stop()
    shown.update(recorder.running)
    ended_s = max((times.running_s for times in recorder.pods.values() if times.running_s), default=started_s)
    bound = (times.bound_s for times in recorder.pods.values() if times.bound_s is not None)
    return Phase(count, ended_s - started_s, recorder.summaries(), throughput(bound))


def throughput(moments_s: Iterable[float], window_s: float = THROUGHPUT_WINDOW_S) -> dict[str, float]:
    """Pods per second between the first and the last moment: average, and percentiles over windows."""
    ordered = sorted(moments_s)
    if len(ordered) < 2 or ordered[-1] == ordered[0]:
        return {"average": float(len(ordered)), "p50": math.nan, "p90": math.nan, "max": math.nan}
    counts: dict[int, int] = {}
    for moment_s in ordered:
        window = int((moment_s - ordered[0]) / window_s)
        counts[window] = counts.get(window, 0) + 1
    # The end cuts the last window short.
    rates = [counts.get(window, 0) / window_s for window in range(max(1, max(counts)))]
    average = len(ordered) / (ordered[-1] - ordered[0])
    return {
        "average": round(average, 1),
        **{f"p{percent}": percentile(rates, percent) for percent in (50, 90)},
        "max": max(rates),
    }


async def _show(recorder: PodRecorder, shown: Progress) -> None:
    while True:
        shown.update(recorder.running, f"{recorder.bound:,} bound")
        await asyncio.sleep(0.25)


async def _paced(
    running: Cluster, load: list[PodBody], recorder: PodRecorder, rate: float
) -> AsyncGenerator[Callable[[], Awaitable[None]], None]:
    started_s = running.clock.monotonic_s()
    for number, body in enumerate(load):
        wait_s = started_s + number / rate - running.clock.monotonic_s()
        if wait_s > 0:
            await running.clock.sleep(wait_s)
        yield partial(create_pod, running.transport, body, recorder)


async def _controllers(running: Cluster, load: list[PodBody], namespaces: int) -> None:
    """One ReplicationController per namespace; its pods equal the first of that namespace."""
    for number in range(namespaces):
        own = [body for body in load if body.namespace == f"{RUN}-{number}"]
        template = orjson.loads(own[0].body)
        labels = template["metadata"]["labels"]
        controller = {
            "apiVersion": "v1",
            "kind": "ReplicationController",
            "metadata": {"name": "load", "namespace": own[0].namespace},
            "spec": {
                "replicas": len(own),
                "selector": labels,
                "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
            },
        }
        path = f"/api/v1/namespaces/{own[0].namespace}/replicationcontrollers"
        answer = await running.transport.request("POST", path, body=orjson.dumps(controller))
        if answer.status != 201:
            raise LoadError(f"create of ReplicationController {own[0].namespace}/load answered {answer.status}")


def _tell(options: DensityOptions, saturation: Phase, latency: Phase, calls: Mapping[str, Mapping[str, float]]) -> bool:
    rates = (saturation.pods_per_s, saturation.bound_per_s["p50"], saturation.bound_per_s["max"])
    # Pods that are bound at one moment, as in virtual time, have no rate.
    pods_per_s, p50, most = ("-" if math.isnan(rate) else f"{rate:,.0f}" for rate in rates)
    print(
        f"\nsaturation: {saturation.pods:,} pods Running on {options.nodes:,} nodes in {saturation.duration_s:.1f} s "
        f"({pods_per_s} pods/s; bound per second: p50 {p50}, max {most})"
    )
    report.print_latencies(latency.latencies)
    report.print_table(_calls_table(calls))
    p99_s = latency.latencies["by_call"]["running"]["p99_ms"] / 1000
    good = p99_s <= THRESHOLD_S
    verdict = "within" if good else "above"
    print(f"\npod startup p99 by call {p99_s:.3f} s: {verdict} the threshold of {THRESHOLD_S:g} s")
    return good


def _last_stage(phase: Phase) -> dict[str, dict[str, float]]:
    name = "bound to running"
    return {name: phase.latencies["stages"][name]}


def _calls_table(calls: Mapping[str, Mapping[str, float]]) -> report.Table:
    title = f"API calls by the server's SLI histogram, whose first bucket ends at {metrics.FIRST_BOUND_MS} ms"
    table = report.Table(title, ("", "calls", "p50 ms", "p90 ms", "p99 ms"))
    for name, figures in calls.items():
        values_ms = (figures[key] for key in ("p50_ms", "p90_ms", "p99_ms"))
        cells = (
            f"under {metrics.FIRST_BOUND_MS}" if value_ms <= metrics.FIRST_BOUND_MS else report.milliseconds(value_ms)
            for value_ms in values_ms
        )
        table.add(name, f"{int(figures['count']):,}", *cells)
    return table


def _write(
    folder: Path,
    environment: Environment,
    options: DensityOptions,
    saturation: Phase,
    latency: Phase,
    calls: Mapping[str, Mapping[str, float]],
    good: bool,
) -> list[Path]:
    startup = {**latency.latencies["by_call"], **_last_stage(latency)}
    figures = {
        "options": asdict(options),
        "saturation": {**asdict(saturation), "pods_per_s": round(saturation.pods_per_s, 1)},
        "latency": {**asdict(latency), "threshold_s": THRESHOLD_S, "within_threshold": good},
        "api_calls": calls,
        "perf_data": report.perf_data(startup),
    }
    paths = [report.write_json(folder, "density", environment, figures)]
    if not plots.available():
        print(plots.MISSING)
        return paths
    figure, axes = plots.figure(1, 2, (12.5, 4.2))
    title = f"Saturation: {saturation.pods:,} pods, {options.nodes:,} nodes, {saturation.pods_per_s:,.0f} pods/s"
    plots.draw_latency_bars(axes[0][0], {**saturation.latencies["by_watch"], **_last_stage(saturation)}, title)
    title = f"Single pods, {options.latency_rate:g} pods/s, on the full cluster"
    plots.draw_latency_bars(axes[0][1], startup, title)
    axes[0][1].axhline(THRESHOLD_S * 1000, color=plots.GREY, linestyle="--", linewidth=1)
    figure.text(0.01, -0.06, "; ".join(environment.lines()), fontsize=7, color=plots.GREY)
    return [*paths, plots.save(figure, folder / "density.png")]
