"""Chooses the plan of a query: one of the declared indexes, or the host's columns.

Each plan has an estimate in microseconds, based on the share of rows that pass, taken from a sample, and on the
structure's own estimate (`Estimating`); the constants here are measured on the columns (tests/bench)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from minikube_py.fields.where import Test
from minikube_py.index.box import Boxed, bounded
from minikube_py.index.cells import Mask
from minikube_py.index.columns import BLOCK_ROWS
from minikube_py.index.contract import Order
from minikube_py.index.running import Running
from minikube_py.index.table import Table
from minikube_py.own_code import raised

CALL_US: Final = 5.0
"""Cost of querying an index beyond the structure's own work."""
COLUMNS_US: Final = 8.0
TEST_ROW_US: Final = 0.00021
"""One comparison of one row, among many."""
CANDIDATE_US: Final = 0.02
"""Testing one candidate for what its box cannot express."""
RANKED_US: Final = 0.012
"""Looking up one match of an index in key order; the columns can be walked in key order."""
KEY_US: Final = 0.07
"""Returning one key."""
UNKNOWN_US: Final = 20.0
UNKNOWN_MATCH_US: Final = 0.1
"""For a structure without an estimate."""


class Way(NamedTuple):
    """`running` is None for the columns themselves."""

    running: Running | None
    structure: str
    estimated_us: float
    boxed: Boxed | None = None
    """The tests as of planning. Codes of texts may change later."""


COLUMNS: Final = "columns"


class Plan(NamedTuple):
    """The plans, the cheapest first. `share`: the expected share of rows that pass, 0 to 1."""

    ways: list[Way]
    share: float


def plan(table: Table, tests: tuple[Test, ...], limit: int, order: Order) -> Plan:
    """The ways to answer `tests` from `table`. `limit` matters only for ANY: in key order all matches are counted."""
    index = table.index
    rows = index.live
    masks = table.sample.passing(tests)
    wanted = limit if order == "ANY" else 0

    share = _share(masks)
    out_us = (min(limit, rows * share) if limit else rows * share) * KEY_US
    ranked_us = 0.0 if order == "ANY" else rows * share * RANKED_US
    looked_at = rows_looked_at(rows, wanted / share) if wanted else rows
    ways = [Way(None, COLUMNS, COLUMNS_US + out_us + looked_at * TEST_ROW_US * max(1, len(tests)))]
    for running in table.running.values():
        hosted = running.hosted
        if hosted is None or not running.ready or not hosted.askable:
            continue
        box, residual = hosted.boxed(tests)
        if box.empty:
            ways.append(Way(running, running.spec.structure, CALL_US, (box, residual)))
            continue
        if not bounded(box):
            continue
        box_share = share
        if residual:
            fields = running.spec.fields
            box_share = _share([mask for mask, test in zip(masks, tests) if test.field in fields and test.op != "!="])
        candidates = wanted * max(1.0, box_share / share) if residual and wanted else float(wanted)
        if hosted.estimating is not None:
            try:
                find_us = float(hosted.estimating.cost_us(rows, box_share, round(min(candidates, rows))))
            except raised() as error:
                running.failed(error)
                continue
        else:
            find_us = UNKNOWN_US + UNKNOWN_MATCH_US * (candidates or rows * box_share)
        tested = (min(candidates, rows * box_share) if wanted else rows * box_share) if residual else 0.0
        estimated_us = CALL_US + find_us + tested * CANDIDATE_US + ranked_us + out_us
        ways.append(Way(running, running.spec.structure, estimated_us, (box, residual)))
    ways.sort(key=_estimated_us)
    return Plan(ways, share)


def _share(masks: Sequence[Mask]) -> float:
    """The share of rows that pass several tests, given the sample rows that pass each."""
    if not masks:
        return 1.0
    size = len(masks[0]) + 1
    joint = masks[0]
    for mask in masks[1:]:
        joint = joint & mask
    passing = int(np.count_nonzero(joint))
    if passing or len(masks) == 1:
        return (passing + 0.5) / size
    # No match in the sample does not mean none at all: assume independent tests.
    return min(0.5 / size, math.prod([(int(np.count_nonzero(mask)) + 0.5) / size for mask in masks]))


def _estimated_us(way: Way) -> float:
    return way.estimated_us


def rows_looked_at(rows: int, needed: float) -> int:
    """How many of `rows` ANY examines to find `needed` matches: whole blocks, each four times as long as the last."""
    seen, block = 0, BLOCK_ROWS
    while seen < min(rows, needed):
        seen, block = seen + block, block * 4
    return min(rows, max(seen, BLOCK_ROWS))
