"""The secrets of a control plane with separate roles: a folder for each role, with only what it needs.

Created by `init-secrets` before any role starts, and kept while valid. `StoreSecrets` and `ApiServerSecrets` are the
content of those roles' folders (`--secrets-dir`); the others have a kubeconfig."""

from __future__ import annotations

import ipaddress
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from minikube_py.client.kubeconfig import BadKubeconfig
from minikube_py.control_plane import tokens
from minikube_py.control_plane.certificates import ALWAYS_NAMED, Authority, ensure_authority
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.kubeconfig import Access, read_access, write_kubeconfig
from minikube_py.control_plane.private_files import make_private_folder, write_private
from minikube_py.control_plane.secret_files import (
    ACCOUNTS_KEY,
    AUTHORITY,
    AUTHORITY_KEY,
    CLIENTS,
    CLIENTS_KEY,
    ETCD_CLIENT,
    ETCD_CLIENT_KEY,
    KUBECONFIG,
    PEER,
    PEER_KEY,
    PEER_TOKEN,
    SERVER,
    SERVER_KEY,
    STORE_TOKEN,
    TOKEN,
    USERS_FILE,
)
from minikube_py.control_plane.tokens import ensure_signing_key, ensure_token, read_token
from minikube_py.control_plane.users import USERS, token_auth_text

FOLDERS = ("authority", "store", "apiserver", *USERS)
_LABEL = r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)"
_HOST = re.compile(rf"(?=.{{1,253}}$)(\*\.)?{_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class Deployment:
    """`stores`, `hosts`: the names of members and API servers. `server`: the API server's URL for the roles, `outside`
    for users."""

    folder: Path
    stores: tuple[str, ...]
    hosts: tuple[str, ...]
    server: str
    outside: str


def ensure_secrets(deployment: Deployment, now: datetime | None = None) -> list[str]:
    """Returns which files were created or renewed. Raises: SetupError."""
    now = now or datetime.now(UTC)
    make_private_folder(deployment.folder)
    for name in FOLDERS:
        make_private_folder(deployment.folder / name)
    before = _contents(deployment.folder)
    authority = _authority(deployment.folder / "authority", now)
    _signing(deployment.folder, now)
    _store(deployment, authority, now)
    _apiserver(deployment, authority, now)
    _clients(deployment, authority, now)
    after = _contents(deployment.folder)
    return [name for name in after if after[name] != before.get(name)]


def admin_access(folder: Path, server: str | None) -> Access:
    """How the administrator reaches `server` (None: as in the file). Raises: SetupError, BadKubeconfig."""
    found = read_access(folder / KUBECONFIG)
    return found if server is None else Access(server, found.authority_pem, found.token)


def parse_hosts(text: str, flag: str) -> tuple[str, ...]:
    """Host names and addresses, separated by commas. Raises: SetupError."""
    hosts = tuple(dict.fromkeys(host.strip() for host in text.split(",") if host.strip()))
    for host in hosts:
        with suppress(ValueError):
            ipaddress.ip_address(host)
            continue
        if not _HOST.fullmatch(host):
            raise SetupError(f"{flag}: {host!r} is neither a host name nor an address")
    return hosts


def _signing(folder: Path, now: datetime) -> None:
    """The authority of client certificates: API servers trust it, controllers sign with it."""
    controllers = folder / tokens.CONTROLLERS
    _authority(controllers, now, CLIENTS, CLIENTS_KEY, "minikube_py-client-ca")
    _keep(folder / "apiserver" / CLIENTS, (controllers / CLIENTS).read_bytes())


def _authority(
    folder: Path, now: datetime, pem: str = AUTHORITY, key_pem: str = AUTHORITY_KEY, name: str = "minikube_py-ca"
) -> Authority:
    """Never renewed automatically: every role would have to restart with the new certificates."""
    certificate, key = folder / pem, folder / key_pem
    if not certificate.exists() and not key.exists():
        return ensure_authority(certificate, key, now, name)
    try:
        authority = Authority.read(certificate, key)
    except (OSError, ValueError):
        authority = None
    if authority is None or not authority.lasts(now):
        raise SetupError(f"{certificate} and {key} are not a valid authority: remove both, then restart all roles")
    return authority


def _store(deployment: Deployment, authority: Authority, now: datetime) -> None:
    folder = deployment.folder / "store"
    names = [*ALWAYS_NAMED, *deployment.stores]
    _keep(folder / AUTHORITY, authority.pem)
    authority.ensure_leaf(folder / SERVER, folder / SERVER_KEY, names, common_name="store", now=now)
    authority.ensure_leaf(folder / PEER, folder / PEER_KEY, names, common_name="store-peer", client=True, now=now)
    ensure_token(folder / TOKEN)
    ensure_token(folder / PEER_TOKEN)


def _apiserver(deployment: Deployment, authority: Authority, now: datetime) -> None:
    folder = deployment.folder / "apiserver"
    names = [*ALWAYS_NAMED, *deployment.hosts]
    _keep(folder / AUTHORITY, authority.pem)
    authority.ensure_leaf(folder / SERVER, folder / SERVER_KEY, names, common_name="apiserver", now=now)
    _keep(folder / STORE_TOKEN, _store_token(deployment))
    _etcd_client(folder, authority, now)
    key = ensure_signing_key(folder / ACCOUNTS_KEY)
    _keep(deployment.folder / tokens.CONTROLLERS / ACCOUNTS_KEY, key.pem)


def _clients(deployment: Deployment, authority: Authority, now: datetime) -> None:
    """A kubeconfig each, with a token in the API server's list of users."""
    users = {}
    for role, user in USERS.items():
        path = deployment.folder / role / KUBECONFIG
        token = _known_token(path) or secrets.token_urlsafe(tokens.TOKEN_BYTES)
        users[token] = user
        server = deployment.outside if role == tokens.ADMIN else deployment.server
        write_kubeconfig(path, Access(server, authority.pem, token), role)
    _keep(deployment.folder / "apiserver" / USERS_FILE, token_auth_text(users).encode())
    admin = deployment.folder / tokens.ADMIN
    _keep(admin / AUTHORITY, authority.pem)
    _keep(admin / STORE_TOKEN, _store_token(deployment))
    _etcd_client(admin, authority, now)


def _etcd_client(folder: Path, authority: Authority, now: datetime) -> None:
    names = folder / ETCD_CLIENT, folder / ETCD_CLIENT_KEY
    authority.ensure_leaf(*names, ["etcd-client"], common_name="etcd-client", client=True, now=now)


def _known_token(kubeconfig: Path) -> str | None:
    try:
        return read_access(kubeconfig).token
    except (SetupError, BadKubeconfig):
        return None


def _store_token(deployment: Deployment) -> bytes:
    return f"{read_token(deployment.folder / 'store' / TOKEN)}\n".encode()


def _keep(path: Path, data: bytes) -> None:
    """A file that already holds `data` is not written."""
    if not path.exists() or path.read_bytes() != data:
        write_private(path, data)


def _contents(folder: Path) -> dict[str, bytes]:
    paths = [path for name in FOLDERS for path in sorted((folder / name).iterdir()) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
