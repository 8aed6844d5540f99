"""A limit is where it says: what has exactly so much is taken, one more is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import edges
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest
from minikube_py.fields.spec import FieldSet, FieldSpec, SumSpec
from minikube_py.fields.where import MAX_COMPARISONS, MAX_VALUES, Comparison, Where
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc import auth, budgets
from minikube_py.mvcc.auth import Auth
from minikube_py.mvcc.budgets import check_deletions
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.txn import MAX_TXN_OPS
from minikube_py.mvcc.types import (
    AsUser,
    ChangeAuth,
    Compact,
    Compare,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    InSession,
    LeaseCheckpoint,
    LeaseGrant,
    LeaseRevoke,
    Op,
    OpenSession,
    Put,
    RangeRequest,
    Release,
    SetAlarm,
    Txn,
)
from minikube_py.mvcc.validate import (
    AUTH_BYTES_MAX,
    FIELDS_MAX,
    INT64_MAX,
    INT64_MIN,
    NAME_CHARS_MAX,
    TXN_OPS_TOTAL,
    WHERE_CHARS_MAX,
    validate,
    validate_own,
)

PUT = Put(b"a", b"")


def taken(request: Any) -> bool:
    try:
        (validate_own if type(request) is SetAlarm else validate)(request)
    except InvalidRequest:
        return False
    return True


def of_total(size: int) -> Txn:
    """A txn with so many operations and compares in all, none of its levels too wide, some of them in each branch."""
    branches: list[Txn] = []
    left = size
    while left > 0:
        inside = min(60, left - 1)
        compares = tuple(Compare(b"a", "MOD", "=", 1) for _ in range(inside // 3))
        reads: tuple[Op, ...] = tuple(RangeRequest(b"%d" % at) for at in range(inside // 3))
        rest: tuple[Op, ...] = tuple(RangeRequest(b"%d" % at) for at in range(inside - 2 * (inside // 3)))
        branches.append(Txn(compares, reads, rest))
        left -= inside + 1
    half = len(branches) // 2
    return Txn((), tuple(branches[:half]), tuple(branches[half:]))


def declared(part: str) -> Callable[[int], Any]:
    def made(size: int) -> Any:
        text = "x" * size
        field = FieldSpec("f", "int", "path@1")
        total = SumSpec("s", b"/", "r", "pod_requests@1")
        sets: dict[str, FieldSet] = {
            "name": FieldSet(text, b"/", ()),
            "prefix": FieldSet("n", text.encode(), ()),
            "field": FieldSet("n", b"/", (field, FieldSpec(text, "int", "path@1"))),
            "extractor": FieldSet("n", b"/", (FieldSpec("f", "int", text), field)),
            "argument": FieldSet("n", b"/", (field, FieldSpec("f", "int", "path@1", {text: "y"}))),
            "value": FieldSet("n", b"/", (FieldSpec("f", "int", "path@1", {"a": "b", "path": text}),)),
            "sum": FieldSet("n", b"/", (), (total, SumSpec(text, b"/", "r", "pod_requests@1"))),
            "source": FieldSet("n", b"/", (), (SumSpec("s", text.encode(), "r", "pod_requests@1"), total)),
            "reference": FieldSet("n", b"/", (), (SumSpec("s", b"/", text, "pod_requests@1"),)),
        }
        return DeclareFields(sets[part])

    return made


def index(size: int, part: str) -> DeclareIndex:
    text = "x" * size
    field = FieldSpec(text, "int", "path@1")
    specs = {
        "declares": IndexSpec("i", "n", (), "columns", declares=(field,)),
        "sums": IndexSpec("i", "n", (), "columns", sums=(SumSpec(text, b"/", "r", "pod_requests@1"),)),
        "option": IndexSpec("i", "n", (), "columns", {"a": 1, text: 1}),
    }
    return DeclareIndex(specs[part])


def where(*comparisons: Comparison) -> RangeRequest:
    return RangeRequest(b"a", where=Where(comparisons))


LIMITS: dict[str, tuple[int, Callable[[int], Any]]] = {
    "operations of a txn": (TXN_OPS_TOTAL, of_total),
    "operations of a release": (TXN_OPS_TOTAL, lambda size: Release(of_total(size))),
    "successes": (MAX_TXN_OPS, lambda size: Txn(success=(RangeRequest(b"a"),) * size)),
    "failures": (MAX_TXN_OPS, lambda size: Txn(failure=(RangeRequest(b"a"),) * size)),
    "compares": (MAX_TXN_OPS, lambda size: Txn((Compare(b"a", "MOD", "=", 1),) * size)),
    "levels": (MAX_TXN_OPS - 1, lambda size: edges.deep_txn(size, PUT)),
    "comparisons": (MAX_COMPARISONS, lambda size: where(*(Comparison("x", "exists"),) * size)),
    "values": (MAX_VALUES, lambda size: where(Comparison("x", "in", ("1",) * size))),
    "chars of a where": (
        WHERE_CHARS_MAX,
        lambda size: where(Comparison("ab", "in", ("1", "2" * 9)), Comparison("x" * 50, "=", ("1" * (size - 62),))),
    ),
    "fields": (FIELDS_MAX, lambda size: RangeRequest(b"a", fields=("x",) * size)),
    "chars of fields": (WHERE_CHARS_MAX, lambda size: RangeRequest(b"a", fields=("abc", "x" * (size - 3)))),
    "name to drop": (NAME_CHARS_MAX, lambda size: DropIndex("x" * size)),
    "kind of an alarm": (NAME_CHARS_MAX, lambda size: SetAlarm(True, 1, "x" * size)),
    "user": (NAME_CHARS_MAX, lambda size: AsUser("x" * size, 1, PUT)),
    "action": (NAME_CHARS_MAX, lambda size: ChangeAuth("x" * size)),
    "name of a user": (NAME_CHARS_MAX, lambda size: ChangeAuth("user add", "x" * size)),
    "name of a role": (NAME_CHARS_MAX, lambda size: ChangeAuth("role add", "u", "x" * size)),
    "key of a permission": (AUTH_BYTES_MAX, lambda size: ChangeAuth("role grant-permission", key=bytes(size))),
    "end of a permission": (AUTH_BYTES_MAX, lambda size: ChangeAuth("role grant-permission", range_end=bytes(size))),
    "secret": (AUTH_BYTES_MAX, lambda size: ChangeAuth("user add", secret=bytes(size))),
    **{
        f"declared {part}": (NAME_CHARS_MAX, declared(part))
        for part in ("name", "prefix", "field", "extractor", "argument", "value", "sum", "source", "reference")
    },
    **{
        f"index {part}": (NAME_CHARS_MAX, lambda size, part=part: index(size, part))
        for part in ("declares", "sums", "option")
    },
}


@pytest.mark.parametrize("name", LIMITS)
def test_what_has_as_much_as_may_be_is_taken_and_one_more_is_not(name: str) -> None:
    limit, made = LIMITS[name]
    assert taken(made(limit - 1)) and taken(made(limit)) and not taken(made(limit + 1))


NUMBERS: dict[str, Callable[[int], Any]] = {
    "lease of a put": lambda n: Put(b"a", b"", lease=n),
    "lease inside": lambda n: Txn(failure=(Txn(success=(PUT, Put(b"b", b"", lease=n))),)),
    "limit": lambda n: RangeRequest(b"a", limit=n),
    "revision": lambda n: RangeRequest(b"a", revision=n),
    "min mod": lambda n: RangeRequest(b"a", min_mod_revision=n),
    "max mod": lambda n: RangeRequest(b"a", max_mod_revision=n),
    "min create": lambda n: RangeRequest(b"a", min_create_revision=n),
    "max create": lambda n: RangeRequest(b"a", max_create_revision=n),
    "limit inside": lambda n: Txn(success=(RangeRequest(b"a"), RangeRequest(b"b", limit=n))),
    "operand": lambda n: Txn((Compare(b"a", "MOD", "=", 1), Compare(b"a", "VERSION", "=", n))),
    "granted lease": lambda n: LeaseGrant(n, 1),
    "TTL": lambda n: LeaseGrant(1, n),
    "revoked lease": lambda n: LeaseRevoke(n),
    "checkpoint's lease": lambda n: LeaseCheckpoint(n, 1),
    "checkpoint": lambda n: LeaseCheckpoint(1, n),
    "compaction": lambda n: Compact(n),
    "client": lambda n: OpenSession(n),
    "option": lambda n: DeclareIndex(IndexSpec("i", "n", (), "columns", {"a": "b", "o": n})),
    "memory": lambda n: DeclareIndex(IndexSpec("i", "n", (), "columns", memory_limit_bytes=n)),
    "kind of a permission": lambda n: ChangeAuth("role grant-permission", kind=n),
    "revision of users": lambda n: AsUser("u", n, PUT),
    "in a session": lambda n: InSession(1, 1, 1, Put(b"a", b"", lease=n)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_may_be_as_large_as_they_are_on_the_wire(name: str) -> None:
    made = NUMBERS[name]
    for number in (INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX):
        assert taken(made(number)), number
    for number in (INT64_MIN - 1, INT64_MAX + 1, 1 << 70, -1 << 70):
        assert not taken(made(number)), number


@given(st.lists(st.sampled_from([0, 1, INT64_MAX, INT64_MAX + 1, INT64_MIN - 1]), min_size=3, max_size=3))
def test_numbers_of_a_session_are_judged_each_by_itself(numbers: list[int]) -> None:
    session, sequence, acknowledged = numbers
    assert taken(InSession(session, sequence, acknowledged, PUT)) == all(0 <= each <= INT64_MAX for each in numbers)


@pytest.mark.parametrize(("member", "fits"), [(-1, False), (0, True), (INT64_MAX, True), (INT64_MAX + 1, False)])
def test_an_alarm_is_of_a_member_or_of_nobody(member: int, fits: bool) -> None:
    assert taken(SetAlarm(True, member, "NOSPACE")) == fits


# -- what the state bounds ---------------------------------------------------------------------------------------------


def applied(state: StateMachine, command: Any) -> bool:
    try:
        state.apply(command)
    except InvalidRequest:
        return False
    return True


KEYS = 12


def filled() -> StateMachine:
    state = StateMachine()
    for at in range(KEYS):
        state.apply(Put(b"k%02d" % at, b"value"))
    return state


ALL = RangeRequest(b"k", b"l")
COMPARE = Compare(b"k", "VERSION", ">", 0, b"l")
PAIRS: dict[str, tuple[str, int, Txn]] = {
    "two ranges": ("KEYS_MAX", KEYS, Txn((), (ALL, ALL))),
    "three ranges": ("KEYS_MAX", 2 * KEYS, Txn((), (ALL, Txn((), (ALL, ALL))))),
    "a range and keys": ("KEYS_MAX", 1, Txn((), (RangeRequest(b"a"), RangeRequest(b"k00"), ALL))),
    "of the past": ("KEYS_MAX", KEYS, Txn((), (ALL._replace(revision=5), ALL._replace(revision=6)))),
    "limited": ("KEYS_MAX", 4, Txn((), (ALL, ALL._replace(limit=3)))),
    "limited, what is deleted makes room": (
        "KEYS_MAX",
        5,
        Txn((), (DeleteRange(b"k00"), RangeRequest(b"k01", b"l"), RangeRequest(b"k01", b"l", limit=3))),
    ),
    "with its own puts": ("KEYS_MAX", KEYS + 2, Txn((), (Put(b"k5x", b""), Put(b"kz", b""), Put(b"m", b""), ALL, ALL))),
    "from a key on": (
        "KEYS_MAX",
        KEYS + 1,
        Txn((), (Put(b"m", b""), RangeRequest(b"k", b"\0"), RangeRequest(b"k", b"\0"))),
    ),
    "bytes": ("BYTES_MAX", KEYS * 8, Txn((), (ALL, ALL))),
    "bytes of keys": ("BYTES_MAX", KEYS * 3, Txn((), (ALL, ALL._replace(keys_only=True)))),
    "bytes with its own puts": ("BYTES_MAX", KEYS * 8 + 7, Txn((), (Put(b"kz", b"value"), Put(b"l", b"v"), ALL, ALL))),
    "bytes of keys with its own puts": (
        "BYTES_MAX",
        KEYS * 3 + 7,
        Txn((), (Put(b"kz", b"value"), ALL, ALL._replace(keys_only=True))),
    ),
    "bytes of the past": ("BYTES_MAX", 5 * 8, Txn((), (ALL, ALL._replace(revision=6)))),
    "counts take no bytes": ("BYTES_MAX", 0, Txn((), (ALL, ALL._replace(count_only=True)))),
    "compares": ("KEYS_MAX", 2 * KEYS, Txn((COMPARE, COMPARE, Compare(b"a", "VERSION", "=", 0)))),
    "compares in branches": ("KEYS_MAX", 3 * KEYS, Txn((COMPARE,), (Txn((COMPARE,)),), (ALL, Txn((COMPARE,))))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_one_txn_reads_may_be_as_much_as_the_limit_and_no_more(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each limit is put to exactly what the txn reads, and to one less."""
    limit, exact, txn = PAIRS[name]
    monkeypatch.setattr(budgets, limit, exact)
    assert applied(filled(), txn)
    monkeypatch.setattr(budgets, limit, exact - 1)
    state = filled()
    before = state.hash()
    assert not applied(state, txn) and state.hash() == before


@pytest.mark.parametrize(
    ("txn", "keys"),
    [
        (Txn((), (DeleteRange(b"k", b"l"),)), KEYS),
        (Txn((), (), (DeleteRange(b"k04", b"k07"), DeleteRange(b"k07", b"k09"))), 5),
        (Txn((), (DeleteRange(b"k00"), Txn((), (DeleteRange(b"k04", b"\0"),))), (DeleteRange(b"a", b"z"),)), 20),
    ],
    ids=["one range", "two ranges", "all branches"],
)
def test_what_the_deletions_of_a_txn_end_is_counted_to_the_key(
    txn: Txn, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = filled()
    validate(txn)
    monkeypatch.setattr(budgets, "DELETED_MAX", keys)
    check_deletions(txn, state.index)
    monkeypatch.setattr(budgets, "DELETED_MAX", keys - 1)
    with pytest.raises(InvalidRequest, match=f"end {keys} keys, the limit is {keys - 1}"):
        check_deletions(txn, state.index)


CHANGES = st.one_of(
    st.builds(ChangeAuth, st.just("user add"), st.sampled_from(["u", "ü"]), secret=st.binary(max_size=9)),
    st.builds(ChangeAuth, st.just("user add"), st.sampled_from(["u", "bare"]), bare=st.just(True)),
    st.builds(ChangeAuth, st.just("user passwd"), st.sampled_from(["u", "ü", "bare"]), secret=st.binary(max_size=9)),
    st.builds(ChangeAuth, st.just("role add"), st.sampled_from(["r", "rôle"])),
    st.builds(ChangeAuth, st.just("user grant-role"), st.sampled_from(["u", "ü"]), st.sampled_from(["r", "rôle"])),
    st.builds(ChangeAuth, st.just("user revoke-role"), st.sampled_from(["u", "ü"]), st.sampled_from(["r", "rôle"])),
    st.builds(ChangeAuth, st.just("user delete"), st.sampled_from(["u", "ü"])),
    st.builds(ChangeAuth, st.just("role delete"), st.sampled_from(["r", "rôle"])),
    st.builds(
        ChangeAuth, st.sampled_from(["role grant-permission", "role revoke-permission"]),
        st.sampled_from(["r", "rôle"]), key=st.sampled_from([b"a", b"bb"]), range_end=st.sampled_from([b"", b"ccc"]),
    ),
)  # fmt: skip


def room(state: Auth) -> tuple[int, int]:
    """Entries and bytes of all that is there, from the records that a snapshot gets."""
    entries = size_bytes = 0
    for _, _, users, roles in state.records():
        for name, granted, password, _ in users:
            entries += 1 + len(granted)
            size_bytes += len("".join([name, *granted]).encode()) + len(password)
        for name, permissions in roles:
            entries += 1 + len(permissions)
            size_bytes += len(name.encode()) + sum(len(key) + len(end) for _, key, end in permissions)
    return entries, size_bytes


@given(st.lists(CHANGES, max_size=25), st.integers(1, 8), st.integers(1, 30))
def test_users_and_roles_take_no_more_than_they_may_and_nothing_that_fits_is_refused(
    changes: list[ChangeAuth], entries_max: int, bytes_max: int
) -> None:
    """Beside a twin without limits: what it takes is taken as long as there is room for all, and refused otherwise."""
    bounded, free = Auth(), Auth()
    with pytest.MonkeyPatch.context() as patch:
        for change in changes:
            free.load(bounded.records())
            patch.setattr(auth, "ENTRIES_MAX", 1 << 60)
            patch.setattr(auth, "BYTES_MAX", 1 << 60)
            before = room(free)
            try:
                free.change(change)
            except InvalidRequest:
                continue
            after = room(free)
            patch.setattr(auth, "ENTRIES_MAX", entries_max)
            patch.setattr(auth, "BYTES_MAX", bytes_max)
            fits = (after[0] <= entries_max or after[0] <= before[0]) and (
                after[1] <= bytes_max or after[1] <= before[1]
            )
            try:
                bounded.change(change)
            except InvalidRequest:
                assert not fits
            else:
                assert fits and bounded.records() == free.records()
