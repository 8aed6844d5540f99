"""The report at the end of a test run: what was skipped and how to enable it; in CI, and of a run that is meant to be
quick, which files took longest."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

SLOWEST_SHOWN = 40


class RunReport:
    """A plugin for the process that collects all reports, which is not an xdist worker."""

    def __init__(self, quick: bool) -> None:
        self._shows_slowest = quick or bool(os.environ.get("CI"))
        self._duration_s: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._duration_s[report.nodeid.partition("::")[0]] += report.duration
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped[reason(report.longrepr)] += 1

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._shows_slowest:
            terminalreporter.section("slowest files")
            for file, duration_s in self._duration_s.most_common(SLOWEST_SHOWN):
                terminalreporter.write_line(f"{duration_s:7.1f} s  {file}")
        if self._skipped:
            terminalreporter.section("skipped: what each needs")
            for why, count in self._skipped.most_common():
                terminalreporter.write_line(f"{count:5}  {why}")


def reason(longrepr: Any) -> str:
    """Of a skip, in one line."""
    text = longrepr[2] if isinstance(longrepr, tuple | list) else str(longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())
