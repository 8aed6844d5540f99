"""The answers of API servers to users as the checkers' records, as if they came from the store itself.

An API operation on an object is a transaction on its key: a create is guarded by its absence, an update by its version.
So the checkers of the store's histories also check the API's: nothing acknowledged lost, no read older than what was
seen before, no watch event missed or repeated. Writes by others (API servers have their own) are taken from a watch of
the whole store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from minikube_py.apiserver.preparing import encode
from minikube_py.errors import RequestError
from minikube_py.mvcc.types import (
    Compare,
    DeleteRange,
    DeleteResult,
    Event,
    KeyValue,
    LeaseGrant,
    Op,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
)
from minikube_py.sim.history import Delivery, History, Operation, Watch, WatchPart

PREFIX = b"/registry/configmaps/default/"
PREFIX_END = PREFIX[:-1] + b"0"
DONE = (200, 201)
REFUSED = (404, 409, 410, 422)
"""Nothing was changed."""
OTHERS = -1
"""All other clients."""
STORE_WATCHER = 1


@dataclass(slots=True)
class Asked:
    """One request to an API server. `version`: of the previous object, if the request names it."""

    user: int
    method: str
    name: str
    call_us: int
    value: str = ""
    version: int = 0
    return_us: int | None = None
    status: int = 0
    """0: no answer arrived."""
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        return self.method in ("POST", "PUT", "DELETE")


@dataclass(slots=True)
class Told:
    """One event of a watch; `kind` as in the API."""

    at_us: int
    kind: str
    obj: dict[str, Any]


@dataclass(slots=True)
class ApiWatch:
    """A watch through one API server, resumed where its stream ended. `parts`: when each stream was opened, the version
    it starts after, its events."""

    user: int
    live: bool = True
    parts: list[tuple[int, int, list[Told]]] = field(default_factory=list)

    @property
    def version(self) -> int:
        """It has seen everything up to this version."""
        _, after, events = self.parts[-1]
        return version_of(events[-1].obj) if events else after


class ApiRecord:
    """All answers to users, and the events of a watch of the whole store from its first revision on."""

    def __init__(
        self, store: Sequence[Delivery], store_from_us: int, asked: Sequence[Asked], watches: Sequence[ApiWatch]
    ) -> None:
        self._store, self._store_from_us = store, store_from_us
        self._asked, self._watches = asked, watches

    def history(self) -> History:
        truth = Truth(self._store)
        operations = [operation for asked in self._asked if (operation := truth.operation(asked)) is not None]
        operations += truth.others()
        operations.sort(key=lambda each: (each.return_us is None, each.return_us or 0))
        watches = [truth.watch(watch) for watch in self._watches]
        part = WatchPart(1, self._store_from_us, deliveries=list(self._store))
        watches.append(Watch(STORE_WATCHER, b"\0", b"\0", parts=[part], live=True))
        return History(operations, watches)

    def problems(self) -> list[str]:
        """Problems that the checkers of the store's histories cannot detect."""
        return [*self.stale_reads(), *self.wrong_refusals(), *self.lost()]

    def stale_reads(self) -> list[str]:
        """Reads of one object that are older than what was known before the request: the API does not report the
        revision of such a read."""
        truth = Truth(self._store)
        for asked in self._asked:
            truth.operation(asked)
        return [problem for asked in self._asked if asked.method == "GET" and (problem := truth.stale(asked))]

    def wrong_refusals(self) -> list[str]:
        """A name never used before was taken; or an object that only this user writes had another version than its last
        answer: a request was done twice."""
        doubtful = {asked.name for asked in self._asked if asked.writes and asked.status not in (*DONE, *REFUSED)}
        return [
            f"refused, and nobody else can have done it: {asked}"
            for asked in self._asked
            if asked.status in REFUSED
            and (
                (asked.method == "POST" and asked.name.startswith("new-"))
                or (asked.method in ("PUT", "DELETE") and asked.name.startswith("own-") and asked.name not in doubtful)
            )
        ]

    def lost(self) -> list[str]:
        """Every permanent object is in the last list of each API server, at the version of its creation."""
        created = self.created_for_good()
        lists = [asked for asked in self._asked if asked.user == OTHERS and asked.status == 200]
        problems = [] if lists else ["nobody has looked"]
        for found in lists:
            there = {item["metadata"]["name"]: version_of(item) for item in found.answer["items"]}
            lost = {name: version for name, version in created.items() if there.get(name) != version}
            problems += [f"created, and not there: {lost}"] if lost else []
        return problems

    def created_for_good(self) -> dict[str, int]:
        """Objects that were created without any later request to change or delete them, and their versions."""
        touched = {asked.name for asked in self._asked if asked.method in ("PUT", "DELETE")}
        return {
            asked.name: version_of(asked.answer)
            for asked in self._asked
            if asked.status == 201 and asked.name not in touched
        }


class Truth:
    """The events of a watch of the whole store: each version of each object, and the unclaimed revisions."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self._seen_us: dict[int, int] = {}
        self._events: dict[int, list[Event]] = {}
        self._by_value: dict[tuple[bytes, str], Event] = {}
        self._deleted: dict[tuple[bytes, int], int] = {}
        self._claimed: set[int] = set()
        self._of_key: dict[bytes, list[int]] = {}
        for at_us, batch in deliveries:
            assert batch.error is None, batch.error
            for event in batch.events:
                self._take(event, at_us)

    def _take(self, event: Event, at_us: int) -> None:
        kv = event.kv
        self._seen_us[kv.mod_revision] = at_us
        self._events.setdefault(kv.mod_revision, []).append(event)
        if not kv.key.startswith(PREFIX):
            return
        self._of_key.setdefault(kv.key, []).append(kv.mod_revision)
        if event.type == "PUT":
            self._by_value[kv.key, orjson.loads(kv.value).get("data", {}).get("value", "")] = event
        elif event.prev_kv is not None:
            self._deleted[kv.key, event.prev_kv.mod_revision] = kv.mod_revision

    def operation(self, asked: Asked) -> Operation | None:
        """None: it is ignored, such as a write without an answer that was never done."""
        if asked.status in REFUSED:
            refused = RequestError(f"HTTP {asked.status}")
            return self._made(asked, RangeRequest(_key(asked.name)), "refused", None)._replace(error=refused)
        well = asked.status in (200, 201)
        if asked.method in ("GET", "LIST"):
            return self._read(asked) if well else None
        key = _key(asked.name)
        if asked.method == "DELETE":
            revision = self._deleted.get((key, asked.version), 0)
            result: Any = DeleteResult(revision, 1)
            request: Txn = Txn((Compare(key, "MOD", "=", asked.version),), (DeleteRange(key),))
        else:
            event = self._by_value.get((key, asked.value))
            revision = version_of(asked.answer) if well else event.kv.mod_revision if event else 0
            value = encode(_copy(asked.answer)) if well else event.kv.value if event else b""
            result = PutResult(revision)
            request = Txn((Compare(key, "MOD", "=", asked.version),), (Put(key, value),))
        if well:
            self._claimed.add(revision)
            assert asked.return_us is not None
            self._seen_us[revision] = min(asked.return_us, self._seen_us.get(revision, asked.return_us))
            return self._made(asked, request, "done", TxnResult(revision, True, (result,)))
        if not revision:
            return None
        self._claimed.add(revision)
        return self._made(asked, request, "unknown", None)

    def _read(self, asked: Asked) -> Operation:
        if asked.method == "GET":
            # The API reports the object's version, not the read's: it was not before the object's.
            kv = self._as_kv(asked.answer)
            request = RangeRequest(kv.key, revision=kv.mod_revision)
            return self._made(asked, request, "done", RangeResult([kv], 1, False, kv.mod_revision))._replace(
                serializable=True
            )
        revision = version_of(asked.answer)
        kvs = [self._as_kv(item) for item in asked.answer["items"]]
        return self._made(asked, RangeRequest(PREFIX, PREFIX_END), "done", RangeResult(kvs, len(kvs), False, revision))

    def _as_kv(self, obj: dict[str, Any]) -> KeyValue:
        """As shown by the API; parts not shown are as in the store."""
        key, revision = _key(obj["metadata"]["name"]), version_of(obj)
        known = next((event.kv for event in self._events.get(revision, ()) if event.kv.key == key), None)
        value = encode(_copy(obj))
        return KeyValue(key, value, -1, revision, -1, 0) if known is None else known._replace(value=value)

    def stale(self, asked: Asked) -> str:
        """Why this read is stale, once all writes were processed; "" if it is not."""
        key = _key(asked.name)
        known = {
            revision: event.type
            for revision in self._of_key.get(key, ())
            if self._seen_us[revision] < asked.call_us
            for event in self._events[revision]
            if event.kv.key == key
        }
        newest = max(known, default=0)
        if asked.status == 200 and version_of(asked.answer) < newest:
            return f"{asked.name} was shown as of {version_of(asked.answer)}, {newest} was known before: {asked}"
        later = any(
            event.type == "DELETE"
            for revision in self._of_key.get(key, ())
            if revision > newest
            for event in self._events[revision]
            if event.kv.key == key
        )
        if asked.status == 404 and known.get(newest) == "PUT" and not later:
            return f"{asked.name} was not found, it was there as of {newest} and nobody has deleted it: {asked}"
        return ""

    def _made(self, asked: Asked, request: Any, status: Any, result: Any) -> Operation:
        return_us = asked.return_us if status != "unknown" else None
        return Operation(asked.user, asked.call_us, return_us, request, status, result)

    def others(self) -> list[Operation]:
        """The writers of revisions that no user has claimed, once all users were processed."""
        found = []
        leases = {event.kv.lease for events in self._events.values() for event in events if event.kv.lease}
        found += [Operation(OTHERS, 0, None, LeaseGrant(lease, 1), "unknown") for lease in sorted(leases)]
        for revision, events in self._events.items():
            if revision in self._claimed:
                continue
            ops: list[Op] = []
            results: list[Any] = []
            for event in events:
                key, value, lease = event.kv.key, event.kv.value, event.kv.lease
                put = event.type == "PUT"
                ops.append(Put(key, value, lease) if put else DeleteRange(key))
                results.append(PutResult(revision) if put else DeleteResult(revision, 1))
            result = TxnResult(revision, True, tuple(results))
            at_us = self._seen_us[revision]
            found.append(Operation(OTHERS, 0, at_us, Txn((), tuple(ops)), "done", result))
        return found

    def watch(self, watch: ApiWatch) -> Watch:
        parts = []
        for opened_us, after, events in watch.parts:
            deliveries = [Delivery(told.at_us, self._batch(told)) for told in events]
            parts.append(WatchPart(after + 1, opened_us, watch.user, deliveries))
        return Watch(watch.user, PREFIX, PREFIX_END, parts=parts, live=watch.live)

    def _batch(self, told: Told) -> WatchBatch:
        revision = version_of(told.obj)
        if told.kind == "BOOKMARK":
            return WatchBatch((), revision)
        key = _key(told.obj["metadata"]["name"])
        known = next((event for event in self._events.get(revision, ()) if event.kv.key == key), None)
        before = known.prev_kv if known else None
        if told.kind == "DELETED":
            # It shows the previous object.
            shown = before and before._replace(value=encode(_copy(told.obj)))
            return WatchBatch((Event("DELETE", KeyValue(key, b"", 0, revision, 0, 0), shown),), revision)
        kv = self._as_kv(told.obj)
        return WatchBatch((Event("PUT", kv, None if told.kind == "ADDED" else before or kv),), revision)


def _key(name: str) -> bytes:
    return PREFIX + name.encode()


def version_of(obj: dict[str, Any]) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


def _copy(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": dict(obj["metadata"])}
