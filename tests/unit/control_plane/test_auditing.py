"""The flags of the audit log: what is refused, and what processes get."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import pytest
from step_clock import StepClock

from minikube_py.apiserver.audit_log import LogOptions
from minikube_py.cli import audit_flags
from minikube_py.control_plane.auditing import NO_AUDIT, Auditing
from minikube_py.control_plane.errors import SetupError

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"


def parsed(*given: str) -> Auditing:
    parser = argparse.ArgumentParser()
    audit_flags.add_audit(parser)
    return audit_flags.audit(parser.parse_args(given))


def test_the_flags_of_a_process_say_what_was_parsed(tmp_path: Path) -> None:
    assert parsed() == NO_AUDIT and NO_AUDIT.flags() == []
    log = LogOptions(str(tmp_path / "a.log"), 1, 2, 3, "batch")
    (tmp_path / "policy.yaml").write_text(POLICY)
    given = Auditing(tmp_path / "policy.yaml", log)
    assert parsed(*given.flags()) == given
    assert parsed(*given.of_process(0).flags()) == given
    third = given.of_process(2)
    assert third.log is not None and third.log.path == str(tmp_path / "a-3.log")
    assert parsed("--audit-log-path", "-").to_standard_output and not given.to_standard_output


REFUSED = [("--audit-log-format", "legacy"), ("--audit-log-mode", "x"), ("--audit-log-maxage", "-1")]


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_not_honoured_is_refused(given: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*given)
    assert given[0] in capsys.readouterr().err


async def test_only_a_policy_and_a_path_together_log(tmp_path: Path) -> None:
    policy, log = tmp_path / "p", LogOptions(str(tmp_path / "logs" / "a.log"))
    policy.write_text(POLICY)
    given = StepClock(), lambda: random.Random(1), 60.0
    assert NO_AUDIT.auditor(*given) is Auditing(policy).auditor(*given) is Auditing(None, log).auditor(*given) is None
    auditor = Auditing(policy, log).auditor(*given)
    assert auditor is not None
    await auditor.stop()
    policy.write_text("kind: Pod")
    with pytest.raises(SetupError, match="--audit-policy-file: loading audit policy file: failed decoding: no kind"):
        Auditing(policy, log).auditor(*given)
    with pytest.raises(SetupError, match="--audit-log-path"):
        Auditing(None, LogOptions(str(policy / "a.log"))).auditor(*given)
