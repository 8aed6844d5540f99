"""Renewals: a PUT that repeats the object's last one with another time.

Nearly all writes of an idle cluster renew node Leases. Body and stored form equal the previous ones except for the
resourceVersion and `Kind.renews`. So the body is compared as bytes with the same sender's last one, and only the time
is replaced in the stored form. Admission supplies a cheap check per renewal (`messages.Standing`), and the store
compares the version, so concurrent writes are detected. A renewal from within this process skips routing and options
too: the path, equal to the last one's, is that of the same object. Anything else takes the normal path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import orjson

from minikube_py.api.decode import JSON
from minikube_py.api.kind import Kind
from minikube_py.apiserver.access import Access
from minikube_py.apiserver.admission import Chain
from minikube_py.apiserver.auth import ANONYMOUS
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.routes import ResourcePath, Route
from minikube_py.apiserver.rules import User
from minikube_py.mvcc.types import KeyValue

KEPT_MAX: Final = 20_000
BODY_BYTES_MAX: Final = 2048
"""With its path."""
_DAY: Final = (
    rb"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_TIME: Final = re.compile(rb"[12]\d{3}-" + _DAY + rb"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z")
"""A stored MicroTime. Leap days take the normal path."""
_TIME_BYTES: Final = len("2026-01-01T00:00:00.000000Z")
_NOT_PLAIN: Final = (b'"deletionTimestamp"', b'"managedFields"')


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
            self.stored = KeyValue(key, value, created, revision, version + 1, lease)


class Renewals:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._said: dict[str, _Said] = {}

    def of(self, kind: Kind | None, request: Request) -> tuple[_Said, bytes] | None:
        """What the request renews, and the stored form. None: not a renewal, or not allowed. `kind`: the path's."""
        said = self._said.get(request.path)
        if said is None or said.kind is not kind or request.method != "PUT":
            return None
        if request.query or request.content_type != JSON:
            return None
        value = said.renewed(request.body, request.user or ANONYMOUS)
        return (said, value) if value is not None and said.stands() else None

    def expected(
        self, request: Request, path: ResourcePath | None, access: Access, chain: Chain
    ) -> Coroutine[Any, Any, tuple[bytes, int] | None] | None:
        """`write` for a renewal from within this process. None: whatever else a request must pass has to be looked
        at."""
        if request.path not in self._said or path is None or path.error is not None:
            return None
        if request.receive is not None or request.accept != JSON or request.pretty is not None:
            return None
        kind = path.resource
        if kind is None or not access.holds(request, "update") or not chain.idle(kind, path.namespace):
            return None
        renewal = self.of(kind, request)
        return self.write(*renewal, request.path) if renewal is not None else None

    async def write(self, said: _Said, value: bytes, path: str) -> tuple[bytes, int] | None:
        """The stored value and revision. None: conflicting; the normal path learns it again."""
        outcome = await self._store.replace(said.stored, value)
        if not outcome.done:
            self._said.pop(path, None)
            return None
        said.wrote(value, outcome.revision)
        return value, outcome.revision

    def learn(self, kind: Kind, request: Request, old: KeyValue, value: bytes, revision: int) -> None:
        """From a normal update of `old` without warnings."""
        body = request.body
        self._said.pop(request.path, None)
        if len(body) + len(request.path) > BODY_BYTES_MAX or revision <= old.mod_revision:
            return
        if any(each in value for each in _NOT_PLAIN):
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
        stands = standing(obj["metadata"]["name"], orjson.loads(value)) if standing is not None else None
        if stands is None:
            return
        if len(self._said) >= KEPT_MAX:
            self._said.clear()
        end = place + _TIME_BYTES
        kept = old._replace(value=value, mod_revision=revision)
        pieces = body[:at], body[rest:start], body[start + _TIME_BYTES :], value[:place], value[end:]
        self._said[request.path] = _Said(kind, request.user or ANONYMOUS, pieces, kept, stands)
