"""The real KWOK and ours, each with the same files of stages, on our API server: pods go through the same statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import record_stages
import stage_scenes

pytestmark = [pytest.mark.original, pytest.mark.slow, pytest.mark.timeout(300)]
DATA = Path(__file__).parent / "data" / "stages.json"
SEED, PODS = 2027, 12


@pytest.mark.parametrize("name", stage_scenes.SETS)
def test_pods_go_through_the_same_statuses(name: str, tmp_path: Path) -> None:
    for file, text in json.loads(DATA.read_text())["files"].items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files = stage_scenes.stage_files(tmp_path, name)
    drawn = stage_scenes.scenes(name, SEED, PODS)
    theirs = record_stages.statuses_by_kwok(name, files, drawn, tmp_path)
    assert record_stages.statuses_by_ours(name, files, drawn, tmp_path) == theirs
    assert len(theirs) == PODS
