"""Configurations as values, and the transitions between them (joint consensus; the thesis, 4.3)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)


class Configuration(NamedTuple):
    """`voters` decide. While `outgoing` is not empty the configuration is joint: both majorities must agree. `learners`
    receive the log without voting; `learners_next` become learners once `outgoing` is left (they still vote in it).
    `auto_leave`: the leader itself proposes to leave the joint state."""

    voters: frozenset[NodeId]
    outgoing: frozenset[NodeId] = frozenset()
    learners: frozenset[NodeId] = frozenset()
    learners_next: frozenset[NodeId] = frozenset()
    auto_leave: bool = False

    @property
    def joint(self) -> bool:
        return bool(self.outgoing)

    def votes(self, node: NodeId) -> bool:
        return node in self.voters or node in self.outgoing

    def contains(self, node: NodeId) -> bool:
        return node in self.voters or node in self.outgoing or node in self.learners

    def members(self) -> list[NodeId]:
        """All members that receive the log, by id."""
        return sorted(self.voters | self.outgoing | self.learners)

    def electors(self) -> list[NodeId]:
        """All members asked for votes, by id."""
        return sorted(self.voters | self.outgoing)


class ChangeType(IntEnum):
    """Stored in logs on disk: never change a number."""

    ADD_VOTER = 0
    REMOVE = 1
    ADD_LEARNER = 2


class Change(NamedTuple):
    type: int
    node: NodeId


class ConfChange(NamedTuple):
    """One entry of kind CHANGE. `changes` empty and `leave_joint` false: the configuration is unchanged, and only the
    driver's `context` matters. More than one change uses joint consensus."""

    changes: tuple[Change, ...] = ()
    leave_joint: bool = False
    context: bytes = b""


class ChangeRefused(Exception):
    """This change is not possible in this configuration. Nothing changed."""


def changed(configuration: Configuration, change: ConfChange) -> Configuration:
    """The configuration after `change`. A single change takes effect at once; several enter a joint configuration,
    which the leader leaves by itself; in an empty configuration all take effect at once, because no agreement is
    needed.

    Source: the thesis, 4.1 (one at a time) and 4.3 (joint). Raises: ChangeRefused."""
    if change.leave_joint:
        if change.changes:
            raise ChangeRefused("to leave the joint configuration is an entry of its own, without changes")
        return _left(configuration)
    if not change.changes:
        return configuration
    if configuration.joint:
        raise ChangeRefused("the configuration is joint; it must be left before the next change")
    after = configuration
    joint = len(change.changes) > 1 and bool(configuration.voters)
    if joint:
        after = after._replace(outgoing=configuration.voters, auto_leave=True)
    for one in change.changes:
        after = _made(after, one)
    if not after.voters:
        raise ChangeRefused("no voter would be left")
    return checked(after)


def checked(configuration: Configuration) -> Configuration:
    """The configuration, if its sets are consistent. Raises: ChangeRefused."""
    voters, outgoing, learners, learners_next, auto_leave = configuration
    if not configuration.joint and (learners_next or auto_leave):
        raise ChangeRefused("only a joint configuration has learners to come, or leaves by itself")
    if twice := learners & (voters | outgoing):
        raise ChangeRefused(f"voters and learners at once: {', '.join(map('{:x}'.format, sorted(twice)))}")
    if lost := learners_next - outgoing:
        raise ChangeRefused(f"learners to come that do not vote now: {', '.join(map('{:x}'.format, sorted(lost)))}")
    if both := learners_next & voters:
        raise ChangeRefused(f"voters and learners to come at once: {', '.join(map('{:x}'.format, sorted(both)))}")
    if outgoing and not voters:
        raise ChangeRefused("a joint configuration without voters")
    return configuration


def _made(before: Configuration, change: Change) -> Configuration:
    voters, outgoing, learners, learners_next, auto_leave = before
    type, node = change
    if node <= 0:
        raise ChangeRefused(f"a member's id is above 0, not {node:x}")
    if type == ChangeType.ADD_LEARNER and (node in learners or node in learners_next):
        return before
    one = frozenset((node,))
    voters, learners, learners_next = voters - one, learners - one, learners_next - one
    if type == ChangeType.ADD_VOTER:
        voters |= one
    elif type == ChangeType.ADD_LEARNER:
        # A voter of the outgoing half keeps voting until it is left: no member is both voter and learner.
        if node in outgoing:
            learners_next |= one
        else:
            learners |= one
    elif type != ChangeType.REMOVE:
        raise ChangeRefused(f"change type {type} is unknown")
    return Configuration(voters, outgoing, learners, learners_next, auto_leave)


def _left(joint: Configuration) -> Configuration:
    if not joint.joint:
        raise ChangeRefused("the configuration is not joint; there is nothing to leave")
    return Configuration(joint.voters, learners=joint.learners | joint.learners_next)
