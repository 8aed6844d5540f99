"""A design is checked before it runs: what means nothing in it is refused, by file and key, with what is allowed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from minikube_py.cli.main import main
from minikube_py.lab.study.checking import ENTRIES
from minikube_py.lab.study.design import StudyError
from minikube_py.lab.study.experiment import BUILT_IN, find

Patch, Captured = pytest.MonkeyPatch, pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[3]
DESIGNS = [
    *BUILT_IN,
    *(str(path) for path in sorted((ROOT / "docs/studies").glob("*.toml")) if path.stem not in BUILT_IN),
]
PAGE = ROOT / "docs/how-to/add-an-experiment.md"


@pytest.fixture
def design(tmp_path: Path) -> Path:
    """The how-to's, beside its code."""
    for kind, text in re.findall(r"```(toml|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        name, _, body = text.partition("\n")
        (tmp_path / name.removeprefix("# ")).write_text(body)
        assert kind
    return tmp_path / "first-fit.toml"


@pytest.mark.parametrize("target", DESIGNS, ids=[Path(each).stem for each in DESIGNS])
def test_every_committed_design_passes(target: str) -> None:
    study = find(target)
    text = study.design.read_text(encoding="utf-8")
    raw = tomllib.loads(text) if study.design.suffix == ".toml" else json.loads(text)
    for mode in raw["seeds"]:
        assert study.load(mode).raw == raw


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("confidence = 0.95", "confidense = 0.95", "the design has an unknown key 'confidense', did you mean 'conf"),
        ("confidence = 0.95", "confidence = 95", "confidence is 95; write a number between 0 and 1"),
        ("confidence = 0.95", "confidence = true", "confidence is True; write a number between 0 and 1"),
        ("quick = 4", "quik = 4, quick = 4", "seeds has an unknown key 'quik', did you mean 'quick'?; allowed: quick"),
        ("quick = 4", "quick = 0", "seeds.quick is 0; write how many clusters"),
        ("nodes = 100\n", "nodes = true\n", "defaults.nodes has the level True"),
        ("quick = {nodes =", "quikc = {nodes =", "blocks.size has an unknown key 'quikc', did you mean 'quick'?"),
        ("quick = {nodes =", "quick = {nodez =", "blocks.size.quick.nodez names 'nodez', which is no factor of `def"),
        ("[50, 400]", "[50, 50]", "blocks.size.quick.nodes names 50 twice"),
        ("[50, 400]", "50", "blocks.size.quick.nodes is 50; write a list of levels"),
        ("[50, 400]", "[[50], 400]", "blocks.size.quick.nodes has the level [50]"),
        ('["scan", "sorted"]', '["scan", "sorted", "scan"]', "blocks.size.candidates names 'scan' twice"),
        ('["scan", "sorted"]', '"scan"', "blocks.size.candidates names 'scan'; write a list of names"),
        ('["scan", "sorted"]', "5", "blocks.size.candidates names 5; write a list of names"),
        ('["scan", "sorted"]', '[["scan"]]', "blocks.size.candidates names [['scan']]; write a list of names"),
        ("[[pictures]]", '[[tables]]\nblock = "size"\nby = 5\n[[pictures]]', "tables 1: by is 5, no list of names"),
        ("[[pictures]]", '[[tables]]\nblock = "size"\nfigures = 5\n[[pictures]]', "tables 1: figures is 5, no list"),
        ('["scan", "sorted"]', '["scan"]', "predictions P1 names 'sorted', which is no candidate of block size"),
        ('of = "sorted"', 'of = "sortet"', "no candidate of block size, did you mean 'sorted'?; allowed: scan, sorted"),
        ('over = "scan"', 'ovr = "scan"', "predictions P1 has an unknown key 'ovr', did you mean 'over'?; allowed: na"),
        ('claim = "A', 'where = {nodez = [400]}\nclaim = "A', "predictions P1: where names 'nodez', which is no fac"),
        ('claim = "A', 'where = {nodes = [401]}\nclaim = "A', "no unit of block size has nodes = 401; its levels: 50,"),
        ('claim = "A', 'where = {nodes = ["400"]}\nclaim = "A', "no unit of block size has nodes = '400'"),
        ('claim = "A', 'wher = {nodes = [400]}\nclaim = "A', "predictions P1 has an unknown key 'wher'"),
        ('is = "below"', 'is = "less"', "predictions P1: is names 'less', which is no comparison; allowed: above, bel"),
        ("than = 0.5", 'than = "x"', "predictions P1: than is 'x'; write a number"),
        ("than = 0.5\n", "", "predictions P1 lacks than"),
        ('block = "size"\nfigure', 'block = "sise"\nfigure', "no block, did you mean 'size'?; allowed: size"),
        ('figure = "compared"', "figure = 5", "predictions P1: figure is 5, no name"),
        ("[[pictures]]", '[[predictions]]\nname = "P1"\n[[pictures]]', "predictions P1 lacks claim, block"),
        ('x = "nodes"', 'x = "size"', "pictures compared names 'size', which is no factor"),
        ("log = true", "lug = true", "pictures compared has an unknown key 'lug', did you mean 'log'?"),
        ("[[pictures]]", '[[tables]]\nblock = "size"\nby = ["noeds"]\n[[pictures]]', "tables 1 names 'noeds', which"),
        ("[[pictures]]", '[[tests]]\nblock = "size"\n[[pictures]]', "tests 1 lacks title, figure, over"),
        ("[[pictures]]", "[pictures]", "pictures is no list of tables"),
        ("[50, 400]", "[50, 99999999999999999999]", "blocks.size.quick.nodes has the level 99999999999999999999"),
        ("[50, 400]", f"[50, 1{'0' * 400}]", "a level is a text or a number of 64 bits"),
        ("quick = 4", "quick = 1000000000", "seeds.quick is 1000000000; write how many clusters, a whole number of at"),
        ('name = "compared"', 'name = "../compared"', "name is part of a file's name"),
        ("[[pictures]]", "[[same]]\nfactor = 5\n[[pictures]]", "same 1 lacks level, other, fixed"),
        ('study = "first-fit"', 'same = 3\nstudy = "first-fit"', "same is no list of tables"),
        ('study = "first-fit"', 'same = ["x"]\nstudy = "first-fit"', "same 1 is 'x', no table"),
        ('study = "first-fit"', 'study = "../../up"', "study is '../../up'; a name has up to 100 characters"),
        ('study = "first-fit"', 'text = 5\nstudy = "first-fit"', "text is 5; name the file of the registration"),
        ('study = "first-fit"', 'text = []\nstudy = "first-fit"', "text is []; name the file of the registration"),
        ("[blocks.size]", "[blocks]\nlarge = 5\n[blocks.size]", "block large is 5, no table"),
    ],
)
def test_what_means_nothing_is_refused_before_the_first_unit(
    before: str, after: str, said: str, design: Path, monkeypatch: Patch, capsys: Captured
) -> None:
    text = design.read_text()
    assert before in text
    design.write_text(text.replace(before, after, 1))
    monkeypatch.chdir(design.parent)
    find.cache_clear()
    assert main(["lab", "study", "first-fit.toml", "--quick", "--unregistered", "--jobs", "1", "--out", "o"]) == 1
    told = capsys.readouterr().err
    assert "first-fit.toml: " in told and said in " ".join(told.split())
    assert not (design.parent / "o").exists()
    find.cache_clear()


def test_factors_named_as_those_of_another_study_are_its_own(design: Path) -> None:
    text = design.read_text().replace("nodes = 100\n", "nodes = 100\nupdates = 1\n")
    design.write_text(text.replace("[50, 400]", "[50, 400], updates = [1, 1000]"))
    find.cache_clear()
    updates = [dict(unit.levels)["updates"] for unit in find(str(design)).load("quick").units()]
    assert sorted(updates) == [1] * 8 + [1000] * 8
    find.cache_clear()


def test_benchmarks_that_a_study_does_not_show_are_refused(design: Path, capsys: Captured) -> None:
    find.cache_clear()
    assert main(["lab", "study", str(design), "--quick", "--unregistered", "--bench", str(PAGE)]) == 1
    assert "the study first-fit shows nothing of benchmarks; leave --bench out" in capsys.readouterr().err
    find.cache_clear()


def test_two_predictions_of_one_name_are_refused(design: Path) -> None:
    text = design.read_text()
    entry = text[text.index("[[predictions]]") : text.index("[[pictures]]")]
    design.write_text(text + "\n" + entry)
    find.cache_clear()
    with pytest.raises(StudyError, match="predictions names 'P1' twice"):
        find(str(design)).load("quick")
    find.cache_clear()


SECOND = '\n[blocks.late]\ncandidates = ["sorted"]\nquick = {nodes = [10, 20, 30]}\n'


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('figure = "compared"', 'figure = "comparred"', "predictions P1 names the figure 'comparred', which sorted"),
        ('y = "compared"', 'y = "comparred"', "pictures compared names the figure 'comparred', which no candidate has"),
        (
            "[[pictures]]",
            f'{SECOND}[[tables]]\nblock = "late"\nfigures = ["answer_ms"]\n[[pictures]]',
            "tables 1 names the figure 'answer_ms', which no candidate has, did you mean 'answer_us'?; allowed: answer",
        ),
    ],
)
def test_a_figure_that_nothing_has_ends_the_run_at_the_first_unit_of_its_block(
    before: str, after: str, said: str, design: Path, monkeypatch: Patch, capsys: Captured
) -> None:
    design.write_text(design.read_text().replace(before, after, 1))
    monkeypatch.chdir(design.parent)
    run = ["lab", "study", "first-fit.toml", "--quick", "--unregistered", "--out", "o"]
    find.cache_clear()
    assert main([*run, "--jobs", "1"]) == 1
    assert said in " ".join(capsys.readouterr().err.split())
    # One unit of each block at most.
    assert len((design.parent / "o/cells.jsonl").read_text().splitlines()) <= 2
    find.cache_clear()


def test_a_mode_without_the_cells_of_a_prediction_says_so(
    design: Path, monkeypatch: Patch, capsys: Captured
) -> None:
    design.write_text(design.read_text().replace('is = "below"', 'is = "below"\nwhere = {nodes = 10000}'))
    monkeypatch.chdir(design.parent)
    find.cache_clear()
    assert main(["lab", "study", "first-fit.toml", "--quick", "--unregistered", "--jobs", "1", "--out", "o"]) == 0
    assert "**not tested** | mode quick has none of its cells" in capsys.readouterr().out
    find.cache_clear()


def test_the_how_to_names_every_list_of_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{kind}`" in page or f"[[{kind}]]" in page for kind in ENTRIES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("batches = 8\n", ""), "needs what the design does not have: setting batches"),
        (('placement = "random"\n', ""), "needs what the design does not have: factor in `defaults` placement"),
        (('["default", "cpu050"', '["defalt", "cpu050"'), "list = 'defalt' means nothing to the experiment, did you"),
        (('policy = "spread"', 'policy = "spred"'), "policy = 'spred' means nothing"),
        (("capacity = 4096\n", ""), "needs what the design does not have: setting capacity"),
    ],
)
def test_what_an_experiment_needs_is_refused_before_its_first_unit(
    change: tuple[str, str], said: str, tmp_path: Path
) -> None:
    text = (Path(__file__).parents[3] / "docs/studies/by-request.toml").read_text()
    assert change[0] in text
    (tmp_path / "by.toml").write_text(text.replace(*change, 1))
    find.cache_clear()
    with pytest.raises(StudyError) as raised:
        find(str(tmp_path / "by.toml")).load("quick")
    assert said in str(raised.value)
    find.cache_clear()
