"""docs/how-to/gangs.md as written, in virtual time."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from gang_world import GROUPS, PODS, World

from minikube_py.cli import explain_pod, running, up
from minikube_py.cli.main import main

PAGE = (Path(__file__).parents[3] / "docs/how-to/gangs.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def finished(asking: Coroutine[Any, Any, Any]) -> Any:
    try:
        asking.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def test_the_page_says_what_happens(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line for text in blocks("sh") for line in text.splitlines()]
    parser = argparse.ArgumentParser()
    up.configure(parser)
    arguments = parser.parse_args(shlex.split(commands[0])[2:])
    files = {text.splitlines()[0].removeprefix("# "): list(yaml.safe_load_all(text)) for text in blocks("yaml")}
    world = World(*[4] * arguments.nodes, gates=arguments.feature_gates)

    class InWorld:
        def __init__(self, arguments: Any) -> None: ...

        async def __aenter__(self) -> InWorld:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def ask(self, method: str, path: str, params: Mapping[str, str]) -> Any:
            answer = world.cluster.request(method, f"/minikube-py/v1/{path}", None, dict(params))
            return json.loads(answer.body)

    monkeypatch.setattr(explain_pod, "Api", InWorld)
    monkeypatch.setattr(running, "run_interruptible", finished)
    try:
        for command in commands[1:]:
            words = shlex.split(command)
            if words[:2] == ["kubectl", "apply"]:
                for name in words[3::2]:
                    for obj in files[name]:
                        world.ask("POST", GROUPS if obj["kind"] == "PodGroup" else PODS, obj, 201)
                world.cluster.advance(20)
            elif words[:2] == ["minikube-py", "explain"]:
                assert main(words[1:]) == 0
                assert capsys.readouterr().out.startswith(blocks("text")[0])
            else:
                assert command == "kubectl get podgroups"
        assert world.bound() == {"worker-0", "worker-1", "worker-2"}
        assert world.condition("training") == ("True", "Scheduled", "")
    finally:
        world.close()


def test_up_refuses_a_gate_in_upstreams_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--feature-gates", "GangScheduling=true"]) == 2
    words = "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]"
    assert words in capsys.readouterr().err
