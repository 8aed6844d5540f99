"""Deletions of many keys: made ready in slices or not, they come to the same; nobody sees half of one."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import cast

import pytest
from depth import seeds

from minikube_py.errors import InvalidRequest, RequestError
from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.index import table
from minikube_py.index.columns import FORGET_PER_APPLY, FORGET_PER_COMPACT
from minikube_py.index.declared import IndexSpec
from minikube_py.index.ending import ROWS_PER_SLICE
from minikube_py.mvcc import ahead, state, transitions, watch
from minikube_py.mvcc.ahead import KEYS_PER_SLICE, LARGE_KEYS
from minikube_py.mvcc.auth import READWRITE, ROOT
from minikube_py.mvcc.budgets import DELETED_MAX, check_deletions
from minikube_py.mvcc.codec import USER_COMMANDS
from minikube_py.mvcc.state import TRIM_PER_APPLY, TRIM_PER_COMPACT, StateMachine
from minikube_py.mvcc.types import (
    FROM_KEY,
    AsUser,
    ChangeAuth,
    Command,
    Compact,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    InSession,
    LeaseGrant,
    LeaseRevoke,
    OpenSession,
    Put,
    RangeRequest,
    SessionResult,
    Txn,
    WatchBatch,
)
from minikube_py.mvcc.validate import validate
from minikube_py.mvcc.watch import CATCH_UP_BUDGET, STEP_COST, WatchHub

PREFIX = b"/registry/pods/"
NODE = b"/registry/nodes/"


def weighed(name: str, prefix: bytes, reference: str, *fields: FieldSpec) -> FieldSet:
    """What the pods that refer to an object weigh."""
    load = FieldSpec("load", "quantity", "sum@2", {"sum": "load", "resource": "w"})
    total = SumSpec("load", PREFIX, reference, "path@1", {"path": "spec.weight", "resource": "w"})
    return FieldSet(name, prefix, (load, *fields), (total,))


PODS = FieldSet("pods", PREFIX, (FieldSpec("node", "string", "path@1", {"path": "spec.nodeName"}),))
NODES = weighed("nodes", NODE, "spec.nodeName", FieldSpec("name", "string", "path@1", {"path": "metadata.name"}))
OWNERS = weighed("owners", PREFIX, "spec.owner")
"""Pods that are summed for pods: one deletion may end both."""
INDEXES = (
    IndexSpec("by-node", "pods", ("node",), "columns"),
    IndexSpec("loaded", "owners", ("load",), "sorted-runs"),
    IndexSpec(
        "more", "nodes", ("load", "zone"), "kd-tree",
        declares=(FieldSpec("zone", "string", "path@1", {"path": "metadata.zone"}),),
    ),
)  # fmt: skip
WHERES = (
    (PREFIX, Comparison("node", "=", ("n1",))), (PREFIX, Comparison("node", "!=", ("n1",))),
    (PREFIX, Comparison("load", ">=", ("1",))), (NODE, Comparison("load", "<", ("4",))),
)  # fmt: skip


def keys(rng: random.Random) -> bytes:
    return PREFIX + b"d/%02d" % rng.randrange(40)


USERS = (
    *(ChangeAuth("user add", name, secret=b"hash") for name in (ROOT, "u")), ChangeAuth("role add", "r"),
    ChangeAuth("user grant-role", ROOT, ROOT), ChangeAuth("user grant-role", "u", "r"),
    ChangeAuth("role grant-permission", "r", "", READWRITE, PREFIX + b"d/1", PREFIX + b"d/4"), ChangeAuth("enable"),
)  # fmt: skip
"""u may write three quarters of the keys."""


def by_somebody(rng: random.Random, command: Command, at: int) -> Command:
    """By root, by who may do less, and by who was looked up too long ago."""
    if rng.random() < 0.1:
        action = rng.choice(("role grant-permission", "role revoke-permission"))
        command = ChangeAuth(action, "r", "", READWRITE, keys(rng))
    elif type(command) not in USER_COMMANDS:
        return command
    return AsUser(rng.choice((ROOT, "u", "u", "nobody")), at - (rng.random() < 0.1), command)  # type: ignore[arg-type]


def drawn(rng: random.Random, revision: int, session: int) -> Command:
    kind = rng.randrange(14)
    if kind < 6:
        key = keys(rng)
        told = rng.randrange(3), keys(rng).removeprefix(PREFIX), rng.randrange(-1, 4)
        value = b'{"metadata":{"name":"x"},"spec":{"nodeName":"n%d","owner":"%s","weight":%d}}' % told
        return Put(key, value, rng.choice((0, 0, 1, 2)))
    if kind == 6:
        return LeaseRevoke(rng.choice((1, 2)))
    if kind == 7:
        return LeaseGrant(rng.choice((1, 2)), 60)
    if kind == 8:
        return Compact(rng.randint(1, revision))
    if kind == 12:
        return Put(NODE + b"n%d" % rng.randrange(3), b'{"metadata":{"name":"n","zone":"z"}}')
    if kind == 13:
        spec = rng.choice(INDEXES)
        return DropIndex(spec.name) if rng.random() < 0.3 else DeclareIndex(spec)
    low, high = sorted((rng.choice((keys(rng), NODE)), keys(rng)))
    delete = DeleteRange(low, rng.choice((high, high, FROM_KEY, PREFIX + b"e", b"")), rng.random() < 0.5)
    if kind == 9:
        return Txn(success=(delete, Put(b"/other", b"v")))
    return InSession(session, revision, revision, delete) if kind == 10 else delete


def outcome(machine: StateMachine, command: Command) -> object:
    try:
        return machine.apply(command)
    except RequestError as error:
        return type(error), str(error)


def seen(machine: StateMachine) -> tuple[object, ...]:
    """All that a reader can learn, at every revision."""
    first = max(machine.compact_revision, 1)
    past = [machine.range(RangeRequest(b"/", FROM_KEY, revision=at)).kvs for at in range(first, machine.revision + 1)]
    counts = [machine.range(RangeRequest(b"/", FROM_KEY, revision=at, count_only=True)).count
              for at in range(first, machine.revision + 1)]  # fmt: skip
    where = [
        machine.range(RangeRequest(prefix, prefix + b"z", where=Where((asked,)), revision=at)).kvs
        for prefix, asked in WHERES
        for at in range(max(first, machine.revision - 1), machine.revision + 1)
    ]
    leases = [(lease, machine.lease_keys(lease)) for lease, _ in machine.leases()]
    hashes = [machine.hash(at) for at in range(max(first, machine.revision - 1), machine.revision + 1)]
    return machine.hash(), machine.data_bytes, past, counts, where, hashes, leases, machine.last_events


def large_from(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    for module in (ahead, state, watch):
        monkeypatch.setattr(module, "LARGE_KEYS", keys)
    monkeypatch.setattr(ahead, "KEYS_PER_SLICE", 2)
    for sliced in (table, transitions):
        monkeypatch.setattr(sliced, "ROWS_PER_SLICE", 2)


def assert_no_revision_is_divided(whole: list[WatchBatch], sliced: list[WatchBatch]) -> None:
    for before, batch in itertools.pairwise(sliced):
        meant = [each.events for each in whole if before.revision < each.revision <= batch.revision]
        assert list(batch.events) == list(itertools.chain.from_iterable(meant))


@pytest.mark.parametrize("with_users", [False, True], ids=["bare", "with users"])
@pytest.mark.parametrize("seed", seeds(30, sampled=10))
def test_what_is_made_ready_changes_nothing_but_when_work_is_done(
    seed: int, with_users: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One machine applies at once, key by key; one makes ready, and is looked at and tidied up between the slices."""
    rng = random.Random(seed)
    plain, sliced = StateMachine(), StateMachine()
    hub, batches = WatchHub(sliced), list[WatchBatch]()
    hub.add(PREFIX + b"d/1", PREFIX + b"d/3", 0, batches.append)
    expected = list[object]()
    hubs, told = (WatchHub(plain), hub), [[list[WatchBatch]() for _ in WHERES] for _ in range(2)]
    for machine in (plain, sliced):
        for field_set in (PODS, NODES, OWNERS):
            machine.apply(DeclareFields(field_set))
        session = cast(SessionResult, machine.apply(OpenSession(1))).id
        for change in USERS if with_users else ():
            machine.apply(change)
    for each, sinks in zip(hubs, told):
        for (prefix, asked), sink in zip(WHERES, sinks):
            each.add(prefix, prefix + b"z", 0, sink.append, Where((asked,)))
    for number in range(40):
        for machine in (plain, sliced):
            machine.apply(Put(PREFIX + b"d/%02d" % number, b"{}"))
    for each in hubs:
        each.notify()
    batches.clear()
    prepared = late = 0
    for _ in range(100):
        command = drawn(rng, plain.revision, session)
        if with_users:
            command = by_somebody(rng, command, plain.auth.revision)
        large_from(monkeypatch, LARGE_KEYS)
        before = seen(sliced)
        wanted = outcome(plain, command)
        hubs[0].notify()
        large_from(monkeypatch, 3)
        if (steps := sliced.ahead.prepare(command)) is not None:
            prepared += 1
            for _ in steps:
                assert seen(sliced) == before
                sliced.trim(1)
                sliced.build_indexes(rng.randrange(4))
            assert sliced.ahead.prepare(command) is None, "it is ready"
        assert outcome(sliced, command) == wanted
        sliced.ahead.ready = None
        hub.notify()
        late = late or hub.behind
        hub.catch_up(rng.choice((1, 10, 100)))
        expected += [event for event in plain.last_events if PREFIX + b"d/1" <= event.kv.key < PREFIX + b"d/3"]
        assert sliced.trim(1 << 20) == plain.trim(1 << 20) == 0
        assert seen(sliced) == seen(plain)
    while hub.catch_up(1):
        pass
    # Nothing is made ready for who may not.
    assert (prepared and late) or with_users
    assert [event for batch in batches for event in batch.events] == expected
    by_plain, by_sliced = ([[event for batch in sink for event in batch.events] for sink in sinks] for sinks in told)
    assert by_plain == by_sliced
    for whole, sink in zip(*told):
        assert_no_revision_is_divided(whole, sink)
    assert any(by_plain)
    assert not sliced.tables.degraded


def test_a_slice_ends_so_many_keys_and_no_more() -> None:
    machine = StateMachine()
    for number in range(LARGE_KEYS + 10):
        machine.apply(Put(b"/k/%06d" % number, b"v"))
    assert machine.ahead.prepare(DeleteRange(b"/k/000001", b"/k/000100")) is None
    steps = machine.ahead.prepare(DeleteRange(b"/k/", b"/k0"))
    assert steps is not None
    assert len(list(steps)) == (LARGE_KEYS + 9) // KEYS_PER_SLICE
    assert machine.range(RangeRequest(b"/k/", b"/k0", count_only=True)).count == LARGE_KEYS + 10


def test_deletions_of_one_txn_are_bounded_together_before_the_log() -> None:
    machine = StateMachine()
    for number in range(DELETED_MAX // 2 + 1):
        machine.apply(Put(b"/k/%06d" % number, b"v"))
    one = Txn(success=(DeleteRange(b"/k/", b"/k0"),))
    two = Txn(success=(DeleteRange(b"/k/", b"/k0"),), failure=(Txn(success=(DeleteRange(b"/", FROM_KEY),)),))
    for txn in (one, two):
        validate(txn)
    check_deletions(one, machine.index)
    with pytest.raises(InvalidRequest, match=f"end {2 * (DELETED_MAX // 2 + 1)} keys, the limit is {DELETED_MAX}"):
        check_deletions(two, machine.index)
    machine.apply(two)
    assert machine.range(RangeRequest(b"/k/", b"/k0", count_only=True)).count == 0, "a log that has it has it"


def calls_of(work: Callable[..., object], *arguments: object) -> int:
    """Calls of Python functions in it."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work(*arguments)
    finally:
        sys.setprofile(None)
    return calls


def test_the_last_step_runs_no_python_for_each_row_and_each_slice_has_its_share() -> None:
    counted = {}
    for pods in (LARGE_KEYS, 3 * LARGE_KEYS):
        machine = StateMachine()
        for field_set in (PODS, NODES, OWNERS):
            machine.apply(DeclareFields(field_set))
        for number in range(1500):
            machine.apply(Put(NODE + b"n%d" % number, b"{}"))
        for number in range(pods):
            spec = b'{"spec":{"nodeName":"n%d","weight":1,"owner":"n"}}' % (number % 1500)
            machine.apply(Put(PREFIX + b"d/%06d" % number, spec))
        machine.apply(DeclareIndex(INDEXES[0]))
        while machine.build_indexes(1000):
            pass
        asked = RangeRequest(PREFIX, PREFIX + b"z", where=Where((WHERES[0][1],)))
        assert len(machine.range(asked).kvs) == len(range(1, pods, 1500))
        deletion = DeleteRange(PREFIX, PREFIX + b"z")
        steps = machine.ahead.prepare(deletion)
        assert steps is not None
        slices = []
        while (calls := calls_of(next, steps, None)) > 1:
            slices.append(calls)
        assert max(slices) < 12 * max(ROWS_PER_SLICE, KEYS_PER_SLICE)
        counted[pods] = calls_of(machine.apply, deletion)
        assert machine.tables.by_name["nodes"].index.changes == 3000 + pods
        cleared = [calls_of(machine.build_indexes, 500)]
        while machine.tables.unbuilt:
            cleared.append(calls_of(machine.build_indexes, 500))
        assert max(cleared) < 2000
        assert not machine.range(asked).kvs
        given_back = machine.tables.by_name["pods"].index.key_order.removed
        given_back.clear()
        machine.apply(Compact(machine.revision))
        assert len(given_back) == min(pods, FORGET_PER_COMPACT)
        machine.apply(Put(PREFIX + b"d/000001", b"{}"))
        assert len(given_back) == min(pods, FORGET_PER_COMPACT + FORGET_PER_APPLY)
    # Blocks of the sorted keys are left.
    assert counted[3 * LARGE_KEYS] - counted[LARGE_KEYS] < LARGE_KEYS // 50


def deleted_before_watches(pods: int, watches: int) -> tuple[WatchHub, list[list[WatchBatch]]]:
    """Those on a node, and the nodes' load, are watched `watches` times each; nobody has been notified."""
    machine = StateMachine()
    hub, told = WatchHub(machine), [list[WatchBatch]() for _ in range(2 * watches)]
    for field_set in (PODS, NODES):
        machine.apply(DeclareFields(field_set))
    for number in range(1500):
        machine.apply(Put(NODE + b"n%d" % number, b"{}"))
    for number in range(pods):
        spec = b'{"spec":{"nodeName":"n%d","weight":1}}' % (number % 1500)
        machine.apply(Put(PREFIX + b"d/%06d" % number, spec))
    hub.notify()
    for each, sink in enumerate(told):
        prefix, asked = WHERES[1] if each % 2 else (NODE, Comparison("load", ">=", ("1",)))
        hub.add(prefix, prefix + b"z", 0, sink.append, Where((asked,)))
    machine.apply(DeleteRange(PREFIX, PREFIX + b"z"))
    return hub, told


def test_a_watch_by_fields_looks_at_a_share_of_a_large_deletion_in_each_step() -> None:
    at_once, sliced = {}, {}
    for pods, watches in ((LARGE_KEYS, 1), (4 * LARGE_KEYS, 1), (4 * LARGE_KEYS, 10)):
        hub, told = deleted_before_watches(pods, watches)
        at_once[pods, watches] = calls_of(hub.notify)
        steps = [calls_of(hub.catch_up)]
        while hub.behind:
            steps.append(calls_of(hub.catch_up))
        assert max(steps) < 5 * CATCH_UP_BUDGET // STEP_COST
        sliced[pods, watches] = sum(steps)
        for each, sink in enumerate(told):
            [batch] = sink
            assert len(batch.events) == (pods - len(range(1, pods, 1500)) if each % 2 else 1500)
            assert batch.revision == hub.revision
    assert at_once[4 * LARGE_KEYS, 1] < at_once[LARGE_KEYS, 1] + 10
    # Those that ask alike are answered alike, once.
    assert sliced[4 * LARGE_KEYS, 10] < sliced[4 * LARGE_KEYS, 1] + 1000


def test_what_is_compacted_was_handed_out_to_who_was_in_step() -> None:
    hub, told = deleted_before_watches(LARGE_KEYS, 1)
    hub.notify()
    hub.catch_up(10)
    assert hub.behind == 2 and told == [[], []]
    machine = hub._state
    machine.apply(Put(PREFIX + b"late", b"{}"))
    machine.apply(Compact(machine.revision - 2))
    assert told == [[], []], "nothing that they need is freed"
    machine.apply(Compact(machine.revision))
    while hub.catch_up():
        pass
    seen = [[len(batch.events) for batch in sink if batch.events] for sink in told]
    assert seen == [[1500], [LARGE_KEYS - 2, 1]] and hub.revision == machine.revision
    assert not any(batch.error for sink in told for batch in sink)


def test_what_one_compaction_frees_of_a_large_deletion_has_a_bound() -> None:
    machine, keys = StateMachine(), 3 * TRIM_PER_COMPACT
    for number in range(keys):
        machine.index.put(b"/k/%06d" % number, b"v", 1, 0)
    machine.apply(DeleteRange(b"/k/", b"/k0"))
    machine.apply(Compact(machine.revision))
    assert not machine.index.range_at(b"/k/", b"/k0", machine.revision)
    left = [keys, len(machine.index.history)]
    while machine.trim(1000):
        left.append(len(machine.index.history))
    assert not machine.index.history
    freed = [before - after for before, after in itertools.pairwise(left)]
    assert freed[0] == TRIM_PER_COMPACT + TRIM_PER_APPLY
    assert max(freed[1:]) == 1000
