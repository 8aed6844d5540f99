"""The report at the end of a test run: what was skipped and how to enable it; in CI, and of a run that is meant to be
quick, which files cost most.

A file's cost is CPU seconds: of the worker that ran its tests, and of the processes that these started and waited for.
Whatever else runs on the machine, a whole run takes at least the sum divided by the cores. A process that a test leaves
to others is in nobody's sum until it is waited for.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Mapping
from typing import Any

import pytest

COSTLIEST_SHOWN = 60


def cpu_s() -> float:
    """What this process has used, with all children that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


class CpuMeter:
    """A plugin for each process that runs tests: every report carries what was used since the one before."""

    def __init__(self) -> None:
        self._counted_s = 0.0
        self.collection_s = 0.0

    def pytest_collection_finish(self) -> None:
        self._counted_s = self.collection_s = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        now_s = cpu_s()
        report.cpu_s = now_s - self._counted_s
        self._counted_s = now_s
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        output = getattr(session.config, "workeroutput", {})
        output["collection_s"] = self.collection_s


class RunReport:
    """A plugin for the process that receives all reports, which is not an xdist worker."""

    def __init__(self, quick: bool, meter: CpuMeter) -> None:
        self._shows_costs = quick or bool(os.environ.get("CI"))
        self._meter = meter
        self._collections_s: list[float] = []
        self._cpu_s = defaultdict[str, float](float)
        self._duration_s = defaultdict[str, float](float)
        self._skipped: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        file = report.nodeid.partition("::")[0]
        self._cpu_s[file] += getattr(report, "cpu_s", 0.0)
        self._duration_s[file] += report.duration
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped[reason(report.longrepr)] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._collections_s.append(getattr(node, "workeroutput", {}).get("collection_s", 0.0))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._shows_costs:
            terminalreporter.section("costliest files: CPU, duration")
            for line in self.costs():
                terminalreporter.write_line(line)
        if self._skipped:
            terminalreporter.section("skipped: what each needs")
            for why, count in self._skipped.most_common():
                terminalreporter.write_line(f"{count:5}  {why}")

    def costs(self) -> Iterator[str]:
        """The costliest files, all folders, and all that was used."""
        for file, used_s in _most(self._cpu_s)[:COSTLIEST_SHOWN]:
            yield f"{used_s:7.1f} s {self._duration_s[file]:7.1f} s  {file}"
        folders = defaultdict[str, float](float)
        for file, used_s in self._cpu_s.items():
            folders["/".join(file.split("/")[:2])] += used_s
        for folder, used_s in _most(folders):
            yield f"{used_s:7.1f} s            {folder}"
        collections_s = self._collections_s or [self._meter.collection_s]
        yield f"{sum(collections_s):7.1f} s            to collect, {len(collections_s)} times"
        yield f"{sum(folders.values()) + sum(collections_s):7.1f} s            in all"


def _most(used_s: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(used_s.items(), key=lambda each: -each[1])


def reason(longrepr: Any) -> str:
    """Of a skip, in one line."""
    text = longrepr[2] if isinstance(longrepr, tuple | list) else str(longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())
