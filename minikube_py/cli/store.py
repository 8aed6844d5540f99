"""Run one store member, reached by the native protocol over TLS with a token. When it serves it prints
`ready HOST:PORT`.

A single member needs only its folder and its secrets. To form a cluster, start each member with its --name and the same
--initial-cluster; it waits for the others. The flags may stay at later starts. Members talk to each other on a separate
port, over mutual TLS. --advertise HOST is the host at which members and clients reach this one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.cli import flags, forms
from minikube_py.control_plane.secret_files import AUTHORITY, PEER, PEER_KEY, PEER_TOKEN, TOKEN
from minikube_py.errors import WrongUsage

if TYPE_CHECKING:
    from minikube_py.control_plane.role_store import StoreOptions

SUBCOMMANDS = {
    "run": "run one member: the same as without a command",
    "status": "the state of the members: role, term, commit, applied, lag, size, snapshot age",
    "member": "add, promote, remove",
    "transfer-leader": "transfer leadership to another member",
    "snapshot": "save, restore, verify",
    "query": "ask the store itself which nodes or pods meet inequalities, also under Kubernetes' own API server",
    "hash": "whether all members hold the same data",
    "alarm": "list, disarm",
    "salvage": "recover readable data from a damaged folder",
}
CLIENT_PORT, PEER_PORT = 2390, 2391

ALONE, TOGETHER = "a member alone", "--initial-cluster, --advertise or --listen-peers"
PEER_FILES = ("peer_token_file", "peer_cert_file", "peer_key_file", "peer_ca_file")
WITH_PEERS = dict.fromkeys(("rejoin", "advertise_peer", *PEER_FILES), (TOGETHER,))
WITH_ETCD = dict.fromkeys(
    ("listen_client_http_urls", "watch_progress_notify_interval", "trusted_ca_file"), ("--listen-client-urls",)
)


def configure(parser: argparse.ArgumentParser) -> None:
    data_help = "the data folder; used by one process at a time"
    parser.add_argument("--data-dir", type=Path, required=True, metavar="D", help=data_help)
    parser.add_argument("--name", default="store-1", metavar="NAME", help="its name (default: store-1)")
    listen_help = f"address to serve on, port 0 for any free one (default: 127.0.0.1:{CLIENT_PORT}; see --advertise)"
    parser.add_argument("--listen", type=flags.HOST_PORT, metavar="HOST:PORT", help=listen_help)
    flags.add_room(parser)
    flags.add_structures(parser)
    etcd_help = (
        "serve etcd's v3 API over gRPC at these URLs, to clients with a certificate of --trusted-ca-file; "
        "http:// only on "
        "loopback, without authentication (needs the extra `etcd-api`)"
    )
    urls = flags.URLS
    parser.add_argument("--listen-client-urls", type=urls, metavar="URL,...", help=etcd_help)
    progress_help = "how often a watch of etcd's API that asks for progress is notified (default: 10m, as etcd's)"
    parser.add_argument(
        "--watch-progress-notify-interval", type=flags.duration_s, default=600.0, metavar="TIME", help=progress_help
    )
    http_help = "serve etcd's JSON gateway, /health, /livez, /readyz, /version, /metrics there, to the same clients"
    parser.add_argument("--listen-client-http-urls", type=urls, metavar="URL,...", help=http_help)
    _configure_peers(parser.add_argument_group("with other members"))
    secrets = flags.Secrets(parser, "store")
    secrets.file("--token-file", TOKEN, "the token that its clients must send")
    secrets.tls()
    secrets.file("--peer-token-file", PEER_TOKEN, "the token that members send to each other")
    secrets.file("--peer-cert-file", PEER, "its certificate for peer connections, as server and client, PEM")
    secrets.file("--peer-key-file", PEER_KEY, "its private key, PEM")
    secrets.file("--peer-ca-file", AUTHORITY, "the authority that signed the members' certificates, PEM")
    secrets.file("--trusted-ca-file", AUTHORITY, "the authority that signed the certificates of etcd's clients, PEM")
    flags.add_process(parser, "store")
    forms.watch(parser)


def _configure_peers(group: argparse._ArgumentGroup) -> None:
    members, address = flags.MEMBERS, flags.HOST_PORT
    initial_help = (
        "all members of a new cluster, including this one, with their peer addresses; or, to join a running cluster "
        "that expects this member, some of its members and this one"
    )
    group.add_argument("--initial-cluster", type=members, default="", metavar="NAME=HOST:PORT,...", help=initial_help)
    advertise_help = (
        f"host at which others reach this member: clients at port {CLIENT_PORT}, members at {PEER_PORT}, or those of "
        "--listen and --listen-peers; it then listens on all addresses by default"
    )
    group.add_argument("--advertise", metavar="HOST", help=advertise_help)
    peers_help = f"address for the other members (default: 127.0.0.1:{PEER_PORT}; see --advertise)"
    group.add_argument("--listen-peers", type=address, metavar="HOST:PORT", help=peers_help)
    client_help = "where clients reach it, if different"
    group.add_argument("--advertise-client", type=address, metavar="HOST:PORT", help=client_help)
    peer_help = "where the other members reach it, if different; as in --initial-cluster"
    group.add_argument("--advertise-peer", type=address, metavar="HOST:PORT", help=peer_help)
    rejoin_help = (
        "if the folder is empty (its disk was lost) and the cluster has a member of this name, replace it under a new "
        "id, with the data of the others"
    )
    group.add_argument("--rejoin", action="store_true", help=rejoin_help)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role_store import StoreRole

    options = options_of(arguments)
    flags.admit_structures(arguments)
    return run_role("store", lambda: StoreRole(options), flags.process(arguments, "store"))


def options_of(arguments: argparse.Namespace) -> StoreOptions:
    """Raises: SetupError, WrongUsage."""
    from minikube_py.control_plane.etcd_door import EtcdOptions
    from minikube_py.control_plane.role import TlsFiles
    from minikube_py.control_plane.role_store import PeerOptions, StoreOptions

    with_peers = any(getattr(arguments, name, "") for name in ("initial_cluster", "advertise", "listen_peers"))
    if not getattr(arguments, "listen_client_urls", ""):
        forms.refuse(arguments, "a member without etcd's API", WITH_ETCD)
    forms.require(arguments, TOGETHER if with_peers else ALONE, WITH_PEERS)
    progress_s = arguments.watch_progress_notify_interval
    etcd_urls, http_urls = arguments.listen_client_urls or "", arguments.listen_client_http_urls or ""
    if arguments.trusted_ca_file is not None and "https:" not in etcd_urls + http_urls:
        raise WrongUsage("--trusted-ca-file needs a URL of https://; this is etcd's API without authentication")
    needed = {"peer": with_peers, "trusted": "https:" in etcd_urls + http_urls}
    arguments.secrets.find(arguments, lambda flag: needed.get(flag.strip("-").partition("-")[0], True))
    anywhere = "0.0.0.0" if arguments.advertise else "127.0.0.1"
    listen = arguments.listen or f"{anywhere}:{CLIENT_PORT}"
    client = arguments.advertise_client or _reached(arguments.advertise, listen, "--listen")
    peers = None
    if with_peers:
        named = dict(item.strip().split("=", 1) for item in arguments.initial_cluster.split(",") if "=" in item)
        own = arguments.advertise_peer or named.get(arguments.name, "")
        port = own.rpartition(":")[2] if own else PEER_PORT
        listen_peers = arguments.listen_peers or f"{anywhere}:{port}"
        peers = PeerOptions(
            listen_peers,
            own or _reached(arguments.advertise, listen_peers, "--listen-peers"),
            arguments.initial_cluster,
            arguments.rejoin,
            arguments.peer_token_file,
            TlsFiles(arguments.peer_cert_file, arguments.peer_key_file),
            arguments.peer_ca_file,
        )
    room = (arguments.quota_bytes, arguments.reserve_bytes)
    tls = TlsFiles(arguments.tls_cert_file, arguments.tls_private_key_file)
    etcd = EtcdOptions(etcd_urls, tls, arguments.trusted_ca_file, http_urls, progress_s) if etcd_urls else None
    name, token_file, retained = arguments.name, arguments.token_file, arguments.auto_compaction_retention
    return StoreOptions(arguments.data_dir, listen, token_file, tls, name, client, peers, etcd, room, retained)


def _reached(host: str | None, listen: str, flag: str) -> str:
    """The address that others connect to: `host`, or the listen address if that belongs to one host."""
    from minikube_py.control_plane.listen import parse_address

    own, port = parse_address(listen, flag)
    if host is None and own in ("0.0.0.0", "::"):
        return ""
    return f"{host or own}:{port}" if port else ""
