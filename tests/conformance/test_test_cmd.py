"""Some functions of Kubernetes' own test-cmd, unchanged, against ours. `make test-cmd` runs them all."""

from __future__ import annotations

import json

import judge_test_cmd
from needs import original_program

SAMPLE = ("run_assert_short_name_tests", "run_kubectl_create_error_tests", "run_create_secret_tests")


def test_a_sample_passes(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    original_program("kubectl")
    failed = {name: found for name, found in judge_test_cmd.judged("ours", SAMPLE, tmp_path) if not found.passed}
    assert not failed, {name: (tmp_path / f"{name}.log").read_text()[-2000:] for name in failed}


def test_the_table_is_that_of_the_results() -> None:
    results = json.loads(judge_test_cmd.RESULTS.read_text())
    assert judge_test_cmd.TABLE.read_text() == judge_test_cmd.table(results)
    unexplained = {name for name, found in results["ours"].items() if found != "passed"} - judge_test_cmd.REASONS.keys()
    assert not unexplained, unexplained
