"""Fields that indexes of a simulated run declare themselves, and queries that use them.

One name has two meanings: declaring one while the other is declared is refused, and after that one is dropped, the same
query means something else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from minikube_py.env import Rng
from minikube_py.fields.spec import FieldSpec, SumSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.sim.edges import WIRE_EDGES, Edges

POOL: Final = FieldSpec("pool", "string", "path@1", {"path": "metadata.labels.pool"})
RANK: Final = FieldSpec("rank", "int", "path@1", {"path": "metadata.labels.rank"})
OTHER_RANK: Final = FieldSpec("rank", "int", "path@1", {"path": "metadata.annotations.rank", "default": "2"})
DISK: Final = FieldSpec("disk", "quantity", "path@1", {"path": "status.disk"})
POD_COUNT: Final = SumSpec("pods", b"/registry/pods/", "spec.nodeName", "count@1")
PODS: Final = FieldSpec("pods", "quantity", "sum@2", {"sum": POD_COUNT.name, "resource": ""})

GROUPS: Final[tuple[tuple[FieldSpec, ...], ...]] = (
    (POOL,),
    (RANK,),
    (RANK, POOL),
    (OTHER_RANK,),
    (OTHER_RANK, DISK),
    (PODS, DISK),
)
"""The fields one index declares."""

SUMS: Final = {PODS.name: POD_COUNT}
POOLS: Final = ("a", "b", "c")
DISKS: Final = ("1Gi", "1500M", "2e9", "none")
RANKS: Final = ("1", "2", "+3", "last")
"""The last disk and the last rank are not valid values: the field is missing then."""
EDGE_RANKS: Final = tuple([str(value) for value in WIRE_EDGES])
WHERES: Final = (
    Where((Comparison("pool", "=", ("a",)),)),
    Where((Comparison("pool", "in", ("b", "c")), Comparison("free.cpu", ">=", ("1",)))),
    Where((Comparison("rank", ">=", ("2",)),)),
    Where((Comparison("rank", "<", ("3",)), Comparison("pool", "!=", ("b",)))),
    Where((Comparison("disk", ">=", ("1500M",)), Comparison("spec.unschedulable", "=", ("false",)))),
    Where((Comparison("pods", ">", ("0",)), Comparison("disk", "exists"))),
    Where((Comparison("pods", "<=", ("1",)),)),
)
NAMES: Final = frozenset(added.name for group in GROUPS for added in group)


def drawn_group(rng: Rng, dropped: tuple[FieldSpec, ...]) -> tuple[FieldSpec, ...]:
    """One of the GROUPS; if `dropped` gave a name one meaning, usually the other."""
    for meaning, other in ((RANK, OTHER_RANK), (OTHER_RANK, RANK)):
        if meaning in dropped and rng.random() < 0.7:
            return (other,)
    return rng.choice(GROUPS)


def sums_of(fields: Iterable[FieldSpec]) -> tuple[SumSpec, ...]:
    return tuple([SUMS[added.name] for added in fields if added.name in SUMS])


def asking(known: frozenset[str]) -> tuple[Where, ...]:
    """The queries whose index-declared fields are all among these."""
    return tuple([where for where in WHERES if declared_in(where) <= known])


def declared_in(where: Where) -> frozenset[str]:
    """The fields it uses that an index has to declare."""
    return frozenset(comparison.field for comparison in where.comparisons) & NAMES


def drawn_parts(rng: Rng, edges: Edges) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Metadata and status of a node, as far as they are used here; some of each are missing."""
    labels = {"pool": edges.text(rng.choice(POOLS)), "rank": edges.one(rng.choice(RANKS), EDGE_RANKS)}
    for name in ("pool", "rank"):
        if rng.random() < 0.2:
            del labels[name]
    metadata: dict[str, dict[str, str]] = {"labels": labels}
    if rng.random() < 0.5:
        metadata["annotations"] = {"rank": rng.choice(RANKS)}
    return metadata, {"disk": edges.quantity(rng.choice(DISKS))} if rng.random() < 0.8 else {}
