"""Results of a check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Outcome = Literal["ok", "violation", "undecided"]


class Verdict(NamedTuple):
    """`text` states what was promised and what was found. undecided: the search was given up without a result."""

    outcome: Outcome
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


OK = Verdict("ok")


def violation(text: str) -> Verdict:
    return Verdict("violation", text)


def undecided(text: str) -> Verdict:
    return Verdict("undecided", text)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The first violation; else the first that is undecided; else ok."""
    found = OK
    for verdict in verdicts:
        if verdict.outcome == "violation":
            return verdict
        if verdict.outcome == "undecided" and found.ok:
            found = verdict
    return found
