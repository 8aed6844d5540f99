"""What the documentation shows of the public door runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real_time("real sockets and threads")
ROOT = Path(__file__).parents[3]
PAGES = ("docs/reference/cluster.md", "docs/how-to/virtual-time.md", "docs/how-to/pods-that-fail.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_example_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert snippets
    names: dict[str, Any] = {}
    for snippet in snippets:
        exec(compile(snippet, page, "exec"), names)
