"""The parts of a report: percentiles, tables, files, the environment above them."""

import io
import math
from datetime import UTC, datetime
from pathlib import Path

import matplotlib
import orjson
import pytest

from minikube_py.control_plane.errors import SetupError
from minikube_py.lab import cluster, environment, plots, report
from minikube_py.lab.measure import percentile, summary_ms
from minikube_py.lab.progress import progress


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        pytest.param([7.0], 50, 7.0, id="one value is every percentile"),
        pytest.param([1, 2, 3, 4], 50, 2, id="nearest rank, no interpolation"),
        pytest.param([4, 1, 3, 2], 50, 2, id="order does not matter"),
        pytest.param(range(1, 101), 99, 99, id="p99 of a hundred"),
        pytest.param(range(1, 101), 100, 100, id="p100 is the greatest"),
        pytest.param(range(1, 101), 0, 1, id="p0 is the smallest"),
        pytest.param([1, 1, 1, 9], 75, 1, id="exactly at a rank"),
        pytest.param([1, 1, 1, 9], 76, 9, id="just above it"),
    ],
)
def test_percentile(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == expected


def test_percentile_of_none_is_nan() -> None:
    assert math.isnan(percentile([], 50))
    assert summary_ms([])["count"] == 0


def test_summary_is_in_milliseconds() -> None:
    assert summary_ms([0.001, 0.002, 0.003]) == {"count": 3, "p50_ms": 2.0, "p90_ms": 3.0, "p99_ms": 3.0, "max_ms": 3.0}


@pytest.mark.parametrize(
    ("value_ms", "text"),
    [(0.0421, "0.042"), (4.273, "4.27"), (42.73, "42.7"), (427.3, "427"), (4273.0, "4,273"), (math.nan, "-")],
)
def test_milliseconds(value_ms: float, text: str) -> None:
    assert report.milliseconds(value_ms) == text


def test_plain_table_lines_up() -> None:
    stream = io.StringIO()
    table = report.Table("Figures", ("name", "ms"))
    table.add("a", 1)
    table.add("longer", 1000)
    report.print_table(table, stream)
    assert stream.getvalue() == "\nFigures\n  name       ms\n  a           1\n  longer   1000\n"


def test_results_of_one_second_do_not_meet(tmp_path: Path) -> None:
    now = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    folders = [report.results_folder(tmp_path, "demo", now) for _ in range(3)]
    assert [folder.name for folder in folders] == [f"demo-20250102-030405{suffix}" for suffix in ("", "-2", "-3")]


def test_a_used_folder_is_not_measured_on(tmp_path: Path) -> None:
    cluster.require_unused(None)
    cluster.require_unused(tmp_path)
    (tmp_path / "member").mkdir()
    with pytest.raises(SetupError, match="holds a control plane already"):
        cluster.require_unused(tmp_path)


def test_results_where_no_folder_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(report.ReportError, match="--results"):
        report.results_folder(tmp_path / "file", "demo", datetime.now(UTC))


def test_json_has_the_environment_first(tmp_path: Path) -> None:
    described = environment.describe(tmp_path, "one process")
    path = report.write_json(tmp_path, "demo", described, {"pods": 3, "none": math.nan})
    document = orjson.loads(path.read_bytes())
    assert list(document)[:3] == ["version", "name", "environment"]
    assert document["environment"]["layout"] == "one process"
    assert document["environment"]["fdatasync_p50_ms"] > 0
    assert document["pods"] == 3 and document["none"] is None


def test_perf_data_is_in_the_originals_form() -> None:
    assert report.perf_data({"running": summary_ms([0.001])}) == {
        "version": "v1",
        "dataItems": [
            {"data": {"Perc50": 1.0, "Perc90": 1.0, "Perc99": 1.0}, "unit": "ms", "labels": {"Metric": "running"}}
        ],
    }


def test_filesystem_of_a_folder_that_is_not_there_is_its_parents(tmp_path: Path) -> None:
    assert environment.filesystem_of(tmp_path) == environment.filesystem_of(tmp_path / "later")


def test_plain_progress_says_the_end_once() -> None:
    stream = io.StringIO()
    with progress("pods", 1000, stream) as shown:
        for done in range(0, 1001, 100):
            shown.update(done)
        shown.update(1000)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1 and lines[0].startswith("pods: 1,000 of 1,000")


def test_pictures_are_pictures_and_leave_matplotlib_as_it_was(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    figure, ((left, right),) = plots.figure(1, 2, (10, 4))
    plots.draw_latency_bars(left, {"bound": summary_ms([0.001, 0.5]), "running": summary_ms([0.01, 2.5])}, "Latency")
    plots.draw_heat(right, [(0.0, [0.0, 0.1]), (1.0, [0.5, 0.9])], "Fill", "nodes")
    path = plots.save(figure, tmp_path / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert dict(matplotlib.rcParams) == before
