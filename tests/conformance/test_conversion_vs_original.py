"""Custom resources of two versions beside upstream: one webhook for both servers, the same requests to both."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import conversion_cases
import judging
import patience
import pytest
from asking import Answer, Ask, Server
from conversion_cases import BROKEN, DEFINITIONS, GROUP, at, client_of, definition
from webhook_server import serving

pytestmark = pytest.mark.original
_UID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _unsided(answer: Answer) -> Answer:
    return answer._replace(body=_UID.sub(b"<uid>", answer.body.replace(b"/mine/", b"/them/")))


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """Upstream and ours."""
    with judging.both() as found:
        yield found


def _asked(upstream: Server, ask: Ask) -> Answer:
    """Again as long as its cache begins."""
    while (answer := upstream.ask(ask)).code == 429:
        patience.eventually(partial(_not_busy, upstream, ask), "upstream's cache has begun")
    return answer


def _not_busy(upstream: Server, ask: Ask) -> bool:
    return upstream.ask(ask).code != 429


def _answers(server: Server, path: str) -> bool:
    return server.ask(Ask("served", "GET", path)).code != 404


def _hashes(server: Server) -> str:
    """By which discovery says in which version resources are stored."""
    found = json.loads(server.ask(Ask("stored", "GET", f"/apis/{GROUP}/v1")).body)["resources"]
    return " ".join(each["name"] + each.get("storageVersionHash", "") for each in found)


def _moved(server: Server, before: str) -> bool:
    return _hashes(server) != before


def _why_not(server: Server, path: str) -> Any:
    conditions = json.loads(server.ask(Ask("conditions", "GET", path)).body).get("status", {}).get("conditions") or ()
    told = {each["type"]: [each["status"], each["reason"], each["message"]] for each in conditions}
    return told if told.get("Established", ["", "Installing"])[1] != "Installing" else None


@pytest.mark.timeout(300)
def test_a_definition_waits_for_a_valid_bundle(servers: tuple[Server, Server], tmp_path: Path) -> None:
    with serving(tmp_path) as webhooks:
        told: list[list[Any]] = []
        for side, server in zip(("them", "mine"), servers, strict=True):
            told.append([])
            for ask in conversion_cases.not_callable(webhooks, side):
                path = f"{DEFINITIONS}/{ask.body['metadata']['name']}"
                assert server.ask(ask).code == 201
                told[-1].append(patience.eventually(partial(_why_not, server, path), "its conditions are settled"))
                change = {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": webhooks.bundle}}}}}
                assert server.ask(Ask("mend", "PATCH", path, change, conversion_cases.MERGE)).code == 200
                patience.eventually(partial(_answers, server, at(ask.name, "v1")), "a valid one establishes it")
    assert told[0] == told[1] and len(told[0]) == len(conversion_cases.BUNDLES)


@pytest.mark.timeout(300)
def test_two_versions_of_a_resource_are_those_of_upstream(servers: tuple[Server, Server], tmp_path: Path) -> None:
    report = judging.Report()
    theirs, mine = servers
    sides = tuple(zip(("them", "mine"), servers, strict=True))
    good = ("c-moves", "c-labels", "c-junk", "c-floats")
    with serving(tmp_path) as webhooks:

        def both(ask: Ask) -> None:
            report.take(ask, _unsided(_asked(theirs, ask)), _unsided(mine.ask(ask)))

        for ask in conversion_cases.refused(webhooks):
            both(ask)
        for side, server in sides:
            for answer in (*good, *BROKEN):
                reviews = ["v2", "v1beta1", "v1"] if answer == "c-old" else ["v1"]
                client = client_of(webhooks, side, answer)
                body = definition(answer, client, conversionReviewVersions=reviews)
                made = server.ask(Ask(answer, "POST", DEFINITIONS, body))
                assert made.code == 201, made
            for answer in (*good, *BROKEN):
                for version in ("v1", "v2"):
                    path = at(answer, version, "absent").replace("/default/absent", "/default")
                    patience.eventually(partial(_answers, server, path.rpartition("/")[0]), "the versions are served")
        for answer in good:
            for ask in conversion_cases.whole(answer):
                both(ask)
        for answer in BROKEN:
            for ask in conversion_cases.broken(answer):
                both(ask)
        for side, server in sides:
            before = _hashes(server)
            assert server.ask(conversion_cases.moved_storage(webhooks, side, "c-moves")).code == 200
            patience.eventually(partial(_moved, server, before), "the other version is stored")
        for ask in conversion_cases.after("c-moves"):
            both(ask)
    print(report.counts())
    assert not report.findings, f"{report.text()}\n{report.counts()}"
    assert sum(report.asked.values()) > 400
