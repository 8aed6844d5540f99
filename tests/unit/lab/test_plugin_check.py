"""`minikube-py plugin check`: right plugins pass, and each wrong one is found by the law that it breaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikube_py.cli import main
from minikube_py.lab.plugins.bench import Cost, notes
from minikube_py.lab.plugins.check import PARTS, check, judge, subject_of
from minikube_py.scheduler.config import ConfigError

EXAMPLES = 60

HEAD = """
import random
import numpy as np
from minikube_py.scheduler.framework import Code, Normalize, Status

NO = Status(Code.UNSCHEDULABLE, "node(s) were too small")
"""

RIGHT = """
class Mine:
    scope = "NODE"

    def __init__(self, args):
        self.least = args.get("least", 1000)

    def filter(self, state, pod, node):
        return None if node.allocatable.get("cpu", 0) >= self.least else NO

    def filter_nodes(self, state, pod, nodes):
        return nodes.allocatable("cpu") >= self.least

    def score(self, state, pod, node):
        return min(100, node.allocatable.get("example.com/fast", 0) // 100)

    def score_nodes(self, state, pod, nodes):
        return np.minimum(100, nodes.allocatable("example.com/fast") // 100)
"""

ZONES = """
class Mine:
    scope = "TOPOLOGY"
    topology_keys = ("topology.kubernetes.io/zone",)

    def __init__(self, args, handle):
        self.handle = handle

    def score(self, state, pod, node):
        zone = node.labels.get("topology.kubernetes.io/zone")
        if zone is None:
            return 0
        known = [n for n in self.handle.columns.by_slot if n is not None and n.present]
        return min(100, sum(n.labels.get("topology.kubernetes.io/zone") == zone for n in known))
"""

REVERSED = """
class Mine:
    scope = "NODE"
    normalize = Normalize(reverse=True)

    def score(self, state, pod, node):
        return len(node.pods)
"""


READS_MORE = """
class Mine:
    scope = "NODE"

    def filter(self, state, pod, node):
        return NO if node.unschedulable and pod.name == "p1" else None

    def score(self, state, pod, node):
        return 50 if pod.labels.get("tier") == "a" else 0
"""

NORMALIZING = """
class Mine:
    scope = "NODE"

    def score(self, state, pod, node):
        return len(node.pods)

    def normalize_scores(self, state, pod, scores):
        return scores * 100 // max(1, int(scores.max()))
"""


def changed(old: str, new: str, text: str = RIGHT) -> str:
    assert old in text
    return text.replace(old, new)


LABELLED = """
class Mine:
    scope = "NODE"

    def score(self, state, pod, node):
        return 50 if pod.labels.get("tier") == "a" else 0

    def sign_pod(self, pod):
        return pod.namespace
"""

WRONG = {
    "a filter's forms": ("forms", changed('("cpu") >=', '("cpu") >')),
    "a score's forms": ("forms", changed("np.minimum(100,", "np.minimum(99,")),
    "a code's meaning": (
        "forms",
        changed(
            "    def score(",
            "    def reject_codes(self, state, pod, nodes):\n"
            "        return np.ones(len(nodes), np.int64), lambda code: Status(Code.UNSCHEDULABLE, 'no')\n\n"
            "    def score(",
        ),
    ),
    "an array too short": ("raises", changed("return nodes.allocatable", "return nodes.allocatable('cpu')[:0] > 0 #")),
    "a score out of range": ("raises", changed("min(100, ", "max(0, ")),
    "a float": ("raises", changed("// 100)\n\n    def score_nodes", "/ 100)\n\n    def score_nodes")),
    "a label that is not there": (
        "raises",
        changed("        return min(100,", "        node.labels['disk']\n        return min(100,"),
    ),
    "a range after normalizing": (
        "range",
        changed(
            "normalize = Normalize(reverse=True)",
            "\n    def normalize_scores(self, state, pod, scores):\n        return scores * 60",
            REVERSED,
        ),
    ),
    "other nodes": ("scope", changed('scope = "TOPOLOGY"', 'scope = "NODE"', ZONES)),
    "another zone": ("scope", changed('labels.get("topology.kubernetes.io/zone") == zone', "name != ''", ZONES)),
    "what is kept": (
        "kept",
        changed('scope = "TOPOLOGY"', 'scope = "NODE"', ZONES).replace(
            'sum(n.labels.get("topology.kubernetes.io/zone") == zone for n in known)', "sum(len(n.pods) for n in known)"
        ),
    ),
    "a signature without a label": ("signature", LABELLED),
    "a signature without the name": (
        "signature",
        changed(
            "        return min(100,", "        if pod.name == 'p1':\n            return 1\n        return min(100,"
        )
        + "\n    def sign_pod(self, pod):\n        return ()\n",
    ),
    "a node's amounts are changed": (
        "raises",
        changed("        return min(100,", "        node.allocatable['example.com/fast'] = 0\n        return min(100,"),
    ),
    "a node is cordoned": (
        "pure",
        changed("        return min(100,", "        node.uid += 'x'\n        return min(100,"),
    ),
    "a column is computed in place": (
        "forms",
        changed("        return np.minimum(", "        nodes.free('cpu').__isub__(1)\n        return np.minimum("),
    ),
    "a column's guard is taken off": (
        "pure",
        changed(
            "        return nodes.alloc",
            "        nodes.columns.requested_row('cpu').base[:] += 1\n        return nodes.alloc",
        ),
    ),
    "a count of calls": (
        "pure",
        changed("        return min(100,", "        self.least += 1\n        return min(100,").replace(
            "        return None if", "        return None if self.least % 2 and"
        ),
    ),
    "chance": ("pure", changed("return min(100, node", "return random.randrange(50) + min(50, node")),
}


def subject(folder: Path, text: str) -> str:
    path = folder / "mine.py"
    path.write_text(HEAD + text)
    return f"{path}:Mine"


@pytest.mark.parametrize(
    "text",
    [RIGHT, ZONES, REVERSED, READS_MORE, NORMALIZING],
    ids=["forms", "zones", "normalized", "reads", "normalizing"],
)
@pytest.mark.parametrize("part", PARTS)
def test_right_plugins_keep_every_law(tmp_path: Path, text: str, part: str) -> None:
    found = judge(part, *subject_of(subject(tmp_path, text), {}), 15, 0)
    assert found.failure is None, found.failure


@pytest.mark.parametrize(("part", "text"), WRONG.values(), ids=WRONG)
def test_each_wrong_plugin_is_found(tmp_path: Path, part: str, text: str) -> None:
    found = judge(part, *subject_of(subject(tmp_path, text), {}), EXAMPLES, 0)
    assert found.failure is not None
    assert "node" in found.failure.shown or "pod" in found.failure.shown


def test_the_order_of_a_set_is_found_and_the_exit_code_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "\nclass Mine:\n    def score(self, state, pod, node):\n        return len(min({'a', node.name}, key=hash))\n"
    )
    target = subject(tmp_path, text)
    assert main.main(["plugin", "check", target, "--examples", "2", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["plugin"], told["scope"], told["holds"], told["costs"]) == ("Mine", "CLUSTER", False, [])
    failed = [part for part in told["parts"] if part["failure"]]
    assert [part["name"] for part in failed] == ["processes"]
    assert "look for the order of a set" in failed[0]["failure"]["wanted"]


def test_what_it_prints_of_a_right_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plugin", "check", subject(tmp_path, RIGHT), "--args", "{least: 4000}", "--examples", "2"]
    assert main.main(words) == 0
    printed = capsys.readouterr().out
    assert "Mine: all laws hold" in printed and "* Mine" in printed and "  NodeResourcesFit" in printed
    assert [line.split()[0] for line in printed.splitlines()[:9]] == ["ok"] * 9
    assert "scope NODE: results are cached; for pods with equal specs, only changed" in printed


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (READS_MORE, "for pods with equal specs, equal label tier, equal name, only changed nodes"),
        (LABELLED, "for pods with equal specs, equal sign_pod, only changed nodes"),
        (NORMALIZING, "scope NODE with normalize_scores: it runs on every node for every pod"),
        (ZONES, "scope TOPOLOGY: it runs on every node for every pod"),
    ],
    ids=["reads", "signed", "normalizing", "zones"],
)
def test_it_says_which_pods_share_results(tmp_path: Path, text: str, wanted: str) -> None:
    found, words = subject_of(subject(tmp_path, text), {})
    cost = Cost("Mine", 1, 1.0, 1.0, True)
    assert wanted in notes([cost, cost._replace(plugin="NodeResourcesFit")], found, words, 0)[-1]


def test_args_that_it_does_not_take_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='plugin "Mine" takes no args'):
        subject_of(subject(tmp_path, REVERSED), {"least": 1})


POINTS = {
    "permit": "permit(self, state, pod, node_name)",
    "pre_enqueue": "pre_enqueue(self, pod)",
    "has_pre_bind": "has_pre_bind(self, state, pod, node_name)",
    "kinds_needed": "kinds_needed(self, pod)",
    "unreserve": "reserve(self, state, pod, node_name):\n        pass\n    def unreserve(self, state, pod, node_name)",
}


@pytest.mark.parametrize("method", POINTS)
def test_points_beyond_the_choice_are_judged(tmp_path: Path, method: str) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(f"class Mine:\n    def filter(self, *_): ...\n    def {POINTS[method]}:\n        return 1 / 0\n")
    found = check(f"{mine}:Mine", {}, 5, with_bench=False)
    assert found.parts[0].failure is not None and "ZeroDivisionError" in found.parts[0].failure.wanted


def test_what_no_law_looks_at_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("class Mine:\n    async def bind(self, *_):\n        return 5\n")
    assert main.main(["plugin", "check", f"{mine}:Mine", "--examples", "2", "--no-bench"]) == 0
    assert "no law looks at: bind" in capsys.readouterr().out


HANDED = """
class Mine:
    scope = "NODE"
    def __init__(self, args, handle):
        self.handle = handle
        self.kinds = handle.kinds
        print("made", object())
    def score(self, state, pod, node):
        print(pod, {"a", "b", "c"}, object())
        self.handle.count("my_plugin_scored_total")
        self.handle.tell(pod, "Scored", "by mine")
        return 50 if self.handle.pod(pod.key) is None and not self.handle.is_preempting(pod.uid) else 0
"""


def test_it_gets_a_whole_handle_and_may_print(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(HANDED)
    found = check(f"{mine}:Mine", {}, 5, with_bench=False)
    assert found.holds, [part.failure for part in found.parts]


def test_resources_that_the_args_name_are_drawn(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        """
class Mine:
    scope = "NODE"
    def __init__(self, args):
        self.resources = args["resources"]
    def score(self, state, pod, node):
        return 101 if any(node.allocatable.get(each["name"]) for each in self.resources) else 0
"""
    )
    found = check(f"{mine}:Mine", {"resources": [{"name": "example.com/x"}]}, 30, with_bench=False)
    assert next(part.name for part in found.parts if part.failure is not None) in ("raises", "range")
