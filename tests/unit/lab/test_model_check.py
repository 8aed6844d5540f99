"""`minikube-py model check`: right models pass, and each wrong one is found by the law that it breaks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from minikube_py.cli import main
from minikube_py.lab.plugins import model_laws
from minikube_py.lab.plugins.drawn import Case, Words, words_of
from minikube_py.lab.plugins.model_laws import LAWS, Subject, columns_of, judge
from minikube_py.own_code import module_of
from minikube_py.scheduler.flow.model import Machines
from minikube_py.scheduler.flow.models import MODELS
from minikube_py.scheduler.flow.problem import Problem
from minikube_py.scheduler.flow.solvers import NUMPY
from minikube_py.scheduler.framework import IntArray

RIGHT = """
import random
from minikube_py.scheduler.flow import Arc, Arcs, CostModel

class Mine(CostModel):
    def task_to_unscheduled_agg(self, task):
        return Arc(1_000_000 + int(task.waited_s))

    def equiv_class_to_resource_node(self, ec, machine):
        return Arc(machine.running, machine.free_slots)

    def equiv_class_to_resource_nodes(self, ec, machines):
        return Arcs(machines.running, machines.free_slots)
"""

TIERS = """
from minikube_py.scheduler.flow import Arc, Arcs, CostModel

class Mine(CostModel):
    machine_classes = 2

    def task_to_unscheduled_agg(self, task):
        return Arc(1_000_000)

    def equiv_class_to_equiv_class(self, ec, to):
        return Arc(to.machine.running + to.number, int(to.machine.free_slots > to.number))

    def equiv_class_to_machine_classes(self, ec, machines, index):
        return Arcs(machines.running + index, 1 * (machines.free_slots > index))
"""

GANG = """
from minikube_py.scheduler.flow import Arc, CostModel

class Gang(CostModel):
    \"\"\"Three pods of a class, or none.\"\"\"
    def task_to_unscheduled_agg(self, task):
        return Arc(1_000_000)

    def task_to_equiv_class_aggregator(self, task, ec):
        return Arc(0, 1, 3)

    def equiv_class_to_resource_node(self, ec, machine):
        return Arc(machine.running, machine.free_slots)
"""


def test_a_least_flow_that_a_class_cannot_have_breaks_no_law_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The scheduler keeps such a class Pending, and places the others."""
    target = tmp_path / "gang.py"
    target.write_text(GANG)
    assert main.main(["model", "check", f"{target}:Gang", "--examples", "40"]) == 0
    told = capsys.readouterr().out
    assert "classes whose min_flow cannot be met: these stay Pending, as in the scheduler" in told
    # What the model itself leaves no room for can never be met.
    target.write_text(GANG.replace("class Gang(CostModel):", """class Gang(CostModel):
    def get_equiv_class_to_equiv_classes_arcs(self, ec):
        return () if ec == "beyond" else ("beyond",)

    def equiv_class_to_equiv_class(self, ec, other):
        return Arc(0, 2, 3)
"""))
    assert main.main(["model", "check", f"{target}:Gang", "--examples", "40"]) == 1
    assert "min_flow is 3, and the arc has room for 2" in capsys.readouterr().out


WRONG = {
    "a price that is no number": ("answers", "return Arc(1_000_000 +", "return Arc('much') # ("),
    "an array that is too short": ("answers", "Arcs(machines.running,", "Arcs(machines.running[1:],"),
    "room below 0": ("answers", "machines.free_slots)", "machines.free_slots - 1000)"),
    "forms that disagree": ("forms", "Arcs(machines.running,", "Arcs(machines.running + 1,"),
    "waiting that pays": ("waiting", "+ int(task.waited_s)", "- int(task.waited_s)"),
    "a node that is written to": ("answers", "return Arcs(", "[m.info.pods.clear() for m in machines]; return Arcs("),
    "a pod that is written to": ("answers", "return Arc(1_000_000", 'task.pod.labels["a"] = "b"; return Arc(1_000_000'),
    "a pod whose node is written": (
        "answers", "return Arc(1_000_000", 'task.pod.node_name = "n"; return Arc(1_000_000'),
    "a node that is cordoned": (
        "pure", "return Arcs(", "[setattr(m.info, 'unschedulable', 1) for m in machines]; return Arcs("),
    "a specification that is written to": (
        "pure", "return Arc(1_000_000", "task.pod.spec.affinity = {}; return Arc(1_000_000"),
    "a task that is written to": ("answers", "return Arc(1_000_000", "task.count = 9; return Arc(1_000_000"),
    "the graph's slots that are written to": ("answers", "return Arcs(", "machines.slots[:] = 0; return Arcs("),
    "chance of its own": ("seed", "1_000_000 + int", "random.randrange(1 << 30) + int"),
    "a label that no class has": ("task_key", "1_000_000 + int(", "1_000_000 + len(task.labels.get('a', '')) + int("),
}
AT_A_POINT = {
    "task_key": "return [1]",
    "remove_task": "raise ValueError('no')",
    "remove_machine": "raise ValueError('no')",
    "unscheduled_agg_to_sink": "return Arc(float('nan'))",
    "task_continuation": "return Arc(float('nan'))",
    "task_preemption": "raise SystemExit(0)",
    "add_machine": "raise ValueError('no')",
    "gather_stats": "raise ValueError('no')",
    "prepare_stats": "raise ValueError('no')",
    "update_stats": "raise ValueError('no')",
    "add_task": "raise ValueError('no')",
    "get_task_equiv_classes": "raise ValueError('no')",
    "get_equiv_class_to_equiv_classes_arcs": "return 3",
    "get_outgoing_equiv_class_pref_arcs": "return [-1]",
    "get_task_preference_arcs": "return [-1]",
    "task_to_equiv_class_aggregator": "return Arc(0.5)",
    "resource_node_to_resource_node": "return Arc(0.5)",
    "resource_nodes_to_resource_nodes": "return 0.5, 1",
    "leaf_resource_node_to_sink": "return Arc(0.5)",
    "leaf_resource_nodes_to_sink": "return 0.5, 1",
}
WRONG_TIERS = {
    "prices of machine classes that disagree": ("Arcs(machines.running + index", "Arcs(machines.running"),
    "capacities of machine classes that disagree": ("machines.free_slots > index", "machines.free_slots >= index"),
}


def judged(tmp_path: Path, text: str, law: str, examples: int = 25) -> str:
    path = tmp_path / "mine.py"
    path.write_text(text)
    subject = Subject(f"{path}:Mine", {}, {})
    part = judge(law, subject, words_of(module_of(str(path))), examples, 0)
    return "" if part.failure is None else part.failure.shown or part.failure.wanted


@pytest.mark.parametrize("law", LAWS)
def test_a_right_model_breaks_no_law(tmp_path: Path, law: str) -> None:
    assert judged(tmp_path, RIGHT, law) == ""


def test_a_price_that_is_wrong_after_the_ninth_machine_is_found(tmp_path: Path) -> None:
    text = RIGHT.replace("Arcs(machines.running,", "Arcs([0.5 * (i > 8) for i in range(len(machines))],")
    assert text != RIGHT
    assert judged(tmp_path, text, "answers").count("node n") == 10


@pytest.mark.parametrize(("law", "old", "new"), WRONG.values(), ids=WRONG)
def test_each_wrong_model_is_found_by_its_law(tmp_path: Path, law: str, old: str, new: str) -> None:
    assert old in RIGHT
    assert "pod " in judged(tmp_path, RIGHT.replace(old, new), law)


READS = {
    "one label": "('app' in task.labels)",
    "its value": "(task.labels.get('app') == 'gold')",
    "a copy of all labels": "('app' in dict(task.labels))",
    "a walk over all labels": "sum(key == 'app' for key, value in task.labels.items())",
    "all values": "('7' in task.labels.values())",
    "how many labels": "len(task.labels)",
    "the first label": "(next(iter(task.labels), '') == 'app')",
    "all labels as text": "len(str(task.labels))",
    "labels of the pod": "len(dict(task.pod.labels))",
    "its name": "task.pod.name.endswith('1')",
    "its key": "len(task.name)",
    "its uid": "sum(map(ord, task.pod.uid))",
}
SHARED = {
    "its namespace": "len(task.pod.namespace)",
    "its namespace by its key": "len(task.name.partition('/')[0])",
    "its specification": "task.request('cpu')",
    "its owner": "len(task.job) + len(task.pod.controller or ())",
    "its priority": "task.pod.priority",
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_whatever_a_price_reads_of_a_pod_must_be_in_its_key(tmp_path: Path, read: str) -> None:
    price = RIGHT.replace("1_000_000 +", f"1_000_000 + {read} +")
    assert "pods with equal task_key have equal prices" in judged(tmp_path, price, "task_key")
    keyed = f"{price}\n    def task_key(self, task):\n        return {read}\n"
    assert judged(tmp_path, keyed, "task_key", 5) == ""


@pytest.mark.parametrize("read", SHARED.values(), ids=SHARED)
def test_what_all_pods_of_a_class_have_needs_no_key(tmp_path: Path, read: str) -> None:
    assert judged(tmp_path, RIGHT.replace("1_000_000 +", f"1_000_000 + {read} +"), "task_key", 5) == ""


LEAST_FLOW = f"""{RIGHT}
    def task_to_equiv_class_aggregator(self, task, ec):
        return Arc(0, 1, LEAST)
"""


def test_a_least_flow_is_a_price(tmp_path: Path) -> None:
    text = LEAST_FLOW.replace("LEAST", "int('app' in task.labels)")
    assert "pods with equal task_key have equal prices" in judged(tmp_path, text, "task_key")
    keyed = f"{text}\n    def task_key(self, task):\n        return 'app' in task.labels\n"
    assert judged(tmp_path, keyed, "task_key", 5) == ""


def test_fields_that_are_read_and_not_changed_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT.replace("1_000_000 +", "1_000_000 + len(task.pod.volumes) + task.pod.priority +"))
    assert main.main(["model", "check", f"{path}:Mine", "--examples", "5"]) == 0
    assert "\nno law looks at: pod.volumes, clusters of more than " in capsys.readouterr().out


@pytest.mark.parametrize("law", LAWS)
def test_a_right_model_of_machine_classes_breaks_no_law(tmp_path: Path, law: str) -> None:
    assert judged(tmp_path, TIERS, law) == ""


@pytest.mark.parametrize(("old", "new"), WRONG_TIERS.values(), ids=WRONG_TIERS)
def test_forms_of_machine_classes_that_disagree_are_found(tmp_path: Path, old: str, new: str) -> None:
    assert old in TIERS
    assert "equiv_class_to_machine_classes says" in judged(tmp_path, TIERS.replace(old, new), "forms")


@pytest.mark.parametrize("point", AT_A_POINT)
def test_a_model_that_is_wrong_at_any_point_of_the_interface_is_found(tmp_path: Path, point: str) -> None:
    wrong = f"    def {point}(self, *given):\n        {AT_A_POINT[point]}\n"
    assert "pod " in judged(tmp_path, f"{RIGHT}\n{wrong}", "answers")


def test_methods_that_no_law_calls_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{RIGHT}\n    def task_to_resource_node(self, task, machine):\n        return Arc(1)\n")
    assert main.main(["model", "check", f"{path}:Mine", "--examples", "5"]) == 0
    assert "\nno law looks at: task_to_resource_node, clusters of more than " in capsys.readouterr().out
    assert main.main(["model", "check", f"{path}:Mine", "--examples", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unjudged"] == ["task_to_resource_node", model_laws.NOT_ASKED]
    path.write_text(RIGHT.replace("    def equiv_class_to_resource_nodes", "    def other"))
    assert main.main(["model", "check", f"{path}:Mine", "--examples", "5"]) == 0
    assert "no law looks at: clusters of more" in capsys.readouterr().out, "asked by the form for many"


HEIRS = {
    "inherited whole": RIGHT.replace("Arcs(machines.running,", "Arcs(machines.running + 1,").replace("Mine", "Base")
    + "\nclass Mine(Base):\n    pass\n",
    "the other form inherited": RIGHT.replace("Mine", "Base")
    + "\nclass Mine(Base):\n    def equiv_class_to_resource_nodes(self, ec, machines):\n"
    "        return Arcs(machines.running + 1, machines.free_slots)\n",
    "machine classes": TIERS.replace("running + index", "running").replace("Mine", "Base")
    + "\nclass Mine(Base):\n    pass\n",
}


@pytest.mark.parametrize("text", HEIRS.values(), ids=HEIRS)
def test_forms_are_compared_wherever_they_are_defined(tmp_path: Path, text: str) -> None:
    assert "both forms give the same cost and capacity" in judged(tmp_path, text, "forms")


@pytest.mark.parametrize("name", MODELS)
def test_forms_of_each_built_in_model_agree(name: str) -> None:
    assert judge("forms", Subject(name, {}, {}), Words(), 10, 1).failure is None
    assert judge("answers", Subject(name, {}, {}), Words(), 10, 1).failure is None


def for_nothing(problem: Problem) -> IntArray:
    return NUMPY.solve(problem._replace(cost=np.zeros_like(problem.cost)))


def nowhere(problem: Problem) -> IntArray:
    return np.zeros_like(problem.cost)


@pytest.mark.parametrize(
    ("solve", "told"), [(for_nothing, "a cycle of the residual graph"), (nowhere, "flow is not conserved")]
)
def test_a_solver_that_finds_no_cheapest_flow_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, solve: Callable[[Problem], IntArray], told: str
) -> None:
    monkeypatch.setattr(model_laws, "available", lambda: {"right": NUMPY, "wrong": SimpleNamespace(solve=solve)})
    assert f"wrong: {told}" in judged(tmp_path, RIGHT, "flow")


def test_the_command_tells_what_was_judged_and_exits_with_1_where_a_law_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT)
    assert main.main(["model", "check", f"{path}:Mine", "--examples", "5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["holds"] and [part["name"] for part in told["parts"]] == [*LAWS, "processes"]
    path.write_text(RIGHT.replace("machines.free_slots)", "-1)"))
    assert main.main(["model", "check", f"{path}:Mine", "--examples", "5"]) == 1
    assert "capacity is -1; a whole number from 0 to" in capsys.readouterr().out
    assert main.main(["model", "check", "NOT_THERE"]) == 2
    assert "there is no cost model 'NOT_THERE'; the models are: TRIVIAL, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("return Arc(1_000_000 +", "raise SystemExit(3) # (", "SystemExit: 3 (mine.py, line 7)"),
        ("return Arc(1_000_000 +", "raise type('Panic', (BaseException,), {}) # (", "Panic (mine.py, line 7)"),
        ("return Arc(1_000_000 +", "raise GeneratorExit # (", "GeneratorExit (mine.py, line 7)"),
        ("return Arcs(machines", "return None # (machines", "returned NoneType; Arcs("),
        ("import random", "raise SystemExit(3)", "mine.py cannot be run: SystemExit: 3 (mine.py, line 2)"),
        ("class Mine(CostModel):", "class Mine(CostModel):\n    machine_classes = -1", "machine_classes is -1; a"),
    ],
)
def test_whatever_a_model_raises_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, told: str
) -> None:
    path = tmp_path / "mine.py"
    assert old in RIGHT
    path.write_text(RIGHT.replace(old, new))
    assert main.main(["model", "check", f"{path}:Mine", "--examples", "5"]) in (1, 2)
    assert told in "".join(capsys.readouterr())


def test_a_model_that_depends_on_the_hash_seed_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT.replace("Arc(1_000_000 +", "Arc(1_000_000 + hash(task.name) % 1000 +"))
    assert main.main(["model", "check", f"{path}:Mine", "--examples", "2"]) == 1
    assert "equal clusters have equal answers in any process" in capsys.readouterr().out


INHERITED = """
from minikube_py.scheduler.flow import Arc
from minikube_py.scheduler.flow.models import MODELS

class Mine(MODELS["OCTOPUS"]):
    def equiv_class_to_resource_node(self, ec, machine):
        return Arc(999 if machine.name == "n0" else 1, machine.free_slots)
"""


BY_MIXIN = INHERITED.replace('class Mine(MODELS["OCTOPUS"]):', "class Priced:") + """
class Mine(Priced, MODELS["OCTOPUS"]):
    pass
"""


@pytest.mark.parametrize("text", [INHERITED, BY_MIXIN], ids=["its own", "of a mixin"])
def test_a_price_for_one_machine_replaces_the_inherited_ones_for_many(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    model = Subject(f"{path}:Mine", {}, {}).make()
    assert model.name == "Mine"
    nodes = [{"metadata": {"name": name}, "status": {"allocatable": {"pods": "5"}}} for name in ("n0", "n1")]
    columns = columns_of(Case(tuple(nodes), (), ()))
    machines = Machines(columns.all(), np.arange(2))
    assert np.array_equal(model.equiv_class_to_resource_nodes("cluster", machines).cost, [999, 1])


def test_a_round_is_measured_and_every_pod_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--nodes", "6,9", "--pods", "50", "--classes", "3", "--model", "CPU_MEM,TRIVIAL", "--solver", "numpy"]
    assert main.main(["bench", "flow", *arguments, "--results", str(tmp_path)]) == 0
    heads, *rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert heads[:4] == ["MODEL", "SOLVER", "NODES", "PODS"]
    assert [row[:5] for row in rows if row[0] in ("CPU_MEM", "TRIVIAL")] == [
        [model, "numpy", nodes, "50", "3"] for nodes in ("6", "9") for model in ("CPU_MEM", "TRIVIAL")
    ]
    assert all(int(row[-2]) + int(row[-1]) == 50 for row in rows if row[0] == "TRIVIAL")
    (written,) = tmp_path.glob("flow-*/flow.json")
    document = json.loads(written.read_bytes())
    found = [(each["model"], each["nodes"]) for each in document["rounds"]]
    assert found == [(row[0], int(row[2])) for row in rows[:4]]
    assert all(each["total_s"] >= each["solve_s"] and each["placed"] <= 50 for each in document["rounds"])
    assert document["environment"]["python"]


@pytest.mark.parametrize("arc", ["Arc(float('nan'))", "Arc(10, 1, 2**31)"])
def test_a_round_of_a_model_that_fails_is_not_measured(
    arc: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    method = "def task_to_equiv_class_aggregator(self, task, ec):\n        return"
    path.write_text(RIGHT.replace("    def task_to_unsch", f"    {method} {arc}\n\n    def task_to_unsch"))
    assert main.main(["bench", "flow", "--nodes", "2", "--pods", "500", "--model", f"{path}:Mine"]) != 0
    assert "Mine, 2 nodes:" in capsys.readouterr().err
