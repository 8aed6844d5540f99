"""The state machine beside a real etcd: the same generated histories give the same answers, errors and revisions.

etcd is asked through its JSON gateway; each test has a fresh one, so that both sides start at revision 1.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from needs import etcd_binary
from ports import free_ports

from minikube_py.errors import RequestError
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Compact,
    Compare,
    DeleteRange,
    DeleteResult,
    KeyValue,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Op,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
)
from minikube_py.mvcc.watch import WatchHub

pytestmark = pytest.mark.original

KEYS = [b"a", b"b", b"b\0", b"bb", b"c", b"d/1", b"d/2", b"e", b"\xff", b"\xff\xff"]
ENDS = [b"", b"", b"", b"\0", b"b", b"c", b"d0", b"e", b"\xff\xff\xff"]
VALUES = [b"", b"x", b"y", b"longer value", b"\0\1\xff"]


class Etcd:
    """A real etcd process and its JSON gateway."""

    def __init__(self, binary: str, folder: Path) -> None:
        ports = free_ports(2)
        self.port = ports[0]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        self.log = open(folder / "etcd.log", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            [
                binary,
                "--data-dir",
                str(folder / "data"),
                "--listen-client-urls",
                urls[0],
                "--advertise-client-urls",
                urls[0],
                "--listen-peer-urls",
                urls[1],
                "--initial-advertise-peer-urls",
                urls[1],
                "--initial-cluster",
                f"default={urls[1]}",
                "--unsafe-no-fsync",
                "--log-level",
                "error",
            ],
            stdout=self.log,
            stderr=self.log,
        )
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        deadline = time.monotonic() + 30
        while True:
            try:
                self.call("/v3/kv/range", {"key": b64(b"a")})
                return
            except OSError:
                self.connection.close()
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.02)

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(self.connection.getresponse().read())
        return answer

    def watch(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("POST", "/v3/watch", json.dumps({"create_request": body}))
        response = connection.getresponse()
        try:
            while line := response.readline():
                yield json.loads(line)["result"]
        finally:
            connection.close()

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    running = Etcd(etcd_binary(), tmp_path)
    yield running
    running.stop()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def unb64(text: str | None) -> bytes:
    return base64.b64decode(text or "")


# -- the same request for both ------------------------------------------------------------------------------------


def compare_body(compare: Compare) -> dict[str, Any]:
    names = {
        "VERSION": "version",
        "CREATE": "create_revision",
        "MOD": "mod_revision",
        "VALUE": "value",
        "LEASE": "lease",
    }
    results = {"=": "EQUAL", "!=": "NOT_EQUAL", "<": "LESS", ">": "GREATER"}
    operand = b64(compare.operand) if isinstance(compare.operand, bytes) else str(compare.operand)
    return {
        "key": b64(compare.key),
        "range_end": b64(compare.range_end),
        "target": compare.target,
        "result": results[compare.op],
        names[compare.target]: operand,
    }


def op_body(op: Op) -> dict[str, Any]:
    return {
        {Put: "request_put", DeleteRange: "request_delete_range", RangeRequest: "request_range", Txn: "request_txn"}[
            type(op)
        ]: body(op)
    }


def body(request: Any) -> dict[str, Any]:
    if isinstance(request, Txn):
        return {
            "compare": [compare_body(each) for each in request.compare],
            "success": [op_body(each) for each in request.success],
            "failure": [op_body(each) for each in request.failure],
        }
    fields = {}
    for name, value in request._asdict().items():
        if name in ("where", "order", "fields"):
            continue
        fields[name] = (
            b64(value) if isinstance(value, bytes) else value if isinstance(value, bool | str) else str(value)
        )
    if isinstance(request, LeaseGrant):
        return {"ID": str(request.id), "TTL": str(request.ttl_s)}
    if isinstance(request, LeaseRevoke):
        return {"ID": str(request.id)}
    return fields


PATHS = {
    Put: "/v3/kv/put",
    DeleteRange: "/v3/kv/deleterange",
    RangeRequest: "/v3/kv/range",
    Txn: "/v3/kv/txn",
    Compact: "/v3/kv/compaction",
    LeaseGrant: "/v3/lease/grant",
    LeaseRevoke: "/v3/lease/revoke",
}

# -- answers in one form -------------------------------------------------------------------------------------------


def kv_form(kv: dict[str, Any]) -> tuple[Any, ...]:
    ints = (int(kv.get(name, 0)) for name in ("create_revision", "mod_revision", "version", "lease"))
    return (unb64(kv.get("key")), unb64(kv.get("value")), *ints)


def etcd_form(request: Any, answer: dict[str, Any], top: bool = True) -> Any:
    if "error" in answer or "code" in answer:
        return ("error", answer.get("message", answer.get("error")))
    revision = int(answer.get("header", {}).get("revision", 0)) if top else None
    if isinstance(request, Put):
        return ("put", revision, kv_form(answer["prev_kv"]) if "prev_kv" in answer else None)
    if isinstance(request, DeleteRange):
        return ("delete", revision, int(answer.get("deleted", 0)), [kv_form(kv) for kv in answer.get("prev_kvs", [])])
    if isinstance(request, RangeRequest):
        kvs = [kv_form(kv) for kv in answer.get("kvs", [])]
        return ("range", revision, kvs, int(answer.get("count", 0)), answer.get("more", False))
    if isinstance(request, Txn):
        succeeded = answer.get("succeeded", False)
        ops = request.success if succeeded else request.failure
        responses = [next(iter(each.values()), {}) for each in answer.get("responses", [])]
        assert len(ops) == len(responses)
        return ("txn", revision, succeeded, [etcd_form(op, each, False) for op, each in zip(ops, responses)])
    if isinstance(request, LeaseGrant):
        return ("lease", revision, int(answer["ID"]), int(answer["TTL"]))
    return ("ok", revision)


def our_form(result: Any, top: bool = True) -> Any:
    revision = result.revision if top else None
    if isinstance(result, PutResult):
        return ("put", revision, None if result.prev_kv is None else tuple(result.prev_kv))
    if isinstance(result, DeleteResult):
        return ("delete", revision, result.deleted, [tuple(kv) for kv in result.prev_kvs])
    if isinstance(result, RangeResult):
        return ("range", revision, [tuple(kv) for kv in result.kvs], result.count, result.more)
    if isinstance(result, TxnResult):
        return ("txn", revision, result.succeeded, [our_form(each, False) for each in result.responses])
    if isinstance(result, LeaseResult):
        return ("lease", revision, result.id, result.ttl_s)
    return ("ok", revision)


def ask_ours(state: StateMachine, request: Any) -> Any:
    try:
        result: Any = state.range(request) if isinstance(request, RangeRequest) else state.apply(request)
    except RequestError as error:
        return ("error", str(error))
    if isinstance(request, LeaseRevoke):
        return ("ok", result.revision)
    return our_form(result)


def ask_etcd(etcd: Etcd, request: Any) -> Any:
    return etcd_form(request, etcd.call(PATHS[type(request)], body(request)))


# -- histories -----------------------------------------------------------------------------------------------------


class Histories:
    """Random requests, good ones and bad ones, drawn so that keys, leases and revisions often meet."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.leases = [7001, 7002, 7003]

    def key(self) -> bytes:
        return self.random.choice(KEYS) if self.random.random() > 0.02 else b""

    def put(self) -> Put:
        chance = self.random.random
        return Put(
            self.key(),
            self.random.choice(VALUES),
            self.random.choice([0, 0, 0, 0, *self.leases, 9999]),
            chance() < 0.3,
            chance() < 0.1,
            chance() < 0.1,
        )

    def delete(self) -> DeleteRange:
        return DeleteRange(self.key(), self.random.choice(ENDS), self.random.random() < 0.5)

    def range(self, state: StateMachine) -> RangeRequest:
        pick = self.random.choice
        now = state.revision
        revision = pick([0, 0, 0, 0, now, now - 1, now - 3, now // 2, now + 1, state.compact_revision, 1])
        filters = [pick([0] * 12 + [now, now - 2, now // 2]) for _ in range(4)]
        return RangeRequest(
            self.key(),
            pick(ENDS),
            pick([0, 0, 0, 1, 2, 5]),
            revision,
            self.random.random() < 0.1,
            self.random.random() < 0.1,
            sort_target=pick(["KEY"] * 6 + ["VERSION", "CREATE", "MOD", "VALUE"]),
            sort_order=pick(["NONE", "NONE", "NONE", "ASCEND", "DESCEND"]),
            min_mod_revision=filters[0],
            max_mod_revision=filters[1],
            min_create_revision=filters[2],
            max_create_revision=filters[3],
        )

    def compare(self, state: StateMachine) -> Compare:
        pick = self.random.choice
        target = pick(["VERSION", "CREATE", "MOD", "VALUE", "LEASE"])
        key = self.key()
        standing = state.index.current.get(key)
        numbers = [0, 1, 2, state.revision, *([] if standing is None else [standing.mod_revision, standing.version])]
        operand = pick(VALUES) if target == "VALUE" else pick([*numbers, *self.leases])
        return Compare(key, target, pick(["=", "!=", "<", ">"]), operand, pick([b""] * 5 + ENDS))

    def txn(self, state: StateMachine, depth: int = 0) -> Txn:
        pick = self.random.choice
        compares = tuple(self.compare(state) for _ in range(pick([0, 1, 1, 2])))
        return Txn(compares, self.ops(state, depth), self.ops(state, depth))

    def ops(self, state: StateMachine, depth: int) -> tuple[Op, ...]:
        ops: list[Op] = []
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            kind = self.random.random()
            if kind < 0.45:
                ops.append(self.put())
            elif kind < 0.6:
                ops.append(self.delete())
            elif kind < 0.85 or depth == 2:
                ops.append(self.range(state))
            else:
                ops.append(self.txn(state, depth + 1))
        return tuple(ops)

    def request(self, state: StateMachine) -> Any:
        kind = self.random.random()
        pick = self.random.choice
        if kind < 0.25:
            return self.put()
        if kind < 0.35:
            return self.delete()
        if kind < 0.65:
            return self.range(state)
        if kind < 0.9:
            return self.txn(state)
        if kind < 0.95:
            return LeaseGrant(
                pick([*self.leases, *self.leases, 0, 7004]), pick([600, 300, 9_000_000_000, 9_000_000_001])
            )
        if kind < 0.98:
            return LeaseRevoke(pick([*self.leases, 12345]))
        return Compact(pick([state.revision, state.revision - 5, state.revision + 1, state.compact_revision, 0]))


def assert_same(etcd: Etcd, state: StateMachine, request: Any) -> None:
    if isinstance(request, LeaseGrant) and request.id == 0:
        return
    assert ask_ours(state, request) == ask_etcd(etcd, request), request


@pytest.mark.parametrize("seed", range(6))
def test_generated_histories_give_the_same_answers(etcd: Etcd, seed: int) -> None:
    histories, state = Histories(seed), StateMachine()
    for step in range(700):
        assert_same(etcd, state, histories.request(state))
        if step % 100 == 99:
            # Whatever was refused or compacted, both hold the same.
            assert_same(etcd, state, RangeRequest(b"\0", b"\0"))
            for revision in range(max(state.compact_revision, 1), state.revision + 1, 7):
                assert_same(etcd, state, RangeRequest(b"\0", b"\0", revision=revision))


@pytest.mark.parametrize("seed", range(2))
def test_a_restored_state_answers_as_etcd_still_does(etcd: Etcd, seed: int) -> None:
    histories, state = Histories(100 + seed), StateMachine()
    for step in range(400):
        assert_same(etcd, state, histories.request(state))
        if step % 80 == 79:
            state = restore(list(records(state)))


def nested(depth: int, inner: Op) -> Txn:
    txn = Txn((), (inner,))
    for _ in range(depth - 1):
        txn = Txn((), (txn,))
    return txn


CASES: dict[str, list[Any]] = {
    "a fresh store": [RangeRequest(b"a"), DeleteRange(b"a"), Compact(0), Compact(0), Compact(1), Compact(2)],
    "future and compacted reads": [
        Put(b"a", b"1"),
        Put(b"a", b"2"),
        Put(b"a", b"3"),
        Compact(3),
        RangeRequest(b"a", revision=2),
        RangeRequest(b"a", revision=3),
        RangeRequest(b"a", revision=5),
        Compact(3),
        Compact(9),
        Txn((), (RangeRequest(b"a", revision=2),)),
        Txn((), (Put(b"b", b""), RangeRequest(b"a", revision=5))),
    ],
    "duplicate keys": [
        Txn((), (Put(b"a", b"1"), Put(b"a", b"2"))),
        Txn((), (Put(b"a", b"1"), DeleteRange(b"a"))),
        Txn((), (DeleteRange(b"a", b"c"), Put(b"b", b""))),
        Txn((), (DeleteRange(b"a"), DeleteRange(b"a"))),
        Txn((), (Put(b"a", b"1"), Txn((), (Put(b"a", b"2"),)))),
        Txn((), (Txn((), (Put(b"a", b"2"),), (Put(b"a", b"3"),)),)),
        Txn((), (Txn((), (Put(b"a", b"2"),)), Txn((), (Put(b"a", b"3"),)))),
        Txn((), (Txn((), (Put(b"k", b"2"),)), Txn((), (DeleteRange(b"k"),)))),
        Txn((), (Txn((), (DeleteRange(b"k"),)), Txn((), (Put(b"k", b"2"),)))),
        Txn((), (DeleteRange(b"b", b"a"), Put(b"b", b""))),
        Txn((), (DeleteRange(b"b", b"\0"), Put(b"c", b""))),
        RangeRequest(b"\0", b"\0"),
    ],
    "budget of a txn": [
        Txn((), tuple(Put(b"k%d" % n, b"") for n in range(128))),
        Txn((), tuple(Put(b"k%d" % n, b"") for n in range(129))),
        nested(128, Put(b"deep", b"")),
        nested(129, Put(b"deep", b"")),
        Txn(tuple(Compare(b"a", "MOD", "=", 0) for _ in range(129)), ()),
        Txn((), (*(Put(b"m%d" % n, b"") for n in range(127)), Txn((), (Put(b"x", b""), Put(b"y", b""))))),
    ],
    "what a put may ignore": [
        Put(b"a", b"", ignore_value=True),
        Put(b"a", b"v", ignore_value=True),
        Put(b"a", b"v", ignore_lease=True),
        LeaseGrant(5, 100),
        Put(b"a", b"v", lease=5),
        Put(b"a", b"w", ignore_lease=True),
        RangeRequest(b"a"),
        Put(b"a", b"", lease=0, ignore_value=True),
        RangeRequest(b"a"),
        Put(b"a", b"", 5, ignore_lease=True),
        RangeRequest(b"a", keys_only=True),
        LeaseRevoke(5),
        RangeRequest(b"a"),
    ],
    "leases": [
        LeaseGrant(5, 100),
        LeaseGrant(5, 100),
        LeaseGrant(6, 9_000_000_001),
        LeaseGrant(8, -4),
        LeaseRevoke(8),
        LeaseRevoke(77),
        LeaseGrant(6, 90),
        Put(b"b", b"", lease=5),
        Put(b"a", b"", lease=5),
        Put(b"c", b"", lease=6),
        Put(b"b", b"", lease=6),
        Put(b"a", b""),
        LeaseRevoke(5),
        LeaseRevoke(6),
        RangeRequest(b"\0", b"\0"),
        Put(b"z", b"", lease=6),
        LeaseRevoke(5),
    ],
    "ranges": [
        *(Put(key, b"v") for key in KEYS),
        RangeRequest(b"b", b"a"),
        RangeRequest(b"b", b"b"),
        RangeRequest(b"b", b"\0"),
        RangeRequest(b"a", b"z", limit=2),
        RangeRequest(b"a", b"z", limit=2, sort_target="MOD", sort_order="DESCEND"),
        RangeRequest(b"a", b"z", limit=2, min_mod_revision=4),
        RangeRequest(b"a", b"z", limit=-1),
        RangeRequest(b""),
        RangeRequest(b"a", b"z", count_only=True, limit=1),
        RangeRequest(b"\xff", b"\0"),
        RangeRequest(b"a", revision=-3),
        RangeRequest(b"a", b"z", limit=1, keys_only=True, sort_target="VALUE"),
    ],
    "compares of what is missing": [
        *(
            Txn((Compare(b"no", target, op, b"" if target == "VALUE" else 0),), (Put(b"yes", b""),))
            for target in ("VERSION", "CREATE", "MOD", "VALUE", "LEASE")
            for op in ("=", "!=", "<", ">")
        ),
        Txn((Compare(b"a", "MOD", ">", 0, b"z"),), ()),
        Txn((Compare(b"m", "MOD", "=", 0, b"n"),), ()),
        Txn((Compare(b"z", "MOD", "=", 0, b"a"),), ()),
        Txn((Compare(b"", "MOD", "=", 0),), ()),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_cases_answer_alike(etcd: Etcd, name: str) -> None:
    state = StateMachine()
    for request in CASES[name]:
        assert_same(etcd, state, request)


def etcd_events(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (event.get("type", "PUT"), kv_form(event["kv"]), kv_form(event["prev_kv"]) if "prev_kv" in event else None)
        for event in answer.get("events", [])
    ]


def our_events(batch: WatchBatch, compacted: int) -> list[tuple[Any, ...]]:
    """As etcd shows them: the state before the compacted revision is gone there, though not here."""

    def previous(kv: KeyValue | None, revision: int) -> tuple[Any, ...] | None:
        return None if kv is None or revision <= compacted else tuple(kv)

    return [(kind, tuple(kv), previous(prev, kv.mod_revision)) for kind, kv, prev in batch.events]


@pytest.mark.parametrize("seed", range(3))
def test_watches_of_the_past_show_the_same_events(etcd: Etcd, seed: int) -> None:
    histories, state = Histories(200 + seed), StateMachine()
    for _ in range(300):
        request = histories.request(state)
        # Nested txns may put and delete the same key in turn; there watchers differ in the previous value.
        if not isinstance(request, Txn) or all(type(op) is not Txn for op in (*request.success, *request.failure)):
            assert_same(etcd, state, request)
    hub = WatchHub(state)
    for start in {1, 2, state.compact_revision - 1, state.compact_revision, state.compact_revision + 1, state.revision}:
        for key, end in ((b"a", b""), (b"b", b"d0"), (b"\0", b"\0")):
            if start < 1:
                continue
            batches: list[WatchBatch] = []
            hub.add(key, end, start, batches.append)
            while hub.catch_up(7):
                pass
            ours = [event for batch in batches for event in our_events(batch, state.compact_revision)]
            error = next((batch.error for batch in batches if batch.error), None)
            wanted = len(ours)
            theirs: list[tuple[Any, ...]] = []
            request = {"key": b64(key), "range_end": b64(end), "start_revision": str(start), "prev_kv": True}
            answers: Callable[[], Iterator[dict[str, Any]]] = lambda request=request: etcd.watch(request)  # noqa: E731
            canceled = False
            for answer in answers():
                theirs += etcd_events(answer)
                canceled = answer.get("canceled", False)
                created = answer.get("created", False)
                if canceled or (len(theirs) >= wanted and not (created and (error or wanted))):
                    break
            assert (error is not None) == canceled, (start, state.compact_revision)
            assert ours == theirs, (start, key, end)
