"""A process that has collected all tests, and runs some of them on a mutant, each request in a fork.

As `mutation_worker`, which needs a second for each request until the first test runs; here nothing is loaded again.
Arguments: the files of tests. Requests are lines of JSON on stdin; the first answer says that all is collected.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, TextIO

import pytest
from mutation_swap import Key, exchange, functions, pairs
from mutation_worker import COLD, PRELOADED, Answer, Recorder, Request, base, end_children, in_a_fork, options, save

TEST_ALLOWANCE_S: Final = 10.0
"""Processor time that a test may take beside a multiple of what it takes without a mutant."""


class Server:
    """A pytest plugin: instead of the tests, runs what requests name."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._items: dict[str, list[pytest.Item]] = {}
        self._functions: dict[Key, list[object]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in session.items:
            name = base(item.nodeid)
            for each in (name, name.partition("::")[0]):
                self._items.setdefault(each, []).append(item)
        gc.unfreeze()
        self._functions = functions(gc.get_objects(), str(Path.cwd() / "minikube_py") + os.sep)  # type: ignore[assignment]
        gc.freeze()
        self._say(Answer("passed", found={"items": len(session.items), "failed": session.testsfailed}))
        for line in sys.stdin:
            request = Request(**json.loads(line))
            self._say(in_a_fork(request, self._run))
        return True

    def _say(self, answer: Answer) -> None:
        print(json.dumps(answer._asdict()), file=self._out, flush=True)

    def _run(self, request: Request) -> Answer:
        those = pairs(*request.source) if request.source else []
        if those is None or not exchange(self._functions, those):  # type: ignore[arg-type]
            return Answer(COLD)
        chosen = [item for name in request.names for item in self._items.get(name, ())]
        if missing := [name for name in request.names if name not in self._items]:
            return Answer("broken", "collection", f"not collected: {', '.join(missing)}")
        return _judge(chosen, request)


def _judge(chosen: Sequence[pytest.Item], request: Request) -> Answer:
    """One after the other, up to the first failure."""
    recorder = Recorder()
    chosen[0].config.pluginmanager.register(recorder)
    timed: dict[str, float] = {}
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        name = base(item.nodeid)
        allowed_s = TEST_ALLOWANCE_S + request.allowed_s.get(name, 0.0)
        started_s = time.process_time()

        def late(_signal: int, _frame: FrameType | None, name: str = name) -> None:
            save(Answer("timeout", name, "took too much processor time"))
            os._exit(0)

        signal.signal(signal.SIGPROF, late)
        signal.setitimer(signal.ITIMER_PROF, allowed_s)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        signal.setitimer(signal.ITIMER_PROF, 0)
        timed[name] = timed.get(name, 0.0) + time.process_time() - started_s
        if recorder.failed:
            outcome = "timeout" if "from pytest-timeout" in recorder.text else "failed"
            return Answer(outcome, recorder.failed, recorder.text, found={"cost_s": timed})
    return Answer("passed", found={"cost_s": timed})


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    log = os.open("warm.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in PRELOADED:
        importlib.import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, end_children)
    folder = Path.cwd() / "tmp"
    pytest.main([*options(), "-s", f"--basetemp={folder}", *sys.argv[1:]], plugins=[Server(out)])


if __name__ == "__main__":
    main()
