"""Declared indexes in the state machine, against brute force over whole objects at every retained revision.

Three state machines take the same commands: one builds its indexes in small slices, one at once and is replaced by its
own snapshot now and then, and one is shown the whole log at the end. They must hold the same, and answer alike,
whichever way a question goes: as the planner sends it, through each index that is complete, and through those that
`explain` tries. What is right is worked out by `sim.checkers`, which reads objects by itself.

Histories are drawn from few nodes and pods that come back under other names, lose a field, move, finish, and are bound
twice; quantities in mixed units; thresholds at values that stood, and one beside them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import msgpack
import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from minikube_py.errors import Compacted, FutureRevision, InvalidRequest
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.fields.spec import FieldSpec
from minikube_py.fields.where import Comparison, Op, Where
from minikube_py.fields.whole import EDGE
from minikube_py.index.catalogue import Options
from minikube_py.index.declared import IndexSpec, extended
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    Command,
    Compact,
    Compare,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    Put,
    RangeRequest,
    Txn,
    prefix_end,
)
from minikube_py.sim import indexing
from minikube_py.sim.checkers.model import Model
from minikube_py.sim.checkers.objects import Rows

EXAMPLES = int(os.environ.get("MINIKUBE_PY_LAW_EXAMPLES", "50"))
NODE_KEYS = [NODES.prefix + b"n%d" % number for number in range(6)]
POD_KEYS = [PODS.prefix + b"default/p%d" % number for number in range(8)]
NODE_RANGE = (NODES.prefix, prefix_end(NODES.prefix))
CPUS = ("1", "1500m", "2", "2000m", "1e0", "0.5", "4", "-1", "1n", "x")
MEMORIES = ("1Ki", "1024", "1e3", "1k", "2Ki", "1000", "9223372036854775807", "1Gi", "", "1 Gi")
ZONE = FieldSpec("zone", "string", "path@1", {"path": "metadata.labels.zone"})
RANK = FieldSpec("rank", "int", "path@1", {"path": "metadata.labels.rank"})
DECLARED = {"zone": ZONE, "rank": RANK}
FIELDS = ("free.cpu", "free.memory", "requested.cpu", "spec.unschedulable", "metadata.name", "zone", "rank")
STRUCTURES: tuple[tuple[str, Options], ...] = (
    *indexing.STRUCTURES,
    ("sharded", {"shards": 3, "filter": "grafite"}),
)
OPS: tuple[Op, ...] = (">=", ">=", ">", "<", "<=", "=", "!=", "in", "exists")


class World:
    """`members[0]` builds slowly, `members[1]` at once, and from a snapshot now and then."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.members = [StateMachine(), StateMachine()]
        self.model = Model()
        self.log: list[Command] = []
        self.specs: dict[str, IndexSpec] = {}
        self.drawn = 0
        for field_set in (NODES, PODS):
            self.take(DeclareFields(field_set))

    def take(self, command: Command) -> None:
        results = [state.apply(command) for state in self.members]
        assert results[0] == results[1]
        self.model.run(command)
        self.log.append(command)
        assert self.members[0].revision == self.members[1].revision == self.model.revision
        if self.rng.randrange(3) == 0:
            self.members[0].build_indexes(self.rng.choice((1, 2, 100)))
        self.members[1].build_indexes(1000)

    @property
    def oldest(self) -> int:
        return max(1, self.members[0].compact_revision)

    def revision(self) -> int:
        back = self.rng.choice((0, 0, 1, 2, 4, 100))
        return max(self.oldest, self.model.revision - back)

    # -- what happens ----------------------------------------------------------------------------------------------

    def write(self) -> None:
        rng = self.rng
        ops = {}
        for _ in range(rng.choice((1, 1, 2, 4))):
            op = self.node() if rng.randrange(2) else self.pod()
            ops[op.key] = op
        made = tuple(ops.values())
        self.take(made[0] if len(made) == 1 else Txn((), made))

    def node(self) -> Put | DeleteRange:
        rng = self.rng
        key = rng.choice(NODE_KEYS)
        kind = rng.randrange(12)
        if kind == 0:
            return DeleteRange(key)
        if kind == 1:
            return Put(key, rng.choice((b"no JSON", b"[]", b'{"status":3,"spec":[]}')))
        resources = {"cpu": rng.choice(CPUS), "memory": rng.choice(MEMORIES)}
        if kind in (2, 3):
            del resources[rng.choice(("cpu", "memory"))]
        labels = {"zone": rng.choice(("a", "b", "zz")), "rank": rng.choice(("1", "2", "+2", "x", ""))}
        if kind == 4:
            labels = {}
        # The name it gives itself may be another's: who refers to it goes by the key.
        name = key[len(NODES.prefix) :].decode() if rng.randrange(6) else "n1"
        value: dict[str, Any] = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": resources},
        }
        if rng.randrange(3) == 0:
            value["spec"] = {"unschedulable": bool(rng.randrange(2))}
        return Put(key, orjson.dumps(value))

    def pod(self) -> Put | DeleteRange:
        rng = self.rng
        key = rng.choice(POD_KEYS)
        if rng.randrange(7) == 0:
            return DeleteRange(key)
        requests = {"cpu": rng.choice(CPUS[:6]), "memory": rng.choice(MEMORIES[:6])}
        spec: dict[str, Any] = {"containers": [{"resources": {"requests": requests}}]}
        if rng.randrange(6):
            spec["nodeName"] = f"n{rng.randrange(7)}"
        phase = rng.choice(("Pending", "Running", "Running", "Succeeded", "Failed"))
        return Put(key, orjson.dumps({"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}))

    def bind(self) -> None:
        """As the scheduler does: if the pod is as it was seen. Two that saw the same bind it once."""
        rng = self.rng
        key = rng.choice(POD_KEYS)
        seen = self.model.current.get(key)
        mod = seen.mod_revision if seen is not None else 0
        for _ in range(rng.choice((1, 2))):
            op = self.pod()
            self.take(Txn((Compare(key, "MOD", "=", mod),), (op._replace(key=key),), (RangeRequest(key),)))

    def compact(self) -> None:
        revision = self.model.revision - self.rng.choice((0, 1, 3, 10))
        if revision > self.members[0].compact_revision and revision > 0:
            for state in self.members:
                state.apply(Compact(revision))
            self.log.append(Compact(revision))

    def declare(self) -> None:
        rng = self.rng
        structure, options = rng.choice(STRUCTURES)
        start = rng.randrange(len(FIELDS))
        fields = (*FIELDS[start:], *FIELDS[:start])[: rng.choice((1, 2, 3))]
        self.drawn += 1
        # Some are too large from the first slice on, and answer as if they were not there.
        limit_bytes = rng.choice((1 << 28, 1 << 28, 1 << 16))
        declares = tuple(DECLARED[name] for name in fields if name in DECLARED)
        spec = IndexSpec(f"i{self.drawn}", "nodes", fields, structure, options, limit_bytes, declares)
        if len(self.specs) >= 4:
            self.drop()
        self.specs[spec.name] = spec
        self.take(DeclareIndex(spec))

    def drop(self) -> None:
        if self.specs:
            name = self.rng.choice(list(self.specs))
            del self.specs[name]
            self.take(DropIndex(name))

    def restore(self) -> None:
        self.members[1] = restored(self.members[1])

    # -- what is asked ---------------------------------------------------------------------------------------------

    def rows(self, revision: int) -> Rows:
        return Rows(extended(NODES, list(self.specs.values())), self.model.standing(b"\0", b"\0", revision))

    def where(self) -> Where:
        rng = self.rng
        known = [name for name in FIELDS if name not in DECLARED or self.declares(name)]
        rows = self.rows(self.revision())
        comparisons = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            field = rng.choice((*known, "free.cpu", "free.memory"))
            op = rng.choice(OPS)
            count = {"exists": 0, "in": rng.choice((1, 2, 3))}.get(op, 1)
            comparisons.append(Comparison(field, op, tuple(self.text(rows, field) for _ in range(count))))
        return Where(tuple(comparisons))

    def text(self, rows: Rows, field: str) -> str:
        rng = self.rng
        value = rows.value(rng.choice(NODE_KEYS), field)
        if field in ("spec.unschedulable", "metadata.name", "zone"):
            return str(value) if value is not None else rng.choice(("true", "n1", "a", ""))
        # An edge of int64 stands for all beyond it, and is refused by most operators (`fields.whole`).
        number = max(1 - EDGE, min(EDGE - 1, int(value or 0) + rng.choice((0, 0, -1, 1))))
        if field == "rank":
            return str(number)
        if field.endswith(".cpu"):
            return f"{number}m" if number % 1000 or rng.randrange(2) else f"{number // 1000}e0"
        return str(number) if number % 1024 or not number or rng.randrange(2) else f"{number // 1024}Ki"

    def declares(self, name: str) -> bool:
        return any(name in spec.fields for spec in self.specs.values())

    def ask(self) -> None:
        rng = self.rng
        where, revision, limit = self.where(), self.revision(), rng.choice((0, 0, 1, 2))
        holding = self.rows(revision).holding(where)
        wanted = sorted(holding)
        for state in self.members:
            told = f"{where} at {revision} of {self.oldest}..{self.model.revision}: {self.specs}"
            check_answers(state, where, revision, limit, wanted, told)
            check_indexes(state, where, revision, limit, wanted, told)
            check_explained(state, where, limit, sorted(self.rows(self.model.revision).holding(where)), told)
            for beyond, error in ((self.oldest - 1, Compacted), (self.model.revision + 1, FutureRevision)):
                if beyond > 0:
                    with pytest.raises(error):
                        state.range(RangeRequest(*NODE_RANGE, revision=beyond, where=where))


def check_answers(
    state: StateMachine, where: Where, revision: int, limit: int, wanted: Sequence[bytes], told: str
) -> None:
    request = RangeRequest(*NODE_RANGE, limit, revision, where=where)
    result = state.range(request)
    shown = wanted[:limit] if limit else wanted
    assert [kv.key for kv in result.kvs] == shown, told
    assert (result.count, result.more) == (len(wanted), len(shown) < len(wanted)), told
    assert all(kv == state.get(kv.key, revision) for kv in result.kvs), told
    anyhow = [kv.key for kv in state.range(request._replace(order="ANY")).kvs]
    assert len(set(anyhow)) == len(anyhow) == len(shown) and set(anyhow) <= set(wanted), told
    pages: list[bytes] = []
    for _ in range(len(wanted) + 1):
        key = pages[-1] + b"\0" if pages else NODE_RANGE[0]
        page = state.range(request._replace(key=key, limit=limit or 2))
        pages += [kv.key for kv in page.kvs]
        if not page.more:
            break
    assert pages == wanted, told
    assert result.stats is not None
    if all(comparison.field not in DECLARED for comparison in where.comparisons):
        assert result.stats.objects_decoded == 0, told


def check_indexes(
    state: StateMachine, where: Where, revision: int, limit: int, wanted: Sequence[bytes], told: str
) -> None:
    """Each index that is complete, past the planner, which would have asked one of them or none."""
    table = state.tables.by_name["nodes"]
    if any(table.field_set.find(comparison.field) is None for comparison in where.comparisons):
        return
    for running in table.running.values():
        if running.hosted is None or not running.ready:
            continue
        at = min(revision, table.index.revision)
        matches = running.hosted.query(where, at, limit)
        assert matches.keys == (wanted[:limit] if limit else wanted), f"{running.spec.structure}: {told}"
        assert matches.count == len(wanted), f"{running.spec.structure}: {told}"
        assert running.hosted.may_match(where, at) or not wanted, f"{running.spec.structure}: {told}"


def check_explained(state: StateMachine, where: Where, limit: int, wanted: Sequence[bytes], told: str) -> None:
    for choice, run in state.explain(RangeRequest(*NODE_RANGE, limit, where=where)).ways:
        if run is not None:
            matches, _ = run()
            assert matches.keys == (wanted[:limit] if limit else wanted), f"{choice}: {told}"


def restored(state: StateMachine) -> StateMachine:
    return restore([msgpack.unpackb(msgpack.packb(each)) for each in records(state)])


def finished(state: StateMachine) -> None:
    for _ in range(10_000):
        if not state.build_indexes(1000):
            return
    raise AssertionError("building does not come to an end")


KINDS = "wwwwwwwbbaaaaacdddDr"


def live(rng: Random) -> None:
    """One history, from the first declaration to the last question."""
    world = World(rng)
    happenings = {
        "w": world.write, "b": world.bind, "a": world.ask, "c": world.compact, "d": world.declare, "D": world.drop,
        "r": world.restore,
    }  # fmt: skip
    world.declare()
    for _ in range(rng.randrange(10, 45)):
        happenings[rng.choice(KINDS)]()
    world.ask()
    replayed = StateMachine()
    for command in world.log:
        replayed.apply(command)
    for state in world.members:
        finished(state)
        for revision in range(world.oldest, world.model.revision + 1):
            assert state.hash(revision) == replayed.hash(revision)
        assert [report.spec for report in state.tables.reports()] == sorted(
            world.specs.values(), key=lambda each: each.name
        )
        assert all(report.state != "building" for report in state.tables.reports())
    finished(replayed)
    world.members.append(replayed)
    world.ask()


@settings(
    max_examples=EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)
@given(st.randoms(use_true_random=False))
def test_declared_indexes_answer_as_brute_force_does(rng: Random) -> None:
    live(rng)


def test_a_quantity_that_is_judged_is_read_by_itself() -> None:
    """The judge's own arithmetic, without which agreement would prove nothing."""
    put = Put(NODE_KEYS[0], orjson.dumps({"status": {"allocatable": {"cpu": "1n", "memory": "1e3"}}}))
    model = Model([NODES])
    model.run(put)
    rows = Rows(NODES, model.standing(*NODE_RANGE, model.revision))
    assert rows.value(NODE_KEYS[0], "free.cpu") == 1 and Fraction(1, 10**9) > 0
    assert rows.value(NODE_KEYS[0], "free.memory") == 1000


def test_what_indexes_are_refused_changes_nothing() -> None:
    state = StateMachine()
    state.apply(DeclareFields(NODES))
    before = state.hash()
    for spec in (
        IndexSpec("a", "pots", ("free.cpu",), "columns"),
        IndexSpec("a", "nodes", ("zone",), "columns"),
        IndexSpec("A", "nodes", ("free.cpu",), "columns"),
    ):
        with pytest.raises(InvalidRequest):
            state.apply(DeclareIndex(spec))
    assert state.hash() == before and state.revision == 1
