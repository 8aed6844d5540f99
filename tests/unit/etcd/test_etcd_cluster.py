"""Why a change of members is refused: etcd's words for what they mean, and the store's for everything else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikube_py.errors import Unavailable
from minikube_py.etcd.cluster import Cluster
from minikube_py.etcd.errors import LEARNER_BEHIND, UNHEALTHY, status_of
from minikube_py.etcd.messages import pb
from minikube_py.raft.configuration import NodeId
from minikube_py.store.membership import Member
from minikube_py.store.membership_checks import NO_MAJORITY, NOT_CAUGHT_UP

STOPPED = "the member is stopping"


def refused_by(why: str, *, learner: bool) -> Cluster:
    async def passes(*_given: Any) -> None:
        pass

    async def change_members(*_given: Any) -> None:
        raise Unavailable(why)

    one = Member(NodeId(1), "one", "127.0.0.1:1", learner=learner)
    other = Member(NodeId(2), "two", "127.0.0.1:2")
    membership = SimpleNamespace(members=(one, other), get={one.id: one}.get)
    node: Any = SimpleNamespace(
        guard=SimpleNamespace(admin=passes),
        confirmed=passes,
        change_members=change_members,
        member=SimpleNamespace(membership=membership, member_id=2),
    )
    return Cluster(node)


@pytest.mark.parametrize(
    ("call", "why", "answer"),
    [
        ("promote", f"one {NOT_CAUGHT_UP}", LEARNER_BEHIND),
        ("promote", STOPPED, status_of(Unavailable(STOPPED))),
        ("remove", f"without one, {NO_MAJORITY}", UNHEALTHY),
        ("remove", STOPPED, status_of(Unavailable(STOPPED))),
    ],
)
async def test_a_change_of_members_is_refused_with_its_own_reason(call: str, why: str, answer: tuple[Any, str]) -> None:
    cluster = refused_by(why, learner=call == "promote")
    request = pb.MemberPromoteRequest(ID=1) if call == "promote" else pb.MemberRemoveRequest(ID=1)
    with pytest.raises(Exception) as refused:
        await getattr(cluster, call)(request)
    assert status_of(refused.value) == answer  # type: ignore[arg-type]
