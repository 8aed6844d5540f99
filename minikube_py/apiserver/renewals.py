"""Renewals: a PUT that says what the last one of the same object said, with another time.

Of all writes of an idle cluster nearly all renew the Leases of nodes. The body is the one before, but for the version
that its sender got and for `Kind.renews`; so is what is made of it: decoded, completed, checked and encoded, it is what
is stored, with another time. What the last body of the same sender and its stored form have in common with this one is
compared as bytes, and not worked out again. Whoever admits writes is asked all the same, and the store compares the
version: what another wrote in between is found there. Whatever does not match goes the long way.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import orjson

from minikube_py.api.decode import JSON
from minikube_py.api.errors import StatusError
from minikube_py.api.kind import Kind
from minikube_py.apiserver.auth import ANONYMOUS
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.preparing import stored
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.rules import User
from minikube_py.mvcc.types import KeyValue

KEPT_MAX: Final = 20_000
BODY_BYTES_MAX: Final = 2048
_DAY: Final = (
    rb"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_TIME: Final = re.compile(rb"[12]\d{3}-" + _DAY + rb"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}Z")
"""A MicroTime as it is stored. A leap day goes the long way."""
_TIME_BYTES: Final = len("2026-01-01T00:00:00.000000Z")
_NOT_PLAIN: Final = (b'"deletionTimestamp"', b'"managedFields"')


def may_renew(route: Route, request: Request) -> bool:
    return bool(route.resource.renews) and not (route.subresource or request.query) and request.content_type == JSON


class _Said(NamedTuple):
    """The last body, in pieces around its version and its time; what was stored for it, around the same time."""

    sender: User
    head: bytes
    middle: bytes
    tail: bytes
    before: bytes
    after: bytes
    stored: KeyValue


class Renewals:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._said: dict[bytes, _Said] = {}

    async def write(self, route: Route, request: Request) -> tuple[bytes, int] | None:
        """What was stored, and its revision. None: it is no renewal, may not be, or meets a change by another."""
        key = route.resource.key(route.namespace, route.name)
        if (found := self._renewed(key, request.body, request.user or ANONYMOUS)) is None:
            return None
        old, value = found
        if request.admit is not None:
            was, new = stored(route.resource, old.value, old.mod_revision), orjson.loads(request.body)
            try:
                request.admit(route.resource, "", route.name, was, new)
            except StatusError:
                return None
            if new["metadata"].get("annotations") != was["metadata"].get("annotations"):
                return None
        outcome = await self._store.replace(old, value)
        if not outcome.done:
            return None
        kept = old._replace(value=value, mod_revision=outcome.revision)
        self._said[key] = self._said[key]._replace(stored=kept)
        return value, outcome.revision

    def _renewed(self, key: bytes, body: bytes, sender: User) -> tuple[KeyValue, bytes] | None:
        """What is stored as far as is known, and what this body makes of it. None: it must be read."""
        said = self._said.get(key)
        if said is None or said.sender != sender or not (body.startswith(said.head) and body.endswith(said.tail)):
            return None
        end = len(body) - len(said.tail)
        start = end - _TIME_BYTES
        version = b"%d" % said.stored.mod_revision
        time = body[start:end]
        if body[len(said.head) : start] != version + said.middle or _TIME.fullmatch(time) is None:
            return None
        value = said.before + time + said.after
        return None if value == said.stored.value else (said.stored, value)

    def learn(self, kind: Kind, request: Request, old: KeyValue, value: bytes, revision: int) -> None:
        """From one that came the long way, without a warning, over `old`."""
        body = request.body
        self._said.pop(old.key, None)
        if len(body) > BODY_BYTES_MAX or revision <= old.mod_revision or any(each in value for each in _NOT_PLAIN):
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
        start, stands = (each.index(renewed) + len(renewed) - 1 - len(time.encode()) for each in (body, value))
        if start < rest or _TIME.fullmatch(time.encode()) is None:
            return
        if len(self._said) >= KEPT_MAX:
            self._said.clear()
        end = stands + _TIME_BYTES
        kept = old._replace(value=value, mod_revision=revision)
        pieces = body[:at], body[rest:start], body[start + _TIME_BYTES :], value[:stands], value[end:]
        self._said[old.key] = _Said(request.user or ANONYMOUS, *pieces, kept)
