"""Bearer tokens: one for each role, each in a file only its owner may read, used again at the next start.

The API server reads them as the original's --token-auth-file: CSV lines of token, user, uid and groups
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#static-token-file).
"""

from __future__ import annotations

import csv
import io
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from minikube_py.apiserver import auth
from minikube_py.apiserver.auth import User
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import make_private_folder, read_text, write_private

ADMIN, SCHEDULER, CONTROLLERS, KUBELET, STORE = "admin", "scheduler", "controllers", "kubelet", "store"
ROLES = (ADMIN, SCHEDULER, CONTROLLERS, KUBELET, STORE)
TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")


USERS: Mapping[str, User] = {
    ADMIN: auth.ADMIN,
    SCHEDULER: auth.SCHEDULER,
    CONTROLLERS: auth.CONTROLLER_MANAGER,
    KUBELET: auth.KUBELETS,
}


def ensure_tokens(folder: Path) -> dict[str, str]:
    """The token of each role, made where it is missing. Raises: SetupError."""
    make_private_folder(folder)
    tokens = {}
    for role in ROLES:
        path = folder / role
        if not path.exists():
            write_private(path, f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode())
        tokens[role] = read_token(path)
    return tokens


def read_token(path: Path) -> str:
    """The token in a file. Raises: SetupError where it is absent, or no token."""
    token = read_text(path, "token file").strip()
    if not _TOKEN.fullmatch(token):
        raise SetupError(f"token file {path}: not one token of 16 to 512 characters; remove it and start again")
    return token


def users_by_token(tokens: Mapping[str, str]) -> dict[str, User]:
    """What the API server is told: every token but the store's own, which it shows rather than accepts."""
    return {tokens[role]: user for role, user in USERS.items()}


def write_token_auth_file(path: Path, users: Mapping[str, User]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for token, user in users.items():
        writer.writerow([token, user.name, user.uid or user.name, ",".join(user.groups)])
    write_private(path, text.getvalue().encode())


def read_token_auth_file(path: Path) -> dict[str, User]:
    """Raises: SetupError, naming the line."""
    users = {}
    for number, row in enumerate(csv.reader(io.StringIO(read_text(path, "token file"))), start=1):
        if not row:
            continue
        if len(row) < 3 or not row[0] or not row[1]:
            raise SetupError(f"token file {path}, line {number}: needs token,user,uid and perhaps groups")
        groups = tuple(group for group in row[3].split(",") if group) if len(row) > 3 else ()
        users[row[0]] = User(row[1], groups, row[2])
    if not users:
        raise SetupError(f"token file {path}: holds no token; nobody could reach the server")
    return users
