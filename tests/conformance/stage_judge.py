"""Ours beside the answers of `stage_answers.go`: what differs, as a text, or ours in the same form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from minikube_py.api.yaml_text import YamlError, read
from minikube_py.stages import jq
from minikube_py.stages import template as templates
from minikube_py.stages.errors import NotUnderstood, StageFailed
from minikube_py.stages.files import Stages, load
from minikube_py.stages.go_values import Int
from minikube_py.stages.stage import Delete, Emit, Stage, possible
from minikube_py.stages.template_syntax import Param

NOW_S = 1136214245.0
STRICTER = ("does not fit", "more than verbs", "has no argument")
"""Of printf: where Go writes `%!d(string=x)`, ours fails."""
_TYPES = {bool: "bool", str: "string", int: "float64", float: "float64", jq.Whole: "int", list: "[]interface {}",
          dict: "map[string]interface {}"}  # fmt: skip
_SAID = ("Now", "StartTime", "Version", "NodeIP", "NodeName", "PodIP")
DOORS: dict[str, Any] = {
    **{name: (lambda name=name: f"<{name}>") for name in _SAID},
    "NodePort": lambda: Int(10250),
    "NodeIPWith": lambda node: f"<NodeIPWith {node}>",
    "NodeIPsWith": lambda node: [f"<NodeIPsWith {node}>"],
    "PodIPWith": lambda *given: f"<PodIPWith {_spoken(given)}>",
    "PodIPsWith": lambda *given: [f"<PodIPsWith {_spoken(given)}>"],
}


def _spoken(given: Sequence[Any]) -> str:
    return " ".join(str(each).lower() if isinstance(each, bool) else each for each in given)


def query(given: dict[str, Any], answer: dict[str, Any]) -> str:
    try:
        values = jq.compile(given["query"]).values(given["data"])
    except NotUnderstood as error:
        return "" if "refused" in answer or "edge" in given else f"{given['query']}: refused: {error}"
    if "refused" in answer or values != answer["values"]:
        return f"{given['query']}: {values} and not {answer}"
    types = [_TYPES[type(each)] for each in values or ()]
    return "" if values is None or types == answer["types"] else f"{given['query']}: {types} and not {answer['types']}"


def template(given: dict[str, Any], answer: dict[str, Any]) -> str:
    text = given["template"]
    try:
        compiled = templates.compile(text, dict.fromkeys(_SAID, Param(())))
        found = compiled.render(given["data"], DOORS)
    except NotUnderstood as error:
        return "" if "refused" in answer or "edge" in given else f"{text!r}: refused: {error}"
    except StageFailed as error:
        excused = "refused" in answer or any(each in str(error) for each in STRICTER)
        return "" if excused else f"{text!r}: {error} and not {answer}"
    if "refused" in answer:
        return f"{text!r}: {found!r} and not {answer}"
    # YAML is written another way, with the same meaning.
    if "YAML" not in text and found != answer["text"]:
        return f"{text!r}: {found!r} and not {answer['text']!r}"
    try:
        value = read(found.encode())[0]
    except YamlError as error:
        return f"{text!r}: {error} and not {answer['json']!r}" if "json" in answer and "YAML" not in text else ""
    same = "json" in answer and json.dumps(value, sort_keys=True) == json.dumps(answer["json"], sort_keys=True)
    return "" if same or "YAML" in text else f"{text!r}: {value!r} and not {answer}"


@lru_cache(64)
def _loaded(paths: tuple[Path, ...]) -> Stages:
    return load(paths)


def life(paths: Sequence[Path], obj: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The stages that may come next, in the form of `told`; None where a rule fails."""
    mine = [each for each in _loaded(tuple(paths)).all if each.ref.kind == obj["kind"]]
    seen = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    seen = seen if obj["kind"] in ("Pod", "Node") else obj
    try:
        return [_stage(stage, seen) for stage, _ in possible(mine, seen)]
    except StageFailed:
        return None


def _stage(stage: Stage, obj: dict[str, Any]) -> dict[str, Any]:
    least, most = stage.delay_range_s(obj, NOW_S)
    delay = [round(least * 1e9)] + ([round(most * 1e9)] if most != least else [])
    steps: list[Any] = []
    failed = False
    try:
        for step in stage.steps:
            for action in step.actions(obj, DOORS):
                if isinstance(action, Emit):
                    steps.append({"event": list(action)})
                elif isinstance(action, Delete):
                    steps.append({"delete": True})
                else:
                    body = json.loads(action.body)
                    steps.append({action.verb: body, "type": action.content_type, "subresource": action.subresource})
    except StageFailed:
        failed = True
    weight = stage.weight_of(obj)
    return {"stage": stage.name, "immediate": stage.immediate, "delay": delay, "weight": weight, "steps": steps,
            "failed": failed}  # fmt: skip


def told(answer: Any) -> list[dict[str, Any]] | None:
    """KWOK's answer: no delay is one of 0."""
    if isinstance(answer, dict):
        assert "error" in answer
        return None
    return [
        {**each, "delay": each.get("delay") or [0], "weight": each.get("weight"), "failed": "failed" in each}
        for each in answer
    ]
