"""Pods and their accounts beside upstream, both with the admission plugin ServiceAccount."""

from __future__ import annotations

import re
from functools import partial

import account_cases
import judging
import needs
import ours
import patience
import pytest
from asking import Answer, Ask, Server

pytestmark = pytest.mark.original
_GENERATED = re.compile(rb"kube-api-access-[a-z0-9]{5}")


def _settled(answer: Answer) -> Answer:
    return answer._replace(body=_GENERATED.sub(b"kube-api-access-<id>", answer.body))


def _known(server: Server, ask: Ask) -> bool:
    return server.ask(ask).code == 201


@pytest.mark.timeout(300)
def test_pods_run_as_accounts_as_upstreams_do() -> None:
    report = judging.Report()
    with (
        needs.original("--accounts") as upstream,
        ours.serve(started=ours.WITH_ACCOUNTS) as local,
        Server(upstream["url"], upstream["token"]) as theirs,
        Server(local["url"], local["token"]) as mine,
    ):

        def both(ask: Ask) -> None:
            report.take(ask, _settled(theirs.ask(ask)), _settled(mine.ask(ask)))

        for ask in account_cases.setup():
            both(ask)
        for server in (theirs, mine):
            for ask in account_cases.known():
                patience.eventually(partial(_known, server, ask), "admission knows the accounts")
        for ask in account_cases.drawn(1, 300):
            both(ask)
        for ask in account_cases.others():
            both(ask)
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"
