"""Run the scheduler against an API server. When it has synced, or is a standby, it prints `ready`."""

from __future__ import annotations

import argparse
from pathlib import Path

from minikube_py.cli import flags, forms

WRITTEN, RUN = "--write-config-to", "a run"
OF_CONFIG = ("kubeconfig", "scheduler_config", "plugins", "feature_gates", "write_config_to")


def configure(parser: argparse.ArgumentParser) -> None:
    flags.add_kubeconfig(parser)
    flags.add_scheduler_config(parser, "--config")
    name_help = "name of the configuration's only profile, if it has no schedulerName (default: default-scheduler)"
    parser.add_argument("--scheduler-name", default="", metavar="NAME", help=name_help)
    written_help = "write the configuration with all defaults to this file, and exit"
    parser.add_argument("--write-config-to", type=Path, metavar="F", help=written_help)
    seed_help = "seed for breaking ties, the same at each start (default: random)"
    parser.add_argument("--seed", type=flags.whole_number(0, 2**63 - 1), metavar="S", help=seed_help)
    flags.add_matcher(parser)
    flags.add_feature_gates(parser)
    asked_help = "URLs of API servers whose `explain` and `what-if` it answers (default: that of --kubeconfig)"
    parser.add_argument("--asked-at", type=flags.several(str), default=(), metavar="URL,...", help=asked_help)
    flags.add_leader_election(parser, "kube-scheduler")
    flags.add_process(parser, "scheduler")
    forms.watch(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role_clients import SchedulerRole

    of_run = dict.fromkeys(sorted(getattr(arguments, forms.USUAL).keys() - OF_CONFIG), (RUN,))
    forms.require(arguments, WRITTEN if hasattr(arguments, "write_config_to") else RUN, of_run)
    chosen = flags.chosen(arguments, arguments.scheduler_name)
    if arguments.write_config_to is not None:
        from minikube_py.scheduler.configuration.files import write_scheduler

        write_scheduler(chosen, arguments.write_config_to, arguments.feature_gates)
        return 0
    election = flags.election(arguments)
    return run_role(
        "scheduler",
        lambda: SchedulerRole(
            arguments.kubeconfig,
            chosen,
            arguments.seed,
            election,
            arguments.matcher,
            arguments.scheduler_name,
            arguments.asked_at,
            arguments.feature_gates,
        ),
        flags.process(arguments, "scheduler"),
    )
