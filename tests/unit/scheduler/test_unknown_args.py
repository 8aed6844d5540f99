"""An argument that nothing reads is refused by name: a misspelt one would be as if it were not there."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from minikube_py.cli.main import main
from minikube_py.scheduler.configuration.merging import ConfigError
from minikube_py.scheduler.flow.models import MODELS, model_named
from minikube_py.scheduler.flow.placement import read_args
from minikube_py.scheduler.packing.policies import POLICIES
from minikube_py.scheduler.prediction.predictor import predictor_named
from minikube_py.scheduler.prediction.predictors import PREDICTORS


def refused(name: str, call: Any) -> None:
    with pytest.raises(ConfigError, match=f"has no argument {name!r}; it has: "):
        call()


@pytest.mark.parametrize("model", MODELS)
def test_of_a_cost_model(model: str) -> None:
    refused("nope", lambda: model_named(model, {"nope": 1}, random.Random(0)))
    known = MODELS[model].defaults
    assert model_named(model, known, random.Random(0)).args == known


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_of_a_predictor(predictor: str) -> None:
    refused("nope", lambda: predictor_named(predictor, {"nope": 1}))


@pytest.mark.parametrize("policy", POLICIES)
def test_of_a_policy_of_packing(policy: str) -> None:
    handle: Any = None
    refused("nope", lambda: POLICIES[policy]({"nope": 1}, handle))


def test_below_the_first_level() -> None:
    handle: Any = None
    refused("onn", lambda: model_named("QUINCY", {"inputs": {"a": {"gib": 8, "onn": {}}}}, random.Random(0)))
    sample = {"app": "a", "runtimeSeconds": 1, "instructions": 1, "corunners": []}
    refused("corunners", lambda: model_named("WHARE", {"samples": [sample]}, random.Random(0)))
    refused("gpu", lambda: POLICIES["fgd"]({"typicalPods": [{"gpu": 1}]}, handle))
    refused("rounds", lambda: read_args({"rounds": 1}))


def test_the_check_of_a_model_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "check", "CPU_MEM", "--args", "{machineClases: 3}"]) == 2
    said = "minikube-py model check: cost model CPU_MEM has no argument 'machineClases'; it has: machineClasses; see "
    assert capsys.readouterr().err.startswith(said)
    own = tmp_path / "mine.py"
    own.write_text("from minikube_py.scheduler.flow import CostModel\n\n\nclass Mine(CostModel):\n    pass\n")
    assert main(["model", "check", f"{own}:Mine", "--args", "{nope: 1}"]) == 2
    assert "cost model Mine has no argument 'nope'; it has: none" in capsys.readouterr().err
