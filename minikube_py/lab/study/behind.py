"""Shards that really cost something to open: cold ones on disk, and remote ones at another member."""

from __future__ import annotations

from minikube_py.lab.study.design import Design, Unit
from minikube_py.lab.study.matching import Report


def measure(design: Design, unit: Unit) -> Report:
    """Absent as long as `lab.shards` is not there."""
    return {"candidates": {}, "absent": {"behind": "lab.shards: not there"}}
