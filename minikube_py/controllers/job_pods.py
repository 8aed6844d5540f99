"""What a Job derives from its pods: indexes, failures by policy, finish times. Pure.

Source: k8s.io/kubernetes/pkg/controller/job (indexed_job_utils.go, pod_failure_policy.go, success_policy.go,
backoff_utils.go).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikube_py.api.matching import int64
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import JOB_TRACKING, PodView
from minikube_py.fields.digits import whole_number

INDEX: Final = "batch.kubernetes.io/job-completion-index"
FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES: Final = "batch.kubernetes.io/job-index-ignored-failure-count"
BACKOFF_S: Final = 10.0
BACKOFF_MAX_S: Final = 600.0
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}

Spec = Mapping[str, Any]
Intervals = list[tuple[int, int]]
"""First and last of each, in order and not adjacent."""


# --- indexes ----------------------------------------------------------------------------------------------------------


def parse_intervals(text: str, completions: int) -> Intervals:
    """Parses `1,3-5`; unreadable parts are skipped, and values beyond `completions` are cut off."""
    found: Intervals = []
    for part in text.split(",") if text else ():
        limits = part.split("-")
        if not all(limit.isascii() and limit.isdigit() for limit in limits[:2]):
            continue
        first = whole_number(limits[0])
        if first >= completions:
            break
        last = min(whole_number(limits[1]), completions - 1) if len(limits) > 1 else first
        if found and found[-1][1] == first - 1:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def merged(left: Intervals, right: Iterable[tuple[int, int]]) -> Intervals:
    found: Intervals = []
    for first, last in sorted([*left, *right]):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def with_indexes(intervals: Intervals, indexes: Iterable[int]) -> Intervals:
    return merged(intervals, ((index, index) for index in indexes))


def total(intervals: Intervals) -> int:
    return sum(last - first + 1 for first, last in intervals)


def holds(intervals: Intervals, index: int) -> bool:
    return any(first <= index <= last for first, last in intervals)


def intervals_text(intervals: Intervals) -> str:
    """Two adjacent indexes are listed individually."""
    parts = []
    for first, last in intervals:
        parts.append(str(first) if first == last else f"{first}{',' if last == first + 1 else '-'}{last}")
    return ",".join(parts)


def first_missing(taken: Intervals, count: int, completions: int) -> list[int]:
    """The lowest indexes that are not in `taken`."""
    found: list[int] = []
    candidate = 0
    for first, last in (*taken, (completions, completions)):
        found += range(candidate, min(first, completions, candidate + count - len(found)))
        candidate = max(candidate, last + 1)
    return found[:count]


def index_of(pod: PodView) -> int | None:
    text = pod.run.annotations.get(INDEX, "") if pod.run is not None else ""
    return int64(text) if text.isdigit() else None


def succeeded_enough(policy: Spec | None, completions: int, succeeded: Intervals) -> str | None:
    """The rule of a success policy that is met."""
    if policy is None or not succeeded:
        return None
    for number, rule in enumerate(policy.get("rules") or ()):
        indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        if indexes is None:
            met = count is not None and total(succeeded) >= count
        else:
            wanted = parse_intervals(indexes, completions)
            inside = sum(
                max(0, min(last, end) - max(first, begin) + 1) for first, last in wanted for begin, end in succeeded
            )
            met = bool(wanted) and (inside == total(wanted) or (count is not None and inside >= count))
        if met:
            return f"Matched rules at index {number}"
    return None


# --- failures ---------------------------------------------------------------------------------------------------------


def tracked(pod: PodView) -> bool:
    return JOB_TRACKING in pod.finalizers


def only_replaces_failed(spec: Spec) -> bool:
    return spec.get("podReplacementPolicy") == "Failed" or spec.get("podFailurePolicy") is not None


def failed(pod: PodView, spec: Spec) -> bool:
    """Failed, or terminating if such pods are replaced at once."""
    if pod.phase == "Failed" or only_replaces_failed(spec):
        return pod.phase == "Failed"
    return bool(pod.deleting) and pod.phase != "Succeeded"


class Matched(NamedTuple):
    """The failure policy's result for a pod. `message`: why the whole job fails."""

    counts: bool = True
    action: str = ""
    message: str | None = None


def match_policy(spec: Spec, pod: PodView) -> Matched:
    policy = spec.get("podFailurePolicy") or {}
    status: Mapping[str, Any] = pod.run.status if pod.run is not None else {}
    for number, rule in enumerate(policy.get("rules") or ()):
        action, where = rule.get("action") or "", f"{pod.namespace}/{pod.name}"
        if (codes := rule.get("onExitCodes")) is not None:
            container = _exited(status, codes)
            if container is None:
                continue
            code = container["state"]["terminated"]["exitCode"]
            why = f"Container {container['name']} for pod {where} failed with exit code {code}"
        else:
            condition = _met(status, rule.get("onPodConditions") or ())
            if condition is None:
                continue
            why = f"Pod {where} has condition {condition}"
        message = f"{why} matching {action} rule at index {number}" if action == "FailJob" else None
        return Matched(action != "Ignore", action, message)
    return Matched()


def _exited(status: Mapping[str, Any], codes: Spec) -> Any | None:
    """The first container that exited with one of the codes."""
    wanted, name = codes.get("values") or (), codes.get("containerName")
    for kind in ("containerStatuses", "initContainerStatuses"):
        for container in status.get(kind) or ():
            ended = (container.get("state") or {}).get("terminated")
            code = (ended or {}).get("exitCode") or 0
            if not code or name not in (None, container.get("name")):
                continue
            if (code in wanted) == (codes.get("operator") == "In"):
                return container
    return None


def _met(status: Mapping[str, Any], patterns: Sequence[Spec]) -> str | None:
    for condition in status.get("conditions") or ():
        if any((condition.get("type"), condition.get("status")) == (p.get("type"), p.get("status")) for p in patterns):
            return str(condition["type"])
    return None


def _annotated(pod: PodView, name: str) -> int:
    text = pod.run.annotations.get(name, "") if pod.run is not None else ""
    found = whole_number(text) if text.isascii() and text.isdigit() else 0
    return found if found < 1 << 31 else 0


def failures_of_index(pod: PodView) -> int:
    return _annotated(pod, FAILURES)


def all_failures_of_index(pod: PodView) -> int:
    """Including failures that the policy ignores."""
    return _annotated(pod, FAILURES) + _annotated(pod, IGNORED_FAILURES)


def index_failed(spec: Spec, pod: PodView) -> bool:
    if not failed(pod, spec):
        return False
    matched = match_policy(spec, pod)
    if matched.action == "FailIndex":
        return True
    return matched.counts and failures_of_index(pod) >= spec["backoffLimitPerIndex"]


def failure_annotations(spec: Spec, replaced: PodView | None) -> dict[str, str]:
    """Annotations that carry an index's failure counts to its next pod."""
    counted, ignored = 0, 0
    if replaced is not None:
        counts = match_policy(spec, replaced).counts
        counted = _annotated(replaced, FAILURES) + counts
        ignored = _annotated(replaced, IGNORED_FAILURES) + (not counts)
    return {FAILURES: str(counted), **({IGNORED_FAILURES: str(ignored)} if ignored else {})}


def restarts(pods: Iterable[PodView]) -> int:
    """Container restarts in pods that are running or pending."""
    return sum(
        container.get("restartCount") or 0
        for pod in pods
        if pod.phase in ("Running", "Pending") and pod.run is not None
        for kind in ("initContainerStatuses", "containerStatuses")
        for container in pod.run.status.get(kind) or ()
    )


# --- times ------------------------------------------------------------------------------------------------------------


def finished_s(pod: PodView) -> float:
    """When its containers ended; else when it became unready; else when it was deleted."""
    created_s = parse_time_s(pod.created) or 0.0
    if pod.run is None:
        return created_s
    status, sidecars = pod.run.status, pod.run.sidecars
    containers = [
        *(status.get("containerStatuses") or ()),
        *(each for each in status.get("initContainerStatuses") or () if each.get("name") in sidecars),
    ]
    ends = [((each.get("state") or {}).get("terminated") or {}).get("finishedAt") for each in containers]
    if ends and all(ends):
        return max(parse_time_s(end or "") or 0.0 for end in ends)
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") == "False":
            at_s = parse_time_s(condition.get("lastTransitionTime") or "")
            if at_s is not None:
                return at_s
    if pod.deleting:
        return (parse_time_s(pod.deleting) or 0.0) - pod.run.grace_s
    return created_s


class Backoff(NamedTuple):
    """Failures since the last success, and the time of the last one."""

    failures: int = 0
    last_s: float = 0.0

    def after(self, succeeded: Sequence[PodView], failed: Sequence[PodView]) -> Backoff:
        ends = sorted(map(finished_s, failed))
        if not succeeded:
            return Backoff(self.failures + len(ends), ends[-1]) if ends else self
        success_s = max(map(finished_s, succeeded))
        later = [end for end in ends if end > success_s]
        return Backoff(len(later), later[-1]) if later else Backoff()

    def remaining_s(self, now_s: float) -> float:
        if self.failures == 0:
            return 0.0
        wait_s = min(BACKOFF_S * 2.0 ** min(self.failures - 1, 20), BACKOFF_MAX_S)
        return max(0.0, wait_s - (now_s - self.last_s))


def remaining_of_index_s(replaced: PodView | None, now_s: float) -> float:
    if replaced is None:
        return 0.0
    return Backoff(all_failures_of_index(replaced) + 1, finished_s(replaced)).remaining_s(now_s)


# --- deletion order ---------------------------------------------------------------------------------------------------


def _worth(pod: PodView) -> tuple[Any, ...]:
    """Deleted first: unassigned, pending, not ready, ready for a short time, restarted, new."""
    ready_since_s = -(parse_time_s(pod.ready_since) or 0.0) if pod.ready else 0.0
    created_s = parse_time_s(pod.created) or 0.0
    return (bool(pod.node), _PHASES.get(pod.phase, 2), pod.ready, ready_since_s, -pod.restarts, -created_s)


def pods_to_remove(spec: Spec, active: Sequence[PodView], at_least: int) -> list[PodView]:
    """Pods without an index, with one too high or already taken, then the surplus."""
    if spec.get("completionMode") != "Indexed":
        return sorted(active, key=_worth)[:at_least]
    by_index: dict[int, list[PodView]] = {}
    going: list[PodView] = []
    for pod in active:
        index = index_of(pod)
        if index is None or index >= spec["completions"]:
            going.append(pod)
        else:
            by_index.setdefault(index, []).append(pod)
    left: list[PodView] = []
    for index in sorted(by_index):
        *worse, best = sorted(by_index[index], key=_worth)
        going += worse
        left.append(best)
    return going + sorted(left, key=_worth)[: max(0, at_least - len(going))]
