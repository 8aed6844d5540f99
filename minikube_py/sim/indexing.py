"""Declared indexes in a simulated run: what clients declare, how members build, and queries past the planner.

However an answer was computed, it is checked like any other: the checkers look at objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from minikube_py.env import Rng
from minikube_py.errors import RequestError
from minikube_py.fields.builtin import NODES
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import RangeRequest, RangeResult
from minikube_py.sim.declared_fields import drawn_group, sums_of

FIELDS: Final = ("free.cpu", "free.memory", "requested.cpu", "spec.unschedulable", "metadata.name")
STRUCTURES: Final[tuple[tuple[str, dict[str, int | str]], ...]] = (
    ("columns", {}),
    ("scan", {}),
    ("sorted-runs", {"fresh_slots": 16}),
    ("max-tree", {"visit_limit": 2}),
    ("cow-max-tree", {}),
    ("kd-tree", {"decay_percent": 1}),
    ("bitmaps", {"levels": 2, "chunk_slots": 64}),
    ("zones", {"zone_slots": 16}),
    ("joint-zones", {"zone_slots": 16}),
    ("shapes", {"shapes": 2}),
    ("sharded", {"shards": 2}),
)
"""With limits reached by a handful of nodes."""
DECLARING: Final = 0.5
"""Share of the indexes that declare additional fields, which no table holds until one has been built for them."""
BUILD_ROWS: Final = 3
"""Rows added per tick, so that writes, snapshots and elections happen in between."""
BUILD_SLICES_MAX: Final = 10_000


def drawn_spec(rng: Rng, name: str, dropped: IndexSpec | None = None) -> IndexSpec:
    """An index on nodes over one to three fields, or over some that it declares itself, alone or with others; one in
    eight exceeds its memory limit. If one was `dropped`, it may give a field of that one another meaning."""
    structure, options = rng.choice(STRUCTURES)
    start = rng.randrange(len(FIELDS))
    fields = (*FIELDS[start:], *FIELDS[:start])[: rng.choice((1, 2, 3))]
    declares = drawn_group(rng, dropped.declares if dropped else ()) if rng.random() < DECLARING else ()
    if declares:
        fields = (*(added.name for added in declares), *fields[: rng.choice((0, 1))])
    limit_bytes = 1 << 16 if rng.random() < 0.12 else 1 << 28
    return IndexSpec(name, NODES.name, fields, structure, options, limit_bytes, declares, sums_of(declares))


def build_all(state: StateMachine) -> str:
    """Why it does not finish, "" if it does."""
    for _ in range(BUILD_SLICES_MAX):
        if not state.build_indexes(BUILD_ROWS):
            return ""
    return f"indexes are not built after {BUILD_SLICES_MAX} slices: {state.tables.reports()}"


def answers(state: StateMachine, request: RangeRequest) -> Iterator[tuple[RangeResult | None, RequestError | None]]:
    """The answer of each complete index to `request`, which has a `where` on nodes, and neither fields nor a limit."""
    assert request.where is not None
    table = state.tables.by_name[NODES.name]
    for running in table.running.values():
        if running.hosted is None or not running.ready:
            continue
        try:
            # A table's last revision is that of its last change.
            at = request.revision or state.revision
            matches = running.hosted.query(request.where, min(at, table.index.revision))
        except RequestError as error:
            yield None, error
            continue
        standing = [state.get(key, request.revision) for key in matches.keys]
        kvs = [kv for kv in standing if kv is not None]
        yield RangeResult(kvs, matches.count, matches.more, state.revision), None
