"""A cluster in virtual time behind the public door: requests one at a time, from plain code or through the gateway, and
a record of all that came from outside, from which the same history can be made again.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from minikube_py.apiserver.messages import NO_QUERY, Request, Response
from minikube_py.apiserver.rules import User
from minikube_py.client.transport import JSON, ApiResponse, ApiTransport, WatchEvent
from minikube_py.cluster.errors import ClusterError, WaitTimeout
from minikube_py.cluster.gate import DOOR
from minikube_py.cluster.gateway import Gateway
from minikube_py.cluster.operations import Operations
from minikube_py.cluster.player import GatedPlane
from minikube_py.cluster.program import Program, Programs
from minikube_py.cluster.program_plain import begun
from minikube_py.cluster.timeline import Timeline
from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
from minikube_py.cluster.waiting import Waiting
from minikube_py.control_plane import tokens
from minikube_py.control_plane.plane import Plane
from minikube_py.control_plane.users import USERS
from minikube_py.env import Clock
from minikube_py.sim.faults import Fault, S
from minikube_py.sim.loop import NS_PER_S

READS: Final = frozenset(("GET", "HEAD"))
LOOK_AGAIN_S: Final = 0.01
LOOK_AGAIN_MAX_S: Final = 1.0
LOOK_AGAIN_FACTOR: Final = 1.2


class Input(NamedTuple):
    """Something that came from outside at `at_ns`: `kind` "request" (method, path, query, body, content type, user, as
    whom), "advance" (seconds), "fault" (its fields), "all_well"; "code" for what cannot be written down."""

    at_ns: int
    kind: str
    arguments: tuple[Any, ...]

    def to_json(self) -> dict[str, Any]:
        return {"at_ns": self.at_ns, "kind": self.kind, "arguments": [_plain(each) for each in self.arguments]}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Input:
        return Input(row["at_ns"], row["kind"], tuple(map(_decoded, row["arguments"])))


def _user_row(user: User | None) -> Any:
    """The door, whom no fault is for, is known by identity."""
    if user is None or user is DOOR:
        return None if user is None else "door"
    return [user.name, list(user.groups), user.uid, [[key, list(values)] for key, values in user.extra]]


def user_of(row: Any) -> User | None:
    if row is None or row == "door":
        return None if row is None else DOOR
    name, groups, uid, extra = row
    return User(name, tuple(groups), uid, tuple((key, tuple(values)) for key, values in extra))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return dict(value) if isinstance(value, Mapping) else value


def _decoded(value: Any) -> Any:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) and set(value) == {"base64"} else value


class VirtualEngine:
    """`lock` is held while anything runs there: the gateway's requests come from another thread."""

    def __init__(self, seed: object, config: VirtualConfig, port: int) -> None:
        self.virtual = VirtualCluster(seed, config=config)
        self.inputs: list[Input] = []
        self._lock = threading.RLock()
        self._port = port
        self._gateway: Gateway | None = None
        self._programs: Programs | None = None

    def start(self) -> None:
        """Raises: SimFailure; MinikubeError of every kind. Nothing is left then."""
        try:
            self.virtual.start()
            self.virtual.advance(0)
        except BaseException:
            self.virtual.close()
            raise

    def stop(self, quietly: bool) -> None:
        """`quietly`: something that matters more is on its way. Raises: SimFailure for what only shows now."""
        gateway, self._gateway = self._gateway, None
        if self._programs is not None:
            self._programs.stop()
        try:
            if gateway is not None:
                gateway.stop()
        finally:
            with self._lock:
                if quietly:
                    self.virtual.close()
                else:
                    self.virtual.stop()

    # -- how it is reached --------------------------------------------------------------------------------------------

    @property
    def gateway(self) -> Gateway:
        """Opened when it is first asked for."""
        if self._gateway is None:
            gateway = Gateway(self.answer, self.aside, self._port)
            gateway.start()
            self._gateway = gateway
        return self._gateway

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
        return _Stepwise(self, USERS[tokens.ADMIN])

    def own_transport(self) -> ApiTransport:
        return _Stepwise(self, DOOR)

    time_passes = False

    @property
    def plane(self) -> GatedPlane:
        return self.virtual.plane

    def in_process(self, package: Any) -> Any:
        """A transport for synchronous clients of `package` (httpx or a fork of it) that needs no socket."""
        return _transport_for(package, self)

    # -- requests -----------------------------------------------------------------------------------------------------

    def answer(self, request: Request) -> Response:
        """A GET leaves the history as it was, unless a fault waits for it; all else is an input of it.

        Raises: SimFailure."""
        core = self.virtual.plane.core
        if request.method in READS and (request.user is DOOR or self.virtual.plane.player.gate.idle):
            return cast(Response, self.aside(lambda: self._whole(core.handle(request))))
        arguments = (
            request.method, request.path, dict(request.query), request.body, request.content_type,
            _user_row(request.user), _user_row(request.wanted),
        )  # fmt: skip
        act = partial(self.virtual.run, lambda: self._whole(core.handle(request)))
        return cast(Response, self.given("request", arguments, act))

    async def _whole(self, asked: Coroutine[Any, Any, Response]) -> Response:
        """Large lists are made part by part: here, and not later."""
        response = await asked
        if response.pieces is not None:
            response.pieces = iter([b"".join(response.pieces)])
        return response

    def aside(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with self._lock:
            return self.virtual.aside(main)

    def given(self, kind: str, arguments: tuple[Any, ...], act: Callable[[], Any]) -> Any:
        """What `act` returns, which is an input of the history."""
        with self._lock:
            self.inputs.append(Input(self.virtual.now_ns, kind, arguments))
            try:
                found = act()
                # To the end of this moment: what only looks finds nothing half done, which it would change.
                self.virtual.advance(0)
                return found
            finally:
                self._told()

    def advance(self, seconds: float) -> None:
        """Raises: InvalidRequest for time that runs back; SimFailure."""
        self.given("advance", (seconds,), lambda: self.virtual.advance(seconds))

    def run(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """On the cluster's loop; it cannot be written down what that does."""
        return self.given("code", (getattr(main, "__qualname__", repr(main)),), lambda: self.virtual.run(main))

    def within(self, work: Callable[[Plane, Clock], Coroutine[Any, Any, Any]]) -> Any:
        """What `work` returns or raises, on the cluster's loop, with its parts."""
        return self.run(lambda: work(self.virtual.plane, self.virtual.clock))

    def inject(self, fault: Fault) -> None:
        async def act() -> None:
            self.virtual.plane.player.begin(fault)

        self.given("fault", tuple(fault), lambda: self.virtual.run(act))

    def all_well(self) -> None:
        async def act() -> None:
            self._well()

        self.given("all_well", (), lambda: self.virtual.run(act))

    # -- programs under test ------------------------------------------------------------------------------------------

    @property
    def programs(self) -> Programs:
        """What runs beside the control plane, and the record of what it does; from when it is first asked for."""
        if self._programs is None:
            virtual = self.virtual
            timeline = Timeline(lambda: virtual.now_ns)
            self._programs = Programs(virtual, timeline)
            virtual.on_change(timeline.changed)
            virtual.plane.player.on_crash = self._programs.crash_before
        return self._programs

    def start_program(self, main: Callable[[Any], Any], name: str, namespace: str) -> Program:
        """`main(clients)` begins now; on a thread of its own where it is a plain function."""
        given = partial(self.programs.start, begun(main, namespace, name), name)
        return cast(Program, self.given("code", (name,), given))

    def weather(self, faults: Sequence[Fault], well_after_us: int) -> None:
        """They happen at their times from now on; `well_after_us` after the last of them all is well."""
        time, loop, timeline = self.virtual.loop.scheduler, self.virtual.loop, self.programs.timeline

        def begin(fault: Fault) -> None:
            timeline.add(f"fault: {fault}")
            self.virtual.plane.player.begin(fault)

        def well() -> None:
            timeline.add("no more faults")
            self._well()

        for fault in faults:
            time.after(fault.at_us / S, lambda each: loop.call_soon(begin, each), fault)
        if faults:
            last_us = max(fault.at_us + fault.duration_us for fault in faults)
            time.after((last_us + well_after_us) / S, lambda _: loop.call_soon(well))

    def _well(self) -> None:
        self.virtual.plane.player.all_well()
        if self._programs is not None:
            self._programs.all_well()

    def _told(self) -> None:
        if self._gateway is not None:
            self._gateway.happened()

    # -- for the door -------------------------------------------------------------------------------------------------

    def call(self, work: Callable[[Operations], Any], operations: Operations, reads: bool) -> Any:
        return driven(work(operations))

    def wait(
        self, operations: Operations, waiting: Waiting, timeout_s: float, namespace: str | None, selector: str
    ) -> list[dict[str, Any]]:
        """Time passes until it is there. Raises: WaitTimeout."""
        virtual = self.virtual
        # In whole nanoseconds, as time passes: of less, none would pass, for ever.
        deadline_ns, step_s, revision = virtual.now_ns + round(timeout_s * NS_PER_S), LOOK_AGAIN_S, -1
        while True:
            if virtual.history.revision != revision:
                revision = virtual.history.revision
                if driven(operations.look(waiting, namespace, selector)):
                    return waiting.last
            left_s = (deadline_ns - virtual.now_ns) / NS_PER_S
            if left_s <= 0:
                raise WaitTimeout(driven(operations.why_not(waiting, timeout_s, namespace)))
            self.advance(min(step_s, left_s))
            step_s = min(step_s * LOOK_AGAIN_FACTOR, LOOK_AGAIN_MAX_S)


def driven(work: Coroutine[Any, Any, Any]) -> Any:
    """What it returns or raises: it awaits nothing but a `_Stepwise` transport, which never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise ClusterError("in virtual time nothing waits between two advances; use run(main) for what does")


class _Stepwise:
    """`ApiTransport` whose requests are answered before it returns."""

    def __init__(self, engine: VirtualEngine, user: User) -> None:
        self._engine, self._user = engine, user

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        asked = Request(method, path, params or NO_QUERY, body or b"", self._user, JSON, content_type)
        response = self._engine.answer(asked)
        if response.stream is not None:
            response.stream.close()
            raise ClusterError("in virtual time, a watch is for run(main), or for clients over HTTPS")
        content = response.body if response.pieces is None else b"".join(response.pieces)
        return ApiResponse(response.status, content, response.headers)

    def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        raise ClusterError("in virtual time, a watch is for run(main), or for clients over HTTPS")

    async def close(self) -> None:
        """Nothing is open."""


def _transport_for(package: Any, engine: VirtualEngine) -> Any:
    class InProcess(package.BaseTransport):  # type: ignore[misc,name-defined]
        def handle_request(self, request: Any) -> Any:
            url, get = request.url, request.headers.get
            asked = Request(
                request.method, url.raw_path.decode().partition("?")[0], dict(url.params), request.read(),
                USERS[tokens.ADMIN], get("accept") or JSON, get("content-type") or JSON,
            )  # fmt: skip
            response = engine.answer(asked)
            if response.stream is not None:
                response.stream.close()
                raise ClusterError("in virtual time, a watch is for run(main), or for clients over HTTPS")
            content = response.body if response.pieces is None else b"".join(response.pieces)
            headers = {**response.headers, "content-type": response.content_type}
            return package.Response(response.status, headers=headers, content=content)

    return InProcess()
