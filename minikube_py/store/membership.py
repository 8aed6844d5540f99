"""The members of a store, as a replicated record: names and addresses to go with Raft's ids.

The record changes only where an entry of kind CHANGE is applied, in the same step as Raft's configuration, so all
members agree on both at every index. A change that does not fit the record is refused before it is proposed; since at
most one change is in progress, the check still holds when it is applied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

import msgpack

from minikube_py.errors import Corruption, InvalidRequest, shown
from minikube_py.mvcc.codec import NewerMessage
from minikube_py.mvcc.versions import FIRST
from minikube_py.raft.codec import configuration_from_plain
from minikube_py.raft.configuration import Change, ChangeType, ConfChange, Configuration, NodeId
from minikube_py.raft.message import LogIndex, SnapshotMeta, Term
from minikube_py.wal.snapshot import SnapshotHead

MEMBERS_MAX: Final = 32
"""Limit of members and expected ones together. More than seven voters cost more than they protect from."""
REMOVED_MAX: Final = 1000
"""How many removed ids are remembered, to give the reason when they are refused; older ones are unknown."""
TEXT_MAX: Final = 256
ID_MAX: Final = (1 << 63) - 1
NO_ID: Final = NodeId(0)
DIFFERS: Final = "differs"


class ChangeKind(IntEnum):
    """Stored in logs on disk: never change a number."""

    BOOTSTRAP = 1
    EXPECT = 2
    JOIN = 3
    PROMOTE = 4
    REMOVE = 5
    UPDATE = 6


@dataclass(frozen=True, slots=True)
class Member:
    """`peer` and `client` are `host:port`. A learner receives the log without voting; with `auto_promote` the leader
    makes it a voter once it has caught up. `id` 0: announced, not started yet."""

    id: NodeId
    name: str
    peer: str = ""
    client: str = ""
    learner: bool = False
    auto_promote: bool = False


@dataclass(frozen=True, slots=True)
class MemberChange:
    """One change. Which fields count depends on `kind`:

    - BOOTSTRAP: `members`, the first ones, and the `version` of the rules of apply (`mvcc.versions`) that they begin
      with; only the first entry of a log.
    - EXPECT: a member `name` (`peer`, `client`, `learner`) will join, and is then admitted by that name.
    - JOIN: `id` starts under `name`: as a learner, which is promoted once it has caught up unless it was expected as a
      learner. With `rejoin` it replaces the member of that name, whose disk was lost.
    - PROMOTE: the learner `id` becomes a voter.
    - REMOVE: `id`, or `name` where `id` is 0. Permanently: it may return only under another id.
    - UPDATE: new `peer` and `client` addresses (and `name`, if given) of `id`; empty ones stay."""

    kind: ChangeKind
    id: NodeId = NO_ID
    name: str = ""
    peer: str = ""
    client: str = ""
    learner: bool = False
    rejoin: bool = False
    members: tuple[Member, ...] = ()
    version: int = FIRST


def encode_member_change(change: MemberChange) -> bytes:
    members = [member_to_plain(member) for member in change.members]
    fields = (change.kind, change.id, change.name, change.peer, change.client, change.learner, change.rejoin, members)
    # Releases that know only the first version accept exactly eight fields.
    packed: bytes = msgpack.packb(fields if change.version == FIRST else (*fields, change.version))
    return packed


def decode_member_change(data: bytes) -> MemberChange:
    """Raises: InvalidRequest if `data` is not a change; NewerMessage if a later version may know it."""
    try:
        kind, node, name, peer, client, learner, rejoin, members, *version = msgpack.unpackb(data)
        if type(kind) is int and (kind > max(ChangeKind) or len(version) > 1):
            raise NewerMessage(f"not a change of members of this release: kind {kind}, {8 + len(version)} fields")
        return MemberChange(
            ChangeKind(kind),
            _id(node, lowest=0),
            _text(name),
            _text(peer),
            _text(client),
            _flag(learner),
            _flag(rejoin),
            tuple([member_from_plain(member) for member in members]),
            *map(_version, version),
        )
    except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise InvalidRequest(f"not a change of members: {error!s:.300}") from None


def _version(plain: Any) -> int:
    if type(plain) is not int or plain < FIRST:
        raise ValueError("a version is a number of at least 1")
    return plain


@dataclass(frozen=True, slots=True)
class Membership:
    """`members` by id and `expected` by name, both sorted; `removed` with the latest last.

    Names and ids are unique, and no member is among the removed."""

    members: tuple[Member, ...] = ()
    expected: tuple[Member, ...] = ()
    removed: tuple[NodeId, ...] = ()

    @classmethod
    def of(cls, members: Iterable[Member]) -> Membership:
        """Raises: InvalidRequest if they cannot be the members of one store."""
        found = tuple(sorted(members, key=lambda member: member.id))
        _require(len({member.id for member in found}) == len(found), "two members have the same id")
        _require(len({member.name for member in found}) == len(found), "two members have the same name")
        _require(len(found) <= MEMBERS_MAX, f"a store has at most {MEMBERS_MAX} members")
        _require(not found or any(not member.learner for member in found), "no member would vote")
        return cls(found)

    def get(self, node: int) -> Member | None:
        return next((member for member in self.members if member.id == node), None)

    def named(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)

    def expecting(self, name: str) -> Member | None:
        return next((member for member in self.expected if member.name == name), None)

    def configuration(self) -> Configuration:
        """Raft's configuration while no change is in progress."""
        return Configuration(
            frozenset(member.id for member in self.members if not member.learner),
            learners=frozenset(member.id for member in self.members if member.learner),
        )

    def agrees(self, configuration: Configuration) -> bool:
        """Whether these are its voters and learners; of a joint one, those that it will have when it is left."""
        own, (voters, _, learners, learners_next, _) = self.configuration(), configuration
        return own.voters == voters and own.learners == learners | learners_next

    def reached(
        self, configuration: Configuration, before: Iterable[Member]
    ) -> tuple[tuple[Member, ...], tuple[NodeId, ...]]:
        """Whom to keep links with, and whom to refuse as removed: one that left the record votes, and serves, until it
        is in neither half of a joint configuration (the thesis, 4.3). `before`: those known so far."""
        left = {member.id: member for member in before}
        staying = [id for id in configuration.electors() if self.get(id) is None]
        members = (*self.members, *(left.get(id, Member(id, f"{id:x}")) for id in staying))
        return members, tuple(id for id in self.removed if id not in staying)

    def conf_change(self, change: MemberChange) -> ConfChange:
        """The proposal for Raft, with `change` as its context. Raises: InvalidRequest if it does not fit."""
        after = self.apply(change)
        before_ids, after_ids = ({member.id for member in each.members} for each in (self, after))
        changes = [Change(ChangeType.REMOVE, node) for node in sorted(before_ids - after_ids)]
        changes += [
            Change(ChangeType.ADD_LEARNER if member.learner else ChangeType.ADD_VOTER, member.id)
            for member in after.members
            if (before := self.get(member.id)) is None or before.learner != member.learner
        ]
        context = encode_member_change(change)
        decode_member_change(context)
        return ConfChange(tuple(changes), context=context)

    def apply(self, change: MemberChange) -> Membership:
        """The record after `change`. Raises: InvalidRequest if it does not fit, with what would."""
        if change.kind == ChangeKind.BOOTSTRAP:
            _require(not self.members, "members exist already; add one by its name instead")
            return Membership.of(change.members)
        after = {
            ChangeKind.EXPECT: self._expect,
            ChangeKind.JOIN: self._join,
            ChangeKind.PROMOTE: self._promote,
            ChangeKind.REMOVE: self._remove,
            ChangeKind.UPDATE: self._update,
        }[change.kind](change)
        _require(
            len(after.members) + len(after.expected) <= MEMBERS_MAX,
            f"a store has at most {MEMBERS_MAX} members, expected ones included; remove one first",
        )
        return after

    def _expect(self, change: MemberChange) -> Membership:
        _require(bool(change.name), "a member needs a name")
        _require(self.named(change.name) is None, f"member {change.name!r} exists already")
        member = Member(NO_ID, change.name, change.peer, change.client, change.learner)
        others = [other for other in self.expected if other.name != change.name]
        return replace(self, expected=tuple(sorted([*others, member], key=lambda each: each.name)))

    def _join(self, change: MemberChange) -> Membership:
        _require(change.id != NO_ID, "a joining member needs an id")
        _require(change.id not in self.removed, f"member {change.id:x} was removed; remove its data to join again")
        standing, expected = self.named(change.name), self.expecting(change.name)
        if standing is not None and standing.id == change.id:
            return self
        _require(self.get(change.id) is None, f"member {change.id:x} has another name here")
        if standing is not None:
            _require(
                change.rejoin,
                f"there is a member {change.name!r} with another id: if its disk was lost, join with --rejoin",
            )
            voter = not standing.learner or standing.auto_promote
            peer, client = change.peer or standing.peer, change.client or standing.client
            base = self._without(standing)
        else:
            _require(
                expected is not None,
                f"no member {change.name!r} is expected: announce it first (minikube-py store member add)",
            )
            assert expected is not None
            voter = not expected.learner
            peer, client = change.peer or expected.peer, change.client or expected.client
            base = replace(self, expected=tuple(each for each in self.expected if each is not expected))
        member = Member(change.id, change.name, peer, client, learner=True, auto_promote=voter)
        return base._with(member)

    def _promote(self, change: MemberChange) -> Membership:
        member = self._known(change)
        _require(member.learner, f"member {member.name!r} votes already")
        return self._with(replace(member, learner=False, auto_promote=False))

    def _remove(self, change: MemberChange) -> Membership:
        expected = self.expecting(change.name)
        if not change.id and expected is not None:
            return replace(self, expected=tuple(each for each in self.expected if each is not expected))
        return self._without(self._known(change))

    def _update(self, change: MemberChange) -> Membership:
        member = self.get(change.id)
        _require(member is not None, f"there is no member {change.id:x}")
        assert member is not None
        if change.name and change.name != member.name:
            taken = self.named(change.name) or self.expecting(change.name)
            _require(taken is None, f"the name {change.name!r} is taken")
        return self._with(
            replace(
                member,
                name=change.name or member.name,
                peer=change.peer or member.peer,
                client=change.client or member.client,
            )
        )

    def _known(self, change: MemberChange) -> Member:
        member = self.get(change.id) if change.id else self.named(change.name)
        if member is None:
            raise InvalidRequest(f"there is no member {f'{change.id:x}' if change.id else repr(change.name)}")
        return member

    def _with(self, member: Member) -> Membership:
        others = [other for other in self.members if other.id != member.id]
        return replace(self, members=tuple(sorted([*others, member], key=lambda each: each.id)))

    def _without(self, member: Member) -> Membership:
        others = tuple(other for other in self.members if other.id != member.id)
        _require(
            any(not other.learner for other in others), f"{member.name!r} is the last voter; promote another one first"
        )
        return replace(self, members=others, removed=(*self.removed, member.id)[-REMOVED_MAX:])

    def to_plain(self) -> Any:
        """For msgpack: the members, the expected ones, the removed ids."""
        return (
            [member_to_plain(member) for member in self.members],
            [member_to_plain(member) for member in self.expected],
            list(self.removed),
        )

    def beside(self, configuration: Configuration) -> Any:
        """The record as a snapshot holds it beside that configuration. Only an entry that no release proposes makes the
        two differ, on all members alike: then a mark says that this is no damage."""
        return self.to_plain() if self.agrees(configuration) else (*self.to_plain(), DIFFERS)

    @classmethod
    def from_plain(cls, plain: Any) -> Membership:
        """Raises: InvalidRequest."""
        try:
            members, expected, removed = plain
            known = cls.of(member_from_plain(member) for member in members)
            return replace(
                known,
                expected=tuple([member_from_plain(member) for member in expected]),
                removed=tuple([_id(node) for node in removed]),
            )
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"not a membership: {error!s:.300}") from None


def meta_of(head: SnapshotHead) -> SnapshotMeta:
    """Raises: Corruption if the head has no valid configuration."""
    if head.configuration is None:
        # From before clusters had several members: the writer was alone.
        configuration = Configuration(frozenset((NodeId(head.member_id),)))
    else:
        try:
            configuration = configuration_from_plain(head.configuration)
        except (ValueError, TypeError, InvalidRequest) as error:
            raise Corruption(f"a snapshot's configuration cannot be decoded: {error}") from error
    return SnapshotMeta(LogIndex(head.index), Term(head.term), configuration)


def members_of(head: SnapshotHead) -> Membership:
    """Raises: Corruption if the head has no valid record of members, or one of others than in its configuration."""
    configuration, plain = meta_of(head).configuration, head.members
    if plain is None:
        plain = Membership.of((Member(NodeId(head.member_id), ""),)).to_plain()
    marked = isinstance(plain, list) and len(plain) == 4 and plain[3] == DIFFERS
    try:
        members = Membership.from_plain(plain[:3] if marked else plain)
    except InvalidRequest as error:
        raise Corruption(f"a snapshot's members cannot be decoded: {error}") from error
    if not marked and not members.agrees(configuration):
        voters = ", ".join(f"{id:x}" for id in sorted(configuration.voters))
        named = ", ".join(f"{member.id:x}" for member in members.members)
        raise Corruption(f"a snapshot's record names the members {named or 'none'}, and its voters are {voters}")
    return members


def member_to_plain(member: Member) -> Any:
    return (member.id, member.name, member.peer, member.client, member.learner, member.auto_promote)


def member_from_plain(plain: Any) -> Member:
    """Raises: TypeError, ValueError."""
    node, name, peer, client, learner, auto_promote = plain
    texts = _text(name), _text(peer), _text(client)
    return Member(_id(node, lowest=0), *texts, learner=_flag(learner), auto_promote=_flag(auto_promote))


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise InvalidRequest(otherwise)


def _id(plain: Any, lowest: int = 1) -> NodeId:
    if type(plain) is not int or not lowest <= plain <= ID_MAX:
        raise TypeError(f"{shown(plain)} is not a member id")
    return NodeId(plain)


def _text(plain: Any) -> str:
    if type(plain) is not str or len(plain) > TEXT_MAX:
        raise TypeError(f"not a text of at most {TEXT_MAX} characters")
    return plain


def _flag(plain: Any) -> bool:
    if type(plain) is not bool:
        raise TypeError(f"{shown(plain)} is neither true nor false")
    return plain
