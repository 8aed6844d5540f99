"""Assigns store calls to the steps of a pod's life, by call order. Pure.

A pod's creation ends with the write that creates it, its scheduling with the one that sets its node, its start with the
one that sets Running. Everything before the first pod creation is the control plane's startup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal, get_args

from minikube_py.lab.calls.recorder import Call

Phase = Literal["start", "creation", "scheduling", "running", "events", "otherwise"]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
OF_PODS: Final[tuple[Phase, ...]] = ("creation", "scheduling", "running", "events")
CREATED, BOUND, STATUS = "txn: create", "txn: update: bind", "txn: update: status"


def by_phase(calls: Iterable[Call]) -> Counter[tuple[Phase, str, str]]:
    """Store calls, in order of their start, by phase, text and resource. Calls on pod keys count as `pods`; Events are
    counted separately, since they are written asynchronously."""
    counted: Counter[tuple[Phase, str, str]] = Counter()
    at: dict[str, Phase] = {}
    began = False
    for call in (call for call in calls if call.layer == "store"):
        pod = call.names[0] if call.resource == "pods" and call.names and call.names[0] else ""
        began = began or (bool(pod) and call.text == CREATED)
        counted[_phase(call, pod, at, began), call.text, call.resource] += 1
        if pod and call.outcome == "done":
            _move(at, pod, call.text)
    return counted


def _phase(call: Call, pod: str, at: dict[str, Phase], began: bool) -> Phase:
    if not began:
        return "start"
    if pod:
        return at.get(pod, "creation")
    return "events" if call.resource == "events" else "otherwise"


def _move(at: dict[str, Phase], pod: str, text: str) -> None:
    now = at.get(pod, "creation")
    if (now, text) == ("creation", CREATED):
        at[pod] = "scheduling"
    elif (now, text) == ("scheduling", BOUND):
        at[pod] = "running"
    elif (now, text) == ("running", STATUS):
        at[pod] = "otherwise"


def per_pod(counted: Counter[tuple[Phase, str, str]], pods: int) -> dict[Phase, float]:
    totals: Counter[Phase] = Counter()
    for (phase, _, _), count in counted.items():
        totals[phase] += count
    return {phase: totals[phase] / pods for phase in PHASES}
