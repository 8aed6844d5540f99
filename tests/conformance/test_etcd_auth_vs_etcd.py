"""Users, roles and what they may, beside a real etcd: the same requests by the same people, the same answers."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from drawn_auth import AuthDraws
from etcd_api import ours, real_etcd
from test_etcd_api_vs_etcd import Side

from minikube_py.etcd.messages import pb

pytestmark = pytest.mark.original
HISTORIES = int(os.environ.get("MINIKUBE_PY_ETCD_HISTORIES", "2"))
FOUNDING = (
    ("Auth/UserAdd", pb.AuthUserAddRequest(name="root", password="p")),
    ("Auth/UserChangePassword", pb.AuthUserChangePasswordRequest(name="root", password="p")),
    ("Auth/UserAdd", pb.AuthUserAddRequest(name="u1", password="p")),
    ("Auth/UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root")),
    ("Auth/AuthEnable", pb.AuthEnableRequest()),
)
WITH_CODES_ALONE = ("Maintenance/", "Lock/", "Cluster/MemberList")
"""What they answer differs by member, and is compared elsewhere."""


class People(Side):
    """A server, and what tokens its users have."""

    def __init__(self, target: str) -> None:
        super().__init__(target, lambda: 0)
        self.tokens: dict[str, str] = {"nobody": "", "stranger": "abcdefghijklmnop.5"}

    def enter(self, user: str, password: str) -> tuple[str, Any]:
        code, found = self.caller.call("Auth/Authenticate", pb.AuthenticateRequest(name=user, password=password))
        if code != "ok":
            return code, found
        self.tokens[user] = found.pop("token")
        return code, self.known(found)

    def ask(self, user: str, name: str, request: Any) -> Any:
        token = self.tokens.get(user, "")
        metadata = (("token", token),) if token else None
        if name == "Watch/Watch":
            return self._first(name, pb.WatchRequest(create_request=request), metadata)
        if name == "Lease/LeaseKeepAlive":
            return self._first(name, request, metadata)
        code, found = self.caller.call(name, request, metadata)
        if code == "ok" and name.startswith(WITH_CODES_ALONE):
            return code
        return (code, self.known(found)) if code == "ok" else (code, found)

    def _first(self, name: str, request: Any, metadata: Any) -> Any:
        stream = self.caller.stream(name, metadata)
        stream.send(request)
        found = stream.next()
        stream.close()
        return self.known(found) if isinstance(found, dict) else found


@contextlib.contextmanager
def both_of(folder: Path) -> Any:
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(real_etcd(folder / "theirs", "--bcrypt-cost", "4"))
        server = stack.enter_context(ours(folder / "ours"))
        both = People(target), People(f"127.0.0.1:{server.port}")
        yield both
        for side in both:
            side.caller.close()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_generated_histories_of_users_and_roles_are_answered_alike(tmp_path: Path, seed: int) -> None:
    draws, outcomes = AuthDraws(seed), set[str]()
    with both_of(tmp_path) as both:

        def same(what: str, theirs: Any, mine: Any) -> Any:
            assert mine == theirs, what
            outcomes.add(str(theirs[1]) if isinstance(theirs, tuple) and theirs[0] != "ok" else "ok")
            return theirs

        for step in range(300):
            if step == 80:
                for name, request in FOUNDING:
                    same(f"founding {name}", *[side.ask("root", name, request) for side in both])
            enabled = same("status", *[side.ask("root", "Auth/AuthStatus", pb.AuthStatusRequest()) for side in both])
            known = enabled[0] == "ok" and enabled[1].get("enabled", False)
            people = ("root", "root", "u1", "u1", "u2", "u2", "nobody", "stranger")
            user = draws.pick(people)
            if draws.chance(0.2) or enabled[0] != "ok":
                # Whoever's token has ended comes back by their password.
                if enabled[0] != "ok":
                    user = "root"
                name, password = ("u1" if user in ("nobody", "stranger") else user), draws.password(user)
                same(f"{step} enter {name}", *[side.enter(name, password) for side in both])
                continue
            if draws.chance(0.45 if known else 0.75):
                name, request = draws.management()
                user = "root" if draws.chance(0.7) else user
            else:
                name, request = draws.access()
            same(f"{step} {user} {name} {request}", *[side.ask(user, name, request) for side in both])
    assert {"etcdserver: permission denied", "ok", "etcdserver: invalid auth token"} <= outcomes, outcomes


def test_downgrades_are_judged_alike_where_etcd_goes_nowhere(tmp_path: Path) -> None:
    with both_of(tmp_path) as both:
        asked = [(0, version) for version in ("", "x", "3", "3.7", "3.7.0", "3.5.1", "3.5.1-rc.1", "4.7.0", " 3.7")]
        for action, version in (*asked, (1, "3.8.0"), (1, "x"), (2, ""), (2, "x")):
            request = pb.DowngradeRequest(action=action, version=version)
            theirs, mine = (side.call("Maintenance/Downgrade", request) for side in both)
            assert mine == theirs, request
