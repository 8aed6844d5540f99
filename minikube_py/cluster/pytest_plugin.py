"""The pytest plugin: fixtures `minikube_cluster`, `minikube` and `minikube_noproc`, and the report of what a failed
test left behind.

The control plane is imported only when a fixture is used."""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Generator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final, cast

import pytest

from minikube_py.cluster import factories
from minikube_py.cluster.factories import LEFT, VIEWS

OPTIONS: Final = {
    "nodes": ("how many fake nodes", "1"),
    "clock": ('"real", or "virtual": time passes by advance() alone', "real"),
    "seed": ("of a cluster in virtual time; in real time, of the scheduler's choices among equals", ""),
    "stages": ("a file or a folder of stages by which pods live (default: they run at once)", ""),
    "isolation": ('of each test: "namespace" or "snapshot"', "namespace"),
    "kubeconfig": ("of the server that minikube_noproc uses (default: $KUBECONFIG, or ~/.kube/config)", ""),
    "seeds": ("explore each test that uses minikube with so many seeds (default: as its mark says)", ""),
    "seed-only": ("explore with this seed alone, as a report of a failure names it", ""),
    "context": ("of that kubeconfig (default: its current one)", ""),
}
LOGGER: Final = "minikube_py"
RECORDS_MAX: Final = 200
FOUND: Final = pytest.StashKey[str]()
SEEDS: Final = pytest.StashKey[list[int]]()
RECORDS: Final = pytest.StashKey[deque[str]]()

minikube_cluster = factories.minikube_cluster()
minikube = factories.minikube()
minikube_noproc = factories.minikube_noproc()


class AsWritten:
    """pytest rewrites the asserts of a plugin's whole package: here a control plane, which takes 4 s of CPU time in
    each process without a bytecode cache. So its modules are loaded by Python's own loader."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("minikube_py.") else None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("minikube_py")
    for name, (text, default) in OPTIONS.items():
        key = f"minikube_{name.replace('-', '_')}"
        group.addoption(f"--minikube-{name}", dest=key, default=None, help=text)
        parser.addini(key, text, default=default)
    only_help = "a test that cannot be explored is an error, and so is a run that explores none"
    group.addoption("--minikube-only-explored", dest=factories.ONLY_EXPLORED, action="store_true", help=only_help)


def pytest_configure(config: pytest.Config) -> None:
    text = "run the test in virtual time under so many seeds, each with its own interleaving and its own faults"
    config.addinivalue_line("markers", f"{factories.MARK}(seeds={factories.SEEDS_USUAL}): {text}")
    for name in OPTIONS:
        factories.option(config, name)
    if None not in (config.getoption("minikube_seeds"), config.getoption("minikube_seed_only")):
        raise pytest.UsageError("argument --minikube-seeds: not allowed with argument --minikube-seed-only")
    sys.meta_path.insert(0, AsWritten)
    config.add_cleanup(lambda: sys.meta_path.remove(AsWritten))
    factories.check_files(config)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each run of an explored test sets up the fixtures itself."""
    seeds = item.stash[SEEDS] = factories.seeds_of(item)
    if seeds:
        from minikube_py.cluster import explored_item

        explored_item.prepare(cast(pytest.Function, item))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Runs an explored test many times."""
    seeds = pyfuncitem.stash.get(SEEDS, None)
    if not seeds:
        return None
    from minikube_py.cluster import explored_item

    explored = explored_item.run(pyfuncitem, seeds)
    pyfuncitem.user_properties.append((factories.MARK, explored.text()))
    if explored.found is not None:
        again = f"again: minikube-py explore '{pyfuncitem.nodeid}' --seed {explored.found.seed}"
        pyfuncitem.stash[FOUND] = f"{explored.found.text()}\n{again}"
        assert explored.found.least.error is not None
        raise explored.found.least.error
    return True


def _explored(config: pytest.Config) -> list[str]:
    """A line for each test that was explored, also by xdist's workers."""
    stats = getattr(config.pluginmanager.get_plugin("terminalreporter"), "stats", {})
    return [
        f"explored {report.nodeid}: {text}"
        for reports in stats.values()
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == factories.MARK and report.when == "call"
    ]


def _none_where_some_must(config: pytest.Config) -> bool:
    return bool(config.getoption(factories.ONLY_EXPLORED)) and not _explored(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and _none_where_some_must(session.config):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in _explored(config) or (["nothing was explored"] if _none_where_some_must(config) else []):
        terminalreporter.line(line)
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, said in getattr(report, "user_properties", ()):
                if name == factories.RUINED and report.when == "teardown":
                    terminalreporter.line(said)


class _Records(logging.Handler):
    def __init__(self, lines: deque[str]) -> None:
        super().__init__(logging.INFO)
        self._lines = lines
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    if not factories.ours_of(item):
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
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        factories.end_ruined(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    if call.excinfo is not None and "minikube_py.cluster.errors" in sys.modules and not item.config.option.fulltrace:
        factories.without_own_frames(call.excinfo)
    report = yield
    if report.failed and call.excinfo is not None and factories.is_wrong_use(call.excinfo):
        # The traceback would show this plugin alone, and nothing of the test.
        report.longrepr = f"{item.location[0]}:{(item.location[1] or 0) + 1}: UsageError: {call.excinfo.value}"
    elif report.failed:
        if FOUND in item.stash:
            report.sections.append((f"minikube: {item.name} explored", item.stash[FOUND]))
        left = item.stash.get(LEFT, [])
        if call.when != "teardown":
            for view in item.stash.get(VIEWS, []):
                from minikube_py.cluster.left_behind import sections

                left = [*left, *sections(view)]
        report.sections.extend(left)
        lines = item.stash.get(RECORDS, None)
        if lines:
            report.sections.append(("minikube: logs of components", "\n".join(lines)))
    return report
