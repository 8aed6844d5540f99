"""`minikube-py compare`: two schedulers on the same pods, seed by seed, and the statistics of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import gt, lt
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.lab import plots
from minikube_py.lab.compare.alone import require_alone, run_alone
from minikube_py.lab.compare.figures import MEASURES, Ended, Measure, figures, placed_load
from minikube_py.lab.compare.whole import run_whole
from minikube_py.lab.compare.workload import Workload, drawn
from minikube_py.lab.statistics import NOT_THE_SAME, PLACES_LESS, SIDES, Compared, compared, corrected
from minikube_py.lab.trace import OPENB, TraceNode, trace_named
from minikube_py.scheduler.config import SchedulerConfig
from minikube_py.scheduler.configuration.chosen import ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler
from minikube_py.scheduler.extenders.asking import Extenders
from minikube_py.scheduler.objects import DEFAULT_SCHEDULER_NAME
from minikube_py.ui.recording import Recording

COLUMNS: Final = 4


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """`first`, `second`: names and configurations. `seeds`: how many, from `seed` on. `pods`, `nodes`: how many of the
    trace's, None for all. `important`: the share of pods with a higher priority. `recorded`: records the runs of the
    first seed, which requires the whole control plane."""

    first: tuple[str, ChosenScheduler]
    second: tuple[str, ChosenScheduler]
    seeds: int
    seed: int
    pods: int | None
    nodes: int | None
    important: float
    alone: bool
    recorded: bool = False
    trace: str = OPENB


@dataclass(frozen=True, slots=True)
class Comparison:
    """`measures`: those that both have in every run; `missing`: of the others, the runs without, of each. `digests`: by
    seed, of all placements by the first and by the second. `errors`: failed attempts over all seeds, of each."""

    options: CompareOptions
    measures: Mapping[Measure, Compared]
    digests: tuple[tuple[str, str], ...]
    recordings: tuple[Recording, ...]
    missing: Mapping[Measure, tuple[int, int]]
    errors: tuple[int, int]


def run_compare(options: CompareOptions, say: Callable[[str], None]) -> Comparison:
    """Deterministic for equal options. Raises: ConfigError, PluginError, SimFailure, LoadError."""
    for _, chosen in (options.first, options.second):
        read(chosen, options.alone)
    trace = trace_named(options.trace)
    nodes = trace.nodes[: options.nodes]
    runs: list[tuple[_Run, ...]] = []
    digests = []
    recordings: list[Recording] = []
    for seed in range(options.seed, options.seed + options.seeds):
        workload = drawn(nodes, trace.pods, options.pods, options.important, seed)
        ends = []
        for name, chosen in (options.first, options.second):
            say(f"seed {seed}: {name}, {len(workload.pods):,} pods on {len(nodes):,} nodes")
            recording = Recording(f"{name}, seed {seed}") if options.recorded and seed == options.seed else None
            if recording is not None:
                recordings.append(recording)
            ends.append(_run(options, chosen, workload, seed, recording))
        runs.append(tuple(_run_of(nodes, workload, end) for end in ends))
        digests.append((ends[0].digest, ends[1].digest))
    measures, errors = _measures(runs), (sum(run.errors for run, _ in runs), sum(run.errors for _, run in runs))
    return Comparison(options, measures, tuple(digests), tuple(recordings), _missing(runs, options.alone), errors)


def _run(
    options: CompareOptions, chosen: ChosenScheduler, workload: Workload, seed: int, recording: Recording | None
) -> Ended:
    # Recreated for each run, so that plugins keep no state.
    config = read(chosen, options.alone)
    return run_alone(workload, config, seed) if options.alone else run_whole(workload, config, seed, recording)


def read(chosen: ChosenScheduler, alone: bool) -> SchedulerConfig:
    """Raises: ConfigError, also for what such a run would ignore."""
    config = read_scheduler(chosen, needed=DEFAULT_SCHEDULER_NAME)
    # Simulated time has no external servers, so a configuration that names some is an error.
    Extenders(config.extenders, None)
    if alone:
        require_alone(config)
    return config


class _Run(NamedTuple):
    """`unbound`: the pods without a latency. `load`: what is placed."""

    figures: Mapping[str, float | None]
    unbound: frozenset[int]
    load: tuple[int, ...] = ()
    errors: int = 0


def _run_of(nodes: Sequence[TraceNode], workload: Workload, end: Ended) -> _Run:
    unbound = frozenset(range(len(workload.pods))) - set(end.latencies_s)
    return _Run(figures(nodes, workload.pods, end), unbound, placed_load(workload.pods, end), end.errors)


def _missing(runs: Sequence[Sequence[_Run]], alone: bool) -> dict[Measure, tuple[int, int]]:
    """The runs without a figure, of each. Decisions alone take no time, so that they have no latency."""
    found = {}
    for measure in MEASURES:
        first, second = ([run[side].figures[measure.name] for run in runs].count(None) for side in (0, 1))
        if (first or second) and not (alone and measure.of_bound):
            found[measure] = first, second
    return found


def _measures(runs: Sequence[Sequence[_Run]]) -> dict[Measure, Compared]:
    found = {}
    loads = [[sum(each) for each in zip(*(run[side].load for run in runs))] for side in (0, 1)]
    less = any(map(lt, *loads)), any(map(gt, *loads))
    for measure in MEASURES:
        pairs = [(first.figures[measure.name], second.figures[measure.name]) for first, second in runs]
        known = [(one, other) for one, other in pairs if one is not None and other is not None]
        if len(known) != len(pairs):
            continue
        found[measure] = compared([one for one, _ in known], [other for _, other in known])
        if measure.of_bound:
            left_out = sum(len(first.unbound) for first, _ in runs), sum(len(second.unbound) for _, second in runs)
            same = all(first.unbound == second.unbound for first, second in runs)
            found[measure] = found[measure]._replace(left_out=left_out, same_pods=same)
        if measure.of_placed:
            found[measure] = found[measure]._replace(less=less)
    return corrected(found)


def as_json(comparison: Comparison) -> bytes:
    """Byte-identical for equal options: without times and paths. The interval of a single seed has no ends: null."""
    options = comparison.options
    document: dict[str, Any] = {
        "first": options.first[0],
        "second": options.second[0],
        "over": "the scheduler alone" if options.alone else "the whole control plane in virtual time",
        "seeds": list(range(options.seed, options.seed + options.seeds)),
        "trace": options.trace,
        "pods": options.pods,
        "nodes": options.nodes,
        "important": options.important,
        "measures": {measure.name: _measure_json(measure, each) for measure, each in comparison.measures.items()},
        "missing": {measure.name: dict(zip(SIDES, runs)) for measure, runs in comparison.missing.items()},
        "errors": dict(zip(SIDES, comparison.errors)),
        "placements": [{"first": first, "second": second} for first, second in comparison.digests],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def _measure_json(measure: Measure, each: Compared) -> dict[str, Any]:
    return {
        "what": measure.what,
        "unit": measure.unit,
        "better": "more" if measure.better > 0 else "less",
        "first": each.first,
        "second": each.second,
        "mean_first": each.mean_first._asdict(),
        "mean_second": each.mean_second._asdict(),
        "difference": each.difference._asdict(),
        "p": each.p,
        "p_corrected": each.p_corrected,
        "better_is": each.better(measure.better),
        **({"left_out": dict(zip(SIDES, each.left_out))} if measure.of_bound else {}),
    }


def places_less(names: Sequence[str]) -> dict[str, str]:
    """With the scheduler's name, by what `Compared.better` says."""
    return {said: f"{name} places less" for said, name in zip(PLACES_LESS, names)}


LEGEND = "grey: one seed each, on the same nodes; points: means over the seeds; bars: 95 % intervals by Student's t"


def draw(comparison: Comparison, path: Path) -> Path:
    """One panel per measure: each seed as a line from first to second, and both means with intervals."""
    rows = -(-len(comparison.measures) // COLUMNS)
    figure, axes = plots.figure(rows, COLUMNS, (3.1 * COLUMNS, 2.9 * rows))
    figure.subplots_adjust(wspace=0.5)
    panels = list(axes.flat)
    names = [comparison.options.first[0], comparison.options.second[0]]
    verdicts = {"first": f"{names[0]} is better", "second": f"{names[1]} is better", "equal": "the same in every seed"}
    verdicts |= {NOT_THE_SAME: NOT_THE_SAME, **places_less(names)}
    for panel, (measure, each) in zip(panels, comparison.measures.items()):
        for pair in zip(each.first, each.second, strict=True):
            panel.plot((0, 1), pair, color=plots.GREY, alpha=0.45, linewidth=0.9)
        for place, mean, colour in ((0, each.mean_first, plots.BLUE), (1, each.mean_second, plots.ORANGE)):
            spread = [[mean.value - mean.low], [mean.high - mean.value]] if mean.is_known else None
            panel.errorbar([place], [mean.value], yerr=spread, fmt="o", color=colour, capsize=4, zorder=3)
        panel.set_xlim(-0.4, 1.4)
        panel.set_xticks((0, 1), names)
        panel.set_ylabel(measure.name if measure.unit in measure.name else f"{measure.name} ({measure.unit})")
        better = each.better(measure.better)
        if better == "equal":
            panel.set_ylim(min(0, *each.first), max(each.first) + 1)
        chance = "" if each.p_corrected is None or better == "equal" else f" (p {each.p_corrected:.2g})"
        panel.set_title(verdicts.get(better, "no difference shown") + chance, fontsize=9)
    for panel in panels[len(comparison.measures) :]:
        panel.set_visible(False)
    figure.text(0.01, -0.03, LEGEND, fontsize=8, color=plots.GREY)
    return plots.save(figure, path)
