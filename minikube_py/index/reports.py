"""What is said of declared indexes to people: how each one stands, and how a question would be answered. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from minikube_py.index.declared import IndexSpec, from_json, to_json

IndexState = Literal["building", "ready", "degraded"]


class IndexReport(NamedTuple):
    """How an index stands at the member that was asked; members build on their own.

    `progress`: 0 to 1. `reason`: why it is degraded. `bytes_per_revision`: what a retained change of a row costs.
    Since this member started there were `queries` for its objects, and it answered `hits` of them."""

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
    "scan" where objects have to be decoded.

    `estimated_us`: what it was expected to cost; `taken_us`: what it did cost when it was tried (negative: it was not,
    and `reason` says why). `found`: how many objects it gave."""

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
    """How a range request with a `where` is answered: by `chosen`; `others` are the other ways, each tried as well.

    `share`: the part of the `rows` that was expected to match, from a sample. `revision`: the one answered at.
    `scanned_below`: older revisions are answered by scan, where the store is an etcd; 0: none are."""

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
    # Clients of earlier releases know no more, and a store of ours scans at no revision.
    return tuple(explanation[:5])


def explanation_from_plain(plain: Sequence[Any]) -> Explanation:
    """Raises: TypeError."""
    chosen, others, *rest = plain
    return Explanation(Choice(*chosen), tuple([Choice(*each) for each in others]), *rest)
