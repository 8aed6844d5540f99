"""Upstream beside ours: drawn requests, listed requests, and kubectl's commands; answers compared one by one.

Drawn requests are sent to a live upstream (`judging`). For the others upstream's answers are recorded (record.py), so
they run where it is not installed. Intended differences are in differences.py, each with its reason.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import api_service_cases
import apply_cases
import claim_rights_cases
import component_cases
import differences
import ephemeral_cases
import eviction_cases
import judging
import limit_cases
import needs
import openapi_told
import ours
import patience
import pytest
import quota_cases
import raw_cases
import rbac_cases
import record
import resize_cases
import scenario
import small_cases
import swagger
import token_cases
from asking import Answer, Ask, Server
from drawn_bytes import RawServer
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from needs import kubectls, require_kubectls

from minikube_py.api import openapi_v2
from minikube_py.control_plane.config import COMPONENTS

EXAMPLES = int(os.environ.get("MINIKUBE_PY_JUDGE_EXAMPLES", "300"))
"""Requests that are drawn, or a part of them in each test: 2,000 in `make judge`."""
BYTES = EXAMPLES // 2
MINORS = sorted(kubectls()) or [0]
if not os.environ.get("MINIKUBE_PY_JUDGE_EXAMPLES"):
    # The oldest and the newest: what changed in a version stays so in later ones. `make judge`: all.
    MINORS = sorted({MINORS[0], MINORS[-1]})
SEED = int(os.environ.get("MINIKUBE_PY_JUDGE_SEED", "11"))


def recorded(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text())
    return data


Pair = tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A live upstream, and ours: the tests of this module, which send both the same, share them. What an earlier test
    left, both have."""
    with needs.original() as upstream, ours.serve() as local:
        yield upstream, local


@contextmanager
def both(pair: Pair) -> Iterator[tuple[Server, Server]]:
    with Server(pair[0]["url"], pair[0]["token"]) as theirs, Server(pair[1]["url"], pair[1]["token"]) as mine:
        yield theirs, mine


def take_all(report: judging.Report, theirs: Server, mine: Server, asks: Iterable[Ask]) -> None:
    for ask in asks:
        report.take(ask, theirs.ask(ask), mine.ask(ask))


@pytest.mark.original
@pytest.mark.timeout(1000 + EXAMPLES)
def test_drawn_requests_answer_as_upstream(pair: Pair) -> None:
    with both(pair) as (theirs, mine):
        report = judging.judge(theirs, mine, EXAMPLES, SEED)
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(1000 + EXAMPLES)
def test_drawn_bytes_meet_the_same_fate(pair: Pair) -> None:
    theirs, mine = (RawServer(each["url"], each["token"]) for each in pair)
    counts, left = judging.judge_bytes(theirs, mine, BYTES, SEED)
    print(counts)
    # What nothing explains; and the strict readings are met, or the draws have become too tame.
    assert not left, "\n".join(left[:20])
    assert counts[""] > 0.8 * BYTES and len(counts) >= 3


@pytest.mark.original
@pytest.mark.timeout(300)
def test_subresources_of_pods_answer_as_upstream(pair: Pair) -> None:
    """Evictions, ephemeral containers and resizes."""
    report = judging.Report()
    with both(pair) as (theirs, mine):

        def drawn(asks: st.SearchStrategy[Ask]) -> None:
            @seed(SEED)
            @settings(max_examples=EXAMPLES // 8, deadline=None, database=None, phases=[Phase.generate])
            @given(asks)
            def taken(ask: Ask) -> None:
                take_all(report, theirs, mine, (ask,))

            taken()

        take_all(report, theirs, mine, eviction_cases.cases())
        take_all(report, theirs, mine, (*ephemeral_cases.setup(), *ephemeral_cases.told(), *resize_cases.setup()))
        for server in (theirs, mine):
            for ask, word in resize_cases.known():
                patience.eventually(partial(_says, server, ask, word), "admission knows the node")
        take_all(report, theirs, mine, resize_cases.told())
        drawn(ephemeral_cases.drawn())
        drawn(resize_cases.drawn())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(300)
def test_what_few_ask_is_answered_as_upstream(pair: Pair) -> None:
    report = judging.Report()
    with both(pair) as (theirs, mine):
        take_all(report, theirs, mine, small_cases.setup())
        for server in (theirs, mine):
            patience.eventually(partial(_says, server, *small_cases.known()), "admission knows the nodes")
        take_all(report, theirs, mine, small_cases.cases())
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(300)
def test_pods_within_limits_answer_as_upstream(pair: Pair) -> None:
    report = judging.Report()
    with both(pair) as (theirs, mine):
        take_all(report, theirs, mine, limit_cases.setup("limited"))
        for server in (theirs, mine):
            for ask in limit_cases.known("limited"):
                patience.eventually(partial(_limited, server, ask), "admission knows the range")
        take_all(report, theirs, mine, limit_cases.cases("limited"))
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(300)
def test_writes_within_quotas_answer_as_upstream(pair: Pair) -> None:
    report = judging.Report()
    with both(pair) as (theirs, mine):
        take_all(report, theirs, mine, quota_cases.setup("within"))
        for server in (theirs, mine):
            for ask, word in quota_cases.known("within"):
                patience.eventually(partial(_says, server, ask, word), "admission knows the quota")
        take_all(report, theirs, mine, (*quota_cases.cases("within"), *quota_cases.charges("within")))
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


def _says(server: Server, ask: Ask, word: bytes) -> bool:
    return word in server.ask(ask).body


@pytest.mark.original
@pytest.mark.timeout(300)
def test_who_may_what_is_told_as_upstream_tells_it(pair: Pair) -> None:
    report = judging.Report()
    with both(pair) as (theirs, mine):
        take_all(report, theirs, mine, rbac_cases.setup(SEED))
        for server in (theirs, mine):
            patience.eventually(partial(_allowed, server, rbac_cases.known()), "authorization knows the bindings")
        asked = (
            rbac_cases.reviews(SEED, EXAMPLES // 2), rbac_cases.selectors(), rbac_cases.grants(SEED, EXAMPLES // 4),
            rbac_cases.refusals(SEED, EXAMPLES // 10),
        )  # fmt: skip
        take_all(report, theirs, mine, itertools.chain.from_iterable(asked))
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(300)
def test_who_may_write_which_part_of_a_claims_status(pair: Pair) -> None:
    report = judging.Report()
    with both(pair) as (theirs, mine):
        take_all(report, theirs, mine, claim_rights_cases.setup())
        for server in (theirs, mine):
            patience.eventually(partial(_allowed, server, claim_rights_cases.known()), "authorization knows the roles")
        take_all(report, theirs, mine, claim_rights_cases.cases(SEED, EXAMPLES))
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


def _allowed(server: Server, ask: Ask) -> bool:
    return b'"allowed":true' in server.ask(ask).body


def _limited(server: Server, ask: Ask) -> bool:
    answer = server.ask(ask)
    return answer.code == 403 or b"limit-ranger" in answer.body


@pytest.mark.original
@pytest.mark.timeout(1000 + EXAMPLES)
def test_applies_answer_as_upstream(pair: Pair) -> None:
    """Of told requests and of drawn scripts, status and owners after each write. Values have other judges."""
    numbers = itertools.count()
    with both(pair) as (theirs, mine):

        def compare(ask: Ask) -> None:
            expected, found = theirs.ask(ask), mine.ask(ask)
            assert apply_cases.owned(found) == apply_cases.owned(expected), f"{ask.shown()}\n{expected}\n{found}"

        @seed(SEED)
        @settings(max_examples=EXAMPLES // 12, deadline=None, database=None, phases=[Phase.generate])
        @given(st.data())
        def drawn(data: st.DataObject) -> None:
            for ask in data.draw(apply_cases.scripts(next(numbers))):
                compare(ask)

        for told in apply_cases.TOLD:
            for ask in told():
                compare(ask)
        drawn()


@pytest.mark.timeout(300)
def test_raw_requests_answer_as_upstream() -> None:
    report = judging.Report()
    with ours.serve() as server, Server(server["url"], server["token"]) as mine:
        expected = recorded(record.RAW_FILE)
        assert set(expected) == {ask.name for ask in raw_cases.CASES}
        for ask in raw_cases.CASES:
            report.take(ask, Answer.from_json(expected[ask.name]), mine.ask(ask))
    assert not report.findings, f"{report.text()}\n{report.counts()}"


def explain(wrong: dict[str, tuple[Any, Any]]) -> str:
    parts = [
        f"--- {name}\n    upstream: {json.dumps(theirs)[:1500]}\n    ours:     {json.dumps(mine)[:1500]}"
        for name, (theirs, mine) in wrong.items()
    ]
    return f"{len(wrong)} answers differ:\n" + "\n".join(parts)


@pytest.mark.kubectl
@pytest.mark.timeout(400)
@pytest.mark.parametrize("minor", MINORS)
def test_kubectl_prints_the_same(minor: int) -> None:
    kubectl = require_kubectls()[minor]
    with ours.serve(COMPONENTS) as server:
        answers = record.kubectl_answers(kubectl, minor, Path(server["kubeconfig"]))
    entries = recorded(record.KUBECTL_FILE)
    expected = {
        name: entry["answer"] for name, known in entries.items() for entry in known if minor in entry["kubectl"]
    }
    steps = {step.name for step in scenario.STEPS if not step.only or minor in step.only}
    assert set(answers) == steps
    wrong = {name: (expected[name], mine) for name, mine in answers.items() if mine != expected[name]}
    unexpected = {name: pair for name, pair in wrong.items() if name not in differences.KUBECTL}
    assert not unexpected, explain(unexpected)
    # Some differences show with newer versions only.
    stale = sorted(name for name in differences.KUBECTL if name in answers and name not in wrong)
    assert not (minor == MINORS[-1] and stale), f"listed as different, but alike: {stale}"


@pytest.mark.original
@pytest.mark.timeout(300)
def test_tokens_of_service_accounts_answer_as_upstream(pair: Pair) -> None:
    report = judging.Report()
    with both(pair) as (theirs, mine):
        askers = token_cases.Asker(theirs), token_cases.Asker(mine)
        for step in token_cases.steps():
            report.take(step.ask, *(asker.ask(step) for asker in askers))

        @seed(SEED)
        @settings(max_examples=EXAMPLES // 5, deadline=None, database=None, phases=[Phase.generate])
        @given(token_cases.drawn())
        def asked(ask: Ask) -> None:
            report.take(ask, *(asker.ask(token_cases.Step(ask)) for asker in askers))

        asked()
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(300)
def test_secrets_with_tokens_are_filled_and_deleted_as_upstream() -> None:
    report = judging.Report()
    with (
        needs.original("--controllers") as upstream,
        ours.serve(("controllers",)) as local,
        both((upstream, local)) as (theirs, mine),
    ):
        askers = token_cases.Asker(theirs), token_cases.Asker(mine)
        for step in token_cases.secrets():
            report.take(step.ask, *(asker.ask(step) for asker in askers))
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(300)
def test_openapi_tells_what_upstreams_tells(pair: Pair) -> None:
    """Definitions and paths are alike in both versions; and its JSON in our protobuf is its protobuf. Discovery lists
    what upstream's lists; and APIServices are what they are there."""
    report = judging.Report()
    with both(pair) as (theirs, mine):
        take_all(report, theirs, mine, api_service_cases.cases())
        take_all(report, theirs, mine, component_cases.cases())
        listed, mine_listed = swagger.resources(theirs), swagger.resources(mine)
        told, packed, mine_told, mine_packed = (
            swagger.document(server, "/openapi/v2", accept)
            for server in (theirs, mine)
            for accept in ("application/json", swagger.PROTOBUF)
        )
        documents, mine_documents = (swagger.documents_of_version_3(server) for server in (theirs, mine))
    assert not report.findings, f"{report.text()}\n{report.counts()}"
    assert mine_listed == listed
    upstream, ours_now = json.loads(told), json.loads(mine_told)
    known = openapi_told.packed(openapi_told.version_2(upstream), documents)
    assert known == recorded(swagger.RECORDED)
    assert swagger.differs(packed, openapi_v2.protobuf(upstream)) == ""
    assert mine_packed == openapi_v2.protobuf(ours_now)
    assert mine_documents.keys() == documents.keys()
    users = swagger.users(documents)
    assert swagger.differences(upstream, ours_now, users) == []
    for name, document in documents.items():
        assert swagger.differences(document, mine_documents[name], users) == [], name
