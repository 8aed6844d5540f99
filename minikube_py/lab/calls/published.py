"""Published shares of Kubernetes' calls to etcd, and the same shares of our recording.

Source: etcd PR 20567 (Kubernetes 1.34 e2e, 41,181 calls: by operation, and of txns) and PR 20482 (59,075 ranges).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from minikube_py.lab.calls.recorder import Kind, Recorder

SOURCE: Final = "Kubernetes 1.34 e2e (etcd PRs 20567, 20482)"


class Line(NamedTuple):
    """`published` and `ours` are shares of the calls that `of` names; None if unknown."""

    what: str
    of: str
    published: float | None
    ours: float | None


def mix(recorder: Recorder) -> list[Line]:
    counts = {kind: len(found) for kind, found in recorder.latencies_s.items()}

    def share(wanted: Callable[[Kind], bool], among: Callable[[Kind], bool] = lambda _: True) -> float | None:
        whole = sum(count for kind, count in counts.items() if among(kind))
        return sum(count for kind, count in counts.items() if among(kind) and wanted(kind)) / whole if whole else None

    def operation(name: str) -> Callable[[Kind], bool]:
        return lambda kind: kind.operation == name

    ranges, txns = operation("range"), operation("txn")
    range_count = sum(count for kind, count in counts.items() if ranges(kind))
    txn_count = sum(count for kind, count in counts.items() if txns(kind))

    def part(name: str, whole: int) -> float | None:
        return recorder.parts[name] / whole if whole else None

    return [
        Line("range", "calls", 0.619, share(ranges)),
        Line("txn", "calls", 0.316, share(txns)),
        Line("watch", "calls", 0.048, share(operation("watch"))),
        Line("status", "calls", 0.011, 0.0),
        Line("lease grant", "calls", 0.006, share(operation("lease_grant"))),
        Line("compact", "calls", 0.0001, share(operation("compact"))),
        Line("declare fields", "calls", None, share(operation("declare"))),
        Line("of a single key", "ranges", 0.942, share(lambda kind: kind.shape.startswith("point"), ranges)),
        Line("of many keys", "ranges", 0.058, share(lambda kind: kind.shape.startswith("many"), ranges)),
        Line("at a revision", "ranges", 0.015, share(lambda kind: "at a revision" in kind.shape, ranges)),
        Line("keys only", "ranges", 0.005, part("range.keys_only", range_count)),
        Line("with get-on-failure", "txns", 0.74, part("Txn.failure: range", txn_count)),
        Line("with a lease", "txns", 0.14, part("Put.lease", txn_count)),
    ]
