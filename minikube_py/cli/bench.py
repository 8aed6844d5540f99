"""Measure a control plane of its own.

minikube-py bench density --nodes 5000 --pods 30000
minikube-py bench query --nodes 100000
minikube-py bench schedule --predicates all --nodes 1000,10000
minikube-py bench flow --nodes 1000,10000 --pods 10000
minikube-py bench scheduler-perf misc/performance-config.yaml --workload SchedulingBasic/500Nodes"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from minikube_py.cli import flags, forms, input_files, virtual
from minikube_py.cli.running import run_interruptible
from minikube_py.cli.terminal import started
from minikube_py.errors import WrongUsage

if TYPE_CHECKING:
    from minikube_py.cluster.virtual import VirtualCluster

DENSITY = """Fill nodes with pods as fast as they are taken, then create single pods at a steady rate on the full
cluster; their startup's 99th percentile must stay under 5 s (exit code 1 otherwise)."""
QUERY = """Query many nodes for those with enough free: with the index in the store, with range, decode and filter in
the store, and both through the API."""
SCHEDULE = """Schedule pods with large requests (cpu, memory, GPUs and shares of them, labels in ranges) on nodes
that are nearly full, through API, store and binding, while other pods are deleted; with an index as the scheduler's
node matcher, or in the store. Several values of --nodes, --sampling and --matcher give one run for each combination.
A final check exits with code 1 if a pod is on a node that it does not fit, or is pending although it fits on one."""
FLOW = """One round of flow scheduling, without a control plane: how long the graph, the solver and repair take. For
pods from create to bind, run bench density with a --scheduler-config that enables FlowPlacement, and without."""
PERF = """Run the workloads of one of upstream's scheduler_perf files as they are, each on a control plane of its own.
The figures are those of upstream's benchmark, as a table and as PerfData JSON. Workloads that cannot run here are
refused with the reason; --list shows them. Exit code 1 where one failed or missed its threshold."""

RUN, LIST = "a run", "--list"
RUN_ALONE = ("topic", "scheduler_config", "plugins", "data_dir", "virtual", "results", "seed")

LATENCY_PODS_MAX = 500
"""What ClusterLoader2 takes at least; it takes one for each node beyond."""


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", metavar="|".join(PARTS), required=True)
    for name, part in PARTS.items():
        part.configure(commands.add_parser(name, help=part.help, description=part.about, allow_abbrev=False))


def _configure_density(parser: argparse.ArgumentParser) -> None:
    flags.add_nodes(parser, 5000, "how many fake nodes", low=1)
    count = flags.whole_number(1, 10_000_000)
    parser.add_argument("--pods", type=count, default=30_000, metavar="N", help="how many pods (default: 30,000)")
    latency_help = "how many single pods in the latency phase (default: one for each ten pods, at most 500)"
    parser.add_argument("--latency-pods", type=count, metavar="N", help=latency_help)
    rate_help = "single pods per second (default: 5, as ClusterLoader2)"
    parser.add_argument("--latency-rate", type=flags.per_second, default=5.0, metavar="R", help=rate_help)
    controllers_help = "let ReplicationControllers make the pods (default: the load makes them itself)"
    parser.add_argument("--controllers", action="store_true", help=controllers_help)
    in_flight_help = "create requests in flight at once (default: 64)"
    parser.add_argument("--in-flight", type=flags.whole_number(1, 4096), default=64, metavar="N", help=in_flight_help)
    flags.add_scheduler_config(parser)
    flags.add_run(parser, virtual=True)
    flags.add_page(parser, "with --virtual: the run")


def _configure_query(parser: argparse.ArgumentParser) -> None:
    flags.add_nodes(parser, 100_000, "how many nodes", low=1)
    pods_help = "how many bound pods they have (default: as many as nodes)"
    parser.add_argument("--pods", type=flags.whole_number(0, 1_000_000), metavar="N", help=pods_help)
    flags.add_run(parser, split=False)


def _configure_schedule(parser: argparse.ArgumentParser) -> None:
    mix_help = "what the pods request: cpu-memory, gpu (shares, models), labels (Gt, Lt, In, NotIn), all (default: all)"
    mixes = ("cpu-memory", "gpu", "labels", "all")
    parser.add_argument("--predicates", choices=mixes, default="all", help=mix_help)
    counts = flags.several(flags.whole_number(1, flags.NODES_MAX))
    nodes_help = "how many nodes; several with commas (default: 1000)"
    parser.add_argument("--nodes", type=counts, default=(1000,), metavar="N,...", help=nodes_help)
    count = flags.whole_number(1, 1_000_000)
    parser.add_argument("--pods", type=count, default=2000, metavar="N", help="how many pods (default: 2,000)")
    full_help = "share of the nodes' capacity that bound pods use at the start, 0 to 0.999 (default: 0.97)"
    parser.add_argument("--utilisation", type=flags.share(0.999), default=0.97, metavar="U", help=full_help)
    churn_help = "share of bound pods that are deleted after a while, 0 to 1 (default: 1)"
    parser.add_argument("--churn", type=flags.share(1), default=1.0, metavar="C", help=churn_help)
    repetition_help = "share of pods that repeat an earlier request, 0 to 1 (default: 0)"
    parser.add_argument("--repetition", type=flags.share(1), default=0.0, metavar="R", help=repetition_help)
    sampling_help = "score all nodes that fit, or as many as upstream; several with commas (default: all)"
    samplings = flags.several(flags.one_of("all", "upstream"))
    parser.add_argument("--sampling", type=samplings, metavar="all|upstream", help=sampling_help)
    matcher_help = (
        "what finds candidate nodes: columns (filters check all nodes), a structure of the index family, or "
        "FILE.py:CLASS; several with commas; family for columns and all of these (default: columns)"
    )
    matchers = flags.several(lambda text: text if text == "family" else flags.matcher(text))
    parser.add_argument("--matcher", type=matchers, default=("columns",), metavar="M,...", help=matcher_help)
    parser.add_argument(
        "--store-index", type=flags.checked("lab.stress_runs:store_index"), action="append", default=[],
        metavar="NAME=STRUCTURE", help="declare an index of the store over the nodes' free resources; repeatable",
    )  # fmt: skip
    ask_help = "ask the store for a node with room for each pod before it is created; implied by --store-index"
    parser.add_argument("--ask-store", action="store_true", help=ask_help)
    members_help = "how many members the store has; with several each is a process of its own (default: 1)"
    parser.add_argument("--members", type=int, choices=(1, 3, 5), default=1, help=members_help)
    in_flight_help = "create requests in flight at once (default: 64)"
    parser.add_argument("--in-flight", type=flags.whole_number(1, 4096), default=64, metavar="N", help=in_flight_help)
    flags.add_scheduler_config(parser)
    flags.add_run(parser, split=False, virtual=True)


def _configure_flow(parser: argparse.ArgumentParser) -> None:
    counts = flags.several(flags.whole_number(1, flags.NODES_MAX))
    parser.add_argument(
        "--nodes", type=counts, default=(1000, 10_000), metavar="N,...", help="how many nodes (default: 1000,10000)"
    )
    count = flags.whole_number(1, 1_000_000)
    parser.add_argument("--pods", type=count, default=10_000, metavar="N", help="how many pods (default: 10,000)")
    classes_help = "number of different pod specifications (default: 1)"
    parser.add_argument("--classes", type=count, default=1, metavar="C", help=classes_help)
    models = flags.several(flags.checked("scheduler.flow.models:model_named", {}, random.Random(0)))
    model_help = "cost models, several with commas (default: CPU_MEM)"
    parser.add_argument("--model", type=models, default=("CPU_MEM",), metavar="M,...", help=model_help)
    solver_help = "ortools, lemon, numpy; several with commas (default: the fastest that is installed)"
    solvers = flags.several(flags.checked("scheduler.flow.solvers:solver_named"))
    parser.add_argument("--solver", type=solvers, default=("auto",), metavar="S,...", help=solver_help)
    flags.add_results(parser, "JSON")


def _configure_perf(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=input_files.file, metavar="FILE", help="such as misc/performance-config.yaml")
    workload_help = "TEST or TEST/WORKLOAD, * and ? stand for any; repeatable (default: all by --labels)"
    parser.add_argument("--workload", action="append", default=[], metavar="NAME", help=workload_help)
    labels_help = (
        "only workloads with these labels, and without those after a minus (default: integration-test,-performance; "
        "none with --workload or --list)"
    )
    parser.add_argument("--labels", metavar="L,-L,...", help=labels_help)
    topic_help = "which topic's thresholds to use if a workload has several (default: by the file's folder)"
    parser.add_argument("--topic", metavar="NAME", help=topic_help)
    parser.add_argument("--list", action="store_true", help="only list the workloads, and which of them are refused")
    flags.add_scheduler_config(parser)
    flags.add_run(parser, split=False, virtual=True)
    forms.watch(parser)


def run(arguments: argparse.Namespace) -> int:
    return PARTS[arguments.command].run(arguments)


def _density(arguments: argparse.Namespace) -> int:
    from minikube_py.lab.cluster import Ground
    from minikube_py.lab.density import DensityOptions, run_density

    options = DensityOptions(
        nodes=arguments.nodes,
        pods=arguments.pods,
        latency_pods=arguments.latency_pods or min(LATENCY_PODS_MAX, max(1, arguments.pods // 10)),
        latency_rate=arguments.latency_rate,
        controllers=arguments.controllers,
        in_flight=arguments.in_flight,
        seed=arguments.seed,
    )
    chosen = flags.run_by(arguments)
    steps = started()

    ground = Ground(
        step=steps.done, split=arguments.split, data_dir=arguments.data_dir, seed=arguments.seed, chosen=chosen
    )

    def density(cluster: VirtualCluster | None = None) -> Coroutine[Any, Any, bool]:
        return run_density(options, replace(ground, virtual=cluster), arguments.results)

    if virtual.asked(arguments):
        good = virtual.run(options.seed, density, page=arguments.page)
    else:
        good = run_interruptible(density())
    return 0 if good else 1


def _flow(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.table import table
    from minikube_py.env import SystemClock
    from minikube_py.lab import flow_rounds, report

    asked = arguments.model, arguments.solver, arguments.nodes, arguments.pods, arguments.classes
    report.require_writable(arguments.results)
    found = list(flow_rounds.measured(SystemClock(), *asked))
    rows = [
        [each.model, each.solver, *(f"{n:,}" for n in (each.nodes, each.pods, each.classes, each.arcs)),
         *(f"{s:.3f}" for s in (each.graph_s, each.solve_s, each.repair_s, each.total_s)),
         f"{each.placed:,}", f"{each.turned_down:,}"]
        for each in found
    ]  # fmt: skip
    heads = ["MODEL", "SOLVER", "NODES", "PODS", "CLASSES", "ARCS", "GRAPH s", "SOLVER s", "REPAIR s", "ROUND s"]
    print(table([*heads, "PLACED", "REPAIRED"], rows, set(heads[2:]) | {"PLACED", "REPAIRED"}))
    report.print_written([flow_rounds.write(found, arguments.results)])
    return 0


def _query(arguments: argparse.Namespace) -> int:
    from minikube_py.lab.query import QueryOptions, run_query

    pods = arguments.nodes if arguments.pods is None else arguments.pods
    options = QueryOptions(nodes=arguments.nodes, pods=pods, seed=arguments.seed)
    run_interruptible(run_query(options, data_dir=arguments.data_dir, results=arguments.results, step=started().done))
    return 0


def _schedule(arguments: argparse.Namespace) -> int:
    from minikube_py.lab.stress import StressOptions
    from minikube_py.lab.stress_runs import run_all, run_all_virtually, store_index, variants

    indexes = tuple(map(store_index, arguments.store_index))
    as_given = ("pods", "utilisation", "churn", "repetition", "members", "in_flight", "seed")
    each = StressOptions(
        **{name: getattr(arguments, name) for name in as_given},
        mix=arguments.predicates,
        store_indexes=indexes,
        ask_store=arguments.ask_store or bool(indexes),
        chosen=flags.run_by(arguments),
    )
    runs = variants(each, arguments.nodes, arguments.sampling or ("all",), arguments.matcher)
    if arguments.sampling and arguments.scheduler_config:
        raise WrongUsage("--scheduler-config sets how many nodes are scored; remove --sampling")
    if virtual.asked(arguments):
        good = run_all_virtually(runs, again=virtual.again(), results=arguments.results, step=started().done)
        return 0 if good else 1
    run = run_all(runs, data_dir=arguments.data_dir, results=arguments.results, step=started().done)
    return 0 if run_interruptible(run) else 1


def _perf(arguments: argparse.Namespace) -> int:
    from minikube_py.lab.scheduler_perf import runs

    forms.require(arguments, LIST if hasattr(arguments, "list") else RUN, dict.fromkeys(RUN_ALONE, (RUN,)))
    labels, topic = arguments.labels, arguments.topic or runs.topic_of(arguments.file)
    if labels is None:
        labels = "" if arguments.workload or arguments.list else runs.DEFAULT_LABELS
    plan = runs.Plan(arguments.file, arguments.workload, labels, topic, arguments.seed, flags.run_by(arguments))
    with input_files.wrong_value("FILE"):
        plan.runs()
    if arguments.list:
        runs.show(plan)
        return 0
    if virtual.asked(arguments):
        good = runs.run_all_virtually(plan, again=virtual.again(), results=arguments.results, step=started().done)
        return 0 if good else 1
    run = runs.run_all(plan, data_dir=arguments.data_dir, results=arguments.results, step=started().done)
    return 0 if run_interruptible(run) else 1


class _Part(NamedTuple):
    help: str
    about: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


PARTS = {
    "density": _Part("pods on nodes", DENSITY, _configure_density, _density),
    "query": _Part("inequalities over many nodes", QUERY, _configure_query, _query),
    "schedule": _Part("pods by inequalities", SCHEDULE, _configure_schedule, _schedule),
    "flow": _Part("rounds of flow scheduling", FLOW, _configure_flow, _flow),
    "scheduler-perf": _Part("upstream's workloads", PERF, _configure_perf, _perf),
}
