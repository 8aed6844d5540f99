"""Indexes for inequalities: which nodes have free.cpu>=4 and free.memory>=16Gi?

  minikube-py index create fits --on nodes --fields free.cpu,free.memory,free.nvidia.com/gpu --structure max-tree
  minikube-py index explain "free.cpu>=4,free.memory>=16Gi"
  kubectl get nodes --field-selector "free.cpu>=4,free.memory>=16Gi"

An index is declared once, through the log, so that all members of the store hold the same. It is built beside running
writes and used when it is complete; answers never depend on it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from minikube_py.cli import flags
from minikube_py.errors import RequestError

if TYPE_CHECKING:
    from minikube_py.client.kubeconfig import ClusterAccess

SUBCOMMANDS = {
    "create": "declare an index: on which resource, over which fields, in which structure",
    "list": "list the indexes and their state",
    "stats": "cost of each index and how often it was used",
    "drop": "drop an index; queries run without it",
    "explain": "how a query is answered, and the cost of the alternatives",
    "check": "check a structure of your own: its laws, and its cost beside the built-in ones",
}
ROOT = "/minikube-py/v1"
Json = dict[str, Any]


def add_access(parser: argparse.ArgumentParser) -> None:
    """Flags to reach the API server."""
    about = "By default the one that $KUBECONFIG names, as for kubectl, or that of the running `minikube-py up`."
    group = parser.add_argument_group("which API server", about)
    config_help = "a kubeconfig with an https server, its authority and a token"
    group.add_argument("--kubeconfig", type=Path, metavar="F", help=config_help)
    group.add_argument("--data-dir", type=Path, metavar="D", help="that of the `up` with this data folder")
    timeout_help = "how long to wait for an answer (default: 30s)"
    group.add_argument("--timeout", type=flags.duration_s, default=30.0, metavar="T", help=timeout_help)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(parser=parser)


def find_access(arguments: argparse.Namespace) -> ClusterAccess:
    """Raises: BadKubeconfig, SetupError."""
    from minikube_py.client.kubeconfig import load_kubeconfig

    return load_kubeconfig(_kubeconfig(arguments))


def _kubeconfig(arguments: argparse.Namespace) -> Path:
    from minikube_py.control_plane.errors import SetupError
    from minikube_py.control_plane.running import the_one

    if arguments.kubeconfig and arguments.data_dir:
        arguments.parser.error("--kubeconfig and --data-dir both name an API server; give one of them")
    if arguments.kubeconfig is not None:
        return Path(arguments.kubeconfig)
    if arguments.data_dir is not None:
        return Path(arguments.data_dir, "kubeconfig")
    # kubectl merges several files; the first existing one sets the current context.
    for name in os.environ.get("KUBECONFIG", "").split(os.pathsep):
        if name and Path(name).exists():
            return Path(name)
    try:
        return the_one() / "kubeconfig"
    except SetupError as error:
        raise SetupError(f"{error}, or give a --kubeconfig") from None


class Api:
    """A client of one of our API servers. Enter it inside a running event loop."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from minikube_py.client.http_transport import HttpTransport
        from minikube_py.client.rest import RestClient

        access = find_access(arguments)
        self.server = access.server
        self._transport = HttpTransport(access, user_agent="minikube-py-index", timeout_s=arguments.timeout)
        self._client = RestClient(self._transport)

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.close()

    async def ask(self, method: str, path: str, params: Mapping[str, str] | None = None, body: Any = None) -> Json:
        """Raises: StatusError, Unavailable, OutcomeUnknown; RequestError if the server is not ours."""
        from minikube_py.api.errors import StatusError

        try:
            return await self._client.request(method, f"{ROOT}/{path}", params, body)
        except StatusError as error:
            if error.code == 404 and not error.reason:
                raise RequestError(
                    f"{self.server} does not serve {path}: it is not an API server of this version of minikube-py; "
                    "name another one with --kubeconfig"
                ) from None
            raise

    async def dry_run(self, path: str, body: Json) -> Json:
        """What a create would store (dry run). Raises: StatusError, Unavailable, OutcomeUnknown."""
        return await self._client.request("POST", path, {"dryRun": "All", "fieldValidation": "Strict"}, body)

    async def get(self, path: str) -> Json:
        """Raises: StatusError, Unavailable, OutcomeUnknown."""
        return await self._client.request("GET", path)

    async def index(self, name: str) -> Json:
        return await self.ask("GET", f"indexes/{quote(name, safe='')}")


def next_step(*lines: str) -> str:
    """Suggests the next command."""
    return "\n".join(["next:", *(f"  {line}" for line in lines)])
