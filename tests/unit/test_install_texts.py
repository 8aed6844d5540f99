"""What the project says about installing its extras works, and installs nobody else's package."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from check_language import files

from minikube_py.errors import to_install

ROOT = Path(__file__).parents[2]
FROM_AN_INDEX = re.compile(r"minikube[_-]py\[|pip install (?:-\S+ )*['\"]?minikube[_-]py\b")
"""The project is on no index, so whoever takes its name there would have it installed."""
SELF = Path(__file__)


def texts() -> dict[str, str]:
    notebooks = [path for path in ROOT.glob("docs/**/*.ipynb") if "_build" not in path.parts]
    paths = [path for path in (*files(ROOT), *notebooks) if path != SELF]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_nothing_says_to_install_the_project_from_an_index() -> None:
    assert len(texts()) > 1000
    assert [name for name, text in texts().items() if FROM_AN_INDEX.search(text)] == []


def test_a_message_names_an_extra_that_there_is() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    said = {name: re.findall(r"\bto_install\(['\"]([^'\"]+)['\"]\)", text) for name, text in texts().items()}
    extras = {extra for found in said.values() for each in found for extra in each.split(",")}
    assert {"lab", "etcd", "etcd-api"} <= extras <= set(declared)
    assert to_install("lab") == "run pip install '.[lab]' in the source folder of minikube_py"
