"""The README's picture is what `make demo` draws now."""

import json
import re
from pathlib import Path

import pytest

from minikube_py.lab import plots
from minikube_py.lab.demo import DRAWS

DOCS = Path(__file__).parents[3] / "docs"
PICTURE = DOCS / "img/demo.png"


def source_of(picture: Path) -> str:
    image = pytest.importorskip("PIL.Image")
    with image.open(picture) as opened:
        return str(opened.text.get("Source", ""))


def test_the_picture_in_the_readme_was_drawn_by_this_code() -> None:
    assert source_of(PICTURE) == plots.source_digest(*DRAWS), "run `make demo`, and copy its demo.png to docs/img"


def test_the_page_has_the_figures_of_the_picture() -> None:
    """Of its run, which the page keeps."""
    run = json.loads((DOCS / "data/demo.json").read_bytes())
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"## The demo in both forms\n(.*?)\n## ", page, re.DOTALL)
    rows = {row[0]: row[1] for line in section.splitlines() if len(row := line.strip("| ").split(" | ")) == 4}
    assert f"one process, 2026-11-30 ({run['environment']['commit'][:8]})" in section
    calls, asked = run["latencies"]["by_call"], run["asked"]
    told = {name.lower(): f"{at['p50_ms']:,.0f} / {at['p99_ms']:,.0f}" for name, at in calls.items()}
    assert {name.removesuffix(", ms").lower(): row for name, row in rows.items() if row in told.values()} == told
    assert f"{run['pods_running']:,}; {run['replay_s']:.1f}; {run['pods_per_s']:.0f}" in rows.values()
    for key, form in (("index_first_s", ".2f"), ("listing_s", ".0f")):
        assert " / ".join(f"{each[key] * 1000:{form}}" for each in asked) in rows.values()


def test_a_saved_picture_names_what_drew_it(tmp_path: Path) -> None:
    digest = plots.source_digest(plots.draw_line)
    assert digest != plots.source_digest(plots.draw_heat)
    figure, axes = plots.figure(1, 1, (2, 2))
    plots.draw_line(axes[0][0], [(0.0, 1.0), (1.0, 2.0)], "a", "b")
    assert source_of(plots.save(figure, tmp_path / "a.png", digest)) == digest
    again, axes = plots.figure(1, 1, (2, 2))
    plots.draw_line(axes[0][0], [(0.0, 1.0), (1.0, 2.0)], "a", "b")
    assert source_of(plots.save(again, tmp_path / "b.png")) == ""
