"""The pod security standards on upstream's own fixtures, and on mixtures of them: its words at every level and version.

The answers are upstream's, by `tests/conformance/pod_security_answers.go`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api.pod_security import (
    BASELINE,
    CHECKS,
    LATEST,
    LEVELS,
    PREFIX,
    RESTRICTED,
    Standard,
    policy_of,
    told,
    violations,
)

DATA = Path(__file__).parents[2] / "conformance" / "data" / "pod_security.json"
FACTS: dict[str, Any] = json.loads(DATA.read_text())
MINORS = range(37)


@pytest.mark.parametrize("level", [BASELINE, RESTRICTED])
def test_pods_violate_what_upstream_says(level: str) -> None:
    compared = 0
    for fact in FACTS["pods"]:
        pod, changes = fact["pod"], dict(fact[level])
        expected = ""
        for minor in MINORS:
            expected = FACTS["texts"][changes[minor]] if minor in changes else expected
            found = told(violations(Standard(level, minor), pod["metadata"], pod["spec"]))
            assert found == expected, (minor, pod)
            compared += 1
    assert compared > 15_000 and len(FACTS["texts"]) > 300


def test_every_check_is_tried_by_the_facts() -> None:
    """A check that is left out is missed."""
    for check in CHECKS:
        level, minor = check.level, max(since for since, _ in check.looks)
        look = dict(check.looks)[minor]
        pods = [fact["pod"] for fact in FACTS["pods"]]
        assert any(look(pod["metadata"], pod["spec"]) for pod in pods), (check.id, level)


def test_latest_is_the_newest() -> None:
    for fact in FACTS["pods"][::7]:
        pod = fact["pod"]
        for level in LEVELS:
            newest = violations(Standard(level, 36), pod["metadata"], pod["spec"])
            assert violations(Standard(level, LATEST), pod["metadata"], pod["spec"]) == newest


_values = st.sampled_from((*LEVELS, "", "x", "latest", "v1.0", "v1.35", "v1.99", "v1.01", "v2.0", "v1." + "9" * 30))
_names = [f"{PREFIX}{mode}{end}" for mode in ("enforce", "audit", "warn") for end in ("", "-version")]
_labels = st.dictionaries(st.sampled_from(_names), _values)


@given(_labels)
def test_what_cannot_be_read_is_strict_where_it_is_enforced_alone(labels: dict[str, str]) -> None:
    policy, errors = policy_of(labels)
    wrong = {error.field.partition("[")[2].removesuffix("]") for error in errors}
    assert wrong <= labels.keys()
    if f"{PREFIX}enforce" in wrong:
        assert policy.enforce.level == RESTRICTED and (f"{PREFIX}warn" in labels or policy.warn.level == "privileged")
    for mode in ("audit", "warn"):
        if f"{PREFIX}{mode}" in wrong:
            assert getattr(policy, mode).level == "privileged"
    if not labels:
        assert policy.enforce == policy.audit == policy.warn == Standard()
