#!/usr/bin/env python3
"""Builds the wheel, installs it into a fresh environment, and checks what a user gets.

    python tools/check_wheel.py           exits with 1 and says what is wrong
    python tools/check_wheel.py --keep D  leaves the wheel in the folder D

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
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "minikube_py")
NEEDED = (
    "Name", "Version", "Summary", "License-Expression", "License-File", "Keywords", "Requires-Python",
    "Description-Content-Type",
)  # fmt: skip
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
    parser.add_argument("--keep", type=Path, metavar="D", help="leave the wheel here")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory(prefix="minikube-py-wheel-") as name:
        folder = Path(name)
        wheel = built(folder)
        found = [*wrong_metadata(wheel), *missing_files(wheel), *wrong_use(folder, wheel)]
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            shutil.copy(wheel, keep)
    print(*(found or [f"{wheel.name}: metadata, files and use are whole"]), sep="\n")
    return 1 if found else 0


def built(folder: Path) -> Path:
    """Builds from a copy: a build leaves files beside its sources."""
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source))
    (wheel,) = folder.glob("*.whl")
    return wheel


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def wrong_metadata(wheel: Path) -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
    wanted = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "minikube_py").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    yield from (f"the wheel lacks {name}" for name in sorted(wanted - there))
    yield from (f"the wheel has {name}, and the sources have not" for name in sorted(there - wanted))


def wrong_use(folder: Path, wheel: Path) -> Iterator[str]:
    """In a fresh environment, from another folder."""
    fresh = folder / "fresh"
    venv.create(fresh, with_pip=True)
    python = fresh / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    used = run(str(python), "-I", "-c", USED).strip()
    if not used.startswith(str(fresh)):
        yield f"minikube_py was imported from {used}"
    if "usage: minikube-py" not in run(str(fresh / "bin" / "minikube-py"), "--help"):
        yield "minikube-py --help tells nothing"


def run(*command: str) -> str:
    """Raises: SystemExit with its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(command, cwd=tempfile.gettempdir(), env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
