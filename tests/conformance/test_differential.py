"""The original beside ours: the same kubectl commands and the same raw requests, answers compared one by one.

The original's answers are recorded (record.py), so that this runs where it is not installed. What differs on purpose
stands in differences.py with its reason; a difference listed there that no longer exists fails as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import differences
import ours
import pytest
import raw_cases
import record
import scenario
from needs import kubectls, require_kubectls

from minikube_py.control_plane.config import COMPONENTS

MINORS = sorted(kubectls()) or [0]


def recorded(path: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def explain(wrong: dict[str, tuple[Any, Any]]) -> str:
    parts = [
        f"--- {name}\n    original: {json.dumps(theirs)[:1500]}\n    ours:     {json.dumps(mine)[:1500]}"
        for name, (theirs, mine) in wrong.items()
    ]
    return f"{len(wrong)} answers differ:\n" + "\n".join(parts)


def check(answers: dict[str, Any], expected: dict[str, Any], on_purpose: dict[str, str], all_differ: bool) -> None:
    """With `all_differ`, what is listed as different on purpose must be so still."""
    wrong = {name: (expected[name], mine) for name, mine in answers.items() if mine != expected[name]}
    unexpected = {name: pair for name, pair in wrong.items() if name not in on_purpose}
    assert not unexpected, explain(unexpected)
    stale = sorted(name for name in on_purpose if name in answers and name not in wrong)
    assert not (all_differ and stale), f"listed as different, but alike: {stale}"


@pytest.mark.timeout(300)
def test_raw_requests_answer_as_the_original() -> None:
    with ours.serve() as server:
        answers = record.raw_answers(server["url"], server["token"])
    assert set(answers) == {case.name for case in raw_cases.CASES}
    check(answers, recorded(record.RAW_FILE), differences.RAW, all_differ=True)


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
    # Some differences show with newer versions only.
    check(answers, expected, differences.KUBECTL, all_differ=minor == MINORS[-1])
