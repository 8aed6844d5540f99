"""Every method of etcd's API at the last of three members, beside the last of a real etcd's three: the same codes and
texts, at once or after the same wait.

Methods are those of the table of `schema`: one that no request here names fails the test. etcdctl's commands are typed
at both, too: each has to end by itself where it does with etcd."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from bench_etcd_killed import MEMBERS, Members
from etcd_api import METHODS, Caller
from needs import original_program
from patience import eventually
from test_etcd_three_members import doors

from minikube_py.etcd.messages import BY_NAME, pb

pytestmark = pytest.mark.original
LEASE, KEY, NAME = 5, b"a", b"elected"
CLIENT_ENDS_S = 25.0
"""Longer than a real etcd waits (7 s, or 14 s behind another read), but for changes of members: they end with their
client."""
WAIT_S = 6.5
"""Nearly the whole wait: whatever takes less was answered at once, on a machine however busy."""
CLIENT_ENDED = ("DEADLINE_EXCEEDED", "")


class Case(NamedTuple):
    method: str
    request: Any = None
    metadata: Any = None
    known: str = ""
    """Why ours may differ."""


class Told(NamedTuple):
    code: str
    text: str
    waited: bool


def txn(*, serializable: bool = False, put: bool = False, compared: bool = False) -> Any:
    op = pb.RequestOp(request_range=pb.RangeRequest(key=KEY, serializable=serializable))
    if put:
        op = pb.RequestOp(request_put=pb.PutRequest(key=KEY))
    return pb.TxnRequest(success=[op], compare=[pb.Compare(key=KEY, target=0, version=1)] if compared else [])


WANTS_LEADER = (("hasleader", "true"),)


def cases(own: int, other: int) -> Iterator[Case]:
    """`own`, `other`: ids of the member that is asked, and of one that is killed."""
    yield from of_data()
    yield from of_members(own, other)
    yield from of_upkeep(own)
    yield from of_people()


def of_data() -> Iterator[Case]:
    yield Case("KV/Range", pb.RangeRequest(key=KEY))
    yield Case("KV/Range", pb.RangeRequest(key=KEY, serializable=True))
    yield Case("KV/Range", pb.RangeRequest(key=KEY), WANTS_LEADER)
    yield Case("KV/Range", pb.RangeRequest(key=KEY, serializable=True), WANTS_LEADER)
    yield Case("KV/RangeStream", pb.RangeRequest(key=KEY))
    yield Case("KV/RangeStream", pb.RangeRequest(key=KEY, serializable=True))
    yield Case("KV/Put", pb.PutRequest(key=KEY))
    yield Case("KV/Put", pb.PutRequest(key=KEY), WANTS_LEADER)
    yield Case("KV/DeleteRange", pb.DeleteRangeRequest(key=KEY))
    yield Case("KV/Txn", txn())
    yield Case("KV/Txn", txn(serializable=True))
    yield Case("KV/Txn", txn(serializable=True, compared=True))
    yield Case("KV/Txn", txn(put=True))
    yield Case("KV/Compact", pb.CompactionRequest(revision=1))
    yield Case("KV/Compact", pb.CompactionRequest(revision=1, physical=True))
    yield Case("Watch/Watch", pb.WatchRequest(create_request=pb.WatchCreateRequest(key=KEY)))
    yield Case("Watch/Watch", pb.WatchRequest(create_request=pb.WatchCreateRequest(key=KEY)), WANTS_LEADER)
    yield Case("Watch/Watch", pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
    yield Case("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=60))
    yield Case("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=LEASE))
    yield Case("Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest(ID=LEASE))
    yield Case("Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest(ID=99))
    yield Case("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=LEASE))
    yield Case("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=LEASE, keys=True))
    yield Case("Lease/LeaseLeases")


def of_members(own: int, other: int) -> Iterator[Case]:
    urls = ["http://127.0.0.1:1"]
    yield Case("Cluster/MemberAdd", pb.MemberAddRequest(peerURLs=urls))
    yield Case("Cluster/MemberAdd", pb.MemberAddRequest(peerURLs=urls, isLearner=True))
    yield Case("Cluster/MemberRemove", pb.MemberRemoveRequest(ID=other))
    yield Case("Cluster/MemberRemove", pb.MemberRemoveRequest(ID=own))
    yield Case("Cluster/MemberRemove", pb.MemberRemoveRequest(ID=7))
    yield Case("Cluster/MemberUpdate", pb.MemberUpdateRequest(ID=other, peerURLs=urls))
    yield Case("Cluster/MemberUpdate", pb.MemberUpdateRequest(ID=7, peerURLs=urls))
    yield Case("Cluster/MemberPromote", pb.MemberPromoteRequest(ID=other))
    yield Case("Cluster/MemberPromote", pb.MemberPromoteRequest(ID=7))
    yield Case("Cluster/MemberList")
    yield Case("Cluster/MemberList", pb.MemberListRequest(linearizable=True))
    yield Case("Maintenance/Alarm")
    yield Case("Maintenance/Alarm", pb.AlarmRequest(action=2))
    yield Case("Maintenance/Alarm", pb.AlarmRequest(action=2, memberID=own, alarm=1))


def of_upkeep(own: int) -> Iterator[Case]:
    yield Case("Maintenance/Status")
    yield Case("Maintenance/Defragment")
    yield Case("Maintenance/Hash")
    yield Case("Maintenance/HashKV")
    yield Case("Maintenance/Snapshot")
    yield Case("Maintenance/MoveLeader", pb.MoveLeaderRequest(targetID=own))
    yield Case("Maintenance/Downgrade", pb.DowngradeRequest(version="3.6.0"))
    yield Case("Maintenance/Downgrade", pb.DowngradeRequest(action=1, version="3.6.0"))
    yield Case("Maintenance/Downgrade", pb.DowngradeRequest(action=2), known="nothing to cancel: waits for nothing")
    yield Case("Health/Check")
    yield Case("Health/List")
    yield Case("Health/Watch")


def of_people() -> Iterator[Case]:
    permission = pb.Permission(permType=2, key=KEY)
    yield Case("Auth/AuthEnable")
    yield Case("Auth/AuthDisable")
    yield Case("Auth/AuthStatus")
    yield Case("Auth/Authenticate", pb.AuthenticateRequest(name="u", password="p"))
    yield Case("Auth/UserAdd", pb.AuthUserAddRequest(name="v", password="p"))
    yield Case("Auth/UserGet", pb.AuthUserGetRequest(name="u"))
    yield Case("Auth/UserList")
    yield Case("Auth/UserDelete", pb.AuthUserDeleteRequest(name="u"))
    yield Case("Auth/UserChangePassword", pb.AuthUserChangePasswordRequest(name="u", password="q"))
    yield Case("Auth/UserGrantRole", pb.AuthUserGrantRoleRequest(user="u", role="r"))
    yield Case("Auth/UserRevokeRole", pb.AuthUserRevokeRoleRequest(name="u", role="r"))
    yield Case("Auth/RoleAdd", pb.AuthRoleAddRequest(name="s"))
    yield Case("Auth/RoleGet", pb.AuthRoleGetRequest(role="r"))
    yield Case("Auth/RoleList")
    yield Case("Auth/RoleDelete", pb.AuthRoleDeleteRequest(role="r"))
    yield Case("Auth/RoleGrantPermission", pb.AuthRoleGrantPermissionRequest(name="r", perm=permission))
    yield Case("Auth/RoleRevokePermission", pb.AuthRoleRevokePermissionRequest(role="r", key=KEY))
    leader = pb.LeaderKey(name=NAME, key=NAME + b"/5", rev=1, lease=LEASE)
    yield Case("Lock/Lock", pb.LockRequest(name=b"l"))
    yield Case("Lock/Lock", pb.LockRequest(name=b"l", lease=LEASE))
    yield Case("Lock/Unlock", pb.UnlockRequest(key=b"l/5"))
    yield Case("Election/Campaign", pb.CampaignRequest(name=NAME))
    yield Case("Election/Campaign", pb.CampaignRequest(name=NAME, lease=LEASE))
    yield Case("Election/Proclaim", pb.ProclaimRequest(leader=leader, value=b"v"))
    yield Case("Election/Leader", pb.LeaderRequest(name=NAME))
    yield Case("Election/Observe", pb.LeaderRequest(name=NAME), known="etcd ends the stream without a word")
    yield Case("Election/Observe", pb.LeaderRequest(name=NAME), WANTS_LEADER)
    yield Case("Election/Resign", pb.ResignRequest(leader=leader))


COMMANDS = (
    "alarm disarm",
    "alarm list",
    "auth status",
    "compaction 1",
    "defrag",
    "del a",
    "elect -l elected",
    "elect other v",
    "endpoint health",
    "get a",
    "lease grant 60",
    "lease keep-alive --once 5",
    "lease list",
    "lease revoke 5",
    "lease timetolive 5",
    "lock l",
    "member add x --peer-urls=http://127.0.0.1:1",
    "member list",
    "member remove 7",
    "put a 1",
    "role add s",
    "role get r",
    "role list",
    "user add v:p",
    "user delete u",
    "user get u",
    "user list",
)


class Left:
    """The last member of three. `ids`: its own, and that of another; `flags`: etcdctl's to reach it."""

    def __init__(self, caller: Caller, credentials: Any, *flags: str) -> None:
        self.caller, self._credentials, self._flags = caller, credentials, flags

    def prepare(self) -> None:
        """What the requests are about exists."""
        call = self.caller.call
        for name, request in (
            ("KV/Put", pb.PutRequest(key=KEY, value=b"1")),
            ("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=LEASE, TTL=600)),
            ("Auth/UserAdd", pb.AuthUserAddRequest(name="u", password="p")),
            ("Auth/RoleAdd", pb.AuthRoleAddRequest(name="r")),
            ("Election/Campaign", pb.CampaignRequest(name=NAME, lease=LEASE, value=b"v")),
        ):
            assert call(name, request)[0] == "ok"
        found = call("Cluster/MemberList")[1]
        own = found["header"]["member_id"]
        self.ids = own, next(each["ID"] for each in found["members"] if each["ID"] != own)

    def ask_all(self) -> tuple[list[Case], list[Told]]:
        eventually(lambda: self.caller.call("Maintenance/Status")[1].get("leader", 0) == 0, "no leader is known")
        asked = list(cases(*self.ids))
        with ThreadPoolExecutor(len(asked)) as threads:
            return asked, list(threads.map(self._ask, asked))

    def _ask(self, case: Case) -> Told:
        caller, since_s = Caller(self.caller.target, self._credentials, f"{case}"), time.monotonic()
        code, text = self._first(caller, case)
        took_s = time.monotonic() - since_s
        caller.close()
        if code == "DEADLINE_EXCEEDED" and took_s >= CLIENT_ENDS_S:
            return Told(*CLIENT_ENDED, waited=True)
        return Told(code, text, took_s > WAIT_S)

    @staticmethod
    def _first(caller: Caller, case: Case) -> tuple[str, str]:
        """Code and text of the first answer."""
        name, request, metadata, _ = case
        kind = METHODS[name]
        if request is None:
            request = BY_NAME[kind.request]()
        if kind.takes_stream:
            stream = caller.stream(name, metadata)
            stream.send(request)
            try:
                told = stream.next(CLIENT_ENDS_S)
            except queue.Empty:
                return "silent", ""
            finally:
                stream.close()
            return told if isinstance(told, tuple) else ("ok", "")
        call = caller.method(name, "unary_stream" if kind.gives_stream else "unary_unary")
        try:
            answer = call(request, timeout=CLIENT_ENDS_S, metadata=metadata)
            if kind.gives_stream and next(iter(answer), None) is None:
                return "ended", ""
        except grpc.RpcError as error:
            return error.code().name, error.details() or ""
        return "ok", ""

    def type_all(self) -> list[tuple[int | str, str]]:
        with ThreadPoolExecutor(len(COMMANDS)) as threads:
            return list(threads.map(self._type, COMMANDS))

    def _type(self, words: str) -> tuple[int | str, str]:
        """Exit code ("runs" if it does not end) and the last line of its error."""
        command = [original_program("etcdctl"), "--command-timeout=10s", *self._flags, *words.split()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_ENDS_S, check=False)
        except subprocess.TimeoutExpired:
            return "runs", ""
        return done.returncode, (done.stderr.strip().splitlines() or [""])[-1].rpartition("Error: ")[2]


def theirs(folder: Path) -> Any:
    members = Members(folder)
    try:
        for at in range(MEMBERS):
            members.start(at)
        eventually(lambda: all(map(members.healthy, range(MEMBERS))), "a real etcd of three members")
        with contextlib.closing(Caller(members.urls[0].removeprefix("http://"))) as caller:
            left = Left(caller, None, f"--endpoints={members.urls[0]}")
            left.prepare()
            for at in range(1, MEMBERS):
                members.kill(at)
            return left.ask_all(), left.type_all()
    finally:
        members.stop()


async def our_own(folder: Path) -> Any:
    async with doors(folder) as found:
        name, *others = found.callers
        caller, store = found.callers[name], found.store
        tls = f"--cacert={store}/authority.pem", f"--cert={store}/peer.pem", f"--key={store}/peer.key"
        left = Left(caller, found.credentials(), f"--endpoints=https://{caller.target}", *tls)
        for each in found.callers:
            await found.ok(each, "KV/Range", pb.RangeRequest(key=KEY))
        await asyncio.to_thread(left.prepare)
        await found.cluster.kill(*others)
        return await asyncio.to_thread(left.ask_all), await asyncio.to_thread(left.type_all)


def test_every_method_is_in_the_list() -> None:
    assert {each.method for each in cases(1, 2)} == set(METHODS)


def same(case: Case, there: Told, here: Told) -> bool:
    if there == Told(*CLIENT_ENDED, waited=True):
        return here in (there, Told("DEADLINE_EXCEEDED", "context deadline exceeded", waited=True))
    return bool(case.known) or here == there


async def test_without_a_quorum_everything_is_answered_as_by_etcd(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (asked, there), typed_there = await asyncio.to_thread(theirs, tmp_path / "theirs")
    (_, here), typed_here = await our_own(tmp_path / "ours")
    different = [each for each in zip(asked, there, here, strict=True) if not same(*each)]
    assert not different, "\n".join(f"{case.method} {case.request}: {a} {b}" for case, a, b in different)
    typed = [each for each in zip(COMMANDS, typed_there, typed_here, strict=True) if each[1] != each[2]]
    assert not typed, "\n".join(f"{words}: {a} {b}" for words, a, b in typed)
