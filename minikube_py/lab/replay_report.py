"""`minikube-py replay`: one replay on a separate control plane, with tables, JSON and a chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from minikube_py.lab import plots, report
from minikube_py.lab.cluster import Ground, cluster
from minikube_py.lab.environment import Environment
from minikube_py.lab.load import IN_FLIGHT
from minikube_py.lab.progress import progress
from minikube_py.lab.replay import Replay
from minikube_py.lab.trace import OPENB, of_day, trace_named
from minikube_py.lab.workload import trace_nodes


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """`speed`: trace seconds per second, 0 for no delay. `pods`: only the first ones. `day`: only pods that arrive on
    that day, counted from 0; in order, each at its time."""

    departures: bool = False
    speed: float = 0.0
    pods: int | None = None
    tables: Path | None = None
    day: int | None = None
    trace: str = OPENB


async def run_replay(options: ReplayOptions, ground: Ground, results: Path) -> None:
    """Prints progress. Raises: MinikubeError of every kind; nothing is left running."""
    report.require_writable(results)
    trace = trace_named(options.trace, options.tables)
    if options.day is not None:
        trace = of_day(trace, options.day)
    trace = replace(trace, pods=trace.pods[: options.pods])
    async with cluster(trace_nodes(trace.nodes), ground) as running:
        running.environment.tell()
        in_flight = IN_FLIGHT if options.day is None else 1
        replay = Replay(trace, running.transport, running.clock, in_flight)
        with progress("pods", len(trace.pods)) as shown:
            if options.departures:
                await replay.run_with_departures(shown, options.speed)
            else:
                await replay.run(shown)
        environment = running.environment
    figures = _figures(replay, options)
    _tell(figures)
    folder = report.results_folder(results, f"replay-{options.trace}", datetime.now())
    report.print_written(_write(folder, environment, replay, figures, ground.virtual is not None))


def _figures(replay: Replay, options: ReplayOptions) -> dict[str, Any]:
    recorder = replay.recorder
    return {
        "options": {**asdict(options), "tables": str(options.tables or "")},
        "pods": len(recorder.pods),
        "pods_running": recorder.running,
        "pods_unschedulable": len(recorder.unschedulable),
        "pods_live_max": replay.live_max,
        "placements": replay.placements_sum(),
        "gpu_allocated_share": round(replay.allocated_share, 4),
        "replay_s": round(replay.duration_s, 3),
        "pods_per_s": round(recorder.running / replay.duration_s, 1),
        "latencies": recorder.summaries(),
    }


def _tell(figures: Mapping[str, Any]) -> None:
    print(
        f"\n{figures['pods_running']:,} of {figures['pods']:,} pods became Running in {figures['replay_s']:.1f} s "
        f"({figures['pods_per_s']:,.0f} pods/s); at most {figures['pods_live_max']:,} existed at once; "
        f"{figures['gpu_allocated_share']:.1%} of the GPUs are allocated at the end"
    )
    print(f"placements {figures['placements']}: SHA-256 over each pod and its node, in the trace's order")
    if figures["pods_unschedulable"]:
        print(f"{figures['pods_unschedulable']:,} pods fit on no node and stay Pending")
    report.print_latencies(figures["latencies"])


def _write(
    folder: Path, environment: Environment, replay: Replay, figures: Mapping[str, Any], virtual: bool
) -> list[Path]:
    latencies = {**figures["latencies"]["by_call"], **figures["latencies"]["stages"]}
    paths = [report.write_json(folder, "replay", environment, {**figures, "perf_data": report.perf_data(latencies)})]
    if not plots.available():
        print(plots.MISSING)
        return paths
    figure, axes = plots.figure(1, 2, (12.5, 4.2))
    if figures["options"]["departures"]:
        plots.draw_line(axes[0][0], replay.live_series, "Pods that live", "pods")
    else:
        plots.draw_heat(axes[0][0], replay.series, "How full each node's GPUs are (%)", "nodes, fullest first")
    plots.draw_latency_bars(axes[0][1], latencies, "Pod latency, creation to Running")
    axes[0][1].set_xlabel("create call, bound, running: since the create request; others: between two watch events")
    if virtual:
        axes[0][0].set_xlabel("virtual seconds since the first pod")
        axes[0][1].set_ylabel(f"{axes[0][1].get_ylabel()} of virtual time")
    figure.text(0.01, -0.06, "; ".join(environment.lines()), fontsize=7, color=plots.GREY)
    return [*paths, plots.save(figure, folder / "replay.png")]
