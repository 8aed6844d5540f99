"""docs/reference/metrics.md names every metric of a running control plane, with its type and labels, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from minikube_py import Cluster

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
KINDS = {"C": "counter", "G": "gauge", "H": "histogram", "S": "summary"}
STAGES = {f"kubelet_stages_{what}_total" for what in ("played", "failed", "refused", "held_back")}
AUDIT = {f"apiserver_audit_{name}_total" for name in ("event", "level", "error", "requests_rejected")}
"""Only with an audit log (tests/unit/apiserver/test_apiserver_audit_log.py)."""
SCHEDULING = {
    f"scheduler_{name}"
    for name in (
        *("unschedulable_pods", "pod_scheduled_after_flush_total", "permit_wait_duration_seconds"),
        *("preemption_attempts_total", "preemption_victims", "resourceclaim_creates_total"),
        *(f"preemption_goroutines_{what}" for what in ("execution_total", "duration_seconds")),
        *(f"podgroup_{what}" for what in ("schedule_attempts_total", "scheduling_attempt_duration_seconds")),
        "podgroup_scheduling_algorithm_duration_seconds",
        "plugin_polls_total",
        *(f"flow_{what}_total" for what in ("rounds", "passes", "arcs", "repaired", "exchanged")),
    )
}
"""Compared with the code and with upstream (test_scheduler_metrics_page.py)."""
SELDOM = {"apiserver_connections_ended_total", "kubelet_admission_rejections_total", *STAGES, *AUDIT, *SCHEDULING}
"""Told once there is something to tell."""
SAMPLE = re.compile(r"([a-z0-9_]+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+")
SPEC = {"containers": [{"name": "c", "image": "i"}]}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": SPEC}


def told() -> tuple[dict[str, str], dict[str, set[str]]]:
    """Types and labels by name."""
    with Cluster(nodes=1) as cluster:
        cluster.apply(POD)
        cluster.wait("pod/web", ready=1)
        text = cluster.request("GET", "/metrics").body.decode()
    types: dict[str, str] = {}
    labels: dict[str, set[str]] = {}
    last = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, last, kind = line.split()
            assert types.setdefault(last, kind) == kind and list(types)[-1] == last, f"{last} is in two places"
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None and match[1] == last, line
            labels.setdefault(last, set()).update(re.findall(r'(\w+)="', match[2] or ""))
    return types, labels


def test_the_page_names_every_metric_with_its_type_and_labels() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows: dict[str, tuple[str, str]] = {}
    for section in page.split("\n## ")[1:]:
        if section.startswith("etcd"):
            continue  # tests/unit/etcd/test_etcd_metrics_page.py
        prefix = "minikube_py_store_" if section.startswith("Store") else ""
        for name, kind, labels in re.findall(r"^\| `(\w+)` \| ([CGHS]) \|([^|]*)\|", section, re.M):
            rows[prefix + name] = (KINDS[kind], labels.strip())
    types, labels_of = told()
    assert {name: kind for name, (kind, _) in rows.items() if name not in SELDOM} == types
    for name, (_, labels) in rows.items():
        if name not in SELDOM and not labels.startswith("the same"):
            found = labels_of[name] - {"le", "component"} if name.startswith("apiserver") else labels_of[name] - {"le"}
            assert set(filter(None, labels.split(", "))) == found, name
