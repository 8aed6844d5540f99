"""A hash tells of all that members hold, unless it is asked for the keys alone."""

from __future__ import annotations

import pytest
from test_mvcc_indexes import cluster

from minikube_py.env import at_once
from minikube_py.mvcc.state import StateMachine


def keys_alone(state: StateMachine) -> int:
    return at_once(state.hash_steps(rows=False))


def test_a_hash_has_the_rows_of_tables_in_it_unless_they_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    state = cluster(3)
    keys, whole = keys_alone(state), state.hash()
    assert keys != whole == cluster(3).hash()
    table = type(state.tables.complete("nodes"))
    monkeypatch.setattr(table, "hash", lambda *_: 7)
    assert keys_alone(state) == keys and state.hash() != whole
