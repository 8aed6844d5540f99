"""What salvage makes of users and roles: what apply refused stays refused, and nothing opens the store in silence."""

from __future__ import annotations

from typing import Any

import pytest

from minikube_py.control_plane.store_salvage import lines, report
from minikube_py.errors import RequestError
from minikube_py.mvcc.auth import ROOT, WRITE
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.snapshot import USERS_AND_ROLES, is_record, records
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import AsUser, ChangeAuth, Command, DeleteRange, LeaseGrant, LeaseRevoke, Put, Txn
from minikube_py.store.behind_gaps import BehindGaps
from minikube_py.store.salvage import _add_rest, _exact
from minikube_py.wal.recovery import LogEntry, SavedState
from minikube_py.wal.salvage import FoundLog, FoundSnapshot, Loss

SETUP = (
    ChangeAuth("user add", ROOT, secret=b"hash"), ChangeAuth("user grant-role", ROOT, ROOT),
    ChangeAuth("user add", "m", secret=b"hash"), ChangeAuth("role add", "r"), ChangeAuth("user grant-role", "m", "r"),
    ChangeAuth("role grant-permission", "r", "", WRITE, b"own/", b"own0"), LeaseGrant(5, 60),
    Put(b"secret", b"old", lease=5), ChangeAuth("enable"),
)  # fmt: skip
OUT_OF_BOUNDS = (
    ChangeAuth("user grant-role", "m", role=ROOT), ChangeAuth("disable"),
    ChangeAuth("user passwd", ROOT, secret=b"other"), ChangeAuth("user delete", ROOT),
    Put(b"secret", b"new"), DeleteRange(b"secret"), LeaseRevoke(5),
    Txn((), (), (Put(b"secret", b"new"),)), Put(b"own/a", b"v", lease=5),
)  # fmt: skip


def machine(*commands: Command) -> StateMachine:
    state = StateMachine()
    for command in commands:
        state.apply(command)
    return state


def log_of(commands: list[Any], first: int) -> list[LogEntry]:
    return [LogEntry(1, index, pack(command)) for index, command in enumerate(commands, start=first)]


def behind(state: StateMachine, commands: list[Any], missing: int) -> BehindGaps:
    found = BehindGaps(state)
    found.run(log_of(commands, 100), missing)
    return found


@pytest.mark.parametrize("missing", [0, 3])
@pytest.mark.parametrize("command", OUT_OF_BOUNDS, ids=str)
def test_what_apply_refused_a_user_is_not_done(command: Any, missing: int) -> None:
    state = machine(*SETUP)
    asked = AsUser("m", state.auth.revision, command)
    with pytest.raises(RequestError):
        state.apply(asked)
    found = behind(state, [asked], missing)
    made = found.state()
    assert made.auth.records() == state.auth.records() and made.index.current == state.index.current
    assert found.assumed == ([100] if missing else [])
    assert found.unsure_changes == ([100] if missing and type(command) is ChangeAuth else [])


def test_without_a_gap_users_are_judged_as_apply_judged_them() -> None:
    state, live = machine(*SETUP), machine(*SETUP)
    at = state.auth.revision
    commands: list[Any] = [
        AsUser(ROOT, at, ChangeAuth("role grant-permission", "r", "", WRITE, b"more")),
        AsUser("m", at, Put(b"more", b"1")),
        AsUser("m", at + 1, Put(b"more", b"2")), AsUser("m", at + 1, Put(b"own/a", b"v")),
        AsUser("m", at + 1, LeaseRevoke(5)), AsUser(ROOT, at + 1, ChangeAuth("user revoke-role", "m", "r")),
        AsUser("m", at + 2, Put(b"own/a", b"w")), AsUser("", 0, Put(b"own/a", b"x")),
    ]  # fmt: skip
    for command in commands:
        try:
            live.apply(command)
        except RequestError:
            pass
    found = behind(state, commands, 0)
    assert found.assumed == [] and found.state().hash() == live.hash()


def test_behind_a_gap_changes_that_take_are_done_and_those_that_give_are_not() -> None:
    state = machine(*SETUP)
    later = state.auth.revision + 3
    found = behind(
        state,
        [
            AsUser(ROOT, later, ChangeAuth("user add", "n", secret=b"h")), AsUser("m", later + 1, Put(b"own/a", b"v")),
            AsUser(ROOT, later + 1, ChangeAuth("role revoke-permission", "r", "", 0, b"own/", b"own0")),
            AsUser("m", later + 1, Put(b"own/b", b"v")), AsUser("m", later + 2, Put(b"own/c", b"v")),
        ],
        5,
    )  # fmt: skip
    assert sorted(found.current) == [b"own/a", b"secret"] and sorted(found.auth.users) == ["m", ROOT]
    assert found.auth.roles == {"r": ()} and found.auth.enabled and found.unsure_changes == [100, 102]
    assert found.assumed == [100, 101, 102, 103, 104]


def test_what_came_with_a_certificate_was_asked_nothing_and_is_done() -> None:
    found = behind(machine(), [*SETUP[:6], SETUP[-1]], 2)
    assert found.auth.enabled and sorted(found.auth.users) == ["m", ROOT]
    assert found.unsure_changes == list(range(100, 107))


def snapshot_of(state: StateMachine, without: int | None = None, lost: int | None = None) -> FoundSnapshot:
    found = [record for part in records(state) for record in part if record[0] != without]
    return FoundSnapshot(
        "snap", 50, None, found, [Loss("snap", 0, 1, "a part of the snapshot is damaged")], [lost or 0]
    )


def salvaged(snapshot: FoundSnapshot, *commands: Any) -> Any:
    entries = {each.index: each for each in log_of(list(commands), 51)}
    made = _exact([], FoundLog(entries, set(), SavedState(), [], 0), [])
    _add_rest(made, snapshot, max([50, *entries]))
    return made


def test_users_and_roles_of_a_broken_snapshot_come_back() -> None:
    state = machine(*SETUP)
    made = salvaged(snapshot_of(state, lost=4), AsUser("m", state.auth.revision, Put(b"secret", b"new")))
    assert made.state.auth.records() == state.auth.records() and made.state.get(b"secret").value == b"old"
    assert not (made.users_lost or made.users_unsure or made.unsure_changes)
    assert not [line for line in lines(made) if "USERS" in line]


def test_that_the_record_of_users_and_roles_is_lost_is_said_with_what_to_do() -> None:
    made = salvaged(snapshot_of(machine(*SETUP), USERS_AND_ROLES, lost=1))
    assert made.users_lost and not made.state.auth.enabled and report(made)["users_lost"]
    [line] = [line for line in lines(made) if "USERS" in line]
    assert "their record is lost" in line and "authentication is OFF" in line and "etcdctl auth enable" in line


@pytest.mark.parametrize("state", [StateMachine(3), StateMachine(1)], ids=["version 3", "version 1"])
def test_a_snapshot_of_earlier_rules_had_no_users(state: StateMachine) -> None:
    state.apply(Put(b"a", b"v"))
    assert not salvaged(snapshot_of(state, lost=1)).users_lost


def test_a_snapshot_that_is_broken_behind_its_first_key_had_none() -> None:
    assert not salvaged(snapshot_of(machine(Put(b"a", b"v")), lost=2)).users_lost
    assert salvaged(snapshot_of(machine(Put(b"a", b"v")), lost=1)).users_lost


def test_a_gap_at_the_end_may_have_changed_users() -> None:
    state = machine(*SETUP)
    made = salvaged(snapshot_of(state, lost=4))
    assert not made.users_unsure
    made = _exact([], FoundLog({}, set(), SavedState(), [], 0), [])
    _add_rest(made, snapshot_of(state, lost=4), 60)
    assert made.users_unsure and "may have changed within a gap" in "\n".join(lines(made))


@pytest.mark.parametrize(
    "record",
    [
        [9], [9, True, 2, [], [], 1], [9, 1, 2, [], []], [9, True, 2, [["u"]], []],
        [9, True, 2, [["u", [1], b"", False]], []],
        [9, True, 2, [], [["r", [[0, "a", b""]]]]], [9, True, 2, [], [["r", 1]]], [9, True, 2, [None], []],
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_record_of_users_is_none(record: list[Any]) -> None:
    [sound] = machine(*SETUP).auth.records()
    assert not is_record(record) and is_record([USERS_AND_ROLES, *sound])
