"""What a member says of the others, and what it says without a leader: etcd's texts and codes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from virtual_time import LoopClock, run_virtually

from minikube_py.apiserver.health import READY_S
from minikube_py.errors import Leaderless, OutcomeUnknown, Unavailable
from minikube_py.etcd.cluster import Cluster
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import NO_LEADER, NOT_PROPOSED, TIMED_OUT, UNHEALTHY, Refused, status_of
from minikube_py.etcd.http import HttpDoor
from minikube_py.etcd.lease import Lease
from minikube_py.etcd.locks import Locks, as_client
from minikube_py.etcd.maintenance import Maintenance
from minikube_py.etcd.messages import pb
from minikube_py.etcd.node import URLS_S, Node
from minikube_py.etcd.users import Users
from minikube_py.mvcc.lease import Leases
from minikube_py.mvcc.types import DeleteRange
from minikube_py.store.membership import ChangeKind, MemberChange

EXPECT = MemberChange(ChangeKind.EXPECT, name="x", peer="127.0.0.1:1")
PRIVATE = "no leader of the store was reached within 6 s: 127.0.0.1:51185: [Errno 111] Connect call failed"


async def passes(*_given: Any) -> None:
    pass


class Lost:
    """A client that reaches no leader."""

    async def command(self, command: Any) -> Any:
        raise Leaderless(PRIVATE)

    lease_keep_alive = lease_remaining_s = clear_alarm = change_members = command


def follower(**more: Any) -> Node:
    """Of three members of which it is the only one."""

    async def confirmed() -> None:
        raise Leaderless("there is no leader to confirm the read; try again")

    async def connect() -> Any:
        return Lost()

    state = SimpleNamespace(
        auth=SimpleNamespace(enabled=False), version=1, revision=7, lessor=Leases(), leases=lambda: [(5, 300)]
    )
    members = [SimpleNamespace(id=each, name=f"m{each}", peer="", learner=False) for each in (1, 2)]
    member: Any = SimpleNamespace(
        clock=LoopClock(),
        client_urls=("https://here:1",),
        confirmed=confirmed,
        member_id=1,
        membership=SimpleNamespace(members=members, expected=[]),
        raft=SimpleNamespace(term=2),
        readable=False,
        replica=SimpleNamespace(leading=False, leader=lambda: None, cluster_id=9),
        state=state,
    )
    return Node(member, connect, **more)


def refusal(work: Callable[[], Awaitable[Any]]) -> tuple[Any, str]:
    async def run() -> tuple[Any, str]:
        with pytest.raises(Exception) as refused:
            await work()
        return status_of(refused.value)  # type: ignore[arg-type]

    return run_virtually(run)


def test_without_a_leader_errors_are_etcds_and_name_no_member() -> None:
    node = follower()
    node.guard = SimpleNamespace(known=passes, admin=passes, renew=passes, read_leases=passes)  # type: ignore[assignment]
    lease, cluster = Lease(node), Cluster(node)
    assert refusal(lambda: node.command(DeleteRange(b"a"))) == NOT_PROPOSED
    assert refusal(node.confirmed) == TIMED_OUT
    assert refusal(lambda: lease.keep_alive(pb.LeaseKeepAliveRequest(ID=5))) == NO_LEADER
    assert refusal(lambda: lease.time_to_live(pb.LeaseTimeToLiveRequest(ID=5))) == NO_LEADER
    add = pb.MemberAddRequest(peerURLs=["https://127.0.0.1:1"])
    assert refusal(lambda: cluster.add(add)) == UNHEALTHY
    assert refusal(lambda: node.change_members(EXPECT)) == NOT_PROPOSED
    assert refusal(lambda: cluster.promote(pb.MemberPromoteRequest(ID=2))) == NO_LEADER
    assert refusal(lambda: cluster.remove(pb.MemberRemoveRequest(ID=2))) == NOT_PROPOSED
    assert refusal(lambda: cluster.remove(pb.MemberRemoveRequest(ID=1))) == UNHEALTHY
    # etcd reads users and alarms through its log.
    assert refusal(lambda: Users(node).list_users(pb.AuthUserListRequest())) == NOT_PROPOSED
    assert refusal(lambda: Maintenance(node).alarm(pb.AlarmRequest())) == NOT_PROPOSED
    # Its locks are clients of its other services, whose errors have lost their code.
    leads, lock = (as_client(each) for each in (Locks(node).leader, Locks(node).lock))
    assert refusal(lambda: leads(pb.LeaderRequest(name=b"l"))) == (StatusCode.UNKNOWN, TIMED_OUT[1])
    assert refusal(lambda: lock(pb.LockRequest(name=b"l", lease=5))) == NOT_PROPOSED
    found = run_virtually(lambda: lease.leases(pb.LeaseLeasesRequest()))
    assert [each.ID for each in found.leases] == [5]


def test_without_a_leader_readyz_says_so_within_two_seconds() -> None:
    node = follower()
    node.member.read = lambda request: None
    node.member.state.alarms = SimpleNamespace(raised=[])
    node.member.membership.get = lambda id: node.member.membership.members[id - 1]
    door = object.__new__(HttpDoor)
    door._server = SimpleNamespace(node=node)  # type: ignore[assignment]

    async def run() -> tuple[int, str, float]:
        begun_s = node.member.clock.monotonic_s()
        answer = await door._checked(make_mocked_request("GET", "/readyz"))
        return answer.status, str(answer.text), node.member.clock.monotonic_s() - begun_s

    status, text, took_s = run_virtually(run)
    assert status == 503 and READY_S <= took_s < READY_S + 0.01
    assert f"[-]linearizable_read failed: {TIMED_OUT[1]}\n" in text and "[+]serializable_read ok\n" in text


@pytest.mark.parametrize(
    ("error", "code"),
    [(Unavailable("the store failed"), StatusCode.UNAVAILABLE), (OutcomeUnknown(""), StatusCode.UNKNOWN),
     (Leaderless(""), StatusCode.UNKNOWN), (Refused(*NOT_PROPOSED), StatusCode.DEADLINE_EXCEEDED)],
)  # fmt: skip
def test_only_errors_that_etcd_has_lose_their_code_in_a_lock(error: Exception, code: StatusCode) -> None:
    async def raises(_request: Any) -> Any:
        raise error

    assert refusal(lambda: as_client(raises)(None))[0] == code


def test_the_urls_of_a_member_that_starts_again_with_others_are_asked_for_again() -> None:
    serving: dict[int, tuple[str, ...]] = {2: ()}
    asked: list[int] = []

    async def ask() -> dict[int, tuple[str, ...]]:
        asked.append(len(asked))
        return dict(serving)

    async def run() -> None:
        node = follower(ask_urls=ask)
        clock = node.member.clock
        here = {1: ("https://here:1",)}
        assert await node.urls() == {2: (), **here}
        # It starts again, with the flag; and then elsewhere.
        for urls in (("https://there:1",), ("https://there:2",)):
            serving[2] = urls
            await clock.sleep(URLS_S)
            assert await node.urls() == {2: urls, **here}
        # Not for each request of a flood.
        for _ in range(100):
            await node.urls()
        assert len(asked) <= 4
        # One that does not answer keeps those it had.
        del serving[2]
        await clock.sleep(URLS_S)
        assert await node.urls() == {2: ("https://there:2",), **here}

    run_virtually(run)
