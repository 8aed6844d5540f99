"""The pytest plugin: fixtures `minikube_cluster`, `minikube` and `minikube_noproc`, and what a failed test left behind.

Nothing of the control plane is imported before a fixture is used.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator
from typing import Any, Final

import pytest

from minikube_py.cluster import factories
from minikube_py.cluster.factories import VIEWS

OPTIONS: Final = {
    "nodes": ("how many fake nodes", "1"),
    "clock": ('"real", or "virtual": time passes by advance() alone', "real"),
    "seed": ("of a cluster in virtual time; in real time, of the scheduler's choices among equals", ""),
    "isolation": ('of each test: "namespace" or "snapshot"', "namespace"),
    "kubeconfig": ("of the server that minikube_noproc uses (default: $KUBECONFIG, or ~/.kube/config)", ""),
    "context": ("of that kubeconfig (default: its current one)", ""),
}
LOGGER: Final = "minikube_py"
RECORDS_MAX: Final = 200
RECORDS: Final = pytest.StashKey[deque[str]]()

minikube_cluster = factories.minikube_cluster()
minikube = factories.minikube()
minikube_noproc = factories.minikube_noproc()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("minikube_py")
    for name, (text, default) in OPTIONS.items():
        group.addoption(f"--minikube-{name}", dest=f"minikube_{name}", default=None, help=text)
        parser.addini(f"minikube_{name}", text, default=default)


class _Records(logging.Handler):
    def __init__(self, lines: deque[str]) -> None:
        super().__init__(logging.INFO)
        self._lines = lines
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    if not factories.uses_ours(item):
        return (yield)
    lines = item.stash[RECORDS] = deque[str](maxlen=RECORDS_MAX)
    handler, logger = _Records(lines), logging.getLogger(LOGGER)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(level, logging.INFO) if level else logging.INFO)
    try:
        return (yield)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.failed and call.when == "call":
        for view in item.stash.get(VIEWS, []):
            from minikube_py.cluster.left_behind import sections

            report.sections.extend(sections(view))
        lines = item.stash.get(RECORDS, None)
        if lines:
            report.sections.append(("minikube: logs of components", "\n".join(lines)))
    return report
