"""External requirements of some tests: upstream, kubectl, the published trace, numba.

Without them, a test fails in CI and is skipped with its reason on a user's machine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import upstream

from minikube_py.errors import to_install


def absent(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextlib.contextmanager
def original(*flags: str) -> Iterator[dict[str, Any]]:
    """Upstream's control plane, running: url, token, kubeconfig, pids. `flags` names its parts other than the API
    server."""
    with contextlib.ExitStack() as stack:
        try:
            ready = stack.enter_context(upstream.running("run", *flags))
        except upstream.Absent as reason:
            absent(str(reason))
        yield ready


def etcd_binary() -> str:
    return str(original_program("etcd"))


def original_program(name: str) -> Path:
    """An upstream program, as a file."""
    try:
        return Path(upstream.binary(name))
    except upstream.Absent as reason:
        absent(str(reason))


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
    return kubectls() or absent(
        "no kubectl.1.NN found: name releases of kubectl so (kubectl.1.32), and set MINIKUBE_PY_KUBECTL to the folder"
    )


def require_numba() -> None:
    if importlib.util.find_spec("numba") is None:
        absent(f"numba is not installed; {to_install('compiled')}")


def published_trace() -> Path:
    folder = os.environ.get("MINIKUBE_PY_DATA")
    return Path(folder) if folder else absent(
        "the published trace is absent: set MINIKUBE_PY_DATA to a folder with it (minikube_py/lab/traces/SOURCES.md)"
    )


def scheduler_perf_files() -> Path:
    """The folder of upstream's scheduler_perf, whose workload files are in Go's module cache."""
    go = shutil.which("go")
    if go is None:
        absent("no Go, and upstream's workload files are in its module cache: install Go, then `make upstream`")
    cache = subprocess.run([go, "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    folder = Path(cache) / "k8s.io" / "kubernetes@v1.36.2" / "test" / "integration" / "scheduler_perf"
    return folder if folder.is_dir() else absent("needs `go mod download k8s.io/kubernetes@v1.36.2`")
