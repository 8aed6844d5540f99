"""Run the API server on a store that `minikube-py store` serves. Flags are the original's where it has them.

When it serves it prints `ready URL`."""

from __future__ import annotations

import argparse
from pathlib import Path

from minikube_py.cli import flags


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", required=True, metavar="HOST:PORT", help="where the store is served")
    token_help = "the token to show to the store"
    parser.add_argument("--store-token-file", type=Path, required=True, metavar="F", help=token_help)
    authority_help = "the authority that signed the store's certificate, PEM"
    parser.add_argument("--store-ca-file", type=Path, required=True, metavar="F", help=authority_help)
    address_help = "the address to listen on (default: 127.0.0.1)"
    parser.add_argument("--bind-address", default="127.0.0.1", metavar="A", help=address_help)
    port_help = "the port to listen on with HTTPS, 0 for any free one (default: 6443)"
    parser.add_argument("--secure-port", type=flags.whole_number(0, 65535), default=6443, metavar="P", help=port_help)
    users_help = "who may come in: CSV lines of token,user,uid,groups"
    parser.add_argument("--token-auth-file", type=Path, required=True, metavar="F", help=users_help)
    flags.add_tls(parser)
    flags.add_parent(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role import TlsFiles
    from minikube_py.control_plane.role_apiserver import ApiServerRole, StoreAccess

    store = StoreAccess(arguments.store, arguments.store_token_file, arguments.store_ca_file)
    tls = TlsFiles(arguments.tls_cert_file, arguments.tls_private_key_file)
    return run_role(
        "apiserver",
        lambda: ApiServerRole(store, arguments.bind_address, arguments.secure_port, arguments.token_auth_file, tls),
        arguments.with_parent,
    )
