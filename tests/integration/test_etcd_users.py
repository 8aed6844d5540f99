"""Tokens and certificates in front of users and roles: who is asking, until when, and through which door."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etcd_api import Caller, ours

from minikube_py.errors import InvalidRequest
from minikube_py.etcd import large, users
from minikube_py.etcd.errors import Refused
from minikube_py.etcd.guard import NOBODY, SHOWN, Guard, Shown, shown_over_http
from minikube_py.etcd.messages import pb
from minikube_py.mvcc import budgets
from minikube_py.mvcc.auth import OLD_REVISION, TOKEN
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import ChangeAuth


class Hand:
    """A clock that is set."""

    now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s


def founded() -> StateMachine:
    state = StateMachine()
    for change in (
        ChangeAuth("user add", "root", secret=b"hash"),
        ChangeAuth("user grant-role", "root", "root"),
        ChangeAuth("user add", "u", secret=b"hash"),
        ChangeAuth("enable"),
    ):
        state.apply(change)
    return state


def guarded(state: StateMachine) -> tuple[Guard, Hand, list[int]]:
    clock, asked = Hand(), list[int]()
    member: Any = SimpleNamespace(state=state, clock=clock)

    async def confirm() -> None:
        asked.append(state.revision)

    return Guard(member, confirm), clock, asked


def give(state: StateMachine, token: str, user: str) -> None:
    state.apply(ChangeAuth(TOKEN, user, kind=state.auth.revision, secret=token.encode()))


async def test_a_token_ends_after_its_time_without_use_and_with_the_password() -> None:
    state = founded()
    guard, clock, asked = guarded(state)
    give(state, "t.1", "u")
    SHOWN.set(lambda: Shown("t.1", "root"))
    guard.sweep()
    for _ in range(3):
        clock.now_s += guard.token_s - 1
        guard.sweep()
        assert (await guard.who()).user == "u", "the token goes before the certificate"
    assert not asked
    clock.now_s += guard.token_s + 1
    guard.sweep()
    with pytest.raises(Refused, match="invalid auth token"):
        await guard.who()
    assert asked and not state.auth.tokens
    give(state, "t.1", "u")
    assert (await guard.who()).user == "u"
    state.apply(ChangeAuth("user passwd", "u", secret=b"other"))
    with pytest.raises(Refused, match="invalid auth token"):
        await guard.who()


async def test_a_read_that_took_long_is_not_answered_by_rules_that_have_changed() -> None:
    state = founded()
    guard, _, _ = guarded(state)
    SHOWN.set(lambda: Shown("", "root"))
    who = await guard.read(b"a")
    guard.unchanged(who)
    state.apply(ChangeAuth("role add", "r"))
    with pytest.raises(InvalidRequest, match=OLD_REVISION):
        guard.unchanged(who)
    SHOWN.set(Shown)
    assert await guard.who() == NOBODY
    with pytest.raises(InvalidRequest, match="user name is empty"):
        await guard.known()


def test_the_gateway_takes_a_token_as_etcd_does() -> None:
    assert shown_over_http({"Authorization": "t.1"}) == shown_over_http({"Authorization": "Bearer t.1"}) == Shown("t.1")
    assert shown_over_http({"Grpc-Metadata-Token": "t.2", "Authorization": "t.1"}) == Shown("t.2")
    assert shown_over_http({}) == Shown() and shown_over_http({"Authorization": ""}).token


def post(port: int, path: str, body: dict[str, Any], token: str = "") -> Any:
    headers = {"Authorization": token} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/{path}", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return json.loads(error.read())["message"]


def test_users_stand_after_a_restart_and_the_gateway_asks_for_them(tmp_path: Path) -> None:
    with ours(tmp_path, http=True) as server:
        port = server.http_port
        post(port, "auth/user/add", {"name": "root", "password": "pw"})
        post(port, "auth/user/grant", {"user": "root", "role": "root"})
        assert "header" in post(port, "auth/enable", {})
    with ours(tmp_path, http=True) as server:
        port = server.http_port
        assert post(port, "kv/range", {"key": "YQ=="}) == "etcdserver: user name is empty"
        wrong = post(port, "auth/authenticate", {"name": "root", "password": "no"})
        assert wrong == "etcdserver: authentication failed, invalid user ID or password"
        token = post(port, "auth/authenticate", {"name": "root", "password": "pw"})["token"]
        assert post(port, "kv/range", {"key": "YQ=="}, "no.1") == "etcdserver: invalid auth token"
        assert "header" in post(port, "kv/range", {"key": "YQ=="}, token)
        caller = Caller(f"127.0.0.1:{server.port}")
        code, _ = caller.call("KV/Put", pb.PutRequest(key=b"a"), (("token", token),))
        assert code == "ok"
        caller.close()


def test_who_may_nothing_learns_no_number_and_has_nothing_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "DELETED_MAX", 2)
    monkeypatch.setattr(large, "TXN_KEYS_MAX", 2)
    hashed: list[str] = []
    scrypt = users.Users._scrypt

    async def counted(self: users.Users, password: str, salt: bytes) -> bytes:
        hashed.append(password)
        return await scrypt(self, password, salt)

    monkeypatch.setattr(users.Users, "_scrypt", counted)
    everything = {"key": "AA==", "range_end": "AA=="}
    deletion, read = {"requestDeleteRange": everything}, {"requestRange": {**everything, "serializable": True}}
    with ours(tmp_path, http=True) as server:
        port = server.http_port
        for key in ("YQ==", "Yg==", "Yw=="):
            assert "header" in post(port, "kv/put", {"key": key})
        post(port, "auth/user/add", {"name": "root", "password": "pw"})
        post(port, "auth/user/grant", {"user": "root", "role": "root"})
        assert "header" in post(port, "auth/enable", {})
        token = post(port, "auth/authenticate", {"name": "root", "password": "pw"})["token"]
        costly = ({"success": [deletion]}, "the limit is 2"), ({"success": [read] * 3}, "more than 2 keys")
        for txn, limit in costly:
            assert post(port, "kv/txn", txn) == "etcdserver: user name is empty"
            assert limit in post(port, "kv/txn", txn, token)
        known = len(hashed)
        for path in ("auth/user/add", "auth/user/changepw"):
            assert post(port, path, {"name": "root", "password": "other"}) == "etcdserver: user name is empty"
        assert len(hashed) == known
        assert "header" in post(port, "auth/user/add", {"name": "u", "password": "other"}, token)
        assert len(hashed) > known
