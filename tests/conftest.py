"""For all tests."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

import hypothesis
import pytest
from run_order import spread
from run_report import CpuMeter, RunReport
from virtual_time import VirtualLoop

from minikube_py.ports.memory import give_back

# A run that was started in the background ignores interrupts, and so would every process that a test starts and
# interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Until all tests are collected.
gc.disable()
TESTS = Path(__file__).parent

# Hypothesis draws constants of the source, too: to read a thousand modules takes 10 s of CPU, or one where its
# notes are found. Processes that tests start in other folders find them there.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(TESTS.parent / ".hypothesis"))
IN_VIRTUAL_TIME = (TESTS / "unit", TESTS / "property")

# No example is too slow: the machine may be. In CI the same commit draws the same examples; elsewhere each run others.
hypothesis.settings.register_profile(
    "calm",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("calm")


@pytest.fixture(scope="module", autouse=True)
def memory_goes_back() -> Iterator[None]:
    """What a module's tests have freed serves others: without this a worker held 7.5 GB, of which it used 1.5.

    What they left in circles ends here too. A task or future that is collected later speaks up in another module's
    test: during an `ast.parse` that fails the parse, as CPython before 3.11.8 and 3.12.2 may not parse
    within a parse (gh-106905), which a traceback in the log does.
    """
    yield
    gc.collect()
    gc.freeze()
    give_back()


class _LeftOut(logging.Handler):
    """What informers leave out, and what their handlers raise: a bug, unless a test is about it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # Processes that a simulation ends have their informers stop.
        if not (told := record.getMessage()).endswith(" stops"):
            self.told.append(told)


@pytest.fixture(autouse=True)
def informers_read_all(request: pytest.FixtureRequest) -> Iterator[None]:
    handler = _LeftOut()
    loggers = [logging.getLogger(f"minikube_py.client.{name}") for name in ("informer", "unreadable")]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
    if request.node.get_closest_marker("unreadable") is None:
        assert not handler.told


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
        items[:] = spread(items, workers)


def pytest_collection_finish() -> None:
    """Half a million objects of all tests stay: a collection that walked them took 0.3 s, and each module asks for one,
    as many tests do. While they are made, collections took two fifths of the time and found nothing."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the files of tests/slow_files.txt")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("quick") and collection_path in _slow_files():
        return True
    return None


@cache
def _slow_files() -> frozenset[Path]:
    lines = (TESTS / "slow_files.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(TESTS.parent / line for line in lines if not line.startswith("#"))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(meter := CpuMeter())
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(RunReport(config.getoption("quick"), meter))
    if named := os.environ.get("MINIKUBE_PY_FAILED"):
        config.pluginmanager.register(FailedTests(Path(named)))


class FailedTests:
    """Names the tests that failed in a file, a line each. There is no file unless the run came to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed: dict[str, None] = {}
        path.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = None

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED:
            self._path.write_text("".join(f"{name}\n" for name in self._failed))


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Unit tests and those of properties run in virtual time, unless they say why not; others where they ask for it."""
    if any(item.path.is_relative_to(folder) for folder in IN_VIRTUAL_TIME):
        virtual = item.get_closest_marker("real_time") is None
    else:
        virtual = item.get_closest_marker("virtual_time") is not None
    if virtual:
        return {"virtual": partial(VirtualLoop, item.nodeid)}
    return {"asyncio": asyncio.new_event_loop}
