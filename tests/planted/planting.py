"""Runs a checker - test files as they are - against a copy of the package, healthy or with one bug planted.

The copy lies in a folder of its own, which comes first on the path of the process that runs the checker; nothing in
the checkout is touched. The checker is judged by what pytest says: a bug counts as found only where a test failed, not
where something could not be imported, collected or set up.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mutants import Mutant

if TYPE_CHECKING:
    from warm import Warm

ROOT = Path(__file__).resolve().parents[2]
SEEDS = (1, 2, 3)
"""Which examples are drawn depends on the seed; what one run of a checker misses the next may find."""
RUN_TIMEOUT_S = 100.0
TEST_TIMEOUT_S = 30
"""A bug may make a test hang; that is a failure too, but must not take long."""

_FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)


class Verdict(NamedTuple):
    """`failed` is the first test that failed, "" if none did; `passed` is true where all ran and held."""

    failed: str
    passed: bool
    duration_s: float
    output: str


def copy_package(folder: Path) -> None:
    """With the compiled files, which stay valid because times are kept. Files are links until they are changed."""
    shutil.copytree(ROOT / "minikube_py", folder / "minikube_py", copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def plant(folder: Path, mutant: Mutant) -> None:
    """Changes the copy in `folder`. Raises: AssertionError where the code has changed under the table."""
    path = folder / "minikube_py" / mutant.file
    text = path.read_text() if path.is_file() else ""
    count = text.count(mutant.old)
    assert count == 1, (
        f"{mutant.name}: its old text stands {count} times in minikube_py/{mutant.file}, not once; the code has "
        f"changed: bring its table up to date. Looked for:\n{mutant.old}"
    )
    path.unlink()
    path.write_text(text.replace(mutant.old, mutant.new))
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def run_checker(folder: Path, checker: str, seed: int, patience: int = 1, warm: Warm | None = None) -> Verdict:
    """`checker`: node ids below tests/, separated by spaces. `patience`: how many times as long as most it may take.
    `warm`: what forks the process, which else is started; it must have nothing of the package."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "PYTHON"))}
    environment["MINIKUBE_PY_LAW_SEED"] = str(seed)
    environment["PYTHONPATH"] = os.pathsep.join((str(folder), str(Path(__file__).parent)))
    arguments = [
        "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-x", "-q", "-rf",
        "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "planted_profile",
        "--hypothesis-profile=planted",
        f"--hypothesis-seed={seed}", f"--timeout={patience * TEST_TIMEOUT_S}",
        *(str(ROOT / "tests" / node) for node in checker.split()),
    ]  # fmt: skip
    started_s = time.monotonic()
    if warm is not None:
        out, err = folder / "stdout", folder / "stderr"
        code = warm.run(arguments, folder, environment, out, err, patience * RUN_TIMEOUT_S)
        output = out.read_text() + err.read_text()
    else:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience * RUN_TIMEOUT_S,
        )
        code, output = done.returncode, done.stdout + done.stderr
    failed = _FAILED.search(output)
    name = failed[1].rpartition("/")[2] if failed else ""
    return Verdict(name, code == 0, time.monotonic() - started_s, output)
