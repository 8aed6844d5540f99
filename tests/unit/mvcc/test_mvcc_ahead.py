"""Deletions of many keys: made ready in slices or not, they come to the same; nobody sees half of one."""

from __future__ import annotations

import random
from typing import cast

import pytest

from minikube_py.errors import InvalidRequest, RequestError
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.mvcc import ahead, state, watch
from minikube_py.mvcc.ahead import KEYS_PER_SLICE, LARGE_KEYS, prepare
from minikube_py.mvcc.auth import READWRITE, ROOT
from minikube_py.mvcc.budgets import DELETED_MAX, check_deletions
from minikube_py.mvcc.codec import USER_COMMANDS
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    FROM_KEY,
    AsUser,
    ChangeAuth,
    Command,
    Compact,
    DeclareFields,
    DeleteRange,
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
from minikube_py.mvcc.watch import WatchHub

PREFIX = b"/registry/pods/"
PODS = FieldSet("pods", PREFIX, (FieldSpec("node", "string", "path@1", {"path": "spec.nodeName"}),))


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
    kind = rng.randrange(12)
    if kind < 6:
        value = b'{"metadata":{"name":"x"},"spec":{"nodeName":"n%d"}}' % rng.randrange(3)
        return Put(keys(rng), value, rng.choice((0, 0, 1, 2)))
    if kind == 6:
        return LeaseRevoke(rng.choice((1, 2)))
    if kind == 7:
        return LeaseGrant(rng.choice((1, 2)), 60)
    if kind == 8:
        return Compact(rng.randint(1, revision))
    low, high = sorted((keys(rng), keys(rng)))
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
    where = machine.range(RangeRequest(PREFIX, PREFIX + b"z", where=Where((Comparison("node", "=", ("n1",)),)))).kvs
    leases = [(lease, machine.lease_keys(lease)) for lease, _ in machine.leases()]
    return machine.hash(), machine.data_bytes, past, counts, where, leases, machine.last_events


@pytest.mark.parametrize("with_users", [False, True], ids=["bare", "with users"])
@pytest.mark.parametrize("seed", range(30))
def test_what_is_made_ready_changes_nothing_but_when_work_is_done(
    seed: int, with_users: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One machine applies at once, key by key; one makes ready, and is looked at and tidied up between the slices."""
    rng = random.Random(seed)
    plain, sliced = StateMachine(), StateMachine()
    hub, batches = WatchHub(sliced), list[WatchBatch]()
    hub.add(PREFIX + b"d/1", PREFIX + b"d/3", 0, batches.append)
    expected = list[object]()
    for machine in (plain, sliced):
        machine.apply(DeclareFields(PODS))
        session = cast(SessionResult, machine.apply(OpenSession(1))).id
        for change in USERS if with_users else ():
            machine.apply(change)
    for number in range(40):
        for machine in (plain, sliced):
            machine.apply(Put(PREFIX + b"d/%02d" % number, b"{}"))
    hub.notify()
    batches.clear()
    prepared = 0
    for _ in range(150):
        command = drawn(rng, plain.revision, session)
        if with_users:
            command = by_somebody(rng, command, plain.auth.revision)
        at_once = dict.fromkeys((ahead, state, watch), LARGE_KEYS)
        for module, large in at_once.items():
            monkeypatch.setattr(module, "LARGE_KEYS", large)
        before = seen(sliced)
        wanted = outcome(plain, command)
        for module in at_once:
            monkeypatch.setattr(module, "LARGE_KEYS", 3)
        monkeypatch.setattr(ahead, "KEYS_PER_SLICE", 2)
        if (steps := prepare(sliced, command)) is not None:
            prepared += 1
            for _ in steps:
                assert seen(sliced) == before
                sliced.trim(1)
            assert prepare(sliced, command) is None, "it is ready"
        assert outcome(sliced, command) == wanted
        sliced.endings = None
        hub.notify()
        expected += [event for event in plain.last_events if PREFIX + b"d/1" <= event.kv.key < PREFIX + b"d/3"]
        assert sliced.trim(1 << 20) == plain.trim(1 << 20) == 0
        assert seen(sliced) == seen(plain)
    # Nothing is made ready for who may not.
    assert prepared or with_users
    assert [event for batch in batches for event in batch.events] == expected


def test_a_slice_ends_so_many_keys_and_no_more() -> None:
    machine = StateMachine()
    for number in range(LARGE_KEYS + 10):
        machine.apply(Put(b"/k/%06d" % number, b"v"))
    assert prepare(machine, DeleteRange(b"/k/000001", b"/k/000100")) is None
    steps = prepare(machine, DeleteRange(b"/k/", b"/k0"))
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
