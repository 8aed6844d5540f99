"""The notebook of the docs in a real Jupyter kernel: each cell runs, and prints what the page shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from patience import PATIENCE_S
from up_process import program_in

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"


def shown(notebook: Any) -> list[list[str]]:
    """What each cell prints and returns; of a picture, that it is one."""
    found = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        # A kernel cuts what is printed where it likes.
        texts = ["".join(each["text"] for each in outputs if each.output_type == "stream")]
        data = [each["data"] for each in outputs if "data" in each]
        texts += ["a picture" if "image/png" in each else each["text/plain"] for each in data]
        found.append([text for text in texts if text])
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_shows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Frozen modules, of which the kernel's debugger would speak in an output.
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("PATH", f"{program_in(tmp_path)}:{os.environ['PATH']}")
    notebook = nbformat.read(path, as_version=4)
    before = shown(notebook)
    assert any(before)
    NotebookClient(notebook, timeout=PATIENCE_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert shown(notebook) == before
