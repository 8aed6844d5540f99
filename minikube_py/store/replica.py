"""The core of a member: Raft, the log on disk, and pending reads; what it applies is in `applying`. It never waits.

The driver owns time, threads and links: it calls `tick` and `receive` as events arrive, `propose` and `read` on
request, then `turn` until it returns None. All input before a turn becomes one write and one sync, at most one sync is
in flight, and what arrives meanwhile is the next batch. Only what is committed is applied; then watchers are notified,
then writers, then readers."""

from __future__ import annotations

from collections.abc import Sequence

from minikube_py.env import Rng
from minikube_py.errors import Leaderless, MinikubeError, OutcomeUnknown, Unavailable
from minikube_py.mvcc.watch import WatchHub
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import HardState, LogIndex, Message, MessageType, SnapshotMeta, Term
from minikube_py.raft.node import Raft, RaftConfig
from minikube_py.raft.ready import AcknowledgedLost, ProposalDropped, ReadState, Ready, SafetyViolated, UnknownPeer
from minikube_py.store.applying import Applying, Failed, describe
from minikube_py.store.folder import Steps
from minikube_py.store.log_files import LogFiles
from minikube_py.store.membership import members_of
from minikube_py.store.read_rounds import ReadDone, ReadRounds
from minikube_py.store.recovery import recover
from minikube_py.store.releases import REFUSED, Inapplicable
from minikube_py.store.replica_config import Bootstrap, ReplicaConfig, Turn
from minikube_py.store.replica_snapshots import Snapshots
from minikube_py.store.room import explained, older_copy, repair
from minikube_py.store.snapshot_transfer import (
    IncomingSnapshot,
    SnapshotOffer,
    SnapshotSource,
    TransferRefused,
    head_of,
)


class Replica(Applying):
    """A member without time, threads and links. Call `open`, then run the loop above."""

    def __init__(self, files: LogFiles, rng: Rng, config: ReplicaConfig | None = None) -> None:
        super().__init__(config or ReplicaConfig(), files.entry_bytes_max)
        self.files = files
        self.rng = rng
        self.cluster_id = 0
        self._violation = ""
        self._delivered = LogIndex(0)
        self._to_stand = False
        self._reads = ReadRounds(rng.getrandbits(64))
        self._ticks = 0
        self._change_committed = False
        self.syncing = False
        self._persisting = (Term(0), LogIndex(0))
        self._after: Sequence[Message] = ()
        self._snapshots = Snapshots(files, self.config)

    # -- start --------------------------------------------------------------------------------------------------------

    def open(self, bootstrap: Bootstrap | None = None) -> None:
        """Recovers; an empty folder starts from `bootstrap`, without one as a single-member cluster. A sole voter leads
        at once, after the turns that make it durable.

        Raises: Corruption; LogLost; OSError."""
        found = recover(self.files, self.rng, bootstrap)
        self.cluster_id, self.member_id, self.membership = found.cluster_id, found.member_id, found.membership
        self.state, self._check_of_entries = found.state, found.check
        self.hub = WatchHub(self.state)
        config = RaftConfig(
            self.member_id,
            election_ticks=self.config.election_ticks,
            heartbeat_ticks=self.config.heartbeat_ticks,
            lease_reads=self.config.lease_reads,
            append_bytes_max=self.config.append_bytes_max,
            committed_bytes_max=self.config.committed_bytes_max,
            release=self.config.version,
        )
        base = found.base
        log = RaftLog(base.index, base.term, found.entries)
        self.raft = Raft(config, log, found.hard_state, base.configuration, self.rng)
        if found.from_snapshot:
            self.raft.snapshot_taken(base)
        self._snapshots.begin(found.log_bytes)
        self._configured()
        self._delivered = base.index
        self._to_stand = self._sole_voter

    # -- input --------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """One unit of time."""
        self._ticks += 1
        self.raft.tick()
        self._watch_role()
        if self._reads.size:
            for done in self._reads.expired(self._ticks, self.config.read_ticks):
                self.tell(done, Leaderless("there is no leader to confirm the read; try again"))

    def receive(self, message: Message) -> None:
        """A message from another member. A SNAPSHOT counts only once its bytes have all arrived."""
        if self.failure:
            return
        if message.type == MessageType.SNAPSHOT and not self._snapshots.arrived(message.snapshot):
            return
        try:
            if message.entries and message.term >= self.raft.term:
                self._check_of_entries.admit(message.entries, message.commit, self.raft.log.applied)
            self.raft.step(message)
        except REFUSED as error:
            self.refusals.refuse(message.sender, str(error), self.raft.configuration)
            return
        except UnknownPeer:
            return
        except AcknowledgedLost as error:
            self._violation = older_copy(self.files.disk, error)
        except SafetyViolated as error:
            self._violation = f"this member and another have conflicting data: {error}"
        self._watch_role()
        if self.leading and self.state.version < self.config.version:
            self._releases.heard(message)
            self._raise_version()

    def read(self, done: ReadDone, *, linearizable: bool = True) -> None:
        """Calls `done` when the state holds everything acknowledged before this call; at once if it already does, or if
        the caller accepts the local state."""
        if self.failure:
            done(Unavailable(f"the store failed: {self.failure}"))
        elif not linearizable or self.reads_are_local():
            done(None)
        else:
            self._reads.add(done, self._ticks)

    def transfer(self, to: NodeId) -> None:
        """Starts a leadership transfer, or asks the leader to; watch the leader to learn whether it succeeded.

        Raises: Unavailable."""
        try:
            self.raft.transfer(to)
        except ProposalDropped as dropped:
            raise Unavailable(str(dropped)) from None

    def report(self, to: NodeId, reachable: bool, snapshot: bool | None = None) -> None:
        self.raft.report(to, reachable, snapshot)

    def fail(self, why: str) -> None:
        """Nothing is promised from here on; every waiting request gets an answer."""
        self.failure = self.failure or why
        self.stop(Unavailable(f"the store failed: {self.failure}"))

    def stop(self, error: MinikubeError) -> None:
        """Ends reads and watches with `error`, and proposals with an unknown outcome; the files stay open."""
        self._give_up_waiting(OutcomeUnknown(str(error)))
        for done in self._reads.take_all():
            self.tell(done, error)
        self.hub.close(error)

    def close(self) -> None:
        """Call this after `stop`, with no sync in progress."""
        self._snapshots.close()
        self.files.close()

    # -- turns --------------------------------------------------------------------------------------------------------

    def turn(self) -> Turn | None:
        """The work for the driver; call it until it returns None: no work for now, unless something is `unfinished`.

        Raises: Failed: this member must end. `fail` answers the waiting requests."""
        if self.failure:
            return None
        try:
            return self._work()
        except Failed as error:
            self.failure = str(error)
            raise
        except Inapplicable as error:
            self.failure = f"{error}. {repair(self.files.disk)}"
        except OSError as error:
            self.failure = f"cannot write the log: {explained(error, self.files.disk)}"
        except Exception as error:
            self.failure = f"cannot continue: {describe(error)}"
        raise Failed(self.failure)

    def synced(self) -> Sequence[Message]:
        """The turn's sync succeeded. Returns the messages that had to wait for it. Raises: Failed."""
        self.syncing = False
        after, self._after = self._after, ()
        try:
            self._persisted(after)
        except OSError as error:
            self.failure = f"cannot write the log: {explained(error, self.files.disk)}"
            raise Failed(self.failure) from None
        return after

    def _persisted(self, after: Sequence[Message]) -> None:
        self.raft.persisted(*self._persisting)
        self._watch_role()
        if after or self._change_committed:
            self._witness()

    def _work(self) -> Turn | None:
        if self._violation:
            raise Failed(self._violation)
        while True:
            if self._ahead is None or next(self._ahead, self) is self:
                self._ahead = None
                if self._committed:
                    committed, self._committed = self._committed, ()
                    self._apply(committed)
            if self._lost_lead:
                self._give_up_waiting(OutcomeUnknown("leadership changed before the entry was known to be committed"))
                self._lost_lead = False
            if self._reads.size:
                self._serve_reads()
            if self._to_stand:
                self._stand()
            paused = self.unfinished
            if self.alone and (self.syncing or self._idle()):
                # Until the disk is ready nothing is; once all is durable and applied there is nothing left.
                return None
            ready = self.raft.ready(not self.syncing)
            turn = self._take(ready)
            if turn is not None:
                return turn
            if paused or (not self._committed and not ready.read_states):
                return None

    def _idle(self) -> bool:
        log = self.raft.log
        done = log.delivered == log.committed and log.handed == log.last_index
        return done and self.leading > 0 and not self._reads.size

    def _stand(self) -> None:
        """A sole voter need not wait for an election timeout; but it must have applied the current configuration."""
        self.raft.step(Message(MessageType.HUP, self.member_id, self.member_id))
        self._to_stand = self._sole_voter and self.raft.role == "FOLLOWER"

    def _take(self, ready: Ready) -> Turn | None:
        """Writes new entries; committed ones are applied before the next `Ready`, when messages are sent and the sync
        has started."""
        hard_state, entries, messages, after, committed, read_states, snapshot = ready
        for read_state in read_states:
            self._reads.answered(read_state)
        if snapshot is not None:
            self._install(snapshot, hard_state)
        if committed:
            self._committed = [*self._committed, *committed]
            self._delivered = committed[-1].index
            self._change_committed = self._change_committed or any(entry.kind for entry in committed)
        if entries or hard_state or snapshot is not None:
            self.files.write(entries, hard_state)
            self.syncing = True
            base = snapshot.index if snapshot is not None else LogIndex(0)
            self._persisting = (self.raft.term, entries[-1].index if entries else base)
            self._after = after
            return Turn(messages, self.files.begin_sync(), len(entries))
        if after:
            # All of it is already durable.
            self._persisting = (self.raft.term, LogIndex(0))
            self._persisted(after)
            return Turn([*messages, *after])
        if committed and not self.syncing:
            # Before any notification; the data being synced acts as a witness too.
            self._witness()
        return Turn(messages) if messages else None

    def _witness(self) -> None:
        """A committed change of members is always recorded: restarted with the previous configuration, members might
        wait for a removed voter."""
        self.files.witness(self._delivered, always=self._change_committed)
        self._change_committed = False

    def _serve_reads(self) -> None:
        reads, raft = self._reads, self.raft
        if reads.pending and raft.leader:
            context = reads.ask()
            try:
                raft.read_index(context)
            except ProposalDropped:
                reads.answered(ReadState(None, context))
        for done in reads.ready(raft.log.applied):
            self.tell(done, None)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    @property
    def snapshot_due(self) -> bool:
        """Enough log was written since the last one, another member needs one, or the disk is full."""
        short_of = self.state.data_bytes if self.shortage else None
        return not self.failure and self._snapshots.due(self.raft, self.alone, short_of)

    @property
    def lacks_entry(self) -> bool:
        """A snapshot would free disk space, but there is no new entry to take one at."""
        return (
            self.shortage != ""
            and self._snapshots.lacks_entry(self.raft)
            and self.files.reclaimable(self.state.data_bytes)
        )

    def take_snapshot(self) -> Steps:
        """Writes the state as of the first step, and removes the log that it replaces. Raises: OSError."""
        raft, index = self.raft, self.raft.log.applied
        meta = SnapshotMeta(index, raft.log.term(index), raft.configuration)
        head = head_of(self.cluster_id, self.member_id, meta, self.membership.beside(raft.configuration))
        yield from self._snapshots.take(raft, meta, head, self.state)

    def snapshot_source(self) -> SnapshotSource | None:
        """The newest snapshot, to send to another member; None if there is none yet. Raises: OSError."""
        return None if self.files.snapshot is None else SnapshotSource(self.files)

    def incoming_snapshot(self, offer: SnapshotOffer) -> IncomingSnapshot:
        """The receiver of an offered snapshot: the existing one of that offer, or a new one in place of any that Raft
        was not given. Raises: TransferRefused; OSError."""
        accepted = self.raft.accepted_snapshot
        if accepted is not None:
            raise TransferRefused(f"the snapshot of entry {accepted.index} is about to be installed; offer it later")
        return self._snapshots.incoming(offer, self.cluster_id)

    def _install(self, meta: SnapshotMeta, hard_state: HardState | None) -> None:
        incoming = self._snapshots.arrived(meta)
        if incoming is None:
            raise Failed(f"Raft accepted a snapshot of entry {meta.index} that is missing here")
        part, file, state = incoming.result()
        members = members_of(file.head)
        self._snapshots.install(part, file, hard_state)
        self.state, self.membership = state, members
        self._committed, self._ahead = (), None
        self._check_of_entries.forget()
        self._delivered = meta.index
        self._configured()
        self.hub.replace(state)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def waiting_reads(self) -> int:
        return self._reads.size







