"""Elections and locks in front of our store beside a real etcd: drawn calls that wait, end and are cancelled, with what
observers get of them."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from etcd_api import Answer, Caller, ours, plain, real_etcd
from patience import PATIENCE_S, eventually

from minikube_py.etcd.messages import pb

pytestmark = pytest.mark.original
HISTORIES = int(os.environ.get("MINIKUBE_PY_ETCD_HISTORIES", "2"))
STEPS = 120
LEASES = (0x71, 0x72, 0x73, 0x74, -5)
UNKNOWN_LEASE = 0x99
VALUES = (b"", b"v", b"w" * 300)
IDS = ("cluster_id", "member_id", "raft_term")


def known(found: dict[str, Any]) -> dict[str, Any]:
    """Without ids, and without those of leases that the server chose."""
    for name in IDS:
        found["header"].pop(name)
    kv = found.get("kv", {})
    if kv.get("lease", 0) not in (0, *LEASES):
        kv["lease"] = "own"
    return found


class Side:
    def __init__(self, target: str) -> None:
        self.caller = Caller(target)

    def call(self, name: str, request: Any) -> Answer:
        code, found = self.caller.call(name, request)
        return (code, known(found)) if code == "ok" else (code, found)

    def begin(self, name: str, request: Any) -> Any:
        return self.caller.method(name, "unary_unary").future(request, timeout=4 * PATIENCE_S)

    def standing(self, name: bytes) -> list[dict[str, Any]]:
        """The keys under the name, oldest first."""
        _, found = self.call("KV/Range", pb.RangeRequest(key=name + b"/", range_end=name + b"0", sort_target=2))
        return sorted(found.get("kvs", []), key=lambda kv: kv["create_revision"])


class Observer:
    def __init__(self, side: Side, name: bytes) -> None:
        self._told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.stream = side.caller.method("Election/Observe", "unary_stream")(pb.LeaderRequest(name=name))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for answer in self.stream:
                self._told.put(known(plain(answer)))

    def next(self) -> Any:
        return self._told.get(timeout=PATIENCE_S)

    def quiet(self) -> bool:
        return self._told.empty()

    def close(self) -> None:
        self.stream.cancel()
        self._reader.join(PATIENCE_S)


def ended(waiting: Any) -> Answer:
    try:
        return "ok", known(plain(waiting.result(PATIENCE_S)))
    except grpc.RpcError as error:
        return error.code().name, error.details()


@pytest.fixture
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder = tmp_path_factory.mktemp("etcd")
    with real_etcd(folder / "theirs") as target, ours(folder / "ours") as server:
        sides = Side(target), Side(f"127.0.0.1:{server.port}")
        yield sides
        for side in sides:
            side.caller.close()


class History:
    """Each step is made on both; what can end after it is awaited, so that the next finds both at rest."""

    def __init__(self, sides: tuple[Side, Side], seed: int) -> None:
        self.sides = sides
        self.random = random.Random(seed)
        self.name = b"n%d" % seed
        self.waiting: list[tuple[tuple[Any, Any], bytes, int]] = []
        """Calls that wait on both, with their key and its creation."""
        self.observers = [Observer(side, self.name) for side in sides]
        self.head: Any = None
        self.told = self.passed = 0

    def same(self, name: str, request: Any) -> Any:
        theirs, mine = (side.call(name, request) for side in self.sides)
        assert mine == theirs, f"{name} {request}"
        return theirs[1]

    def key(self, lease: int) -> bytes:
        return self.name + b"/%x" % lease

    def leader(self, lease: int) -> Any:
        """As a client knows it that campaigned with the lease, rightly or wrongly."""
        created = [kv["create_revision"] for kv in self.standing() if kv["key"] == self.key(lease)]
        rev = self.random.choice([*created * 6, 0, 1])
        named = self.random.choice([lease, lease, lease, 0, UNKNOWN_LEASE])
        return pb.LeaderKey(name=self.name, key=self.key(lease), rev=rev, lease=named)

    def standing(self) -> list[dict[str, Any]]:
        theirs, mine = (side.standing(self.name) for side in self.sides)
        for kv in (*theirs, *mine):
            if kv.get("lease", 0) not in (0, *LEASES):
                kv["lease"] = "own"
        assert mine == theirs
        return theirs

    def step(self) -> None:
        draw, lease = self.random.random(), self.random.choice(LEASES)
        value = self.random.choice(VALUES)
        if draw < 0.4:
            self.begin(lease, value)
        elif draw < 0.55:
            self.same("Election/Proclaim", pb.ProclaimRequest(leader=self.leader(lease), value=value))
        elif draw < 0.65:
            self.same("Election/Resign", pb.ResignRequest(leader=self.leader(lease)))
        elif draw < 0.72:
            self.same("Lock/Unlock", pb.UnlockRequest(key=self.key(lease)))
        elif draw < 0.8:
            self.same("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=lease))
        elif draw < 0.86:
            self.same("KV/Put", pb.PutRequest(key=self.key(lease), value=b"plain"))
        elif draw < 0.9:
            empty = self.random.choice((pb.ProclaimRequest(), pb.ResignRequest(), pb.UnlockRequest()))
            name = type(empty).__name__.removesuffix("Request")
            self.same(f"Lock/{name}" if name == "Unlock" else f"Election/{name}", empty)
        elif draw < 0.95 and self.waiting:
            self.cancel()
        self.same("Election/Leader", pb.LeaderRequest(name=self.name))
        self.settle()

    def begin(self, lease: int, value: bytes) -> None:
        """Mostly with a lease that is known, so that its key stands when this returns."""
        asked = UNKNOWN_LEASE if self.random.random() < 0.05 else lease
        if asked == lease:
            self.same("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=lease, TTL=600))
        if self.random.random() < 0.3:
            name, request = "Lock/Lock", pb.LockRequest(name=self.name, lease=asked)
        else:
            name, request = "Election/Campaign", pb.CampaignRequest(name=self.name, lease=asked, value=value)
        kvs = self.standing()
        own_before = [kv for kv in kvs if kv["key"] == self.key(lease)]
        writes = name == "Election/Campaign" and own_before and own_before[0].get("value", b"") != value
        if asked == lease and own_before and own_before != kvs[:1] and not writes:
            # Nothing would tell that it has arrived.
            return
        calls = self.sides[0].begin(name, request), self.sides[1].begin(name, request)
        if asked != lease:
            assert ended(calls[1]) == ended(calls[0])
            return

        def placed() -> bool:
            kvs = [[kv for kv in side.standing(self.name) if kv["key"] == self.key(lease)] for side in self.sides]
            overwrites = name == "Election/Campaign"
            return all(found and (not overwrites or found[0].get("value", b"") == value) for found in kvs)

        eventually(placed, f"{request} stands")
        (own,) = [kv for kv in self.standing() if kv["key"] == self.key(lease)]
        self.waiting.append((calls, own["key"], own["create_revision"]))

    def cancel(self) -> None:
        """One whose key stands: etcd's Lock also deletes a key made since with the same lease."""
        standing = {(kv["key"], kv["create_revision"]) for kv in self.standing()}
        own = [each for each in self.waiting if each[1:] in standing]
        if not own:
            return
        calls, key, created = found = self.random.choice(own)
        self.waiting.remove(found)
        for call in calls:
            call.cancel()
        # Who is cancelled takes its key back, and with it the place of others with the same lease.
        for side in self.sides:
            eventually(
                lambda: all((kv["key"], kv["create_revision"]) != (key, created) for kv in side.standing(self.name)),  # noqa: B023
                f"{key!r} is taken back",
            )

    def settle(self) -> None:
        while True:
            kvs = self.standing()
            free = [each for each in self.waiting if all(kv["create_revision"] >= each[2] for kv in kvs)]
            if not free:
                break
            for each in free:
                self.waiting.remove(each)
                self.passed += 1
                theirs, mine = map(ended, each[0])
                # A lock whose key is lost is unlocked once more; the revisions stay in step.
                assert mine == theirs, each[1:]
        head = kvs[0] if kvs else None
        if head is not None and head != self.head:
            theirs, mine = (observer.next() for observer in self.observers)
            assert mine == theirs and theirs["kv"]["key"] == head["key"]
            self.told += 1
        self.head = head
        assert all(observer.quiet() for observer in self.observers)
        assert not any(call.done() for calls, _, _ in self.waiting for call in calls)

    def close(self) -> None:
        for calls, _, _ in self.waiting:
            for call in calls:
                call.cancel()
        for observer in self.observers:
            observer.close()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_drawn_elections_and_locks_go_alike(both: tuple[Side, Side], seed: int) -> None:
    history = History(both, seed)
    try:
        for _ in range(STEPS):
            history.step()
        assert history.told > 3 and history.passed > 3
    finally:
        history.close()


def test_leases_that_expire_pass_the_lead_on(both: tuple[Side, Side]) -> None:
    name = b"expiring"
    answers = []
    for side in both:
        observer = Observer(side, name)
        side.call("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=0x81, TTL=2))
        side.call("Lease/LeaseGrant", pb.LeaseGrantRequest(ID=0x82, TTL=600))
        first, second = [pb.CampaignRequest(name=name, lease=lease, value=b"%x" % lease) for lease in (0x81, 0x82)]
        assert ended(side.begin("Election/Campaign", first))[0] == "ok"
        told = [observer.next()["kv"]["value"]]
        won = ended(side.begin("Election/Campaign", second))
        told.append(observer.next()["kv"]["value"])
        answers.append((told, won[1]["leader"]["key"]))
        observer.close()
    theirs, mine = answers
    assert mine == theirs == ([b"81", b"82"], name + b"/82")
