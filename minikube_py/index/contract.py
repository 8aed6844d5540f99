"""The contract of every index. All structures give the same answers; they differ only in cost.

An index covers the objects of one FieldSet. A row is one object's values of the declared fields. It answers at every
retained revision: from the compacted one to the last applied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import CompiledWhere, Test, Where, compile_where

Value = int | str
Row = Mapping[str, Value]
"""Field name to value; a missing field is absent. Quantities are already int64."""

Order = Literal["KEY", "ANY"]


class RowChange(NamedTuple):
    """The row of `key` became `row`; None: the object was deleted."""

    key: bytes
    row: Row | None


class Matches(NamedTuple):
    """`keys` in key order for KEY. `count` is that of all matches, whatever the limit; -1 if ANY did not count. `more`:
    there are matches after the last key. Of the shards examined, `false_positives` held no match."""

    keys: list[bytes]
    count: int  # type: ignore[assignment]
    more: bool
    rows_examined: int
    shards_examined: int = 0
    shards_pruned: int = 0
    false_positives: int = 0


@dataclass(frozen=True, slots=True)
class IndexStats:
    structure: str
    rows: int
    retained_versions: int
    size_bytes: int
    oldest_revision: int
    revision: int


class Index(Protocol):
    def apply(self, revision: int, changes: Iterable[RowChange]) -> list[bytes]:
        """Applies the changes of one revision (ascending); returns the keys whose row really changed."""

    def query(
        self,
        where: Where,
        revision: int,
        limit: int = 0,
        cursor: bytes | None = None,
        order: Order = "KEY",
        end: bytes | None = None,
        start: bytes = b"",
    ) -> Matches:
        """The keys for which `where` held at `revision`: in [start, end), and after `cursor` (exclusive) if given.
        `count` is that of the same part of the keys.

        Raises: Compacted below the oldest retained revision, FutureRevision above the last applied one, InvalidRequest
        if a value does not parse as its field's kind."""

    def row(self, key: bytes, revision: int) -> Row | None:
        """The row of `key` at `revision`, None if the object did not exist."""

    def changed(self, after: int, until: int) -> list[tuple[int, bytes]]:
        """(revision, key) of every row change in (after, until], in order of revision."""

    def may_match(self, where: Where, revision: int) -> bool:
        """False only if nothing matches: the answer permitted to a filter in front of this index."""

    def compact(self, revision: int) -> None:
        """Drops what only revisions below `revision` need; `revision` itself can still be queried."""

    def stats(self) -> IndexStats: ...


class Answering(ABC):
    """Implements `query` by `answer`, which takes a parsed `where`.

    `require_retained` raises Compacted below the oldest retained revision, FutureRevision above the last applied."""

    field_set: FieldSet
    require_retained: Callable[[int], None]

    def query(
        self,
        where: Where,
        revision: int,
        limit: int = 0,
        cursor: bytes | None = None,
        order: Order = "KEY",
        end: bytes | None = None,
        start: bytes = b"",
    ) -> Matches:
        tests = self._compiled(where, revision).tests
        first = start if cursor is None else max(start, cursor + b"\0")
        return self.answer(tests, revision, limit, order, first, end)

    @abstractmethod
    def answer(
        self,
        tests: tuple[Test, ...],
        revision: int,
        limit: int,
        order: Order,
        first: bytes = b"",
        end: bytes | None = None,
    ) -> Matches:
        """`query` with a parsed `where`, for the keys in [first, end). The revision must be retained."""

    def _compiled(self, where: Where, revision: int) -> CompiledWhere:
        self.require_retained(revision)
        return compile_where(self.field_set, where)


class Follower(Protocol):
    """Keeps derived data beside the rows, and is notified of their changes (`ColumnIndex.follow`)."""

    def column_added(self, name: str, column: int) -> None:
        """Field `name` is in `column` from now on; also called for existing columns when it starts to follow."""

    def row_changed(self, slot: int, columns: int) -> None:
        """The row in `slot` changed in `columns`, a bit set; -1: it was created or deleted."""

    def rows_changed(self, slots: Sequence[int], columns: int) -> None:
        """The same for many rows."""

    def revision_applied(self, revision: int) -> None:
        """All changes of `revision` so far have been reported."""

    def rows_compacted(self, revision: int) -> None:
        """State needed only by earlier revisions is dropped."""
