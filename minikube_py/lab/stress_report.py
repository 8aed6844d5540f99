"""The report of `bench schedule`: one row per variant, one JSON file and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from minikube_py.lab import plots, report
from minikube_py.lab.environment import Environment
from minikube_py.lab.stress import Outcome

COLUMNS = (
    "nodes, sampling, matcher",
    "pods/s",
    "p50 of 1 s",
    "CPU ms/pod",
    "decision µs",
    "bound",
    "fit nowhere",
    "left",
    "asked",
    "found each",
    "store p50, p99 ms",
)


def name_of(outcome: Outcome) -> str:
    options = outcome.options
    return f"{options.nodes:,} {options.sampling} {options.matcher}"


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    options = outcomes[0].options
    title = (
        f"{options.pods:,} pods by the mix {options.mix!r}, of which {options.repetition:.0%} repeat a shape; nodes "
        f"{options.utilisation:.1%} full, {options.churn:.0%} of pods leave; {options.members} store member(s)"
    )
    table = report.Table(title, COLUMNS)
    for each in outcomes:
        asked = each.matcher.get("asked", 0)
        table.add(
            name_of(each),
            f"{each.pods_per_s:,.0f}",
            f"{each.bound_per_s['p50']:,.0f}",
            f"{each.cpu_ms_per_pod:.2f}",
            f"{each.decision_us:,.0f}",
            f"{each.verdict.bound:,}",
            f"{each.verdict.pending:,}",
            f"{each.left:,}",
            f"{asked:,}" if each.matcher else "-",
            f"{each.matcher['found'] / asked:,.0f}" if asked else "-",
            f"{each.store['p50_ms']:.2f}, {each.store['p99_ms']:.1f}" if each.store else "-",
        )
    report.print_table(table)
    print("every pod fits where it was bound, at each revision; those left pending fit nowhere", flush=True)


def write_outcomes(base: Path, environment: Environment, outcomes: Sequence[Outcome]) -> list[Path]:
    """Raises: ReportError."""
    folder = report.results_folder(base, "schedule", datetime.now())
    figures = {"runs": [_plain(each) for each in outcomes]}
    paths = [report.write_json(folder, "schedule", environment, figures)]
    if not plots.available():
        print(plots.MISSING)
        return paths
    width = max(8.0, 1.1 * len(outcomes) + 4)
    figure, axes = plots.figure(1, 2, (width, 4.4))
    names = [name_of(each).replace(" ", "\n") for each in outcomes]
    _bars(axes[0][0], names, [each.pods_per_s for each in outcomes], "Pods bound per second, end to end", plots.BLUE)
    title = "A decision of the scheduler, microseconds (mean)"
    _bars(axes[0][1], names, [each.decision_us for each in outcomes], title, plots.ORANGE)
    figure.text(0.01, -0.12, "; ".join(environment.lines()), fontsize=7, color=plots.GREY)
    return [*paths, plots.save(figure, folder / "schedule.png")]


def _plain(outcome: Outcome) -> dict[str, Any]:
    found = asdict(outcome)
    found["verdict"] = outcome.verdict._asdict()
    chosen = outcome.options.chosen
    del found["options"]["chosen"]
    found["options"]["scheduler_config"] = None if chosen.file is None else str(chosen.file)
    found["options"]["plugins"] = list(chosen.plugins)
    found["options"]["store_indexes"] = [index._asdict() for index in outcome.options.store_indexes]
    return found


def _bars(axes: Any, names: Sequence[str], heights: Sequence[float], title: str, colour: str) -> None:
    drawn = axes.bar(range(len(names)), heights, 0.7, color=colour)
    axes.bar_label(drawn, labels=[f"{height:,.0f}" for height in heights], fontsize=7, padding=1)
    axes.set_xticks(range(len(names)), names, fontsize=7)
    axes.set_title(title)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.12)
