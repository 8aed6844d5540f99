# ruff: noqa: E501
"""Large writes that webhooks are asked about, and what webhooks may answer: worked on elsewhere, in the same words."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from turns import Elsewhere, Turns

from minikube_py.apiserver import passing, webhook_calls, webhooks, writes
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.messages import Request, parse_query
from minikube_py.apiserver.outgoing import Answer
from tests.support.api_core import MAPS, Core, config_map
from tests.support.hostile import JSON_PATCH, NS, Hostile, bodies, prepare
from tests.support.hostile_answers import WEBHOOK_ANSWERS

LINES_MAX = 150_000
"""Some 5 ms of CPU without tracing, as in test_apiserver_long_requests."""
CODED_BYTES_MAX = 1 << 22
"""Of JSON read and written in C by one turn: up to 16 ms where it is all small values."""
WRITTEN_BYTES_MAX = 3 << 20
"""An object of 256 KiB may have 1.3 MiB with its defaults; its commit reads it twice, every other step once."""
LARGEST = 256 << 10
ANSWER = 64 << 10
HOOKS = "/apis/admissionregistration.k8s.io/v1"
VARYING = re.compile(rb'(uid|creationTimestamp|resourceVersion|deletionTimestamp|time)[\\":]+[^"\\]*|hostile-[a-z0-9]{5}|10[.]0[.][0-9.]+')  # fmt: skip


class Door:
    """Labels what it is shown, unless `said` is to be answered."""

    def __init__(self) -> None:
        self.said: tuple[int, str, bytes] | None = None
        self.asked: list[bytes] = []
        self.turns: Turns | None = None

    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Answer:
        # As a network does.
        await asyncio.sleep(0)
        answer = self.turns.uncounted(lambda: self._answer(url, body)) if self.turns else self._answer(url, body)
        await asyncio.sleep(0)
        return answer

    def _answer(self, url: str, body: bytes) -> Answer:
        request = orjson.loads(body)["request"]
        shown = [request["operation"], request["object"], request["oldObject"]]
        self.asked.append(VARYING.sub(b"", orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)))
        if self.said is not None:
            status, media, text = self.said
            return Answer(status, {"Content-Type": media}, text.replace(b"UID", request["uid"].encode()))
        response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
        if "/m?" in url and request["object"]:
            labels = request["object"]["metadata"].get("labels") or {}
            patch = orjson.dumps([{"op": "add", "path": "/metadata/labels", "value": {**labels, "asked": "y"}}])
            response |= {"patch": base64.b64encode(patch).decode(), "patchType": "JSONPatch"}
        return Answer(
            200,
            {},
            orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}),
        )

    async def close(self) -> None:
        pass


def configuration(name: str, **more: Any) -> dict[str, Any]:
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    hook = {
        "name": f"{name}.example.com", "clientConfig": {"url": f"https://h/{name}"}, "sideEffects": "None",
        "rules": [rule], "admissionReviewVersions": ["v1"], **more,
    }  # fmt: skip
    return {"metadata": {"name": name}, "webhooks": [hook]}


async def started(folder: Path, mutating: bool = True) -> tuple[Core, Door]:
    core, door = await Core(folder).start(), Door()
    await prepare(core.api, 5, 5, 0)
    core.api.webhook_caller.outgoing = door
    assert (await core.ask("POST", f"{HOOKS}/validatingwebhookconfigurations", configuration("v")))[0] == 201
    if mutating:
        given = configuration("m", reinvocationPolicy="IfNeeded")
        assert (await core.ask("POST", f"{HOOKS}/mutatingwebhookconfigurations", given))[0] == 201
    return core, door


async def ask(core: Core, one: Hostile) -> tuple[int, dict[str, str], bytes]:
    path, _, query = one.path.partition("?")
    asked = Request(one.method, path, parse_query(query), one.body, ADMIN, one.accept, one.content_type)
    response = await core.api.handle(asked)
    return response.status, dict(response.headers), VARYING.sub(b"", response.body)


def large(monkeypatch: pytest.MonkeyPatch, is_large: bool) -> None:
    for module in (writes, passing, webhook_calls):
        monkeypatch.setattr(module, "is_large", lambda *given: is_large and bool(given[0]))
    for other in (writes, webhooks):
        monkeypatch.setattr(other, "is_large_patch", lambda *_: is_large)
    monkeypatch.setattr(writes, "is_large_apply", lambda _: is_large)


SMALL = [
    Hostile("named by the server", "POST", f"{NS}/configmaps", b'{"metadata":{"generateName":"hostile-"}}'),
    Hostile("invalid", "POST", f"{NS}/pods", b'{"metadata":{"name":"hostile","labels":{"not a label":"x"}},"spec":{}}'),
    Hostile("another name", "PUT", f"{NS}/configmaps/map-00001", b'{"metadata":{"name":"b"}}'),
    Hostile("made by an update", "PUT", "/api/v1/nodes/hostile", b'{"metadata":{"name":"hostile"}}', undo="/api/v1/nodes/hostile"),
    Hostile("applied", "PATCH", f"{NS}/configmaps/hostile?fieldManager=f", b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"hostile"},"data":{"a":"b"}}', "application/apply-patch+yaml"),
    Hostile("applied again", "PATCH", f"{NS}/configmaps/hostile?fieldManager=f", b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"hostile"},"data":{"a":"c"}}', "application/apply-patch+yaml", undo=f"{NS}/configmaps/hostile"),
    Hostile("a service", "POST", f"{NS}/services", b'{"metadata":{"name":"hostile"},"spec":{"ports":[{"port":1}]}}', undo=f"{NS}/services/hostile"),
    Hostile("an older version", "POST", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", b'{"metadata":{"name":"hostile"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"a","name":"b"},"targetCPUUtilizationPercentage":50}}'),
    Hostile("its change", "PATCH", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/hostile", b'{"spec":{"maxReplicas":4}}', "application/merge-patch+json"),
    Hostile("removed", "PATCH", f"{NS}/configmaps/map-00003", b'[{"op":"remove","path":"/data"}]', JSON_PATCH),
]  # fmt: skip


@pytest.mark.parametrize("mutating", [True, False])
async def test_who_works_on_a_write_changes_neither_the_answer_nor_what_webhooks_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutating: bool
) -> None:
    sides = [await started(tmp_path / side, mutating) for side in ("here", "elsewhere")]
    for one in [*SMALL, *(each for each in bodies(900) if each.body and mutating)]:
        found = []
        for (core, door), elsewhere in zip(sides, (False, True)):
            large(monkeypatch, elsewhere)
            door.asked.clear()
            found.append((await ask(core, one), list(door.asked)))
            if one.undo:
                await ask(core, Hostile("undo", "DELETE", one.undo))
        assert found[1] == found[0], one.name
    assert any(b'"asked":"y"' in each for _, door in sides for each in door.asked) == mutating
    for core, _ in sides:
        await core.stop()


SHAPES = ("containers", "an update", "patch: operations")


async def test_no_write_that_webhooks_are_asked_about_holds_the_loop_for_long(tmp_path: Path) -> None:
    core, door = await started(tmp_path)
    beyond = []
    for one in bodies(LARGEST):
        if one.name not in SHAPES:
            continue
        door.turns = turns = Turns()
        core.api.hand_work_to(Elsewhere(turns))
        await turns.of(ask(core, one))
        door.turns = None
        if one.undo:
            await ask(core, Hostile("undo", "DELETE", one.undo))
        if turns.most > LINES_MAX or turns.most_bytes > WRITTEN_BYTES_MAX:
            beyond.append((one.name, turns.most, turns.most_bytes))
    assert beyond == []
    await core.stop()


async def test_no_answer_of_a_webhook_holds_the_loop_and_each_is_told_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, door = await started(tmp_path)
    path = f"{MAPS}/m"
    made = Hostile("a", "POST", MAPS, orjson.dumps(config_map("m", None, a="b")), undo=path)
    for name, answer in WEBHOOK_ANSWERS.items():
        monkeypatch.undo()
        door.said, door.turns = answer(ANSWER), Turns()
        core.api.hand_work_to(work := Elsewhere(door.turns))
        await door.turns.of(ask(core, made))
        most = door.turns.most, door.turns.most_bytes
        assert most[0] <= LINES_MAX and most[1] <= CODED_BYTES_MAX, (name, most)
        assert work.jobs or name == "an error's text", name
        door.said, door.turns = None, None
        await ask(core, Hostile("undo", "DELETE", path))
        door.said, found = answer(2_000), []
        for elsewhere in (False, True):
            large(monkeypatch, elsewhere)
            found.append(await ask(core, made))
            await ask(core, Hostile("undo", "DELETE", path))
        assert found[1] == found[0], name
    await core.stop()
