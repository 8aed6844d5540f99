"""Run the fake kubelet: one process that registers many nodes and plays their pods. Prints `ready` when they stand."""

from __future__ import annotations

import argparse
from pathlib import Path

from minikube_py.cli import flags


def configure(parser: argparse.ArgumentParser) -> None:
    flags.add_kubeconfig(parser)
    flags.add_nodes(parser, 1, "how many nodes of the default shape")
    shapes_help = "a JSON list of nodes to register instead: {name, capacity: {resource: quantity}, labels}"
    parser.add_argument("--shapes", type=Path, metavar="F", help=shapes_help)
    share_help = "play only this share of the nodes, by their names, as one of several such processes (default: 0/1)"
    parser.add_argument("--share", default="0/1", metavar="INDEX/COUNT", help=share_help)
    flags.add_parent(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role_clients import KubeletRole

    return run_role(
        "kubelet",
        lambda: KubeletRole(arguments.kubeconfig, arguments.nodes, arguments.shapes, arguments.share),
        arguments.with_parent,
    )
