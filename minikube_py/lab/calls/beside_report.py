"""Both recordings side by side: calls per pod by phase, each program's own counters; tables, JSON, a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from minikube_py.control_plane.config import Step
from minikube_py.env import SystemClock
from minikube_py.lab import plots, report
from minikube_py.lab.calls import tables
from minikube_py.lab.calls.beside import Counted, UpstreamRun
from minikube_py.lab.calls.phases import OF_PODS, PHASES, Phase, by_phase, per_pod
from minikube_py.lab.calls.recorded import RecordedControlPlane
from minikube_py.lab.calls.recorder import KEPT_MAX, Recorder
from minikube_py.lab.cluster import Ground
from minikube_py.lab.density import DensityOptions, run_density
from minikube_py.lab.environment import describe
from minikube_py.lab.load import LoadError
from minikube_py.lab.report import Table

Sides = Mapping[str, Counter[tuple[Phase, str, str]]]
UPSTREAM: Final = "upstream"
OURS: Final = "minikube_py"
COUNTERS_SHOWN: Final = 25


async def run_beside(
    options: DensityOptions, script: Path, *, data_dir: Path | None, results: Path, step: Step
) -> dict[str, Any]:
    """Both runs, one after the other, then the comparison; its figures. Raises: MinikubeError of every kind."""
    report.require_writable(results)
    theirs, ours = UpstreamRun(script), Recorder(SystemClock())
    on = partial(theirs.cluster, results=results, step=step)
    await run_density(options, Ground(step=step), results, on)
    plane = partial(RecordedControlPlane, ours)
    await run_density(options, Ground(step=step, data_dir=data_dir, seed=options.seed, plane=plane), results)
    recorders = {UPSTREAM: theirs.recording.recorder, OURS: ours}
    sides = {name: _phases(recorder) for name, recorder in recorders.items()}
    pods = options.pods + options.latency_pods
    for table in (phase_table(sides, pods), call_table(sides, pods), *counter_tables(theirs.counted)):
        report.print_table(table)
    for line in theirs.counted.disagreements():
        print(f"etcd and the proxy do not agree: {line}")
    figures = {
        "options": asdict(options), "pods": pods,
        "per_pod": {name: per_pod(side, pods) for name, side in sides.items()},
        "calls": {name: _rows(side, pods) for name, side in sides.items()},
        "histogram": {name: tables.figures(each, each.clock.monotonic_s()) for name, each in recorders.items()},
        "counters": {**asdict(theirs.counted), "disagreements": theirs.counted.disagreements()},
    }  # fmt: skip
    environment = describe(results, "upstream: one process for each part; ours: one process")
    folder = report.results_folder(results, "calls-beside", datetime.now())
    written = [report.write_json(folder, "calls-beside", environment, figures)]
    if plots.available():
        written.append(draw(figures, "; ".join(environment.lines()), folder / "calls-beside.png"))
    else:
        print(plots.MISSING)
    report.print_written(written)
    return figures


def _phases(recorder: Recorder) -> Counter[tuple[Phase, str, str]]:
    """Raises: LoadError if calls are missing, so that phases are unknown."""
    if len(recorder.kept) == KEPT_MAX:
        raise LoadError(f"more than {KEPT_MAX:,} messages; fewer --pods can be compared")
    return by_phase(recorder.between(0.0, recorder.clock.monotonic_s()))


def phase_table(sides: Sides, pods: int) -> Table:
    table = Table(f"Calls to the store for each of {pods:,} pods, by phase", ("phase", *sides, "times"))
    each = [per_pod(side, pods) for side in sides.values()]
    for phase in PHASES:
        theirs, ours = each[0][phase], each[1][phase]
        table.add(phase, *(f"{side[phase]:.2f}" for side in each), f"{theirs / ours:.1f}" if ours else "-")
    return table


def call_table(sides: Sides, pods: int) -> Table:
    table = Table("The same by call, of what belongs to pods", ("phase", "call", "resource", *sides))
    for phase in OF_PODS:
        keys = dict.fromkeys(key for side in sides.values() for key, _ in side.most_common() if key[0] == phase)
        for key in keys:
            counts = [side[key] / pods for side in sides.values()]
            if max(counts) >= 0.005:
                table.add(*key, *(f"{count:.2f}" for count in counts))
    return table


def counter_tables(counted: Counted) -> tuple[Table, Table]:
    """The counters of etcd and kube-apiserver."""
    own = Table("Upstream's own counters: etcd's answers, beside the proxy's", ("method", "etcd", "proxy"))
    for name, count in sorted(counted.etcd_handled.items(), key=lambda item: -item[1]):
        low, high = counted.proxied.get(name, (0, 0))
        own.add(name, f"{count:,.0f}", f"{low:,}" if low == high else f"{low:,} to {high:,}")
    for name, count in sorted(counted.etcd_mvcc.items()):
        own.add(name, f"{count:,.0f}", "")
    asked = Table("kube-apiserver's etcd_request_duration_seconds_count", ("operation, resource", "calls"))
    ordered = sorted(counted.api_server.items(), key=lambda item: -item[1])
    for name, count in ordered[:COUNTERS_SHOWN]:
        asked.add(name, f"{count:,.0f}")
    rest = sum(count for _, count in ordered[COUNTERS_SHOWN:])
    if rest:
        asked.add(f"{len(ordered) - COUNTERS_SHOWN} others", f"{rest:,.0f}")
    return own, asked


def _rows(side: Counter[tuple[Phase, str, str]], pods: int) -> list[dict[str, Any]]:
    return [
        {"phase": phase, "call": text, "resource": resource, "count": count, "per_pod": round(count / pods, 4)}
        for (phase, text, resource), count in side.most_common()
    ]


def draw(figures: Mapping[str, Any], below: str, path: Path) -> Path:
    """A bar for each call that belongs to pods, upstream's above ours. `figures` as in the JSON file."""
    sides = {
        name: {(row["phase"], row["call"], row["resource"]): row["count"] / figures["pods"] for row in rows}
        for name, rows in figures["calls"].items()
    }
    keys = dict.fromkeys(key for phase in OF_PODS for side in sides.values() for key in side if key[0] == phase)
    shown = [key for key in keys if max(side.get(key, 0) for side in sides.values()) >= 0.05]
    made, axes = plots.figure(1, 1, (7.6, 1.2 + 0.42 * len(shown)))
    chart, places = axes[0][0], range(len(shown))[::-1]
    for offset, colour, (name, side) in zip((0.2, -0.2), (plots.PALE, plots.SAFE[4]), sides.items(), strict=True):
        widths, heights = [side.get(key, 0) for key in shown], [place + offset for place in places]
        bars = chart.barh(heights, widths, 0.38, color=colour, label=name)
        chart.bar_label(bars, labels=[f"{width:.2f}" for width in widths], fontsize=7.5, padding=2)
        chart.annotate(name, (0.01, heights[0]), va="center", fontsize=8)
    words = (f"{phase}: {tables.words(*call.split(': ', 1))} of {resource}" for phase, call, resource in shown)
    chart.set_yticks(places, [text.replace("events: ", "Events: ", 1) for text in words], fontsize=8)
    chart.set_xlabel("calls to the store for each pod")
    chart.margins(x=0.12)
    chart.grid(axis="y", visible=False)
    theirs, ours = (sum(side.get(key, 0) for key in keys) for side in sides.values())
    title = f"A pod takes {theirs:.1f} calls to the store upstream, {ours:.1f} here"
    plots.entitle(made, f"{title}\n\nMean of {figures['pods']:,} pods in one run of each")
    made.text(0.01, -0.06, below, fontsize=6, color=plots.GREY)
    return plots.save(made, path)
