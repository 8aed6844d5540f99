"""Bodies that upstream's API server was asked about: the same verdict, in the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikube_py.api.decode import decode
from minikube_py.api.errors import StatusError
from minikube_py.api.registry import REGISTRY

DATA = Path(__file__).parents[2] / "conformance" / "data"
CASES: list[dict[str, Any]] = json.loads((DATA / "api_bodies.json").read_text())

DEFAULTED = frozenset((
    "creationTimestamp", "uid", "namespace", "generation", "managedFields", "resourceVersion", "status",
    "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "restartPolicy", "dnsPolicy",
    "terminationGracePeriodSeconds", "schedulerName", "securityContext", "enableServiceLinks", "preemptionPolicy",
    "priority", "tolerations", "protocol", "clusterIP", "clusterIPs", "type", "sessionAffinity", "ipFamilies",
    "ipFamilyPolicy", "internalTrafficPolicy",
))  # fmt: skip
"""What upstream's defaulting and strategies add after decoding."""


def difference(theirs: Any, ours: Any, path: str = "") -> str:
    """The first difference, "" where there is none; members that are added after decoding may lack in ours."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in {*theirs, *ours}:
            if name == "status":
                continue
            if name not in theirs:
                return f"{path}.{name} is only in ours: {ours[name]!r}"
            if name not in ours:
                if name not in DEFAULTED:
                    return f"{path}.{name} is only in theirs: {theirs[name]!r}"
                continue
            if found := difference(theirs[name], ours[name], f"{path}.{name}"):
                return found
        return ""
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return f"{path}: {theirs!r} != {ours!r}"
        found = (difference(t, o, f"{path}[{i}]") for i, (t, o) in enumerate(zip(theirs, ours, strict=True)))
        return next(filter(None, found), "")
    return "" if theirs == ours and type(theirs) is type(ours) else f"{path}: {theirs!r} != {ours!r}"


def resource_of(plural: str) -> Any:
    return next(resource for resource in REGISTRY.kinds if resource.plural == plural)


def body_of(case: dict[str, Any]) -> bytes:
    return bytes.fromhex(case["hex"]) if "hex" in case else str(case["body"]).encode()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_a_body_is_judged_as_by_the_original(case: dict[str, Any]) -> None:
    resource = resource_of(case["plural"])
    refused_by_decoding = case["code"] in (400, 413, 415)
    try:
        obj, warnings = decode(resource, body_of(case), case["content_type"], case["validation"])
    except StatusError as error:
        assert (error.code, error.reason, error.message) == (case["code"], case.get("reason"), case.get("message"))
        return
    assert not refused_by_decoding, f"upstream answers {case['message']!r}"
    told = [f'299 - "{warning}"'.replace('\\', '\\\\') for warning in warnings]
    expected = [warning.replace('\\"', '"') for warning in case.get("warnings", [])]
    assert [text.replace('\\"', '"') for text in told] == expected
    if "answer" in case:
        assert difference(case["answer"], obj) == ""
