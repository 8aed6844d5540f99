"""Run one store member, reached by the native protocol over TLS with a token. `minikube-py up --split` runs one so.

When it serves it prints `ready HOST:PORT`."""

from __future__ import annotations

import argparse
from pathlib import Path

from minikube_py.cli import flags
from minikube_py.control_plane.secret_files import TOKEN


def configure(parser: argparse.ArgumentParser) -> None:
    data_help = "its folder; held by one process at a time"
    parser.add_argument("--data-dir", type=Path, required=True, metavar="D", help=data_help)
    listen_help = "host and port to serve on, port 0 for any free one (default: 127.0.0.1:2390)"
    parser.add_argument("--listen", default="127.0.0.1:2390", metavar="HOST:PORT", help=listen_help)
    secrets = flags.add_secrets(parser, "store")
    secrets.file("--token-file", TOKEN, "the token its clients must show")
    secrets.tls()
    flags.add_process(parser, "store")


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role import TlsFiles
    from minikube_py.control_plane.role_store import StoreRole

    flags.find_secrets(arguments)
    tls = TlsFiles(arguments.tls_cert_file, arguments.tls_private_key_file)
    return run_role(
        "store",
        lambda: StoreRole(arguments.data_dir, arguments.listen, arguments.token_file, tls),
        flags.process(arguments, "store"),
    )
