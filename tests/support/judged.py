"""Expected verdicts of the transaction checker."""

from __future__ import annotations

from collections.abc import Sequence

from minikube_py.sim.checkers import transactions
from minikube_py.sim.history import History, Operation


def assert_passes(operations: Sequence[Operation]) -> None:
    checked = transactions.check(History(list(operations)))
    assert checked.verdict.ok, checked.verdict.text


def assert_found(operations: Sequence[Operation], said: str) -> None:
    """A violation, with `said` in its text."""
    verdict = transactions.check(History(list(operations))).verdict
    assert verdict.outcome == "violation", verdict
    assert said in verdict.text, verdict.text
