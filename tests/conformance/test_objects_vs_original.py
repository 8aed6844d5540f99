"""What becomes of objects, beside a live upstream: the scripts of `object_cases`, answers compared one by one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from functools import partial

import custom_write_cases
import drawn
import judging
import null_cases
import object_cases
import patience
import pytest
import warning_cases
from asking import Ask, Server
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("MINIKUBE_PY_JUDGE_EXAMPLES", "1000"))
SEED = int(os.environ.get("MINIKUBE_PY_JUDGE_SEED", "11"))


Pair = tuple[Server, Server]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A live upstream, and ours: each test sends both the same, so both have what an earlier one left."""
    with judging.both() as found:
        yield found


def _served(server: Server, ask: Ask) -> bool:
    return server.ask(ask).code == 200


@pytest.mark.original
@pytest.mark.timeout(120 + EXAMPLES)
def test_objects_become_what_they_become_upstream(pair: Pair) -> None:
    report, numbers = judging.Report(), itertools.count()
    theirs, mine = pair
    lockstep = judging.Lockstep(theirs, mine, report)
    for ask in object_cases.SETUP:
        lockstep.take(ask)
    for ask in object_cases.AWAITED:
        for server in (theirs, mine):
            patience.eventually(partial(_served, server, ask), "what is to be written is served")

    @seed(SEED)
    @settings(max_examples=EXAMPLES // 12, deadline=None, database=None, phases=[Phase.generate])
    @given(st.data())
    def drawn(data: st.DataObject) -> None:
        for ask in data.draw(object_cases.drawn(next(numbers))):
            lockstep.take(ask)

    drawn()
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(120)
def test_writes_that_a_definition_does_not_allow_are_refused_as_upstream_refuses_them(pair: Pair) -> None:
    report = judging.Report()
    served = Ask("served", "GET", custom_write_cases.ORBS)
    theirs, mine = pair
    lockstep = judging.Lockstep(theirs, mine, report)
    for ask in custom_write_cases.setup():
        lockstep.take(ask)
    for server in (theirs, mine):
        patience.eventually(partial(_served, server, served), "what is to be written is served")
    lockstep.take(Ask("orb", "POST", custom_write_cases.ORBS, custom_write_cases.orb("o")))
    for ask in custom_write_cases.cases():
        lockstep.take(ask)
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(300)
def test_what_go_always_prints_is_null_where_it_is_upstream(pair: Pair) -> None:
    report = judging.Report()
    theirs, mine = pair
    lockstep = judging.Lockstep(theirs, mine, report)
    for ask in (*drawn.SETUP, *null_cases.cases()):
        lockstep.take(ask)
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(120)
def test_what_is_written_with_a_warning_has_upstreams_warning(pair: Pair) -> None:
    report = judging.Report()
    theirs, mine = pair
    for ask in warning_cases.cases():
        report.take(ask, theirs.ask(ask), mine.ask(ask))
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"
