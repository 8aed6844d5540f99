"""Webhooks and policies that name another version than the write: what they are shown, and what their changes do.

Each answer was compared with upstream's (kube-apiserver 1.36)."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from api_core import MERGE, Core
from patience import until
from webhook_server import CONVERSIONS

from minikube_py.apiserver.outgoing import Answer, NoAnswer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "conformance"))

from conversion_cases import DEFINITIONS, GROUP, at, definition, plural, thing

OF = "c-moves"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
EVENTS = "/api/v1/namespaces/default/events"
APPLY = "application/apply-patch+yaml"
SCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
Json = dict[str, Any]


class Door:
    """Answers conversions, and admission with the JSON patch in `patches` (by the URL's path)."""

    def __init__(self) -> None:
        self.patches: dict[str, list[Json]] = {}
        self.asked: list[tuple[str, Json]] = []
        self.conversions = 0
        self.down: set[str] = set()

    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Answer:
        review = json.loads(body)
        name = url.partition("?")[0].rpartition("/")[2]
        if name in self.down:
            raise NoAnswer("dial tcp: it is down")
        if name == "convert":
            self.conversions += 1
            status, media, text = CONVERSIONS[OF](review)
            return Answer(status, {"Content-Type": media}, text)
        self.asked.append((name, review["request"]))
        response: Json = {"uid": review["request"]["uid"], "allowed": True}
        if patch := self.patches.get(name):
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
        return Answer(200, {}, orjson.dumps({**review, "request": None, "response": response}))

    async def close(self) -> None:
        pass

    def shown(self) -> list[tuple[str, Json]]:
        found, self.asked = self.asked, []
        return found


@pytest.fixture
async def hooked(core: Core) -> tuple[Core, Door]:
    door = Door()
    core.api.webhook_caller.outgoing = door
    return core, door


async def _hook(core: Core, sort: str, group: str, version: str, resource: str, *names: str, **more: Any) -> None:
    rules = [{"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": [resource]}]
    hooks = [
        {
            "name": f"{name}.example.com", "clientConfig": {"url": f"https://h/{name}"}, "sideEffects": "None",
            "rules": rules, "admissionReviewVersions": ["v1"], **more,
        }
        for name in names
    ]  # fmt: skip
    await core.done("POST", f"{HOOKS}/{sort}webhookconfigurations", {"metadata": {"name": names[0]}, "webhooks": hooks})


async def _policy(core: Core, sort: str, group: str, version: str, resource: str, **spec: Any) -> None:
    rule = {"operations": ["*"], "apiGroups": [group], "apiVersions": [version], "resources": [resource]}
    told = {"matchConstraints": {"resourceRules": [rule]}, **spec}
    bound = {"policyName": "p", **({"validationActions": ["Deny"]} if sort == "validating" else {})}
    await core.done("POST", f"{HOOKS}/{sort}admissionpolicies", {"metadata": {"name": "p"}, "spec": told})
    await core.done("POST", f"{HOOKS}/{sort}admissionpolicybindings", {"metadata": {"name": "p"}, "spec": bound})


async def _define(core: Core) -> None:
    await core.done("POST", DEFINITIONS, definition(OF, {"url": "https://h/convert"}))

    async def answers() -> bool:
        return all([(await core.respond("GET", f"/apis/{GROUP}/{each}")).status == 200 for each in ("v1", "v2")])

    await until(answers, "both versions are served")


def _widen(by: str, width: int) -> list[Json]:
    label = {"op": "add", "path": "/metadata/labels/by", "value": by}
    return [label, {"op": "add", "path": "/spec/dimensions/width", "value": width}]


def _widths(shown: list[tuple[str, Json]], *members: str) -> list[tuple[str, ...]]:
    return [(name, *(each[member]["spec"]["dimensions"]["width"] for member in members)) for name, each in shown]


async def test_a_hook_of_the_other_version_sees_and_changes_converted_objects(hooked: tuple[Core, Door]) -> None:
    core, door = hooked
    await _define(core)
    await _hook(core, "mutating", GROUP, "v2", plural(OF), "mut", "more")
    await _hook(core, "validating", GROUP, "v2", plural(OF), "val")
    changed_before = {"op": "test", "path": "/spec/dimensions/width", "value": 11}
    door.patches = {"mut": _widen("mut", 11), "more": [changed_before, *_widen("more", 12)]}
    made = await core.done("POST", at(OF, "v1"), thing(OF, "v1", "a"))
    assert (made["apiVersion"], made["spec"]) == (f"{GROUP}/v1", {"size": 12, "kept": "one"})
    assert made["metadata"]["labels"]["by"] == "more"
    assert door.conversions == 3, "there, back, and there again for the validating one"
    shown = door.shown()
    assert _widths(shown, "object") == [("mut", 3), ("more", 11), ("val", 12)]
    for _, each in shown:
        versions = [each[name]["version"] for name in ("kind", "resource", "requestKind", "requestResource")]
        assert (versions, each["object"]["apiVersion"]) == (["v2", "v2", "v1", "v1"], f"{GROUP}/v2")
    door.patches = {"mut": _widen("mut", 20)}
    changed = await core.done("PATCH", f"{at(OF, 'v1')}/a", {"spec": {"size": 15}}, MERGE)
    assert changed["spec"]["size"] == 20
    widths = _widths(door.shown(), "oldObject", "object")
    assert widths == [("mut", 12, 15), ("more", 12, 20), ("val", 12, 20)]
    applied = await core.done("PATCH", f"{at(OF, 'v1')}/b?fieldManager=me", thing(OF, "v1", "b"), APPLY)
    assert applied["spec"]["size"] == 20
    assert (await core.respond("PUT", f"{at(OF, 'v1')}/a", made)).status == 409, "its resourceVersion is an older one"
    door.shown()
    door.patches = {}
    await core.done("DELETE", f"{at(OF, 'v1')}/a")
    assert _widths(door.shown(), "oldObject") == [("mut", 20), ("more", 20), ("val", 20)]


async def test_an_answered_conversion_is_needed_whatever_the_failure_policy(hooked: tuple[Core, Door]) -> None:
    core, door = hooked
    await _define(core)
    await _hook(core, "validating", GROUP, "v2", plural(OF), "val", failurePolicy="Ignore")
    door.down = {"val"}
    await core.done("POST", at(OF, "v1"), thing(OF, "v1", "a"))
    door.down = {"val", "convert"}
    answer = await core.respond("POST", at(OF, "v1"), thing(OF, "v1", "b"))
    said = orjson.loads(answer.body)
    kind = definition(OF, {})["spec"]["names"]["kind"]
    told = f"Internal error occurred: conversion webhook for {GROUP}/v1, Kind={kind} failed: "
    assert (answer.status, said["message"].startswith(told)) == (500, True), said


async def test_policies_of_the_other_version_judge_and_change_converted_objects(hooked: tuple[Core, Door]) -> None:
    core, _ = hooked
    await _define(core)
    expression = "object.spec.dimensions.width < 50"
    given: Json = {"failurePolicy": "Ignore", "validations": [{"expression": expression}]}
    await _policy(core, "validating", GROUP, "v2", plural(OF), **given)
    await core.done("POST", at(OF, "v1"), thing(OF, "v1", "a"))
    answer = await core.respond("POST", at(OF, "v1"), thing(OF, "v1", "b", spec={"size": 60}))
    assert (answer.status, expression in orjson.loads(answer.body)["message"]) == (422, True)
    path = "/spec/dimensions/width"
    patch = {"expression": f"[JSONPatch{{op: 'add', path: '{path}', value: object.spec.dimensions.width + 1}}]"}
    given = {"reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": patch}]}
    await _policy(core, "mutating", GROUP, "v2", plural(OF), failurePolicy="Fail", **given)
    assert (await core.done("POST", at(OF, "v1"), thing(OF, "v1", "c")))["spec"]["size"] == 4


def _event(name: str, message: str) -> Json:
    return {"metadata": {"name": name}, "involvedObject": {"namespace": "default"}, "message": message}


async def test_events_are_shown_in_the_group_that_is_named(hooked: tuple[Core, Door]) -> None:
    core, door = hooked
    await _hook(core, "mutating", "events.k8s.io", "v1", "events", "mut")
    await _hook(core, "validating", "events.k8s.io", "v1", "events", "val")
    door.patches = {"mut": [{"op": "replace", "path": "/note", "value": "changed"}]}
    made = await core.done("POST", EVENTS, _event("a", "said"))
    assert (made["message"], made["involvedObject"], "note" in made) == ("changed", {"namespace": "default"}, False)
    (_, first), (_, then) = door.shown()
    assert [each["object"]["note"] for each in (first, then)] == ["said", "changed"]
    kind = {"group": "events.k8s.io", "version": "v1", "kind": "Event"}
    assert (first["kind"], first["requestKind"]) == (kind, {**kind, "group": ""})
    assert first["object"]["apiVersion"] == "events.k8s.io/v1"
    assert first["object"]["regarding"] == {"namespace": "default"}
    version = made["metadata"]["resourceVersion"]
    updated = await core.done("PATCH", f"{EVENTS}/a", {"reason": "x", "message": "y"}, MERGE)
    assert (updated["message"], updated["reason"]) == ("changed", "x")
    objects = [each[name] for _, each in door.shown() for name in ("oldObject", "object")]
    assert [each["metadata"]["resourceVersion"] for each in objects] == [version] * 4
    answer = await core.respond("PUT", f"{EVENTS}/a", {**made, "reason": "late"})
    assert answer.status == 409


async def test_a_hook_of_core_events_sees_those_of_the_other_group(hooked: tuple[Core, Door]) -> None:
    core, door = hooked
    await _hook(core, "mutating", "", "v1", "events", "mut")
    door.patches = {"mut": [{"op": "replace", "path": "/message", "value": "changed"}]}
    event = {
        "metadata": {"name": "a"}, "regarding": {"namespace": "default"}, "note": "said",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "a.b/c", "reportingInstance": "i",
        "action": "act", "reason": "why", "type": "Normal",
    }  # fmt: skip
    made = await core.done("POST", "/apis/events.k8s.io/v1/namespaces/default/events", event)
    assert (made["note"], made["reportingController"], "message" in made) == ("changed", "a.b/c", False)
    ((_, asked),) = door.shown()
    seen = asked["object"]
    assert (seen["message"], seen["reportingComponent"], asked["kind"]["group"]) == ("said", "a.b/c", "")


async def test_a_hook_of_events_that_is_down_and_ignored_stops_no_event(hooked: tuple[Core, Door]) -> None:
    core, door = hooked
    await _hook(core, "validating", "events.k8s.io", "v1", "events", "val", failurePolicy="Ignore")
    door.down = {"val"}
    assert (await core.done("POST", EVENTS, _event("a", "said")))["message"] == "said"


async def test_policies_judge_events_in_the_group_that_they_name(hooked: tuple[Core, Door]) -> None:
    core, _ = hooked
    validations = [{"expression": "!has(object.note) || object.note != 'bad'"}]
    await _policy(core, "validating", "events.k8s.io", "v1", "events", failurePolicy="Ignore", validations=validations)
    await core.done("POST", EVENTS, _event("a", "good"))
    assert (await core.respond("POST", EVENTS, _event("b", "bad"))).status == 422


async def test_a_hook_of_one_version_of_autoscalers_sees_the_other(hooked: tuple[Core, Door]) -> None:
    core, door = hooked
    await _hook(core, "mutating", "autoscaling", "v1", "horizontalpodautoscalers", "mut")
    door.patches = {"mut": [{"op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 55}]}
    target = {"type": "Utilization", "averageUtilization": 44}
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "maxReplicas": 3,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }  # fmt: skip
    made = await core.done("POST", SCALERS, {"metadata": {"name": "a"}, "spec": spec})
    assert made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 55
    assert [each["object"]["spec"]["targetCPUUtilizationPercentage"] for _, each in door.shown()] == [44]
