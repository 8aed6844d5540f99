"""Alarms: what all members have agreed is wrong, and which commands that holds back. Names and words are etcd's.

NOSPACE: a member has no room. Whatever grows is refused; deletes, revocations and compactions go on. CORRUPT of one
member: that one serves no more. CORRUPT of member 0: members differ, and nobody knows who is right; nothing is written.
"""

from __future__ import annotations

from typing import Final

from minikube_py.errors import ClusterCorrupt, InvalidRequest, NoSpace
from minikube_py.mvcc.types import (
    Alarm,
    CloseSession,
    Command,
    DeclareIndex,
    InSession,
    LeaseGrant,
    OpenSession,
    Put,
    SetAlarm,
    Txn,
)

NOSPACE: Final = "NOSPACE"
CORRUPT: Final = "CORRUPT"
KINDS: Final = (NOSPACE, CORRUPT)
ALARMS_MAX: Final = 256
"""Members come and go; their alarms are cleared with them."""
ALWAYS: Final = frozenset({SetAlarm, OpenSession, CloseSession})


class Alarms:
    """Part of the replicated state."""

    def __init__(self) -> None:
        self.raised: set[Alarm] = set()

    def set(self, command: SetAlarm) -> None:
        """Raises: InvalidRequest for an unknown kind, or one alarm too many."""
        member, kind = command.member, command.kind
        if command.raised:
            if kind not in KINDS:
                raise InvalidRequest(f"alarm {kind[:40]!r} is unknown; known are {', '.join(KINDS)}")
            if len(self.raised) >= ALARMS_MAX:
                raise InvalidRequest(f"there are {ALARMS_MAX} alarms already; clear some first")
            self.raised.add(Alarm(member, kind))
            return
        self.raised = {
            each for each in self.raised if (member and each.member != member) or (kind and each.kind != kind)
        }

    def check(self, command: Command) -> None:
        """Raises: NoSpace, ClusterCorrupt where an alarm holds `command` back."""
        if type(command) in ALWAYS or type(command) is InSession:
            return
        if Alarm(0, CORRUPT) in self.raised:
            raise ClusterCorrupt
        short = sorted(each.member for each in self.raised if each.kind == NOSPACE)
        if short and grows(command):
            who = ", ".join(f"{member:x}" for member in short)
            raise NoSpace(f"alarm NOSPACE of member {who}; delete what is not needed, or give it room")


def grows(command: Command) -> bool:
    """Whether it may take room for good; etcd's rule, for which a txn with a put in either branch does."""
    kind = type(command)
    if kind is Put or kind is LeaseGrant or kind is DeclareIndex:
        return True
    if kind is InSession:
        return grows(command.command)  # type: ignore[union-attr]
    return kind is Txn and _puts(command)  # type: ignore[arg-type]


def _puts(txn: Txn) -> bool:
    nested = [txn]
    while nested:
        each = nested.pop()
        for op in (*each.success, *each.failure):
            if type(op) is Put:
                return True
            if type(op) is Txn:
                nested.append(op)
    return False
