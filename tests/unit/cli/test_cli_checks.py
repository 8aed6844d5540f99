"""A target that is not there is a wrong use (2), and no broken law (1)."""

from __future__ import annotations

import pytest

from minikube_py.cli.main import main


@pytest.mark.parametrize("what", ["plugin", "model", "predictor", "index", "front"])
@pytest.mark.parametrize("target", ["nobody", "nofile.py:X", "no_module_of_that_name:X"])
def test_a_missing_target_is_a_wrong_use(what: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([what, "check", target]) == 2
    assert f"minikube-py {what} check: " in capsys.readouterr().err
