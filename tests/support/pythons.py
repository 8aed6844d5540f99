"""The Python versions of this machine that the project supports, with the same packages for each.

    python pythons.py      installs those packages for each Python that is found (`make pythons`)

pip can install wheels for another version of Python, so the interpreters need neither pip nor venv: they run with `-S`
and find the packages in a folder for their minor version, inside this environment.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).resolve().parents[2]
GOLDEN: Final = TOP / "tests" / "sim" / "golden_digests.json"
FOLDER: Final = Path(sys.prefix) / "pythons"
RUNNING: Final = "{}.{}.{}".format(*sys.version_info)
PLACES: Final = (
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "/opt/hostedtoolcache/Python/*/x64/bin",
    "/opt/python/*/bin",
)
"""Beside PATH: folders of version managers and of GitHub's runners."""
ALSO: Final = ("httpx",)
"""Needed by the explored program."""
SAYS: Final = (
    "import sys, sysconfig; print(sys.implementation.name, '%d.%d.%d' % sys.version_info[:3], "
    "sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
)


def named() -> list[str]:
    """The minor versions that pyproject.toml names."""
    classifiers = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["classifiers"]
    return [found[1] for each in classifiers if (found := re.search(r":: (3\.\d+)$", each))]


def found() -> dict[str, str]:
    """CPython by version, this one included."""
    folders = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    for place in PLACES:
        whole = Path(place).expanduser()
        folders += sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))))
    pythons = {RUNNING: sys.executable}
    for minor in named():
        for path in dict.fromkeys(folder / f"python{minor}" for folder in folders):
            # The shim of a version manager fails if its version is not selected.
            if path.is_file() and (said := _said(path)) is not None:
                pythons.setdefault(said, str(path))
    return pythons


def one_of_each_minor(found: Iterable[str]) -> list[str]:
    """The running one, then the latest of each other minor version."""
    latest = {minor_of(python): python for python in sorted(found, key=lambda each: [*map(int, each.split("."))])}
    return [RUNNING, *(python for minor, python in latest.items() if minor != minor_of(RUNNING))]


def _said(path: Path) -> str | None:
    answer = subprocess.run([path, "-S", "-c", SAYS], capture_output=True, text=True)
    name, _, rest = answer.stdout.strip().partition(" ")
    python, _, free_threaded = rest.partition(" ")
    return python if answer.returncode == 0 and name == "cpython" and free_threaded == "0" else None


def pins() -> list[str]:
    """The package's dependencies, in the versions installed here; numpy and orjson in those of the golden digests."""
    golden: dict[str, str] = json.loads(GOLDEN.read_text())["versions"]
    needed = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.split(r"[<>=\[ ]", each)[0] for each in needed] + list(ALSO)
    return [f"{name}=={golden.get(name) or version(name)}" for name in names]


def minor_of(python: str) -> str:
    return python.rpartition(".")[0]


def packages(python: str) -> Path | None:
    """The folder of that version's packages, if `make pythons` has installed the present pins."""
    folder = FOLDER / minor_of(python)
    note = folder / "pins.json"
    return folder if note.is_file() and json.loads(note.read_text()) == pins() else None


def run(python: str, path: str, script: str, *arguments: str, **environment: str) -> str:
    """The output of a script of tests/support. Raises: AssertionError with its errors."""
    folder = packages(python)
    assert folder is not None
    support = TOP / "tests" / "support"
    paths = os.pathsep.join(map(str, (TOP, support, folder)))
    # Beside its packages, which pip compiles for this Python only: a run that compiles everything takes seconds more.
    command = [path, "-S", "-X", f"pycache_prefix={folder / 'compiled'}", str(support / script), *arguments]
    done = subprocess.run(
        command, env={**os.environ, **environment, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, f"Python {python}: {done.stderr}"
    return done.stdout


def install() -> None:
    for python in found():
        if packages(python) is None:
            print(f"installing packages to compare Python {minor_of(python)} with others ...", flush=True)
            folder = FOLDER / minor_of(python)
            where = ["--target", str(folder), "--upgrade", "--python-version", minor_of(python)]
            quiet = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
            subprocess.run([sys.executable, "-m", "pip", "install", *quiet, *where, *pins()], check=True)
            (folder / "pins.json").write_text(json.dumps(pins()))


if __name__ == "__main__":
    install()
