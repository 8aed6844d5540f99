"""Upstream's workload files are read as they are, strictly, and their templates come to what Go makes of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from needs import scheduler_perf_files

from minikube_py.errors import InvalidRequest
from minikube_py.lab.scheduler_perf import gates, ops, runs
from minikube_py.lab.scheduler_perf.figures import apply_threshold, with_all_labels
from minikube_py.lab.scheduler_perf.files import DEFAULT_SELECTOR, Run, Selector, is_enabled, read_file
from minikube_py.lab.scheduler_perf.objects import typed
from minikube_py.lab.scheduler_perf.templates import Template, template

# What Go's html/template makes of them, with upstream's functions, for .Index 7 and .Count 40.
RENDERED = {
    "{{.Index}}": "7",
    "{{ .Count }}": "40",
    "{{ DivideInt .Index 10 }}": "0",
    "{{ DivideInt 30000 .Count }}": "750",
    "{{Mod .Index 25}}": "7",
    "{{ Mod -7 3 }}": "-1",
    "{{ Mod 7.9 -3 }}": "1",
    "{{ AddInt 1 2.6 .Index }}": "10",
    "{{ AddFloat .1 .2 }}": "0.30000000000000004",
    "{{ AddFloat }}": "0",
    "{{ MultiplyInt }}": "1",
    "{{ MultiplyFloat 1.5 .Index }}": "10.5",
    "{{ MultiplyFloat 3 1e-6 }}": "3e-06",
    "{{ DivideFloat 1 3 }}": "0.3333333333333333",
    "{{ DivideFloat 6 3 }}": "2",
    "{{ SubtractInt 3 (MultiplyInt 2 .Index) }}": "-11",
    "{{ 1.5 }}": "1.5",
    "{{ -3 }}": "-3",
    "{{ (AddInt 1 2) }}": "3",
    "{{ MultiplyInt 100000000 100000000 }}": "10000000000000000",
    "{{ MultiplyFloat 100000000 1000000000000 }}": "100000000000000000000",
    "{{ DivideInt -7 2 }}": "-3",
    "{{ .Index | AddInt 1 }}": "8",
    "{{ 0x10 }}": "16",
    "{{ if .Index }}x{{ else }}y{{ end }}": "x",
    "{{ range .Index }}{{ . }}{{ end }}": "0123456",
    "{{ $x := AddInt .Index 1 }}{{ $x }}": "8",
}
REFUSED = {
    "{{ Mod 1 }}": "wrong number of args for Mod: want 2 got 1",
    "{{ DivideInt 1 0 }}": "division by zero",
    "{{ Mod 1 .5 }}": "division by zero",
    "{{ }}": "unexpected '}}'",
    "{{ .Name }}": ".Name is not there; there are .Index and .Count",
    "{{ Foo 1 }}": "function 'Foo' is not understood; these are: AddFloat, AddInt, DivideFloat",
    "{{ AddInt 1": "an action without }}",
    "{{ (AddInt 1 }}": "unexpected '}}'",
    "{{ 1 2 }}": "arguments are for functions alone",
    "{{ AddInt `a` }}": "numbers are expected, not ['a']",
    "{{ template `x` }}": "template",
    "{{ MultiplyFloat 1e11 1e11 }}": "is too large",
}


@pytest.mark.parametrize(("action", "text"), RENDERED.items())
def test_a_template_renders_as_in_go(action: str, text: str) -> None:
    assert Template(f"a: {action}!", "file").text(7, 40) == f"a: {text}!"


@pytest.mark.parametrize(("action", "why"), REFUSED.items())
def test_what_else_go_has_is_refused_by_name(action: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Template(f"a: {action}", "some/file.yaml").text(7, 40)
    assert str(refused.value).startswith("some/file.yaml: ") and why in str(refused.value)


# --- upstream's own files ---------------------------------------------------------------------------------------------

FILES = {
    "affinity": 69, "dra": 25, "dra/consumablecapacity": 3, "dra/devicetaints": 2, "dra/extendedresource": 7,
    "dra/extendedresource/scoring": 3, "dra/partitionabledevices": 5, "dra/prioritizedlist": 2, "event_handling": 10,
    "misc": 61, "nodedeclaredfeatures": 4, "topology_spreading": 23, "volumes": 28,
}  # fmt: skip
"""By folder: how many workloads there are."""


def paths_of(op: ops.Op) -> list[str]:
    names = [name for name in type(op).__dataclass_fields__ if name.endswith("_path")]
    return [text for text in (getattr(op, name) for name in names) if text]


@pytest.mark.original
def test_every_shipped_file_is_read_whole() -> None:
    folder = scheduler_perf_files()
    found = {str(path.parent.relative_to(folder)): read_file(path) for path in folder.rglob("performance-config.yaml")}
    assert {name: len(workloads) for name, workloads in found.items()} == FILES
    all_of_them = [run for workloads in found.values() for run in workloads]
    gates.check_gates(all_of_them)
    opcodes = Counter(op.opcode for run in all_of_them for op in run.ops)
    # createPodSets is unrolled; createResourceClaims and sleep are in no shipped file.
    assert set(ops.OPS) - set(opcodes) == {"createPodSets", "createResourceClaims", "sleep"}
    for run in all_of_them:
        for op in run.ops:
            for text in paths_of(op):
                assert isinstance(template(run.case.folder / text).render(3, 10), dict)


@pytest.mark.original
def test_what_cannot_run_is_told_with_its_reason() -> None:
    folder = scheduler_perf_files()
    found: dict[str, set[str]] = {}
    for name in FILES:
        for run in read_file(folder / name / "performance-config.yaml"):
            if why := runs.why_not(run):
                found.setdefault(why, set()).add(run.case.name)
    assert found == {}


@pytest.mark.original
def test_parameters_sets_and_labels_of_a_shipped_workload() -> None:
    every = {run.name: run for run in read_file(scheduler_perf_files() / "affinity" / "performance-config.yaml")}
    run = every["SchedulingRequiredPodAntiAffinityWithNSSelector/10Nodes"]
    assert run.labels == ("integration-test", "short")
    created = [op for op in run.ops if isinstance(op, ops.CreatePods)]
    assert [op.namespace for op in created] == ["init-ns-0", "init-ns-1", "measure-ns-0"]
    assert [op.count for op in created] == [2, 2, 6] and created[-1].collect_metrics


@pytest.mark.parametrize(
    ("folders", "topic"),
    [
        ("misc", "misc"),
        ("dra/extendedresource/scoring", "dra_extendedresource_scoring"),
        ("event_handling", "eventhandling"),
    ],
)
def test_a_topic_is_named_as_upstream_names_it(folders: str, topic: str, tmp_path: Path) -> None:
    assert runs.topic_of(tmp_path / folders / "performance-config.yaml") == topic


# --- what is refused --------------------------------------------------------------------------------------------------

CASE = """
- name: Some
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
  {more}
  workloads:
  - name: Small
    params: {{nodes: 3}}
    {workload}
"""


def read(folder: Path, more: str = "", workload: str = "") -> list[Run]:
    path = folder / "config.yaml"
    path.write_text(CASE.format(more=more, workload=workload))
    return read_file(path)


@pytest.mark.parametrize(
    ("more", "workload", "why"),
    [
        ("- {opcode: createMonsters}", "", "Some.workloadTemplate[1]: unknown opcode 'createMonsters'"),
        ("- {opcode: barrier, namespace: a}", "", "Some.workloadTemplate[1]: unknown field 'namespace'"),
        ("- {opcode: createPods, count: many}", "", "workloadTemplate[1].count: this is a whole number, not 'many'"),
        ("- {opcode: createPods, countParam: pods}", "", "invalid count 0 / parameter 'pods'"),
        ("- {opcode: createPods, count: -1}", "", "invalid count -1"),
        ("- {opcode: createPods, countParam: $pods}", "", "Some/Small: parameter pods is undefined"),
        ("- {opcode: sleep, durationParam: $nodes}", "", "Some/Small: parameter nodes has the wrong type: 3"),
        ("- {opcode: sleep, duration: soon}", "", "workloadTemplate[1].duration: 'soon' is not a duration"),
        ("- {opcode: churn, mode: create}", "", "at least one template spec file needs to be specified"),
        ("- {opcode: churn, mode: melt}", "", "invalid mode: melt"),
        ("- {opcode: barrier, stageRequirement: Bound}", "", "invalid StageRequirement Bound"),
        ("- {opcode: createAny}", "", "TemplatePath must be set"),
        ("- {opcode: createNodes, labelNodePrepareStrategy: {labelKey: z}}", "", "labelValues must be set"),
        ("- {opcode: stopCollectingMetrics}", "", "missing startCollectingMetrics operation before"),
        ("- {opcode: createPods, collectMetrics: true, skipWaitToCompletion: true}", "", "cannot be true at the same"),
        ("- {opcode: createPods, steadyState: true}", "", "the test duration must be > 0"),
        ("", "labels: short", "labels: this is a list, not 'short'"),
        ("", "threshold: -1", "Some/Small: invalid threshold -1; should be non-negative"),
        ("", "color: red", "workloads[0]: unknown field 'color'"),
        ("", "threshold: 1\n    threshold: 2", 'key "threshold" already set in map'),
        ("", "thresholdMetricSelector: {name: Luck, dataBucket: Average}", "the metric Luck is targeted"),
        ("", "thresholdMetricSelector: {name: Luck}", "dataBucket should be set for metric Luck"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_hold_is_refused_with_its_place(more: str, workload: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(tmp_path, more, workload)
    assert str(refused.value).startswith(str(tmp_path)) and why in str(refused.value)


def test_a_parameter_that_nothing_names_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"the parameters \['pods'\] are defined, but unused"):
        path = tmp_path / "config.yaml"
        path.write_text(CASE.format(more="", workload="").replace("nodes: 3", "nodes: 3, pods: 4"))
        read_file(path)


def test_names_are_read_in_any_case_as_go_does(tmp_path: Path) -> None:
    (run,) = read(tmp_path, "- {opcode: deletePods, NAMESPACE: a, deletepodspersecond: 5}")
    assert run.ops[1] == ops.DeletePods(run.ops[1].place, "deletePods", "a", {}, False, 5)
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"Containers": [{"NAME": "a", "my": 1}]}}
    assert typed(pod)["spec"] == {"containers": [{"name": "a", "my": 1}]}


def test_a_gate_that_is_off_by_default_is_refused_and_one_nobody_knows_too(tmp_path: Path) -> None:
    (run,) = read(tmp_path, workload="featureGates: {GangScheduling: true}")
    assert runs.why_not(run) == "needs feature gate GangScheduling, which is off by default"
    (run,) = read(tmp_path, workload="featureGates: {GangScheduling: false, SchedulerAsyncAPICalls: true}")
    assert runs.why_not(run) == ""
    assert [note.partition(":")[0] for note in gates.notes(run)] == ["SchedulerAsyncAPICalls=true"]
    with pytest.raises(InvalidRequest, match="unknown feature gate Wings"):
        gates.check_gates(read(tmp_path, workload="featureGates: {Wings: true}"))


@pytest.mark.parametrize(
    ("filters", "labels", "wanted"),
    [
        ("", [], True), ("short", [], False), ("+short", ["short"], True), ("-short", ["short"], False),
        ("-short", [], True), ("a,-b", ["a"], True), ("a,-b", ["a", "b"], False), ("a,b", ["a"], False),
    ],
)  # fmt: skip
def test_a_filter_of_labels(filters: str, labels: list[str], wanted: bool) -> None:
    assert is_enabled(filters, labels) is wanted


def test_a_threshold_is_compared_with_the_figure_that_it_names() -> None:
    items = [
        {"data": {"Average": 90.0}, "unit": "pods/s", "labels": {"Name": "n", "Metric": "SchedulingThroughput"}},
        {"data": {"Duration": 1.0}, "unit": "s", "labels": {"Name": "n", "Metric": "SchedulingDuration"}},
    ]
    assert apply_threshold(items, 0, DEFAULT_SELECTOR) == [] and "AverageThreshold" not in items[0]["data"]
    assert apply_threshold(items, 80, DEFAULT_SELECTOR) == []
    assert items[0]["data"]["AverageThreshold"] == 80
    (missed,) = apply_threshold(items, 90, DEFAULT_SELECTOR)
    assert missed.endswith("to be higher: got 90.000000, want 90.000000")
    (missed,) = apply_threshold(items, 1, Selector("SchedulingDuration", {}, "Duration", True))
    assert missed.endswith("to be lower: got 1.000000, want 1.000000")
    items[1]["labels"]["extra"] = "x"
    assert [item["labels"]["extra"] for item in with_all_labels(items)] == ["not applicable", "x"]
    # As upstream's benchmark wrote it for SchedulingBasic/500Nodes.
    del items[1]["labels"]["extra"]
    upstream = ["Metric", "Name", "event", "extension_point", "plugin", "result"]
    assert [list(item["labels"]) for item in with_all_labels(items)] == [upstream, upstream]
