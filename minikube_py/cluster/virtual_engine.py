"""A cluster in virtual time behind the public API: requests one at a time, from plain code or through the gateway, and
a log of all external inputs, from which the history can be replayed."""

from __future__ import annotations

import atexit
import math
import sys
import threading
import warnings
import weakref
from asyncio.events import _get_running_loop
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager, nullcontext, suppress
from functools import partial
from inspect import iscoroutine
from pathlib import Path
from typing import Any, Final, cast

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.apiserver import asking
from minikube_py.apiserver.auth import Spoken
from minikube_py.apiserver.core import ApiServer, error_response
from minikube_py.apiserver.http1 import Head
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.options import parse_bool
from minikube_py.apiserver.routes import parse_path, verb_of
from minikube_py.client.transport import ApiTransport
from minikube_py.cluster.errors import STOPPED, ClusterError, WaitTimeout
from minikube_py.cluster.gate import DOOR, GatedServer
from minikube_py.cluster.gateway import Gateway
from minikube_py.cluster.in_process import SERVER, Answered, answered_of, bearer, plain_transport
from minikube_py.cluster.inputs import Input, input_of
from minikube_py.cluster.loop_thread import LoopThread
from minikube_py.cluster.operations import Operations
from minikube_py.cluster.owner import Owner
from minikube_py.cluster.player import GatedPlane
from minikube_py.cluster.program import Program, Programs, Remote
from minikube_py.cluster.program_clients import ProgramClients
from minikube_py.cluster.program_plain import begun, on_its_thread
from minikube_py.cluster.start_errors import parameters_named
from minikube_py.cluster.surroundings import Surroundings
from minikube_py.cluster.timeline import Timeline
from minikube_py.cluster.virtual import LOOK_S, VirtualCluster, VirtualConfig
from minikube_py.cluster.virtual_access import Access, Near
from minikube_py.cluster.virtual_watch import VirtualWatch, waits
from minikube_py.cluster.waiting import Waiting
from minikube_py.control_plane import tokens
from minikube_py.control_plane.plane import Plane
from minikube_py.control_plane.users import USERS
from minikube_py.env import Clock, Rng
from minikube_py.sim.faults import Fault
from minikube_py.sim.inspection import INSPECTION, TooLong
from minikube_py.sim.loop import NS_PER_S
from minikube_py.sim.process_state import simulated

READS: Final = frozenset(("GET", "HEAD"))
REVIEWS: Final = frozenset(("authentication.k8s.io", "authorization.k8s.io"))
TALKS: Final = frozenset(("exec", "attach", "portforward"))
DRY: Final = ["All"]
WITHIN: Final = (
    "a cluster in virtual time cannot be used or stopped from within a simulation, which waits meanwhile: by a "
    "program, a webhook's function or run(main). A program has its clients, and run(main) the cluster's transport() "
    "and asynchronous clients"
)
NEVER_STOPPED: Final = "a cluster in virtual time was never stopped, and its programs ran to the end of the process"
NO_TALK: Final = "a container cannot be used interactively in virtual time: no time would pass meanwhile"
ARRIVED_S: Final = 1.0
"""Longer than a request is on its way, and the store takes to write it."""
LOOK_AGAIN_S: Final = 0.01
LOOK_AGAIN_MAX_S: Final = 1.0
LOOK_AGAIN_FACTOR: Final = 1.2


class VirtualEngine:
    """`lock` is held while anything runs there: the gateway's requests come from another thread."""

    def __init__(self, seed: object, config: VirtualConfig, port: int) -> None:
        self.virtual = VirtualCluster(seed, config=config)
        self.inputs: list[Input] = []
        self._lock = threading.RLock()
        self.ending = False
        """It has been told to stop."""
        self._owner = Owner()
        self._port = port
        # For the timeouts of external watches, which are not part of the history.
        self._rng = Rng(f"watches {seed}")
        self._gateway: Gateway | None = None
        self._thread: LoopThread[Gateway] | None = None
        self._programs: Programs | None = None
        self._around: Surroundings | None = None

    def start(self) -> None:
        """Raises: SimFailure; MinikubeError of every kind. Nothing is left then."""
        self.require_outside()
        while _left:
            _left.pop()._drop()
        try:
            self.virtual.start()
            self.virtual.advance(0)
        except BaseException:
            self.virtual.close()
            raise
        _standing[self] = None

    def stop(self, quietly: bool) -> None:
        """`quietly`: a more important exception is propagating. Raises: SimFailure for errors that only show now."""
        self._over(partial(self._end, quietly), self._thread)

    def __del__(self) -> None:
        """Nobody holds the cluster. On the thread of another one's program, which must not wait, it ends later."""
        if on_its_thread():
            _left.append(self)
        else:
            self._drop()

    def _drop(self) -> None:
        """The gateway's thread ends by itself. Idempotent."""
        if self.ending or sys.is_finalizing():
            return
        if self._owner.is_here:
            self._over(self.virtual.drop, None)
        else:
            # In a forked child the garbage collector would run what its copies of the tasks do at their end.
            self.ending = True
            self.virtual.drop()

    def left_at_exit(self) -> None:
        """The process ends. A thread of its own that still uses it ends with the process."""
        if not self._owner.is_here:
            self._drop()
            return
        if self.ending or not self._lock.acquire(blocking=False):
            return
        try:
            if told := self.programs_told():
                warnings.warn(f"{NEVER_STOPPED}: {'; '.join(told)}", ResourceWarning, stacklevel=2)
            self._drop()
        finally:
            self._lock.release()

    def _over(self, end: Callable[[], None], thread: LoopThread[Gateway] | None) -> None:
        self._gateway, self.ending = None, True
        _standing.pop(self, None)
        with ExitStack() as ending:
            if self._around is not None:
                ending.callback(self._around.release)
            if self._programs is not None:
                ending.callback(self._programs.release)
            ending.callback(end)
            if thread is not None:
                ending.callback(thread.stop)
            if self._programs is not None:
                ending.callback(self._stop_programs, self._programs)

    def _stop_programs(self, programs: Programs) -> None:
        """Once no other thread lets time pass."""
        with self._lock:
            programs.stop()

    def _end(self, quietly: bool) -> None:
        with self._lock, self.virtual.held():
            (self.virtual.close if quietly else self.virtual.stop)()

    # -- access -------------------------------------------------------------------------------------------------------

    @property
    def gateway(self) -> Gateway:
        """Opened on first use."""
        self.require_outside()
        if self._gateway is None:
            # Its thread must not hold what ends it.
            me, port = weakref.proxy(self), self._port
            self._thread = LoopThread(lambda: Gateway(lambda one: me.answer(one), lambda one: me.asker(one), port))
            try:
                with parameters_named():
                    self._gateway = self._thread.start()
            except ClusterError:
                # It has ended, and would raise the same at the cluster's stop.
                self._thread = None
                raise
        return self._gateway

    def asker(self, header: str) -> Spoken:
        """The user of that Authorization header. Raises: StatusError 401; ClusterError."""
        authenticator = self.virtual.plane.core.access.authenticator
        return cast(Spoken, self.look(lambda: authenticator.asker(header)))

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def token(self) -> str:
        return self.gateway.token

    @property
    def authority_pem(self) -> str:
        return self.gateway.authority_pem

    def kubeconfig(self, namespace: str) -> Path:
        return self.gateway.kubeconfig(namespace)

    def transport(self) -> ApiTransport:
        return Access(self, USERS[tokens.ADMIN])

    def own_transport(self) -> ApiTransport:
        return Access(self, DOOR)

    time_passes = False

    @property
    def clock(self) -> Clock:
        return self.virtual.clock

    @property
    def plane(self) -> GatedPlane:
        return self.virtual.plane

    def exchange(self, asked: Head, body: bytes) -> Answered:
        """A complete request of a client within the process. A watch gets existing events, and then ends: no time
        passes meanwhile."""
        virtual, warning = self.virtual, ""
        core = virtual.plane.core
        try:
            authenticator = core.access.authenticator
            request, warning = self.look(lambda: asking.request_of(asked, authenticator, core.clock))
        except StatusError as error:
            response = asking.refusal_of(error, asked)
        else:
            request.body = body
            lines: list[bytes] = []
            if watches(core, request):
                response = self.look(lambda: self._watched(request, lines), math.inf)
            else:
                response = self.answer(request)
            response = response.warning(warning) if warning else response
            if response.stream is not None:
                found = answered_of(response, asked, self._rng, virtual.clock.wall_s())
                return found._replace(body=b"".join(lines))
        return answered_of(response, asked, self._rng, virtual.clock.wall_s())

    async def _watched(self, request: Request, lines: list[bytes]) -> Response:
        response = await self.virtual.plane.core.handle(request)
        if response.stream is not None:
            while batches := await response.stream.next():
                lines += [each.lines() for each in batches]
            response.stream.close()
        return response

    def in_process(self, package: Any) -> dict[str, Any]:
        """Options for synchronous clients of `package` (httpx or a fork of it) without a socket."""
        transport, headers = plain_transport(package, self.exchange), bearer(self.virtual.token)
        return {"transport": transport, "base_url": SERVER, "headers": headers, "trust_env": False}

    @property
    def on_its_loop(self) -> bool:
        """Whether a coroutine of `run(main)` asks."""
        return _get_running_loop() is self.virtual.loop and not INSPECTION.get()

    def clients_within(self, namespace: str) -> ProgramClients | None:
        return ProgramClients(cast(Remote, Near(self)), namespace) if self.on_its_loop else None

    # -- requests -----------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """A read does not change the history, unless a fault applies to it; everything else is an input of it.

        Raises: ClusterError, SimFailure."""
        core = cast(GatedServer, self.virtual.plane.core)
        # A request's own `timeout` is of a time that does not pass while it is answered.
        request.deadline_s = None
        if core.goes_wrong(request) or not only_looks(core, request):
            return self.put(request)
        if watches(core, request):
            with self._undisturbed():
                return VirtualWatch(self.virtual, request, self._rng, self._undisturbed).begin()
        limit_s = core.limits.request_timeout_s
        try:
            response: Response = self.look(lambda: self._whole(core.handle(request)), limit_s)
        except TooLong:
            return error_response(waits(limit_s))
        return self._without_time(response)

    def put(self, request: Request) -> Response:
        """Answers it as an input of the history."""
        core = self.virtual.plane.core
        act = partial(self.virtual.run, lambda: self._whole(core.handle(request)))
        return self._without_time(self.given("request", input_of(request), act))

    def _without_time(self, response: Response) -> Response:
        """Streams without an end are not possible: a text is returned as far as it exists."""
        if response.upgrade is not None:
            return error_response(StatusError(501, "NotImplemented", NO_TALK, {}))
        if (text := response.text) is not None:
            parts: list[bytes] = []

            async def read() -> None:
                async with aclosing(text):
                    # Its outcome counts, and it may never end.
                    async for part in text:
                        parts.append(part)  # noqa: PERF401

            with suppress(TooLong):
                self.look(read, 0)
            response.body, response.text = b"".join(parts), None
        return response

    async def _whole(self, asked: Coroutine[Any, Any, Response]) -> Response:
        """Streamed answers are produced here, not later."""
        response = await asked
        if response.pieces is not None:
            response.pieces = iter([b"".join(response.pieces)])
            response.sent()
        return response

    def look(self, main: Callable[[], Coroutine[Any, Any, Any]], limit_s: float = LOOK_S) -> Any:
        """Raises: TooLong; ClusterError, SimFailure."""
        try:
            with self._undisturbed():
                return self.virtual.look(main, limit_s)
        finally:
            while self.virtual.uses:
                self.write_use(*self.virtual.uses.popitem()[0])

    def write_use(self, namespace: str, secret: str) -> None:
        """A Secret's token was used for the first time on a day, which the Secret then says."""
        accounts = self.virtual.plane.core.accounts
        act = partial(self.virtual.run, lambda: accounts.write_use(namespace, secret))
        self.given("token", (namespace, secret), act)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """One at a time; exceptions of signal handlers are raised at the end."""
        self.require_outside()
        with self._lock, self.virtual.held():
            self.require_whole()
            yield

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """Programs may run."""
        with self._undisturbed(), nullcontext() if self._around is None else self._around.in_force():
            yield

    def require_outside(self) -> None:
        """Raises: ClusterError within a simulation, or on a program's thread: it waits for what runs there."""
        if simulated(_get_running_loop()) or on_its_thread():
            raise ClusterError(WITHIN)

    def require_whole(self) -> None:
        """Raises: ClusterError, also in a forked child."""
        self._owner.require()
        if self.ending:
            raise ClusterError(STOPPED)
        if (broken := self.virtual.broken) is not None:
            raise ClusterError(
                f"{broken!r} came in the middle of a step of the simulation, which cannot continue: stop the cluster"
            )

    def given(self, kind: str, arguments: tuple[Any, ...], act: Callable[[], Any]) -> Any:
        """The result of `act`, which is an input of the history."""
        with self._going_on():
            self.inputs.append(Input(self.virtual.now_ns, kind, arguments, self.virtual.digest))
            try:
                found = act()
                # To the end of this moment, so that reads find nothing half done.
                self.virtual.advance(0)
                return found
            finally:
                self._told()

    def advance(self, seconds: float) -> None:
        """Raises: InvalidRequest for negative time; SimFailure; what a signal's handler raises, and then the history
        went up to `now_s`."""
        virtual = self.virtual
        duration_ns = virtual.duration_ns(seconds)
        with self._going_on():
            begun_ns, place = virtual.now_ns, len(self.inputs)
            self.inputs.append(Input(begun_ns, "advance", (seconds,), virtual.digest))
            try:
                virtual.advance_until(duration_ns, lambda: self.ending)
                self.require_whole()
            except BaseException:
                came_ns = virtual.now_ns - begun_ns
                self.inputs[place] = self.inputs[place]._replace(arguments=(came_ns / NS_PER_S, came_ns))
                raise
            finally:
                self._told()

    def run(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """On the cluster's loop; its actions cannot be recorded."""
        self.require_outside()
        name, made = getattr(main, "__qualname__", type(main).__name__), main() if callable(main) else main
        if not iscoroutine(made):
            raise ClusterError(f"run() needs a coroutine function, not one that returns {type(made).__name__}")
        self.virtual.loop.around = self.around
        return self.given("code", (name,), lambda: self.virtual.run(lambda: made, stops=True))

    def within(self, work: Callable[[Plane, Clock], Coroutine[Any, Any, Any]], *named: Any) -> Any:
        """Returns or raises what `work` does, on the cluster's loop, with its parts. `named`: the input's kind and
        arguments."""
        virtual = self.virtual
        act = partial(virtual.run, lambda: work(virtual.plane, virtual.clock), stops=True)
        return self.given(named[0], named[1:], act)

    def inject(self, fault: Fault) -> None:
        self._given("fault", tuple(fault), lambda: self.plane.player.begin(fault))

    def do(self, name: str, call: Callable[[], None]) -> None:
        """On the cluster's loop; it cannot be recorded."""
        self._given("code", (name,), call)

    def all_well(self) -> None:
        self._given("all_well", (), self._well)

    def _given(self, kind: str, arguments: tuple[Any, ...], call: Callable[[], None]) -> None:
        """`call` on the cluster's loop, as an input."""

        async def act() -> None:
            call()

        self.given(kind, arguments, lambda: self.virtual.run(act))

    # -- programs under test ------------------------------------------------------------------------------------------

    @property
    def around(self) -> Surroundings:
        """Created when the first code of the user's is to run there."""
        if self._around is None:
            self._around = Surroundings(self.virtual.seed)
        return self._around

    @property
    def programs(self) -> Programs:
        """The programs beside the control plane, and the record of their actions; created on first use."""
        if self._programs is None:
            virtual = self.virtual
            timeline = Timeline(lambda: virtual.now_ns)
            self._programs = Programs(virtual, timeline, self.around)
            virtual.on_change(timeline.changed)
            virtual.plane.player.on_crash = self._programs.crash_before
        return self._programs

    def programs_told(self, but_those_that_work: bool = False) -> list[str]:
        """How each goes; without starting any record."""
        return [] if self._programs is None else self._programs.lines(but_those_that_work)

    def start_program(self, main: Callable[[Any], Any], name: str, namespace: str) -> Program:
        """Starts `main(clients)`; on a separate thread if it is a plain function."""
        if not callable(main):
            raise ClusterError(f"a program is a function, not {main!r}")
        given = partial(self.programs.start, begun(main, namespace), name)
        return cast(Program, self.given("code", (name,), given))

    def failure(self) -> BaseException | None:
        """Why it cannot continue."""
        virtual = self.virtual
        return virtual.broken or virtual.loop.scheduler._failure or virtual.plane.failure()

    def programs_started(self) -> Sequence[Program]:
        return () if self._programs is None else tuple(self._programs.running)

    def end_programs(self, but: Sequence[Program]) -> None:
        """Returns when the requests that were on their way have arrived, too."""
        ending = [each for each in self.programs_started() if each not in but]
        if ending:
            self._given("code", ("programs end",), lambda: self.programs.end(ending))
            self.all_well()
            self.advance(ARRIVED_S)

    def _well(self) -> None:
        self.virtual.plane.player.all_well()
        if self._programs is not None:
            self._programs.all_well()

    def _told(self) -> None:
        if self._gateway is not None:
            self._gateway.happened()

    # -- for the public API ------------------------------------------------------------------------------------------

    def call(self, work: Callable[[Operations], Any], operations: Operations, reads: bool) -> Any:
        self.require_outside()
        return driven(work(operations))

    def wait(
        self, operations: Operations, waiting: Waiting, timeout_s: float, namespace: str | None, selector: str
    ) -> list[dict[str, Any]]:
        """Time passes until the condition holds. Raises: WaitTimeout."""
        self.require_outside()
        virtual = self.virtual
        # In whole nanoseconds, as virtual time: with a fraction none would pass, forever.
        deadline_ns, step_s, revision = virtual.now_ns + round(timeout_s * NS_PER_S), LOOK_AGAIN_S, -1
        while True:
            # A function of the caller may depend on more than the store.
            if virtual.history.revision != revision or waiting.until is not None:
                revision = virtual.history.revision
                if driven(operations.look(waiting, namespace, selector)):
                    return waiting.last
            left_s = (deadline_ns - virtual.now_ns) / NS_PER_S
            if left_s <= 0:
                text = driven(operations.why_not(waiting, timeout_s, namespace))
                raise WaitTimeout("\n  ".join((text, *self.programs_told(but_those_that_work=True))))
            self.advance(min(step_s, left_s))
            step_s = min(step_s * LOOK_AGAIN_FACTOR, LOOK_AGAIN_MAX_S)


_standing: Final[weakref.WeakKeyDictionary[VirtualEngine, None]] = weakref.WeakKeyDictionary()
_left: Final[list[VirtualEngine]] = []
"""Dropped where they could not end."""


@atexit.register
def _exit() -> None:
    for each in (*_standing, *_left):
        each.left_at_exit()


def only_looks(core: ApiServer, request: Request) -> bool:
    """Whether it is not a write: a read, a review, or a dry run."""
    if request.method in READS:
        return True
    if set(request.query.get("dryRun", "").split(",")) == {"All"}:
        return True
    path = parse_path(request.path, core.registry)
    if path is None or request.method not in ("POST", "DELETE"):
        return False
    if path.subresource in TALKS:
        # Refused, after the permission check.
        return True
    if request.method == "POST":
        return path.group in REVIEWS and path.resource is not None and not path.resource.stored
    return b"dryRun" in request.body and _dry(request.body)


def _dry(options: bytes) -> bool:
    try:
        return bool(orjson.loads(options).get("dryRun") == DRY)
    except (orjson.JSONDecodeError, AttributeError):
        return False


def watches(core: ApiServer, request: Request) -> bool:
    path = parse_path(request.path, core.registry)
    asks = "watch" in request.query and parse_bool(request.query, "watch")
    return path is not None and bool(path.plural) and verb_of(path, request.method, asks) == "watch"


def driven(work: Coroutine[Any, Any, Any]) -> Any:
    """Returns or raises what it does: it awaits only an `Access`, which never waits, and gives turns to
    others, none of which is running."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as end:
        return end.value
    work.close()
    raise ClusterError("in virtual time nothing waits between two advances; use run(main) for what does")
