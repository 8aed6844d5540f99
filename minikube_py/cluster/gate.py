"""An API server with faults on demand for its external clients: the components of the control plane, and the methods of
the public API, are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, Final, cast

from minikube_py.api.errors import GroupResource, StatusError, conflict
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer, error_response
from minikube_py.apiserver.messages import Request, Response
from minikube_py.apiserver.options import parse_bool
from minikube_py.apiserver.routes import ResourcePath, parse_path, verb_of
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_stream import Batch, Stream
from minikube_py.client.transport import ApiResponse, WatchEvent
from minikube_py.cluster.delays import Delays
from minikube_py.control_plane.tokens import CONTROLLERS, KUBELET, SCHEDULER
from minikube_py.control_plane.users import USERS
from minikube_py.sim.inject_api import Rule, too_old, unnoticed

DOOR: Final = replace(ADMIN)
"""An administrator, compared by identity: the public methods, which faults do not affect."""
Met = Callable[[], object]
COMPONENTS: Final = frozenset(USERS[role].name for role in (SCHEDULER, CONTROLLERS, KUBELET))
TEXTS: Final = {
    500: ("InternalError", "Internal error occurred: injected by the test"),
    503: ("ServiceUnavailable", "etcdserver: no leader"),
    504: ("Timeout", "etcdserver: request timed out, possibly due to previous leader failure"),
    429: ("TooManyRequests", "too many requests, please try again later"),
}


class Gate:
    """The active rules, and the open watches."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.watches: dict[GatedStream, None] = {}
        self.expired_at: dict[str, tuple[int, Met]] = {}
        self.stale: dict[str, tuple[int, Met]] = {}
        self.stalled: dict[str, int] = {}
        self.delays = Delays()
        self._released = asyncio.Event()

    @property
    def idle(self) -> bool:
        return not (self.rules or self.expired_at or self.stale)

    def all_well(self) -> None:
        self.rules.clear()
        self.expired_at.clear()
        self.stale.clear()
        self.stalled.clear()
        self.delays.end()
        self.release()

    def release(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    def matching(self, verb: str, path: ResourcePath) -> list[Rule]:
        return [each for each in self.rules if verb in each.verbs and each.subject in ("", path.plural)]

    def stale_by(self, verb: str, path: ResourcePath, request: Request) -> str | None:
        """The key in `stale` of what applies to it. Lists that name the revision they want are never stale."""
        if verb != "list" or request.query.get("continue") or request.query.get("resourceVersionMatch"):
            return None
        return next((each for each in (path.plural, "") if each in self.stale), None)

    def take(self, verb: str, path: ResourcePath) -> tuple[float, Rule | None]:
        """How much longer the request takes, by all rules that match; and the first of them that refuses it, of which
        one use is consumed."""
        matching = self.matching(verb, path)
        rule = next((each for each in matching if each.status), None)
        for each in matching:
            if each.delay_s:
                each.met()
        if rule is not None:
            place = self.rules.index(rule)
            self.rules[place : place + 1] = [rule._replace(times=rule.times - 1)] if rule.times > 1 else []
        return sum(each.delay_s for each in matching), rule

    def of(self, subject: str) -> list[GatedStream]:
        for each in [each for each in self.watches if each.ended]:
            del self.watches[each]
        return [each for each in self.watches if subject in ("", each.plural)]

    async def unstalled(self, plural: str) -> None:
        while self.stalled.get(plural) or self.stalled.get(""):
            await self._released.wait()


class GatedStream:
    """A watch that can be delayed, cut off, or repeat its events. Otherwise as the stream it wraps."""

    def __init__(self, stream: Stream, gate: Gate, plural: str) -> None:
        self.stream, self.plural = stream, plural
        self.coming: Callable[[list[Batch]], None] | None = None
        """Called with events before they pass."""
        self._gate = gate
        self._waits = False
        self._last: list[WatchEvent] = []

    @property
    def starting(self) -> bool:
        return self.stream.starting

    @property
    def ended(self) -> bool:
        return self.stream.ended

    @property
    def awaited(self) -> bool:
        return self.stream.awaited or bool(self._gate.stalled)

    @property
    def on_cut(self) -> Any:
        return self.stream.on_cut

    @on_cut.setter
    def on_cut(self, call: Any) -> None:
        self.stream.on_cut = call

    def close(self) -> None:
        self._gate.watches.pop(self, None)
        self.stream.close()

    @property
    def held(self) -> bool:
        """Whether events wait for the end of a delay."""
        return self._waits or self.stream.queued_events > 0

    def repeat(self) -> bool:
        """Whether there was any event to repeat."""
        repeats = bool(self._last) and not self.ended
        if repeats:
            self.stream.push(Batch(list(self._last)))
        return repeats

    async def next(self, *limits: int) -> list[Batch]:
        await self._gate.unstalled(self.plural)
        batches = await self.stream.next(*limits)
        over = self.ended
        for batch in batches:
            self._last = [each for each in batch.events if each.type not in ("BOOKMARK", "ERROR")] or self._last
        if self.coming is not None:
            self.coming(batches)
        if self._gate.stalled:
            over, self._waits = False, True
            await self._gate.unstalled(self.plural)
            self._waits = False
        # Events taken meanwhile are not delivered if a fault has ended the watch.
        return await self.stream.next(*limits) if self.ended and not over else batches


class GatedServer(ApiServer):
    """As ApiServer, with faults."""

    gate: Gate

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.gate = Gate()

    def goes_wrong(self, request: Request) -> bool:
        """Whether a fault applies to it; for watches, see `_too_old`."""
        gate = self.gate
        if gate.idle or (asked := self._asked(request)) is None or asked[0] == "watch":
            return False
        return gate.stale_by(*asked, request) is not None or bool(gate.matching(*asked))

    def _asked(self, request: Request) -> tuple[str, ResourcePath] | None:
        """Verb and resource; None if no fault can apply."""
        user = request.user
        if user is DOOR or (user is not None and user.name in COMPONENTS):
            return None
        path = parse_path(request.path, self.registry)
        if path is None or not path.plural:
            return None
        return verb_of(path, request.method, "watch" in request.query and parse_bool(request.query, "watch")), path

    def handle(self, request: Request) -> Coroutine[Any, Any, Response]:
        asked = self._asked(request)
        return super().handle(request) if asked is None else self._through_gate(request, *asked)

    async def renew(self, user: User, writes: Sequence[tuple[str, bytes]]) -> Sequence[ApiResponse | None]:
        return await super().renew(user, writes) if user.name in COMPONENTS else [None] * len(writes)

    async def _through_gate(self, request: Request, verb: str, path: ResourcePath) -> Response:
        gate = self.gate
        if not gate.idle:
            refused = await self._wrong(gate, verb, path, request)
            if refused is not None:
                return refused
        response = await super().handle(request)
        if response.stream is not None:
            gated = GatedStream(response.stream, gate, path.plural)
            gate.of("")
            gate.watches[gated] = None
            response.stream = cast(Stream, gated)
        return response

    async def _wrong(self, gate: Gate, verb: str, path: ResourcePath, request: Request) -> Response | None:
        """The fault's answer in place of the real one, if any."""
        if verb == "watch":
            return self._too_old(gate, path, request)
        if (name := gate.stale_by(verb, path, request)) is not None:
            back, met = gate.stale.pop(name)
            self._make_stale(request, back)
            met()
        delay_s, rule = gate.take(verb, path)
        if delay_s:
            await gate.delays.wait(delay_s)
        if rule is None:
            return None
        if rule.done:
            done = await super().handle(request)
            if done.status >= 300:
                return done
        elif request.receive is not None:
            await request.receive()
        rule.met()
        return error_response(_error(rule, path))

    def _too_old(self, gate: Gate, path: ResourcePath, request: Request) -> Response | None:
        since = request.query.get("resourceVersion", "")
        expired_at = [gate.expired_at[each] for each in (path.plural, "") if each in gate.expired_at]
        last, met = max(expired_at, key=itemgetter(0), default=(0, unnoticed))
        if (error := too_old(since, last)) is None:
            return None
        met()
        return error_response(error)

    def _make_stale(self, request: Request, back: int) -> None:
        """As a lagging watch cache answers."""
        revision = max(1, self.cache.revision - back)
        request.query = {**request.query, "resourceVersion": str(revision), "resourceVersionMatch": "Exact"}


def _error(rule: Rule, path: ResourcePath) -> StatusError:
    if rule.status == 409:
        kind = path.resource.kind if path.resource is not None else ""
        return conflict(GroupResource(path.group, path.plural, kind), path.name)
    reason, message = TEXTS.get(rule.status, ("", f"injected by the test: {rule.status}"))
    return StatusError(rule.status, reason, message, None, rule.retry_after_s)
