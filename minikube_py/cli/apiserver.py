"""Run the API server on a store that `minikube-py store` serves, or on an etcd. Flags are upstream's where it has them.

When it serves it prints `ready URL`."""

from __future__ import annotations

import argparse

from minikube_py.apiserver.limits import Limits
from minikube_py.cli import audit_flags, flags, forms
from minikube_py.cli.input_files import file
from minikube_py.control_plane.secret_files import ACCOUNTS_KEY, AUTHORITY, CLIENTS, STORE_TOKEN, USERS_FILE

STORE, ETCD = "--store", "an etcd (--etcd-servers)"
HONOURED = dict.fromkeys(("store_token_file", "store_ca_file"), (STORE,))


def configure(parser: argparse.ArgumentParser) -> None:
    store_help = "the addresses of the store's members, separated by commas"
    parser.add_argument("--store", type=flags.HOSTS_PORTS, metavar="HOST:PORT,...", help=store_help)
    flags.add_etcd_behind(parser)
    address_help = "the address to listen on (default: 127.0.0.1)"
    parser.add_argument("--bind-address", type=flags.address, default="127.0.0.1", metavar="A", help=address_help)
    port_help = "the port to listen on with HTTPS, 0 for any free one (default: 6443)"
    parser.add_argument("--secure-port", type=flags.whole_number(0, 65535), default=6443, metavar="P", help=port_help)
    many, limits = flags.whole_number(0, 1_000_000), Limits()
    reads_help = "concurrent reads, 0 for no limit (default: 400)"
    parser.add_argument(
        "--max-requests-inflight", type=many, default=limits.reads_in_flight_max, metavar="N", help=reads_help
    )
    writes_help = "concurrent writes, 0 for no limit (default: 200)"
    parser.add_argument(
        "--max-mutating-requests-inflight", type=many, default=limits.writes_in_flight_max, metavar="N",
        help=writes_help,
    )  # fmt: skip
    timeout_help = "how long a request other than a watch may take (default: 60s)"
    parser.add_argument(
        "--request-timeout", type=flags.duration_s, default=limits.request_timeout_s, metavar="D", help=timeout_help
    )
    flags.add_structures(parser)
    flags.add_admission_plugins(parser)
    flags.add_feature_gates(parser)
    audit_flags.add_audit(parser)
    secrets = flags.Secrets(parser, "apiserver")
    secrets.file("--store-token-file", STORE_TOKEN, "the token for the store")
    secrets.file("--store-ca-file", AUTHORITY, "the authority that signed the store's certificate, PEM")
    secrets.file("--token-auth-file", USERS_FILE, "the users: CSV lines of token,user,uid,groups")
    key_help = "the key that signs the tokens of service accounts, EC on P-256, PEM"
    secrets.file("--service-account-signing-key-file", ACCOUNTS_KEY, key_help)
    clients_help = "the authority of client certificates, PEM; without it, there are none"
    secrets.file("--client-ca-file", CLIENTS, clients_help, needed=False)
    secrets.tls()
    proxy_help = "by which the servers of APIServices know this one"
    for flag, what in (("cert", "the certificate, PEM,"), ("key", "the key of the certificate, PEM,")):
        parser.add_argument(f"--proxy-client-{flag}-file", type=file, metavar="F", help=f"{what} {proxy_help}")
    authority_help = "the authority of that certificate, PEM, told in the ConfigMap extension-apiserver-authentication"
    parser.add_argument("--requestheader-client-ca-file", type=file, metavar="F", help=authority_help)
    flags.add_process(parser, "apiserver")
    forms.watch(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.certificates import ProxyFiles
    from minikube_py.control_plane.process import run_role
    from minikube_py.control_plane.role import TlsFiles
    from minikube_py.control_plane.role_apiserver import ApiServerRole, StoreFiles

    audit_flags.refuse_half(arguments)
    forms.require(arguments, ETCD if hasattr(arguments, "etcd_servers") else STORE, HONOURED)
    etcd = flags.etcd_behind(arguments)
    if (etcd is None) == (arguments.store is None):
        arguments.parser.error("name the store: either --store or --etcd-servers")
    arguments.secrets.find(arguments, lambda flag: etcd is None or not flag.startswith("--store"))
    flags.admit_structures(arguments)
    store = etcd or StoreFiles(arguments.store, arguments.store_token_file, arguments.store_ca_file)
    tls = TlsFiles(arguments.tls_cert_file, arguments.tls_private_key_file, arguments.client_ca_file)
    proxy_files = arguments.proxy_client_cert_file, arguments.proxy_client_key_file
    if (proxy_files[0] is None) != (proxy_files[1] is None):
        arguments.parser.error("--proxy-client-cert-file and --proxy-client-key-file go together")
    proxy = ProxyFiles(*proxy_files, arguments.requestheader_client_ca_file)
    limits = Limits(
        reads_in_flight_max=arguments.max_requests_inflight,
        writes_in_flight_max=arguments.max_mutating_requests_inflight,
        request_timeout_s=arguments.request_timeout,
    )
    host, port, users = arguments.bind_address, arguments.secure_port, arguments.token_auth_file
    return run_role(
        "apiserver",
        lambda: ApiServerRole(
            store, host, port, users, arguments.service_account_signing_key_file, tls, limits,
            arguments.enable_admission_plugins, arguments.feature_gates, audit_flags.audit(arguments), proxy,
        ),
        flags.process(arguments, "apiserver"),
    )  # fmt: skip
