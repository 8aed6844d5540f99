"""The core of a member: Raft, the log on disk, the state machine and pending requests. Synchronous; it never waits.

The driver owns time, threads and links: it calls `tick` and `receive` as events arrive, `propose` and `read` on
request, then `turn` until it returns None. All input before a turn becomes one write and one sync, at most one sync is
in flight, and what arrives meanwhile is the next batch. Only what is committed is applied; then watchers are notified,
then writers, then readers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minikube_py.env import Rng
from minikube_py.errors import (
    InvalidRequest,
    Leaderless,
    MinikubeError,
    NoSpace,
    NotLeader,
    OutcomeUnknown,
    RequestError,
    RequestTooLarge,
    SessionExpired,
    Unavailable,
)
from minikube_py.mvcc.alarms import grows
from minikube_py.mvcc.budgets import check_deletions
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Command, LeaseResult, RaiseVersion, Result, Txn, bare
from minikube_py.mvcc.validate import require_known, validate, validate_own
from minikube_py.mvcc.watch import WatchHub
from minikube_py.raft.configuration import ChangeRefused, Configuration, NodeId
from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import Entry, HardState, LogIndex, Message, MessageType, SnapshotMeta, Term
from minikube_py.raft.node import Raft, RaftConfig
from minikube_py.raft.ready import AcknowledgedLost, ProposalDropped, ReadState, Ready, SafetyViolated, UnknownPeer
from minikube_py.store.callbacks import Callbacks, describe
from minikube_py.store.folder import Steps
from minikube_py.store.log_files import LogFiles
from minikube_py.store.membership import Member, MemberChange, Membership, members_of
from minikube_py.store.read_rounds import ReadDone, ReadRounds
from minikube_py.store.recovery import recover
from minikube_py.store.releases import REFUSED, EntryCheck, Inapplicable, Refusals, Releases, applied_change
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

Reply = Callable[[Result | None, MinikubeError | None], None]
"""Called once with a proposal's result (None for a change of members) or its error; exceptions it raises are counted
and affect no other."""


class Failed(MinikubeError):
    """The replica cannot continue; its promises are on its disk, and it must make no more."""


class Replica:
    """A member without time, threads and links. Call `open`, then run the loop above.

    `lease_listener` is called for each lease that an applied command granted or, with a TTL of 0, revoked."""

    def __init__(self, files: LogFiles, rng: Rng, config: ReplicaConfig | None = None) -> None:
        self.config = config or ReplicaConfig()
        self.files = files
        self.request_bytes_max = min(self.config.request_bytes_max, files.entry_bytes_max)
        self.rng = rng
        self.state: StateMachine
        self.hub: WatchHub
        self.raft: Raft
        self.membership = Membership()
        self.cluster_id = 0
        self.member_id = NodeId(0)
        self.lease_listener: Callable[[LeaseResult], None] | None = None
        self.refusals = Refusals()
        self.applied_entries = 0
        self.leading = Term(0)
        """The term in which this member leads, 0 while it does not."""
        self.failure = ""
        self.shortage = ""
        """Why writes that grow the data are refused; a leader refuses before the alarm is agreed on."""
        self.tell = Callbacks()
        self._violation = ""
        self._delivered = LogIndex(0)
        self._waiting: deque[tuple[LogIndex, Any, Reply]] = deque()
        self._owed: list[tuple[Reply, Result | None, MinikubeError | None]] = []
        self._lost_lead = False
        self._configuration = Configuration(frozenset())
        self._sole_voter = False
        self.alone = False
        """This member is the only one that takes part."""
        self._opened = Term(0)
        self._to_stand = False
        self._reads = ReadRounds(rng.getrandbits(64))
        self._ticks = 0
        self._change_committed = False
        self._committed: Sequence[Entry] = ()
        self._ahead: Iterator[None] | None = None
        self.syncing = False
        self._persisting = (Term(0), LogIndex(0))
        self._after: Sequence[Message] = ()
        self._snapshots = Snapshots(files, self.config)
        self._releases = Releases(self.config.version)
        self._check_of_entries = EntryCheck()

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

    def propose(self, command: Command, data: bytes, reply: Reply, *, own: bool = False) -> None:
        """Sends `command`, packed as `data`, into the log; `reply` is called once it is applied or its outcome is
        unknown. `own`: sent by a member, not a client.

        Raises: RequestTooLarge, InvalidRequest, NoSpace, NotLeader, Unavailable: nothing was done, and `reply` is not
        called."""
        if len(data) > self.request_bytes_max:
            raise RequestTooLarge(len(data), self.request_bytes_max)
        if type(command) is not Txn or not command.single:
            self._check(command, own)
        if self.shortage and grows(command):
            raise NoSpace(self.shortage)
        if self._lost_lead or self.failure:
            raise self._not_taken("")
        raft = self.raft
        try:
            index = raft.propose(data)
        except ProposalDropped as dropped:
            raise self._not_taken(str(dropped)) from None
        self._waiting.append((index, command, reply))

    def _check(self, command: Command, own: bool) -> None:
        if own:
            validate_own(command)
        else:
            validate(command)
        require_known(command, self.state.version)
        inner = bare(command)
        if type(inner) is Txn:
            try:
                check_deletions(inner, self.state.index)
            except InvalidRequest:
                # The number of keys is visible only to users who may read them.
                self.state.auth.require(command, self.state.lessor)
                raise

    def propose_change(self, change: MemberChange, reply: Reply) -> None:
        """Proposes a change of members; done when it is applied here.

        Raises: InvalidRequest if it does not fit the members; NotLeader, Unavailable."""
        if self._lost_lead or self.failure or not self.leading:
            raise self._not_taken("")
        conf_change = self.membership.conf_change(change)
        try:
            index = self.raft.propose_change(conf_change)
        except ProposalDropped as dropped:
            raise self._not_taken(str(dropped)) from None
        except ChangeRefused as refused:
            raise InvalidRequest(str(refused)) from None
        self._waiting.append((index, change, reply))

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

    def _give_up_waiting(self, error: MinikubeError) -> None:
        waiting, self._waiting = self._waiting, deque()
        owed, self._owed = self._owed, []
        for reply in [*(reply for reply, _, _ in reversed(owed)), *(reply for _, _, reply in waiting)]:
            self.tell(reply, None, error)

    # -- applying -----------------------------------------------------------------------------------------------------

    def _apply(self, entries: Sequence[Entry]) -> None:
        waiting = self._waiting
        state = self.state
        apply, prepare = state.apply, state.ahead.prepare
        outcomes: list[tuple[Reply, Result | None, MinikubeError | None]] = []
        made_ready = state.ahead.ready is not None
        if made_ready:
            entries, self._committed = entries[:1], entries[1:]
        for place, entry in enumerate(entries):
            _, index, data, kind = entry
            reply: Reply | None = None
            if waiting and waiting[0][0] == index:
                _, command, reply = waiting.popleft()
            elif not data:
                continue
            elif not kind:
                try:
                    command = self._check_of_entries.command(index, data)
                except InvalidRequest:
                    continue
            if kind:
                skipped = self._apply_change(entry)
                if reply is not None:
                    outcomes.append((reply, None, skipped))
                continue
            self._ahead = prepare(command)
            if self._ahead is not None:
                assert not made_ready, f"entry {index} was prepared twice"
                if reply is not None:
                    waiting.appendleft((index, command, reply))
                entries, self._committed = entries[:place], entries[place:]
                break
            result: Result | None = None
            refusal: MinikubeError | None = None
            try:
                result = apply(command)
            except (RequestError, SessionExpired) as error:
                refusal = error
            except Exception as error:
                raise Failed(f"cannot apply entry {index}: {describe(error)}") from error
            if state.last_lease is not None and self.lease_listener is not None:
                self.lease_listener(state.last_lease)
            if reply is not None:
                outcomes.append((reply, result, refusal))
        if not entries:
            return
        self.applied_entries += len(entries)
        self._applied(entries[-1])
        state.ahead.ready = None
        # Popped one by one: if something here fails, `fail` answers the rest.
        outcomes.reverse()
        self._owed = outcomes
        self.hub.notify()
        while outcomes:
            reply, result, refusal = outcomes.pop()
            self.tell(reply, result, refusal)

    def _apply_change(self, entry: Entry) -> MinikubeError | None:
        """Changes the record of members here and Raft's configuration in `raft.applied`, both before anything else.
        What nobody can apply changes neither, on every member alike."""
        self.raft.applied(LogIndex(entry.index - 1))
        after = applied_change(entry, self.membership, self.raft.configuration)
        if isinstance(after, Membership):
            self.membership = after
            return None
        self.raft.skip_change(entry.index)
        return self.refusals.skip(after)

    def _applied(self, last: Entry) -> None:
        raft = self.raft
        raft.applied(last.index)
        if self._opened != self.leading and last.term == self.leading:
            self._opened = self.leading
        if raft.configuration is not self._configuration:
            self._configured()
            # A removed leader stops leading.
            self._watch_role()
        if self._opened and self.state.version < self.config.version:
            self._raise_version()
        if self.alone:
            # They are no longer needed.
            raft.compact(last.index)
        elif not raft.log.offset:
            # The first entry of a log that a sole member started: a joining member must get a snapshot instead.
            raft.compact(LogIndex(1))

    def _raise_version(self) -> None:
        """Once per term, when all others have reported their version and this leader has applied everything before
        it."""
        version = self._releases.due(self.leading, self.membership, self.member_id)
        if version > self.state.version and self._opened == self.leading and not self._lost_lead:
            try:
                self.raft.propose(pack(RaiseVersion(version)))
                self._releases.proposed = self.leading
            except ProposalDropped:
                pass

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
    def unfinished(self) -> bool:
        """There is more to apply in the next turn; other tasks run first."""
        return bool(self._committed)

    @property
    def waiting(self) -> int:
        """Proposals whose outcome is pending."""
        return len(self._waiting)

    @property
    def waiting_reads(self) -> int:
        return self._reads.size

    @property
    def removed(self) -> bool:
        """Removed permanently, as far as it knows, and in no half of a joint configuration that needs its vote."""
        return self.member_id in self.membership.removed and not self.raft.configuration.contains(self.member_id)

    def reads_are_local(self) -> bool:
        """A sole voter that leads and has applied an entry of its term has applied everything ever acknowledged."""
        return self._sole_voter and bool(self.leading) and self._opened == self.leading

    def leader(self) -> Member | None:
        """The leader, as far as this member knows."""
        return self.membership.get(self.raft.leader) if self.raft.leader else None

    def not_leader(self) -> NotLeader:
        """The error that names the leader."""
        leader = self.leader()
        return NotLeader(leader.id, leader.client) if leader else NotLeader(self.raft.leader)

    def _not_taken(self, why: str) -> Unavailable:
        if self.failure:
            return Unavailable(f"the store has failed: {self.failure}")
        if self.leading and not self._lost_lead:
            return Unavailable(why)
        if self.leading:
            return NotLeader()
        return self.not_leader()

    def _configured(self) -> None:
        self._configuration = self.raft.configuration
        voters, outgoing, learners = self._configuration[:3]
        self._sole_voter = voters == {self.member_id} and not outgoing
        self.alone = self._sole_voter and not learners

    def _watch_role(self) -> None:
        raft = self.raft
        leading = raft.term if raft.role == "LEADER" else Term(0)
        if leading != self.leading:
            self._lost_lead, self.leading = self._lost_lead or bool(self._waiting), leading
            self._check_of_entries.forget()
