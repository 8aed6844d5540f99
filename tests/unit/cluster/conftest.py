"""For tests of the pytest plugin: its runs are forks of one process for each module."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from warm import Warm, WarmRuns


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    path = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    warm = Warm("pytest_asyncio.plugin", "httpx", "minikube_py.cluster.public", path=list(path))
    yield warm
    warm.close()


@pytest.fixture
def pytester(pytester: pytest.Pytester, warm: Warm) -> pytest.Pytester:
    pytester.popen = WarmRuns(warm, pytester)  # type: ignore[method-assign,assignment]
    return pytester
