"""Webhooks without a network: what a server does that has no door, and in which order its plugins stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import MAPS, Core, config_map
from edges import wild_texts
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.apiserver.admission import Chain
from minikube_py.apiserver.messages import Request, Response, warning_headers
from minikube_py.apiserver.outgoing import Answer, NoAnswer

HOOKS = "/apis/admissionregistration.k8s.io/v1"


def configuration(name: str, policy: str = "Fail", **more: Any) -> dict[str, Any]:
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"]}
    hook = {
        "name": f"{name}.example.com", "clientConfig": {"url": f"https://h/{name}"}, "sideEffects": "None",
        "rules": [rule], "admissionReviewVersions": ["v1"], "failurePolicy": policy, **more,
    }  # fmt: skip
    return {"metadata": {"name": name}, "webhooks": [hook]}


class Door:
    """Answers by the URL's path: what else the response holds, or an exception."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = said
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Answer:
        review = orjson.loads(body)
        name = url.partition("?")[0].rpartition("/")[2]
        self.asked.append((name, review["request"]))
        said = self.said.get(name, {})
        if isinstance(said, Exception):
            raise said
        response = {"uid": review["request"]["uid"], "allowed": True, **said}
        return Answer(200, {}, orjson.dumps({**review, "request": None, "response": response}))

    async def close(self) -> None:
        pass


async def started(folder: Path, door: Door | None = None) -> Core:
    core = await Core(folder).start()
    if door is not None:
        core.api.webhook_caller.outgoing = door
    return core


async def test_a_write_knows_nothing_of_the_chain_where_nothing_is_configured(tmp_path: Path) -> None:
    core = await started(tmp_path)
    kind = core.api.registry.resource("", "v1", "configmaps")
    assert kind is not None
    chain: Chain = core.api.writer.chain
    request = Request("POST", MAPS)
    assert chain.enter(request, "CREATE", kind, "default", "") is None
    code, _ = await core.ask("POST", f"{HOOKS}/validatingwebhookconfigurations", configuration("a"))
    assert code == 201
    assert chain.enter(request, "CREATE", kind, "default", "") is not None
    nodes = core.api.registry.resource("", "v1", "nodes")
    assert nodes is not None and chain.enter(request, "CREATE", nodes, "", "") is None
    await core.stop()


@pytest.mark.parametrize("plural", ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"])
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_server_without_a_door_refuses_by_name(tmp_path: Path, plural: str, policy: str) -> None:
    """Whatever the failure policy: what is not built is not passed over."""
    core = await started(tmp_path)
    assert (await core.ask("POST", f"{HOOKS}/{plural}", configuration("a", policy)))[0] == 201
    code, status = await core.ask("POST", MAPS, config_map("m"))
    assert code == 500 and 'failed calling webhook "a.example.com"' in status["message"]
    assert "makes no connections to other servers" in status["message"]
    assert (await core.ask("GET", f"{MAPS}/m"))[0] == 404
    assert (await core.ask("DELETE", f"{HOOKS}/{plural}/a"))[0] == 200
    assert (await core.ask("POST", MAPS, config_map("m")))[0] == 201
    await core.stop()


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_webhook_that_does_not_answer_follows_its_failure_policy(tmp_path: Path, policy: str) -> None:
    core = await started(tmp_path, Door({"a": NoAnswer("EOF")}))
    await core.ask("POST", f"{HOOKS}/validatingwebhookconfigurations", configuration("a", policy))
    code, found = await core.ask("POST", MAPS, config_map("m"))
    assert code == (500 if policy == "Fail" else 201), found
    await core.stop()


async def test_hooks_are_asked_in_the_order_of_names_and_large_bodies_are_no_way_around_them(tmp_path: Path) -> None:
    door = Door({"c": {"warnings": ["large"]}})
    core = await started(tmp_path, door)
    for name in ("c", "a", "b"):
        await core.ask("POST", f"{HOOKS}/mutatingwebhookconfigurations", configuration(name))
    response = await core.respond("POST", MAPS, config_map("m", None, big="x" * 200_000))
    assert response.status == 201 and '"large"' in response.headers["Warning"]
    assert [name for name, _ in door.asked] == ["a", "b", "c"]
    door.asked.clear()
    response = await core.respond("PUT", f"{MAPS}/m", config_map("m", None, big="y" * 200_000))
    assert response.status == 200 and [asked["operation"] for _, asked in door.asked] == ["UPDATE"] * 3
    # Of what configures admission nobody is asked.
    door.asked.clear()
    await core.ask("DELETE", f"{HOOKS}/mutatingwebhookconfigurations/a")
    assert not door.asked
    await core.stop()


async def test_a_denial_of_a_later_hook_undoes_nothing_because_nothing_was_done(tmp_path: Path) -> None:
    core = await started(tmp_path, Door({"b": {"allowed": False, "status": {"message": "no", "code": 403}}}))
    for name in ("a", "b"):
        await core.ask("POST", f"{HOOKS}/validatingwebhookconfigurations", configuration(name))
    code, status = await core.ask("POST", MAPS, config_map("m"))
    assert (code, status["message"]) == (403, 'admission webhook "b.example.com" denied the request: no')
    assert (await core.ask("GET", f"{MAPS}/m"))[0] == 404
    await core.stop()


odd_texts = ("a", "w\r\nX-Evil: 1", "\x00", 'q"\\', "x" * 5000, "é" * 4000, "")
texts = st.one_of(wild_texts, st.text(max_size=300), st.sampled_from(odd_texts))


@given(st.lists(texts, max_size=6), st.lists(st.tuples(st.booleans(), st.lists(texts, max_size=40)), max_size=3))
def test_whatever_warnings_say_the_answer_carries_those_that_can_be_shown(
    first: list[str], more: list[tuple[bool, list[str]]]
) -> None:
    response = Response(201, headers=warning_headers(first))
    for before, said in more:
        for text in said[:1] if before else ():
            response.warning(text)
        response.warned(said)
    lines = (response.headers.get("Warning") or "").split("\n") if response.headers else []
    assert all(re.fullmatch(r'299 - "(?:[^"\\\x00-\x1f\x7f-\x9f]|\\["\\])+"', line) for line in lines)
    assert len(lines) == len(set(lines)) and sum(map(len, lines)) < 20_000
    if "a" in first[:1]:
        assert '299 - "a"' in lines


async def test_a_webhook_whose_warnings_cannot_be_shown_does_not_lose_the_answer(tmp_path: Path) -> None:
    """Each with what upstream shows of it."""
    said = {"a": {"warnings": ["w\r\nX-Evil: 1"] * 3}, "b": {"warnings": ["\x00", "seen"]}}
    core = await started(tmp_path, Door(said))
    await core.ask("POST", f"{HOOKS}/mutatingwebhookconfigurations", configuration("a"))
    response = await core.respond("POST", MAPS, config_map("m"))
    assert response.status == 201 and "Warning" not in response.headers
    await core.ask("POST", f"{HOOKS}/validatingwebhookconfigurations", configuration("b"))
    response = await core.respond("POST", MAPS, config_map("n"))
    assert response.status == 201 and response.headers["Warning"] == '299 - "seen"'
    await core.stop()
