"""How to reach a store: its members' addresses, the token and the authority to trust.

Stored in one private JSON file, like a kubeconfig for the API: `up` writes one into its data folder, `init-secrets` one
beside its secrets."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.listen import parse_address
from minikube_py.control_plane.private_files import read_text, write_private
from minikube_py.control_plane.tls import client_context
from minikube_py.control_plane.tokens import read_token

if TYPE_CHECKING:
    from minikube_py.store.client_connection import Endpoint

FILE_NAME = "store-access.json"
ENVIRONMENT = "MINIKUBE_PY_STORE"


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """`addresses`: (host, port) of the members, in any order."""

    addresses: tuple[tuple[str, int], ...]
    token: str
    authority_pem: bytes

    def endpoints(self) -> list[Endpoint]:
        """Raises: SetupError."""
        from minikube_py.store.client_connection import Endpoint

        context = self.context()
        return [Endpoint(host, port, self.token, context) for host, port in self.addresses]

    def context(self) -> ssl.SSLContext:
        """Raises: SetupError."""
        try:
            return client_context(self.authority_pem)
        except ssl.SSLError as error:
            raise SetupError(f"the store's authority is not a certificate: {error}") from error


def parse_addresses(text: str, flag: str) -> tuple[tuple[str, int], ...]:
    """`host:port,host:port`. Raises: SetupError."""
    addresses = tuple(parse_address(item.strip(), flag) for item in text.split(",") if item.strip())
    if not addresses:
        raise SetupError(f"{flag} {text!r}: no address; write host:port, comma-separated")
    return addresses


def access_by_files(addresses: str, token_file: Path, authority_file: Path, flag: str) -> StoreAccess:
    """Raises: SetupError."""
    pem = read_text(authority_file, "certificate authority").encode()
    access = StoreAccess(parse_addresses(addresses, flag), read_token(token_file), pem)
    access.context()
    return access


def write_access(path: Path, addresses: Sequence[str], token: str, authority_pem: bytes) -> None:
    """Raises: SetupError."""
    content = {"endpoints": list(addresses), "token": token, "certificateAuthority": authority_pem.decode("ascii")}
    write_private(path, f"{json.dumps(content, indent=2)}\n".encode())


def read_access(path: Path) -> StoreAccess:
    """Raises: SetupError."""
    text = read_text(path, "store access file")
    try:
        content = orjson.loads(text)
        addresses = parse_addresses(",".join(content["endpoints"]), f"{path}: endpoints")
        return StoreAccess(addresses, str(content["token"]), content["certificateAuthority"].encode())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SetupError(f"{path}: not a store access file: {type(error).__name__} {error}") from error


def find_access(data_dir: Path | None = None) -> StoreAccess:
    """From the data folder, else `$MINIKUBE_PY_STORE`, else the running control plane. Raises: SetupError."""
    from minikube_py.control_plane.running import the_one

    if data_dir is None and (named := os.environ.get(ENVIRONMENT)):
        path = Path(named)
        return read_access(path / FILE_NAME if path.is_dir() else path)
    return read_access((data_dir or the_one()) / FILE_NAME)
