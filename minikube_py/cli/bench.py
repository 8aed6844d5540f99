"""Measure a control plane of its own.

  minikube-py bench density --nodes 5000 --pods 30000
  minikube-py bench query --nodes 100000"""

from __future__ import annotations

import argparse

from minikube_py.cli import flags
from minikube_py.cli.running import run_interruptible
from minikube_py.cli.terminal import started

DENSITY = """Fill nodes with pods as fast as they are taken, then create single pods at a steady rate beside the full
cluster; their startup's 99th percentile must stay under 5 s (exit code 1 where it does not)."""
QUERY = """Ask which nodes have so much free, of many nodes: by the index in the store, by range, decode and filter in
the store, and both through the API."""

LATENCY_PODS_MAX = 500
"""What ClusterLoader2 takes at least; it takes one for each node beyond."""


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", metavar="density|query", required=True)
    _configure_density(commands.add_parser("density", help="pods on nodes", description=DENSITY, allow_abbrev=False))
    query = commands.add_parser("query", help="inequalities over many nodes", description=QUERY, allow_abbrev=False)
    _configure_query(query)


def _configure_density(parser: argparse.ArgumentParser) -> None:
    flags.add_nodes(parser, 5000, "how many fake nodes", low=1)
    count = flags.whole_number(1, 10_000_000)
    parser.add_argument("--pods", type=count, default=30_000, metavar="N", help="how many pods (default: 30,000)")
    latency_help = "how many single pods in the latency phase (default: one for each ten pods, at most 500)"
    parser.add_argument("--latency-pods", type=count, metavar="N", help=latency_help)
    rate_help = "single pods per second (default: 5, as ClusterLoader2)"
    parser.add_argument("--latency-rate", type=flags.seconds, default=5.0, metavar="R", help=rate_help)
    controllers_help = "let ReplicationControllers make the pods (default: the load makes them itself)"
    parser.add_argument("--controllers", action="store_true", help=controllers_help)
    in_flight_help = "create requests under way at once (default: 64)"
    parser.add_argument("--in-flight", type=flags.whole_number(1, 4096), default=64, metavar="N", help=in_flight_help)
    flags.add_run(parser)


def _configure_query(parser: argparse.ArgumentParser) -> None:
    flags.add_nodes(parser, 100_000, "how many nodes", low=1)
    pods_help = "how many pods are bound to them (default: as many as nodes)"
    parser.add_argument("--pods", type=flags.whole_number(0, 1_000_000), metavar="N", help=pods_help)
    flags.add_run(parser, split=False)


def run(arguments: argparse.Namespace) -> int:
    return _density(arguments) if arguments.command == "density" else _query(arguments)


def _density(arguments: argparse.Namespace) -> int:
    from minikube_py.lab.density import DensityOptions, run_density

    options = DensityOptions(
        nodes=arguments.nodes,
        pods=arguments.pods,
        latency_pods=arguments.latency_pods or min(LATENCY_PODS_MAX, max(1, arguments.pods // 10)),
        latency_rate=arguments.latency_rate or 5.0,
        controllers=arguments.controllers,
        in_flight=arguments.in_flight,
        seed=arguments.seed,
    )
    run = run_density(
        options, split=arguments.split, data_dir=arguments.data_dir, results=arguments.results, step=started().done
    )
    return 0 if run_interruptible(run) else 1


def _query(arguments: argparse.Namespace) -> int:
    from minikube_py.lab.query import QueryOptions, run_query

    pods = arguments.nodes if arguments.pods is None else arguments.pods
    options = QueryOptions(nodes=arguments.nodes, pods=pods, seed=arguments.seed)
    run_interruptible(run_query(options, data_dir=arguments.data_dir, results=arguments.results, step=started().done))
    return 0
