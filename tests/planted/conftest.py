"""The process that checkers are forked from. After the run: which checker found each planted bug, and how fast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from warm import Warm

ROWS = "planted"
OUTSIDE = (
    "_hypothesis_pytestplugin", "aiohttp.web", "cryptography.x509", "hypothesis.internal.conjecture.engine",
    "hypothesis.stateful", "msgpack", "numpy", "orjson", "pytest_asyncio.plugin", "pytest_timeout", "sortedcontainers",
    "yaml",
)  # fmt: skip
"""What checkers import that is not of the package, of which each has another copy."""


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    warm = Warm(*OUTSIDE)
    yield warm
    warm.close()


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
