"""What some tests need from outside: the original, its binaries, kubectl, the published trace, numba.

Where it is absent, a test fails in CI and is skipped with its reason on a user's machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

STOP_TIMEOUT_S = 30


def absent(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def original(*flags: str) -> Iterator[dict[str, Any]]:
    """A running original: url, token, kubeconfig, pids. `flags` name its parts beside the API server."""
    script = os.environ.get("MINIKUBE_PY_ORIGINAL_UP")
    if not script:
        absent("no original: set MINIKUBE_PY_ORIGINAL_UP to the script that starts it")
    with subprocess.Popen([script, *flags], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def etcd_binary() -> str:
    folder = os.environ.get("ORIGINAL_BIN", "")
    found = shutil.which("etcd", path=folder) if folder else shutil.which("etcd")
    return found or absent("no etcd: set ORIGINAL_BIN to the folder of the original's binaries")


def kubectls() -> dict[int, Path]:
    """Minor version to binary: `kubectl.1.NN` in MINIKUBE_PY_KUBECTL, or beside the real file behind `kubectl`."""
    folder = os.environ.get("MINIKUBE_PY_KUBECTL")
    if not folder:
        found = shutil.which("kubectl")
        if found is None:
            return {}
        folder = str(Path(found).resolve().parent)
    found_here = sorted(Path(folder).glob("kubectl.1.*"))
    return {int(path.suffix[1:]): path for path in found_here if path.suffix[1:].isdigit()}


def require_kubectls() -> dict[int, Path]:
    return kubectls() or absent("no kubectl.1.NN found: set MINIKUBE_PY_KUBECTL to the folder that holds them")


def require_numba() -> None:
    if importlib.util.find_spec("numba") is None:
        absent("numba is not installed; pip install 'minikube_py[compiled]'")


def published_trace() -> Path:
    folder = os.environ.get("MINIKUBE_PY_DATA")
    return Path(folder) if folder else absent("the published trace is absent: set MINIKUBE_PY_DATA to its folder")
