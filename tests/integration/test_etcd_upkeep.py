"""Cluster, Maintenance, Lock and Election of etcd's API on one member: of ours and of a real etcd, that it is so."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from etcd_api import Caller, ours, real_etcd
from patience import PATIENCE_S, eventually

from minikube_py.etcd.messages import pb


@pytest.fixture(scope="module", params=["ours", pytest.param("etcd", marks=pytest.mark.original)])
def etcd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    folder = tmp_path_factory.mktemp("etcd")
    with contextlib.ExitStack() as stack:
        if request.param == "ours":
            target = f"127.0.0.1:{stack.enter_context(ours(folder)).port}"
        else:
            target = stack.enter_context(real_etcd(folder))
        caller = Caller(target)
        yield caller
        caller.close()


def ok(answer: tuple[str, Any]) -> Any:
    assert answer[0] == "ok", answer
    return answer[1]


def put(etcd: Caller, key: bytes) -> int:
    return int(ok(etcd.call("KV/Put", pb.PutRequest(key=key)))["header"]["revision"])


def test_the_status_of_a_member_alone(etcd: Caller) -> None:
    put(etcd, b"a")
    status = ok(etcd.call("Maintenance/Status"))
    assert status["leader"] == status["header"]["member_id"] > 0
    assert status["version"].startswith("3.") and status["storageVersion"].startswith("3.")
    assert status["dbSize"] > 0 and status["dbSizeQuota"] > 0 and "errors" not in status and "isLearner" not in status
    assert status["raftIndex"] >= status["raftAppliedIndex"] > 0 and status["raftTerm"] == status["header"]["raft_term"]
    assert ok(etcd.call("Maintenance/Defragment")) == {}


def test_hashes_name_their_revision(etcd: Caller) -> None:
    first = put(etcd, b"hash")
    then = ok(etcd.call("Maintenance/HashKV", pb.HashKVRequest(revision=first)))
    now = put(etcd, b"hash")
    again = ok(etcd.call("Maintenance/HashKV", pb.HashKVRequest(revision=first)))
    assert (then["hash"], then["hash_revision"]) == (again["hash"], again["hash_revision"])
    latest = ok(etcd.call("Maintenance/HashKV"))
    assert latest["hash"] != then["hash"] and latest["hash_revision"] == latest["header"]["revision"] == now
    future = etcd.call("Maintenance/HashKV", pb.HashKVRequest(revision=now + 9))
    assert future == ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")
    ok(etcd.call("KV/Compact", pb.CompactionRequest(revision=now)))
    gone = etcd.call("Maintenance/HashKV", pb.HashKVRequest(revision=first))
    assert gone == ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted")


def test_who_may_lead_and_alarms_that_nobody_raised(etcd: Caller) -> None:
    own = ok(etcd.call("Maintenance/Status"))["header"]["member_id"]
    bad = etcd.call("Maintenance/MoveLeader", pb.MoveLeaderRequest(targetID=own + 1))
    assert bad == ("FAILED_PRECONDITION", "etcdserver: bad leader transferee")
    for action, alarm in ((0, 1), (2, 1), (1, 0)):
        answer = ok(etcd.call("Maintenance/Alarm", pb.AlarmRequest(action=action, memberID=own, alarm=alarm)))
        assert "alarms" not in answer


def test_members_and_what_cannot_be_done_to_them(etcd: Caller) -> None:
    found = ok(etcd.call("Cluster/MemberList", pb.MemberListRequest(linearizable=True)))
    (member,) = found["members"]
    assert member["ID"] == found["header"]["member_id"] and member["name"] and "revision" not in found["header"]
    unknown = ("NOT_FOUND", "etcdserver: member not found")
    assert etcd.call("Cluster/MemberRemove", pb.MemberRemoveRequest(ID=1)) == unknown
    assert etcd.call("Cluster/MemberPromote", pb.MemberPromoteRequest(ID=1)) == unknown
    urls = ["http://127.0.0.1:9"]
    assert etcd.call("Cluster/MemberUpdate", pb.MemberUpdateRequest(ID=1, peerURLs=urls)) == unknown
    voter = etcd.call("Cluster/MemberPromote", pb.MemberPromoteRequest(ID=member["ID"]))
    assert voter == ("FAILED_PRECONDITION", "etcdserver: can only promote a learner member")
    for bad in ([], ["127.0.0.1:1"], ["http://127.0.0.1"], ["ftp://127.0.0.1:1"], ["http://127.0.0.1:1/x"]):
        refused = etcd.call("Cluster/MemberAdd", pb.MemberAddRequest(peerURLs=bad))
        assert refused == ("INVALID_ARGUMENT", "etcdserver: given member URLs are invalid"), bad


def test_what_does_not_fit_the_record_of_members_never_comes_into_the_log(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with ours(tmp_path_factory.mktemp("record")) as server:
        caller = Caller(f"127.0.0.1:{server.port}")
        own = ok(caller.call("Maintenance/Status"))["header"]["member_id"]
        for host in ("h" * 300, "\u2028" * 300):
            code, _ = caller.call("Cluster/MemberAdd", pb.MemberAddRequest(peerURLs=[f"http://{host}:1"]))
            updated, _ = caller.call(
                "Cluster/MemberUpdate", pb.MemberUpdateRequest(ID=own, peerURLs=[f"http://{host}:1"])
            )
            assert (code, updated) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
        assert caller.call("Cluster/MemberRemove", pb.MemberRemoveRequest(ID=own))[0] == "FAILED_PRECONDITION"
        assert put(caller, b"still") > 1
        caller.close()


def test_a_lock_is_had_by_one_after_the_other(etcd: Caller) -> None:
    leases = [ok(etcd.call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=300)))["ID"] for _ in range(2)]
    first = ok(etcd.call("Lock/Lock", pb.LockRequest(name=b"lock", lease=leases[0])))
    assert first["key"] == b"lock/%x" % leases[0]
    # Who asks again has it still.
    assert ok(etcd.call("Lock/Lock", pb.LockRequest(name=b"lock", lease=leases[0])))["key"] == first["key"]
    got: list[Any] = []
    waiting = threading.Thread(
        target=lambda: got.append(etcd.call("Lock/Lock", pb.LockRequest(name=b"lock", lease=leases[1])))
    )
    waiting.start()
    under = pb.RangeRequest(key=b"lock/", range_end=b"lock0", count_only=True)
    eventually(lambda: ok(etcd.call("KV/Range", under)).get("count") == 2, "the second waits")
    assert not got
    ok(etcd.call("Lock/Unlock", pb.UnlockRequest(key=first["key"])))
    waiting.join(PATIENCE_S)
    assert ok(got[0])["key"] == b"lock/%x" % leases[1]
    unknown = etcd.call("Lock/Lock", pb.LockRequest(name=b"lock", lease=99))
    assert unknown == ("UNKNOWN", "etcdserver: requested lease not found")


def test_an_election_has_one_leader_who_proclaims_and_resigns(etcd: Caller) -> None:
    none = etcd.call("Election/Leader", pb.LeaderRequest(name=b"elect"))
    assert none == ("UNKNOWN", "election: no leader")
    leases = [ok(etcd.call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=300)))["ID"] for _ in range(2)]
    campaign = [pb.CampaignRequest(name=b"elect", lease=lease, value=b"%d" % at) for at, lease in enumerate(leases)]
    first = ok(etcd.call("Election/Campaign", campaign[0]))["leader"]
    assert (first["key"], first["lease"]) == (b"elect/%x" % leases[0], leases[0])
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(etcd.call("Election/Campaign", campaign[1])))
    waiting.start()
    under = pb.RangeRequest(key=b"elect/", range_end=b"elect0", count_only=True)
    eventually(lambda: ok(etcd.call("KV/Range", under)).get("count") == 2, "the second waits")
    leader = pb.LeaderKey(**first)
    ok(etcd.call("Election/Proclaim", pb.ProclaimRequest(leader=leader, value=b"said")))
    assert ok(etcd.call("Election/Leader", pb.LeaderRequest(name=b"elect")))["kv"]["value"] == b"said"
    assert not got
    ok(etcd.call("Election/Resign", pb.ResignRequest(leader=leader)))
    waiting.join(PATIENCE_S)
    assert ok(got[0])["leader"]["key"] == b"elect/%x" % leases[1]
    late = etcd.call("Election/Proclaim", pb.ProclaimRequest(leader=leader, value=b"late"))
    assert late == ("UNKNOWN", "election: not leader")


def test_an_election_is_observed(etcd: Caller) -> None:
    lease = ok(etcd.call("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=300)))["ID"]
    observing = etcd.method("Election/Observe", "unary_stream")(pb.LeaderRequest(name=b"seen"), timeout=PATIENCE_S)
    won = ok(etcd.call("Election/Campaign", pb.CampaignRequest(name=b"seen", lease=lease, value=b"one")))
    assert next(observing).kv.value == b"one"
    leader = pb.LeaderKey(**won["leader"])
    ok(etcd.call("Election/Proclaim", pb.ProclaimRequest(leader=leader, value=b"two")))
    assert next(observing).kv.value == b"two"
    observing.cancel()
