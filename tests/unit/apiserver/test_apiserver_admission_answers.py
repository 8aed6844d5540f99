"""Applies, quotas, rights, webhooks and policies: answers as upstream gave them to a part of the cases that are put to
a live one (`record_admission`)."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from api_core import Core

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.impersonation import wanted_user
from minikube_py.apiserver.messages import Request, parse_query
from minikube_py.apiserver.outgoing import Answer as Said
from minikube_py.apiserver.outgoing import NoAnswer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "conformance"))

from admission_suites import DATA, SUITES, sent, told
from alike import seen
from asking import JSON, Answer, Ask
from differences import explain
from webhook_server import ANSWERS, review


class Door:
    """The webhooks of `webhook_server`, without a network."""

    def __init__(self) -> None:
        self.sent: dict[str, list[Any]] = defaultdict(list)

    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Said:
        answer, *rest = url.partition("?")[0].split("/")[4:]
        asked = orjson.loads(body)
        self.sent["/".join((answer, *rest))].append(asked)
        try:
            status, media, said = ANSWERS.get(answer, review)(asked)
        except TypeError:
            # It was asked about a deletion, of which it knows nothing: the server closes the connection.
            raise NoAnswer("EOF") from None
        return Said(status, {"Content-Type": media}, said)

    async def close(self) -> None:
        pass


async def put(core: Core, ask: Ask) -> Answer:
    path, _, query = ask.target.partition("?")
    typed = ask.content_type or JSON
    request = Request(ask.method, path, parse_query(query), ask.payload() or b"", ADMIN, ask.accept, typed)
    request.wanted = wanted_user(ask.headers)
    response = await core.api.handle(request)
    body = b"".join(response.pieces) if response.pieces is not None else response.body
    lines = (response.headers.get("Warning") or "").split("\n")
    return Answer(response.status, {"warning": list(filter(None, lines))}, body)


def as_answer(kept: list[Any]) -> Answer:
    code, warnings, said = kept
    return Answer(code, {"content-type": [JSON], "warning": warnings}, orjson.dumps(said))


@pytest.mark.parametrize("name", SUITES)
async def test_answers_are_those_that_upstream_gave(core: Core, name: str) -> None:
    recorded = json.loads((DATA / f"admission_{name}.json").read_text())
    door = Door()
    core.api.webhook_caller.outgoing = door
    suite = SUITES[name](SimpleNamespace(port=1, bundle=""))  # type: ignore[arg-type]
    for ask in suite.made:
        await put(core, ask)
    for ask, word in suite.known:
        assert word in (await put(core, ask)).body
    wrong = []
    for ask, kept in zip(suite.asks, recorded["answers"], strict=True):
        found = told(await put(core, ask), name)
        left = explain(ask, *(seen(as_answer(each)) for each in (kept, found))).left if found != kept else {}
        if left:
            wrong.append(f"{ask.shown()}\n  {left}")
    assert not wrong, f"{len(wrong)} of {len(suite.asks)}:\n" + "\n".join(wrong[:20])
    assert sent(door.sent) == recorded["sent"]
