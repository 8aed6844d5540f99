"""kubeconfig files: written whole, to a file of their own, and read by the roles that run as processes of their own.

A file that something else wrote is never touched: ours begin with a marker, and only those are written over. The
format is the v1 Config of https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import read_text, write_private

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


def read_kubeconfig(path: Path) -> Access:
    """The current context's cluster and token; files of others are read too. Raises: SetupError."""
    config = _parse(path, read_text(path, "kubeconfig"))
    context = _entry(path, config, "contexts", "context", config.get("current-context"))
    cluster = _entry(path, config, "clusters", "cluster", context.get("cluster"))
    user = _entry(path, config, "users", "user", context.get("user"))
    server, token = cluster.get("server"), user.get("token")
    if not isinstance(server, str) or urlsplit(server).scheme != "https":
        raise SetupError(f"kubeconfig {path}: the cluster's server is {server!r}; it must be an https URL")
    if not isinstance(token, str) or not token:
        raise SetupError(f"kubeconfig {path}: the user has no token; only bearer tokens are understood")
    return Access(server.rstrip("/"), _authority(path, cluster), token)


def _parse(path: Path, text: str) -> Mapping[str, Any]:
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    try:
        config = json.loads(body)
    except ValueError:
        config = _parse_yaml(path, text)
    if not isinstance(config, dict):
        raise SetupError(f"kubeconfig {path}: not a Config object")
    return config


def _parse_yaml(path: Path, text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise SetupError(f"kubeconfig {path}: not YAML: {reason}") from error


def _entry(path: Path, config: Mapping[str, Any], listed: str, key: str, name: object) -> Mapping[str, Any]:
    entries = config.get(listed)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(key), dict):
            found: Mapping[str, Any] = entry[key]
            return found
    raise SetupError(f"kubeconfig {path}: no {key} named {name!r}")


def _authority(path: Path, cluster: Mapping[str, Any]) -> bytes:
    data, file = cluster.get("certificate-authority-data"), cluster.get("certificate-authority")
    if isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise SetupError(f"kubeconfig {path}: certificate-authority-data is not base64: {error}") from error
    if isinstance(file, str):
        return read_text(path.parent / file, "certificate authority").encode()
    raise SetupError(f"kubeconfig {path}: the cluster names no certificate authority")
