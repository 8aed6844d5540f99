"""`Where`: a conjunction of comparisons on declared fields, the one language in which indexes are asked.

It travels from `?fieldSelector=free.cpu>=4,free.memory>=16Gi` through the API server to the store. Values travel as
the text the user wrote, and are read by the declared kind of their field where the comparison is evaluated.
A missing field satisfies only `!=`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Op = Literal["=", "!=", "<", "<=", ">", ">=", "in", "exists"]
OPS: frozenset[str] = frozenset(get_args(Op))


@dataclass(frozen=True, slots=True)
class Comparison:
    """`field op values`; `values` holds one text, several for `in`, none for `exists`."""

    field: str
    op: Op
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.op == "exists":
            return self.field
        if self.op == "in":
            return f"{self.field} in ({','.join(self.values)})"
        return f"{self.field}{self.op}{self.values[0]}"


@dataclass(frozen=True, slots=True)
class Where:
    """All of `comparisons` hold. An empty one holds for every object."""

    comparisons: tuple[Comparison, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.comparisons))

    def __bool__(self) -> bool:
        return bool(self.comparisons)
