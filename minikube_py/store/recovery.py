"""Recovers a member from its folder, or starts in an empty one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minikube_py.env import Rng
from minikube_py.errors import Corruption, RequestError
from minikube_py.mvcc.snapshot import restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.versions import FIRST, LATEST, TooNew
from minikube_py.raft.codec import Malformed, encode_change
from minikube_py.raft.configuration import ConfChange, Configuration, NodeId, changed
from minikube_py.raft.message import TERM_MAX, Entry, EntryKind, HardState, LogIndex, SnapshotMeta, Term
from minikube_py.raft.node import Raft
from minikube_py.store.identity import confirm_identity, own_identity
from minikube_py.store.log_files import Loaded, LogFiles, Origin
from minikube_py.store.membership import (
    ChangeKind,
    Member,
    MemberChange,
    Membership,
    encode_member_change,
    members_of,
    meta_of,
)
from minikube_py.store.releases import EntryCheck, Inapplicable, applied_change, read_change
from minikube_py.store.replica_config import Bootstrap
from minikube_py.store.room import repair, where
from minikube_py.wal.recovery import LogEntry
from minikube_py.wal.segment import Damage, segment_name


class Recovered(NamedTuple):
    """`base`: where Raft's log begins, before the first of `entries`; `membership` and `state` are as of that index.
    `from_snapshot`: read from a snapshot. `log_bytes`: the size of the log on disk."""

    cluster_id: int
    member_id: NodeId
    base: SnapshotMeta
    entries: Sequence[Entry]
    hard_state: HardState
    membership: Membership
    state: StateMachine
    from_snapshot: bool
    log_bytes: int
    check: EntryCheck


class _Base(NamedTuple):
    meta: SnapshotMeta
    membership: Membership
    version: int = FIRST
    """The version of the rules of apply."""


def recover(files: LogFiles, rng: Rng, bootstrap: Bootstrap | None) -> Recovered:
    """Reads the folder, or starts from `bootstrap`; None: as a single-member cluster.

    Raises: Corruption, with what to do; LogLost; TooNew; OSError."""
    try:
        loaded = files.load(restore)
        _check_terms(loaded)
    except Damage as error:
        folder = where(files.disk)
        raise Corruption(
            f"{error}. Acknowledged writes may be lost, so the store does not start. With other members, empty "
            f"{folder} and start with --rejoin. Alone, `minikube-py store salvage {folder}` shows what is "
            "recoverable, and writes it to a new folder with --to; or restore the folder from a backup"
        ) from error
    check = _check_entries(files, loaded)
    origin = _origin(files, rng, loaded, bootstrap)
    head = files.begin(loaded, origin)
    member_id = NodeId(head.member_id)
    confirm_identity(files.disk, member_id, head.cluster_id)
    entries = [Entry(Term(entry.term), LogIndex(entry.index), entry.data, entry.kind) for entry in loaded.log.entries]
    saved = loaded.log.state
    hard_state = HardState(Term(saved.term), NodeId(saved.vote), LogIndex(saved.commit))
    if origin is not None and origin.first is not None:
        entries = [origin.first]
        hard_state = HardState(origin.first.term, commit=origin.first.index)
    base = _base(loaded, member_id, entries, joined=origin.joined if origin else loaded.log.joined)
    behind = [entry for entry in entries if entry.index > base.meta.index]
    state = loaded.state or StateMachine(base.version)
    return Recovered(
        head.cluster_id, member_id, base.meta, behind, hard_state, base.membership, state, loaded.snapshot is not None,
        loaded.log.size_bytes, check,
    )  # fmt: skip


def stands_alone(raft: Raft, membership: Membership) -> bool:
    """Whether the log makes it the only voter: where it is known to be committed, and at each entry behind, which then
    nobody else can commit."""
    log, configuration, own = raft.log, raft.configuration, {raft.id}
    alone = True
    for index in (*log.changes, LogIndex(log.last_index + 1)):
        if index > log.committed:
            alone = alone and configuration.voters == own and not configuration.outgoing
        if not alone or index > log.last_index:
            break
        [entry] = log.slice(LogIndex(index - 1), index)
        try:
            after = applied_change(entry, membership, configuration)
        except Inapplicable:
            return False
        if isinstance(after, Membership):
            membership, configuration = after, changed(configuration, read_change(entry.data)[0])
    return alone


def _check_terms(loaded: Loaded) -> None:
    """Raises: Damage if the log or the snapshot has a term that no elections led to, and that has no next one."""
    log = loaded.log
    known = [log.state.term, *(entry.term for entry in log.entries)]
    if loaded.snapshot is not None:
        known.append(loaded.snapshot.head.term)
    if max(known) >= TERM_MAX:
        name = segment_name(log.tail.head.sequence) if log.tail is not None else "the snapshot"
        raise Damage(f"{name}: term {max(known):,} is beyond {TERM_MAX:,}, the last one that members believe")


def _check_entries(files: LogFiles, loaded: Loaded) -> EntryCheck:
    """Those that may not be committed: this member must not send them to others. Raises: Corruption."""
    log = loaded.log
    known = max(log.state.commit, loaded.snapshot.head.index if loaded.snapshot is not None else 0)
    try:
        if loaded.snapshot is None and not log.joined and _begins(log.entries):
            _first_members(log.entries[0].data)
        check = EntryCheck()
        for entry in log.entries:
            if entry.index > known:
                check.admit([Entry(Term(entry.term), LogIndex(entry.index), entry.data, entry.kind)], known)
        return check
    except Inapplicable as error:
        raise Corruption(f"{where(files.disk)}: {error}. {repair(files.disk)}") from None


def _begins(entries: Sequence[Entry | LogEntry]) -> bool:
    """Whether the log begins with the first members."""
    return bool(entries) and entries[0].kind == EntryKind.CHANGE and entries[0].index == 1


def _first_members(data: bytes) -> tuple[MemberChange, Membership]:
    """Raises: Inapplicable."""
    try:
        change = read_change(data)[1]
        if change is None:
            raise Malformed("it names no members")
        return change, Membership().apply(change)
    except (Malformed, RequestError) as error:
        raise Inapplicable(f"cannot apply entry 1, the first members: {error}") from None


def _origin(files: LogFiles, rng: Rng, loaded: Loaded, bootstrap: Bootstrap | None) -> Origin | None:
    """None if the log has started already."""
    if loaded.log.tail is not None:
        return None
    if bootstrap is None:
        identity = own_identity(files.disk, rng)
        return Origin(rng.getrandbits(63) or 1, identity.id)
    if not bootstrap.members:
        return Origin(bootstrap.cluster_id, bootstrap.member_id, joined=True)
    members = Membership.of(bootstrap.members).members
    change = MemberChange(ChangeKind.BOOTSTRAP, members=members, version=bootstrap.version)
    data = encode_change(ConfChange(context=encode_member_change(change)))
    first = Entry(Term(1), LogIndex(1), data, int(EntryKind.CHANGE))
    return Origin(bootstrap.cluster_id, bootstrap.member_id, first)


def _base(loaded: Loaded, member_id: NodeId, entries: Sequence[Entry], *, joined: bool) -> _Base:
    """Where Raft's log begins, and the members there. The first entry of a cluster counts as a snapshot: no log
    replicates it, so a joining member gets a snapshot, which lists them."""
    alone = Membership.of((Member(member_id, ""),))
    if loaded.snapshot is not None:
        found = loaded.snapshot.head
        return _Base(meta_of(found), members_of(found))
    if joined:
        return _Base(SnapshotMeta(LogIndex(0), Term(0), Configuration(frozenset())), Membership())
    if _begins(entries):
        change, membership = _first_members(entries[0].data)
        if change.version > LATEST:
            raise TooNew(change.version)
        meta = SnapshotMeta(entries[0].index, entries[0].term, membership.configuration())
        return _Base(meta, membership, change.version)
    return _Base(SnapshotMeta(LogIndex(0), Term(0), alone.configuration()), alone)
