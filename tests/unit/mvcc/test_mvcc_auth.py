"""Users and roles in the replicated state: what is refused, what a snapshot brings back, what counts in the hash."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest, RequestError
from minikube_py.mvcc import ahead
from minikube_py.mvcc.auth import (
    BYTES_MAX,
    DENIED,
    ENTRIES_MAX,
    OLD_REVISION,
    READ,
    READWRITE,
    TOKEN,
    TOO_LARGE,
    USER_EMPTY,
    WRITE,
    Auth,
    Permission,
    User,
)
from minikube_py.mvcc.lease import Lease, Leases
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import (
    FROM_KEY,
    AsUser,
    ChangeAuth,
    Compare,
    DeleteRange,
    LeaseGrant,
    LeaseRevoke,
    Put,
    RangeRequest,
    Txn,
)
from minikube_py.mvcc.validate import AUTH_BYTES_MAX, validate


def enabled(*grants: tuple[int, bytes, bytes]) -> StateMachine:
    state = StateMachine()
    for change in (
        ChangeAuth("user add", "root", secret=b"hash"), ChangeAuth("role add", "root"),
        ChangeAuth("user grant-role", "root", "root"), ChangeAuth("user add", "u", secret=b"hash"),
        ChangeAuth("role add", "r"), ChangeAuth("user grant-role", "u", "r"),
        *(ChangeAuth("role grant-permission", "r", "", *each) for each in grants), ChangeAuth("enable"),
    ):  # fmt: skip
        state.apply(change)
    return state


def refusal(state: StateMachine, command: Put | DeleteRange | Txn | LeaseRevoke | ChangeAuth, user: str = "u") -> str:
    before = state.hash()
    try:
        state.apply(AsUser(user, state.auth.revision if user else 0, command))
    except RequestError as error:
        assert state.hash() == before
        return str(error)
    return ""


def test_all_branches_of_a_txn_count_and_what_reads_besides() -> None:
    state = enabled((WRITE, b"a", b"c"), (READ, b"b", b"d"))
    refused = (
        Put(b"c", b"v"), Put(b"a", b"v", prev_kv=True), DeleteRange(b"a", b"d"), DeleteRange(b"a", prev_kv=True),
        DeleteRange(b"b", FROM_KEY), Txn((Compare(b"a", "MOD", "=", 0),)), Txn((), (), (Put(b"c", b"v"),)),
        Txn((), (Txn((), (), (RangeRequest(b"d"),)),)), ChangeAuth("user add", "v"), ChangeAuth("disable"),
    )  # fmt: skip
    allowed = (
        Put(b"a", b"v"), Put(b"b", b"v", prev_kv=True), DeleteRange(b"a", b"c"),
        Txn((Compare(b"b", "MOD", "=", 0),), (Put(b"a", b"v"),), (RangeRequest(b"b", b"d"),)),
    )  # fmt: skip
    assert [refusal(state, each) for each in refused] == [DENIED] * len(refused)
    assert [refusal(state, each) for each in allowed] == [""] * len(allowed)
    assert [refusal(state, each, "root") for each in (refused[0], refused[4], refused[8])] == ["", "", ""]
    assert refusal(state, Put(b"a", b"v"), "") == USER_EMPTY


def test_a_lease_is_ended_only_by_whoever_may_write_all_its_keys() -> None:
    state = enabled((WRITE, b"a", b""))
    state.apply(LeaseGrant(5, 60))
    state.apply(Put(b"z", b"v", lease=5))
    assert refusal(state, LeaseRevoke(5)) == refusal(state, Put(b"a", b"v", lease=5)) == DENIED
    state.apply(DeleteRange(b"z"))
    assert refusal(state, Put(b"a", b"v", lease=5)) == refusal(state, LeaseRevoke(5)) == ""


def test_who_was_looked_up_before_a_change_is_looked_up_again() -> None:
    state = enabled((READWRITE, b"a", b""))
    before = state.auth.revision
    state.apply(ChangeAuth("role revoke-permission", "r", key=b"a"))
    with pytest.raises(InvalidRequest, match=OLD_REVISION):
        state.apply(AsUser("u", before, Put(b"a", b"v")))
    with pytest.raises(InvalidRequest, match=OLD_REVISION):
        state.apply(ChangeAuth(TOKEN, "u", kind=before, secret=b"t.1"))


def test_a_snapshot_brings_users_and_roles_back_but_no_token() -> None:
    state = enabled((READ, b"a", FROM_KEY))
    state.apply(ChangeAuth(TOKEN, "u", kind=state.auth.revision, secret=b"t.1"))
    plain = StateMachine()
    assert state.auth.tokens == {"t.1": "u"} and plain.hash() != state.hash()
    again = restore(records(state))
    assert again.hash() == state.hash() and not again.auth.tokens and again.auth.enabled
    assert refusal(again, Put(b"a", b"v")) == DENIED
    state.apply(ChangeAuth("user passwd", "u", secret=b"other"))
    assert not state.auth.tokens and again.hash() != state.hash()
    assert all(record[0] != 9 for part in records(plain) for record in part), "as an earlier release writes it"


LETTERS = st.sampled_from([bytes([at]) for at in range(97, 101)])
SOME = st.builds(bytes.__add__, LETTERS, st.sampled_from([b"", b"", b"a", b"b", b"\0"]))
BOUNDS = st.tuples(SOME, st.one_of(SOME, st.just(b""), st.just(FROM_KEY)))
TOUCHING = st.lists(SOME, min_size=2, max_size=5, unique=True).map(lambda each: list(pairwise(sorted(each))))
"""Ranges each of which begins where the one before ends."""
WORLD = [start + rest for start in map(bytes, product(range(97, 102))) for rest in (b"", b"\0", b"\0\0", b"\0z", b"a",
         b"a\0", b"a\0z", b"b", b"b\0", b"b\0z", b"z")]  # fmt: skip
"""Between any two bounds of `BOUNDS` there is one of them, unless the second is the first key behind the first."""


def within(bounds: tuple[bytes, bytes]) -> frozenset[bytes]:
    start, end = bounds
    return frozenset(
        [each for each in WORLD if each == start or (end and start <= each and (end == FROM_KEY or each < end))]
    )


@settings(max_examples=400)
@given(st.lists(BOUNDS, max_size=5), TOUCHING | st.just([]), BOUNDS, st.sampled_from([READ, WRITE]))
def test_a_range_may_be_read_where_permissions_cover_it_and_only_there(
    some: list[tuple[bytes, bytes]], touching: list[tuple[bytes, bytes]], asked: tuple[bytes, bytes], kind: int
) -> None:
    """Against each key of a small world, one by one; what has no end needs a permission that has none."""
    granted = [each for each in some if each[1] in (b"", FROM_KEY) or each[0] < each[1]] + touching
    assume(asked[1] in (b"", FROM_KEY) or asked[0] < asked[1])
    auth = Auth()
    auth.users["u"], auth.enabled = User(("r", "other")), True
    auth.roles["r"] = tuple(Permission((kind, READWRITE)[at % 2], *each) for at, each in enumerate(granted[::2]))
    auth.roles["other"] = tuple(Permission(kind, *each) for each in granted[1::2])
    asking = within(asked)
    may = asking <= frozenset[bytes]().union(*map(within, granted))
    may = may and (asked[1] != FROM_KEY or any(each[1] == FROM_KEY for each in granted))
    command = RangeRequest(*asked) if kind == READ else DeleteRange(*asked)
    request = AsUser("u", 1, Txn((), (command,)))
    lease = Lease(1, 60, keys=set(asking))
    for check, right in (
        (lambda: auth.check(request, Leases()), may),
        (lambda: auth.check_lease("u", 1, lease, kind), asking <= frozenset[bytes]().union(*map(within, granted))),
    ):
        try:
            check()
            assert right
        except InvalidRequest as error:
            assert str(error) == DENIED and not right


class Counted(set[bytes]):
    """How often its keys were looked at."""

    looked = 0

    def __iter__(self) -> Iterator[bytes]:
        for each in super().__iter__():
            self.looked += 1
            yield each


@pytest.mark.parametrize("kept", [False, True], ids=["put", "with prev_kv"])
def test_a_txn_looks_at_the_keys_of_a_lease_once(kept: bool) -> None:
    state = enabled((READWRITE, b"a", b"c"))
    state.apply(LeaseGrant(5, 60))
    for at in range(2000):
        state.apply(Put(b"a%04d" % at, b"v", lease=5))
    lease = state.lessor.by_id[5]
    lease.keys = counted = Counted(lease.keys)
    puts = tuple(Put(b"b%04d" % at, b"v", lease=5, prev_kv=kept) for at in range(96))
    assert refusal(state, Txn((), tuple(Txn((), puts[at::4]) for at in range(4)))) == ""
    assert 2000 <= counted.looked <= 2001
    state.apply(Put(b"z", b"v", lease=5))
    assert refusal(state, Txn((), puts)) == refusal(state, LeaseRevoke(5)) == DENIED


def test_what_users_and_roles_take_is_bounded_in_bytes_and_asked_before_the_log() -> None:
    for change in (
        ChangeAuth("role grant-permission", "r", "", READ, bytes(AUTH_BYTES_MAX + 1)),
        ChangeAuth("role grant-permission", "r", "", READ, b"a", bytes(AUTH_BYTES_MAX + 1)),
        ChangeAuth("user add", "v", secret=bytes(AUTH_BYTES_MAX + 1)),
    ):
        for command in (change, AsUser("root", 1, change)):
            with pytest.raises(InvalidRequest, match=f"at most {AUTH_BYTES_MAX} bytes"):
                validate(command)
        validate(change._replace(key=b"", range_end=b"", secret=bytes(AUTH_BYTES_MAX)))
    state = enabled()
    state.apply(ChangeAuth("user add", "bare", bare=True))
    count = 0
    grant = ChangeAuth("role grant-permission", "r", "", READ)
    with pytest.raises(InvalidRequest, match=TOO_LARGE):
        for count in range(ENTRIES_MAX):
            key = b"%04d" % count
            state.apply(
                grant._replace(key=key + bytes(AUTH_BYTES_MAX - 4), range_end=key + b"~" * (AUTH_BYTES_MAX - 4))
            )
    assert count == BYTES_MAX // (2 * AUTH_BYTES_MAX) - 1, "names and hashes count as well"
    state.apply(grant._replace(key=b"~" * AUTH_BYTES_MAX))
    again = restore(records(state))
    for machine in (state, again):
        large = (
            ChangeAuth("user add", "v", secret=bytes(AUTH_BYTES_MAX)), ChangeAuth("role add", "é" * 2048 + "a" * 200),
            ChangeAuth("user passwd", "u", secret=bytes(AUTH_BYTES_MAX)),
            grant._replace(key=b"k" * AUTH_BYTES_MAX),
        )  # fmt: skip
        for change in large:
            before = machine.hash()
            with pytest.raises(InvalidRequest, match=TOO_LARGE):
                machine.apply(change)
            assert machine.hash() == before
        machine.apply(ChangeAuth("user passwd", "u", secret=b""))
        machine.apply(ChangeAuth("user passwd", "bare", secret=bytes(AUTH_BYTES_MAX)))
        machine.apply(ChangeAuth("role grant-permission", "r", "", WRITE, b"a"))
        machine.apply(ChangeAuth("role delete", "r"))
        machine.apply(ChangeAuth("user passwd", "u", secret=bytes(AUTH_BYTES_MAX)))
    assert state.hash() == again.hash()


def test_nothing_is_made_ready_for_who_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "LARGE_KEYS", 2)
    state = enabled((READWRITE, b"a", b"c"))
    for at in range(3):
        state.apply(Put(b"b%d" % at, b"v"))
        state.apply(Put(b"x%d" % at, b"v"))
    revision = state.auth.revision
    assert state.ahead.prepare(AsUser("u", revision, DeleteRange(b"b", b"c"))) is not None
    for denied in (DeleteRange(b"b", b"z"), DeleteRange(b"x", b"y")):
        assert state.ahead.prepare(AsUser("u", revision, denied)) is None
        assert state.ahead.prepare(denied) is not None
