"""What runs by default here is what runs by default upstream, but for what is named with its reason.

Upstream's sets are recorded from its source by `tests/conformance/record_defaults.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import differences
import pytest

from minikube_py.api.feature_gates import known
from minikube_py.apiserver.admission import OFF, ORDER
from minikube_py.controllers.manager import CONTROLLERS

ROOT = Path(__file__).resolve().parents[3]
RECORDED = json.loads((ROOT / "tests" / "conformance" / "data" / "defaults.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "reference" / "what-works.md").read_text(encoding="utf-8")
GATES = {name.lower(): on for name, (on, _) in known().items()}
"""A comment upstream writes one of them in another case."""
GONE = "validatingadmissionpolicy"
"""A comment upstream names this gate, which is on for good."""


def _on(gates: Iterable[str]) -> bool:
    return all(gate.lower() == GONE or GATES[gate.lower()] for gate in gates)


PLUGINS = {name for name, on, gate in RECORDED["admission"] if on and _on([gate] if gate else [])}
MANAGED = {
    name for name, needs in RECORDED["controllers"].items() if not {"cloud", "disabled"} & {*needs} and _on(needs)
}


def test_the_recorded_sets_are_whole() -> None:
    assert len(RECORDED["admission"]) == 41 and len(PLUGINS) == 25
    assert len(RECORDED["controllers"]) == 52 and len(MANAGED) == 41


def test_each_plugin_that_is_on_upstream_is_on_here_or_named() -> None:
    assert PLUGINS ^ {name for name in ORDER if name not in OFF} == {*differences.ADMISSION}


def test_the_plugins_stand_in_upstreams_order() -> None:
    assert list(ORDER) == [name for name, _, _ in RECORDED["admission"] if name in ORDER]


def test_each_controller_that_is_on_upstream_is_on_here_or_named() -> None:
    assert MANAGED ^ {*CONTROLLERS} == {*differences.CONTROLLERS}


@pytest.mark.parametrize("heading", ["Admission plugins", "Controllers"])
def test_the_page_names_what_differs(heading: str) -> None:
    named = differences.ADMISSION if heading == "Admission plugins" else differences.CONTROLLERS
    _, _, section = PAGE.partition(f"\n## {heading}\n")
    section, _, _ = section.partition("\n## ")
    assert re.findall(r"^- ([\w-]+): (.*)$", section, re.MULTILINE) == list(named.items())
