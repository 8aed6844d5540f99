"""What the study reads at the top of its design."""

from __future__ import annotations

from typing import Any

from minikube_py.lab.study.design import Design


def of_mode(design: Design, name: str) -> Any:
    return design.raw[name][design.mode]


def batch_count(design: Design) -> int:
    return int(design.raw["batches"])


def limits(design: Design, block: str) -> list[int]:
    return list(design.blocks[block]["limits"][design.mode])


def costs_behind_us(design: Design) -> list[float]:
    return [float(value) for value in design.raw["c_behind_us"]]


def updates_per_query(design: Design) -> list[float]:
    return [float(value) for value in design.raw["updates_per_query"]]
