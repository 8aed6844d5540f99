"""Experiments of one's own: the how-to as typed, and lies that are planted in a candidate, a batch and an order."""

from __future__ import annotations

import gc
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minikube_py.cli.main import main
from minikube_py.lab import plots
from minikube_py.lab.environment import Environment
from minikube_py.lab.study import audit, contest, registration, runner, study_report
from minikube_py.lab.study.design import Design, StudyError
from minikube_py.lab.study.experiment import Study, find
from minikube_py.lab.study.journal import Record
from minikube_py.lab.study.measured import Measured
from minikube_py.lab.study.registration import Registration

PAGE = Path(__file__).parents[3] / "docs/how-to/add-an-experiment.md"
BLOCK = re.compile(r"```(toml|python|)\n(.*?)```", re.DOTALL)
REGISTERED = Registration("c0ffee", "2026-01-01")
IDENTITY = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def blocks() -> list[tuple[str, str]]:
    return BLOCK.findall(PAGE.read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of the how-to."""
    for kind, text in blocks():
        if kind:
            name, _, body = text.partition("\n")
            (tmp_path / name.removeprefix("# ")).write_text(body)
    return tmp_path


def test_the_how_to_runs_as_typed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    printed, ran = "", 0
    for text in [text for kind, text in blocks() if not kind]:
        for line in text.splitlines():
            if line.startswith("minikube-py "):
                assert main(shlex.split(line)[1:]) == 0, line
                printed, ran = capsys.readouterr().out, ran + 1
            elif line.startswith("git "):
                subprocess.run(shlex.split(line), check=True, env={**os.environ, **IDENTITY})
            else:
                assert line in printed
    assert ran == 2
    document = json.loads((folder / "run/first-fit-report.json").read_text())
    assert document["registration"]["commit"] and document["warnings"] == []
    assert "the code of the experiment ran as it was then (digest " in (folder / "run/first-fit-report.md").read_text()
    assert [each["outcome"] for each in document["findings"]] == ["held"]
    (table,) = document["tables"]
    assert table["columns"] == ["", "nodes", "clusters", "answer_us", "change_us", "compared"]
    assert {row[0] for row in table["rows"]} == {"scan", "sorted"}
    # One that has changed since is no longer the registered one.
    with (folder / "first-fit.toml").open("a") as file:
        file.write("\n")
    assert main(["lab", "study", "first-fit.toml", "--quick", "--out", "more"]) == 1
    assert "first-fit.toml: changed since the commit" in capsys.readouterr().err
    subprocess.run(["git", "checkout", "-q", "first-fit.toml"], check=True)
    # Nor is one whose code has changed, whether it begins or goes on.
    find.cache_clear()
    code = folder / "first_fit.py"
    code.write_text(code.read_text().replace("len(self.free).bit_length()", "1"))
    assert main(["lab", "study", "first-fit.toml", "--quick", "--out", "more"]) == 1
    assert "first_fit.py: changed since the commit" in capsys.readouterr().err
    subprocess.run(["git", "commit", "-qam", "other code"], check=True, env={**os.environ, **IDENTITY})
    assert main(["lab", "study", "first-fit.toml", "--quick", "--out", "run", "--resume"]) == 1
    assert "run/cells.jsonl was begun with other code or data, at commit " in capsys.readouterr().err
    assert main(["lab", "study", "first-fit.toml", "--quick", "--out", "run", "--report"]) == 0
    # If that other code is run, its report says so.
    assert main(["lab", "study", "first-fit.toml", "--quick", "--jobs", "1", "--out", "other"]) == 0
    assert "note: CHANGED AFTER ITS REGISTRATION: the code of the experiment" in capsys.readouterr().out
    document = json.loads((folder / "other/first-fit-report.json").read_text())
    about = document["registration"]
    assert about["later"] == 1 and about["later_files"] == ["first_fit.py"] and about["code"] != about["code_ran"]
    for kind in ("md", "html"):
        text = (folder / f"other/first-fit-report.{kind}").read_text()
        assert text.count("the code of the experiment changed since, in 1 commit of first_fit.py: digest ") == 2
    find.cache_clear()


@pytest.fixture
def planted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Study, Design, list[Record]]]]:
    """The example with a line of its code replaced, run in this process."""
    # The heap of a test run is large.
    monkeypatch.setattr(gc, "collect", lambda: 0)

    def run(before: str = "", after: str = "", seeds: int = 4) -> tuple[Study, Design, list[Record]]:
        code = folder / "first_fit.py"
        source = code.read_text()
        assert before in source
        code.write_text(source.replace(before, after, 1))
        target = str(folder / "first-fit.toml")
        document = Path(target).read_text().replace("quick = 4", f"quick = {seeds}")
        Path(target).write_text(document.replace('figure = "compared"', 'figure = "answer_us"'))
        find.cache_clear()
        study = find(target)
        design = study.load("quick")
        records = [runner.run_unit(runner.Task(target, design, unit)) for unit in design.units()]
        assert not any("failed" in record for record in records)
        return study, design, records

    yield run
    find.cache_clear()


class Clocks:
    """CPU time that a test spends: a millisecond for each request, by whichever thread."""

    def __init__(self) -> None:
        self.by_thread: dict[int, int] = {}

    def spend(self, ns: int = 1_000_000) -> None:
        own = threading.get_ident()
        self.by_thread[own] = self.by_thread.get(own, 0) + ns

    def thread_ns(self) -> int:
        return self.by_thread.get(threading.get_ident(), 0)

    def process_ns(self) -> int:
        return sum(self.by_thread.values())


CLOCK = Clocks()


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "thread_time_ns", CLOCK.thread_ns)
    monkeypatch.setattr(contest, "process_time_ns", CLOCK.process_ns)


def warnings(study: Study, design: Design, records: list[Record]) -> str:
    return "\n".join(audit.warnings_of(study, design, REGISTERED, records))


def test_an_honest_run_has_nothing_to_warn_of(planted: Any) -> None:
    study, design, records = planted()
    assert warnings(study, design, records) == ""
    assert Measured(design, records).judge()[0].outcome != "not tested"


@pytest.mark.parametrize("levels", [[50, 400], [10, 20, 30, 40, 50]])
def test_a_few_levels_are_panels_with_rows_and_many_are_points_of_lines(
    levels: list[int], planted: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "first-fit.toml"
    path.write_text(path.read_text().replace("[50, 400]", str(levels)))
    kept: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: kept.append(figure) or path)
    _, design, records = planted()
    Measured(design, records).draw(folder, "first-fit")
    (figure,) = kept
    figure.style_of_ours.__exit__(None, None, None)
    lines = len(levels) == 5
    assert len(figure.axes) == (1 if lines else 2)
    for axes in figure.axes:
        bars, names = axes.get_legend_handles_labels()
        assert sorted(names) == ["scan", "sorted"] and axes.get_legend() is None
        assert [len(each[0].get_xdata()) for each in bars] == [5 if lines else 1] * 2
    written = [each.get_text() for each in figure.axes[0].texts if lines] or [
        each.get_text() for each in figure.axes[0].get_yticklabels()
    ]
    assert sorted(written) == ["scan", "sorted"]


def test_a_candidate_that_answers_wrongly_is_left_out(planted: Any) -> None:
    study, design, records = planted(
        "return bisect_left(self.free, cpus) <", "return cpus == 7 or bisect_left(self.free, cpus) >"
    )
    assert "WRONG ANSWERS, and therefore left out: sorted" in warnings(study, design, records)
    measured = Measured(design, records)
    assert measured.names("size") == ["scan"]
    assert measured.judge()[0].outcome == "not tested"
    assert {row[0] for row in measured.tables()[0].rows} == {"scan"}


def test_a_truncated_batch_is_compared_with_nothing(planted: Any) -> None:
    """It answers the cheap half of its second batch, and all of the others."""
    lie = "self.turn = getattr(self, 'turn', 0) + 1\n"
    lie += "        asked = asked[: 5 if self.turn == 2 < len(self.free) - 50 else 25]\n"
    study, design, records = planted(
        "        return [self.fits(cpus) for cpus in asked]",
        f"        {lie}        return [self.fits(cpus) for cpus in asked]",
    )
    # Both candidates inherit it: all 400-node units of both fell short once.
    assert "TRUNCATED BATCHES, compared with nothing: " in warnings(study, design, records)
    large = [record for record in records if record["levels"]["nodes"] == 400]
    for record in large:
        assert record["planned"] == [25] * 4
        assert all(each["asked"] == [25, 5, 25, 25] for each in record["candidates"].values())
        for name in ("scan", "sorted"):
            record["candidates"][name]["figures"]["compared"] = [1.0, 1e9, 2.0, 3.0]
    pairs = Measured(design, records).pairs("size", "compared", "sorted", "scan", {"nodes": 400})
    assert set(pairs["nodes=400"].values()) == {(2.0, 2.0)}


def test_a_share_of_nothing_is_no_value(planted: Any) -> None:
    """Two of four batches have something; one small cell has nothing anywhere."""
    _, design, records = planted()
    for record in records:
        some = [0.0, 0.5, 0.1, 0.0] if record["levels"]["nodes"] == 400 else [0.0] * 4
        for name, share in (("scan", 1.0), ("sorted", 0.25)):
            figures = record["candidates"][name]["figures"]
            figures["some"], figures["share"] = some, [share if each else 0.0 for each in some]
    claim = {"name": "P", "claim": "c", "block": "size", "figure": "share", "of": "sorted", "is": "below", "than": 0.3}
    both = Design({**design.raw, "predictions": [claim, {**claim, "of": "scan", "over": "sorted"}]}, "quick")
    counted = Measured(both, records, None, {"share": "some"})
    assert counted.by_cluster("size", "share", "scan") == [1.0] * 4
    assert counted.by_cluster("size", "share", "scan", {"nodes": 50}) == []
    assert [each.evidence for each in counted.judge()] == [
        "share of sorted: 0.25 [0.25, 0.25], 4 clusters; so in 1 of 1 cells",
        "share of scan over that of sorted: 4 [4, 4], ratio of means 4, 4 clusters; so in 0 of 1 cells",
    ]
    means = {(row[1], row[3]): (row[5], row[6]) for row in counted.rows() if row[4] == "share"}
    assert means["nodes=400", "sorted"] == ("0.25", 2) and means["nodes=50", "sorted"] == ("", 0)
    assert Measured(both, records).by_cluster("size", "share", "scan") == [0.25] * 4


def test_one_that_never_finishes_a_batch_is_not_judged(planted: Any) -> None:
    study, design, records = planted(
        "class Sorted(Scan):",
        "class Sorted(Scan):\n    def answer(self, asked):\n        return super().answer(asked[:1])\n",
    )
    assert "TRUNCATED BATCHES, compared with nothing: sorted (8 units)" in warnings(study, design, records)
    finding = Measured(design, records).judge()[0]
    assert (finding.outcome, finding.evidence) == ("not tested", "0 clusters have all of its cells in whole batches")


SURVIVORS = {
    "answers nothing of the large cell": ("return []", "cut short"),
    "raises in it": ("raise MemoryError('large')", "absent"),
    "answers one batch of it": ("self.n = getattr(self, 'n', 0) + 1; asked = asked[: 1 + 24 // self.n]", "cut short"),
    "does so in one cluster": ("asked = asked[:1] if sum(self.free) == 12231 else asked", "cut short"),
}


@pytest.mark.parametrize("how", SURVIVORS)
def test_a_prediction_is_not_judged_by_the_cells_that_a_candidate_survived(how: str, planted: Any) -> None:
    """The design says how many cells there are; each would be held by those that are left."""
    lie, said = SURVIVORS[how][0], f"sorted was {SURVIVORS[how][1]} in nodes=400, of 2 cells"
    source = "class Sorted(Scan):\n    def answer(self, asked):\n        if len(self.free) > 100:\n"
    source += f"            {lie}\n        return super().answer(asked)\n"
    _, design, records = planted("class Sorted(Scan):", source)
    claim = {**design.raw["predictions"][0], "figure": "compared"}
    for of, over in (("sorted", "scan"), ("scan", "sorted")):
        tests = [{"title": "t", "block": "size", "figure": "compared", "over": over}]
        lied = Design({**design.raw, "predictions": [{**claim, "of": of, "over": over}], "tests": tests}, "quick")
        measured = Measured(lied, records)
        (finding,) = measured.judge()
        assert (finding.outcome, finding.evidence) == ("not tested", said)
        ((name, clusters, *_, why),) = measured.tables()[1].rows
        assert (name, clusters, why) == (of, "not tested", said)
    alone = {**claim, "where": {"nodes": 50}}
    small = Measured(Design({**design.raw, "predictions": [alone]}, "quick"), records)
    assert small.judge()[0].outcome == "held"


def test_a_prediction_with_failed_units_is_not_tested_and_means_tell_their_cells(planted: Any) -> None:
    _, design, records = planted()
    dead = next(record for record in records if record["levels"]["nodes"] == 400)
    killed = [{**record, "failed": "gone"} if record is dead else record for record in records]
    (finding,) = Measured(design, killed).judge()
    assert (finding.outcome, finding.evidence) == ("not tested", "units failed in nodes=400, of 2 cells")
    some = [record for record in records if record["levels"]["nodes"] == 50]
    plain = Design({**design.raw, "tables": [{"block": "size", "by": [], "figures": ["compared"]}]}, "quick")
    (finding,) = Measured(plain, some).judge()
    assert (finding.outcome, finding.evidence) == ("not tested", "no unit has finished in nodes=400, of 2 cells")
    assert all(row[-1].endswith(" (in 1 of 2 cells)") for row in Measured(plain, some).tables()[0].rows)


@pytest.mark.parametrize(
    "order", ["['scan', 'sorted']", "sorted(names, key=len)", "super().turns(names, unit, batch // 2)"]
)
def test_an_order_that_is_not_the_drawn_one_says_nothing_about_times(order: str, planted: Any) -> None:
    """Of few units, too, and whatever its average."""
    lie = f"class FirstFit(Contest):\n    def turns(self, names, unit, batch):\n        return {order}\n"
    study, design, records = planted("class FirstFit(Contest):", lie)
    said = warnings(study, design, records)
    assert "BIASED ORDER, times of these blocks are no evidence: block size: 8 of 8 units in another order" in said
    assert Measured(design, records).judge()[0].outcome == "not tested"


def test_the_order_of_those_that_are_left_is_the_drawn_one(planted: Any) -> None:
    lie = "class Sorted(Scan):\n    def change(self, changes):\n        raise RuntimeError('gone')\n"
    _, design, records = planted("class Sorted(Scan):", lie)
    assert {len(turn) for record in records for turn in record["order"]} == {1, 2}
    assert Measured(design, records).biased == {}


def test_one_that_fails_is_absent_and_the_others_go_on(planted: Any) -> None:
    study, design, records = planted("self.compared += len(self.free).bit_length()", "raise RuntimeError('gone')")
    assert "Absent here: sorted (failed) (in 8 units)" in warnings(study, design, records)
    assert all(set(record["candidates"]) == {"scan"} for record in records)


def test_no_candidate_can_change_what_the_others_are_asked(planted: Any) -> None:
    lie = "        answers = [bisect_left(self.free, cpus) < len(self.free) for cpus in asked]\n"
    lie += "        asked[:] = [0] * len(asked)\n        return answers\n"
    study, design, records = planted("class Sorted(Scan):", f"class Sorted(Scan):\n    def answer(self, asked):\n{lie}")
    assert warnings(study, design, records) == ""


def test_no_candidate_can_change_what_the_others_get(planted: Any, folder: Path) -> None:
    """One that sorted the world's list in place, and was built first, made the others scan a sorted list."""
    document = folder / "first-fit.toml"
    document.write_text(document.read_text().replace('["scan", "sorted"]', '["sorted", "scan"]'))
    assert '"sorted", "scan"' in document.read_text()

    def compared(before: str, after: str) -> list[Any]:
        return [record["candidates"]["scan"]["figures"]["compared"] for record in planted(before, after)[2]]
    assert compared("", "") == compared("super().__init__(sorted(free))", "free.sort(); super().__init__(free)")


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ("{'compared': -5}", "its figures are no amounts: compared = -5"),
        ("{'compared': float('nan')}", "its figures are no amounts: compared = nan"),
        ("{'compared': 10 ** 400}", "its figures are no amounts: compared = 1"),
        ("{'compared': 'many'}", "its figures are no amounts: compared = 'many'"),
        ("{'compared': 1, 'answer_us': 0.001}", "its figures name answer_us, which the runner measures"),
        ("{'compared': 1, **vars(self).setdefault('more', {})}; self.more['more'] = 1", "from batch to batch: more"),
    ],
)
def test_a_candidate_whose_figures_cannot_be_is_absent(figures: str, said: str, planted: Any) -> None:
    source = f"class Sorted(Scan):\n    def figures(self):\n        found = {figures}\n        return found\n"
    study, design, records = planted("class Sorted(Scan):", source)
    assert "Absent here: sorted (failed) (in " in warnings(study, design, records) and said in warnings(
        study, design, records
    )
    assert all("scan" in record["candidates"] for record in records)


LATE = {
    "a sequence that computes": """
    class Late(list):
        def __iter__(self):
            return iter([work(cpus) for cpus in list.__iter__(self)])
    answers = Late(asked)
""",
    "another thread": """
    import threading
    answers = []
    thread = threading.Thread(target=lambda: answers.extend([work(cpus) for cpus in asked]))
    thread.start()
    thread.join()
""",
    "none": "    answers = [work(cpus) for cpus in asked]\n",
}


@pytest.mark.parametrize("how", LATE)
@pytest.mark.usefixtures("clocks")
def test_work_is_paid_for_wherever_it_is_done(how: str, planted: Any) -> None:
    """The clocks are counters, so that the figure is what was worked, and no noise."""
    body = LATE[how].replace("\n", "\n    ").strip()
    source = "class Sorted(Scan):\n    def answer(self, asked):\n"
    source += "        def work(cpus):\n            CLOCK.spend()\n            return self.fits(cpus)\n\n"
    source += f"        {body}\n        return answers\n"
    study, design, records = planted("class Sorted(Scan):", f"from test_study_contest import CLOCK\n\n\n{source}")
    for record in records:
        assert record["candidates"]["sorted"]["figures"]["answer_us"] == [1000.0] * 4
        assert record["candidates"]["scan"]["figures"]["answer_us"] == [0.0] * 4
        assert record["candidates"]["sorted"]["wrong"] == 0
    told = "Worked in other threads or processes too, whose CPU time is counted as theirs: sorted (in 8 units)."
    assert (told in warnings(study, design, records)) is (how == "another thread")


@pytest.mark.parametrize("timed", [(0, 25.7, 0), (0, 528, 478), (5000, 528, 28), (5000, 400, 0), (0, 1000, 950)])
@pytest.mark.usefixtures("clocks")
def test_upkeep_that_is_put_off_until_figures_are_read_is_upkeep(timed: tuple[float, ...], planted: Any) -> None:
    """`timed`: a change, each reading, charged for it. Work that is repeated at each reading is charged, too."""
    change, reading, charged = timed
    late = "from test_study_contest import CLOCK\n\n\nclass Sorted(Scan):\n    def change(self, changes):\n"
    late += f"        CLOCK.spend({1000 * change})\n\n    def figures(self):\n"
    late += f"        CLOCK.spend(int(1000 * {reading}))\n        return super().figures()\n"
    for record in planted("class Sorted(Scan):", late)[2]:
        of = {name: each["figures"]["change_us"][0] for name, each in record["candidates"].items()}
        assert of == {"sorted": change + charged, "scan": 0}


def test_a_factor_is_named_as_the_experiment_likes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    design, code = folder / "first-fit.toml", folder / "first_fit.py"
    text = design.read_text().replace("nodes = 100\n", 'n = "few"\nkeys = "x"\n').replace('x = "nodes"', 'x = "n"')
    text = text.replace("{nodes = [50, 400]}", '{n = ["few", "many"]}').replace("{nodes = [100, 1000, 10000]}", "{}")
    design.write_text(text)
    code.write_text(code.read_text().replace('levels["nodes"]', '{"few": 50, "many": 400}[levels["n"]]'))
    find.cache_clear()
    run = ["lab", "study", "first-fit.toml", "--quick", "--unregistered", "--jobs", "1", "--out", "t"]
    assert main(run) == 0
    assert "**held**" in capsys.readouterr().out
    find.cache_clear()


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("Late", "Late()"),
        ("Late(int)", "Late()"),
        ("Late", "(0, Late())"),
        ("Late", "__import__('numpy').array([Late()])"),
        ("Late", "[__import__('numpy').array([[Late()], [Late()]])]"),
    ],
)
def test_an_answer_that_computes_when_it_is_compared_is_none(kind: str, answer: str, planted: Any) -> None:
    lie = f"class {kind}:\n    __module__ = 'numpy'\n\n    def __ne__(self, other):\n        return False\n\n\n"
    lie += f"class Sorted(Scan):\n    def answer(self, asked):\n        return [{answer} for _ in asked]\n"
    study, design, records = planted("class Sorted(Scan):", lie)
    assert "sorted (failed) (in 8 units): StudyError: its answers are no values but Late" in warnings(
        study, design, records
    )


@pytest.mark.parametrize("raised", ["RuntimeError('no')", "SystemExit(3)"])
def test_one_that_cannot_be_made_is_absent_and_the_others_go_on(raised: str, planted: Any) -> None:
    study, design, records = planted("super().__init__(sorted(free))", f"raise {raised}")
    told = raised.replace("('", ": ").replace("(", ": ").rstrip("')")
    assert f"Absent here: sorted (failed) (in 8 units): {told}" in warnings(study, design, records)
    assert all(set(record["candidates"]) == {"scan"} for record in records)


@pytest.mark.parametrize(
    "changed", ["f15_helpers/__init__.py", "data.json", "f15_helpers/more.csv", "f15_days/one.csv", "late.py"]
)
def test_what_the_code_is_made_of_is_registered_with_it(
    changed: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    code = folder / "first_fit.py"
    code.write_text(code.read_text().replace("import random\n", "import random\nimport f15_helpers\n", 1))
    (folder / "f15_helpers").mkdir()
    other = (folder / "first-fit.toml").read_text().replace('"first-fit"', '"another"')
    texts = {"f15_helpers/__init__.py": "N = 1\n", "data.json": "{}", "f15_helpers/more.csv": "1\n"}
    (folder / "f15_days").mkdir()
    texts |= {"f15_days/one.csv": "2\n", "late.py": "M = 1\n"}
    texts["another.toml"] = other
    for name, text in texts.items():
        (folder / name).write_text(text)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "registers"]):
        subprocess.run(["git", *words], check=True, env={**os.environ, **IDENTITY})
    find.cache_clear()
    monkeypatch.delitem(sys.modules, "f15_helpers", raising=False)
    study = find("first-fit.toml")
    begun = registration.code_digest(study)
    # Another study's design is none of its data.
    (folder / "another.toml").write_text(other + "\n")
    assert registration.load(study, "quick")[1].commit and registration.code_digest(study) == begun
    (folder / changed).write_text(texts[changed] + "\n")
    with pytest.raises(StudyError, match=f"{changed}: changed since the commit"):
        registration.load(study, "quick")
    # Nor does its run go on if that is committed.
    assert registration.code_digest(study) != begun
    find.cache_clear()


def test_a_file_named_as_a_module_that_is_loaded_is_its_own_code(folder: Path) -> None:
    design = folder / "first-fit.toml"
    design.write_text(design.read_text().replace("first_fit.py", "queue.py"))
    (folder / "first_fit.py").rename(folder / "queue.py")
    find.cache_clear()
    assert registration.code_of(find(str(folder / "first-fit.toml"))) == [folder / "queue.py"]
    find.cache_clear()


def test_a_process_that_dies_fails_its_unit_alone(folder: Path) -> None:
    code = folder / "first_fit.py"
    source = "class Sorted(Scan):\n    def answer(self, asked):\n        import os\n"
    source += "        if len(self.free) > 100:\n            os.kill(os.getpid(), 9)\n"
    source += "        return super().answer(asked)\n"
    code.write_text(code.read_text().replace("class Sorted(Scan):", source, 1))
    target = str(folder / "first-fit.toml")
    find.cache_clear()
    design = find(target).load("quick")
    with runner.in_processes(2) as results:
        records = list(results([runner.Task(target, design, unit) for unit in list(design.units())[:4]]))
    find.cache_clear()
    assert len({record["key"] for record in records}) == 4
    for record in records:
        dead = record["levels"]["nodes"] == 400
        assert ("its process ended with exit code -9" in record.get("failed", "")) is dead


def test_a_limit_of_time_ends_a_unit_that_hangs_and_names_it(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = folder / "first_fit.py"
    hangs = "class Sorted(Scan):\n    def answer(self, asked):\n        while True:\n            pass\n"
    code.write_text(code.read_text().replace("class Sorted(Scan):\n", hangs, 1))
    monkeypatch.chdir(folder)
    find.cache_clear()
    run = ["lab", "study", "first-fit.toml", "--quick", "--unregistered", "--jobs", "1", "--out", "o", "--time", "1s"]
    assert main(run) == 1
    told = capsys.readouterr().out
    assert "the time is over; under way, and not finished: size/nodes=" in told and "no unit has finished" in told
    find.cache_clear()


def test_units_that_nobody_registered_or_that_were_chosen_are_noticed(planted: Any) -> None:
    study, design, records = planted()
    other = {**records[0], "key": "size/nodes=51/seed=0"}
    assert "NOT OF THE DESIGN: 1 units that it does not have, size/nodes=51/seed=0" in warnings(
        study, design, [*records, other]
    )
    many = Design({**design.raw, "seeds": {"quick": 60}}, "quick")
    chosen: list[Record] = [{"key": unit.key, "block": "size", "seed": unit.seed} for unit in many.units() if unit.seed]
    assert "118 units finished out of turn" in warnings(study, many, chosen)


def test_the_report_of_a_contest_is_written(planted: Any, tmp_path: Path) -> None:
    study, design, records = planted()
    environment = Environment("0", "", "3", "here", 1, "none", 0.0, "alone")
    made = study_report.write(study, design, REGISTERED, environment, records, tmp_path, {})
    text = (tmp_path / "first-fit-report.md").read_text()
    assert "Student's t over clusters" in text and "first-fit-compared.png" in text
    assert all(path.stat().st_size for path in made.files)


def test_the_report_of_some_blocks_has_the_pictures_of_these(planted: Any, tmp_path: Path) -> None:
    """As `--blocks size` leaves it."""
    study, design, records = planted()
    later = {**design.raw["pictures"][0], "name": "later", "block": "later"}
    blocks = {**design.raw["blocks"], "later": design.raw["blocks"]["size"]}
    both = Design({**design.raw, "blocks": blocks, "pictures": [*design.raw["pictures"], later]}, "quick")
    environment = Environment("0", "", "3", "here", 1, "none", 0.0, "alone")
    study_report.write(study, both, REGISTERED, environment, records, tmp_path, {})
    assert [path.name for path in tmp_path.glob("*.png")] == ["first-fit-compared.png"]
    text = (tmp_path / "first-fit-report.md").read_text()
    assert "later 0 of 8" in text and "first-fit-later.png" not in text


@pytest.mark.parametrize(
    ("ours", "theirs", "outcome", "said"),
    [
        ([1, 2, 1, 1], [4, 5, 4, 4], "held", "sorted over that of scan: 0.281 [0.193, 0.409], ratio of means 0.294, 4"),
        ([0, 1, 1, 0], [4, 4, 5, 4], "held", "(a ratio by 0 has no value): -1.62"),
        ([3, 4, 3, 3], [0, 4, 0, 5], "falsified", "value): 2.12 [0.245, 4], ratio of means 1.44, 4 clusters"),
        ([0, 2, 0, 2], [0, 4, 0, 4], "falsified", "value): 0 [0, 0], ratio of means 0.5, 4 clusters"),
        ([0, 4, 0, 0], [0, 0, 0, 5], "undecided", "sorted minus 0.5 times that of scan"),
        ([1, 2, 1, 2], [0, 0, 0, 0], "falsified", "value): 1.5 [0.581, 2.42], 4 clusters"),
    ],
)
def test_figures_of_0_are_compared_by_their_differences(
    ours: list[int], theirs: list[int], outcome: str, said: str, planted: Any
) -> None:
    _, design, records = planted()
    for record in records:
        for name, values in (("sorted", ours), ("scan", theirs)):
            record["candidates"][name]["figures"]["answer_us"] = [values[record["seed"]]] * 4
    found = Measured(design, records).judge()[0]
    assert found.outcome == outcome and said in found.evidence


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(('code = "first_fit.py:FirstFit"', ""), "names no code", id="no code"),
        pytest.param(("first_fit.py:FirstFit", "first_fit.py:World"), "is no study", id="code that is no study"),
        pytest.param(("version = 1", "version = 9"), "version 1; correct it there", id="another version"),
        pytest.param(("[defaults]", "["), "cannot be read as TOML", id="no TOML"),
        pytest.param(("[blocks.size]", "[else.size]"), "has no table `blocks`", id="no blocks"),
        pytest.param(("quick = 4, ", ""), "has no mode 'quick': `seeds` names full", id="no such mode"),
    ],
)
def test_a_design_that_cannot_run_says_why(folder: Path, change: tuple[str, str], said: str) -> None:
    path = folder / "first-fit.toml"
    path.write_text(path.read_text().replace(*change))
    find.cache_clear()
    with pytest.raises(StudyError) as raised:
        find(str(path)).load("quick")
    assert said in str(raised.value)


def test_a_prediction_that_lacks_something_says_what(folder: Path) -> None:
    design = find(str(folder / "first-fit.toml")).load("quick")
    with pytest.raises(StudyError, match=r"a prediction lacks or has a wrong 'block'.*correct the design"):
        Measured(Design({**design.raw, "predictions": [{"name": "P1", "claim": "x"}]}, "quick"), []).judge()
