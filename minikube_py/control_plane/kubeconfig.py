"""kubeconfig files of our own. `client.kubeconfig` reads them.

A file that something else wrote is never touched: ours begin with a marker, and only those are written over. The
format is the v1 Config of https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import write_private

MARKER = "# Written by minikube_py; it is written anew at each start."
NAME = "minikube-py"


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server: its URL, the authority to trust (PEM) and the bearer token to show."""

    server: str
    authority_pem: bytes
    token: str


def write_kubeconfig(path: Path, access: Access, user: str = "admin") -> None:
    """Raises: SetupError where the file exists and is not ours, or cannot be written."""
    check_writable(path)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": NAME,
                "cluster": {
                    "server": access.server,
                    "certificate-authority-data": base64.b64encode(access.authority_pem).decode("ascii"),
                },
            }
        ],
        "users": [{"name": f"{NAME}-{user}", "user": {"token": access.token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": f"{NAME}-{user}"}}],
        "current-context": NAME,
        "preferences": {},
    }
    # JSON is YAML, and what a stranger opens is readable without importing a YAML writer at every start.
    write_private(path, f"{MARKER}\n{json.dumps(config, indent=2)}\n".encode())


def check_writable(path: Path) -> None:
    """Raises: SetupError where `path` exists and was not written by us."""
    if not path.exists() and not path.is_symlink():
        return
    if path.is_dir():
        raise SetupError(f"{path} is a folder; name a file with --kubeconfig")
    if not is_ours(path):
        raise SetupError(f"{path} exists and was not written by minikube_py; name another file with --kubeconfig")


def is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MARKER)) == MARKER.encode()
    except OSError:
        return False
