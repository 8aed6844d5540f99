"""Events (core/v1): a component's reports to users about an object, sent without ever waiting.

A repeated event (same source, object, type, reason and message) patches the count of the first; more than ten similar
ones within ten minutes are combined; a token bucket limits each object.

Source: client-go/tools/record/events_cache.go."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.client.backoff import Backoff
from minikube_py.client.rest import EVENTS, Object, RestClient, path_of
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.env import Clock, Rng, ended
from minikube_py.errors import OutcomeUnknown, Unavailable

Key = tuple[object, ...]
C = TypeVar("C", bound=Hashable)
V = TypeVar("V")

logger = logging.getLogger(__name__)

NORMAL, WARNING = "Normal", "Warning"

CACHED_EVENTS_MAX = 4096
COMBINE_AFTER = 10
COMBINE_INTERVAL_S = 600.0
_OF_GROUP = 3
"""Parts of the key under which combined events count: all but the message."""
COMBINED_PREFIX = "(combined from similar events): "
SPAM_BURST = 25
SPAM_REFILL_PER_S = 1 / 300
ATTEMPTS_MAX = 12
SENDERS = 4
MESSAGE_CHARS_MAX = 1024


class Involved(NamedTuple):
    """The object an event is about."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "v1"
    resource_version: str = ""
    field_path: str = ""

    @property
    def object(self) -> Involved:
        """The object, at any version: events are counted, combined and limited by it."""
        return self._replace(resource_version="")

    def reference(self) -> Object:
        reference = {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "apiVersion": self.api_version,
            "resourceVersion": self.resource_version,
            "fieldPath": self.field_path,
        }
        return {key: value for key, value in reference.items() if value}


class _Pending(NamedTuple):
    involved: Involved
    type: str
    reason: str
    message: str
    at_s: float


@dataclass(slots=True)
class _Written:
    """A written event, which a repetition patches."""

    name: str
    namespace: str
    count: int


@dataclass(slots=True)
class _Alike:
    """Distinct messages seen under one (object, type, reason)."""

    messages: dict[str, None]
    at_s: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float


def timestamp(wall_s: float) -> str:
    """metav1.Time: RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Correlator:
    """Decides which events are dropped, combined, or repeat one already written. Pure; bounded."""

    def __init__(self, spam_burst: int = SPAM_BURST) -> None:
        self._spam_burst = float(spam_burst)
        self._buckets: OrderedDict[Involved, _Bucket] = OrderedDict()
        self._alike: OrderedDict[Key, _Alike] = OrderedDict()
        self.written: OrderedDict[Key, _Written] = OrderedDict()

    def allowed(self, involved: Involved, at_s: float) -> bool:
        """Takes a token from the object's bucket, if there is one."""
        involved = involved.object
        bucket = self._buckets.get(involved)
        if bucket is None:
            bucket = _remember(self._buckets, involved, _Bucket(self._spam_burst, at_s))
        else:
            self._buckets.move_to_end(involved)
        refill = max(0.0, at_s - bucket.at_s) * SPAM_REFILL_PER_S
        bucket.tokens = min(self._spam_burst, bucket.tokens + refill)
        bucket.at_s = at_s
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True

    def combine(self, pending: _Pending) -> tuple[Key, str]:
        """The key under which the event counts, and its message."""
        group = (pending.involved.object, pending.type, pending.reason)
        alike = self._alike.get(group)
        if alike is None or pending.at_s - alike.at_s > COMBINE_INTERVAL_S:
            alike = _remember(self._alike, group, _Alike({}, pending.at_s))
        else:
            self._alike.move_to_end(group)
        alike.at_s = pending.at_s
        alike.messages[pending.message] = None
        if len(alike.messages) < COMBINE_AFTER:
            return (*group, pending.message), pending.message
        del alike.messages[next(iter(alike.messages))]
        return group, COMBINED_PREFIX + pending.message


def _remember(cache: OrderedDict[C, V], key: C, value: V) -> V:
    """Adds to an LRU cache."""
    cache[key] = value
    if len(cache) > CACHED_EVENTS_MAX:
        cache.popitem(last=False)
    return value


class EventRecorder:
    """`event(...)` never waits: when the queue is full, events are dropped and counted. Call `start()` first."""

    def __init__(
        self,
        client: RestClient,
        clock: Clock,
        rng: Rng,
        component: str,
        host: str = "",
        *,
        queue_max: int = 1000,
        spam_burst: int = SPAM_BURST,
        senders: int = SENDERS,
        salt_ns: int = 0,
    ) -> None:
        """`salt_ns`: distinguishes its names from those that another recorder makes at the same moment."""
        self._client = client
        self._clock = clock
        self._rng = rng
        self._component = component
        self._host = host
        self._queue_max = queue_max
        self._queued = 0
        self._correlator = Correlator(spam_burst)
        # Events of one object keep their order: each object has one sender.
        self._queues: list[deque[_Pending]] = [deque() for _ in range(senders)]
        self._senders: dict[int, asyncio.Task[None]] = {}
        """Those that have events to send."""
        self._started = False
        self._last_name_ns = 0
        self._salt_ns = salt_ns
        self.created = self.patched = self.dropped = self.suppressed = self.failed = 0

    def event(self, involved: Involved, type: str, reason: str, message: str) -> None:
        if self._queued >= self._queue_max:
            self.dropped += 1
            return
        at_s = self._clock.wall_s()
        if not self._correlator.allowed(involved, at_s):
            self.suppressed += 1
            return
        if type == WARNING:
            logger.info("%s %s %s/%s: %s", reason, involved.kind, involved.namespace, involved.name, message)
        sender = zlib.crc32(involved.uid.encode() or involved.name.encode()) % len(self._queues)
        self._queued += 1
        self._queues[sender].append(_Pending(involved, type, reason, message[:MESSAGE_CHARS_MAX], at_s))
        self._hire(sender)

    def start(self) -> None:
        self._started = True
        for sender, queue in enumerate(self._queues):
            if queue:
                self._hire(sender)

    def _hire(self, sender: int) -> None:
        if self._started and sender not in self._senders:
            task = asyncio.get_running_loop().create_task(self._run(sender), name=f"events of {self._component}")
            self._senders[sender] = task

    async def stop(self) -> None:
        """Queued events are dropped."""
        self._started = False
        senders = list(self._senders.values())
        for task in senders:
            task.cancel()
        await ended(*senders)
        self._senders.clear()
        self.dropped += self._queued
        self._queued = 0
        for queue in self._queues:
            queue.clear()

    @property
    def queued(self) -> int:
        return self._queued

    def metrics(self) -> dict[str, float]:
        return {
            "events_created_total": self.created,
            "events_patched_total": self.patched,
            "events_dropped_total": self.dropped,
            "events_suppressed_total": self.suppressed,
            "events_failed_total": self.failed,
        }

    async def _run(self, sender: int) -> None:
        queue = self._queues[sender]
        while queue:
            pending = queue.popleft()
            try:
                await self._send(pending)
            except Exception:
                self.failed += 1
                logger.exception("event %s of %s is lost", pending.reason, pending.involved.name)
            self._queued -= 1
        del self._senders[sender]

    async def _send(self, pending: _Pending) -> None:
        key, message = self._correlator.combine(pending)
        name = self._name(pending.involved.name)
        backoff = Backoff(self._rng, 0.1, 10.0)
        for _ in range(ATTEMPTS_MAX):
            try:
                await self._write(key, name, message, pending)
                return
            except StatusError as error:
                if error.code < 500 and error.code != 429:
                    self.failed += 1
                    # A terminating namespace accepts no events, which is harmless.
                    logger.debug("event %s of %s: %s", pending.reason, pending.involved.name, error)
                    return
            except (Unavailable, OutcomeUnknown):
                # Sending an event again is safe: we choose its name, so the second try finds the first one's.
                pass
            await self._clock.sleep(backoff.next_s())
        self.failed += 1

    def _name(self, involved: str) -> str:
        self._last_name_ns = max(self._last_name_ns + 1, int(self._clock.wall_s() * 1e9) + self._salt_ns)
        return f"{involved}.{self._last_name_ns:x}"

    async def _write(self, key: Key, name: str, message: str, pending: _Pending) -> None:
        written = self._correlator.written
        first = written.get(key)
        if first is not None:
            written.move_to_end(key)
            if await self._repeat(first, message, pending):
                return
        count = first.count + 1 if first is not None else 1
        namespace = pending.involved.namespace or "default"
        body = self._body(name, namespace, message, count, pending)
        if len(key) == _OF_GROUP and body["source"]:
            # As upstream, one that stands for several names its source alone.
            body["reportingComponent"] = body["reportingInstance"] = ""
        try:
            await self._client.raw("POST", path_of(EVENTS, namespace), None, orjson.dumps(body))
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
        self.created += 1
        _remember(written, key, _Written(name, namespace, count))

    async def _repeat(self, first: _Written, message: str, pending: _Pending) -> bool:
        """Increments the count of the event written first; False if it has expired meanwhile."""
        patch = {"count": first.count + 1, "lastTimestamp": timestamp(pending.at_s), "message": message}
        path = path_of(EVENTS, first.namespace, first.name)
        try:
            await self._client.raw("PATCH", path, None, orjson.dumps(patch), STRATEGIC_MERGE_PATCH)
        except StatusError as error:
            if error.code != 404:
                raise
            return False
        first.count += 1
        self.patched += 1
        return True

    def _body(self, name: str, namespace: str, message: str, count: int, pending: _Pending) -> Object:
        now = timestamp(pending.at_s)
        source = {"component": self._component}
        if self._host:
            source["host"] = self._host
        return {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": pending.involved.reference(),
            "reason": pending.reason,
            "message": message,
            "source": source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": count,
            "type": pending.type,
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }
