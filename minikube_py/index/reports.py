"""Reports on declared indexes: the state of each, and the plan of a query. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from minikube_py.index.declared import IndexSpec, from_json, to_json

IndexState = Literal["building", "ready", "degraded"]


class IndexReport(NamedTuple):
    """The state of an index at one member; members build independently.

    `progress`: 0 to 1. `reason`: why it is degraded. `bytes_per_revision`: the cost of a retained row change. Since
    this member started there were `queries` for its objects, of which it answered `hits`."""

    spec: IndexSpec
    state: IndexState
    progress: float
    rows: int
    size_bytes: int
    bytes_per_revision: float
    queries: int
    hits: int
    reason: str = ""


class Choice(NamedTuple):
    """One way to answer: by the declared index `name`, or without one (`name` empty) by the `structure` "columns", or
    "scan" if objects have to be decoded.

    `estimated_us`: the expected cost; `taken_us`: the measured cost (negative: not measured, see `reason`). `found`:
    how many objects it returned."""

    name: str
    structure: str
    estimated_us: float
    taken_us: float
    found: int = 0
    rows_examined: int = 0
    objects_decoded: int = 0
    shards_examined: int = 0
    shards_pruned: int = 0
    false_positives: int = 0
    reason: str = ""


class Explanation(NamedTuple):
    """The plan of a range request with a `where`: `chosen`, and the alternatives `others`, each measured as well.

    `share`: the expected share of the `rows` that match, from a sample. `revision`: the one answered at.
    `scanned_below`: if the store is an etcd, older revisions are answered by scan; 0: none are."""

    chosen: Choice
    others: tuple[Choice, ...]
    share: float
    rows: int
    revision: int
    scanned_below: int = 0


def report_to_plain(report: IndexReport) -> Any:
    return (to_json(report.spec), *report[1:])


def report_from_plain(plain: Sequence[Any]) -> IndexReport:
    """Raises: InvalidRequest, TypeError."""
    return IndexReport(from_json(plain[0]), *plain[1:])


def explanation_to_plain(explanation: Explanation) -> Any:
    # Clients of earlier releases know no more fields, and this store scans at no revision.
    return tuple(explanation[:5])


def explanation_from_plain(plain: Sequence[Any]) -> Explanation:
    """Raises: TypeError."""
    chosen, others, *rest = plain
    return Explanation(Choice(*chosen), tuple([Choice(*each) for each in others]), *rest)
