"""Metrics of the scheduler: the page has those that the code names; upstream's are there, or listed with a reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from minikube_py.client.events import EventRecorder
from minikube_py.scheduler.flow.rounds import Rounds

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "metrics.md"
NO_METRICS = {"scheduler_name"}
UPSTREAM = {
    "schedule_attempts_total": ("C", "profile, result"),
    "event_handling_duration_seconds": ("H", "event"),
    "scheduling_attempt_duration_seconds": ("H", "profile, result"),
    "scheduling_algorithm_duration_seconds": ("H", ""),
    "preemption_victims": ("H", ""),
    "preemption_attempts_total": ("C", ""),
    "pending_pods": ("G", "queue"),
    "inflight_events": ("G", "event"),
    "goroutines": ("G", "operation"),
    "batch_attempts_total": ("C", "profile, result"),
    "batch_cache_flushed_total": ("C", "profile, reason"),
    "pod_scheduling_sli_duration_seconds": ("H", "attempts"),
    "pod_scheduling_attempts": ("H", ""),
    "pod_scheduled_after_flush_total": ("C", ""),
    "framework_extension_point_duration_seconds": ("H", "extension_point, profile, status"),
    "plugin_execution_duration_seconds": ("H", "extension_point, plugin, status"),
    "queueing_hint_execution_duration_seconds": ("H", "event, hint, plugin"),
    "queue_incoming_pods_total": ("C", "event, queue"),
    "permit_wait_duration_seconds": ("H", "result"),
    "cache_size": ("G", "type"),
    "unschedulable_pods": ("G", "plugin, profile"),
    "plugin_evaluation_total": ("C", "extension_point, plugin, profile"),
    "preemption_goroutines_duration_seconds": ("H", "result"),
    "preemption_goroutines_execution_total": ("C", "result"),
    "async_api_call_execution_total": ("C", "call_type, result"),
    "async_api_call_execution_duration_seconds": ("H", "call_type, result"),
    "pending_async_api_calls": ("G", "call_type"),
    "resourceclaim_creates_total": ("C", "status"),
    "dra_bindingconditions_allocations_total": ("C", "driver, profile, status"),
    "dra_bindingconditions_wait_duration_seconds": ("H", "driver, profile, status"),
    "get_node_hint_duration_seconds": ("H", "hinted, profile"),
    "store_schedule_results_duration_seconds": ("H", "profile"),
    "podgroup_schedule_attempts_total": ("C", "profile, result"),
    "podgroup_scheduling_attempt_duration_seconds": ("H", "profile, result"),
    "podgroup_scheduling_algorithm_duration_seconds": ("H", ""),
    "volume_binder_cache_requests_total": ("C", "operation"),
    "volume_scheduling_stage_error_total": ("C", "operation"),
}
"""Type and labels, after `scheduler_`. Source: Kubernetes v1.36.2, pkg/scheduler/metrics/metrics.go, and metrics.go of
the plugin VolumeBinding."""


def page() -> tuple[dict[str, tuple[str, str]], set[str]]:
    """The metrics that are served, with type and labels, and the names that are not."""
    (section,) = re.findall(r"^## Scheduler\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    served, absent = section.split("\nUpstream's scheduler has these")
    rows = re.findall(r"^\| `(\w+)` \| ([CGHS]) \|([^|]*)\|", served, re.M)
    names = {name for row in re.findall(r"^\| (`[^|]*) \|", absent, re.M) for name in re.findall(r"`(\w+)`", row)}
    return {name: (kind, labels.strip()) for name, kind, labels in rows}, names


def named_in_the_code() -> set[str]:
    found = set()
    for path in (ROOT / "minikube_py" / "scheduler").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and re.fullmatch(r"scheduler_[a-z_]*[a-z]", str(node.value)):
                found.add(str(node.value))
    return found - NO_METRICS


def counted(kind: Any, *attributes: str) -> set[str]:
    """The names under which a part counts."""
    made = kind.__new__(kind)
    for name in attributes:
        setattr(made, name, 0)
    return set(made.metrics())


def test_the_page_has_what_the_code_names() -> None:
    flow = counted(Rounds, "rounds", "passes", "arcs", "repaired", "exchanged")
    events = counted(EventRecorder, "created", "patched", "dropped", "suppressed", "failed")
    composed = {f"scheduler_flow_{name}_total" for name in flow} | {f"scheduler_{name}" for name in events}
    served, _ = page()
    assert served.keys() == named_in_the_code() | composed


def test_upstreams_metrics_are_served_or_listed_with_a_reason() -> None:
    served, absent = page()
    upstream = {f"scheduler_{name}": told for name, told in UPSTREAM.items()}
    assert {name: told for name, told in served.items() if name in upstream} == {
        name: told for name, told in upstream.items() if name not in absent
    }
    assert absent - {"kube_pod_resource_request", "kube_pod_resource_limit"} <= upstream.keys()
