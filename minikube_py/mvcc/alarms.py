"""Alarms that all members have agreed on, and which commands they block. Names and messages are etcd's.

NOSPACE: a member is out of space. Commands that grow the data are refused; deletes, revocations and compactions are
permitted, and so are writes required by deletions (`Release`), which may rewrite existing values and add a little.
CORRUPT of one member: it stops serving. CORRUPT of member 0: members differ without a majority; all writes are refused.
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
"""Members change; their alarms are cleared with them."""
GROWTH_BYTES_MAX: Final = 4096
"""What a release may add to one value: a deletion time, finalizers, a namespace's conditions."""
REWRITTEN_BYTES_MAX: Final = 32 << 20
"""What releases may write until a compaction, which frees it: half of the default reserve."""
GROWN_BYTES_MAX: Final = 32 << 20
"""What they may add in total until there is space again."""
ALWAYS: Final = frozenset({SetAlarm, OpenSession, CloseSession})


class Alarms:
    """Part of the replicated state. `rewritten_bytes`, `grown_bytes`: what releases used since the last compaction, and
    since there was space."""

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
        """Raises: NoSpace, ClusterCorrupt if an alarm blocks `command`."""
        if type(command) in ALWAYS or type(command) is InSession:
            return
        if Alarm(0, CORRUPT) in self.raised:
            raise ClusterCorrupt
        if grows(command) and self._short():
            raise NoSpace(f"{self._short()}; delete unneeded data, or add disk space")

    def release(self, ops: Iterable[Op], standing: Mapping[bytes, KeyValue]) -> tuple[int, int]:
        """How many bytes the puts of a release rewrite and add; both are counted by `released` once it is done.

        Raises: NoSpace if NOSPACE blocks them."""
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
        """The member that raised NOSPACE, "" if none did."""
        short = sorted(each.member for each in self.raised if each.kind == NOSPACE)
        return "alarm NOSPACE of member " + ", ".join(f"{member:x}" for member in short) if short else ""


def grows(command: Command) -> bool:
    """Whether it may use space permanently; etcd's rule, by which a txn with a put in either branch does."""
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
