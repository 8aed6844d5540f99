"""Compare two schedulers on the same pods: both configurations place the pods of a trace, in an order that each seed
draws, in virtual time. The results are printed side by side, with intervals and a paired test.

  minikube-py compare default pack.yaml --seeds 10 --scheduler-only
  minikube-py compare default mine.yaml --plugin mine.py:BestFit --pods 2000 --nodes 300

The same command writes the same bytes: JSON and picture contain no times or paths."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py import own_code
from minikube_py.cli import flags, input_files, virtual
from minikube_py.cli.table import table
from minikube_py.errors import MinikubeError, WrongUsage

if TYPE_CHECKING:
    from minikube_py.lab.compare.compare import Comparison
    from minikube_py.lab.statistics import Interval
    from minikube_py.scheduler.configuration.chosen import ChosenScheduler

DEFAULT = "default"
PODS, NODES = 1000, 150


def configure(parser: argparse.ArgumentParser) -> None:
    what = f"a KubeSchedulerConfiguration; `{DEFAULT}` for upstream's default plugins"
    parser.add_argument("first", type=_configuration, metavar="A", help=what)
    parser.add_argument("second", type=_configuration, metavar="B", help="another")
    trace_help = "whose pods and nodes: openb, or an entry point of minikube_py.traces (default: openb)"
    parser.add_argument("--trace", type=flags.TRACE, default="openb", metavar="NAME", help=trace_help)
    many = flags.whole_number(1, 10_000)
    parser.add_argument("--seeds", type=many, default=10, metavar="N", help="how many runs of each (default: 10)")
    seed_help = "the first seed; the others follow (default: 0)"
    parser.add_argument("--seed", type=flags.whole_number(0, 2**63 - 1), default=0, metavar="S", help=seed_help)
    count = flags.whole_number(0, 10_000_000)
    pods_help = f"number of pods of the trace, drawn by the seed; 0 for all (default: {PODS:,})"
    parser.add_argument("--pods", type=count, default=PODS, metavar="N", help=pods_help)
    nodes_help = f"the first N nodes of the trace, the same for each seed; 0 for all (default: {NODES})"
    parser.add_argument("--nodes", type=count, default=NODES, metavar="N", help=nodes_help)
    important_help = "the share of pods that may preempt the others, 0 to 1 (default: 0)"
    parser.add_argument("--important", type=flags.share(1), default=0.0, metavar="P", help=important_help)
    only_help = "scheduling decisions only, on nodes in memory: no API, store, kubelet or clock; about ten times faster"
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--scheduler-only", action="store_true", help=only_help)
    virtual_help = "over the whole control plane in virtual time (the default)"
    which.add_argument("--virtual", action="store_true", help=virtual_help)
    plugin_help = "a plugin of your own, for B only unless A names it; repeatable"
    parser.add_argument(
        "--plugin", type=own_code.absolute, action="append", default=[], metavar="FILE.py:CLASS", help=plugin_help
    )
    flags.add_results(parser, "JSON and picture")
    parser.add_argument("--png", action="store_true", help="the picture as .png (default: .svg)")
    flags.add_page(parser, "both runs of the first seed, side by side,")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.set_defaults(parser=parser)


def _configuration(text: str) -> str:
    return text if text == DEFAULT else str(input_files.file(text))


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.lab import plots, report
    from minikube_py.lab.compare.compare import CompareOptions, as_json, draw, read, run_compare
    from minikube_py.scheduler.framework import PluginError

    if arguments.page is not None and arguments.scheduler_only:
        raise WrongUsage("--scheduler-only has no timeline for a page; remove one of them")
    names = _names(arguments.first, arguments.second, bool(arguments.plugin))
    plugins = tuple(arguments.plugin)
    options = CompareOptions(
        first=(names[0], _chosen(arguments.first, (), plugins)),
        second=(names[1], _chosen(arguments.second, plugins, ())),
        seeds=arguments.seeds,
        seed=arguments.seed,
        pods=arguments.pods or None,
        nodes=arguments.nodes or None,
        important=arguments.important,
        alone=arguments.scheduler_only,
        recorded=arguments.page is not None,
        trace=arguments.trace,
    )
    for flag, (_, chosen) in (("A", options.first), ("B", options.second)):
        flags.require_scheduler(chosen, flag, needed="default-scheduler")
        with input_files.wrong_value(flag):
            read(chosen, options.alone)
    report.require_writable(arguments.results)
    try:
        comparison = run_compare(options, lambda text: print(f"  {text}", file=sys.stderr, flush=True))
    except PluginError as error:
        raise MinikubeError(f"the comparison ends with a plugin's first error: {error}") from error
    document = as_json(comparison)
    print(document.decode() if arguments.json else _told(comparison), end="" if arguments.json else "\n")
    folder = report.results_folder(arguments.results, "compare", datetime.now())
    written = [folder / "compare.json"]
    written[0].write_bytes(document)
    if plots.available():
        written.append(draw(comparison, folder / ("compare.png" if arguments.png else "compare.svg")))
    else:
        print(plots.MISSING, file=sys.stderr)
    if arguments.page is not None:
        virtual.write_page(arguments.page, comparison.recordings, sys.stderr if arguments.json else sys.stdout)
    report.print_written(written, sys.stderr if arguments.json else None)
    return 0


def _chosen(text: str, plugins: tuple[str, ...], known: tuple[str, ...]) -> ChosenScheduler:
    from minikube_py.scheduler.configuration.chosen import ChosenScheduler

    return ChosenScheduler(None if text == DEFAULT else Path(text).absolute(), plugins, known)


def _names(first: str, second: str, with_plugin: bool) -> tuple[str, str]:
    one, other = (text if text == DEFAULT else Path(text).stem for text in (first, second))
    if one == other:
        return f"{one} (A)", f"{other} (B)" if not with_plugin else f"{other} + plugin"
    return one, other


def _told(comparison: Comparison) -> str:
    from minikube_py.lab.compare.compare import places_less

    options = comparison.options
    first, second = options.first[0], options.second[0]
    rows, named = [], {"first": first, "second": second, **places_less((first, second))}
    for measure, each in comparison.measures.items():
        better = named.get(each.better(measure.better), each.better(measure.better))
        chance = "-" if each.p_corrected is None else f"{each.p_corrected:.3f}"
        means = (_interval(mean) for mean in (each.mean_first, each.mean_second, each.difference))
        rows.append([f"{measure.name}, {measure.unit}", *means, chance, better])
    heads = ["MEASURE", first, second, "DIFFERENCE", "P", "BETTER"]
    digests = "".join(one + other for one, other in comparison.digests)
    over = "the scheduler alone" if options.alone else "the whole control plane in virtual time"
    where = f"{f'the first {options.nodes:,}' if options.nodes else 'all'} nodes of {options.trace}"
    return "\n".join(
        (
            f"\nmean of {options.seeds} seeds [95% intervals by Student's t over the seeds], over {over}, on {where}",
            table(heads, rows, set(heads[1:5])),
            *_notes(comparison),
            "P: probability of a mean difference at least this large if the two do not differ (paired sign-flip test), "
            "corrected for the number of rows where one can be better (Holm)",
            f"placements {sha256(digests.encode()).hexdigest()}: SHA-256 of the placements of all runs; the same "
            "command gives the same hash",
        )
    )


def _notes(comparison: Comparison) -> list[str]:
    """What the table does not say of its figures."""
    from minikube_py.lab.statistics import ALPHA, PLACES_LESS, p_min

    options, notes = comparison.options, []
    bound = next((each for measure, each in comparison.measures.items() if measure.of_bound), None)
    if bound is not None and any(bound.left_out):
        counts = _of_each(comparison, bound.left_out)
        told = "" if bound.same_pods else "; they are not the same pods, so that neither latency is called better"
        notes.append(f"latency leaves out the pods that were never bound, {counts} over all seeds{told}")
    for measure, runs in comparison.missing.items():
        notes.append(f"no row for {measure.name}: runs without such a figure: {_of_each(comparison, runs)}")
    if any(comparison.errors):
        notes.append(
            f"attempts that ended in an error, as where a plugin raises: {_of_each(comparison, comparison.errors)}; "
            "their pods count as unschedulable, unless a later attempt placed them"
        )
    if any(each.better(measure.better) in PLACES_LESS for measure, each in comparison.measures.items()):
        notes.append("places less: fewer pods, CPU, memory or GPUs than the other, which may be all that is better")
    rows = sum(each.can_differ for each in comparison.measures.values()) or 1
    if p_min(options.seeds) * rows > ALPHA:
        least = next(count for count in range(2, 100) if p_min(count) * rows <= ALPHA)
        notes.append(f"with fewer than {least} seeds P cannot be {ALPHA} or less, and nothing is called better")
    return notes


def _of_each(comparison: Comparison, counts: tuple[int, int]) -> str:
    names = comparison.options.first[0], comparison.options.second[0]
    return " and ".join(f"{count:,} of {name}" for count, name in zip(counts, names))


def _interval(interval: Interval) -> str:
    return f"{interval.value:.2f} [{f'{interval.low:.2f}, {interval.high:.2f}' if interval.is_known else 'unknown'}]"
