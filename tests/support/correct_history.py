"""Histories of a correct store: concurrent clients on one state machine.

Effects happen between call and return, or, if the outcome is unknown, at any time after the call or never. Watches are
delayed, and break and resume elsewhere. The seed determines everything."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from minikube_py.errors import RequestError
from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Compact,
    Compare,
    DeclareFields,
    DeleteRange,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Put,
    RangeRequest,
    Txn,
    WatchBatch,
)
from minikube_py.mvcc.watch import Watcher, WatchHub
from minikube_py.sim.history import Delivery, History, KeepAlive, Operation, Request, Watch, WatchPart

TTL_S = 2
NODES_PREFIX = b"/registry/nodes/"
PODS_PREFIX = b"/registry/pods/"
FREE = Where((Comparison("free.cpu", ">=", ("2",)),))


def node(name: str, cpu: int) -> bytes:
    return f'{{"metadata":{{"name":"{name}"}},"status":{{"allocatable":{{"cpu":"{cpu}"}}}}}}'.encode()


def pod(name: str, to: str, milli_cpu: int) -> bytes:
    containers = f'[{{"resources":{{"requests":{{"cpu":"{milli_cpu}m"}}}}}}]'
    return f'{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"{to}","containers":{containers}}}}}'.encode()


class Recorder:
    """Runs clients against one StateMachine until they have done `operations` in total, and records the history."""

    def __init__(self, seed: int, operations: int = 60, clients: int = 4, unknown_share: float = 0.15) -> None:
        self.rng = random.Random(seed)
        self.state = StateMachine()
        self.hub = WatchHub(self.state)
        self.history = History()
        self.now_us = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = 0
        self._left = operations
        self._unknown_share = unknown_share
        self._values = 0
        self._leases: list[int] = []
        self._deadlines: dict[int, int] = {}
        self._watchers: dict[int, Watcher] = {}
        self._clients = clients

    def run(self) -> History:
        self.state.apply(DeclareFields(NODES))
        self.history.operations.append(Operation(9, 0, 1, DeclareFields(NODES), "done", None))
        for number, (key, end, where) in enumerate(
            [(b"\0", b"\0", None), (b"/r/", b"/r0", None), (NODES_PREFIX, b"/registry/nodes0", FREE)]
        ):
            watch = Watch(20 + number, key, end, where, live=True)
            self.history.watches.append(watch)
            self._open(watch, 2)
        for client in range(1, self._clients + 1):
            self._at(self.rng.randint(1, 50), lambda client=client: self._call(client))
        while self._events:
            self.now_us, _, act = heapq.heappop(self._events)
            act()
        self.now_us += 1000
        self._finish()
        return self.history

    def _finish(self) -> None:
        read = RangeRequest(b"\0", b"\0")
        self.history.operations.append(Operation(9, self.now_us, self.now_us + 5, read, "done", self.state.range(read)))
        self.now_us += 10
        while self.hub.catch_up():
            pass
        self.hub.notify()

    def _at(self, delay_us: int, act: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (self.now_us + delay_us, self._numbers, act))

    def _call(self, client: int) -> None:
        if self._left <= 0:
            return
        self._left -= 1
        rng = self.rng
        request = self._request()
        call_us = self.now_us
        answer: dict[str, Any] = {}

        def effect() -> None:
            try:
                answer["result"] = self._apply(request)
            except RequestError as error:
                answer["error"] = error

        unknown = not isinstance(request, RangeRequest | KeepAlive) and rng.random() < self._unknown_share
        if unknown:
            if rng.random() < 0.5:
                self._at(rng.choice((5, 50, 5000)), effect)
            self._at(60, lambda: self._note(Operation(client, call_us, None, request, "unknown")))
        else:
            wait = rng.randint(1, 40)
            self._at(wait, effect)
            self._at(wait + rng.randint(1, 40), lambda: self._returned(client, call_us, request, answer))
        self._at(90 + rng.randint(0, 30), lambda: self._call(client))

    def _note(self, operation: Operation) -> None:
        self.history.operations.append(operation)

    def _returned(self, client: int, call_us: int, request: Request, answer: dict[str, Any]) -> None:
        status = "refused" if "error" in answer else "done"
        self._note(Operation(client, call_us, self.now_us, request, status, answer.get("result"), answer.get("error")))

    def _apply(self, request: Request) -> Any:
        state = self.state
        if isinstance(request, RangeRequest):
            return state.range(request)
        if isinstance(request, KeepAlive):
            alive = request.id in state.lessor.by_id
            if alive:
                self._renew(request.id)
            return LeaseResult(0, request.id, TTL_S if alive else 0)
        result = state.apply(request)
        if isinstance(request, LeaseGrant):
            self._renew(request.id)
        self._at(self.rng.choice((0, 30, 300)), self._feed)
        return result

    def _renew(self, lease: int) -> None:
        self._deadlines[lease] = self.now_us + TTL_S * 1_000_000
        self._at(TTL_S * 1_000_000 + 1, lambda: self._expire(lease))

    def _expire(self, lease: int) -> None:
        if self._deadlines[lease] < self.now_us and lease in self.state.lessor.by_id:
            self.state.apply(LeaseRevoke(lease))
            self._at(self.rng.choice((0, 30, 300)), self._feed)

    def _feed(self) -> None:
        self.hub.notify()
        self.hub.catch_up()
        watch = self.rng.choice(self.history.watches)
        if watch.live and self.rng.random() < 0.1:
            self._break(watch)
        if self.rng.random() < 0.1:
            self.hub.progress()

    def _open(self, watch: Watch, start: int) -> None:
        part = WatchPart(start, self.now_us)
        watch.parts.append(part)

        def sink(batch: WatchBatch) -> None:
            part.deliveries.append(Delivery(self.now_us, batch))
            if batch.error is not None:
                watch.live = False

        self._watchers[watch.client] = self.hub.add(watch.key, watch.range_end, start, sink, watch.where)

    def _break(self, watch: Watch) -> None:
        self._watchers[watch.client].cancel()
        seen = [each.batch.revision for part in watch.parts for each in part.deliveries]
        self._open(watch, max(seen) + 1 if seen else watch.parts[0].start_revision)

    def _request(self) -> Request:
        rng = self.rng
        self._values += 1
        value = b"v%d" % self._values
        key = b"/r/%d" % rng.randint(0, 3)
        other = b"/m/%d" % rng.randint(0, 5)
        kind = rng.random()
        if kind < 0.2:
            return RangeRequest(key)
        if kind < 0.35:
            return Put(key, value)
        if kind < 0.45:
            return Txn((Compare(key, "VALUE", "=", b"v%d" % rng.randint(1, self._values)),), (Put(key, value),), ())
        if kind < 0.5:
            return Txn((Compare(key, "VERSION", "=", 0),), (Put(key, value),), (RangeRequest(key),))
        if kind < 0.55:
            return DeleteRange(key)
        if kind < 0.65:
            mod = self.state.get(other)
            compare = Compare(other, "MOD", "=", mod.mod_revision if mod else 0)
            second = RangeRequest(other) if other == b"/m/1" else DeleteRange(b"/m/1", b"/m/2")
            success = (Put(other, value), second, RangeRequest(b"/m/", b"/m0"))
            return Txn((compare,), success, (RangeRequest(other),))
        if kind < 0.7:
            return RangeRequest(b"/m/", b"/m0", limit=rng.randint(0, 3), revision=rng.choice((0, self.state.revision)))
        return self._more(rng.random(), value)

    def _more(self, kind: float, value: bytes) -> Request:
        rng = self.rng
        name = f"n{rng.randint(0, 3)}"
        if kind < 0.2:
            return Put(NODES_PREFIX + name.encode(), node(name, rng.randint(1, 4)))
        if kind < 0.4:
            return Put(PODS_PREFIX + b"p%d" % rng.randint(0, 6), pod(value.decode(), name, rng.choice((500, 1000))))
        if kind < 0.5:
            return RangeRequest(NODES_PREFIX, b"/registry/nodes0", where=FREE, fields=("free.cpu",))
        if kind < 0.6:
            lease = len(self._leases) + 100
            self._leases.append(lease)
            return LeaseGrant(lease, TTL_S)
        lease = rng.choice(self._leases or [99])
        if kind < 0.75:
            return Put(b"/l/%d" % rng.randint(0, 3), value, lease)
        if kind < 0.85:
            return KeepAlive(lease)
        if kind < 0.9:
            return LeaseRevoke(lease)
        if kind > 0.97:
            return Compact(max(1, self.state.revision - rng.randint(0, 20)))
        return RangeRequest(b"/l/", b"/l0")
