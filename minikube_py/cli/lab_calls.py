"""Record every call from API server to store during a run, all roles in one process.

  minikube-py lab calls                                      a density run of 1,000 nodes and 10,000 pods
  minikube-py lab calls density --nodes 5000 --pods 30000
  minikube-py lab calls replay                               the openb trace
  minikube-py lab calls --beside-upstream --nodes 100        the same density run on Kubernetes and etcd, and on ours

Tells how often each kind of call came, for whom and how long it took, beside what Kubernetes was measured to ask of
etcd; what of the store's API was never used; and draws diagrams (SVG) from the recorded calls."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minikube_py.cli import flags, forms
from minikube_py.cli.running import run_interruptible
from minikube_py.cli.terminal import started

if TYPE_CHECKING:
    from minikube_py.lab.density import DensityOptions
    from minikube_py.lab.replay_report import ReplayOptions


DENSITY, REPLAY = "lab calls density", "lab calls replay"
HONOURED: Final = {
    **dict.fromkeys(("nodes", "latency_pods", "controllers", "beside_upstream"), (DENSITY,)),
    "departures": (REPLAY,),
    **dict.fromkeys(("pods", "data_dir", "results", "seed"), (DENSITY, REPLAY)),
}
"""By each flag's destination: the runs that it belongs to."""


def configure(parser: argparse.ArgumentParser) -> None:
    run_help = "which run (default: density)"
    parser.add_argument("run", nargs="?", choices=["density", "replay"], default="density", help=run_help)
    flags.add_nodes(parser, 1000, "density: how many fake nodes", low=1)
    pods_help = "how many pods (default: 10,000; of the trace all)"
    parser.add_argument("--pods", type=flags.whole_number(1, 1_000_000), metavar="N", help=pods_help)
    latency_help = "density: number of single pods at the end, five per second (default: 25)"
    count = flags.whole_number(1, 10_000)
    parser.add_argument("--latency-pods", type=count, default=25, metavar="N", help=latency_help)
    controllers_help = "density: let ReplicationControllers make the pods"
    parser.add_argument("--controllers", action="store_true", help=controllers_help)
    departures_help = "replay: delete each pod at its time, in the trace's order"
    parser.add_argument("--departures", action="store_true", help=departures_help)
    beside_help = (
        "density: run it on upstream, too, with a recording proxy before its etcd, and compare calls "
        "for each pod (default: 1,000 pods); SCRIPT: tools/upstream of the source checkout"
    )
    parser.add_argument("--beside-upstream", nargs="?", type=Path, const=Path(), metavar="SCRIPT", help=beside_help)
    flags.add_run(parser, split=False)
    forms.watch(parser)


def run(arguments: argparse.Namespace) -> int:
    forms.require(arguments, REPLAY if arguments.run == "replay" else DENSITY, HONOURED)
    from minikube_py.lab.calls.run import run_calls
    from minikube_py.lab.density import DensityOptions
    from minikube_py.lab.replay_report import ReplayOptions

    options: DensityOptions | ReplayOptions = (
        ReplayOptions(departures=arguments.departures, pods=arguments.pods)
        if arguments.run == "replay"
        else DensityOptions(
            nodes=arguments.nodes,
            pods=arguments.pods or (10_000 if arguments.beside_upstream is None else 1_000),
            latency_pods=arguments.latency_pods,
            latency_rate=5.0,
            controllers=arguments.controllers,
            in_flight=64,
            seed=arguments.seed,
        )
    )
    if arguments.beside_upstream is not None:
        return _run_beside(arguments, options)
    folders = {"data_dir": arguments.data_dir, "results": arguments.results}
    run_interruptible(run_calls(options, **folders, seed=arguments.seed, step=started().done))
    return 0


def _run_beside(arguments: argparse.Namespace, options: DensityOptions | ReplayOptions) -> int:
    from minikube_py.lab.calls.beside import SCRIPT
    from minikube_py.lab.calls.beside_report import run_beside
    from minikube_py.lab.density import DensityOptions

    assert isinstance(options, DensityOptions)
    script = arguments.beside_upstream if arguments.beside_upstream != Path() else SCRIPT
    run = run_beside(options, script, data_dir=arguments.data_dir, results=arguments.results, step=started().done)
    run_interruptible(run)
    return 0
