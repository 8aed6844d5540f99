"""Evictions in every state of a pod and of its budgets: requests in the order in which both servers are asked them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asking import Ask

MERGE = "application/merge-patch+json"
NAMESPACE = "evicted"
_IN = f"/api/v1/namespaces/{NAMESPACE}"
_BUDGETS = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
_TIME = "2026-01-01T00:00:00Z"


def _ready(value: str, phase: str = "Running", **more: Any) -> dict[str, Any]:
    return {"phase": phase, "conditions": [{"type": "Ready", "status": value, "lastTransitionTime": _TIME}], **more}


_TARGETED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "lastTransitionTime": _TIME}
PODS: dict[str, dict[str, Any] | None] = {
    "ready": _ready("True"),
    "unready": _ready("False"),
    "pending": None,
    "done": _ready("False", "Succeeded"),
    "failed": _ready("False", "Failed"),
    "targeted": {**_ready("True"), "conditions": [*_ready("True")["conditions"], _TARGETED]},
}


def _counts(allowed: int, current: int = 2, desired: int = 1, generation: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "disruptionsAllowed": allowed, "currentHealthy": current, "desiredHealthy": desired, "expectedPods": 3,
        "observedGeneration": generation, **more,
    }  # fmt: skip


def _condition(status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": "DisruptionAllowed", "status": status, "reason": reason, "message": message, "lastTransitionTime": _TIME}


_MANY = {f"p{i}": _TIME for i in range(2001)}
BUDGETS: dict[str, tuple[dict[str, Any], dict[str, Any]] | None] = {
    "no budget": None,
    "one left": ({}, _counts(1)),
    "one left, and a condition": ({}, _counts(1, conditions=[_condition("True", "SufficientPods", "")])),
    "two left": ({}, _counts(2)),
    "none left": ({}, _counts(0, 1, 1)),
    "none left of enough": ({}, _counts(0, 3, 1)),
    "none left, for a reason": ({}, _counts(0, 3, 1, conditions=[_condition("False", "InsufficientPods", "because")])),
    "sync failed": ({}, _counts(0, 0, 0, conditions=[_condition("False", "SyncFailed", "no scale")])),
    "not yet seen": ({}, _counts(5, generation=0)),
    "too many on their way": ({}, _counts(5, disruptedPods=_MANY)),
    "unready pods may go": ({"unhealthyPodEvictionPolicy": "AlwaysAllow"}, _counts(0, 0, 1)),
    "unready pods may go where enough are healthy": ({"unhealthyPodEvictionPolicy": "IfHealthyBudget"}, _counts(0, 1, 1)),
    "nothing is expected": ({}, _counts(0, 0, 0)),
}


def _pod(name: str, status: dict[str, Any] | None) -> Iterator[Ask]:
    spec = {"containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 0}
    if status is not None:
        spec["nodeName"] = "nowhere"
    yield Ask("pod", "POST", f"{_IN}/pods", {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
    if status is not None:
        yield Ask("pod", "PATCH", f"{_IN}/pods/{name}/status", {"status": status}, MERGE)


def _budget(name: str, app: str, spec: dict[str, Any], status: dict[str, Any]) -> Iterator[Ask]:
    whole = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}, **spec}
    yield Ask("budget", "POST", _BUDGETS, {"metadata": {"name": name}, "spec": whole})
    yield Ask("budget", "PATCH", f"{_BUDGETS}/{name}/status", {"status": status}, MERGE)


def _evict(case: str, name: str, query: str = "", body_name: str = "", **options: Any) -> Ask:
    body: dict[str, Any] = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": body_name or name}}
    if options:
        body["deleteOptions"] = options
    return Ask(case, "POST", f"{_IN}/pods/{name}/eviction{query}", body)


RETRIED = ("pending", "done", "failed")
"""In these states upstream tries again for 10 s where a precondition does not hold: one of them is enough."""


def cases() -> Iterator[Ask]:
    yield Ask("setup", "POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    yield Ask("without a name", "POST", f"{_IN}/pods/absent/eviction", {})
    number = 0
    for state, status in PODS.items():
        for budget, told in BUDGETS.items():
            number += 1
            name, case = f"e{number}", f"{state}, {budget}"
            yield from _pod(name, status)
            if told is not None:
                yield from _budget(name, name, *told)
            yield _evict(case, name, "?dryRun=All")
            yield _evict(case, name, dryRun=["All"])
            yield _evict(f"wrong options, {case}", name, "?dryRun=All" if number % 2 else "", propagationPolicy="Wrong", preconditions={"uid": ""})
            if state not in RETRIED or (state, budget) == ("pending", "one left"):
                yield _evict(case, name, preconditions={"uid": "other"})
                yield _evict(case, name, preconditions={"resourceVersion": "1"})
            yield Ask(case, "GET", f"{_IN}/pods/{name}")
            yield _evict(case, name, gracePeriodSeconds=30 if number % 2 else 0)
            yield Ask(case, "GET", f"{_IN}/pods/{name}")
            if told is not None and "too many" not in budget:
                yield Ask(case, "GET", f"{_BUDGETS}/{name}")
            yield _evict(case, name)
    yield from _pod("both", _ready("True"))
    yield from _budget("all", "both", {"selector": {}}, _counts(1))
    yield from _budget("its", "both", {}, _counts(1))
    yield _evict("two budgets", "both")
    yield Ask("two budgets", "DELETE", f"{_BUDGETS}/its")
    yield _evict("another name", "both", body_name="ready")
    yield _evict("unsafe", "both", ignoreStoreReadErrorWithClusterBreakingPotential=True)
    yield _evict("absent", "nobody")
    for kind in ("DeleteOptions", "Other", "", None):
        for version in ("v1", "v2", "meta.k8s.io/v1", "meta.k8s.io/v2", "policy/v1", "no.such/v3", "a/b/c", "x/", "/", "", None):
            body = {"dryRun": ["All"], **({"kind": kind} if kind is not None else {}), **({"apiVersion": version} if version is not None else {})}
            yield Ask("options of a deletion", "DELETE", f"{_IN}/pods/both", body)
    yield _evict("the last", "both")
