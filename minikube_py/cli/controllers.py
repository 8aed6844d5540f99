"""Run the controllers against an API server. When they have synced, or are standbys, it prints `ready`."""

from __future__ import annotations

import argparse
from pathlib import Path

from minikube_py.cli import flags


def configure(parser: argparse.ArgumentParser) -> None:
    flags.add_kubeconfig(parser)
    flags.add_leader_election(parser, "kube-controller-manager")
    flags.add_feature_gates(parser)
    flags.add_controllers(parser)
    key_help = "the key that signs service account tokens, PEM; without it, Secrets get no tokens"
    parser.add_argument("--service-account-private-key-file", type=Path, metavar="F", help=key_help)
    for part, what in (("cert", "authority that signs requests for certificates"), ("key", "key of that authority")):
        parser.add_argument(f"--cluster-signing-{part}-file", type=Path, metavar="F", help=f"the {what}, PEM")
    parser.set_defaults(parser=parser)
    flags.add_process(parser, "controllers")


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role_clients import ControllersRole

    election = flags.election(arguments)
    signing = arguments.cluster_signing_cert_file, arguments.cluster_signing_key_file
    if any(signing) and not all(signing):
        arguments.parser.error("--cluster-signing-cert-file and --cluster-signing-key-file go together")
    return run_role(
        "controllers",
        lambda: ControllersRole(
            arguments.kubeconfig,
            election,
            arguments.service_account_private_key_file,
            signing if all(signing) else None,
            arguments.feature_gates,
            arguments.enable_controllers,
        ),
        flags.process(arguments, "controllers"),
    )
