"""Workloads of scheduler_perf run, each in virtual time: upstream's smallest, and one that has every operation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from needs import scheduler_perf_files

from minikube_py.cli.main import main
from minikube_py.errors import MinikubeError
from minikube_py.lab.scheduler_perf import ops, runs
from minikube_py.lab.scheduler_perf.files import Run
from minikube_py.lab.virtual import in_virtual_time

TWINS = re.compile(r"_(QueueingHints|AsyncAPICalls|DRAExtendedResource)Enabled$|_with_")
"""Workloads that differ from another one by gates alone, which change nothing here."""


def ran(run: Run, plan: runs.Plan) -> runs.Outcome:
    outcome, _ = in_virtual_time(
        plan.seed, lambda cluster: runs.run_one(run, plan, data_dir=None, step=lambda *_: None, virtual=cluster)
    )
    return outcome


def plan_of(file: Path, *workloads: str) -> runs.Plan:
    return runs.Plan(file, workloads, "" if workloads else runs.DEFAULT_LABELS, "misc", 0)


def smallest(file: Path) -> Iterator[tuple[Run, runs.Plan]]:
    plan = plan_of(file)
    for run in plan.runs():
        if not TWINS.search(run.name) and not runs.why_not(run):
            yield run, plan


FOLDERS = (
    "affinity", "dra", "dra/consumablecapacity", "dra/devicetaints", "dra/extendedresource",
    "dra/extendedresource/scoring", "dra/partitionabledevices", "dra/prioritizedlist",
    "event_handling", "misc", "nodedeclaredfeatures", "topology_spreading", "volumes",
)  # fmt: skip


@pytest.mark.original
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_smallest_workloads_of_upstream_run(folder: str) -> None:
    done = 0
    for run, plan in smallest(scheduler_perf_files() / folder / "performance-config.yaml"):
        outcome = ran(run, plan)
        gated = sum(op.count for op in run.ops if isinstance(op, ops.CreatePods) and "gated" in op.pod_template_path)
        # Churn goes on beside; its pods may or may not find a place before the end.
        assert run.pods - gated <= outcome.scheduled, run.name
        assert outcome.scheduled == run.pods - gated or any(isinstance(op, ops.Churn) for op in run.ops), run.name
        names = {item["labels"]["Name"] for item in outcome.items}
        assert len(names) == 1 and names.pop().startswith(f"BenchmarkPerfScheduling/{run.name}/")
        done += 1
    assert done


# --- without upstream -------------------------------------------------------------------------------------------------

TEMPLATES = {
    "pod": "{apiVersion: v1, kind: Pod, metadata: {generateName: p-, labels: {n: 'n{{ Mod .Index 2 }}'}}, "
    "spec: {terminationGracePeriodSeconds: 0, containers: [{name: a, image: b}]}}",
    "important": "{apiVersion: v1, kind: Pod, metadata: {generateName: i-}, "
    "spec: {priority: 10, terminationGracePeriodSeconds: 0, containers: [{name: a, image: b}]}}",
    "huge": "{apiVersion: v1, kind: Pod, metadata: {name: 'huge-{{ .Index }}'}, spec: {containers: [{name: a, "
    "image: b, resources: {requests: {cpu: 100}}}]}}",
    "node": "{apiVersion: v1, kind: Node, metadata: {name: 'dra-{{ .Index }}'}, status: {capacity: {pods: 50, "
    "cpu: 4}}}",
    "wider": "{apiVersion: v1, kind: Node, metadata: {name: dra-1}, status: {capacity: {pods: 50, cpu: 1000}}}",
    "labels": "{metadata: {labels: {team: a}}}",
    "pv": "{apiVersion: v1, kind: PersistentVolume, spec: {accessModes: [ReadOnlyMany], capacity: {storage: 1Gi}, "
    "csi: {driver: d}, persistentVolumeReclaimPolicy: Retain}}",
    "pvc": "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {annotations: "
    "{pv.kubernetes.io/bind-completed: 'y'}}, spec: {accessModes: [ReadOnlyMany], "
    "resources: {requests: {storage: 1Gi}}}}",
    "class": "{apiVersion: resource.k8s.io/v1beta2, kind: DeviceClass, metadata: {name: c}, "
    "spec: {selectors: [{cel: {expression: device.driver == 'd.io'}}]}}",
    "claim": "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {generateName: c-}, "
    "spec: {devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}}}",
    "service": "{apiVersion: v1, kind: Service, metadata: {generateName: s-}, spec: {ports: [{port: 80}]}}",
}
EVERYTHING = """
- name: Everything
  defaultPodTemplatePath: pod.yaml
  workloadTemplate:
  - opcode: createNodes
    countParam: $nodes
    labelNodePrepareStrategy: {labelKey: zone, labelValues: [a, b]}
  - opcode: createNodes
    count: 1
    uniqueNodeLabelStrategy: {labelKey: own}
  - opcode: createNodes
    count: 2
    nodeTemplatePath: node.yaml
    nodeAllocatableStrategy: {csiNodeAllocatable: {d: {count: 30}}}
  - opcode: createNamespaces
    prefix: team
    count: 2
    namespaceTemplatePath: labels.yaml
  - opcode: createPodSets
    count: 2
    namespacePrefix: team
    createPodsOp: {opcode: createPods, countParam: $pods}
  - opcode: churn
    mode: recreate
    number: 2
    intervalMilliseconds: 100
    templatePaths: [important.yaml, service.yaml]
  - opcode: createPods
    count: 2
    namespace: volumes
    persistentVolumeTemplatePath: pv.yaml
    persistentVolumeClaimTemplatePath: pvc.yaml
  - opcode: startCollectingMetrics
    name: later
    namespaces: [waiting]
  - opcode: createPods
    count: 3
    namespace: waiting
    podTemplatePath: huge.yaml
    skipWaitToCompletion: true
  - opcode: barrier
    stageRequirement: Attempted
    namespaces: [waiting]
  - opcode: updateAny
    templatePath: wider.yaml
    updatePerSecond: 10
  - opcode: barrier
    namespaces: [waiting]
  - opcode: stopCollectingMetrics
  - opcode: deletePods
    namespace: team-0
    labelSelector: {n: n1}
    deletePodsPerSecond: 10
  - opcode: deletePods
    namespace: team-1
  - opcode: createResourceDriver
    driverName: d.io
    nodes: dra-*
    maxClaimsPerNode: 2
  - opcode: createAny
    templatePath: class.yaml
  - opcode: createAny
    templatePath: claim.yaml
    namespace: claims
    count: 2
  - opcode: createResourceClaims
    templatePath: claim.yaml
    namespace: claims
    count: 2
  - opcode: allocResourceClaims
    namespace: claims
  - opcode: startCollectingMetrics
    name: paced
    namespaces: [paced]
  - {opcode: createPods, count: 2, namespace: paced}
  - {opcode: sleep, duration: 1500ms}
  - {opcode: createPods, count: 6, namespace: paced}
  - {opcode: sleep, duration: 1s}
  - opcode: stopCollectingMetrics
  - opcode: createPods
    count: 4
    namespace: steady
    steadyState: true
    duration: 100ms
    collectMetrics: true
  workloads:
  - name: small
    labels: [short]
    threshold: {misc: 1e9, other: 1}
    params: {nodes: 4, pods: 6}
"""


@pytest.fixture(name="everything")
def _everything(tmp_path: Path) -> Path:
    for name, text in TEMPLATES.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "misc").mkdir()
    file = tmp_path / "config.yaml"
    file.write_text(EVERYTHING)
    return file


def test_every_operation_runs(everything: Path) -> None:
    plan = plan_of(everything, "Everything")
    (run,) = plan.runs()
    outcome = ran(run, plan)
    items = {(item["labels"]["Name"].rpartition("/")[2], item["labels"].get("Metric")): item for item in outcome.items}
    # The second sample: six more within a second.
    paced = items["paced", "SchedulingThroughput"]
    assert paced["unit"] == "pods/s" and paced["data"]["AverageThreshold"] == 1e9
    for name in ("Average", "Perc50", "Perc90", "Perc95", "Perc99"):
        assert paced["data"][name] == pytest.approx(6.0)
    assert items["steady", "SchedulingDuration"]["data"]["Duration"] == pytest.approx(0.1, rel=0.1)
    attempts = items["later", "scheduler_scheduling_attempt_duration_seconds"]
    assert attempts["unit"] == "ms" and attempts["labels"]["result"] in ("scheduled", "unschedulable")
    assert [text.partition(":")[0] for text in outcome.missed] == ["BenchmarkPerfScheduling/Everything/small/paced"]
    # Pods of the sets, with volumes, that waited; many in the steady state; and churned ones.
    assert outcome.scheduled > 12 + 2 + 3 + 8 + 4


def test_a_pod_that_never_fits_ends_the_run_and_is_named(everything: Path) -> None:
    before, _, rest = EVERYTHING.partition("  - opcode: churn")
    waiting = rest[rest.index("  - opcode: startCollectingMetrics") :].partition("  - opcode: updateAny")[0]
    ending = "  - {opcode: barrier}\n" + EVERYTHING[EVERYTHING.index("  workloads:") :]
    everything.write_text(before + waiting + ending)
    plan = plan_of(everything, "*")
    (run,) = plan.runs()
    why = r"\(barrier\): namespace waiting: 0 of 3 pods scheduled within 600 s; pod waiting/huge-\d is not"
    with pytest.raises(MinikubeError, match=why):
        ran(run, plan)


def test_what_the_api_refuses_ends_the_run_with_its_place(everything: Path) -> None:
    (everything.parent / "claim.yaml").write_text(TEMPLATES["claim"].replace("exactly", "surely"))
    plan = plan_of(everything, "*")
    (run,) = plan.runs()
    why = r'Everything\.workloadTemplate\[17\] \(createAny\): .*unknown field "spec.devices.requests\[0\].surely"'
    with pytest.raises(MinikubeError, match=why):
        ran(run, plan)


def test_the_command_prints_a_table_and_writes_perf_data(
    everything: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["bench", "scheduler-perf", str(everything), "--virtual", "--results", str(tmp_path / "results")]
    assert main([*words, "--labels", "short", "--topic", "other"]) == 0
    told = capsys.readouterr().out
    assert "Everything/small/steady" in told and "1 ran, 0 failed, 0 refused of 1 workloads" in told
    assert "sent as resource.k8s.io/v1" in told
    (written,) = (tmp_path / "results").rglob("BenchmarkPerfScheduling_benchmark_other.json")
    document = json.loads(written.read_text())
    assert document["version"] == "v1"
    assert all(set(item) == {"data", "unit", "labels"} for item in document["dataItems"])
    assert len({frozenset(item["labels"]) for item in document["dataItems"]}) == 1
    # The other topic's threshold is out of reach.
    assert main([*words, "--labels", "short", "--topic", "misc"]) == 1
    assert "below its threshold: BenchmarkPerfScheduling/Everything/small/paced" in capsys.readouterr().out


def test_the_command_lists_and_refuses(everything: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (everything.parent / "class.yaml").write_text("{apiVersion: x.io/v1, kind: Ship, metadata: {name: c}}")
    words = ["bench", "scheduler-perf", str(everything)]
    assert main([*words, "--list"]) == 0
    assert "class.yaml: the API has no kind Ship of x.io/v1" in capsys.readouterr().out
    assert main([*words, "--workload", "Nothing"]) == 2
    assert "no workload is named Nothing; --list shows them" in capsys.readouterr().err
    assert main(words) == 2
    assert "no workload has the labels integration-test,-performance" in capsys.readouterr().err
