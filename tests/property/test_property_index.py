"""Indexes in the store against brute force over whole objects, at every retained revision.

The model keeps all objects of every revision and works rows out again each time, by arithmetic of its own. Thresholds
are drawn at stored values and one beside them. Watches with a `where` must show the difference of brute-force sets.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import msgpack
import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.where import Comparison, Op, Where
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Compact,
    DeclareFields,
    DeleteRange,
    Event,
    KeyValue,
    Put,
    RangeRequest,
    Txn,
    WatchBatch,
    prefix_end,
)
from minikube_py.mvcc.watch import WatchHub

NODE_NAMES = ["n0", "n1", "n2", "n3"]
NODE_KEYS = [NODES.prefix + name.encode() for name in NODE_NAMES]
POD_KEYS = [PODS.prefix + b"default/p%d" % n for n in range(3)] + [PODS.prefix + b"other/p%d" % n for n in range(3)]
CPU = st.integers(0, 4)
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", "x.io/gpu"]), CPU, max_size=3)
Objects = dict[bytes, Any]
Row = dict[str, int | str]
GARBAGE = b"not JSON"


def node_value(name: str, allocatable: dict[str, int], unschedulable: Any) -> bytes:
    spec = {} if unschedulable is None else {"unschedulable": unschedulable}
    resources = {key: str(value) for key, value in allocatable.items()}
    return orjson.dumps({"metadata": {"name": name}, "spec": spec, "status": {"allocatable": resources}})


def pod_value(node: str, requests: dict[str, int], phase: str) -> bytes:
    containers = [{"name": "c", "resources": {"requests": {key: str(value) for key, value in requests.items()}}}]
    return orjson.dumps(
        {"metadata": {"name": "p"}, "spec": {"nodeName": node, "containers": containers}, "status": {"phase": phase}}
    )


NODE_PUT = st.builds(
    lambda i, allocatable, off: Put(NODE_KEYS[i], node_value(NODE_NAMES[i], allocatable, off)),
    st.integers(0, 3),
    RESOURCES,
    st.sampled_from([None, True, False]),
)
POD_PUT = st.builds(
    lambda key, node, requests, phase: Put(key, pod_value(node, requests, phase)),
    st.sampled_from(POD_KEYS),
    st.sampled_from([*NODE_NAMES, "", "unborn"]),
    RESOURCES,
    st.sampled_from(["Pending", "Running", "Running", "Succeeded", "Failed"]),
)
JUNK = [GARBAGE, b"[]", b'{"status":3,"spec":[]}']
JUNK_PUT = st.tuples(st.sampled_from([*NODE_KEYS, *POD_KEYS]), st.sampled_from(JUNK)).map(lambda drawn: Put(*drawn))
DELETE = st.sampled_from([*NODE_KEYS, *POD_KEYS]).map(DeleteRange)
WRITES = st.one_of(NODE_PUT, POD_PUT, POD_PUT, POD_PUT, DELETE, JUNK_PUT)


def units(resources: Any) -> dict[str, int]:
    found = resources if isinstance(resources, dict) else {}
    return {name: int(text) * (1000 if name == "cpu" else 1) for name, text in found.items()}


def requested(pod: Any, node: str) -> dict[str, int]:
    if not isinstance(pod, dict) or not isinstance(pod["spec"], dict) or pod["spec"]["nodeName"] != node:
        return {}
    if pod["status"]["phase"] in ("Succeeded", "Failed"):
        return {}
    return units(pod["spec"]["containers"][0]["resources"]["requests"])


def node_row(key: bytes, objects: Objects) -> Row | None:
    if key not in objects:
        return None
    node = objects[key]
    whole = isinstance(node, dict) and isinstance(node["spec"], dict)
    if not whole:
        return {"spec.unschedulable": "false"}
    name = key[len(NODES.prefix) :].decode()
    off = node["spec"].get("unschedulable")
    row: Row = {"metadata.name": name, "spec.unschedulable": "true" if off else "false"}
    for resource, amount in units(node["status"]["allocatable"]).items():
        used = sum(requested(pod, name).get(resource, 0) for key, pod in objects.items() if key.startswith(PODS.prefix))
        row |= {f"allocatable.{resource}": amount, f"requested.{resource}": used, f"free.{resource}": amount - used}
    return row


def pod_row(key: bytes, objects: Objects) -> Row | None:
    if key not in objects:
        return None
    pod = objects[key]
    if not isinstance(pod, dict):
        return {}
    if not isinstance(pod["spec"], dict):
        return {"requests.pods": 1}
    node = pod["spec"]["nodeName"]
    row: Row = {"hash.spec.nodeName": zlib.crc32(node.encode())} if node else {}
    if pod["status"]["phase"] not in ("Succeeded", "Failed"):
        asked = units(pod["spec"]["containers"][0]["resources"]["requests"]) | {"pods": 1}
        row |= {f"requests.{resource}": amount for resource, amount in asked.items()}
    return row


def text_of(field: str, value: int | str) -> str:
    return f"{value}m" if field.endswith(".cpu") else str(value)


def value_of(field: str, text: str) -> int | str:
    if field.endswith(".cpu"):
        return int(text[:-1])
    return text if field in ("spec.unschedulable", "metadata.name") else int(text)


TRUTH: dict[Op, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def holds(where: Where, row: Row | None) -> bool:
    if row is None:
        return False
    for field, op, texts in ((each.field, each.op, each.values) for each in where.comparisons):
        left = row.get(field)
        rights = [value_of(field, text) for text in texts]
        if op == "!=":
            held = left != rights[0]
        elif left is None:
            held = False
        elif op == "in":
            held = left in rights
        else:
            held = op == "exists" or TRUTH[op](left, rights[0])
        if not held:
            return False
    return True


FIELDS = {
    "nodes": [
        "free.cpu",
        "free.memory",
        "free.x.io/gpu",
        "free.none",
        "allocatable.cpu",
        "requested.cpu",
        "requested.x.io/gpu",
    ],
    "pods": ["hash.spec.nodeName", "requests.cpu", "requests.memory", "requests.pods"],
}
STRINGS = {"nodes": ["spec.unschedulable", "metadata.name"], "pods": []}
THRESHOLDS: list[tuple[Op, str]] = [(">=", "1000m"), ("<", "2000m"), ("!=", "3000m")]
OPS: list[Op] = ["=", "!=", "<", "<=", ">", ">=", "in", "exists"]


class IndexAgainstBruteForce(RuleBasedStateMachine):
    @initialize(declare_late=st.integers(0, 8))
    def start(self, declare_late: int) -> None:
        self.state = StateMachine()
        self.objects: dict[int, Objects] = {1: {}}
        self.written: dict[int, list[Event]] = {}
        self.standing: dict[int, dict[bytes, KeyValue]] = {1: {}}
        self.until_declared = declare_late
        self.hub = WatchHub(self.state)
        self.watches: list[tuple[str, Where, int, list[WatchBatch]]] = []
        self.maybe_declare()

    def maybe_declare(self) -> None:
        if self.until_declared == 0:
            self.state.apply(DeclareFields(NODES))
            self.state.apply(DeclareFields(PODS))
            for kind, field in (("nodes", "free.cpu"), ("nodes", "requested.cpu"), ("pods", "requests.cpu")):
                for op, text in THRESHOLDS:
                    self.add_watch(kind, Where((Comparison(field, op, (text,)),)), 0)
        self.until_declared -= 1

    @property
    def declared(self) -> bool:
        return self.until_declared < 0

    @rule(ops=st.lists(WRITES, min_size=1, max_size=4, unique_by=lambda op: op.key))
    def write(self, ops: list[Any]) -> None:
        before = self.state.revision
        self.state.apply(ops[0] if len(ops) == 1 else Txn((), tuple(ops)))
        objects = dict(self.objects[before])
        for op in ops:
            if isinstance(op, Put):
                objects[op.key] = None if op.value == GARBAGE else orjson.loads(op.value)
            else:
                objects.pop(op.key, None)
        if self.state.revision > before:
            self.objects[self.state.revision] = objects
            self.written[self.state.revision] = self.state.last_events
            self.standing[self.state.revision] = dict(self.state.index.current)
        self.maybe_declare()

    @rule(ops=st.lists(st.one_of(NODE_PUT, POD_PUT), min_size=4, max_size=9, unique_by=lambda op: op.key))
    def write_many(self, ops: list[Any]) -> None:
        self.write(ops)

    @rule(
        keys=st.lists(st.sampled_from([*NODE_KEYS, *POD_KEYS]), min_size=1, max_size=4, unique=True),
        node=st.sampled_from([None, None, *NODE_NAMES, ""]),
        phase=st.sampled_from([None, None, "Running", "Failed"]),
    )
    def touch(self, keys: list[bytes], node: str | None, phase: str | None) -> None:
        """Writes that change one thing of an object, or nothing that the index knows of."""
        objects = self.objects[self.state.revision]
        ops = []
        for key in keys:
            if not isinstance(objects.get(key), dict) or not isinstance(objects[key]["spec"], dict):
                continue
            changed = {**objects[key], "touched": self.state.revision}
            if key in POD_KEYS and node is not None:
                changed["spec"] = {**changed["spec"], "nodeName": node}
            if key in POD_KEYS and phase is not None:
                changed["status"] = {"phase": phase}
            ops.append(Put(key, orjson.dumps(changed)))
        if ops:
            self.write(ops)

    @rule(back=st.integers(0, 3))
    def compact(self, back: int) -> None:
        if self.state.revision - back > self.state.compact_revision:
            self.state.apply(Compact(self.state.revision - back))

    @rule(budget=st.integers(0, 3))
    def notify_and_trim(self, budget: int) -> None:
        self.hub.notify()
        self.state.trim(budget)

    @precondition(lambda self: self.declared)
    @rule()
    def restore(self) -> None:
        self.hub.notify()
        self.check_watches()
        restored = restore([msgpack.unpackb(msgpack.packb(each)) for each in records(self.state)])
        for revision in self.retained():
            assert restored.hash(revision) == self.state.hash(revision)
        self.state = restored
        self.hub = WatchHub(restored)

    def retained(self) -> range:
        return range(max(1, self.state.compact_revision), self.state.revision + 1)

    def row(self, kind: str, key: bytes, revision: int) -> Row | None:
        return (node_row if kind == "nodes" else pod_row)(key, self.objects[revision])

    def draw_where(self, data: st.DataObject, kind: str) -> Where:
        """Thresholds at values that stood somewhere in the past, and one beside them."""
        comparisons = []
        for _ in range(data.draw(st.integers(0, 3))):
            op = data.draw(st.sampled_from(OPS))
            field = data.draw(st.sampled_from([*FIELDS[kind], *STRINGS[kind]]))
            count = {"in": data.draw(st.integers(1, 3)), "exists": 0}.get(op, 1)
            revision = data.draw(st.sampled_from(self.retained()))
            keys = NODE_KEYS if kind == "nodes" else POD_KEYS
            texts = []
            for _ in range(count):
                row = self.row(kind, data.draw(st.sampled_from(keys)), revision) or {}
                if field in STRINGS[kind]:
                    texts.append(str(row.get(field, data.draw(st.sampled_from(["true", "n1", "zz", ""])))))
                else:
                    texts.append(text_of(field, int(row.get(field, 0)) + data.draw(st.integers(-1, 1))))
            comparisons.append(Comparison(field, op, tuple(texts)))
        return Where(tuple(comparisons))

    @precondition(lambda self: self.declared)
    @rule(data=st.data(), kind=st.sampled_from(["nodes", "pods"]), limit=st.integers(0, 3))
    def query(self, data: st.DataObject, kind: str, limit: int) -> None:
        where = self.draw_where(data, kind)
        revision = data.draw(st.sampled_from(self.retained()))
        prefix = NODES.prefix if kind == "nodes" else PODS.prefix
        start = data.draw(st.sampled_from([prefix, prefix + b"n1", prefix + b"default/"]))
        end = data.draw(st.sampled_from([prefix_end(prefix), prefix_end(start)]))
        keys = sorted(key for key in self.objects[revision] if start <= key < end)
        wanted = [key for key in keys if holds(where, self.row(kind, key, revision))]
        names = tuple(FIELDS[kind] + STRINGS[kind])
        request = RangeRequest(start, end, limit, revision, where=where, fields=names)
        result = self.state.range(request)
        shown = wanted[:limit] if limit else wanted
        assert [kv.key for kv in result.kvs] == shown
        assert (result.count, result.more) == (len(wanted), len(shown) < len(wanted))
        assert result.stats is not None
        assert result.stats.objects_decoded == 0
        rows = [self.row(kind, key, revision) or {} for key in shown]
        assert result.fields == [tuple(row.get(name) for name in names) for row in rows]
        for kv in result.kvs:
            assert kv == self.state.get(kv.key, revision)
        assert self.state.range(request._replace(count_only=True)).count == len(wanted)
        anyhow = [kv.key for kv in self.state.range(request._replace(order="ANY")).kvs]
        assert len(set(anyhow)) == len(anyhow) == len(shown)
        assert set(anyhow) <= set(wanted)
        pages: list[bytes] = []
        while True:
            page = self.state.range(request._replace(key=pages[-1] + b"\0" if pages else start, limit=max(limit, 1)))
            pages += [kv.key for kv in page.kvs]
            if not page.more:
                break
        assert pages == wanted
        self.check_index(kind, where, revision)

    def check_index(self, kind: str, where: Where, revision: int) -> None:
        """The contract's other questions."""
        index = self.state.tables.by_name[kind].index
        keys = NODE_KEYS if kind == "nodes" else POD_KEYS
        rows = [self.row(kind, key, revision) for key in keys]
        at = min(revision, index.revision)
        assert [index.row(key, at) for key in keys] == rows
        assert index.rows(keys, at) == rows
        assert index.matching(where, at, keys) == [holds(where, row) for row in rows]
        assert index.may_match(where, at) == any(holds(where, row) for row in rows)
        last = self.retained()[0]
        expected = []
        for later in self.retained()[1:]:
            expected += [(later, key) for key in keys if self.row(kind, key, last) != self.row(kind, key, later)]
            last = later
        assert sorted(index.changed(self.retained()[0], self.state.revision)) == sorted(expected)

    @precondition(lambda self: self.declared)
    @rule(data=st.data(), kind=st.sampled_from(["nodes", "pods"]))
    def watch(self, data: st.DataObject, kind: str) -> None:
        where = self.draw_where(data, kind)
        if not where:
            return
        start = data.draw(st.sampled_from([0, *(revision + 1 for revision in self.retained())]))
        self.add_watch(kind, where, start)
        while self.hub.catch_up(2):
            pass

    def add_watch(self, kind: str, where: Where, start: int) -> None:
        prefix = NODES.prefix if kind == "nodes" else PODS.prefix
        batches: list[WatchBatch] = []
        self.hub.add(prefix, prefix_end(prefix), start, batches.append, where)
        self.watches.append((kind, where, start or self.state.revision + 1, batches))

    def expected_events(self, kind: str, where: Where, start: int, until: int) -> list[Event]:
        keys = NODE_KEYS if kind == "nodes" else POD_KEYS
        found: list[Event] = []
        for revision in range(start, until + 1):
            written = [event for event in self.written[revision] if event.kv.key in keys]
            others = [key for key in keys if key not in {event.kv.key for event in written}]
            changes = [(event.kv.key, event) for event in written] + [(key, None) for key in sorted(others)]
            for key, event in changes:
                was = holds(where, self.row(kind, key, revision - 1))
                now = holds(where, self.row(kind, key, revision))
                standing = self.standing[revision].get(key)
                if now and standing and (event or not was):
                    found.append(Event("PUT", standing, self.standing[revision - 1].get(key) if was else None))
                elif was and not now:
                    left = KeyValue(key, b"", 0, revision, 0, 0)
                    found.append(Event("DELETE", left, self.standing[revision - 1].get(key)))
        return found

    def check_watches(self) -> None:
        for kind, where, start, batches in self.watches:
            assert all(batch.error is None for batch in batches)
            got = [event for batch in batches for event in batch.events]
            assert got == self.expected_events(kind, where, start, self.state.revision), (where, start)
        self.watches = []

    def teardown(self) -> None:
        if not hasattr(self, "state"):
            return
        self.hub.notify()
        self.check_watches()
        if self.declared:
            for revision in self.retained():
                self.check_index("nodes", Where((Comparison("free.cpu", ">", ("1000m",)),)), revision)
                self.check_index("pods", Where((Comparison("requests.cpu", "<=", ("2000m",)),)), revision)


TestIndexAgainstBruteForce = IndexAgainstBruteForce.TestCase
TestIndexAgainstBruteForce.settings = settings(max_examples=80, stateful_step_count=40)
