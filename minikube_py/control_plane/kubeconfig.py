"""Writes our kubeconfig files. `client.kubeconfig` reads them.

A file of another program is never changed. Ours begin with a marker; kubectl drops it when it changes a context
(`kubectl config set-context --namespace`), so a file that names only our cluster is also ours. One that is already
correct is not written. The format is the v1 Config of https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from minikube_py.client.kubeconfig import BadKubeconfig, load_kubeconfig
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import write_private
from minikube_py.env import read_file

MARKER = "# Written by minikube_py;"
NAME = "minikube-py"


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server: its URL, the authority to trust (PEM) and the bearer token."""

    server: str
    authority_pem: bytes
    token: str


def write_kubeconfig(path: Path, access: Access, user: str = "admin", flag: str = "--kubeconfig") -> None:
    """Raises: SetupError if the file exists and is not ours, or cannot be written; it names `flag`."""
    check_writable(path, flag)
    if not _leads_to(path, access):
        write_private(path, kubeconfig_text(access, user).encode())


def kubeconfig_text(access: Access, user: str = "admin", namespace: str = "") -> str:
    """`namespace`: of the context; "" for none."""
    context = {"cluster": NAME, "user": f"{NAME}-{user}", **({"namespace": namespace} if namespace else {})}
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
        "contexts": [{"name": NAME, "context": context}],
        "current-context": NAME,
        "preferences": {},
    }
    # JSON is YAML, and remains readable without importing a YAML writer at every start.
    return f"{MARKER} it is rewritten at each start.\n{json.dumps(config, indent=2)}\n"


def read_access(path: Path) -> Access:
    """The content of a file of ours. Raises: BadKubeconfig, SetupError."""
    found = load_kubeconfig(path)
    if found.ca_pem is None or found.token is None:
        raise SetupError(f"{path} has no authority and token: it was not written by minikube_py")
    return Access(found.server, found.ca_pem, found.token)


def check_writable(path: Path, flag: str = "--kubeconfig") -> None:
    """Raises: SetupError if `path` exists and was not written by us."""
    if not path.exists() and not path.is_symlink():
        return
    if path.is_dir():
        raise SetupError(f"{path} is a folder; name a file with {flag}")
    if not is_ours(path):
        raise SetupError(f"{path} exists and was not written by minikube_py; name another file with {flag}")


def is_ours(path: Path) -> bool:
    try:
        text = read_file(path)
    except OSError:
        return False
    return text.startswith(MARKER.encode()) or _names_only_us(text)


def _names_only_us(text: bytes) -> bool:
    from minikube_py.api.yaml_text import YamlError, documents

    try:
        config = documents(text)[0]
        clusters = [entry["name"] for entry in config["clusters"]]
        users = [entry["name"] for entry in config["users"]]
        reached = {entry["context"]["cluster"] for entry in config["contexts"]}
    except (YamlError, KeyError, TypeError, IndexError):
        return False
    return clusters == [NAME] and reached == {NAME} and all(user.startswith(f"{NAME}-") for user in users)


def _leads_to(path: Path, access: Access) -> bool:
    if not path.exists():
        return False
    try:
        found = load_kubeconfig(path)
    except BadKubeconfig:
        return False
    return (found.server, found.ca_pem, found.token) == (access.server, access.authority_pem, access.token)
