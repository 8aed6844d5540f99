"""A process that runs tests and histories on one tree, each request in a fork that has nothing of the package loaded.

Started in the tree, which is a copy with or without a mutant in it. Requests and answers are lines of JSON on stdin and
stdout; `Request` and `Answer` say what they hold. Everything from outside that tests need is imported once, before the
first fork; the package itself is imported in each fork again, so that each sees the mutant that is there at the time.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import hypothesis
import pytest
from mutation_witness import witness

PRELOADED: Final = (
    "aiohttp", "aiohttp.web", "asyncio", "coverage", "cryptography.x509", "hypothesis.stateful",
    "hypothesis.strategies", "msgpack", "multiprocessing.pool", "numpy", "orjson", "sortedcontainers", "yaml",
)  # fmt: skip
MEMORY_BYTES: Final = 4 << 30
TEST_TIMEOUT_S: Final = 600
"""Of one test, in real time: for what waits forever, on a machine that is busy with other things."""
MEASURED_S: Final = 60.0
MEASURED_FILE_S: Final = 90.0
"""Processor time of one test, with one set of parameters, and of a file of them, while lines are traced, which takes
several times as long. What takes more would make each survivor expensive, and judges none."""
SAID: Final = Path("answer.json").absolute()
"""Below the tree, where a fork leaves its answer. Two processes on one tree must not fork at the same time."""


COLD: Final = "cold"
"""The outcome where a process that has loaded the package cannot plant the mutant."""


class Request(NamedTuple):
    """`do`: one of DOES. `cpu_s` and `wall_s` hold for the whole request. `source`: file, healthy and mutated text,
    where the mutant is to be exchanged in what is loaded. `allowed_s`: processor time by test."""

    do: str
    names: list[str] = []
    seeds: list[int] = []
    cpu_s: int = 600
    wall_s: int = 3600
    source: list[str] = []
    allowed_s: dict[str, float] = {}


class Answer(NamedTuple):
    """`outcome`: passed, failed, timeout, cold, or broken where nothing could be said. `by`: what failed first."""

    outcome: str
    by: str = ""
    text: str = ""
    cpu_s: float = 0.0
    found: dict[str, Any] = {}


class Recorder:
    """A pytest plugin: the first failure, and what broke before any test ran."""

    def __init__(self) -> None:
        self.failed = self.text = self.broken = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed, self.text = report.nodeid, report.longreprtext[-2000:]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self.broken:
            self.broken = report.longreprtext[-2000:]


class TooExpensive(Exception):
    """A test took too much processor time while its lines were traced."""


class _Meter(Recorder):
    """That, and which test ran which lines at what cost in processor time. What is too expensive is unfit."""

    def __init__(self, coverage: Any) -> None:
        super().__init__()
        self.coverage = coverage
        self.cost_s: dict[str, float] = {}
        self.unfit: set[str] = set()
        self._started_s = 0.0

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(base(nodeid))
        self._started_s = time.process_time()
        left_s = MEASURED_FILE_S - sum(self.cost_s.values())
        signal.setitimer(signal.ITIMER_PROF, min(MEASURED_S, max(1.0, left_s)))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        name = base(nodeid)
        self.cost_s[name] = self.cost_s.get(name, 0.0) + time.process_time() - self._started_s
        self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: Any) -> None:
        super().pytest_runtest_logreport(report)
        if report.failed:
            self.unfit.add(base(report.nodeid))


def base(nodeid: str) -> str:
    """A test with all its parameters."""
    return nodeid.partition("[")[0]


def options() -> list[str]:
    """Of each run of pytest: the same examples each time, found soon, and nothing made of what is found."""
    hypothesis.settings.register_profile(
        "mutants",
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        derandomize=True, database=None, deadline=None, print_blob=False,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )  # fmt: skip
    return [
        "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile=mutants",
        f"--timeout={TEST_TIMEOUT_S}", "-W", "ignore::pytest.PytestAssertRewriteWarning", "--rootdir", os.getcwd(),
    ]  # fmt: skip


def _pytest(arguments: list[str], recorder: Recorder) -> int:
    return int(pytest.main([*options(), *arguments], plugins=[recorder]))


def run_import(request: Request) -> Answer:
    for name in request.names:
        importlib.import_module(name)
    return Answer("passed")


def run_tests(request: Request) -> Answer:
    recorder = Recorder()
    code = _pytest(["-x", *request.names], recorder)
    if recorder.broken:
        return Answer("broken", "collection", recorder.broken)
    if recorder.failed:
        late = "from pytest-timeout" in recorder.text
        return Answer("timeout" if late else "failed", recorder.failed, recorder.text)
    return Answer("passed" if code == 0 else "broken", "" if code == 0 else f"pytest ended with {code}")


def run_histories(request: Request) -> Answer:
    """One after the other, up to the first in which something is wrong. `found`: how many were played."""
    from minikube_py.sim import swarm  # The package is loaded in a fork alone.

    assert Path(swarm.__file__).is_relative_to(Path.cwd()), f"{swarm.__file__} would be judged, not the tree"
    gc.freeze()
    for played, seed in enumerate(request.seeds, 1):
        (done,) = swarm.run_block([seed])
        if done.violations or done.crashed:
            text = done.crashed or json.dumps(done.violations)
            return Answer("failed", f"history {seed}", text[:2000], found={"played": played})
    return Answer("passed", found={"played": len(request.seeds)})


def run_witnesses(request: Request) -> Answer:
    """Histories of a tree with witnesses in it. `found`: by each one's key the seeds in which it saw a difference."""
    seen: dict[str, list[int]] = {}
    now: set[str] = set()
    builtins.__witness__ = partial(witness, now)  # type: ignore[attr-defined]
    for seed in request.seeds:
        now.clear()
        answer = run_histories(request._replace(seeds=[seed]))
        if answer.outcome != "passed":
            return answer
        for key in now:
            seen.setdefault(key, []).append(seed)
    return Answer("passed", found={"seen": seen})


def _coverage() -> Any:
    import coverage

    return coverage.Coverage(data_file=None, config_file=False, source=["minikube_py"])


def _too_expensive(_signal: int, _frame: FrameType | None) -> None:
    raise TooExpensive


def _lines(data: Any) -> dict[str, dict[int, list[str]]]:
    root = Path.cwd() / "minikube_py"
    return {
        Path(file).relative_to(root).as_posix(): {
            line: [name for name in contexts if name] for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }


def measure_tests(request: Request) -> Answer:
    """What each test of the files runs. `found`: `cost_s` by test, `unfit` tests, which fail as it is, and `lines`."""
    coverage = _coverage()
    meter = _Meter(coverage)
    signal.signal(signal.SIGPROF, _too_expensive)
    coverage.start()
    _pytest(request.names, meter)
    coverage.stop()
    found = {"cost_s": meter.cost_s, "unfit": sorted(meter.unfit), "lines": _lines(coverage.get_data())}
    return Answer("passed" if not meter.broken else "broken", text=meter.broken or meter.text, found=found)


def measure_import(request: Request) -> Answer:
    """The lines that run while tests are collected: what a mutant changes there is done once, at import."""
    coverage = _coverage()
    coverage.start()
    recorder = Recorder()
    _pytest(["--collect-only", *request.names], recorder)
    coverage.stop()
    data = coverage.get_data()
    root = Path.cwd() / "minikube_py"
    lines = {Path(file).relative_to(root).as_posix(): sorted(data.lines(file) or ()) for file in data.measured_files()}
    return Answer("broken" if recorder.broken else "passed", text=recorder.broken, found={"lines": lines})


def measure_histories(request: Request) -> Answer:
    """The lines that histories run, by file, under the name `histories`."""
    coverage = _coverage()
    coverage.start()
    coverage.switch_context("histories")
    answer = run_histories(request)
    coverage.stop()
    found = _lines(coverage.get_data())
    lines = {file: sorted(line for line, names in of.items() if names) for file, of in found.items()}
    return answer._replace(found={"lines": lines})


DOES: Final[dict[str, Callable[[Request], Answer]]] = {
    "import": run_import,
    "tests": run_tests,
    "histories": run_histories,
    "witnesses": run_witnesses,
    "measure_import": measure_import,
    "measure_tests": measure_tests,
    "measure_histories": measure_histories,
}


_CHILDREN: Final[set[int]] = set()


def end_children(*_: object) -> None:
    """No fork outlives its worker."""
    for child in _CHILDREN:
        os.killpg(child, signal.SIGKILL)
    os._exit(1)


def in_a_fork(request: Request, do: Callable[[Request], Answer]) -> Answer:
    """What the fork says; if it is ended by a limit, `timeout`; if it ends without a word, `broken`."""
    SAID.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        _child(request, do)
    _CHILDREN.add(child)
    ended, status, used = _wait(child, request.wall_s)
    try:
        os.killpg(child, signal.SIGKILL)  # Whatever a test has left behind.
    except ProcessLookupError:
        pass
    _CHILDREN.discard(child)
    cpu_s = used.ru_utime + used.ru_stime
    if SAID.is_file():
        return Answer(**json.loads(SAID.read_text()))._replace(cpu_s=cpu_s)
    late = not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL))
    return Answer("timeout" if late else "broken", f"ended with status {status}", _tail(Path("log")), cpu_s)


def _wait(child: int, wall_s: float) -> tuple[bool, int, resource.struct_rusage]:
    deadline_s = time.monotonic() + wall_s
    while time.monotonic() < deadline_s:
        pid, status, used = os.wait4(child, os.WNOHANG)
        if pid:
            return True, status, used
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    return False, status, used


def _child(request: Request, do: Callable[[Request], Answer]) -> None:
    os.setpgid(0, 0)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_s, request.cpu_s + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        answer = do(request)
    except BaseException as error:
        answer = Answer("failed", type(error).__name__, str(error)[:2000])
    save(answer)
    os._exit(0)


def save(answer: Answer) -> None:
    draft = SAID.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(answer._asdict()))
    draft.rename(SAID)


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-2000:] if path.is_file() else ""


def main() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    assert not any(name.startswith("minikube_py") for name in sys.modules)
    # A Ctrl-C is for the command, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_children)
    for line in sys.stdin:
        request = Request(**json.loads(line))
        print(json.dumps(in_a_fork(request, DOES[request.do])._asdict()), flush=True)


if __name__ == "__main__":
    main()
