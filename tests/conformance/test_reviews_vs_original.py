# ruff: noqa: E501
"""What webhooks and policies are shown of drawn operations, beside upstream: whole AdmissionReviews, compared."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import judging
import patience
import pytest
import reviewed_cases
from asking import Answer, Ask, Server
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from webhook_server import WebhookServer, serving

pytestmark = pytest.mark.original
_SCRIPTS = int(os.environ.get("MINIKUBE_PY_REVIEWED", "60"))
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_GENERATED = re.compile(r"\bg-[a-z0-9]{5}\b")
# Ours owns fields of plain writes once somebody applies.
_OWNED = re.compile(r',? ?\\*"?managedFields\\*"?: ?\[[^\]]*\]')
_VERSION = re.compile(r"(resourceVersion\W{1,6})[1-9]\d*")


def _plain(text: str) -> str:
    for pattern, instead in ((_OWNED, ""), (_UID, "<uid>"), (_TIME, "<time>"), (_GENERATED, "g-<generated>"), (_VERSION, r"\1<version>")):
        text = pattern.sub(instead, text)
    return text


def _settled(value: Any, name: str = "") -> Any:
    """Without what differs from server to server, and from one moment to the next."""
    if isinstance(value, dict):
        return {_plain(key): _settled(each, key) for key, each in value.items() if key != "managedFields"}
    if isinstance(value, list):
        return [_settled(each) for each in value]
    if name == "resourceVersion" and value not in ("", "0", "1"):
        return bool(value)
    return _plain(value) if isinstance(value, str) else value


def _differences(theirs: Any, mine: Any, path: str) -> list[str]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        names = sorted({*theirs, *mine})
        pairs = [(theirs.get(name, "absent"), mine.get(name, "absent"), f"{path}.{name}") for name in names]
    elif isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        pairs = [(x, y, f"{path}[{i}]") for i, (x, y) in enumerate(zip(theirs, mine, strict=True))]
    else:
        return [] if theirs == mine else [f"{path}\n  upstream: {theirs!r:.1500}\n  ours:     {mine!r:.1500}"]
    return [found for pair in pairs for found in _differences(*pair)]


def _told(reviews: list[Any]) -> list[Any]:
    """Twice the same in a row counts once: a write on a stale state is worked out again."""
    found = [_settled(each["request"]) for each in reviews]
    return [each for i, each in enumerate(found) if i == 0 or each != found[i - 1]]


class _Judge:
    """Asks both servers, and keeps what differs."""

    def __init__(self, servers: tuple[Server, Server], webhooks: WebhookServer) -> None:
        self.servers, self.webhooks = servers, webhooks
        self.found: list[str] = []
        self.reviews = self.seen = 0

    def take(self, ask: Ask) -> None:
        for each in reviewed_cases.shown(ask):
            theirs, mine = (_message(server.ask(each)) for server in self.servers)
            self.seen += "denied request" in theirs[1]
            self.found += [f"{each.shown()}\n{each.name} {text}" for text in _differences(list(theirs), list(mine), "")]
        codes = [server.ask(ask).code for server in self.servers]
        sent = [{path: _told(kept) for path, kept in self.webhooks.sent.pop(side, {}).items()} for side in ("them", "mine")]
        self.reviews += sum(map(len, sent[0].values()))
        self.found += [f"{ask.shown()}\n{ask.name} {text}" for text in _differences([codes[0], sent[0]], [codes[1], sent[1]], "")]


def _message(answer: Answer) -> tuple[int, str]:
    return answer.code, _plain(answer.body.decode()) if answer.code >= 400 else ""


def _refused(server: Server, ask: Ask) -> bool:
    return b"denied request" in server.ask(ask).body


def _recorded(server: Server, webhooks: WebhookServer, side: str, ask: Ask) -> bool:
    server.ask(ask)
    return len(webhooks.sent[side]) == 2


@pytest.mark.timeout(900)
def test_webhooks_and_policies_are_shown_what_upstream_shows_them(tmp_path: Path) -> None:
    with judging.both() as servers, serving(tmp_path) as webhooks:
        for ask in reviewed_cases.setup():
            for server in servers:
                answer = server.ask(ask)
                assert answer.code == 201, answer
        for server, side in zip(servers, ("them", "mine"), strict=True):
            for ask in reviewed_cases.configurations(webhooks, side):
                answer = server.ask(ask)
                assert answer.code == 201, answer
            for ask in reviewed_cases.known():
                patience.eventually(partial(_refused, server, ask), "admission knows the policies")
            plain = Ask("known", "POST", f"/api/v1/namespaces/{reviewed_cases.NAMESPACE}/configmaps?dryRun=All", {"metadata": {"name": "known"}})
            patience.eventually(partial(_recorded, server, webhooks, side, plain), "admission knows the webhooks")
        webhooks.sent.clear()
        judge = _Judge(servers, webhooks)
        for ask in reviewed_cases.reviews():
            judge.take(ask)
        counted = iter(range(1_000_000))

        @seed(int(os.environ.get("MINIKUBE_PY_REVIEWED_SEED", "1")))
        @settings(max_examples=_SCRIPTS, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
        @given(st.data(), st.sampled_from(reviewed_cases.KINDS))
        def drawn(data: st.DataObject, kind: str) -> None:
            name = f"r{next(counted)}"
            for ask in data.draw(reviewed_cases.scripts(kind, name)):
                judge.take(ask)

        drawn()
    print(f"{judge.reviews} reviews of webhooks and {judge.seen} of policies, {len(judge.found)} differences")
    assert judge.reviews > _SCRIPTS * 8 and judge.seen > _SCRIPTS * 8
    assert not judge.found, "\n".join(judge.found[:200])
