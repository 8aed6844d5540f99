"""The API's address and the client's credentials, read from a kubeconfig file.

Source: kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minikube_py.api.yaml_text import YamlError, documents
from minikube_py.env import read_file
from minikube_py.errors import RequestError


class BadKubeconfig(RequestError):
    """The file lacks the API's address or valid credentials."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """`ca_pem` None: the system's authorities. A client certificate and a bearer token may both be given."""

    server: str
    ca_pem: bytes | None = None
    insecure: bool = False
    server_name: str | None = None
    token: str | None = None
    client_certificate_pem: bytes | None = None
    client_key_pem: bytes | None = None
    username: str | None = None
    password: str | None = None

    def ssl_context(self) -> ssl.SSLContext | None:
        """None for plain http."""
        if not self.server.startswith("https:"):
            return None
        context = ssl.create_default_context(cadata=self.ca_pem.decode() if self.ca_pem else None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.client_certificate_pem and self.client_key_pem:
            # ssl loads a certificate only from a path; the file exists only during this call, readable only by this
            # user.
            with tempfile.TemporaryDirectory() as folder:
                pem = Path(folder, "client.pem")
                pem.touch(mode=0o600)
                pem.write_bytes(self.client_certificate_pem + b"\n" + self.client_key_pem)
                context.load_cert_chain(pem)
        return context


def load_kubeconfig(path: Path, context: str | None = None) -> ClusterAccess:
    """Raises: BadKubeconfig."""
    return _access(path, read_document(path), context)


def read_document(path: Path) -> dict[str, Any]:
    """The file's content. Raises: BadKubeconfig."""
    try:
        text = read_file(path)
    except OSError as error:
        raise BadKubeconfig(f"{path}: cannot read the kubeconfig: {error.strerror}") from error
    try:
        config = next(iter(documents(text)), None)
    except YamlError as error:
        raise BadKubeconfig(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise BadKubeconfig(f"{path}: not a kubeconfig: a mapping is expected")
    return config


def _access(path: Path, config: dict[str, Any], context: str | None) -> ClusterAccess:
    name = context or config.get("current-context")
    if not name:
        raise BadKubeconfig(f"{path}: current-context is not set")
    chosen = _named(path, config, "contexts", "context", name)
    cluster = _named(path, config, "clusters", "cluster", chosen.get("cluster"))
    user = _named(path, config, "users", "user", chosen["user"]) if chosen.get("user") else {}
    if "exec" in user or "auth-provider" in user:
        raise BadKubeconfig(f"{path}: user {chosen['user']!r} gets credentials from a plugin, which is not supported")
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("http://", "https://")):
        raise BadKubeconfig(f"{path}: cluster {chosen.get('cluster')!r} has no http(s) server: {server!r}")
    token = user.get("token")
    if not token and user.get("tokenFile"):
        token = _file(path, user["tokenFile"]).decode().strip()
    return ClusterAccess(
        server=server.rstrip("/"),
        ca_pem=_data(path, cluster, "certificate-authority"),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=cluster.get("tls-server-name"),
        token=token,
        client_certificate_pem=_data(path, user, "client-certificate"),
        client_key_pem=_data(path, user, "client-key"),
        username=user.get("username"),
        password=user.get("password"),
    )


def _named(path: Path, config: dict[str, Any], section: str, inner: str, name: Any) -> dict[str, Any]:
    for entry in config.get(section) or []:
        if isinstance(entry, dict) and entry.get("name") == name:
            value = entry.get(inner)
            return value if isinstance(value, dict) else {}
    raise BadKubeconfig(f"{path}: {inner} {name!r} is not among its {section}")


def _data(path: Path, section: dict[str, Any], field: str) -> bytes | None:
    if data := section.get(f"{field}-data"):
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError, TypeError) as error:
            raise BadKubeconfig(f"{path}: {field}-data is not base64") from error
    return _file(path, section[field]) if section.get(field) else None


def _file(path: Path, name: str) -> bytes:
    """Paths inside a kubeconfig are relative to the kubeconfig."""
    try:
        return read_file(Path(os.path.join(path.parent, name)))
    except (OSError, TypeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadKubeconfig(f"{path}: cannot read {name}: {reason}") from error
