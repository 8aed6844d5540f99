"""What a member proposes and applies, and its role in that. Synchronous; `Replica` adds disk, messages and reads.

Only what is committed is applied; then watchers are notified, then those who proposed it."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minikube_py.errors import (
    InvalidRequest,
    MinikubeError,
    NoSpace,
    NotLeader,
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
from minikube_py.raft.message import Entry, LogIndex, Term
from minikube_py.raft.node import Raft
from minikube_py.raft.ready import ProposalDropped
from minikube_py.store.hash_check import Revisions
from minikube_py.store.membership import Member, MemberChange, Membership
from minikube_py.store.releases import EntryCheck, Refusals, Releases, applied_change
from minikube_py.store.replica_config import ReplicaConfig

Reply = Callable[[Result | None, MinikubeError | None], None]
"""Called once with a proposal's result (None for a change of members) or its error; exceptions it raises are counted
and affect no other."""


class Failed(MinikubeError):
    """The replica cannot continue; its promises are on its disk, and it must make no more."""


class Callbacks:
    """Call it with a callback and its arguments. `in_vain`: how many raised; `last` is the latest error and its
    place."""

    __slots__ = ("in_vain", "last")

    def __init__(self) -> None:
        self.in_vain = 0
        self.last = ""

    def __call__(self, callback: Callable[..., None], *outcome: object) -> None:
        try:
            callback(*outcome)
        except Exception as error:
            self.in_vain += 1
            self.last = describe(error)


def describe(error: BaseException) -> str:
    """What went wrong and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


class Applying:
    """`lease_listener` is called for each lease that an applied command granted or, with a TTL of 0, revoked."""

    def __init__(self, config: ReplicaConfig, entry_bytes_max: int) -> None:
        self.config = config
        self.request_bytes_max = min(config.request_bytes_max, entry_bytes_max)
        self.state: StateMachine
        self.hub: WatchHub
        self.raft: Raft
        self.membership = Membership()
        self.member_id = NodeId(0)
        self.lease_listener: Callable[[LeaseResult], None] | None = None
        self.refusals = Refusals()
        self.applied_entries = 0
        self.revisions = Revisions()
        self.leading = Term(0)
        """The term in which this member leads, 0 while it does not."""
        self.failure = ""
        self.shortage = ""
        """Why writes that grow the data are refused; a leader refuses before the alarm is agreed on."""
        self.tell = Callbacks()
        self._waiting: deque[tuple[LogIndex, Any, Reply]] = deque()
        self._owed: list[tuple[Reply, Result | None, MinikubeError | None]] = []
        self._lost_lead = False
        self._configuration = Configuration(frozenset())
        self._sole_voter = False
        self.alone = False
        """This member is the only one that takes part."""
        self._opened = Term(0)
        self._committed: Sequence[Entry] = ()
        self._ahead: Iterator[None] | None = None
        self._releases = Releases(config.version)
        self._check_of_entries = EntryCheck()

    # -- proposals ----------------------------------------------------------------------------------------------------

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
        if entries:
            self.revisions.begin(state, entries[0].index - 1)
        revision = state.revision
        outcomes: list[tuple[Reply, Result | None, MinikubeError | None]] = []
        made_ready = state.ahead.ready is not None
        now = 1 if made_ready else self.revisions.before_pause(entries[0].index, len(entries)) if entries else 0
        if now < len(entries):
            entries, self._committed = entries[:now], entries[now:]
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
                entries, self._committed = entries[:place], [*entries[place:], *self._committed]
                break
            result: Result | None = None
            refusal: MinikubeError | None = None
            try:
                result = apply(command)
            except (RequestError, SessionExpired) as error:
                refusal = error
            except Exception as error:
                raise Failed(f"cannot apply entry {index}: {describe(error)}") from error
            if state.revision != revision:
                revision = state.revision
                self.revisions.changed(index, revision)
            if state.last_lease is not None and self.lease_listener is not None:
                self.lease_listener(state.last_lease)
            if reply is not None:
                outcomes.append((reply, result, refusal))
        if not entries:
            return
        self.applied_entries += len(entries)
        self._applied(entries[-1])
        self.revisions.reached(state, entries[-1].index)
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

    # -- its role -----------------------------------------------------------------------------------------------------

    @property
    def unfinished(self) -> bool:
        """There is more to apply in the next turn; other tasks run first."""
        return bool(self._committed)

    @property
    def waiting(self) -> int:
        """Proposals whose outcome is pending."""
        return len(self._waiting)

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
