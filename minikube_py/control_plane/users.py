"""Users of the API server: those of the roles' tokens, and the file that lists them.

The file is upstream's --token-auth-file: CSV lines of token, user, uid and groups
(https://kubernetes.io/docs/reference/access-authn-authz/authentication/#static-token-file)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from minikube_py.apiserver import auth
from minikube_py.apiserver.rules import AUTHENTICATED, User
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import read_text, write_private
from minikube_py.control_plane.tokens import ADMIN, CONTROLLERS, KUBELET, SCHEDULER

USERS: Mapping[str, User] = {
    ADMIN: auth.ADMIN,
    SCHEDULER: auth.SCHEDULER,
    CONTROLLERS: auth.CONTROLLER_MANAGER,
    KUBELET: auth.SHARED_KUBELET,
}


def users_by_token(tokens: Mapping[str, str]) -> dict[str, User]:
    """The tokens that the API server accepts: all but the store's, which give no access to the API."""
    return {tokens[role]: user for role, user in USERS.items()}


def write_token_auth_file(path: Path, users: Mapping[str, User]) -> None:
    write_private(path, token_auth_text(users).encode())


def token_auth_text(users: Mapping[str, User]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for token, user in users.items():
        # The group of all users is not in the file, as in upstream.
        groups = ",".join(group for group in user.groups if group != AUTHENTICATED)
        writer.writerow([token, user.name, user.uid or user.name, groups])
    return text.getvalue()


def read_token_auth_file(path: Path) -> dict[str, User]:
    """Raises: SetupError, naming the line."""
    users = {}
    try:
        rows = list(csv.reader(io.StringIO(read_text(path, "token file"))))
    except csv.Error as error:
        raise SetupError(f"token file {path}: {error}") from None
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        if len(row) < 3 or not row[0] or not row[1]:
            raise SetupError(f"token file {path}, line {number}: needs token,user,uid and perhaps groups")
        groups = tuple(group for group in row[3].split(",") if group) if len(row) > 3 else ()
        users[row[0]] = auth.known(User(row[1], groups, row[2]))
    if not users:
        raise SetupError(f"token file {path}: holds no token; no client could be authenticated")
    return users
