"""Each command that runs code of a user's own, with code that ends the process, fails or runs out of memory at one of
its methods: one clear line that names the place, no traceback, and an exit code that is not 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikube_py.cli import main
from minikube_py.lab.plugins.model_laws import POINTS

SILENT = "SystemExit(0)"
OTHERS = ("ValueError('no')", "MemoryError()")
MODEL = """
from minikube_py.scheduler.flow import Arc, CostModel

class Mine(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(1_000_000)
    def get_task_preference_arcs(self, task, machines):
        return range(len(machines))
    def get_equiv_class_to_equiv_classes_arcs(self, ec):
        return () if ec == "more" else ("more",)
"""
PREDICTOR = """
class Mine:
    samples = 12
    def peak(self, past):
        return past.limit
"""
PLUGIN = """
class Mine:
    name = "Mine"
    def filter(self, state, pod, node):
        return None
    def score(self, state, pod, node):
        return 0
    def unreserve(self, state, pod, node_name):
        pass
"""
FRONT = """
import numpy as np

class Mine:
    bound = 1.0
    def __init__(self, points, shards):
        self.shards = shards
    def passing(self, asked):
        return np.ones((len(asked), self.shards), np.bool_)
    def put(self, slot, point):
        pass
    def size_bytes(self):
        return 0
"""
STRUCTURE = """
from minikube_py.index.structures.scan import Scan

class Mine(Scan):
    structure = "mine"
"""
USAGE = """
class Mine:
    def usage(self, pod, minute):
        return {}
"""
LOAD = """
from minikube_py.scheduler.prediction.trimaran import TargetLoadPacking

class Load(TargetLoadPacking):
    name = "Load"
"""
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "model check {} --examples 3": (MODEL, ("__init__", *POINTS)),
    "bench flow --nodes 3 --pods 6 --classes 2 --solver numpy --model {}": (
        MODEL,
        ("__init__", *(point for point in POINTS if point not in (
            # Only running pods are asked for these, and only clusters that live on.
            "task_key", "remove_task", "remove_machine", "task_continuation", "task_preemption",
        ))),
    ),
    "predictor check {} --examples 3": (PREDICTOR, ("__init__", "peak", "samples", "name", "looks_ahead")),
    "lab prediction --seeds 1 --nodes 1 --predictor {}": (PREDICTOR, ("__init__", "samples", "peak")),
    "plugin check {} --no-bench --examples 3": (
        PLUGIN,
        ("__init__", "filter", "score", "pre_filter", "pre_score", "reserve", "permit", "events_to_register"),
    ),
    "front check {} --no-bench --examples 9": (FRONT, ("__init__", "passing", "put", "size_bytes")),
    "index check {} --no-bench --examples 5": (
        STRUCTURE,
        ("__init__", "put", "remove", "find", "may_match", "size_bytes"),
    ),
    'plugin check load.py:Load --no-bench --examples 3 --args {{"usage":"{}"}}': (USAGE, ("__init__",)),
}
"""By command: right code, and the methods that the command calls."""
TRIED = [(typed, method, SILENT) for typed, (_, methods) in COMMANDS.items() for method in methods]
TRIED += [(typed, methods[-1], raised) for typed, (_, methods) in COMMANDS.items() for raised in OTHERS]


def wrong(text: str, method: str, raised: str) -> str:
    if method in ("samples", "name", "looks_ahead"):
        return f"{text}\n    @property\n    def {method}(self):\n        raise {raised}\n"
    tiers = "\n    machine_classes = 2\n" if method == "equiv_class_to_machine_classes" else ""
    return f"{text}{tiers}\n    def {method}(self, *given, **named):\n        raise {raised}\n"


@pytest.mark.parametrize(("typed", "method", "raised"), TRIED)
def test_what_ends_at_a_method_is_one_line_and_no_success(
    typed: str, method: str, raised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("load.py").write_text(LOAD)
    Path("mine.py").write_text(wrong(COMMANDS[typed][0], method, raised))
    code = main.main(typed.format("mine.py:Mine").split())
    printed = "".join(capsys.readouterr())
    assert code in (1, 2), printed
    assert "Traceback" not in printed
    name = raised.split("(")[0]
    assert any(name in line and "(mine.py, line " in line for line in printed.splitlines()), printed


@pytest.mark.parametrize("typed", COMMANDS)
def test_right_code_is_a_success(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("load.py").write_text(LOAD)
    Path("mine.py").write_text(COMMANDS[typed][0])
    assert main.main(typed.format("mine.py:Mine").split()) == 0, "".join(capsys.readouterr())
