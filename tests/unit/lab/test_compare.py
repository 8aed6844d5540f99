"""`minikube-py compare`: what it counts, what it says of the differences, and that equal commands write equal bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.cli import main
from minikube_py.lab.compare.alone import NOT_RUN, RUN, run_alone
from minikube_py.lab.compare.compare import CompareOptions, _measures, _Run, as_json, run_compare
from minikube_py.lab.compare.figures import MEASURES, Ended, demand, figures
from minikube_py.lab.compare.workload import drawn
from minikube_py.lab.statistics import ALPHA, NOT_THE_SAME, PLACES_LESS, compared, corrected, p_min, sign_flip_p
from minikube_py.lab.trace import TraceNode, TracePod, load
from minikube_py.scheduler.cache import Cache
from minikube_py.scheduler.config import ConfigError, ProfileConfig
from minikube_py.scheduler.configuration.checking import NoCluster
from minikube_py.scheduler.configuration.chosen import DEFAULT_SCHEDULER, ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler
from minikube_py.scheduler.configuration.messages import POINTS
from minikube_py.scheduler.profile import Profile

PACK = """
class Pack:
    scope = "NODE"

    def score(self, state, pod, node):
        return min(100, 10 * len(node.pods))
"""
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def node(name: str, cpu: int, gpus: int) -> TraceNode:
    return TraceNode(name, cpu, 8192, gpus, "T4" if gpus else "")


def pod(name: str, cpu: int, gpus: int = 0, milli: int = 0) -> TracePod:
    return TracePod(name, 0, 10, cpu, 1024, gpus, milli, ())


def test_figures_of_a_small_end() -> None:
    nodes = [node("a", 4000, 2), node("b", 1000, 1), node("c", 2000, 0)]
    pods = [pod("p", 2000, 1, 1000), pod("q", 1000, 1, 500), pod("r", 9000), pod("s", 500, 1, 500)]
    found = figures(nodes, pods, Ended({0: 0, 3: 1}, 1, {0: 0.1, 1: 0.2, 3: 0.3}, ""))
    assert found["packing"] == pytest.approx(50)
    assert (found["unschedulable"], found["preempted"], found["nodes used"]) == (1, 1, 2)
    # Free are 1,000 thousandths beside 2 cpus, and 500 beside half a cpu: p and q find the second useless, s uses both.
    assert found["fragmentation"] == pytest.approx(100 * (500 + 500 + 0) / (1500 * 3))
    assert found["imbalance"] == pytest.approx(23.570226)
    assert found["latency p50"] == pytest.approx(200)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8))
def test_the_paired_test_is_that_of_all_signs(differences: Sequence[float]) -> None:
    p = sign_flip_p(differences)
    assert p is not None and 2 / 2 ** len(differences) <= p <= 1
    assert p == sign_flip_p([-each for each in differences])


def test_what_the_paired_test_says() -> None:
    assert sign_flip_p([1.0]) is None
    assert sign_flip_p([1.0, 2.0, 3.0]) == pytest.approx(2 / 8)
    assert sign_flip_p([1.0, -1.0]) == 1
    drawn = [1.0, 2.0, -0.5, 3.0, 0.1, 0.7]
    for unit in (1e-30, 1e-10, 1.0, 1e20):
        assert sign_flip_p([each * unit for each in drawn]) == sign_flip_p(drawn), "of no unit"
    assert sign_flip_p([5.0] * 20) == pytest.approx(1 / 2**14, rel=3)
    decided = compared([1.0] * 10, [2.0, 2.5] * 5)
    assert (decided.better(1), decided.better(-1)) == ("second", "first")
    assert compared([1.0, 2.0], [1.0, 2.0]).better(1) == "equal"
    assert compared([1.0, 2.0], [2.0, 1.0]).better(1) == "undecided"
    assert decided.difference.low <= decided.difference.value <= decided.difference.high


def test_rows_are_corrected_for_their_number() -> None:
    known = {name: compared([0.0] * 8, [1.0] * (8 - off) + [-0.01] * off) for off, name in enumerate("abc")}
    rows = known | {"equal": compared([1.0] * 8, [1.0] * 8), "other": known["a"]._replace(same_pods=False)}
    p = {name: each.p for name, each in known.items()}
    assert p == {"a": 2 / 256, "b": 4 / 256, "c": 8 / 256}
    found = corrected(rows)
    assert {name: each.p_corrected for name, each in found.items()} == {
        "a": 3 * 2 / 256, "b": 2 * 4 / 256, "c": 8 / 256, "equal": 1.0, "other": None,
    }  # fmt: skip
    assert [each.better(1) for each in found.values()] == ["second", "second", "second", "equal", NOT_THE_SAME]
    many = corrected(dict.fromkeys(range(2), known["c"]))
    assert {(each.p_corrected, each.better(1)) for each in many.values()} == {(16 / 256, "undecided")}


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8))
def test_a_corrected_row_is_in_holms_order(offs: list[int]) -> None:
    """The step-down procedure, as it is written: reject while the k-th smallest is at most alpha / (m - k)."""
    rows = {i: compared([0.0] * 10, [1.0] * (10 - off) + [-0.01 * (i + 1)] * off) for i, off in enumerate(offs)}
    rejected, left = set(), sorted(rows, key=lambda i: rows[i].p or 0)
    while left and (rows[left[0]].p or 0) <= ALPHA / len(left):
        rejected.add(left.pop(0))
    assert {i for i, each in corrected(rows).items() if (each.p_corrected or 0) <= ALPHA} == rejected


def test_seeds_that_cannot_decide_so_many_rows_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(PACK)
    words = ["compare", "default", "default", "--plugin", f"{mine}:Pack", "--scheduler-only", "--seeds", "6"]
    assert main.main([*words, "--pods", "40", "--nodes", "40", "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"with fewer than [78] seeds P cannot be 0.05 or less, and nothing is called better\n", printed)
    assert not re.search(r"  default( \+ plugin| \(A\))$", printed, re.MULTILINE)


def test_one_seed_has_no_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "default", "default", "--scheduler-only", "--seeds", "1", "--pods", "9", "--nodes", "4"]
    assert main.main([*words, "--results", str(tmp_path)]) == 0
    assert "0.00 [unknown]" in capsys.readouterr().out
    (document,) = tmp_path.glob("compare-*/compare.json")
    assert json.loads(document.read_bytes())["measures"]["preempted"]["difference"] == {
        "value": 0.0, "low": None, "high": None
    }  # fmt: skip
    assert list(tmp_path.glob("compare-*/compare.svg"))


@pytest.mark.parametrize("important", [0.0, 0.4])
def test_no_node_is_given_more_than_it_has(important: float) -> None:
    trace = load()
    workload = drawn(trace.nodes[:25], trace.pods, 250, important, 3)
    ended = run_alone(workload, read_scheduler(), 3)
    left = {number: demand_of(each) for number, each in enumerate(workload.nodes)}
    for number, where in ended.placed.items():
        left[where] = [have - want for have, want in zip(left[where], demand(workload.pods[number]))]
        assert min(left[where]) >= 0
    assert bool(ended.preempted) == bool(important)


def demand_of(each: TraceNode) -> list[int]:
    return [each.cpu_milli, each.memory_mib, each.gpus * 1000]


def options(**more: object) -> CompareOptions:
    known = {"first": ("a", DEFAULT_SCHEDULER), "second": ("b", DEFAULT_SCHEDULER), "seeds": 2, "seed": 5}
    return CompareOptions(**{**known, "pods": 60, "nodes": 10, "important": 0.2, "alone": False, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("alone", [True, False])
def test_a_scheduler_beside_itself_is_equal(alone: bool) -> None:
    comparison = run_compare(options(alone=alone), lambda _: None)
    assert {each.better(1) for each in comparison.measures.values()} == {"equal"}
    assert all(first == second for first, second in comparison.digests)
    assert ("latency p99" in {measure.name for measure in comparison.measures}) is not alone
    assert as_json(comparison) == as_json(run_compare(options(alone=alone), lambda _: None))


FOLLOWS = """
from minikube_py.client.rest import ResourceRef

class Follows:
    scope = "NODE"

    def __init__(self, args, handle):
        self.sets = handle.informer(ResourceRef("apps", "v1", "replicasets"), lambda body: None)

    def filter(self, state, pod, node):
        return None
"""


def test_a_plugin_that_only_reads_more_changes_no_placement(tmp_path: Path) -> None:
    """Its lists and watches take part in virtual time, but draw nothing for the scheduler, the load or the loop."""
    file = tmp_path / "follows.py"
    file.write_text(FOLLOWS)
    follows = ChosenScheduler(None, (f"{file}:Follows",))
    comparison = run_compare(options(second=("b", follows)), lambda _: None)
    assert all(first == second for first, second in comparison.digests)
    assert {each.better(1) for each in comparison.measures.values()} == {"equal"}


def test_the_command_writes_the_same_bytes_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(PACK)
    words = ["compare", "default", "default", "--plugin", f"{mine}:Pack", "--scheduler-only", "--seeds", "9"]
    written: list[dict[str, bytes]] = []
    for number in range(2):
        results = tmp_path / str(number)
        assert main.main([*words, "--pods", "40", "--nodes", "40", "--results", str(results)]) == 0
        (folder,) = results.iterdir()
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1] and sorted(written[0]) == ["compare.json", "compare.svg"]
    document = json.loads(written[0]["compare.json"])
    used = document["measures"]["nodes used"]
    assert (used["better_is"], used["p"]) == ("second", 2 / 2**9)
    assert 2 / 2**9 < used["p_corrected"] <= ALPHA
    assert used["mean_second"]["value"] < used["mean_first"]["value"]
    printed = capsys.readouterr().out
    assert "mean of 9 seeds" in printed and "corrected for the number of rows" in printed
    assert "default + plugin" in printed and "nodes used, nodes" in printed


def test_both_configurations_are_read_before_anything_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "default", str(tmp_path / "none.yaml"), "--results", str(tmp_path)]
    assert main.main(words) == 2
    assert f"compare: argument B: {tmp_path}/none.yaml: no such file or directory;" in capsys.readouterr().err


def test_a_plugins_error_ends_the_scheduler_alone_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("class Half:\n    def score(self, state, pod, node):\n        return 50.0\n")
    words = ["compare", "default", "default", "--plugin", f"{tmp_path}/mine.py:Half", "--scheduler-only"]
    assert main.main([*words, "--seeds", "1", "--pods", "9", "--nodes", "3", "--results", str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert 'plugin "Half" failed with: score returned 50.0' in printed and "Traceback" not in printed


def test_few_seeds_and_pods_that_are_left_out_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "default", "default", "--pods", "40", "--nodes", "5", "--results", str(tmp_path)]
    assert main.main([*words, "--seeds", "5"]) == 0
    printed = capsys.readouterr().out
    assert "with fewer than 6 seeds P cannot be 0.05 or less, and nothing is called better\n" in printed
    assert "latency leaves out the pods that were never bound, " in printed and "not the same pods" not in printed
    assert p_min(5) > ALPHA >= p_min(6) == sign_flip_p([1.0] * 6)


def test_who_leaves_slow_pods_pending_is_not_faster() -> None:
    def run(latencies_ms: list[float], unbound: set[int]) -> _Run:
        figures = {measure.name: None for measure in MEASURES}
        return _Run({**figures, "latency p99": max(latencies_ms)}, frozenset(unbound))

    slow, picky, fast = run([1.0, 9.0], set()), run([1.0], {1}), run([1.0, 2.0], set())
    ((measure, found),) = _measures([(slow, picky)] * 8).items()
    assert found.better(measure.better) == NOT_THE_SAME and found.left_out == (0, 8)
    ((measure, found),) = _measures([(slow, fast)] * 8).items()
    assert found.better(measure.better) == "second" and found.left_out == (0, 0)


def test_who_places_less_is_not_better_for_it() -> None:
    def run(used: float, *load: int) -> _Run:
        figures = {measure.name: None for measure in MEASURES}
        return _Run({**figures, "nodes used": used, "packing": 100 - used}, frozenset(), load)

    whole, idle, tight = run(9, 5, 50, 50, 2), run(1, 5, 50, 50, 1), run(3, 5, 50, 50, 2)
    for pair, wanted in (((whole, idle), PLACES_LESS[1]), ((idle, whole), PLACES_LESS[0]), ((whole, tight), "second")):
        found = {measure.name: each.better(measure.better) for measure, each in _measures([pair] * 8).items()}
        assert found["nodes used"] == wanted and found["packing"] in ("first", "second")


FAILING = """
class Never:
    def filter(self, state, pod, node):
        if pod.name.endswith(ENDS):
            WHAT
"""


@pytest.mark.parametrize("what", ["return Status(Code.UNSCHEDULABLE, 'never')", "raise ValueError"])
def test_what_a_plugin_keeps_from_being_judged_is_said(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raises = what.startswith("raise")
    mine = tmp_path / "mine.py"
    lines = FAILING.replace("ENDS", "('0', '2', '4', '6', '8')" if raises else "''").replace("WHAT", what)
    mine.write_text(f"from minikube_py.scheduler.framework import Code, Status\n{lines}")
    words = ["compare", "default", "default", "--plugin", f"{mine}:Never", "--pods", "5", "--nodes", "3"]
    assert main.main([*words, "--seeds", "9", "--results", str(tmp_path / "results")]) == 0
    (written,) = (tmp_path / "results").glob("*/compare.json")
    document, printed = json.loads(written.read_bytes()), capsys.readouterr().out
    if raises:
        errors = document["errors"]
        assert errors["first"] == 0 < errors["second"]
        told = f"attempts that ended in an error, as where a plugin raises: 0 of default (A) and {errors['second']} of "
        assert told in printed
    else:
        assert document["measures"]["nodes used"]["better_is"] == PLACES_LESS[1] and "\nplaces less: " in printed
        assert "  default + plugin places less\n" in printed
        assert document["missing"]["latency p99"] == {"first": 0, "second": 9}
        told = "no row for latency p99: runs without such a figure: 0 of default (A) and 9 of default + plugin\n"
        assert told in printed and document["errors"] == {"first": 0, "second": 0}


NOT_ALONE = {
    "FlowPlacement (placement in rounds)": "multiPoint: {enabled: [{name: FlowPlacement}]}",
    "Late (postBind)": "postBind: {enabled: [{name: Late}]}",
    "Late (preEnqueue)": "preEnqueue: {enabled: [{name: Late}]}",
    "Late (permit)": "permit: {enabled: [{name: Late}]}",
    "Late (preBind)": "preBind: {enabled: [{name: Late}]}",
    "Late (bind)": "bind: {enabled: [{name: Late}]}",
    "Late (queueSort)": "queueSort: {enabled: [{name: Late}], disabled: [{name: PrioritySort}]}",
}
LATE = "class Late:\n" + "".join(
    f"    {'async ' if method in ('pre_bind', 'bind') else ''}def {method}(self, *given):\n        return None\n"
    for method in ("post_bind", "pre_enqueue", "permit", "pre_bind", "bind", "sort_key")
)


@pytest.mark.parametrize("named", NOT_ALONE)
def test_what_the_scheduler_alone_does_not_run_is_refused(
    named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, mine = tmp_path / "c.yaml", tmp_path / "late.py"
    mine.write_text(LATE)
    file.write_text(f"{HEAD}profiles: [{{plugins: {{{NOT_ALONE[named]}}}}}]")
    words = ["compare", str(file), "default", "--plugin", f"{mine}:Late", "--scheduler-only"]
    if named.startswith("Flow"):
        words = ["compare", str(file), "default", "--scheduler-only"]
    assert main.main([*words, "--seeds", "1", "--results", str(tmp_path)]) == 2
    assert f"argument A: the scheduler alone does not run {named}; remove" in capsys.readouterr().err


def test_all_that_a_profile_has_is_run_alone_or_refused() -> None:
    """What is new in a profile is decided here, too."""
    asked = {"queueSort", "placementGenerate", "placementScore"}
    assert set(POINTS) == {*RUN, *NOT_RUN, *asked} and not RUN & set(NOT_RUN)
    own: Any = NoCluster(Cache().columns)
    derived = {"name", "looking", "local", "local_plugins", "wide", "beyond", "extensions", "sort_key"}
    derived |= {"kept", "kept_for_each", "kept_others", "kept_plugins", "reads_pods_of_nodes"}
    known = {"percentage_of_nodes_to_score", "post_filters", "reservers", "placer"}
    public = {name for name in vars(Profile(ProfileConfig(), own)) if not name.startswith("_")}
    assert public == {*derived, *known, *NOT_RUN.values()}


def test_a_known_plugin_takes_part_where_the_file_names_it(tmp_path: Path) -> None:
    mine, file = tmp_path / "mine.py", tmp_path / "c.yaml"
    mine.write_text(PACK)
    file.write_text(HEAD)
    chosen = ChosenScheduler(file, (), (f"{mine}:Pack",))
    assert read_scheduler(chosen).profiles[0].plugins["multiPoint"].enabled == ()
    file.write_text(HEAD + "profiles: [{plugins: {score: {enabled: [{name: Pack, weight: 3}]}}}]")
    assert read_scheduler(chosen).profiles[0].plugins["score"].enabled == (("Pack", 3),)
    with pytest.raises(ConfigError, match='"Pack" does not exist'):
        read_scheduler(ChosenScheduler(file))


def test_the_pods_are_placed_by_the_profile_that_they_name(tmp_path: Path) -> None:
    """In both forms, whichever profile a file has first."""
    args = "{scoringStrategy: {type: MostAllocated}}"
    other = f"{{schedulerName: packing, pluginConfig: [{{name: NodeResourcesFit, args: {args}}}]}}"
    placed = []
    for name, profiles in (("alone", "{}"), ("second", f"{other}, {{schedulerName: default-scheduler}}")):
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"{HEAD}profiles: [{profiles}]")
        placed.append(options(first=("a", ChosenScheduler(file)), second=("b", ChosenScheduler(file)), seeds=1))
    for alone in (True, False):
        first, second = (run_compare(replace(each, alone=alone), lambda _: None).digests for each in placed)
        assert first == second


@pytest.mark.parametrize(
    ("data", "at", "better"),
    [
        ("flow", 1, {"second": "flow"}),
        ("flow-bestfit", 2, {"first": "**GpuBestFit**", "second places less": "flow places less"}),
    ],
)
def test_the_page_of_flow_has_the_figures_of_its_data(data: str, at: int, better: dict[str, str]) -> None:
    docs = Path(__file__).parents[3] / "docs"
    recorded = json.loads((docs / f"data/{data}.json").read_text(encoding="utf-8"))
    page = (docs / "flow.md").read_text(encoding="utf-8")
    assert f"--seeds {len(recorded['seeds'])} --pods {recorded['pods']} --nodes {recorded['nodes']}" in page
    rows = [line for line in page.split("| Measure |")[at].splitlines() if line.startswith("| ")][:4]
    for row, name in zip(rows, ("packing", "fragmentation", "unschedulable", "imbalance"), strict=True):
        found = recorded["measures"][name]
        first, second = (f"{found[f'mean_{each}']['value']:.2f}" for each in ("first", "second"))
        difference = "{value:.2f} [{low:.2f}, {high:.2f}]".format(**found["difference"])
        told = better.get(found["better_is"], found["better_is"])
        assert (
            row.startswith(f"| {name}")
            and f"| {first} | {second} | {difference} | {found['p_corrected']:.3f} | {told} |" in row
        )
