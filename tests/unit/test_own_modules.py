"""Each file of one's own has the modules of its own folder, whatever another folder calls its own."""

from __future__ import annotations

import importlib
import pickle
import random
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minikube_py import own_code


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    modules, finders = dict(sys.modules), list(sys.meta_path)
    monkeypatch.setattr(own_code, "_imported", {})
    yield
    sys.modules.clear()
    sys.modules.update(modules)
    sys.meta_path[:] = finders


def files(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = folder / (name.replace("__", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def made(folder: Path) -> Any:
    return own_code.find_class(f"{folder}/model2.py:M", required=False)()


HELPERS = {
    "a module": ("prices17", "import prices17 as of\n"),
    "a package without __init__": ("lib17__prices", "from lib17 import prices as of\n"),
    "a module's module": ("deep17", "import more17 as of\n"),
}
CLASS = "class M:\n    cents = of.CENTS\n"


@pytest.mark.parametrize("how", HELPERS)
def test_two_folders_have_modules_of_one_name(how: str, tmp_path: Path) -> None:
    name, imports = HELPERS[how]
    folders = []
    for cents in (100, -100):
        texts = {name: f"CENTS = {cents}\n", "model2": imports + CLASS}
        if how == "a module's module":
            texts["more17"] = "from deep17 import CENTS\n"
        folders.append(files(tmp_path / f"v{cents}", **texts))
    for _ in range(2):
        assert [made(folder).cents for folder in folders] == [100, -100]
        assert [made(folder).cents for folder in reversed(folders)] == [-100, 100]


def test_classes_that_name_each_other_are_renamed_once(tmp_path: Path) -> None:
    """At each further load all were looked for again, for as long as one led back to another."""
    texts = {"tree17": "class Node:\n    pass\nNode.parent = Node\n"}
    for model in ("model2", "model3"):
        texts[model] = "import tree17\nclass M:\n    node = tree17.Node\n"
    folders = [files(tmp_path / name, **texts) for name in ("one", "other")]
    found = [
        own_code.find_class(f"{folder}/{model}.py:M", required=False).node.__module__
        for model in ("model2", "model3")
        for folder in folders
    ]
    assert found == ["tree17", "tree17@1", "tree17@0", "tree17@1"]


def test_the_inner_of_two_folders_lends_nothing_to_the_outer(tmp_path: Path) -> None:
    outer = files(tmp_path, prices17="CENTS = 1\n", model2="import prices17 as of\n" + CLASS)
    inner = files(tmp_path / "v2", prices17="CENTS = 2\n", model2="import prices17 as of\n" + CLASS)
    assert made(inner).cents == 2 and made(outer).cents == 1


def test_what_one_folder_has_is_not_there_for_another(tmp_path: Path) -> None:
    files(tmp_path / "v1", prices17="CENTS = 1\n", model2="import prices17 as of\n" + CLASS)
    files(tmp_path / "v2", model2="import prices17 as of\n" + CLASS)
    made(tmp_path / "v1")
    with pytest.raises(own_code.BadCode, match="No module named 'prices17'"):
        made(tmp_path / "v2")


def test_a_module_of_a_folder_on_the_path_is_there_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(files(tmp_path / "v1", prices17="CENTS = 1\n")))
    import prices17

    own = files(tmp_path / "v2", prices17="CENTS = 2\n", model2="import prices17 as of\n" + CLASS)
    assert made(own).cents == 2
    assert sys.modules["prices17"] is prices17


def test_a_later_import_of_a_name_that_two_folders_have_is_refused(tmp_path: Path) -> None:
    late = "import prices17\nclass M:\n    def cents(self):\n        import prices17\n        return prices17.CENTS\n"
    first, second = (files(tmp_path / f"v{n}", prices17=f"CENTS = {n}\n", model2=late) for n in (1, 2))
    one = made(first)
    assert one.cents() == 1
    two = made(second)
    for each in (one, two):
        with pytest.raises(ImportError, match=r"prices17 is in .*v1.* and in .*v2.*: import it at the top"):
            each.cents()


def test_what_is_installed_or_of_python_is_what_it_is_called(tmp_path: Path) -> None:
    text = "import random, pytest\nclass M:\n    two = random, pytest\n"
    own = files(tmp_path, random="N = 1\n", pytest="N = 1\n", model2=text)
    assert made(own).two == (random, pytest)


BASES = {"installed below it": ".venv/lib/site-packages", "on the path below it": "src", "on the path": "."}


@pytest.mark.parametrize("where", BASES)
def test_what_is_installed_below_a_folder_is_one_module_for_all(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / BASES[where]
    place.mkdir(parents=True, exist_ok=True)
    monkeypatch.syspath_prepend(str(place))
    files(place, base17="class Base: pass\n", base17__more="")
    text = "from base17 import Base\nclass M(Base): pass\n"
    outer, inner = (made(files(each, model2=text)) for each in (tmp_path, tmp_path / "sub"))
    assert type(outer).__base__ is type(inner).__base__
    # A folder's own module of that name does not make it ambiguous for those that import the installed one later.
    if where != "on the path":
        files(tmp_path / "v2", base17="class Base: pass\n")
        own_code.module_of(str(tmp_path / "v2/base17.py"))
        import base17

        assert base17.Base is type(outer).__base__


def test_the_product_is_no_module_of_the_folder_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file in the root of a checkout."""
    files(tmp_path, product17__late="class Base: pass\n")
    monkeypatch.setattr(own_code, "_PRODUCT", tmp_path / "product17")
    text = "import sys\nsys.path.append({!r})\nfrom product17.late import Base\nclass M(Base): pass\n"
    folders = [files(each, model2=text.format(str(tmp_path))) for each in (tmp_path, tmp_path / "sub")]
    monkeypatch.setattr(sys, "path", [*sys.path])
    outer, inner = map(made, folders)
    assert type(outer).__base__ is type(inner).__base__
    assert [each.__name__.partition("@")[0] for each in own_code.imported_from(tmp_path)] == ["model2"]


def test_a_module_of_another_folder_whose_package_is_gone_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(files(tmp_path / "path", pack17__prices="CENTS = 1\n"))
    importlib.import_module("pack17.prices")
    del sys.modules["pack17"]
    text = "import pack17.prices\nof = pack17.prices\n" + CLASS
    assert made(files(tmp_path / "own", pack17__prices="CENTS = 2\n", model2=text)).cents == 2


def test_places_are_looked_up_of_modules_with_a_name_of_the_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a walk of links; a process has thousands of modules, and files are loaded again and again."""
    asked: list[str] = []
    place = own_code._place

    def looked_up(module: Any) -> Path:
        asked.append(module.__name__.partition("@")[0])
        return place(module)

    monkeypatch.setattr(own_code, "_place", looked_up)
    hides, resolve, judged, resolved = own_code._hides, Path.resolve, list[str](), list[Path]()
    monkeypatch.setattr(own_code, "_hides", lambda *given: judged.append(given[0]) or hides(*given))
    monkeypatch.setattr(Path, "resolve", lambda self: resolved.append(self) or resolve(self))
    for number in range(20):
        text = "import near17 as of\n" + CLASS
        assert made(files(tmp_path / f"v{number}", near17=f"CENTS = {number}\n", model2=text)).cents == number
    assert set(asked) == {"near17", "model2"} and len(asked) <= 20 * 6
    assert {name.partition("@")[0] for name in judged} == {"near17", "model2"}
    # Those on the path once, whatever is loaded.
    assert len(resolved) <= len(sys.path) + 20 * 8


def test_classes_of_two_files_of_one_name_are_pickled_and_have_type_hints(tmp_path: Path) -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\nimport prices17\n"
    text += "@dataclass\nclass M:\n    @dataclass\n    class Inner:\n        of: int = 1\n"
    text += "    of: prices17.P | None = None\n"
    helper = "from dataclasses import dataclass\n@dataclass\nclass P:\n    cents: int = {}\n"
    folders = [files(tmp_path / f"v{n}", prices17=helper.format(n), model2=text) for n in (1, 2)]
    for _ in range(2):
        for one in map(made, folders):
            assert pickle.loads(pickle.dumps([one, one.Inner()])) == [one, one.Inner()]
    for one in [made(folder) for folder in folders] * 2:
        kind = typing.get_args(typing.get_type_hints(type(one))["of"])[0]
        assert pickle.loads(pickle.dumps(type(one)(kind()))).of == kind()
