"""Structures by name: the family, and one that another distribution installs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikube_py.errors import InvalidRequest
from minikube_py.index import catalogue
from minikube_py.index.structure import HIGH, Box, Structure

MINE = """
from minikube_py.index.structures.scan import Scan

class MyIndex(Scan):
    structure = "mine"

    def __init__(self, dimensions, depth=3, how="well"):
        super().__init__(dimensions)
        self.depth, self.how = depth, how

class Lacking(MyIndex):
    def __init__(self, dimensions, depth):
        super().__init__(dimensions, depth)
"""


PLACES = (("mine", "MyIndex"), ("columns", "MyIndex"), ("lacking", "Lacking"))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with structures, of which one has a name of the family."""
    (tmp_path / "a_mine_of_tests.py").write_text(MINE)
    information = tmp_path / "a_mine_of_tests-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: a_mine_of_tests\nVersion: 1\n")
    places = "".join(f"{name} = a_mine_of_tests:{place}\n" for name, place in PLACES)
    (information / "entry_points.txt").write_text(f"[{catalogue.GROUP}]\n{places}")
    monkeypatch.syspath_prepend(str(tmp_path))
    catalogue._installed.cache_clear()
    yield
    catalogue._installed.cache_clear()
    sys.modules.pop("a_mine_of_tests", None)


def test_all_of_the_family_are_structures() -> None:
    for name in catalogue.built_in():
        structure = catalogue.build(name, 2, {})
        assert isinstance(structure, Structure)
        assert catalogue.build(name, 2, catalogue.options_of(name)).structure == name


@pytest.mark.usefixtures("installed")
def test_an_installed_structure_is_one_of_them() -> None:
    assert list(catalogue.STRUCTURES) == [*catalogue.built_in(), "mine", "lacking"]
    assert len(catalogue.STRUCTURES) == len(catalogue.built_in()) + 2
    assert catalogue.options_of("mine") == {"depth": 3, "how": "well"}
    mine = catalogue.build("mine", 1, {"depth": 5})
    mine.put(4, (7,))
    assert mine.find(Box((7,), (HIGH,))).slots.tolist() == [4]
    assert mine.depth == 5  # type: ignore[attr-defined]
    with pytest.raises(InvalidRequest, match=r"it has depth \(default 3\), how \(default 'well'\)"):
        catalogue.build("mine", 1, {"width": 5})
    with pytest.raises(InvalidRequest, match="how is 5; it takes a text"):
        catalogue.build("mine", 1, {"how": 5})


@pytest.mark.usefixtures("installed")
def test_an_option_without_a_default_is_named() -> None:
    with pytest.raises(InvalidRequest, match="structure lacking: depth needs a default"):
        catalogue.build("lacking", 1, {})


@pytest.mark.usefixtures("installed")
def test_a_name_of_the_family_stays_its_own() -> None:
    assert catalogue.STRUCTURES["columns"].__module__ == "minikube_py.index.structures.columns"
