"""Alarms: what all members have agreed is wrong, and which commands that holds back. Names and words are etcd's.

NOSPACE: a member has no room. Whatever grows is refused; deletes, revocations and compactions go on, and so does what
deletions need (`Release`): that may rewrite what stands, and add a little to it. CORRUPT of one member: that one serves
no more. CORRUPT of member 0: members differ, and nobody knows who is right; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from minikube_py.errors import ClusterCorrupt, InvalidRequest, NoSpace
from minikube_py.mvcc.types import (
    Alarm,
    AsUser,
    CloseSession,
    Command,
    DeclareIndex,
    InSession,
    KeyValue,
    LeaseGrant,
    Op,
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
GROWTH_BYTES_MAX: Final = 4096
"""What a release may add to one value: a time of deletion, finalizers, a namespace's conditions."""
REWRITTEN_BYTES_MAX: Final = 32 << 20
"""What releases may write until history is compacted, which frees it: half of the room that is reserved by default."""
GROWN_BYTES_MAX: Final = 32 << 20
"""What they may add in all until there is room again."""
ALWAYS: Final = frozenset({SetAlarm, OpenSession, CloseSession})


class Alarms:
    """Part of the replicated state. `rewritten_bytes`, `grown_bytes`: what releases took since history was compacted,
    and since there was room."""

    def __init__(self) -> None:
        self.raised: set[Alarm] = set()
        self.rewritten_bytes = 0
        self.grown_bytes = 0

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
        if not self._short():
            self.rewritten_bytes = self.grown_bytes = 0

    def check(self, command: Command) -> None:
        """Raises: NoSpace, ClusterCorrupt where an alarm holds `command` back."""
        if type(command) in ALWAYS or type(command) is InSession:
            return
        if Alarm(0, CORRUPT) in self.raised:
            raise ClusterCorrupt
        if grows(command) and self._short():
            raise NoSpace(f"{self._short()}; delete what is not needed, or give it room")

    def release(self, ops: Iterable[Op], standing: Mapping[bytes, KeyValue]) -> tuple[int, int]:
        """How many bytes the puts of a release rewrite and add; both are counted by `released` once it is done.

        Raises: NoSpace where NOSPACE holds them back."""
        short, rewritten, grown = self._short(), 0, 0
        for op in ops if short else ():
            if type(op) is not Put:
                continue
            before = standing.get(op.key)
            if before is None:
                raise NoSpace(f"{short}; a deletion may rewrite what stands, and make nothing new")
            growth = 0 if op.ignore_value else len(op.value) - len(before.value)
            if growth > GROWTH_BYTES_MAX:
                raise NoSpace(f"{short}; a deletion may add {GROWTH_BYTES_MAX:,} bytes to a value, not {growth:,}")
            rewritten += len(op.key) + len(before.value) + growth
            grown += growth
        if self.rewritten_bytes + rewritten > REWRITTEN_BYTES_MAX:
            what = f"{REWRITTEN_BYTES_MAX:,} bytes between two compactions of history, which are written"
            raise NoSpace(f"{short}; deletions may rewrite {what}: wait for the next, or delete at once, without grace")
        if self.grown_bytes + grown > GROWN_BYTES_MAX:
            what = f"{GROWN_BYTES_MAX:,} bytes to what stands until there is room, which are there"
            raise NoSpace(f"{short}; deletions may add {what}: delete at once, without grace")
        return rewritten, grown

    def released(self, rewritten: int, grown: int) -> None:
        self.rewritten_bytes += rewritten
        self.grown_bytes += grown

    def _short(self) -> str:
        """Whose alarm NOSPACE is raised, "" where none is."""
        short = sorted(each.member for each in self.raised if each.kind == NOSPACE)
        return "alarm NOSPACE of member " + ", ".join(f"{member:x}" for member in short) if short else ""


def grows(command: Command) -> bool:
    """Whether it may take room for good; etcd's rule, for which a txn with a put in either branch does."""
    kind = type(command)
    if kind is Put or kind is LeaseGrant or kind is DeclareIndex:
        return True
    if kind is InSession or kind is AsUser:
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
