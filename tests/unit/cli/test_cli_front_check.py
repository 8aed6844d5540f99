"""`minikube-py front check`: which lies it finds, what it says of an honest front, and what cannot be judged."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from minikube_py.cli.main import main
from minikube_py.studies.emptiness import check
from minikube_py.studies.emptiness.fronts import Skyline

FRONT = """
import numpy as np

class Mine:
    front = "mine"
    bound = {bound}
    def __init__(self, points, shards, more: int = 0):
        self.points = {copy}
        self.shards = shards
    def passing(self, asked):
        says = np.zeros((len(asked), self.shards), dtype=np.bool_)
        for slot, point in enumerate(self.points):
            says[:, slot % self.shards] |= {fits}
        return says
    def put(self, slot, point):
        {put}
    def size_bytes(self):
        return {size}
"""
HONEST = {
    "bound": "0.0", "copy": "points.copy()", "fits": "(point >= asked).all(axis=1)", "put": "self.points[slot] = point",
    "size": "8",
}  # fmt: skip


def judged(folder: Path, *flags: str, **lie: str) -> int:
    (folder / "mine.py").write_text(FRONT.format(**{**HONEST, **lie}))
    return main(["front", "check", f"{folder / 'mine.py'}:Mine", "--examples", "150", *flags])


def test_an_honest_front_is_measured_beside_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert judged(tmp_path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["holds"] and [part["name"] for part in document["parts"]] == ["front", "synthetic", "openb", "dlrm"]
    costs = {(each["world"], each["front"]): each for each in document["costs"]}
    assert {front for _, front in costs} == {"mine", "none", "repairing-max", "joint-8", "skyline", "bounded-skyline-4"}
    for world in ("synthetic", "openb", "dlrm"):
        assert costs[world, "mine"]["let_through"] == costs[world, "skyline"]["let_through"] == 0.0
        assert costs[world, "none"]["let_through"] == 1.0
        assert costs[world, "mine"]["rows_read"] is None and costs[world, "mine"]["bytes"] == 8
    for world in ("openb", "dlrm"):
        monkeypatch.delitem(check.WORLDS, world)  # type: ignore[arg-type]
    assert judged(tmp_path) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[5] for row in shown if row[1:2] == ["mine"]] == ["-"]


@pytest.mark.parametrize(
    ("lie", "law"),
    [
        ({"fits": "(point > asked).all(axis=1)"}, "it never rules out a node that fits"),
        ({"put": "pass"}, "it never rules out a node that fits"),
        ({"fits": "(point >= asked).any(axis=1)"}, "it is exact"),
        ({"fits": "(point >= asked[0]).all()"}, "a batch is answered as its requests are one by one"),
        ({"bound": "2"}, "it states a bound"),
        ({"size": "-1"}, "size_bytes is a number of bytes"),
        ({"put": "self.passing = lambda asked: [[True]]"}, "passing says requests x shards"),
        # What would hold for all, if the requests that it writes were then those it is judged by.
        ({"fits": "np.bool_(asked.fill(np.iinfo(asked.dtype).min) is None)"}, "it changes nothing that it is given"),
        ({"copy": "points.copy(); points.fill(0)"}, "it changes nothing that it is given"),
        # Only of wide clusters.
        ({"fits": "(point >= asked).all(axis=1) & (len(point) < 5)"}, "it never rules out a node that fits"),
        ({"fits": "(point[:8] >= asked[:, :8]).all(axis=1)"}, "it is exact"),
        ({"fits": "(point >= asked).all(axis=1) & (self.shards <= 16)"}, "it never rules out a node that fits"),
    ],
)
def test_a_lie_is_found_and_the_least_program_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lie: dict[str, str], law: str
) -> None:
    # One that never rules anything out in vain would hide behind it.
    more = {"bound": "1.0"} if "one by one" in law or "rules out" in law else {}
    assert judged(tmp_path, "--no-bench", **{**more, **lie}) == 1
    told = capsys.readouterr().out
    assert "front = Front(np.array(" in told and "mine: broken" in told
    assert law in told


def test_a_bound_that_is_not_kept_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(tmp_path, bound="0.01", fits="(point[:1] >= asked[:, :1]).all(axis=1)") == 1
    told = capsys.readouterr().out
    assert "it keeps its bound" in told and "of the full shards, where its bound is 0.01" in told


def test_a_verdict_says_on_what_the_laws_were_not_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refusing = "from minikube_py.errors import InvalidRequest\n" + FRONT.format(**HONEST).replace(
        "        self.shards = shards\n",
        "        self.shards = shards\n        if points.shape[1] {0}: raise InvalidRequest('no')\n",
    )
    path = tmp_path / "refusing.py"
    for which, said in (("> 4", "up to 4 columns, "), ("< 2", "it refused 1 columns at times: no\n")):
        path.write_text(refusing.replace("{0}", which))
        assert main(["front", "check", f"{path}:Mine", "--examples", "60", "--no-bench"]) == 0
        told = capsys.readouterr().out
        assert said in told and "the laws were tried on clusters of up to" in told and " columns at times: no\n" in told
    path.write_text(refusing.replace("{0}", "> 0"))
    assert main(["front", "check", f"{path}:Mine", "--examples", "60", "--no-bench"]) == 1
    assert "it takes some number of columns" in capsys.readouterr().out


PANIC = "(_ for _ in ()).throw(type('Panic', (BaseException,), {})(7))"


@pytest.mark.parametrize(
    ("lie", "law", "said"),
    [
        ({"size": "8 if len(self.points) < 321 else 1 // 0"}, "it answers", "ZeroDivisionError: "),
        ({"put": "self.points[slot] = point if len(self.points) < 321 else exit(3)"}, "it answers", "SystemExit: 3"),
        ({"put": f"self.points[slot] = point if len(self.points) < 321 else {PANIC}"}, "it answers", "Panic: 7"),
        ({"bound": "property(lambda self: 0.0 if len(self.points) < 321 else None)"}, "it states a bound", "is None"),
    ],
)
def test_what_breaks_only_in_the_benchmark_is_told_and_the_others_are_measured(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lie: dict[str, str],
    law: str,
    said: str,
) -> None:
    # One has no more nodes than the laws draw; one of the others is enough.
    for world in ("dlrm", "openb"):
        monkeypatch.delitem(check.WORLDS, world)  # type: ignore[arg-type]
    assert judged(tmp_path, "--json", **lie) == 1
    document = json.loads(capsys.readouterr().out)
    laws, bench = (part["failure"] for part in document["parts"])
    assert laws is None
    assert bench["law"] == law and said in bench["wanted"]
    assert {each["front"] for each in document["costs"]} == set(check.BESIDE)


def test_a_front_that_keeps_the_array_it_was_given_does_not_change_its_rivals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(FRONT.format(**HONEST).replace("points.copy()", "points"))
    assert main(["front", "check", f"{tmp_path / 'mine.py'}:Mine", "--examples", "20", "--json"]) == 0
    costs = json.loads(capsys.readouterr().out)["costs"]
    exact = [each["let_through"] for each in costs if each["front"] in ("mine", "skyline")]
    assert exact == [0.0] * 6


def test_a_front_that_is_installed_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    place = "minikube_py.studies.emptiness.fronts:Skyline"
    point = EntryPoint("theirs", place, "minikube_py.fronts")
    monkeypatch.setattr(check, "entry_points", lambda group: [point] if group == point.group else [])
    subject = check.find_front("theirs", {})
    assert subject.title == "theirs"
    assert isinstance(subject.build(np.ones((2, 1), dtype=np.int64), 1), Skyline)


def test_what_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["front", "check", "no-such-front"]) == 2
    said = "'no-such-front' is neither FILE.py:CLASS nor the name of a front; the fronts are: none, oracle"
    assert said in capsys.readouterr().err
    assert main(["front", "check", "skyband-2", "--no-bench", "--examples", "20", "--option", "k=3"]) == 0
    assert "skyband-2: all laws hold" in capsys.readouterr().out


LIAR = """
import numpy as np
from minikube_py.studies.emptiness.fronts import Oracle

class Liar(Oracle):
    front = "liar"
    def size_bytes(self):
        return 1
"""


def test_a_front_that_states_less_than_it_holds_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("liar.py").write_text(LIAR)
    assert main(["front", "check", "liar.py:Liar", "--examples", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [note.split(",")[0] for note in document["notes"]] == [
        f"size_bytes says 1 on {world} nodes" for world in ("synthetic", "openb", "dlrm")
    ]
    for cost in document["costs"]:
        assert cost["traced_bytes"] > cost["bytes"], "packed bits, and the nodes as int64"
