"""The benchmark of a cluster in a test runs, in turns, and writes what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import bench_door

pytestmark = pytest.mark.real_time("real sockets and threads")


def test_each_row_is_measured_each_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "door.json"
    sizes = ["--turns", "2", "--watches", "2", "--nodes", "2", "--members", "1,3", "--window-s", "3"]
    bench_door.main([*sizes, "--json", str(out)])
    rows = json.loads(out.read_text())["rows"]
    assert list(rows) == [
        "heartbeats of 2 nodes, 1 member", "heartbeats of 2 nodes, 3 members",
        "start and stop, 2 watches", "start and stop, 2 watches, two requests in flight",
    ]  # fmt: skip
    assert all(len(values) == 2 for row in rows.values() for values in row["figures"].values())
    assert all(row["window_s"] == 3 and len(row["load"]) == 2 and row["environment"]["cpus"] for row in rows.values())
    out.write_text(json.dumps({"rows": {**rows, "other": 1}}))
    bench_door.main(["--rows", "start", "--turns", "1", "--watches", "2", "--json", str(out)])
    again = json.loads(out.read_text())["rows"]
    assert again.keys() == {*rows, "other"}
    assert len(again["start and stop, 2 watches"]["figures"]["stop wall ms"]) == 1
    assert "load average" in capsys.readouterr().out


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench_door.options_of(["--rows", "start,stops"])
    assert "stops: there are start, fresh, upstream, restore, heartbeats" in capsys.readouterr().err
