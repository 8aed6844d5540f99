"""After the run: which checker found each planted bug, and how long it took."""

from __future__ import annotations

from typing import Any

ROWS = "planted"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    rows = [
        dict(report.user_properties)[ROWS]
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call" and ROWS in dict(getattr(report, "user_properties", ()))
    ]
    if rows:
        terminalreporter.section("planted bugs")
        for name, found_by, seconds in sorted(rows):
            terminalreporter.write_line(f"{name:48} {seconds:5.1f} s  {found_by}")
