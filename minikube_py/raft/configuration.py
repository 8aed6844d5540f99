"""Who votes: configurations as values, and how one becomes the next (joint consensus; the thesis, 4.3)."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, NewType

NodeId = NewType("NodeId", int)


class Configuration(NamedTuple):
    """`voters` decide. While `outgoing` is not empty the configuration is joint: both majorities must agree.
    `learners` receive the log and do not count; those of `learners_next` become learners once `outgoing` is left
    (they still vote in it). `auto_leave`: the leader proposes to leave the joint state by itself."""

    voters: frozenset[NodeId]
    outgoing: frozenset[NodeId] = frozenset()
    learners: frozenset[NodeId] = frozenset()
    learners_next: frozenset[NodeId] = frozenset()
    auto_leave: bool = False


class ChangeType(IntEnum):
    """Stands in logs on disk: never change a number."""

    ADD_VOTER = 0
    REMOVE = 1
    ADD_LEARNER = 2


class Change(NamedTuple):
    type: int
    node: NodeId


class ConfChange(NamedTuple):
    """One entry of kind CHANGE. `changes` empty and `leave_joint` false: the configuration stays, and only the
    driver's `context` counts. More than one change goes by joint consensus. `context` is the driver's own."""

    changes: tuple[Change, ...] = ()
    leave_joint: bool = False
    context: bytes = b""
