"""The state that can be had from a damaged folder: from the best snapshot, and from the log as far as it leads.

Exact where some snapshot (or the beginning) is whole: the state after entry `applied`, as it was. Where none is, the
keys of the newest one's sound parts, on top of an older state where there is one, and the log on top of them: keys that
were deleted meanwhile may be there, others may be old, and commands that depended on what is missing may end otherwise
than they did. `exact` False says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minikube_py.errors import InvalidRequest, MinikubeError, RequestError, SessionExpired
from minikube_py.mvcc import snapshot as records_of
from minikube_py.mvcc.codec import NewerMessage, unpack
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import InSession, KeyValue
from minikube_py.mvcc.versions import FIRST
from minikube_py.wal.recovery import LogEntry
from minikube_py.wal.salvage import FoundLog, FoundSnapshot, Loss, salvage_log, salvage_snapshot
from minikube_py.wal.segment import segment_sequence
from minikube_py.wal.snapshot import snapshot_index

CHANGE: Final = 1
BEGINNING: Final = FoundSnapshot("", 0, None, [], [])


@dataclass(slots=True)
class Salvaged:
    """`applied`, `term`: of the last entry in `state`. `left_out`: ranges of entries that read, but follow a gap.
    `missing`: ranges of entries that are known to have been there. `unconfirmed`: entries at the end of which the log
    does not say that a majority had them; alone, that is all the same."""

    state: StateMachine
    exact: bool
    base: int
    applied: int
    term: int
    log: FoundLog
    snapshots: list[FoundSnapshot]
    losses: list[Loss] = field(default_factory=list)
    left_out: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    unconfirmed: int = 0
    known_revision: int = 0
    """The newest that any sound part of a snapshot names."""

    @property
    def whole(self) -> bool:
        """Nothing is missing, for all that checksums can say."""
        return self.exact and not (self.missing or self.left_out or any(map(self.needed, self.log.losses)))

    def needed(self, loss: Loss) -> bool:
        """Whether it may have held something that follows the snapshot which the state begins with."""
        sequence = segment_sequence(loss.file)
        if sequence is None:
            return not loss.file
        later = [head.first_index for head in self.log.heads if head.sequence > sequence]
        return not later or min(later) > self.base + 1


def salvage(names: Sequence[str], read: Callable[[str], bytes]) -> Salvaged | None:
    """None: nothing can be had."""
    log = salvage_log(names, read)
    found = sorted(
        (salvage_snapshot(name, read(name)) for name in names if snapshot_index(name) is not None),
        key=lambda each: each.index,
        reverse=True,
    )
    losses = [loss for each in found for loss in each.losses] + log.losses
    last = max([each.index for each in found] + [*log.entries, log.state.commit, 0])
    bases = [each for each in found if not each.losses and each.head is not None]
    if 1 in log.entries and not log.installed:
        bases.append(BEGINNING)
    for base in sorted(bases, key=lambda each: (_reach(each.index, log), each.index), reverse=True):
        try:
            state = StateMachine.restore([base.records]) if base.records else StateMachine()
        except MinikubeError as error:
            losses.append(Loss(base.name, 0, 0, f"its parts are sound and do not fit together: {error}"))
            continue
        made = _with_log(state, True, base, log, found, losses, last)
        newer = next((each for each in found if each.records and each.index > made.applied), None)
        if newer is None:
            return made
        standing = [[records_of.BASE, *kv] for kv in made.state.index.current.values()]
        return _with_log(_state_of(standing + newer.records), False, newer, log, found, losses, last)
    for base in found:
        if base.records:
            return _with_log(_state_of(base.records), False, base, log, found, losses, last)
    return None


def _reach(index: int, log: FoundLog) -> int:
    """The last entry that the log leads to from a snapshot at `index`."""
    if index < log.installed:
        return index
    while index + 1 in log.entries:
        index += 1
    return index


def _with_log(
    state: StateMachine,
    exact: bool,
    base: FoundSnapshot,
    log: FoundLog,
    found: list[FoundSnapshot],
    losses: list[Loss],
    last: int,
) -> Salvaged:
    reach = _reach(base.index, log)
    term = base.head.term if base.head is not None else 1
    made = Salvaged(state, exact, base.index, base.index, term, log, found, losses)
    for index in range(base.index + 1, reach + 1):
        try:
            _apply(state, log.entries[index], exact)
        except (MinikubeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            losses.append(Loss("", 0, 0, f"entry {index} cannot be applied: {error}"))
            reach = index - 1
            break
        made.applied, made.term = index, log.entries[index].term
    beyond = [index for index in log.entries if index > reach]
    made.left_out = _ranges(beyond)
    made.missing = _ranges(sorted(set(range(reach + 1, last + 1)) - set(beyond)))
    heads = [each.records[0] for each in found if each.records and each.records[0][0] == records_of.HEAD]
    made.known_revision = max([head[2] for head in heads], default=0)
    made.unconfirmed = max(0, made.applied - max(base.index, log.state.commit))
    return made


def _apply(state: StateMachine, entry: LogEntry, exact: bool) -> None:
    """As a replica does. Raises: NewerMessage, and what `apply` raises that is no refusal."""
    if not entry.data or entry.kind == CHANGE:
        return
    try:
        command: Any = unpack(entry.data)
    except NewerMessage:
        raise
    except InvalidRequest:
        return
    if not exact and type(command) is InSession:
        # The session may be among what is lost.
        command = command.command
    with contextlib.suppress(RequestError, SessionExpired):
        state.apply(command)


def _state_of(records: list[Any]) -> StateMachine:
    """The keys that `records` have, each in its last known state; without history, and without sessions."""
    keys: dict[bytes, KeyValue] = {}
    leases: list[list[Any]] = []
    fields: list[list[Any]] = []
    revision, version = 1, FIRST
    for record in records:
        tag = record[0]
        if tag == records_of.HEAD:
            revision = record[2]
            version = record[5] if len(record) > 5 else FIRST
        elif tag == records_of.BASE:
            keys[record[1]] = KeyValue(*record[1:])
        elif tag == records_of.EVENTS:
            _replay(keys, record[1], record[2])
            revision = max(revision, record[1])
        elif tag == records_of.LEASE:
            leases.append(record)
        elif tag == records_of.FIELDS:
            fields.append(record)
    revision = max([revision, *(kv.mod_revision for kv in keys.values())])
    known = {lease[1] for lease in leases}
    kvs = [kv if kv.lease in known else kv._replace(lease=0) for _, kv in sorted(keys.items())]
    head = [records_of.HEAD, records_of.FORMAT, revision, revision, 0, version]
    base = [[records_of.BASE, *kv] for kv in kvs]
    return StateMachine.restore([[head, *leases, *fields, *base, [records_of.END]]])


def _replay(keys: dict[bytes, KeyValue], revision: int, slim: list[list[Any]]) -> None:
    for event in slim:
        key = event[0]
        if len(event) == 1:
            keys.pop(key, None)
            continue
        before = keys.get(key)
        created, version = (before.create_revision, before.version + 1) if before else (revision, 1)
        keys[key] = KeyValue(key, event[1], created, revision, version, event[2])


def _ranges(indexes: list[int]) -> list[tuple[int, int]]:
    """Sorted numbers as (first, last) of runs without gaps."""
    found: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found
