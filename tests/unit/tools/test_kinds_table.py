"""The table of kinds in the docs is what is served."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import kinds_table  # noqa: E402

from minikube_py.api.registry import REGISTRY, Registry  # noqa: E402


def test_the_docs_have_the_kinds_of_the_registry() -> None:
    text = kinds_table.PAGE.read_text(encoding="utf-8")
    assert kinds_table.with_table(text) == text


def test_a_kind_that_goes_leaves_the_table() -> None:
    less = Registry(tuple(kind for kind in REGISTRY.kinds if kind.kind != "Lease"))
    assert "Lease" in kinds_table.table() and "Lease" not in kinds_table.table(less)
