"""Renewals: a PUT that repeats the object's last one with another time.

Nearly all writes of an idle cluster renew node Leases. Body and stored form equal the previous ones except for the
resourceVersion and `Kind.renews`. So the body is compared as bytes with the same sender's last one, and only the time
is replaced in the stored form. Admission supplies a cheap check per renewal (`messages.Standing`), and the store
compares the version, so concurrent writes are detected. A renewal from within this process skips routing and options
too: the path, equal to the last one's, is that of the same object. Anything else takes the normal path.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import orjson

from minikube_py.api.decode import JSON
from minikube_py.api.errors import StatusError
from minikube_py.api.kind import Kind
from minikube_py.apiserver.auth import ANONYMOUS
from minikube_py.apiserver.forms import object_bytes
from minikube_py.apiserver.messages import NO_HEADERS, Request, error_response
from minikube_py.apiserver.object_store import ObjectStore, OutOfSpace, status_of
from minikube_py.apiserver.routes import Route, parse_path
from minikube_py.apiserver.rules import User
from minikube_py.client.transport import ApiResponse
from minikube_py.errors import MinikubeError
from minikube_py.mvcc.types import KeyValue, TxnResult

if TYPE_CHECKING:
    from minikube_py.apiserver.core import ApiServer

KEPT_MAX: Final = 20_000
BODY_BYTES_MAX: Final = 2048
"""With its path."""
DAY: Final = (
    rb"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_TIME: Final = re.compile(rb"[12]\d{3}-" + DAY + rb"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z")
"""A stored MicroTime. Leap days take the normal path."""
_TIME_BYTES: Final = len("2026-01-01T00:00:00.000000Z")
_new = tuple.__new__
NOT_PLAIN: Final = (b'"deletionTimestamp"', b'"managedFields"')


def may_renew(route: Route, request: Request) -> bool:
    return bool(route.resource.renews) and not (route.subresource or request.query) and request.content_type == JSON


class _Said:
    """The last body, in pieces around its version and its time; the `stored` form, split around the same time.
    `stands()`: whether admission still passes."""

    __slots__ = ("_after", "_before", "_head", "_middle", "_sender", "_tail", "kind", "stands", "stored")

    def __init__(
        self, kind: Kind, sender: User, pieces: Sequence[bytes], stored: KeyValue, stands: Callable[[], bool]
    ) -> None:
        self.kind = kind
        self._sender = sender
        self._head, self._middle, self._tail, self._before, self._after = pieces
        self.stored = stored
        self.stands = stands

    def renewed(self, body: bytes, sender: User) -> bytes | None:
        """The stored form for this body. None: it must be decoded."""
        stored = self.stored
        head = b"%b%d%b" % (self._head, stored.mod_revision, self._middle)
        start = len(head)
        end = start + _TIME_BYTES
        same = self._sender is sender or self._sender == sender
        if not same or not body.startswith(head) or body[end:] != self._tail:
            return None
        time = body[start:end]
        if _TIME.fullmatch(time) is None:
            return None
        value = self._before + time + self._after
        return None if value == stored.value else value

    def wrote(self, value: bytes, revision: int) -> None:
        key, _, created, before, version, lease = self.stored
        # A concurrent request may have stored it first.
        if revision > before:
            self.stored = _new(KeyValue, (key, value, created, revision, version + 1, lease))


_Begun = tuple[int, str, _Said, bytes, "asyncio.Future[TxnResult]"]
"""Its place among the writes, its path, what it renews, the stored form; and what the store will answer."""


class Renewals:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._said: dict[str, _Said] = {}

    def of(self, kind: Kind | None, request: Request) -> tuple[_Said, bytes] | None:
        """What the request renews, and the stored form. None: not a renewal, or not allowed. `kind`: the path's."""
        if request.method != "PUT" or request.query or request.content_type != JSON:
            return None
        return self.find(kind, request.path, request.body, request.user or ANONYMOUS)

    def find(self, kind: Kind | None, path: str, body: bytes, sender: User) -> tuple[_Said, bytes] | None:
        """As `of`, for a PUT of JSON."""
        said = self._said.get(path)
        if said is None or said.kind is not kind:
            return None
        value = said.renewed(body, sender)
        return (said, value) if value is not None and said.stands() else None

    async def write(self, said: _Said, value: bytes, path: str) -> tuple[bytes, int] | None:
        """The stored value and revision. None: conflicting; the normal path learns it again."""
        outcome = await self._store.replace(said.stored, value)
        return self.written(said, value, path, outcome.done, outcome.revision)

    def written(self, said: _Said, value: bytes, path: str, done: bool, revision: int) -> tuple[bytes, int] | None:
        """As `write`, once the store has answered."""
        if not done:
            self._said.pop(path, None)
            return None
        said.wrote(value, revision)
        return value, revision

    def learn(self, kind: Kind, request: Request, old: KeyValue, value: bytes, revision: int) -> None:
        """From a normal update of `old` without warnings."""
        body = request.body
        self._said.pop(request.path, None)
        if len(body) + len(request.path) > BODY_BYTES_MAX or revision <= old.mod_revision:
            return
        if any(each in value for each in NOT_PLAIN):
            return
        obj = orjson.loads(body)
        time = (obj.get("spec") or {}).get(kind.renews)
        if obj["metadata"].get("resourceVersion") != str(old.mod_revision) or not isinstance(time, str):
            return
        version = b'"resourceVersion":"%d"' % old.mod_revision
        renewed = b'"%s":"%s"' % (kind.renews.encode(), time.encode())
        if (body.count(version), body.count(renewed), value.count(renewed)) != (1, 1, 1):
            return
        at = body.index(version) + len(version) - 1 - len(b"%d" % old.mod_revision)
        rest = at + len(b"%d" % old.mod_revision)
        start, place = (each.index(renewed) + len(renewed) - 1 - len(time.encode()) for each in (body, value))
        if start < rest or _TIME.fullmatch(time.encode()) is None:
            return
        standing = request.standing
        stands = standing(kind, obj["metadata"]["name"], orjson.loads(value)) if standing is not None else None
        if stands is None:
            return
        if len(self._said) >= KEPT_MAX:
            self._said.clear()
        end = place + _TIME_BYTES
        kept = old._replace(value=value, mod_revision=revision)
        pieces = body[:at], body[rest:start], body[start + _TIME_BYTES :], value[:place], value[end:]
        self._said[request.path] = _Said(kind, request.user or ANONYMOUS, pieces, kept, stands)


class Renewing:
    """Renewals from within the server's process, all of a sender in one step. What a request must pass beside the
    renewal itself follows from the path, which equals the last one's, or is the same for all. `inflight`, `late`: the
    server's, of tasks."""

    def __init__(self, core: ApiServer, inflight: dict[asyncio.Task[object], float], late: set[Any]) -> None:
        self._core = core
        self._inflight = inflight
        self._late = late

    async def all(self, sender: User, writes: Sequence[tuple[str, bytes]]) -> Sequence[ApiResponse | None]:
        """See `ApiServer.renew`."""
        core, task = self._core, asyncio.current_task()
        answers: list[ApiResponse | None] = [None] * len(writes)
        full = len(self._inflight) + len(writes) > core.limits.requests_max
        if task is None or full or core.auditor is not None:
            return answers
        begun: list[_Begun] = []
        started_s = self._inflight[task] = core.clock.monotonic_s()
        try:
            begun.extend(self._begin(sender, writes))
            for place, path, said, value, sent in begun:
                answers[place] = await self._answer(path, said, value, sent)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            # What took too long is sent again, each by itself.
            task.uncancel()
        finally:
            del self._inflight[task]
            self._late.discard(task)
            for one in begun:
                if not one[4].cancel() and not one[4].cancelled():
                    one[4].exception()
        took_s, paths = core.clock.monotonic_s() - started_s, {one[2].kind: one[1] for one in begun}
        alike = Counter((one[2].kind, answer.status) for one in begun if (answer := answers[one[0]]) is not None)
        for (kind, status), count in alike.items():
            core.requests.observe(parse_path(paths[kind], core.registry), "update", status, took_s, count)
        return answers

    def _begin(self, sender: User, writes: Sequence[tuple[str, bytes]]) -> Iterator[_Begun]:
        core = self._core
        find, renew, holds = core.writer.renewals.find, core.store.renew, core.access.holds
        idle: dict[tuple[Kind | None, str], bool] = {}
        for place, (text, body) in enumerate(writes):
            path = parse_path(text, core.registry)
            if path is None or path.error is not None or (kind := path.resource) is None:
                continue
            of = kind, path.namespace
            if of not in idle:
                idle[of] = core.writer.chain.idle(*of)
            if idle[of] and holds(text, sender, "update") and (found := find(kind, text, body, sender)) is not None:
                said, value = found
                try:
                    sent = renew(said.stored, value)
                except MinikubeError:
                    # Refused, without any change: the normal path tells why.
                    continue
                yield place, text, said, value, sent

    async def _answer(
        self, path: str, said: _Said, value: bytes, sent: asyncio.Future[TxnResult]
    ) -> ApiResponse | None:
        try:
            result = await sent
        except MinikubeError as error:
            told = status_of(error)
            if isinstance(told, OutOfSpace) or not isinstance(told, StatusError):
                return None
            response = error_response(told)
            return ApiResponse(response.status, response.body, response.headers)
        written = self._core.writer.renewals.written(said, value, path, result.succeeded, result.revision)
        return None if written is None else _new(ApiResponse, (200, object_bytes(said.kind, *written), NO_HEADERS))
