#!/usr/bin/env python3
"""Builds sdist and wheel, installs the wheel into a fresh environment, and checks what a user gets.

    python tools/check_wheel.py           exits with 1 and says what is wrong
    python tools/check_wheel.py --keep D  leaves both in the folder D

pip installs the requirements of the build and the package, as for a user.
"""

from __future__ import annotations

import argparse
import email
import email.message
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "minikube_py")
NEEDED = (
    "Name", "Version", "Summary", "License-Expression", "License-File", "Keywords", "Requires-Python",
    "Description-Content-Type",
)  # fmt: skip
BUILD = """
import sys
from setuptools import build_meta
folder = sys.argv[1]
build_meta.build_sdist(folder)
build_meta.build_wheel(folder)
"""
USED = """
from importlib.metadata import entry_points
import minikube_py
from minikube_py import Cluster
assert any(each.value == "minikube_py.cluster.pytest_plugin" for each in entry_points(group="pytest11"))
with Cluster(nodes=2) as cluster:
    assert len(cluster.objects("nodes")) == 2
print(minikube_py.__file__)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="D", help="leave them here")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="minikube-py-wheel-") as name:
        folder = Path(name)
        sdist, wheel, said = built(folder)
        warned = [line.strip() for line in said.splitlines() if "deprecat" in line.lower()]
        found = [*warned, *wrong_metadata(wheel), *missing_files(wheel), *missing_sources(sdist)]
        found += wrong_use(folder, wheel)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            for each in (sdist, wheel):
                shutil.copy(each, keep)
    print(*(found or [f"{sdist.name}, {wheel.name}: metadata, files and use are whole"]), sep="\n")
    return 1 if found else 0


def built(folder: Path) -> tuple[Path, Path, str]:
    """The sdist, the wheel, and what the build said. From a copy: a build leaves files beside its sources."""
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    python = environment(folder / "build", *project_file()["build-system"]["requires"])
    said = run(python, "-W", "default", "-c", BUILD, str(folder), folder=source)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel, said


def environment(folder: Path, *requirements: str) -> str:
    """The Python of a fresh one."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    return python


def project_file() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def wrong_metadata(wheel: Path) -> Iterator[str]:
    project = project_file()["project"]
    metadata = metadata_of(wheel)
    yield from (f"the metadata has no {name}" for name in NEEDED if not metadata.get(name))
    description = metadata.get_payload(decode=True)
    if not isinstance(description, bytes) or description.strip() != (ROOT / "README.md").read_bytes().strip():
        yield "the description is not README.md"
    for name, told in (("Classifier", project["classifiers"]), ("Provides-Extra", project["optional-dependencies"])):
        if set(metadata.get_all(name, ())) != set(told):
            yield f"{name} is not as in pyproject.toml"
    plain = {each for each in metadata.get_all("Requires-Dist", ()) if "extra ==" not in each}
    if plain != set(project["dependencies"]):
        yield f"it requires {sorted(plain)}, not {project['dependencies']}"


def missing_files(wheel: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        there = {each for each in archive.namelist() if each.startswith("minikube_py/")}
    wanted = sources()
    yield from (f"the wheel lacks {name}" for name in sorted(wanted - there))
    yield from (f"the wheel has {name}, and the sources have not" for name in sorted(there - wanted))


def missing_sources(sdist: Path) -> Iterator[str]:
    with tarfile.open(sdist) as archive:
        there = {each.partition("/")[2] for each in archive.getnames()}
    wanted = {*sources(), "pyproject.toml", "README.md", "LICENSE"}
    yield from (f"the sdist lacks {name}" for name in sorted(wanted - there))


def sources() -> set[str]:
    paths = (ROOT / "minikube_py").rglob("*")
    return {p.relative_to(ROOT).as_posix() for p in paths if p.is_file() and "__pycache__" not in p.parts}


def wrong_use(folder: Path, wheel: Path) -> Iterator[str]:
    """In a fresh environment, from another folder."""
    fresh = folder / "fresh"
    used = run(environment(fresh, str(wheel)), "-I", "-c", USED).strip()
    if not used.startswith(str(fresh)):
        yield f"minikube_py was imported from {used}"
    if "usage: minikube-py" not in run(str(fresh / "bin" / "minikube-py"), "--help"):
        yield "minikube-py --help tells nothing"


def run(*command: str, folder: Path | None = None) -> str:
    """What it says. Raises: SystemExit with its output."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    where = folder or tempfile.gettempdir()
    done = subprocess.run(
        command, cwd=where, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
