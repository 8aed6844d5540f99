"""The README's picture is what `make demo` draws now."""

from pathlib import Path

import pytest

from minikube_py.lab import plots
from minikube_py.lab.demo import DRAWS

PICTURE = Path(__file__).parents[3] / "docs/img/demo.png"


def source_of(picture: Path) -> str:
    image = pytest.importorskip("PIL.Image")
    with image.open(picture) as opened:
        return str(opened.text.get("Source", ""))


def test_the_picture_in_the_readme_was_drawn_by_this_code() -> None:
    assert source_of(PICTURE) == plots.source_digest(*DRAWS), "run `make demo`, and copy its demo.png to docs/img"


def test_a_saved_picture_names_what_drew_it(tmp_path: Path) -> None:
    digest = plots.source_digest(plots.draw_line)
    assert digest != plots.source_digest(plots.draw_heat)
    figure, axes = plots.figure(1, 1, (2, 2))
    plots.draw_line(axes[0][0], [(0.0, 1.0), (1.0, 2.0)], "a", "b")
    assert source_of(plots.save(figure, tmp_path / "a.png", digest)) == digest
    again, axes = plots.figure(1, 1, (2, 2))
    plots.draw_line(axes[0][0], [(0.0, 1.0), (1.0, 2.0)], "a", "b")
    assert source_of(plots.save(again, tmp_path / "b.png")) == ""
