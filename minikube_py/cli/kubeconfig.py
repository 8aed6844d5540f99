"""Print the administrator's kubeconfig of a control plane: of the one that runs here, or by the secrets of one.

  minikube-py kubeconfig > kubeconfig                  of the `minikube-py up` that runs
  minikube-py kubeconfig --secrets-dir D/admin         of what `minikube-py init-secrets --dir D` made"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from minikube_py.cli import flags


def configure(parser: argparse.ArgumentParser) -> None:
    data_help = "the data folder of an `up` (default: that of the running one)"
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--data-dir", type=Path, metavar="D", help=data_help)
    secrets_help = "the folder `admin` made by `minikube-py init-secrets`, instead"
    which.add_argument("--secrets-dir", type=Path, metavar="D", help=secrets_help)
    server_help = "the API server's URL as users of the file see it (default: as made)"
    parser.add_argument("--server", type=flags.SERVER_URL, metavar="URL", help=server_help)
    output_help = "write it here, readable by you only; never overwrites another tool's file (default: standard output)"
    parser.add_argument("--output", type=Path, metavar="F", help=output_help)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.kubeconfig import kubeconfig_text, read_access, write_kubeconfig
    from minikube_py.control_plane.running import the_one

    if arguments.secrets_dir is not None:
        from minikube_py.control_plane.secrets import admin_access

        access = admin_access(arguments.secrets_dir, arguments.server)
    else:
        access = read_access((arguments.data_dir or the_one()) / "kubeconfig")
        access = replace(access, server=arguments.server or access.server)
    if arguments.output is None:
        sys.stdout.write(kubeconfig_text(access))
    else:
        write_kubeconfig(arguments.output.absolute(), access, flag="--output")
    return 0
