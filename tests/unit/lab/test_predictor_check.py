"""`minikube-py predictor check`: right predictors pass, and each wrong one is found by the law that it breaks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikube_py.cli import main
from minikube_py.lab.plugins.predictor_laws import LAWS, Subject, judge
from minikube_py.scheduler.prediction.predictors import PREDICTORS

RIGHT = """
class Mine:
    samples = 12
    asked = 0

    def peak(self, past):
        known, others = past.known(12)
        return others + float(known.total.max(initial=0.0))
"""

WRONG = {
    "a number that is none": ("answers", "return others +", "return float('nan') +"),
    "below 0": ("answers", "return others +", "return -1 +"),
    "it fails without pods": ("answers", "return others +", "return past.reserved[0] +"),
    "a memory of its own": ("again", "return others", "self.asked += past.limit\n        return self.asked"),
    "the first pod counts most": ("order", "past.known(12)", "past.known(12 if past.reserved[:1].sum() > 99 else 1)"),
    "a constant in cores": ("unit", "return others +", "return 4000 * len(past.reserved) +"),
    "a node of more than five pods": ("more", "return others", "return 0.0 if len(past.reserved) > 5 else others"),
    "a sample that nobody reported": (
        "answers",
        "past.known(12)",
        "past.known(1)\n        return float(sum(row.max() for row in past.usage if row.size and row[0] >= 0))",
    ),
    "a pod without a request": ("idle", "return others", "return 0.0 if (past.reserved == 0).any() else others"),
    "a gap in what was reported": (
        "idle",
        "return others",
        "return 0.0 if (past.usage[:, 1:] != past.usage[:, 1:])[past.usage[:, :-1] >= 0].any() else others",
    ),
    "a pod that uses more than its request": (
        "busier",
        "return others",
        "return 0.0 if (past.usage > past.reserved[:, None]).any() else others",
    ),
    "a look at the future": ("blind", "return others +", "return past.ahead.sum() +"),
    "samples that are sorted where they are": (
        "unchanged",
        "past.known(12)",
        "past.known(12)\n        past.usage.flags.writeable = True\n        past.usage.sort()",
    ),
    "a node that is never idle": ("nobody", "return others +", "return 1e-7 +"),
}


def judged(tmp_path: Path, text: str, law: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(text)
    part = judge(law, Subject(f"{path}:Mine", {}), 60, 0)
    return "" if part.failure is None else part.failure.shown


@pytest.mark.parametrize("law", LAWS)
def test_a_right_predictor_breaks_no_law(tmp_path: Path, law: str) -> None:
    assert judged(tmp_path, RIGHT, law) == ""


@pytest.mark.parametrize(("law", "old", "new"), WRONG.values(), ids=WRONG)
def test_each_wrong_predictor_is_found_by_its_law(tmp_path: Path, law: str, old: str, new: str) -> None:
    assert old in RIGHT
    shown = judged(tmp_path, RIGHT.replace(old, new), law)
    assert "# " in shown
    assert len(shown.splitlines()) <= 4, "the shortest history that shows it"


def test_one_that_knows_five_pods_only_is_found(tmp_path: Path) -> None:
    fifth = "type(past)(past.reserved[:5], past.usage[:5], past.ahead[:5]).known(12)"
    shown = judged(tmp_path, RIGHT.replace("past.known(12)", fifth), "order")
    assert 6 <= shown.count("pod  reserved=") < 30, "far fewer than a node has"


def test_one_that_forgets_unknown_pods_breaks_its_argument(tmp_path: Path) -> None:
    text = "from minikube_py.scheduler.prediction.predictors import NSigma\n\nclass Mine(NSigma):\n"
    peak = "    def peak(self, past):\n        return super().peak(past) - past.known(self.samples)[1]\n"
    assert judged(tmp_path, f"{text}    pass\n", "unknown") == ""
    assert "a pod without samples counts `unknown` of what it reserves" in judged(tmp_path, text + peak, "unknown")


@pytest.mark.parametrize("name", PREDICTORS)
def test_built_in_predictors_break_none(name: str) -> None:
    assert [judge(law, Subject(name, {}), 20, 3).failure for law in LAWS] == [None] * len(LAWS)


def test_the_command_tells_what_was_judged_and_exits_with_1_where_a_law_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT)
    assert main.main(["predictor", "check", f"{path}:Mine", "--examples", "5", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["predictor"] == "Mine" and told["holds"] and [part["name"] for part in told["parts"]] == list(LAWS)
    path.write_text(RIGHT.replace("return others +", "return float('nan') +"))
    assert main.main(["predictor", "check", f"{path}:Mine", "--examples", "5"]) == 1
    assert "predictor Mine: peak of a node is nan; a number not below 0 is expected" in capsys.readouterr().out
    assert main.main(["predictor", "check", "nobody"]) == 2
    assert "there is no predictor 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ("raise type('Panic', (BaseException,), {}) #", "peak of a node: Panic (mine.py, line 8)"),
        ("raise SystemExit(3) #", "peak of a node: SystemExit: 3 (mine.py, line 8)"),
        ("raise __import__('asyncio').CancelledError #", "peak of a node: CancelledError (mine.py, line 8)"),
        ("return None #", "peak of a node is a NoneType; a number not below 0 is expected"),
    ],
)
def test_whatever_a_predictor_raises_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], new: str, told: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT.replace("return others +", new))
    assert main.main(["predictor", "check", f"{path}:Mine", "--examples", "5"]) == 1
    assert told in capsys.readouterr().out
    path.write_text(RIGHT.replace("samples = 12", "samples = float('nan')"))
    assert main.main(["predictor", "check", f"{path}:Mine"]) == 2
    assert "samples is nan; a whole number from 1 to 2016 is expected" in capsys.readouterr().err
    path.write_text("raise SystemExit(3)")
    assert main.main(["predictor", "check", f"{path}:Mine"]) == 2
    assert "mine.py cannot be run: SystemExit: 3 (mine.py, line 1)" in capsys.readouterr().err
