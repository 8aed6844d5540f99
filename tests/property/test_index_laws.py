"""Every structure of the family under the same laws: by itself, and as an index over revisions.

The examples are the same in each run; `MINIKUBE_PY_LAW_EXAMPLES=5000` and `MINIKUBE_PY_LAW_SEED=7` look deeper, as does
`make laws`. A structure that has limits of its own is tried with small ones too, so that few rows pass them.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import NamedTuple

import pytest

from minikube_py.index import catalogue
from minikube_py.index.catalogue import Options, built_in
from minikube_py.index.structure import Structure
from minikube_py.lab.conformance import history_text, program, work
from minikube_py.lab.conformance.hosting import Hosting
from minikube_py.lab.conformance.laws import dimensions_of, find_counter_example, find_counter_history

EXAMPLES = int(os.environ.get("MINIKUBE_PY_LAW_EXAMPLES", "50"))
SEED = int(os.environ.get("MINIKUBE_PY_LAW_SEED", "0"))
PROGRAMS_A_HISTORY = 4

SMALL: dict[str, tuple[Options, ...]] = {
    "columns": ({"block_slots": 64},),
    "sorted-runs": ({"fresh_slots": 16}, {"fresh_slots": 16, "dimension": 0}),
    "max-tree": ({"visit_limit": 3},),
    "cow-max-tree": ({"visit_limit": 3},),
    "kd-tree": ({"decay_percent": 1, "visit_limit": 3},),
    "bitmaps": ({"levels": 3, "chunk_slots": 64},),
    "zones": ({"zone_slots": 16},),
    "joint-zones": ({"zone_slots": 16}, {"zone_slots": 16, "grid": 2}),
    "shapes": ({"shapes": 2, "members": 16},),
    "sharded": (
        {"shards": 3, "filter": "joint-bitset", "rebuild_percent": 1},
        {"shards": 3, "filter": "bloom", "placing": "sorted"},
        {"shards": 40, "rebuild_percent": 100},
    ),
}
"""Options with which few rows reach what many rows reach without."""


class Kind(NamedTuple):
    structure: str
    options: Options

    def build(self, dimensions: int) -> Structure:
        return catalogue.build(self.structure, dimensions, self.options)

    def __str__(self) -> str:
        return " ".join([self.structure, *(f"{name}={value}" for name, value in self.options.items())])


KINDS = [
    Kind(name, options)
    for name, place in built_in().items()
    if find_spec(place.partition(":")[0])
    for options in ({}, *SMALL.get(name, ()))
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_structure_is_a_dictionary_of_points(kind: Kind) -> None:
    found = find_counter_example(kind.build, EXAMPLES, SEED)
    assert found is None, program.listing(*found, kind.structure)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_index_is_a_dictionary_of_rows_per_revision(kind: Kind) -> None:
    examples = max(1, EXAMPLES // PROGRAMS_A_HISTORY)
    found = find_counter_history(Hosting(kind.build), examples, SEED, max(dimensions_of(kind.build)))
    assert found is None, history_text.listing(*found, str(kind))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_is_compared_is_owned_up_to(kind: Kind) -> None:
    done = work.check_counted(kind.build, min(3, max(dimensions_of(kind.build))))
    assert [each.rows for each in done] == [work.ROWS] * 4
