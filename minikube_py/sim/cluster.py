"""A cluster of real replicas in virtual time, without an event loop: places, links between them, and clients.

Level 1 of the simulation. All that happens is a step of `Steps`; all that is random comes from the seed; nothing
waits. The members' log, state machine, watches, sessions, membership and bootstrap are the product's own code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final
from zlib import crc32

from minikube_py.env import Rng
from minikube_py.errors import (
    InvalidRequest,
    MinikubeError,
    NotLeader,
    OutcomeUnknown,
    RequestError,
    RequestTooLarge,
    Unavailable,
)
from minikube_py.mvcc.types import LeaseResult, RangeRequest, WatchBatch
from minikube_py.mvcc.watch import Watcher
from minikube_py.raft.codec import message_from_plain, message_to_plain
from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import LogIndex, Message, MessageType, Term
from minikube_py.sim.checkers.convergence import Agreement, LogEnd
from minikube_py.sim.clients import Answer, WatchSink
from minikube_py.sim.history import KeepAlive, Watch
from minikube_py.sim.links import HELD, LATENCY_US, Links
from minikube_py.sim.place import SYNC_US, Place
from minikube_py.sim.steps import Act, Steps
from minikube_py.sim.transfers import Transfer
from minikube_py.store.bootstrap import Initial
from minikube_py.store.membership import Member, MemberChange
from minikube_py.store.replica import Replica

SNAPSHOT: Final = int(MessageType.SNAPSHOT)
VOTE: Final = int(MessageType.VOTE)
VOTE_REPLY: Final = int(MessageType.VOTE_REPLY)
BINDING: Final = frozenset((VOTE, VOTE_REPLY, int(MessageType.APPEND_REPLY)))
RESET_US: Final = (200, 3_000)
SILENCE_US: Final = 700_000
"""So long a client takes a connection for good on which nothing comes any more."""


class Cluster:
    """`members` places that form a cluster, and `spare` ones that may join it. A client is at a place too: its links
    to the members are that place's."""

    def __init__(
        self,
        rng: Rng,
        steps: Steps,
        members: int,
        spare: int = 0,
        latency_us: tuple[int, int] = LATENCY_US,
        sync_us: tuple[int, int] = SYNC_US,
    ) -> None:
        self.steps = steps
        self.rng = rng
        self.links = Links(Rng(rng.getrandbits(64)), latency_us)
        self.agreement = Agreement()
        self.problem = ""
        self.refusals: list[tuple[int, MinikubeError]] = []
        """(place, why) of members that would not start, for whoever tends the cluster."""
        self.failures: list[tuple[int, str]] = []
        """The same of members that ended themselves."""
        self.elections = 0
        self.elected: Callable[[Place], None] | None = None
        self.rivals: Callable[[Place, Place], None] | None = None
        """Told when one begins to lead while another, of an earlier term, does not know of it."""
        """Told of each member that comes to lead."""
        self.messages = 0
        self.snapshots_sent = 0
        self.snapshots_installed = 0
        self._members = members
        initial: Initial = tuple((f"m{number}", f"m{number}:1") for number in range(members))
        self.all = [
            Place(number, steps, Rng(rng.getrandbits(64)), self, initial) for number in range(members + spare)
        ]
        for place in self.all:
            place.sync_us = sync_us
        self._place_of: dict[int, int] = {}
        self._held: dict[tuple[int, int], list[tuple[Act, tuple[Any, ...], Act | None]]] = {}
        self._requests: dict[int, dict[int, tuple[int, Answer]]] = {place.number: {} for place in self.all}
        self._streams: dict[int, dict[int, ServedWatch]] = {place.number: {} for place in self.all}
        self._number = 0
        self._looked: dict[int, tuple[object, ...]] = {}
        self._looked_at: dict[int, LogIndex] = {}
        self._looked_life: dict[int, int] = {}
        self._terms: dict[int, int] = {}
        self._sending: dict[tuple[int, int], Transfer] = {}
        self._states: dict[int, Any] = {}

    # -- what is known -------------------------------------------------------------------------------------------------

    def leader(self) -> Place | None:
        """The leader of the newest term, if a running member thinks that it is."""
        leading = [place for place in self.all if place.replica is not None and place.replica.leading]
        return max(leading, key=lambda place: place.replica.leading if place.replica else 0, default=None)

    def place_of(self, member_id: int) -> int | None:
        number = self._place_of.get(member_id)
        return number if number is not None and self.all[number].member_id == member_id else None

    def places(self) -> list[int]:
        return list(range(len(self.all)))

    def fail(self, text: str) -> None:
        """The first thing that was wrong; the run ends."""
        if not self.problem:
            self.problem = text
            self.steps.tell(f"VIOLATION: {text}")
            self.steps.stop()

    # -- links ---------------------------------------------------------------------------------------------------------

    def carry(
        self, sender: int, receiver: int, act: Act, *arguments: Any, once: bool = True, lost: Act | None = None
    ) -> None:
        """Lets `act` happen at `receiver` when what says so arrives; `lost` is called where it never will."""
        arrivals = self.links.arrivals(self.steps.now_us, sender, receiver)
        if not arrivals and lost is not None:
            lost()
        for at_us in arrivals[:1] if once else arrivals:
            if at_us == HELD:
                self._held.setdefault((sender, receiver), []).append((act, arguments, lost))
            else:
                self.steps.at(at_us, act, *arguments)

    def release(self, sender: int, receiver: int) -> None:
        """What waited in a clogged link comes."""
        if self.links.link(sender, receiver).clogs:
            return
        for act, arguments, lost in self._held.pop((sender, receiver), ()):
            self.carry(sender, receiver, act, *arguments, lost=lost)

    def release_all(self) -> None:
        for sender, receiver in list(self._held):
            self.release(sender, receiver)

    # -- between members -----------------------------------------------------------------------------------------------

    def send(self, place: Place, messages: Sequence[Message]) -> None:
        for message in messages:
            self.messages += 1
            if message.type in BINDING:
                self._promised(message)
            receiver = self.place_of(message.to)
            if receiver is None:
                continue
            if message.type == SNAPSHOT:
                self._send_snapshot(place, self.all[receiver], message)
                continue
            if not self.messages % 32:
                message = message_from_plain(message_to_plain(message))
            self.carry(place.number, receiver, self._deliver, place, self.all[receiver], message, once=False)

    def _promised(self, message: Message) -> None:
        """What may be said only once it is durable."""
        agreement = self.agreement
        agreement.promised(message.sender, message.term)
        if message.type == VOTE:
            agreement.voted(message.sender, message.term, message.sender)
        elif message.type == VOTE_REPLY and not message.reject:
            agreement.voted(message.sender, message.term, message.to)

    def _deliver(self, sender: Place, receiver: Place, message: Message) -> None:
        if self.steps.told is not None:
            self.steps.tell(f"{sender.name} -> {receiver.name} {in_brief(message)}")
        if receiver.running:
            receiver.do(receiver.life, receiver.receive, message)
        else:
            self.carry(receiver.number, sender.number, sender.do, sender.life, self._unreachable, sender, message.to)

    def _unreachable(self, place: Place, to: Any) -> None:
        if place.replica is not None:
            place.replica.report(to, False)

    def _send_snapshot(self, sender: Place, receiver: Place, message: Message) -> None:
        """One transfer at a time to each; a newer one takes its place."""
        pair = (sender.number, receiver.number)
        running = self._sending.get(pair)
        if running is not None:
            running.end()
        self.snapshots_sent += 1
        self._sending[pair] = Transfer(self, sender, receiver, message)

    def ask(self, place: Place) -> None:
        for other in self.all:
            if other is not place:
                self.carry(place.number, other.number, self._answer, place, place.life, other)

    def _answer(self, place: Place, life: int, other: Place) -> None:
        answer = other.answer()
        if answer is not None:
            self.carry(other.number, place.number, self._answered, place, life, other.address, answer)

    def _answered(self, place: Place, life: int, address: str, answer: Any) -> None:
        if life == place.life:
            place.answers[address] = answer

    def ask_to_join(self, place: Place, leader: Member, change: MemberChange) -> None:
        number = self.place_of(leader.id)
        if number is not None:
            self.carry(place.number, number, self._propose_change, self.all[number], change)

    def _propose_change(self, place: Place, change: MemberChange) -> None:
        place.do(place.life, self.change_members, place, change)

    def change_members(self, place: Place, change: MemberChange) -> bool:
        """Whether the member there took the change as a proposal."""
        if place.replica is None:
            return False
        try:
            place.replica.propose_change(change, _ignore)
        except (Unavailable, InvalidRequest) as error:
            self.steps.tell(f"{place.name} does not take {change.kind.name} of {change.name or change.id}: {error}")
            return False
        self.steps.tell(f"{place.name} proposes {change.kind.name} of {change.name} {change.id:x}")
        place.turn_soon()
        return True

    # -- what members tell ---------------------------------------------------------------------------------------------

    def stepped(self, place: Place) -> None:
        """Looks at what a member has committed since it was last looked at: one leader a term, one log for all."""
        replica = place.replica
        if replica is None:
            return
        raft = replica.raft
        looked = (place.life, raft.term, raft.log.committed, raft.log.applied, raft.role, id(replica.state))
        if self._looked.get(place.number) != looked:
            self._look(place, replica)
            self._looked[place.number] = looked

    def _look(self, place: Place, replica: Replica) -> None:
        raft, agreement = replica.raft, self.agreement
        member, log = place.member_id, raft.log
        if self._looked_life.get(place.number) != place.life:
            self._looked_life[place.number] = place.life
            self._place_of[member] = place.number
            agreement.restarted(member)
            self._looked_at[place.number] = log.offset
            self._states[place.number] = replica.state
        if replica.state is not self._states[place.number]:
            self._states[place.number] = replica.state
            self.snapshots_installed += 1
        led = self._terms.get(place.number) == raft.term
        if raft.role == "LEADER" and not led:
            self._terms[place.number] = raft.term
            self.elections += 1
            if self.elected is not None:
                self.elected(place)
            for other in self.all:
                old = other.replica
                if self.rivals is not None and other is not place and old is not None and old.raft.role == "LEADER":
                    self.rivals(place, other)
            terms = {index: log.term(LogIndex(index)) for index in range(log.offset, log.last_index + 1)}
            agreement.leads(member, raft.term, terms)
        seen = max(self._looked_at[place.number], log.offset)
        if log.committed > seen:
            if raft.role == "LEADER":
                self._decided(place, replica, log.committed)
                if led:
                    agreement.counts(member, raft.term, log.committed, log.term(log.committed))
            for entry in log.slice(LogIndex(seen), log.committed):
                agreement.committed(member, entry.index, entry.term, crc32(entry.data))
            self._looked_at[place.number] = log.committed
        agreement.stands_at(member, raft.term, log.committed, raft.vote)
        agreement.applied(member, log.applied, replica.state.revision)
        if agreement.problem:
            self.fail(agreement.problem)

    def _decided(self, leader: Place, replica: Replica, index: LogIndex) -> None:
        term = replica.raft.log.term(index)
        configuration = replica.raft.configuration
        groups = [group for group in (configuration.voters, configuration.outgoing) if group]
        logs: dict[int, LogEnd] = {}
        for place in self.all:
            if place.last is not None and not place.lost and any(place.last.member_id in group for group in groups):
                logs[place.last.member_id] = _log_end(place, place.last.raft.log, index, term)
        self.agreement.decides(leader.member_id, index, term, logs, groups)

    def refused(self, place: Place, error: MinikubeError) -> None:
        self.refusals.append((place.number, error))

    def failed(self, place: Place, why: str) -> None:
        self.failures.append((place.number, why))

    def gone(self, place: Place, *, silently: bool) -> None:
        """Connections break; who is not told finds out by itself."""
        requests, self._requests[place.number] = self._requests[place.number], {}
        lost = OutcomeUnknown("the connection was lost")
        for home, answer in requests.values():
            if not silently:
                self.steps.after(self.rng.randint(*RESET_US), self.carry, place.number, home, answer, None, lost)
        streams, self._streams[place.number] = self._streams[place.number], {}
        for stream in streams.values():
            stream.lose(SILENCE_US if silently else self.rng.randint(*RESET_US))

    # -- clients -------------------------------------------------------------------------------------------------------

    def home_of(self, client: int) -> int:
        return client % self._members

    def request(self, client: int, place: int, request: Any, serializable: bool, answer: Answer) -> None:
        home = self.home_of(client)
        self.carry(home, place, self._arrived, home, self.all[place], request, serializable, answer)

    def _arrived(self, home: int, place: Place, request: Any, serializable: bool, answer: Answer) -> None:
        if not place.running:
            refused = Unavailable("connection refused")
            self.carry(place.number, home, answer, None, refused)
            return
        self._number += 1
        number, requests = self._number, self._requests[place.number]
        requests[number] = (home, answer)

        def respond(result: Any, error: MinikubeError | None) -> None:
            if requests.pop(number, None) is not None:
                self.carry(place.number, home, answer, result, error)

        place.do(place.life, self._serve, place, request, serializable, respond)

    def _serve(self, place: Place, request: Any, serializable: bool, respond: Answer) -> None:
        replica = place.replica
        if replica is None:
            respond(None, Unavailable("this member has not begun"))
        elif isinstance(request, RangeRequest):
            self._read(place, replica, request, serializable, respond)
        elif isinstance(request, KeepAlive):
            self._keep_alive(place, replica, request, respond)
        else:
            try:
                place.propose(request, respond)
            except (RequestTooLarge, Unavailable) as error:
                respond(None, error)

    def _read(
        self, place: Place, replica: Replica, request: RangeRequest, serializable: bool, respond: Answer
    ) -> None:
        def done(error: MinikubeError | None) -> None:
            if error is not None:
                respond(None, error)
                return
            try:
                result = replica.state.range(request)
            except RequestError as refusal:
                respond(None, refusal)
            else:
                respond(result, None)

        replica.read(done, linearizable=not serializable)
        place.turn_soon()

    def _keep_alive(self, place: Place, replica: Replica, request: KeepAlive, respond: Answer) -> None:
        """The leader renews, once it is sure that it still leads."""
        term = replica.leading
        if not term:
            respond(None, NotLeader(replica.raft.leader))
            return

        def done(error: MinikubeError | None) -> None:
            if error is None and replica.leading != term:
                error = NotLeader(replica.raft.leader)
            if error is not None:
                respond(None, error)
            else:
                respond(LeaseResult(0, request.id, place.lessor.renew(request.id)), None)

        replica.read(done)
        place.turn_soon()

    def watch(self, client: int, place: int, watch: Watch, start_revision: int, sink: WatchSink) -> ServedWatch:
        stream = ServedWatch(self, self.home_of(client), self.all[place], watch, start_revision, sink)
        self.carry(stream.home, place, stream.open, lost=stream.fall_silent)
        return stream

    def add_stream(self, stream: ServedWatch) -> Callable[[], None]:
        """Keeps a stream while it is served; returns what forgets it."""
        self._number += 1
        number, streams = self._number, self._streams[stream.place.number]
        streams[number] = stream
        return lambda: _forget(streams, number)


def _log_end(place: Place, log: RaftLog, index: LogIndex, term: Term) -> LogEnd:
    durable = (log.term(log.stable), log.stable)
    now = (log.last_term, log.last_index) if place.running else durable
    there = index < log.offset or (index <= log.last_index and log.term(index) == term)
    return LogEnd(durable, now, there and index <= now[1], there and index <= log.stable)


def in_brief(message: Message) -> str:
    """A message as one reads it in a trace."""
    words = [MessageType(message.type).name, f"term {message.term}"]
    if message.index or message.log_term:
        words.append(f"at {message.index} of term {message.log_term}")
    if message.entries:
        words.append(f"{len(message.entries)} entries")
    if message.commit:
        words.append(f"commit {message.commit}")
    if message.reject:
        words.append(f"refused, hint {message.hint}")
    if message.snapshot is not None:
        words.append(f"snapshot {message.snapshot.index}")
    return " ".join(words)


class ServedWatch:
    """A watch at a member, and the connection that its batches come by, in order."""

    def __init__(
        self, cluster: Cluster, home: int, place: Place, watch: Watch, start_revision: int, sink: WatchSink
    ) -> None:
        self.home = home
        self.place = place
        self._cluster = cluster
        self._watch = watch
        self._part = watch.parts[-1]
        self._start_revision = start_revision
        self._sink: WatchSink | None = sink
        self._watcher: Watcher | None = None
        self._on_its_way: deque[WatchBatch] = deque()
        self._lost = False
        self._forget: Callable[[], None] = _nothing

    def open(self) -> None:
        place = self.place
        if self._sink is None:
            return
        if not place.running:
            self.lose(RESET_US[1])
            return
        self._forget = self._cluster.add_stream(self)
        place.do(place.life, self._add)

    def _add(self) -> None:
        replica = self.place.replica
        if self._sink is None or self._lost:
            return
        if replica is None:
            self.lose(RESET_US[1])
            return
        watch = self._watch
        try:
            self._watcher = replica.hub.add(
                watch.key, watch.range_end, self._start_revision, self._send, watch.where
            )
        except InvalidRequest:
            # The fields are not declared yet where it was asked.
            self.lose(RESET_US[1])
            return
        self._part.created_revision = self._watcher.next_revision
        self.place.turn_soon()

    def _send(self, batch: WatchBatch) -> None:
        """What overtakes on the link does not in a connection: each arrival hands over what is next."""
        if self._lost:
            return
        self._on_its_way.append(batch)
        self._cluster.carry(self.place.number, self.home, self._arrive, lost=self.fall_silent)

    def _arrive(self) -> None:
        if self._sink is not None and not self._lost:
            self._sink(self._on_its_way.popleft())

    def fall_silent(self) -> None:
        self.lose(SILENCE_US)

    def lose(self, after_us: int) -> None:
        """Nothing comes any more; the client finds out after a while."""
        if not self._lost:
            self._lost = True
            self._cluster.steps.after(after_us, self._tell_lost)

    def _tell_lost(self) -> None:
        self.cancel()
        sink, self._sink = self._sink, None
        if sink is not None:
            sink(None)

    def cancel(self) -> None:
        """The client goes; the member hears of it."""
        self._lost = True
        self._forget()
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None


def _forget(streams: dict[int, ServedWatch], number: int) -> None:
    streams.pop(number, None)


def _ignore(result: Any, error: MinikubeError | None) -> None:
    pass


def _nothing() -> None:
    pass
