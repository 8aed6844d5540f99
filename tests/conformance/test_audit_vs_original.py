"""Audit events beside upstream, under drawn policies. `audit_judge.py` judges more requests, and other policies."""

from __future__ import annotations

import audit_judge
import pytest

pytestmark = pytest.mark.original


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "examples"), [(0, 60), (7, 30)])
def test_events_are_upstreams(seed: int, examples: int) -> None:
    whole = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "RequestResponse"}]}
    report = audit_judge.judge(audit_judge.drawn_policy(seed) if seed else whole, examples, seed)
    print(report.counts())
    assert not report.left, f"{report.text()}\n{report.counts()}"
    assert report.alike > 300 and len(report.skipped) < 20
