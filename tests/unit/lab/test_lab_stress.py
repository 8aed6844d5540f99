"""The load of `bench schedule` is what it says; the ledger finds what is wrong; a small run comes to a verdict."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest

from minikube_py.cli.main import main
from minikube_py.control_plane.errors import RoleFailed
from minikube_py.errors import InvalidRequest
from minikube_py.lab import predicates
from minikube_py.lab.cluster import running, watched
from minikube_py.lab.ledger import Ledger, Misplaced, matches
from minikube_py.lab.load import LoadError
from minikube_py.lab.predicates import CPU, GENERATION, MEMORY, PODS, Expression, LabNode, LabPod, Shape
from minikube_py.lab.stress import StressOptions
from minikube_py.lab.stress_runs import run_all, store_index, variants
from minikube_py.lab.workload import GPU_RESOURCE, PodBody
from minikube_py.scheduler.objects import project_node, project_pod
from minikube_py.scheduler.plugins.node_affinity import compile_affinity
from minikube_py.scheduler.scheduler import Scheduler


@pytest.mark.parametrize("utilisation", (0.5, 0.97, 0.995))
def test_nodes_are_as_full_as_was_asked_for(utilisation: float) -> None:
    ledger = Ledger(predicates.lab_nodes(random.Random(1), 4000, utilisation), ())
    full = ledger.full()
    for resource in (CPU, MEMORY, GPU_RESOURCE):
        # At .5 some draws are cut off at an empty node.
        assert full[resource] == pytest.approx(utilisation, abs=0.08 if utilisation < 0.9 else 0.004)


def test_stored_nodes_and_pods_say_what_the_load_says() -> None:
    rng = random.Random(2)
    for node in predicates.lab_nodes(rng, 50, 0.9):
        read = project_node(orjson.loads(predicates.node_object(node, "u")))
        assert read.allocatable == node.allocatable and read.labels == node.labels
        filler = project_pod(orjson.loads(predicates.filler_object(node, "f", "u")))
        assert dict(filler.spec.requests) == {name: used for name, used in node.used.items() if used}
    for pod in predicates.lab_pods(rng, 100, "all", 0):
        read_pod = project_pod(orjson.loads(pod.body.body))
        assert dict(read_pod.spec.requests) == pod.shape.amounts
        required = compile_affinity(read_pod).required
        found = [tuple((e.key, e.operator) for e in term.labels) for term in required or ()]
        assert found == [tuple((e.key, e.operator) for e in term) for term in pod.shape.terms]


def test_the_same_seed_makes_the_same_load() -> None:
    def made(seed: int) -> object:
        rng = random.Random(seed)
        return predicates.lab_nodes(rng, 20, 0.9), predicates.lab_pods(rng, 20, "all", 0.5)

    assert made(3) == made(3) != made(4)


@pytest.mark.parametrize(("mix", "low", "high"), (("all", 0.0, 0.0), ("gpu", 0.8, 0.9)))
def test_pods_repeat_shapes_as_often_as_was_asked_for(mix: str, low: float, high: float) -> None:
    pods = predicates.lab_pods(random.Random(5), 2000, mix, low and 0.85)
    shapes = {repr(pod.shape) for pod in pods}
    assert low <= 1 - len(shapes) / len(pods) <= max(high, 0.02)


@pytest.mark.parametrize(
    ("operator", "value", "label", "holds"),
    (
        ("Gt", "5", "6", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "5", None, False),
        ("In", "a", "a", True),
        ("NotIn", "a", None, True),
        ("NotIn", "a", "a", False),
    ),
)
def test_matches(operator: str, value: str, label: str | None, holds: bool) -> None:
    labels = {} if label is None else {GENERATION: label}
    term = (Expression(GENERATION, operator, (value,)),)
    never = (Expression("other", "In", ("x",)),)
    assert matches((term,), labels) is holds
    assert matches((never, term), labels) is holds
    assert not matches(((*term, *never),), labels)
    assert matches((), labels)


def lab_pod(name: str, cpu_milli: int, *terms: tuple[Expression, ...]) -> LabPod:
    return LabPod(PodBody("schedule", name, b""), Shape({CPU: cpu_milli}, terms))


def small() -> Ledger:
    nodes = [
        LabNode("n1", {"zone": "a"}, {CPU: 1000, PODS: 10}, {CPU: 400}),
        LabNode("n2", {"zone": "b"}, {CPU: 1000, PODS: 2}, {CPU: 0}),
    ]
    only_a = (Expression("zone", "In", ("a",)),)
    pods = [lab_pod("p1", 600), lab_pod("p2", 600), lab_pod("p3", 1), lab_pod("a", 100, only_a)]
    return Ledger(nodes, pods)


def test_a_ledger_that_balances() -> None:
    ledger = small()
    ledger.bound("schedule/p1", "n1")
    ledger.bound("schedule/p2", "n2")
    assert ledger.fits_on("schedule/a") == "" == ledger.fits_on("schedule/p3")
    ledger.compare({"schedule/p1": "n1", "schedule/p2": "n2"})
    assert ledger.verdict(["schedule/a"]).pending == 1
    ledger.gone("schedule/p1")
    ledger.bound("schedule/a", "n1")
    verdict = ledger.verdict(())
    assert (verdict.bound, verdict.pending, verdict.full[CPU]) == (3, 0, 0.55)


@pytest.mark.parametrize(
    ("bound", "text"),
    (
        ((("p1", "n1"), ("p3", "n1")), "n1 lacks 1 of cpu"),
        ((("p2", "n2"), ("p3", "n2")), "n2 lacks 1 of pods"),
        ((("a", "n2"),), "labels do not match"),
        ((("p1", "n3"),), "does not exist"),
    ),
)
def test_a_pod_where_it_does_not_fit_is_found(bound: tuple[tuple[str, str], ...], text: str) -> None:
    ledger = small()
    for pod, node in bound:
        ledger.bound(f"schedule/{pod}", node)
    with pytest.raises(Misplaced, match=text):
        ledger.verdict(())


def test_a_pod_left_though_it_fits_is_found() -> None:
    with pytest.raises(Misplaced, match="schedule/p1 is pending, but fits on n1"):
        small().verdict(["schedule/p1"])


def test_a_list_that_differs_from_the_watch_is_found() -> None:
    ledger = small()
    ledger.bound("schedule/p1", "n1")
    with pytest.raises(Misplaced, match="differ in 2 places"):
        ledger.compare({"schedule/p1": "n2"})


def plan(
    nodes: tuple[int, ...] = (300,),
    samplings: tuple[str, ...] = ("all",),
    matchers: tuple[str, ...] = ("columns",),
    store_indexes: tuple[str, ...] = (),
) -> list[StressOptions]:
    indexes = tuple(map(store_index, store_indexes))
    each = StressOptions(60, 0.97, 1.0, "all", 0.0, 1, indexes, bool(indexes), in_flight=16, seed=1)
    return variants(each, nodes, samplings, matchers)


@pytest.mark.real_time("a whole control plane as the lab runs it")
async def test_a_run_from_create_to_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = plan(samplings=("all", "upstream"), matchers=("scan",), store_indexes=("fits=max-tree",))
    assert await run_all(chosen, data_dir=None, results=tmp_path, step=lambda *_: None)
    printed = capsys.readouterr().out
    assert "those left pending fit nowhere" in printed
    (written,) = tmp_path.glob("schedule-*/schedule.json")
    runs = orjson.loads(written.read_bytes())["runs"]
    assert [run["options"]["sampling"] for run in runs] == ["all", "upstream"]
    for run in runs:
        assert run["verdict"]["bound"] + run["verdict"]["pending"] == 60 and run["left"] > 10
        assert run["verdict"]["bound"] > 40 and run["pods_per_s"] > 0 and run["decision_us"] > 0
        assert run["matcher"]["asked"] >= (50 if run["options"]["sampling"] == "all" else 5)
        assert run["matcher"]["builds"] < 12
        (index,) = run["store"]["indexes"]
        assert run["store"]["asked"] == 60 and run["store"]["found"] > 40 and index["state"] == "ready"


@pytest.mark.parametrize(
    ("changes", "text"),
    (
        ({"matchers": ("max_tree",)}, "no structure is named 'max_tree'"),
        ({"store_indexes": ("fits",)}, "write NAME=STRUCTURE"),
        ({"store_indexes": ("fits=tree",)}, "no structure is named 'tree'"),
    ),
)
def test_plans_that_cannot_be_run(changes: dict[str, tuple[str, ...]], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        plan(**changes)  # type: ignore[arg-type]


async def test_one_folder_holds_one_run(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="holds one run, and these are 2"):
        await run_all(plan(nodes=(100, 200)), data_dir=tmp_path / "d", results=tmp_path, step=lambda *_: None)


@pytest.mark.parametrize("command", ("schedule", "scheduler-perf"))
def test_a_run_whose_scheduler_failed_says_so(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(scheduler: Scheduler) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Scheduler, "_schedule", fails)
    (tmp_path / "pod.yaml").write_text("{apiVersion: v1, kind: Pod, spec: {containers: [{name: a, image: b}]}}")
    file = tmp_path / "config.yaml"
    made = "{opcode: createNodes, count: 1}, {opcode: createPods, count: 1, podTemplatePath: pod.yaml}"
    file.write_text(f"[{{name: One, workloadTemplate: [{made}], workloads: [{{name: w, params: {{}}}}]}}]")
    words = ["--nodes", "9", "--pods", "5"] if command == "schedule" else [str(file), "--workload", "*"]
    assert main(["bench", command, *words, "--virtual", "--results", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "a component ended by itself during the run: ValueError('a bug')" in told.out + told.err


async def test_a_component_that_fails_at_the_end_is_seen_and_one_that_runs_is_not() -> None:
    class Part:
        failure: BaseException | None = None
        told: list[str] = []

        async def start(self) -> None:
            self.told.append("started")

        async def stop(self) -> None:
            self.told.append("stopped")

        def metrics(self) -> dict[str, float]:
            return {}

    part, well = Part(), Part()
    with pytest.raises(LoadError, match="nothing came"):
        async with running(well):
            raise LoadError("nothing came")
    with pytest.raises(RoleFailed, match="ValueError"):
        async with running(part, well):
            part.failure = ValueError()
    with pytest.raises(RoleFailed, match="ValueError"):
        async with watched(lambda: part.failure):
            raise LoadError("nothing came, since it failed")
    assert Part.told.count("started") == Part.told.count("stopped") == 3
