"""Behind a gap of nothing salvage guesses nothing: whatever commands come, what it says of keys, leases, declarations
and users is what applying them says."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from minikube_py.errors import RequestError, SessionExpired
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    AsUser,
    ChangeAuth,
    CloseSession,
    Compact,
    Compare,
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
    Txn,
)
from minikube_py.store.behind_gaps import BehindGaps
from minikube_py.wal.recovery import LogEntry

KEYS = st.sampled_from([b"/t/a", b"/t/b", b"/t/c", b"/t/cc"])
ENDS = st.sampled_from([b"", b"", b"\0", b"/t/d", b"/u"])
THINGS = FieldSet("things", b"/t/", (FieldSpec("n", "int", "path@1", {"path": "n"}),))
OTHERS = FieldSet("others", b"/o/", (FieldSpec("n", "int", "path@1", {"path": "n"}),))
PUTS = st.builds(
    lambda key, value, lease: Put(key, value, lease), KEYS, st.sampled_from([b"1", b"2", b'{"n":3}']),
    st.sampled_from([0, 0, 1, 2, 3]),
)  # fmt: skip
DELETES = st.builds(lambda key, end: DeleteRange(key, end), KEYS, ENDS)
OPS = st.one_of(PUTS, DELETES, st.builds(lambda key, end: RangeRequest(key, end), KEYS, ENDS))
COMPARES = st.one_of(
    st.builds(Compare, KEYS, st.just("VALUE"), st.sampled_from(["=", "!="]), st.sampled_from([b"1", b"2"]), ENDS),
    st.builds(
        Compare, KEYS, st.sampled_from(["MOD", "CREATE", "VERSION", "LEASE"]), st.sampled_from(["=", "!=", "<", ">"]),
        st.integers(0, 6), ENDS,
    ),
)  # fmt: skip


def one_each(ops: list[Any]) -> tuple[Any, ...]:
    """No key is put twice, or deleted too: that is refused, and an own test's business."""
    found: list[Any] = []
    for op in ops:
        puts = {each.key for each in found if type(each) is Put}
        if type(op) is RangeRequest or (not any(type(each) is DeleteRange for each in found) and op.key not in puts):
            found.append(op) if type(op) is not DeleteRange or not puts else None
    return tuple(found)


TXNS = st.builds(
    Txn,
    st.lists(COMPARES, max_size=2).map(tuple),
    st.lists(OPS, max_size=3).map(one_each),
    st.lists(OPS, max_size=3).map(one_each),
)
AUTH = st.sampled_from(
    [
        ChangeAuth("user add", "u", secret=b"s"),
        ChangeAuth("user add", "root", secret=b"s"),
        ChangeAuth("role add", role="r"),
        ChangeAuth("role grant-permission", role="r", kind=2, key=b"/t/", range_end=b"/t0"),
        ChangeAuth("user grant-role", "u", "r"),
        ChangeAuth("user delete", "u"),
        ChangeAuth("role delete", role="r"),
    ]
)
WRITES = st.one_of(
    PUTS,
    PUTS,
    DELETES,
    TXNS,
    TXNS,
    st.builds(LeaseGrant, st.integers(1, 2), st.just(30)),
    st.sampled_from([DeclareFields(THINGS), DeclareFields(OTHERS)]),
    st.sampled_from([DeclareIndex(IndexSpec("i", each, ("n",), "columns")) for each in ("things", "others")]),
    st.just(DropIndex("i")),
    st.just(Compact(2)),
    AUTH,
)
SESSION = StateMachine().apply(OpenSession(5)).id  # type: ignore[union-attr]
COMMANDS = st.one_of(
    WRITES,
    WRITES,
    st.builds(InSession, st.just(SESSION), st.integers(1, 3), st.just(1), PUTS),
    st.just(CloseSession(77)),
    st.builds(AsUser, st.just("u"), st.integers(0, 9), PUTS),
)


BEHIND = st.one_of(COMMANDS, st.builds(lambda id: LeaseRevoke(id), st.integers(1, 2)))


def applied(state: StateMachine, command: Any) -> None:
    try:
        state.apply(command)
    except (RequestError, SessionExpired):
        pass


def shown(state: StateMachine) -> dict[str, Any]:
    return {
        "keys": dict(state.index.current),
        "leases": state.leases(),
        "attached": {id: state.lease_keys(id) for id, _ in state.leases()},
        "fields": dict(state.tables.declared),
        "indexes": state.tables.specs,
        "revision": state.revision,
        "version": state.version,
        "auth": list(state.auth.records()),
    }


@given(st.lists(COMMANDS, max_size=8), st.lists(BEHIND, max_size=8))
@example([], [Txn((Compare(b"/t/a", "MOD", "=", 2),))])
@example([], [Put(b"x", b"1"), Txn((Compare(b"x", "MOD", "=", 2),), (Put(b"/t/a", b"1"),), (Put(b"/t/b", b"1"),))])
def test_without_a_gap_what_is_behind_it_is_what_applying_says(before: list[Any], behind: list[Any]) -> None:
    exact, whole = StateMachine(), StateMachine()
    commands = [OpenSession(5), LeaseGrant(1, 30), LeaseGrant(2, 30), DeclareFields(THINGS), *before]
    for command in commands:
        applied(exact, command)
        applied(whole, command)
    for command in behind:
        applied(whole, command)
    rest = BehindGaps(exact)
    first = len(commands) + 1
    rest.run([LogEntry(1, first + at, pack(command)) for at, command in enumerate(behind)], 0)
    found, wanted = shown(rest.state()), shown(whole)
    assert found == wanted
    assert rest.unsure_changes == [] and rest.auth_sure and not rest.auth_lost
