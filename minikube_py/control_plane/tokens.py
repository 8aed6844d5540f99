"""Bearer tokens: one for each role, each in a file only its owner may read, kept across starts; and the keys that sign
service account tokens and certificates."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.api.service_tokens import SigningKey
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import make_private_folder, read_text, write_private

if TYPE_CHECKING:
    from minikube_py.controllers.certificate_signing import SigningAuthority

ADMIN, SCHEDULER, CONTROLLERS, KUBELET, STORE, PEER = "admin", "scheduler", "controllers", "kubelet", "store", "peer"
ROLES = (ADMIN, SCHEDULER, CONTROLLERS, KUBELET, STORE, PEER)
"""STORE: of clients of a store. PEER: of its members among each other."""
TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")


def ensure_tokens(folder: Path) -> dict[str, str]:
    """The token of each role, created if missing. Raises: SetupError."""
    make_private_folder(folder)
    tokens = {}
    for role in ROLES:
        tokens[role] = ensure_token(folder / role)
    return tokens


def ensure_token(path: Path) -> str:
    """The token in a file, created if there is no such file. Raises: SetupError."""
    if not path.exists():
        write_private(path, f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode())
    return read_token(path)


def read_token(path: Path) -> str:
    """The token in a file. Raises: SetupError if it is absent, or not a token."""
    token = read_text(path, "token file").strip()
    if not _TOKEN.fullmatch(token):
        raise SetupError(f"token file {path}: must hold one token of 16 to 512 characters; restore it, or renew all")
    return token


def ensure_signing_key(path: Path) -> SigningKey:
    """The key in a file, created if there is no such file. Raises: SetupError."""
    if not path.exists():
        write_private(path, SigningKey.new().pem)
    return read_signing_key(path)


def read_signing_authority(certificate: Path, key: Path) -> SigningAuthority:
    """Signs certificate requests. Raises: SetupError if the files are not a certificate and its key."""
    from minikube_py.controllers.certificate_signing import SigningAuthority

    pems = [read_text(path, "authority's file").encode() for path in (certificate, key)]
    try:
        return SigningAuthority(*pems)
    except (ValueError, TypeError) as error:
        raise SetupError(f"{certificate} and {key} are not an authority and its key: {error}") from None


def read_signing_key(path: Path) -> SigningKey:
    """Raises: SetupError if the file has no key that signs tokens."""
    try:
        return SigningKey.from_pem(read_text(path, "key file").encode())
    except (ValueError, TypeError) as error:
        raise SetupError(f"key file {path}: no private key for service account tokens: {error}") from None
