"""Make the secrets of a control plane whose roles run apart, as in containers: an authority, certificates, tokens and
kubeconfigs, in a folder for each role, readable by their owner alone.

  authority/     what signs; no role needs it
  store/         of the members: authority.pem server.pem server.key peer.pem peer.key token peer-token
  apiserver/     authority.pem server.pem server.key users.csv store-token etcd-client.pem etcd-client.key
  scheduler/ controllers/ kubelet/     a kubeconfig each
  admin/         kubeconfig, and for a store or an etcd: authority.pem store-token etcd-client.pem etcd-client.key

Again on the same folder it keeps what fits: certificates are made again for other names or 30 days before their end."""

from __future__ import annotations

import argparse
from pathlib import Path

from minikube_py.cli import flags


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", type=Path, required=True, metavar="D", help="where to make the folders")
    stores_help = "host names of the store members, comma-separated; localhost is always included"
    parser.add_argument("--stores", type=flags.HOSTS, default="", metavar="HOSTS", help=stores_help)
    hosts_help = "host names and addresses of the API servers, comma-separated; localhost is always included"
    parser.add_argument("--hosts", type=flags.HOSTS, default="", metavar="HOSTS", help=hosts_help)
    server_help = "the API server as the other roles reach it, for their kubeconfigs (default: https://127.0.0.1:6443)"
    parser.add_argument("--server", type=flags.SERVER_URL, default=flags.USUAL_SERVER, metavar="URL", help=server_help)
    outside_help = "the API server as users reach it, for the administrator's (default: https://127.0.0.1:6443)"
    kind, usual = flags.SERVER_URL, flags.USUAL_SERVER
    parser.add_argument("--admin-server", type=kind, default=usual, metavar="URL", help=outside_help)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.secrets import Deployment, ensure_secrets, parse_hosts

    stores, hosts = parse_hosts(arguments.stores, "--stores"), parse_hosts(arguments.hosts, "--hosts")
    folder = arguments.dir.absolute()
    made = ensure_secrets(Deployment(folder, stores, hosts, arguments.server, arguments.admin_server))
    for name in made:
        print(f"made {folder / name}")
    print(f"secrets in {folder}: {f'{len(made)} made' if made else 'all exist'}")
    return 0
