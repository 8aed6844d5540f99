"""The GitHub workflow, as far as it can be checked without GitHub; actionlint checks its form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

JOBS = yaml.safe_load((Path(__file__).parents[3] / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
CACHES = [
    (job, step["with"]["path"])
    for job in JOBS.values()
    for step in job["steps"]
    if step.get("uses", "").startswith("actions/cache@")
]


@pytest.mark.parametrize(("job", "path"), CACHES)
def test_what_is_cached_has_an_absolute_path(job: dict[str, object], path: str) -> None:
    """actions/cache refuses `.` and `..` when it saves, with a warning only."""
    written = "".join(step.get("run", "") for step in job["steps"])  # type: ignore[attr-defined]
    found = dict(re.findall(r'echo "(\w+)=(.*?)"', written)) | dict(job.get("env", {}))  # type: ignore[call-overload]
    resolved = re.sub(r"\$\{\{ env\.(\w+) \}\}", lambda name: found[name[1]], path)
    assert resolved.startswith(("/", "~/", "$RUNNER_TEMP/")) and not {".", ".."} & set(resolved.split("/"))


def test_something_is_cached() -> None:
    assert CACHES
