"""Where hypothesis keeps its notes during `... check`: where the user says, and not in the working folder otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis.configuration import storage_directory

from minikube_py.cli.index_check import notes_elsewhere

NAMED = "HYPOTHESIS_STORAGE_DIRECTORY"


def test_notes_are_kept_where_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # As hypothesis has read it when it started.
    monkeypatch.setenv(NAMED, "/elsewhere")
    before = storage_directory("constants").path
    with notes_elsewhere():
        assert storage_directory("constants").path == before


def test_notes_are_not_left_in_the_working_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NAMED)
    with notes_elsewhere():
        folder = storage_directory("constants").path.parent
        assert folder.is_dir() and folder != Path.cwd() / ".hypothesis"
    assert not folder.exists() and storage_directory("constants").path.parent != folder
