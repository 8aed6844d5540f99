"""Run the API server on a store that `minikube-py store` serves. Flags are the original's where it has them.

When it serves it prints `ready URL`."""

from __future__ import annotations

import argparse

from minikube_py.cli import flags
from minikube_py.control_plane.secret_files import AUTHORITY, STORE_TOKEN, USERS_FILE


def configure(parser: argparse.ArgumentParser) -> None:
    store_help = "where the store's members are served, with commas between"
    parser.add_argument("--store", required=True, metavar="HOST:PORT,...", help=store_help)
    address_help = "the address to listen on (default: 127.0.0.1)"
    parser.add_argument("--bind-address", default="127.0.0.1", metavar="A", help=address_help)
    port_help = "the port to listen on with HTTPS, 0 for any free one (default: 6443)"
    parser.add_argument("--secure-port", type=flags.whole_number(0, 65535), default=6443, metavar="P", help=port_help)
    secrets = flags.add_secrets(parser, "apiserver")
    secrets.file("--store-token-file", STORE_TOKEN, "the token to show to the store")
    secrets.file("--store-ca-file", AUTHORITY, "the authority that signed the store's certificate, PEM")
    secrets.file("--token-auth-file", USERS_FILE, "who may come in: CSV lines of token,user,uid,groups")
    secrets.tls()
    flags.add_process(parser, "apiserver")


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role import TlsFiles
    from minikube_py.control_plane.role_apiserver import ApiServerRole, StoreFiles

    flags.find_secrets(arguments)
    store = StoreFiles(arguments.store, arguments.store_token_file, arguments.store_ca_file)
    tls = TlsFiles(arguments.tls_cert_file, arguments.tls_private_key_file)
    return run_role(
        "apiserver",
        lambda: ApiServerRole(store, arguments.bind_address, arguments.secure_port, arguments.token_auth_file, tls),
        flags.process(arguments, "apiserver"),
    )
