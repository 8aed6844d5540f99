"""Beats: a patch of an object's status that repeats the sender's last one with another time.

After node Leases, most writes of an idle cluster report nodes as healthy: a strategic merge patch that sets
`Kind.beats` of each condition to one time. Where the last such patch changed nothing else of the object, and nobody has
written the object since, the next one changes nothing else either: the time is replaced in the stored form. Admission
supplies its cheap check (`messages.Standing`), as for renewals. Anything else takes the normal path.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import orjson

from minikube_py.api.kind import Kind
from minikube_py.api.patch import STRATEGIC_MERGE_PATCH
from minikube_py.apiserver.auth import ANONYMOUS
from minikube_py.apiserver.messages import Request
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.renewals import BODY_BYTES_MAX, DAY, KEPT_MAX, NOT_PLAIN
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.rules import User
from minikube_py.mvcc.types import KeyValue

_TIME: Final = re.compile(rb"[12]\d{3}-" + DAY + rb"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ")
"""A stored Time. Leap days take the normal path."""
_TIME_BYTES: Final = len("2026-01-01T00:00:00Z")
Shape = tuple[bytes, ...]


class _Said(NamedTuple):
    """The last patch around its times, and its time; the revision of the object that it wrote. `stands()`: whether
    admission still passes."""

    sender: User
    agent: str
    shape: Shape
    time: bytes
    revision: int
    stands: Callable[[], bool]


def may_beat(route: Route, request: Request) -> bool:
    status = route.subresource is not None and route.subresource.name == "status"
    plain = status and not request.query and request.content_type == STRATEGIC_MERGE_PATCH and request.audit is None
    return plain and bool(route.resource.beats)


class Beats:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._said: dict[str, _Said] = {}
        self._body = b""
        self._told: tuple[Shape, bytes] | None = None

    async def write(self, kind: Kind, key: bytes, request: Request) -> tuple[bytes, int] | None:
        """The stored value and revision. None: not a beat, not allowed, or conflicting."""
        said, told = self._said.get(request.path), self._read(kind, request.body)
        if said is None or told is None or (said.sender, said.agent) != (request.user or ANONYMOUS, request.user_agent):
            return None
        shape, time = told
        kv = await self._store.get(key)
        same = kv is not None and kv.mod_revision == said.revision and shape == said.shape and time != said.time
        if kv is None or not same or not said.stands():
            return None
        value = kv.value.replace(_beat(kind, said.time), _beat(kind, time))
        outcome = await self._store.replace(kv, value)
        if not outcome.done:
            return None
        self._said[request.path] = said._replace(time=time, revision=outcome.revision)
        return value, outcome.revision

    def learn(self, kind: Kind, name: str, request: Request, old: KeyValue, value: bytes, revision: int) -> None:
        """From a normal patch of `old` without warnings."""
        self._said.pop(request.path, None)
        told, standing, mark = self._read(kind, request.body), request.standing, _mark(kind)
        place = old.value.find(mark) + len(mark)
        if told is None or standing is None or place < len(mark) or revision <= old.mod_revision:
            return
        shape, time = told
        count, before = len(shape) - 1, old.value[place : place + _TIME_BYTES]
        if (old.value.count(mark), value.count(mark)) != (count, count) or any(each in value for each in NOT_PLAIN):
            return
        if old.value.replace(_beat(kind, before), _beat(kind, time)) != value:
            return
        patch = orjson.loads(request.body)
        if list(patch) != ["status"] or list(patch["status"]) != ["conditions"]:
            return
        if (stands := standing(kind, name, orjson.loads(value))) is None:
            return
        if len(self._said) >= KEPT_MAX:
            self._said.clear()
        user = request.user or ANONYMOUS
        self._said[request.path] = _Said(user, request.user_agent, shape, time, revision, stands)

    def _read(self, kind: Kind, body: bytes) -> tuple[Shape, bytes] | None:
        """The patch around its times, and the time, if it has one in all places. A kubelet of many nodes sends one body
        for all."""
        if body == self._body:
            return self._told
        self._body, self._told = body, None
        mark = _mark(kind)
        place = body.find(mark) + len(mark)
        time = body[place : place + _TIME_BYTES]
        if place >= len(mark) and len(body) <= BODY_BYTES_MAX and _TIME.fullmatch(time) is not None:
            shape = tuple(body.split(_beat(kind, time)))
            if len(shape) == body.count(mark) + 1:
                self._told = shape, time
        return self._told


def _mark(kind: Kind) -> bytes:
    return b'"%b":"' % kind.beats.encode()


def _beat(kind: Kind, time: bytes) -> bytes:
    return b'"%b":"%b"' % (kind.beats.encode(), time)
