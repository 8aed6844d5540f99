"""Run the scheduler against an API server. When it has synced, or stands by for another that leads, it prints
`ready`."""

from __future__ import annotations

import argparse
from pathlib import Path

from minikube_py.cli import flags


def configure(parser: argparse.ArgumentParser) -> None:
    flags.add_kubeconfig(parser)
    config_help = "a KubeSchedulerConfiguration, YAML or JSON (default: the original's default plugins)"
    parser.add_argument("--config", type=Path, metavar="F", help=config_help)
    seed_help = "break ties the same way at each start (default: by chance)"
    parser.add_argument("--seed", type=flags.whole_number(0, 2**63 - 1), metavar="S", help=seed_help)
    flags.add_matcher(parser)
    flags.add_leader_election(parser, "kube-scheduler")
    flags.add_process(parser, "scheduler")


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role_clients import SchedulerRole

    election = flags.election(arguments)
    return run_role(
        "scheduler",
        lambda: SchedulerRole(arguments.kubeconfig, arguments.config, arguments.seed, election, arguments.matcher),
        flags.process(arguments, "scheduler"),
    )
