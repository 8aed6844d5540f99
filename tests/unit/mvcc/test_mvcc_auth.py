"""Users and roles in the replicated state: what is refused, what a snapshot brings back, what counts in the hash."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest, RequestError
from minikube_py.mvcc.auth import (
    DENIED,
    OLD_REVISION,
    READ,
    READWRITE,
    TOKEN,
    USER_EMPTY,
    WRITE,
    Auth,
    Permission,
    User,
)
from minikube_py.mvcc.snapshot import records
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

SOME = st.binary(min_size=1, max_size=2).map(lambda each: bytes(b % 4 + 97 for b in each))
ENDS = st.one_of(SOME, st.just(b""), st.just(FROM_KEY))


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
    again = StateMachine.restore(records(state))
    assert again.hash() == state.hash() and not again.auth.tokens and again.auth.enabled
    assert refusal(again, Put(b"a", b"v")) == DENIED
    state.apply(ChangeAuth("user passwd", "u", secret=b"other"))
    assert not state.auth.tokens and again.hash() != state.hash()
    assert all(record[0] != 9 for part in records(plain) for record in part), "as an earlier release writes it"


@given(st.lists(st.tuples(SOME, ENDS), max_size=5), SOME, ENDS)
def test_a_range_is_covered_by_permissions_that_touch(
    granted: list[tuple[bytes, bytes]], key: bytes, end: bytes
) -> None:
    """Against each key of a small world, one by one."""
    world = [bytes([a]) for a in range(96, 103)] + [bytes([a, b]) for a in range(96, 103) for b in (0, *range(96, 103))]

    def holds(start: bytes, range_end: bytes, each: bytes) -> bool:
        return each == start if not range_end else start <= each and (range_end == FROM_KEY or each < range_end)

    granted = [each for each in granted if each[1] in (b"", FROM_KEY) or each[0] < each[1]]
    auth = Auth()
    auth.users["u"] = User(("r",))
    auth.roles["r"] = tuple(Permission(READ, *each) for each in granted)
    auth.enabled = True
    asked = [each for each in world if holds(key, end, each)]
    covered = bool(asked) and all(any(holds(*each, one) for each in granted) for one in asked)
    open_ended = end != FROM_KEY or any(each[1] == FROM_KEY for each in granted)
    try:
        auth.check_read("u", 1, key, end)
        assert covered or not asked
    except InvalidRequest as error:
        assert str(error) == DENIED
        # Keys between two points of a world are not all in it.
        assert not (covered and open_ended and not end)
