"""The registered design: what it is read from, which units it makes, and that only a committed one runs."""

import inspect
import subprocess
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from minikube_py.lab.study import experiment, registration
from minikube_py.lab.study.design import Design, StudyError, parse
from minikube_py.lab.study.experiment import find
from minikube_py.studies.bloom import settings
from minikube_py.studies.bloom.study import MEASURES, Bloom

ROOT = Path(__file__).resolve().parents[3]
CODE = "study.py"
DESIGN, TEXT = "docs/studies/bloom.json", "docs/studies/bloom.md"
DOCUMENT = (ROOT / DESIGN).read_bytes()


@pytest.fixture(params=["quick", "full"])
def design(request: pytest.FixtureRequest) -> Design:
    return Bloom().load(request.param)


def test_the_copy_that_is_installed_is_the_registered_one() -> None:
    assert (ROOT / "minikube_py/studies/bloom/design.json").read_bytes() == DOCUMENT


def test_units_are_each_there_once_and_in_order_of_seed(design: Design) -> None:
    units = list(design.units())
    assert len({unit.key for unit in units}) == len(units)
    assert [unit.seed for unit in units] == sorted(unit.seed for unit in units)
    assert {unit.seed for unit in units} == set(range(design.seeds))
    assert list(design.units()) == units


def test_each_seed_runs_the_same_cells(design: Design) -> None:
    by_seed: dict[int, set[object]] = {}
    for unit in design.units():
        by_seed.setdefault(unit.seed, set()).add((unit.block, unit.levels))
    assert len(set(map(frozenset, by_seed.values()))) == 1


def test_every_block_is_measured_by_something(design: Design) -> None:
    assert set(design.blocks) == set(MEASURES)
    assert all(design.cells(block) for block in design.blocks)


def test_the_grid_crosses_what_was_registered() -> None:
    full = Bloom().load("full")
    assert len(full.cells("grid")) == 3 * 4 * 3 * 3
    assert settings.costs_behind_us(full) == [0, 50, 1000, 10000]
    assert settings.updates_per_query(full) == [0.01, 1, 10]


def test_one_resource_knows_no_correlation() -> None:
    cells = Bloom().load("full").cells("dimensions")
    assert {cell["correlation"] for cell in cells if cell["d"] == 1} == {0}
    assert {cell["correlation"] for cell in cells if cell["d"] == 2} == {0.8, 0, -0.8}


@pytest.mark.parametrize(
    "document", [b"{", b"[]", b'{"study": "other", "version": 1}', b'{"study": "bloom", "version": 2}']
)
def test_another_document_is_refused(document: bytes) -> None:
    with pytest.raises(StudyError, match="restore it from git"):
        parse(document, "quick", "here.json", "bloom")


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With design, prose and code of its own."""
    monkeypatch.setattr(registration, "code_of", lambda study: [tmp_path / CODE])
    _git(tmp_path, "init", "-q")
    (tmp_path / CODE).write_text("the code\n")
    (tmp_path / DESIGN).parent.mkdir(parents=True)
    (tmp_path / DESIGN).write_bytes(DOCUMENT)
    (tmp_path / TEXT).write_text("the design\n")
    return tmp_path


def bloom_at(checkout: Path) -> Bloom:
    study = Bloom()
    study.text, study.design = checkout / TEXT, checkout / DESIGN
    return study


def test_a_committed_design_runs_and_is_named_by_its_commit(checkout: Path) -> None:
    _git(checkout, "add", ".")
    _git(checkout, "commit", "-qm", "registered")
    (checkout / "other").write_text("later\n")
    _git(checkout, "add", ".")
    _git(checkout, "commit", "-qm", "something else")
    design, registered = registration.load(bloom_at(checkout), "quick")
    assert design.raw["study"] == "bloom"
    first = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD~1"], capture_output=True, text=True).stdout
    assert registered.commit == first.strip()
    assert registered.commit[:12] in registered.line(TEXT)


def test_a_design_that_is_not_committed_is_refused(checkout: Path) -> None:
    with pytest.raises(StudyError, match="is not committed; commit it before the study runs"):
        registration.load(bloom_at(checkout), "quick")


@pytest.mark.parametrize("name", [TEXT, DESIGN, CODE])
@pytest.mark.parametrize("staged", [False, True])
def test_a_design_that_was_changed_since_is_refused(checkout: Path, name: str, staged: bool) -> None:
    _git(checkout, "add", ".")
    _git(checkout, "commit", "-qm", "registered")
    with (checkout / name).open("a") as file:
        file.write("\n")
    if staged:
        _git(checkout, "add", ".")
    with pytest.raises(StudyError, match="changed since the commit"):
        registration.load(bloom_at(checkout), "quick")


def test_the_code_of_a_study_in_a_package_is_the_package_and_must_be_in_the_checkout_of_the_design(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkout: Path
) -> None:
    monkeypatch.undo()
    package = Path(inspect.getfile(Bloom)).parent
    assert registration.code_of(Bloom()) == sorted(package.rglob("*.py"))
    assert package / "filters" / "grafite.py" in registration.code_of(Bloom())
    alone = registration.code_of(find(str(ROOT / "docs/studies/end-to-end.toml")))
    assert package.parent / "end_to_end.py" in alone and package / "study.py" not in alone
    _git(checkout, "add", ".")
    _git(checkout, "commit", "-qm", "registered")
    with pytest.raises(StudyError, match=r"is outside .*; commit the study's code together with its design"):
        registration.load(bloom_at(checkout), "quick")


def test_a_study_of_this_package_is_registered_with_all_of_it() -> None:
    """The judge of right answers and the lists of pods are in it, too."""
    study = find("emptiness")
    assert registration._data(ROOT, study.name, registration.code_of(study)) == ["minikube_py"]


@pytest.mark.parametrize("target", ["emptiness", str(ROOT / "docs/studies/end-to-end.toml")])
@pytest.mark.parametrize("changed", ["index/judge.py", "lab/traces/pods.csv"])
def test_the_digest_of_code_is_of_what_judges_the_answers_too(
    target: str, changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = find(target)
    for name in ("index/judge.py", "lab/traces/pods.csv"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("right\n")
    monkeypatch.setattr(registration, "PACKAGE", tmp_path)
    monkeypatch.setattr(registration, "_data", lambda *_: [])
    before = registration.code_digest(study)
    (tmp_path / "index/__pycache__").mkdir()
    (tmp_path / "index/__pycache__/judge.pyc").write_text("compiled")
    assert registration.code_digest(study) == before
    (tmp_path / changed).write_text("wrong\n")
    assert registration.code_digest(study) != before


def test_without_git_it_runs_only_unregistered_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"not a git checkout.*--unregistered"):
        registration.load(bloom_at(tmp_path), "quick")
    design, registered = registration.load(bloom_at(tmp_path), "quick", unregistered=True)
    assert design.raw["study"] == "bloom"
    assert registered.commit == ""
    assert "UNREGISTERED" in registered.line(TEXT)


def test_a_study_that_is_installed_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "minikube_py.studies.emptiness.study:Emptiness", "minikube_py.studies")
    monkeypatch.setattr(experiment, "entry_points", lambda group: [point] if group == point.group else [])
    find.cache_clear()
    assert find("theirs").name == "theirs"
    with pytest.raises(StudyError, match="there is no study 'no': there are bloom, emptiness, prediction, theirs"):
        find("no")
    find.cache_clear()
