"""Decides what a member without a log does: form a cluster with the others, enter an existing one, or wait.

Pure: takes the others' answers and returns a decision; `store.discovery` asks and acts. The rule that prevents a second
cluster: a member forms one only when all members, identified by the ids on their disks, have reported exactly the same
member list to each other. docs/adr/0006-identity-bootstrap-and-rejoin.md proves it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.mvcc.versions import FIRST, LATEST
from minikube_py.ports.addresses import split_address
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import NOBODY
from minikube_py.store.identity import id_text
from minikube_py.store.membership import (
    ID_MAX,
    MEMBERS_MAX,
    TEXT_MAX,
    ChangeKind,
    Member,
    MemberChange,
    Membership,
    encode_member_change,
    member_from_plain,
    member_to_plain,
)

Initial = tuple[tuple[str, str], ...]
"""(name, peer address) of the members that form a cluster, by name."""


@dataclass(frozen=True, slots=True)
class Intent:
    """What this member was started with. `me.peer` is its address in `initial`."""

    me: Member
    initial: Initial
    rejoin: bool = False

    def __post_init__(self) -> None:
        names = dict(self.initial)
        if not names:
            raise MinikubeError(f"a member with peers needs --initial-cluster: all, {self.me.name} too, by address")
        if self.me.name not in names:
            known = ", ".join(names)
            raise MinikubeError(f"--name {self.me.name} is not in --initial-cluster: {known}")
        if names[self.me.name] != self.me.peer:
            raise MinikubeError(
                f"--initial-cluster gives {self.me.name} the address {names[self.me.name]}, but its own flags give "
                f"{self.me.peer}: use the same address in both"
            )


@dataclass(frozen=True, slots=True)
class Answer:
    """A member's answer to WHO.

    With a log: `cluster_id`, `membership`, the known `leader` and the last `applied` index. Without one (`cluster_id`
    0): the `initial` it was started with, and `seen`, the initial members whose ids it knows, including itself."""

    member: Member
    cluster_id: int = 0
    membership: Membership = field(default_factory=Membership)
    leader: NodeId = NOBODY
    applied: int = 0
    initial: Initial = ()
    seen: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """Start the log with the entry common to all `members`, at `version` of the rules of apply."""

    cluster_id: int
    members: tuple[Member, ...]
    version: int = LATEST


@dataclass(frozen=True, slots=True)
class Enter:
    """Start with an empty log, as a member the cluster already knows; the leader sends the rest."""

    cluster_id: int
    membership: Membership


@dataclass(frozen=True, slots=True)
class Join:
    """Ask `leader` to propose `change`, then ask all members again."""

    cluster_id: int
    leader: Member
    change: MemberChange


@dataclass(frozen=True, slots=True)
class Wait:
    why: str


@dataclass(frozen=True, slots=True)
class Refuse:
    why: str


Decision = Form | Enter | Join | Wait | Refuse


def parse_initial_cluster(text: str) -> Initial:
    """`name=host:port,...`. Raises: MinikubeError."""
    found: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, address = item.partition("=")
        place = split_address(address)
        if not (equals and name and place and place[1]):
            raise MinikubeError(f"{item!r} is not name=host:port")
        if name in found:
            raise MinikubeError(f"{name} is named twice")
        if len(name) > TEXT_MAX or len(address) > TEXT_MAX:
            raise MinikubeError(f"names and addresses have at most {TEXT_MAX} characters")
        found[name] = address
    if not 0 < len(found) <= MEMBERS_MAX:
        raise MinikubeError(f"--initial-cluster names {len(found)} members; give 1 to {MEMBERS_MAX}")
    return tuple(sorted(found.items()))


def cluster_id_of(members: Iterable[Member], version: int = LATEST) -> int:
    """The id of the cluster that these form: different first entries, as different releases write, give different
    ids."""
    ordered = tuple(sorted(members, key=lambda member: member.id))
    first = encode_member_change(MemberChange(ChangeKind.BOOTSTRAP, members=ordered, version=version))
    return int.from_bytes(sha256(first).digest()[:8], "big") & ID_MAX or 1


def decide(intent: Intent, answers: Mapping[str, Answer]) -> Decision:
    """`answers` by address, the latest from each."""
    begun = [answer for answer in answers.values() if answer.cluster_id]
    return _with_those_begun(intent, begun) if begun else _with_all_new(intent, answers)


def _with_all_new(intent: Intent, answers: Mapping[str, Answer]) -> Decision:
    others = [(name, address) for name, address in intent.initial if name != intent.me.name]
    missing = [f"{name} ({address})" for name, address in others if address not in answers]
    if missing:
        return Wait(f"waiting for {', '.join(missing)} to answer")
    for name, address in others:
        answer = answers[address]
        if answer.member.name != name:
            return Wait(f"{address} is {answer.member.name}, not {name}: one --initial-cluster is wrong")
        if answer.initial != intent.initial:
            theirs = ",".join("=".join(item) for item in answer.initial)
            return Wait(f"{name} was started with another --initial-cluster, {theirs}: they must be equal")
    view = view_of(intent, answers)
    if len({member.id for member in view}) != len(view):
        return Refuse("two members have the same id: one folder was copied from the other; empty one of them")
    behind = [name for name, address in others if answers[address].seen != view]
    if behind:
        return Wait(f"waiting for {', '.join(behind)} to hear from all members")
    return Form(cluster_id_of(view), view)


def view_of(intent: Intent, answers: Mapping[str, Answer]) -> tuple[Member, ...]:
    """The initial members known so far, by id, this one included; empty once an existing cluster is known."""
    if any(answer.cluster_id for answer in answers.values()):
        return ()
    asked = [address for name, address in intent.initial if name != intent.me.name and address in answers]
    members = [intent.me, *(answers[address].member for address in asked)]
    return tuple(sorted(members, key=lambda member: member.id))


def _with_those_begun(intent: Intent, begun: list[Answer]) -> Decision:
    me = intent.me
    clusters = {answer.cluster_id: answer for answer in begun}
    if len(clusters) > 1:
        who = [f"{answer.member.name} is of cluster {id_text(id)}" for id, answer in sorted(clusters.items())]
        return Refuse(f"{' and '.join(who)}: --initial-cluster must name the members of one cluster")
    [cluster_id] = clusters
    if any(me.id in answer.membership.removed for answer in begun):
        return Refuse(
            f"member {id_text(me.id)} ({me.name}) was removed from cluster {id_text(cluster_id)}: empty its folder, "
            "and it may rejoin under a new id"
        )
    knowing = [answer for answer in begun if answer.membership.get(me.id) is not None]
    if knowing:
        latest = max(knowing, key=lambda answer: answer.applied).membership
        for version in range(FIRST, LATEST + 1):
            if cluster_id_of(latest.members, version) == cluster_id:
                return Form(cluster_id, latest.members, version)
        return Enter(cluster_id, latest)
    best = max(begun, key=lambda answer: (answer.applied, answer.leader == answer.member.id))
    leader = best.membership.get(best.leader)
    if leader is None:
        return Wait(f"cluster {id_text(cluster_id)} now has no leader to let {me.name} join; waiting for one")
    # Only a leader confirmed as such can check whether it fits: these answers, a leader's included, may be stale.
    change = MemberChange(
        ChangeKind.JOIN, id=me.id, name=me.name, peer=me.peer, client=me.client, rejoin=intent.rejoin
    )
    return Join(cluster_id, leader, change)


def answer_to_plain(answer: Answer) -> Any:
    return (
        member_to_plain(answer.member), answer.cluster_id, answer.membership.to_plain(), answer.leader, answer.applied,
        answer.initial, [member_to_plain(member) for member in answer.seen],
    )  # fmt: skip


def answer_from_plain(plain: Any) -> Answer:
    """Raises: InvalidRequest if it is not an answer."""
    try:
        member, cluster_id, membership, leader, applied, initial, seen = plain
        if not all(type(number) is int and 0 <= number <= ID_MAX for number in (cluster_id, leader, applied)):
            raise TypeError("its numbers are invalid")
        if len(initial) > MEMBERS_MAX or len(seen) > MEMBERS_MAX:
            raise ValueError(f"more than {MEMBERS_MAX} members")
        pairs = tuple((name, address) for name, address in initial)
        if not all(type(text) is str and len(text) <= TEXT_MAX for pair in pairs for text in pair):
            raise TypeError("its initial cluster is invalid")
        return Answer(
            member_from_plain(member),
            cluster_id,
            Membership.from_plain(membership),
            NodeId(leader),
            applied,
            pairs,
            tuple([member_from_plain(each) for each in seen]),
        )
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"not a valid answer to WHO: {error}") from None
