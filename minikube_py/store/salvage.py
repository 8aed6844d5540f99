"""Recovers the state from a damaged folder: the best snapshot, and the log as far as it is contiguous.

`exact` is a true past state: that after entry `applied`. If more is readable - parts of a newer snapshot, entries
behind a gap - `state` includes that (`behind_gaps`): each value was written, but keys deleted in a gap may be present,
and others may be stale."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from minikube_py.errors import Corruption, InvalidRequest, MinikubeError, RequestError, SessionExpired
from minikube_py.mvcc import snapshot as records_of
from minikube_py.mvcc.codec import NewerMessage, unpack
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.versions import FIRST
from minikube_py.raft.codec import decode_change
from minikube_py.store.behind_gaps import CHANGE, BehindGaps
from minikube_py.store.membership import ChangeKind, decode_member_change, meta_of
from minikube_py.wal.recovery import LogEntry
from minikube_py.wal.salvage import FoundLog, FoundSnapshot, Loss, is_snapshot, salvage_log, salvage_snapshot
from minikube_py.wal.segment import segment_sequence
from minikube_py.wal.snapshot import snapshot_index

BEGINNING: Final = FoundSnapshot("", 0, None, [], [], [])


class Gap(NamedTuple):
    """Entries `first` to `last` are missing. They made the revisions from `after` + 1 up to `revision`."""

    first: int
    last: int
    after: int
    revision: int


@dataclass(slots=True)
class Salvaged:
    """`exact` is the state after entry `applied`, starting from the snapshot of entry `base`; `state` is the same
    object if nothing more is readable, up to entry `reached`. `assumed`: ranges of entries behind gaps whose
    conditions are undecidable. `doubtful`: readable ranges that an unreadable part of the log may have replaced.
    `missing`: ranges of entries known to have existed. `unconfirmed`: final entries without evidence of a majority;
    irrelevant for a single member. `known_revision`: the newest that any sound part names."""

    exact: StateMachine
    base: int
    applied: int
    log: FoundLog
    losses: list[Loss]
    state: StateMachine
    reached: int
    gaps: list[Gap] = field(default_factory=list)
    assumed: list[tuple[int, int]] = field(default_factory=list)
    doubtful: list[tuple[int, int]] = field(default_factory=list)
    partial: str = ""
    """The snapshot whose sound parts are in `state`."""
    unconfirmed: int = 0
    known_revision: int = 0
    users_lost: bool = False
    """The users and roles of `partial` are missing, and may have existed."""
    users_unsure: bool = False
    """Users and roles are in use, and a gap may have changed them."""
    unsure_changes: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of entries behind gaps that changed users and roles, or were refused."""

    @property
    def whole(self) -> bool:
        """Nothing is missing, as far as checksums show."""
        return self.state is self.exact and not (self.gaps or self.doubtful or any(map(self.needed, self.losses)))

    def needed(self, loss: Loss) -> bool:
        """Whether it may have held something that follows the snapshot on which the state is based."""
        if loss.harmless:
            return False
        if snapshot_index(loss.file) is not None:
            return self.state is not self.exact
        return loss.last is None or loss.last > max(self.base, loss.first - 1)

    def revisions(self, loss: Loss) -> tuple[int, int]:
        """The revisions that a lost part of the log may have made; (0, 0): unknown."""
        for gap in self.gaps:
            if loss.first and loss.first <= gap.last and (loss.last is None or loss.last >= gap.first):
                return gap.after + 1, gap.revision
        return 0, 0


def salvage(names: Sequence[str], read: Callable[[str], bytes]) -> Salvaged | None:
    """None: nothing is recoverable."""
    files = [name for name in names if snapshot_index(name) is not None or segment_sequence(name) is not None]
    snapshots = [name for name in files if is_snapshot(name, read(name))]
    log = salvage_log([name for name in files if name not in snapshots], read)
    found = [_of_a_state(salvage_snapshot(name, read(name))) for name in snapshots]
    found.sort(key=lambda each: each.index, reverse=True)
    doubtful = [] if _alone(found, log) else sorted(log.doubtful)
    for index in doubtful:
        del log.entries[index]
    if not log.entries and not any(each.records for each in found):
        return None
    losses = [loss for each in found for loss in _described(each)] + log.losses
    made = _exact(found, log, losses)
    made.doubtful = _ranges(doubtful)
    last = max([each.index for each in found] + [*log.entries, *doubtful, log.state.commit])
    heads = [each.records[0] for each in found if each.records and each.records[0][0] == records_of.HEAD]
    made.known_revision = max([head[2] for head in heads] + [made.exact.revision])
    # A snapshot of unknown index is better than nothing.
    newer = (each for each in found if each.records and (each.index > made.applied or not made.applied))
    _add_rest(made, next(newer, None), last)
    return made


def _exact(found: list[FoundSnapshot], log: FoundLog, losses: list[Loss]) -> Salvaged:
    """From the whole snapshot (or the beginning) from which the log leads farthest."""
    bases = [each for each in found if not each.losses and each.head is not None]
    for base in sorted([*bases, BEGINNING], key=lambda each: (_reach(each.index, log), each.index), reverse=True):
        try:
            state = records_of.restore([base.records]) if base is not BEGINNING else StateMachine(_first_version(log))
            break
        except MinikubeError as error:
            losses.append(Loss(base.name, 0, 0, f"its parts are intact but do not match: {error}"))
    made = Salvaged(state, base.index, base.index, log, losses, state, base.index)
    for index in range(base.index + 1, _reach(base.index, log) + 1):
        try:
            _apply(state, log.entries[index])
        except (MinikubeError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            losses.append(Loss("", 0, 0, f"entry {index} cannot be applied: {error}", index, index))
            del log.entries[index]
            break
        made.applied = made.reached = index
    made.unconfirmed = max(0, made.applied - max(base.index, log.state.commit))
    return made


def _add_rest(made: Salvaged, newer: FoundSnapshot | None, last: int) -> None:
    """Adds sound parts of a newer snapshot and entries behind gaps, and finds missing entries."""
    entries = made.log.entries
    rest = BehindGaps(made.exact)
    if newer is not None:
        after = rest.revision
        rest.records(newer.records, min(newer.gaps, default=len(newer.records)))
        if newer.index > made.applied:
            made.gaps.append(Gap(made.applied + 1, newer.index, after, rest.revision))
        made.partial, made.reached = newer.name, newer.index
    for first, end in _ranges([index for index in entries if index > made.reached]):
        after = rest.revision
        rest.run([entries[index] for index in range(first, end + 1)], first - made.reached - 1)
        if first > made.reached + 1:
            made.gaps.append(Gap(made.reached + 1, first - 1, after, rest.gap_revision))
        made.reached = end
    if last > made.reached:
        made.gaps.append(Gap(made.reached + 1, last, rest.revision, 0))
    if made.reached > made.applied or newer is not None:
        made.assumed = _ranges(dict.fromkeys(rest.assumed))
        made.users_lost, made.unsure_changes = rest.auth_lost, _ranges(rest.unsure_changes)
        with contextlib.suppress(Corruption):
            made.state = rest.state()
    made.users_unsure = rest.auth.used and not (rest.auth_sure and last <= made.reached)


def _first_version(log: FoundLog) -> int:
    """The version of the rules at the start of the log."""
    first = log.entries.get(1)
    if first is not None and first.kind == CHANGE:
        with contextlib.suppress(MinikubeError, ValueError):
            return decode_member_change(decode_change(first.data).context).version
    return FIRST


def _reach(index: int, log: FoundLog) -> int:
    """The last entry that the log reaches from a snapshot at `index`."""
    while index + 1 in log.entries:
        index += 1
    return index


def _alone(found: Iterable[FoundSnapshot], log: FoundLog) -> bool:
    """Whether every readable configuration has at most one voter: then no entry was ever replaced."""
    try:
        configurations = [meta_of(each.head).configuration for each in found if each.head is not None]
        changes = [
            decode_member_change(decode_change(each.data).context)
            for each in log.entries.values()
            if each.kind == CHANGE
        ]
    except (MinikubeError, ValueError):
        return False
    founded = all(each.kind == ChangeKind.BOOTSTRAP and len(each.members) == 1 for each in changes)
    return founded and all(len(each.voters) <= 1 and not each.learners for each in configurations)


def _apply(state: StateMachine, entry: LogEntry) -> None:
    """Applies as a replica does. Raises: NewerMessage, and errors of `apply` other than refusals."""
    if not entry.data or entry.kind == CHANGE:
        return
    try:
        command: Any = unpack(entry.data)
    except NewerMessage:
        raise
    except InvalidRequest:
        return
    with contextlib.suppress(RequestError, SessionExpired):
        state.apply(command)


def _of_a_state(found: FoundSnapshot) -> FoundSnapshot:
    """Drops sound records that belong to no state: something else wrote them."""
    wrong = [at for at, record in enumerate(found.records) if not records_of.is_record(record)]
    if not wrong:
        return found
    kept = [record for record in found.records if records_of.is_record(record)]
    losses = [*found.losses, Loss(found.name, 0, 0, "some of its records hold something else")]
    return found._replace(records=kept, losses=losses, gaps=[min(at, len(kept)) for at in (*found.gaps, wrong[0])])


def _described(snapshot: FoundSnapshot) -> list[Loss]:
    """The losses, with the revisions they may have held, by the parts before and behind."""
    head = snapshot.records[0] if snapshot.records and snapshot.records[0][0] == records_of.HEAD else None
    told = []
    for loss, position in zip(snapshot.losses, snapshot.gaps):
        events = [record[1] for record in snapshot.records[:position] if record[0] == records_of.EVENTS]
        later = [record[1] for record in snapshot.records[position:] if record[0] == records_of.EVENTS]
        end = later[0] - 1 if later else head[2] if head else 0
        until = f"{end:,}" if end else "the snapshot's own"
        keys = "" if events else "keys as of the start of the history, and "
        what = f"{keys}changes of revisions {events[-1] + 1 if events else 1:,} to {until}"
        told.append(loss._replace(what=f"{loss.what}: it may have held {what}"))
    return told


def _ranges(indexes: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as (first, last) of runs without gaps."""
    found: list[tuple[int, int]] = []
    for index in sorted(indexes):
        first = found.pop()[0] if found and found[-1][1] == index - 1 else index
        found.append((first, index))
    return found
