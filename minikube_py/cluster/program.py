"""A program under test in virtual time: a separate process, with a network that takes time to the API server, which may
be killed at any point and restarted, as its kubelet would.

A process is a loop of `minikube_py.sim`; when killed, it stops running and loses its memory."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast
from urllib.parse import urlencode

from minikube_py.apiserver.asking import answer_of
from minikube_py.apiserver.http1 import Head
from minikube_py.apiserver.messages import parse_query
from minikube_py.apiserver.routes import parse_path, verb_of
from minikube_py.apiserver.watch_stream import Batch, Stream
from minikube_py.client.rest import refused_watch
from minikube_py.client.transport import JSON, USER_AGENT, ApiResponse, WatchEvent
from minikube_py.cluster.code_place import place
from minikube_py.cluster.gate import GatedStream, Met
from minikube_py.cluster.in_process import Answered, answered_of, bearer, head_of, is_watch
from minikube_py.cluster.surroundings import Surroundings
from minikube_py.cluster.timeline import Timeline
from minikube_py.cluster.virtual import VirtualCluster
from minikube_py.env import Rng
from minikube_py.sim.loop import NS_PER_S, SimFailure, SimLoop
from minikube_py.sim.replaced import Replaced

READS: Final = frozenset(("GET", "HEAD"))
DELAY_S: Final = 0.0005
DELAY_MORE_S: Final = 0.02
RESTART_S: Final = 0.1
RESTART_MORE_S: Final = 2.0
BACKOFF_FACTOR: Final = 2.0
BACKOFF_MAX_S: Final = 60.0
GOOD_RUN_S: Final = 600.0
"""A run of this length ends the growth of the delays, as a kubelet's: twice its longest delay of 300 s."""
ERRORS_MAX: Final = 100
"""In a row."""

EVENTS: Final = ("ADDED", "MODIFIED", "DELETED")

Main = Callable[[Any], Coroutine[Any, Any, object]]


class Step(NamedTuple):
    """The `nth` request of programs with this verb for such resources, or the `nth` event of this type on its way to
    them."""

    verb: str
    plural: str
    nth: int


class Programs:
    """All programs beside one cluster. `steps`: how many they have taken, by verb and plural; `on_step` is called
    before each."""

    def __init__(self, virtual: VirtualCluster, timeline: Timeline, around: Surroundings) -> None:
        self.virtual, self.timeline, self.around = virtual, timeline, around
        self.rng = virtual.new_rng()
        self.running: list[Program] = []
        self.steps: Counter[tuple[str, str]] = Counter()
        self.on_step: Callable[[Step], None] | None = None
        self._crashes: deque[tuple[int, Met]] = deque()
        self._replaced: list[Replaced] = []

    def start(self, main: Main, name: str) -> Program:
        program = Program(self, main, name)
        self.running.append(program)
        program.begin()
        return program

    def end(self, programs: Sequence[Program]) -> None:
        """Those alone, for good."""
        for each in programs:
            self.running.remove(each)
            each.stop()

    def stop(self) -> None:
        """Idempotent."""
        for each in self.running:
            each.stop()

    def release(self) -> None:
        """Idempotent; once nothing of them runs any more."""
        while self._replaced:
            self._replaced.pop().release()

    def replace(self, attribute: Replaced) -> None:
        """Until the last cluster that asked for it has stopped."""
        if attribute not in self._replaced:
            self._replaced.append(attribute)
            attribute.hold()

    def lines(self, but_those_that_work: bool = False) -> list[str]:
        """How each goes, for reports of failures."""
        return [each.line() for each in self.running if each.error is not None or not but_those_that_work]

    def asks(self, method: str, path: str, watching: bool) -> str:
        """Counts the request as a step, unless it is for no resource. Returns its plural."""
        found = parse_path(path, self.virtual.plane.core.registry)
        if found is None or not found.plural:
            return ""
        self.step(verb_of(found, method, watching), found.plural)
        return found.plural

    def step(self, verb: str, plural: str) -> None:
        self.steps[verb, plural] += 1
        if self.on_step is not None:
            self.on_step(Step(verb, plural, self.steps[verb, plural]))

    def coming(self, plural: str, batches: Sequence[Batch]) -> None:
        """Events are on their way to a program."""
        for event in [each for batch in batches for each in batch.events if each.type in EVENTS]:
            self.step(event.type, plural)

    def crash_before(self, writes: int, met: Met) -> None:
        """The process with that write from now on, counted from 0, ends before it."""
        self._crashes.append((writes, met))

    def all_well(self) -> None:
        self._crashes.clear()

    def crashes_now(self) -> bool:
        """Check this before each write."""
        if not self._crashes:
            return False
        left, met = self._crashes.popleft()
        if left > 0:
            self._crashes.appendleft((left - 1, met))
            return False
        met()
        return True


class Program:
    """`main(transport)` is run again after a kill or an exception; a normal return ends it. `starts`: the number of
    runs; `error`: its latest exception."""

    def __init__(self, programs: Programs, main: Main, name: str) -> None:
        self.name = name
        self.starts = 0
        self.error: Exception | None = None
        self.returned = False
        self._programs, self._main = programs, main
        self._process: _Process | None = None
        self._stopped = False
        self._errors = 0
        self._started_s = 0.0

    @property
    def running(self) -> bool:
        return self._process is not None

    def line(self) -> str:
        """How it goes: its starts, and its latest exception."""
        ended = "has returned" if self.returned else "is stopped" if self._stopped else "will restart"
        now = "runs" if self.running else ended
        starts = f"{self.starts} start{'s' if self.starts > 1 else ''}"
        if self.error is None:
            return f"program {self.name} {now}, {starts}"
        at = place(self.error)
        where = f" at {at[0]}:{at[1]}" if at else ""
        return f"program {self.name} {now}, {starts}; it raised {type(self.error).__name__}: {self.error}{where}"

    def begin(self, _: object = None) -> None:
        if self._stopped:
            return
        self.starts += 1
        self._started_s = self._programs.virtual.now_s
        self._programs.timeline.add(f"{self.name} starts" if self.starts == 1 else f"{self.name} starts again")
        self._process = _Process(self._programs, self)
        self._process.begin(self._main)

    def crash(self) -> None:
        """Kills it, and restarts it in a moment. No effect if it is not running."""
        if self._process is not None:
            self._programs.timeline.add(f"{self.name} crashes")
            self._kill()
            self._again(RESTART_S + RESTART_MORE_S * self._programs.rng.random())

    def stop(self) -> None:
        """Kills it permanently. Idempotent."""
        self._stopped = True
        self._kill()

    def ended(self, error: Exception | None) -> None:
        """By itself. A program that raises is restarted, with growing delays."""
        self._kill()
        self.error = error
        if error is None:
            self.returned = True
            self._programs.timeline.add(f"{self.name} returns")
            return
        if self._programs.virtual.now_s - self._started_s >= GOOD_RUN_S:
            self._errors = 0
        self._errors += 1
        self._programs.timeline.add(f"{self.name} raises {type(error).__name__}: {error}")
        if self._errors > ERRORS_MAX:
            time = self._programs.virtual.loop.scheduler
            time.fail(f"{self.name} raised {self._errors} times in a row; at last {type(error).__name__}: {error}")
            return
        self._again(min(RESTART_S * BACKOFF_FACTOR ** min(self._errors, 30), BACKOFF_MAX_S))

    def _again(self, delay_s: float) -> None:
        self._programs.virtual.loop.scheduler.after(delay_s, self.begin)

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()


class _Process:
    """One run of a program. Requests and answers take time between its loop and the cluster's."""

    def __init__(self, programs: Programs, program: Program) -> None:
        self._time = programs.virtual.loop.scheduler
        self.name, self.fail = program.name, self._time.fail
        self._programs, self._program = programs, program
        self._server = programs.virtual.loop
        self._loop = SimLoop(self._time, program.name, rng=Rng(programs.rng.getrandbits(64)))
        self._loop.set_exception_handler(self._said)
        self._loop.on_exit = self._exits
        self._loop.around = self.around = programs.around
        self._rng = Rng(programs.rng.getrandbits(64))
        self._main: asyncio.Task[None] | None = None
        self._ends = False
        self._at_server: dict[asyncio.Task[None], None] = {}
        self._watches: dict[_Watch, None] = {}

    # -- lifecycle
    # ---------------------------------------------------------------------------------------------------------

    def replace(self, attribute: Replaced) -> None:
        self._programs.replace(attribute)

    def begin(self, main: Main) -> None:
        async def whole() -> None:
            try:
                await main(Remote(self, self._programs.virtual.token))
            except SimFailure:
                raise
            except BaseException as raised:
                if isinstance(raised, GeneratorExit) and self._loop.dead:
                    raise
                self._exits(raised)
            else:
                self._exits(None)

        def go() -> None:
            self._main = self._loop.create_task(whole(), name=self._program.name)

        # Possibly between two runs.
        with self._time.entered():
            self._loop.call_soon(go)

    def _exits(self, raised: BaseException | None) -> None:
        """Any exception ends it, as it ends a real process; SystemExit without a code is its normal end."""
        if raised is not None and raised is self._programs.virtual.broken:
            raise raised
        error = raised if raised is None or isinstance(raised, Exception) else None
        if raised is not error and getattr(raised, "code", True):
            error = RuntimeError(f"{type(raised).__name__}: {raised}")
        self._ends = True
        self._time.after(0, lambda _: self._over(error))

    def _over(self, error: Exception | None) -> None:
        if not self._loop.dead:
            self._program.ended(error)

    def kill(self) -> None:
        """Requests in flight still arrive; what the server holds open for it ends."""
        self._ends = True
        self._loop.kill()
        for watch in list(self._watches):
            self.close(watch)

    def _said(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        text = context.get("message", "")
        self._programs.timeline.add(f"{self._program.name} logs: {text} {error!r}" if error else text)

    def wall_s(self) -> float:
        return self._programs.virtual.clock.wall_s()

    # -- requests -----------------------------------------------------------------------------------------------------

    async def exchange(self, asked: Head, body: bytes) -> tuple[Answered, _Watch | None]:
        """The answer, and for a watch the events that follow."""
        if self._ends:
            # It is being ended: no receiver is left.
            await self._loop.create_future()
        method, path, query = asked.method, asked.path, parse_query(asked.query)
        plural = self._programs.asks(method, path, is_watch(asked))
        if method not in READS and self._programs.crashes_now():
            self._ends = True
            self._programs.timeline.add(f"{self._program.name} was about to {method} {path}")
            self._time.after(0, lambda _: self._program.crash())
            await self._loop.create_future()
        answer: asyncio.Future[tuple[Answered, _Watch | None]] = self._loop.create_future()
        told = self._programs.timeline.request(
            self._program.name, "WATCH" if is_watch(asked) else method, path, _shown(query), body or None
        )
        watch = _Watch(self, path)

        async def carried_out() -> None:
            virtual = self._programs.virtual
            response = await answer_of(virtual.plane.core, asked, body)
            found = answered_of(response, asked, self._rng, virtual.clock.wall_s())
            response.sent()
            if response.stream is None:
                self._after_a_delay(self._loop, lambda: settle(found, None))
            elif watch.closed:
                response.stream.close()
            else:
                cast(GatedStream, response.stream).coming = partial(self._programs.coming, plural)
                self._watches[watch] = None
                self.arrives(watch, lambda: settle(found, watch))
                await self._carry(watch, response.stream)

        def settle(found: Answered, opened: _Watch | None) -> None:
            told(None if opened else ApiResponse(found.status, found.body, dict(found.headers)))
            if not answer.done():
                answer.set_result((found, opened))

        self._after_a_delay(self._server, lambda: self._at_the_server(carried_out(), watch))
        try:
            return await answer
        except asyncio.CancelledError:
            self.close(watch)
            raise

    def _at_the_server(self, work: Coroutine[Any, Any, None], watch: _Watch) -> None:
        watch.pump = task = self._server.create_task(work)
        self._at_server[task] = None
        task.add_done_callback(lambda done: self._at_server.pop(done, None))

    async def _carry(self, watch: _Watch, stream: Stream) -> None:
        try:
            while batches := await stream.next():
                for batch in batches:
                    watch.deliver(list(batch.events))
            watch.deliver(None)
        finally:
            stream.close()

    def _after_a_delay(self, loop: SimLoop, call: Callable[[], object]) -> None:
        self._time.after(self._delay_s(), lambda _: loop.call_soon(call))

    def _delay_s(self) -> float:
        """Usually short."""
        drawn: float = self._rng.random()
        return DELAY_S + DELAY_MORE_S * drawn**3

    # -- watches ------------------------------------------------------------------------------------------------------

    def arrives(self, watch: _Watch, item: Arrival) -> None:
        """In order, as on one connection."""
        watch.last_ns = max(watch.last_ns, self._time.now_ns + int(self._delay_s() * NS_PER_S))
        watch.on_its_way.append(item)

        def hand_over() -> None:
            each = watch.on_its_way.popleft()
            if callable(each):
                each()
                return
            if each is not None:
                self._programs.timeline.events(self._program.name, watch.path, each)
            else:
                self._programs.timeline.add(f"{self._program.name}: the watch of {watch.path} ends")
            watch.arrived.put_nowait(each)

        self._time.at(watch.last_ns, lambda _: self._loop.call_soon(hand_over))

    def close(self, watch: _Watch) -> None:
        """Idempotent."""
        watch.closed = True
        if self._watches.pop(watch, False) is None:
            self._after_a_delay(self._server, lambda: watch.pump is not None and watch.pump.cancel())


Arrival = list[WatchEvent] | Callable[[], None] | None
"""Events, the head of the answer, or the end."""


class _Watch:
    """Asynchronous iterator of its lines."""

    def __init__(self, process: _Process, path: str) -> None:
        self.path = path
        self.pump: asyncio.Task[None] | None = None
        self.closed = False
        self.last_ns = 0
        self.on_its_way: deque[Arrival] = deque()
        self.arrived: asyncio.Queue[list[WatchEvent] | None] = asyncio.Queue()
        self._process = process
        self._lines: deque[bytes] = deque()

    def deliver(self, item: list[WatchEvent] | None) -> None:
        if not self.closed:
            self._process.arrives(self, item)

    def __aiter__(self) -> _Watch:
        return self

    async def __anext__(self) -> bytes:
        while not self._lines:
            if self.closed or (batch := await self.arrived.get()) is None:
                await self.aclose()
                raise StopAsyncIteration
            self._lines += (b'{"type":"%s","object":%s}\n' % (each.type.encode(), each.object) for each in batch)
        return self._lines.popleft()

    async def aclose(self) -> None:
        self._process.close(self)


class Remote:
    """A process's connection to the API server, as an administrator, affected by faults. `ApiTransport`, and all of
    HTTP."""

    def __init__(self, process: _Process, token: str) -> None:
        self._process, self.token = process, token

    @property
    def name(self) -> str:
        """The program's."""
        return self._process.name

    def fail(self, text: str) -> None:
        """Ends the cluster's run by a SimFailure."""
        self._process.fail(text)

    @property
    def around(self) -> Surroundings:
        return self._process.around

    def wall_s(self) -> float:
        """The cluster's wall clock."""
        return self._process.wall_s()

    def replace(self, attribute: Replaced) -> None:
        """For as long as a cluster with such programs runs."""
        self._process.replace(attribute)

    async def exchange(self, asked: Head, body: bytes) -> Answered:
        found, watch = await self._process.exchange(asked, body)
        return found._replace(lines=watch)

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        asked = self._head(method, path, params, body or b"", content_type)
        found, _ = await self._process.exchange(asked, body or b"")
        return ApiResponse(found.status, found.body, dict(found.headers))

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        asked = self._head("GET", path, {**(params or {}), "watch": "true"}, b"")
        found, watch = await self._process.exchange(asked, b"")
        if watch is None:
            yield [refused_watch(found.status, found.body)]
            return
        try:
            while (batch := await watch.arrived.get()) is not None:
                yield batch
        finally:
            await watch.aclose()

    def _head(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes, content_type: str = JSON
    ) -> Head:
        headers = {"user-agent": USER_AGENT, "accept": JSON, "content-type": content_type, **bearer(self.token)}
        return head_of(method, f"{path}?{urlencode(params)}" if params else path, headers.items(), body)

    async def close(self) -> None:
        """Watches end when their readers leave them."""


def _shown(query: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in query.items() if name != "watch"}
