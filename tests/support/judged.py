"""What the transaction checker is to say of a history."""

from __future__ import annotations

from collections.abc import Sequence

from minikube_py.sim.checkers import transactions
from minikube_py.sim.history import History, Operation


def assert_passes(operations: Sequence[Operation]) -> None:
    checked = transactions.check(History(list(operations)))
    assert checked.verdict.ok, checked.verdict.text


def assert_found(operations: Sequence[Operation], said: str) -> None:
    """A violation, whose text has `said` in it."""
    verdict = transactions.check(History(list(operations))).verdict
    assert verdict.outcome == "violation", verdict
    assert said in verdict.text, verdict.text
