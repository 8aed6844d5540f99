"""Clients of a simulated cluster, by the rules of the real one, as a pure model of it.

A client follows the leader. In a session it sends a write again, under the same sequence number, until it has an
answer; without one a write whose answer was lost is unknown, and never sent again. Reads are sent again. Each request
ends as done, refused or unknown, and stands in the history as that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from minikube_py.env import Rng
from minikube_py.errors import (
    Compacted,
    FieldsRedeclared,
    MinikubeError,
    NotLeader,
    OutcomeUnknown,
    RequestError,
    Unavailable,
)
from minikube_py.fields.where import Where
from minikube_py.mvcc.types import (
    CloseSession,
    InSession,
    OpenSession,
    RangeRequest,
    SessionResult,
    WatchBatch,
)
from minikube_py.sim.history import Delivery, History, KeepAlive, Operation, Request, Watch, WatchPart
from minikube_py.sim.steps import Steps
from minikube_py.sim.workload import Workload

ATTEMPT_US: Final = 900_000
"""Without an answer for so long, a connection counts as lost."""
ASTRAY_SHARE: Final = 0.15
"""Of the writes, those that do not go first to the leader that the client knows."""
BACKOFF_US: Final = (10_000, 60_000)
REOPEN_US: Final = (2_000, 120_000)
CLOSE_SHARE: Final = 0.02
"""Of the moments at which nothing is under way: those at which a client changes its session for a new one."""

Answer = Callable[[Any, MinikubeError | None], None]


class Servers(Protocol):
    """What a client can do: say something to a member. What it says may be lost, and so may the answer."""

    def request(self, client: int, place: int, request: Any, serializable: bool, answer: Answer) -> None:
        """`answer` is called at most once."""

    def watch(self, client: int, place: int, watch: Watch, start_revision: int, sink: WatchSink) -> Stream: ...

    def place_of(self, member_id: int) -> int | None: ...

    def places(self) -> list[int]:
        """Those that a client knows of."""


WatchSink = Callable[[WatchBatch | None], None]
"""A batch arrived; None: the stream broke."""


class Stream(Protocol):
    def cancel(self) -> None: ...


@dataclass(slots=True)
class Call:
    """A request under way. `sequence` 0: in no session. `uncertain`: an attempt was sent whose end is not known."""

    request: Request
    serializable: bool
    call_us: int
    deadline_us: int
    sequence: int = 0
    attempt: int = 0
    place: int = 0
    uncertain: bool = False
    ended: bool = False
    then: Callable[[], None] | None = None
    """To be called once it is done."""

    @property
    def reads(self) -> bool:
        return isinstance(self.request, RangeRequest | KeepAlive)


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """`sessions`: writes are sent in one. `depth`: requests under way at once. `think_us`: between two of them."""

    sessions: bool = True
    depth: int = 2
    think_us: tuple[int, int] = (5_000, 120_000)
    patience_us: int = 4_000_000


class SimClient:
    """One client and its workload. `left`: requests it has yet to begin."""

    def __init__(
        self, number: int, steps: Steps, rng: Rng, servers: Servers, history: History, options: ClientOptions
    ) -> None:
        self.number = number
        self.steps = steps
        self.rng = rng
        self.options = options
        self.left = 0
        self.ended = 0
        self.workload = Workload(Rng(rng.getrandbits(64)), number)
        self._servers = servers
        self._history = history
        self._leader = rng.choice(servers.places())
        self._session = 0
        self._sequence = 0
        self._unanswered: dict[int, Call] = {}
        self._calls: dict[int, Call] = {}
        self._opening = False
        self._next_due = False
        self.retries = 0

    def go_on(self, requests: int) -> None:
        """Is to make so many more requests."""
        self.left += requests
        self._soon(0)

    @property
    def idle(self) -> bool:
        return not self.left and not self._calls

    def give_up(self) -> None:
        """The run is over: what has no answer never will."""
        self.left = 0
        for call in list(self._calls.values()):
            self._end(call, "unknown")

    # -- beginning -----------------------------------------------------------------------------------------------------

    def _soon(self, delay_us: int) -> None:
        if not self._next_due:
            self._next_due = True
            self.steps.after(delay_us, self._next)

    def _next(self) -> None:
        self._next_due = False
        if not self.left or len(self._calls) >= self.options.depth:
            return
        if self._session and not self._calls and self.rng.random() < CLOSE_SHARE:
            self._close_session()
        if self.options.sessions and not self._session:
            self._open_session()
            return
        self.left -= 1
        self._begin(*self.workload.draw())
        if self.left:
            self._soon(self.rng.randint(*self.options.think_us))

    def _close_session(self) -> None:
        """The client is done with it; what it sent in it may still be on its way, and must not be executed any more."""
        self._servers.request(self.number, self._leader, CloseSession(self._session), False, lambda result, error: None)
        self._session = 0

    def _open_session(self) -> None:
        """Opening is idempotent: the same client gets the same session while it is open."""
        if self._opening:
            return
        self._opening = True

        def opened(result: Any, error: MinikubeError | None) -> None:
            self._opening = False
            if isinstance(result, SessionResult):
                self._session, self._sequence = result.id, 0
            elif isinstance(error, NotLeader):
                self._turn_to(error)
            else:
                self._turn_elsewhere()
            self._soon(0 if result is not None else self.rng.randint(*BACKOFF_US))

        answered = self._once(opened)
        self._servers.request(self.number, self._leader, OpenSession(self.number), False, answered)
        self.steps.after(ATTEMPT_US, answered, None, None)

    @staticmethod
    def _once(act: Answer) -> Answer:
        pending = [act]

        def run(result: Any, error: MinikubeError | None) -> None:
            if pending:
                pending.pop()(result, error)

        return run

    def write_then_read(self, writer: int, reader: int) -> None:
        """Beside all else a write through one place and, once it is done, a read of it through another."""
        put = self.workload.write()
        self._begin(put, False, writer, lambda: self._begin(RangeRequest(put.key), False, reader))

    def _begin(
        self, request: Request, serializable: bool, place: int | None = None, then: Callable[[], None] | None = None
    ) -> None:
        now_us = self.steps.now_us
        call = Call(request, serializable, now_us, now_us + self.options.patience_us, then=then)
        if self._session and not call.reads:
            self._sequence += 1
            call.sequence = self._sequence
            self._unanswered[call.sequence] = call
        self._calls[id(call)] = call
        anywhere = serializable or self.rng.random() < (0.4 if isinstance(request, RangeRequest) else ASTRAY_SHARE)
        call.place = self.rng.choice(self._servers.places()) if anywhere else self._leader
        if place is not None:
            call.place = place
        self._attempt(call)

    def _attempt(self, call: Call) -> None:
        if call.ended:
            return
        call.attempt += 1
        attempt = call.attempt
        sent: Any = call.request
        if call.sequence:
            sent = InSession(self._session, call.sequence, min(self._unanswered), sent)

        def answered(result: Any, error: MinikubeError | None) -> None:
            if not call.ended:
                self._answered(call, attempt, result, error)

        self._servers.request(self.number, call.place, sent, call.serializable, answered)
        self.steps.after(ATTEMPT_US, self._lost, call, attempt)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _answered(self, call: Call, attempt: int, result: Any, error: MinikubeError | None) -> None:
        if error is None:
            self._end(call, "done", result)
        elif isinstance(error, RequestError):
            self._end(call, "refused", None, error)
        elif attempt != call.attempt:
            return
        elif isinstance(error, Unavailable):
            # This attempt did nothing; an earlier one may have.
            if isinstance(error, NotLeader):
                self._turn_to(error)
            else:
                self._turn_elsewhere()
            self._again(call)
        else:
            self._uncertain(call, error)

    def _lost(self, call: Call, attempt: int) -> None:
        """The connection broke, or nothing was heard for too long."""
        if not call.ended and attempt == call.attempt:
            self._turn_elsewhere()
            self._uncertain(call, OutcomeUnknown("the connection was lost"))

    def _uncertain(self, call: Call, error: MinikubeError) -> None:
        call.uncertain = True
        if call.reads or (call.sequence and type(error) is OutcomeUnknown):
            self._again(call)
        else:
            self._end(call, "unknown")
            if call.sequence and type(error) is not OutcomeUnknown:
                self._new_session()

    def _new_session(self) -> None:
        """The old one has ended; what was sent in it and has no answer stays unknown."""
        for call in list(self._unanswered.values()):
            self._end(call, "unknown")
        self._session = 0

    def _again(self, call: Call) -> None:
        if self.steps.now_us >= call.deadline_us:
            self._end(call, "unknown" if call.uncertain or call.reads else "refused", None, None)
            return
        self.retries += 1
        call.attempt += 1
        if not call.serializable:
            call.place = self._leader
        else:
            call.place = self.rng.choice(self._servers.places())
        self.steps.after(self.rng.randint(*BACKOFF_US), self._attempt, call)

    def _turn_to(self, error: NotLeader) -> None:
        place = self._servers.place_of(error.leader_id) if error.leader_id else None
        if place is None:
            self._turn_elsewhere()
        else:
            self._leader = place

    def _turn_elsewhere(self) -> None:
        self._leader = self.rng.choice(self._servers.places())

    def _end(self, call: Call, status: Any, result: Any = None, error: MinikubeError | None = None) -> None:
        call.ended = True
        self.ended += 1
        del self._calls[id(call)]
        self._unanswered.pop(call.sequence, None)
        return_us = None if status == "unknown" else self.steps.now_us
        operation = Operation(
            self.number, call.call_us, return_us, call.request, status, result, error, call.serializable, call.place
        )
        self._history.operations.append(operation)
        if self.steps.told is not None:
            self.steps.tell(str(operation))
        if status == "done":
            self.workload.memory.learn(call.request, result)
            if call.then is not None:
                call.then()
        self._soon(self.rng.randint(*self.options.think_us))


class WatchClient:
    """Keeps one watch: where its stream breaks, it goes on elsewhere from what it has seen. One that was left behind
    by a compaction begins a new one after it; one whose fields were declared anew, from then on."""

    def __init__(
        self,
        number: int,
        steps: Steps,
        rng: Rng,
        servers: Servers,
        history: History,
        watched: tuple[bytes, bytes, Where | None],
        start_revision: int,
        restless: float = 0.02,
    ) -> None:
        """`restless`: the probability that it goes elsewhere by itself, at each batch."""
        self.number = number
        self.steps = steps
        self.rng = rng
        self.restless = restless
        self.resumed = 0
        self.redeclared = 0
        self.batches = 0
        self._servers = servers
        self._history = history
        self._watched = watched
        self._stream: Stream | None = None
        self._life = 0
        self.seen = 0
        self._begin(start_revision)

    @property
    def next_revision(self) -> int:
        return self.seen + 1 if self.seen else self.start_revision

    @property
    def told_from(self) -> int:
        """It is served, and will be told of this revision; 0 where nobody has said so."""
        return self.next_revision or self.watch.parts[-1].created_revision

    def _begin(self, start_revision: int) -> None:
        self.start_revision = start_revision
        self.seen = 0
        self.watch = Watch(self.number, *self._watched, live=True)
        self._history.watches.append(self.watch)
        self._open()

    def _open(self) -> None:
        self._life += 1
        life = self._life
        part = WatchPart(self.next_revision, self.steps.now_us, self.rng.choice(self._servers.places()))
        self.watch.parts.append(part)

        def sink(batch: WatchBatch | None) -> None:
            if life == self._life:
                self._arrived(part, batch)

        self._stream = self._servers.watch(self.number, part.member, self.watch, part.start_revision, sink)

    def _arrived(self, part: WatchPart, batch: WatchBatch | None) -> None:
        if batch is None:
            self._reopen()
            return
        self.batches += 1
        part.deliveries.append(Delivery(self.steps.now_us, batch))
        if self.steps.told is not None:
            self.steps.tell(f"watch {self.number}: {len(batch.events)} events to {batch.revision} {batch.error or ''}")
        if batch.error is None:
            self.seen = batch.revision
            if self.rng.random() < self.restless:
                self._reopen()
        elif isinstance(batch.error, Compacted):
            self.watch.live = False
            self._begin(batch.error.compact_revision + 1)
        elif isinstance(batch.error, FieldsRedeclared):
            self.redeclared += 1
            self.watch.live = False
            self._begin(0)
        else:
            self._reopen()

    def _reopen(self) -> None:
        self._life += 1
        if self._stream is not None:
            self._stream.cancel()
            self._stream = None
        self.resumed += 1
        self.steps.after(self.rng.randint(*REOPEN_US), self._open)


