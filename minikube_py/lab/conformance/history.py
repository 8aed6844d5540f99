"""A history is a sequence of store operations on an index, as data: revisions, queries, compaction, rebuilds.

Expected results come from a dictionary of rows per revision. Quantities are kept as int64 beside their query text, so
that quantity parsing is not tested here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from minikube_py.errors import Compacted, FutureRevision, InvalidRequest
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Comparison, Op, Where
from minikube_py.index.contract import Index, Matches, Order, Row, RowChange
from minikube_py.lab.conformance.program import Broken, guarded
from minikube_py.own_code import raised

THINGS: Final = FieldSet(
    "things",
    b"/t/",
    (
        FieldSpec("cpu", "quantity", "path@1", {"path": "cpu", "resource": "cpu"}),
        FieldSpec("memory", "quantity", "path@1", {"path": "memory"}),
        FieldSpec("n", "int", "path@1", {"path": "n"}),
        FieldSpec("label", "string", "path@1", {"path": "label"}),
        FieldSpec("other", "int", "path@1", {"path": "other"}),
    ),
)
"""The schema of histories; `other` is never an index field."""
INDEXED: Final = ("cpu", "memory", "n", "label")
FIRST_REVISION: Final = 3

Rows = dict[bytes, Row]


class Building(Index, Protocol):
    """An index that is built in slices while its host is written to."""

    def build(self, rows: int) -> bool:
        """Adds about `rows` more; True once complete and ready for queries."""

    def close(self) -> None: ...


I = TypeVar("I", bound=Index)  # noqa: E741


class BuildIndex(Protocol[I]):
    def alone(self, fields: tuple[str, ...], oldest_revision: int, rows: Iterable[RowChange], frozen_max: int) -> I:
        """An index over `fields` of THINGS with `rows` at `oldest_revision` and no earlier history; a Versioned
        structure keeps `frozen_max` states."""

    def beside(self, index: I, fields: tuple[str, ...], frozen_max: int) -> Building:
        """Another index on the rows of `index`, which forwards changes to it; nothing is built yet."""


class Asked(NamedTuple):
    """One comparison: `texts` as written by a user, `values` their meaning."""

    field: str
    op: Op
    texts: tuple[str, ...]
    values: tuple[int | str, ...]


class Apply(NamedTuple):
    """The changes of one revision, `gap` revisions after the last; several keys form one txn."""

    changes: tuple[tuple[bytes, Row | None], ...]
    gap: int = 1


class Query(NamedTuple):
    """`back`: how many retained revisions before the last."""

    asked: tuple[Asked, ...]
    back: int = 0
    limit: int = 0
    order: Order = "KEY"
    start: bytes = b""
    end: bytes | None = None


class Changed(NamedTuple):
    """Changes in the last `back` revisions."""

    back: int


class Compact(NamedTuple):
    back: int


class Restore(NamedTuple):
    """Rebuilds the index: from the rows at the oldest retained revision, or as a snapshot `back` before the last, then
    reapplies all later revisions. `keep`: the old one is kept and queried as well."""

    back: int | None = None
    keep: bool = False


class Declare(NamedTuple):
    """Another index on the same rows, over the fields rotated by `turn`, built by `slice_rows` per event; once complete
    it is queried as well."""

    slice_rows: int
    turn: int = 0


class Drop(NamedTuple):
    """Drops the oldest of the declared indexes."""


Event = Apply | Query | Changed | Compact | Restore | Declare | Drop


@dataclass(frozen=True, slots=True)
class History:
    fields: tuple[str, ...]
    rows: tuple[tuple[bytes, Row], ...]
    events: tuple[Event, ...]
    frozen_max: int = 1 << 30

    def __repr__(self) -> str:
        return f"History({self.fields}, {len(self.rows)} rows, {len(self.events)} events)"


@dataclass(slots=True)
class _Declared:
    index: Building
    slice_rows: int
    ready: bool = False


@dataclass(slots=True)
class _Life(Generic[I]):
    """The indexes under test, which must agree, and the expected results. `indexes` are written to and have their own
    rows; `declared` share the first one's."""

    history: History
    build: BuildIndex[I]
    indexes: list[I]
    states: dict[int, Rows]
    applied: dict[int, tuple[RowChange, ...]] = field(default_factory=dict)
    oldest: int = FIRST_REVISION
    newest: int = FIRST_REVISION
    answers: list[tuple[Where, int, list[bytes]]] = field(default_factory=list)
    declared: list[_Declared] = field(default_factory=list)

    @property
    def asked(self) -> list[Index]:
        return [*self.indexes, *(each.index for each in self.declared if each.ready)]

    def at(self, back: int) -> int:
        return max(self.oldest, self.newest - back)

    def rows(self, revision: int) -> Rows:
        return self.states[max(known for known in self.states if known <= revision)]


def run(build: BuildIndex[I], history: History) -> None:
    """Raises: Broken at the first event that shows a broken law."""
    rows = dict(history.rows)
    index = _built(build, history, FIRST_REVISION, rows, 0)
    life = _Life(history, build, [index], {FIRST_REVISION: rows})
    for number, event in enumerate(history.events, 1):
        if isinstance(event, Apply):
            _apply(life, event, number)
        elif isinstance(event, Query):
            _query(life, event, number)
        elif isinstance(event, Changed):
            _changed(life, event, number)
        elif isinstance(event, Compact):
            _compact(life, life.at(event.back), number)
        elif isinstance(event, Restore):
            _restore(life, event, number)
        elif isinstance(event, Declare):
            _declare(life, event, number)
        elif life.declared:
            life.declared.pop(0).index.close()
        for each in life.declared:
            each.ready = _guarded("an index is built beside writes", number, lambda: each.index.build(each.slice_rows))  # noqa: B023
    _ask_again(life, len(history.events))


def _built(build: BuildIndex[I], history: History, revision: int, rows: Rows, number: int) -> I:
    changes = [RowChange(key, dict(row)) for key, row in rows.items()]
    made: I = _guarded(
        "an index can be built", number, lambda: build.alone(history.fields, revision, changes, history.frozen_max)
    )
    return made


def _declare(life: _Life[I], event: Declare, number: int) -> None:
    turn = event.turn % len(life.history.fields)
    fields = (*life.history.fields[turn:], *life.history.fields[:turn])
    index = _guarded(
        "an index can be declared beside another",
        number,
        lambda: life.build.beside(life.indexes[0], fields, life.history.frozen_max),
    )
    life.declared.append(_Declared(index, event.slice_rows))


def _apply(life: _Life[I], event: Apply, number: int) -> None:
    before = life.rows(life.newest)
    after = dict(before)
    for key, row in event.changes:
        if row is None:
            after.pop(key, None)
        else:
            after[key] = row
    life.newest += event.gap
    life.states[life.newest] = after
    changes = tuple(RowChange(key, None if row is None else dict(row)) for key, row in event.changes)
    life.applied[life.newest] = changes
    really = sorted(key for key, _ in event.changes if before.get(key) != after.get(key))
    for index in life.indexes:
        told = _guarded("apply takes a revision's changes", number, lambda: index.apply(life.newest, changes))  # noqa: B023
        if sorted(told) != really:
            raise Broken(
                "apply returns whose row changed", f"{_keys(really)} did, it told {_keys(sorted(told))}", number
            )


def _compact(life: _Life[I], revision: int, number: int) -> None:
    for index in life.indexes:
        _guarded("compact takes a revision", number, lambda: index.compact(revision))  # noqa: B023
    kept = max(known for known in life.states if known <= revision)
    life.states = {known: rows for known, rows in life.states.items() if known >= kept}
    life.applied = {known: changes for known, changes in life.applied.items() if known > revision}
    life.oldest = max(life.oldest, revision)
    life.answers = [answer for answer in life.answers if answer[1] >= life.oldest]


def _restore(life: _Life[I], event: Restore, number: int) -> None:
    base = life.oldest if event.back is None else life.at(event.back)
    index = _built(life.build, life.history, base, life.rows(base), number)
    for revision, applied in sorted(life.applied.items()):
        if revision > base:
            _guarded("an index can be rebuilt", number, lambda: index.apply(revision, applied))  # noqa: B023
    if event.keep:
        # Both remain and get the same queries; the past that only the old one knows is compacted away.
        life.indexes = [*life.indexes[:1], index]
        _compact(life, base, number)
    else:
        life.indexes = [index]
        life.declared = []
        life.states = {known: rows for known, rows in life.states.items() if known >= base} | {base: life.rows(base)}
        life.applied = {known: applied for known, applied in life.applied.items() if known > base}
        life.oldest = base
        life.answers = [answer for answer in life.answers if answer[1] >= base]


# -- judging -----------------------------------------------------------------------------------------------------------


def holds(asked: Sequence[Asked], row: Row) -> bool:
    """By the query language's definition; a missing field satisfies only `!=`."""
    return all(_one_holds(each, row.get(each.field)) for each in asked)


def _one_holds(asked: Asked, value: Any) -> bool:
    if asked.op == "!=":
        return bool(value != asked.values[0])
    if value is None:
        return False
    if asked.op == "exists":
        return True
    if asked.op in ("=", "in"):
        return value in asked.values
    bound: Any = asked.values[0]
    return bool(
        (asked.op == "<" and value < bound)
        or (asked.op == "<=" and value <= bound)
        or (asked.op == ">" and value > bound)
        or (asked.op == ">=" and value >= bound)
    )


def where_of(asked: Iterable[Asked]) -> Where:
    return Where(tuple(Comparison(each.field, each.op, each.texts) for each in asked))


def _query(life: _Life[I], event: Query, number: int) -> None:
    revision = life.at(event.back)
    rows = life.rows(revision)
    where = where_of(event.asked)
    within = [key for key in sorted(rows) if key >= event.start and (event.end is None or key < event.end)]
    wanted = [key for key in within if holds(event.asked, rows[key])]
    for index in life.asked:
        # Alternating, so that neither check always finds the index already updated by the other.
        may_match_first = number % 2
        if may_match_first:
            _check_may_match(index, event, where, revision, rows, number)
        _check_query(index, event, where, revision, wanted, number)
        _check_pages(index, event, where, revision, wanted, number)
        if not may_match_first:
            _check_may_match(index, event, where, revision, rows, number)
        for key in (*within[:2], b"/t/never"):
            row = _guarded("row can be called", number, lambda: index.row(key, revision))  # noqa: B023
            if row != rows.get(key):
                told = f"{_key(key)} at {revision} was {rows.get(key)}, not {row}"
                raise Broken("row is what was applied, at every retained revision", told, number)
        _check_errors(index, life, where, number)
    if not event.start and event.end is None:
        life.answers.append((where, revision, wanted))


def _check_may_match(index: Index, event: Query, where: Where, revision: int, rows: Rows, number: int) -> None:
    said = _guarded("may_match can be called", number, lambda: index.may_match(where, revision))
    if not said and any(holds(event.asked, row) for row in rows.values()):
        raise Broken("may_match is false only if nothing matches", f"something does at {revision}", number)


def _check_query(index: Index, event: Query, where: Where, revision: int, wanted: list[bytes], number: int) -> None:
    answer: Matches = _guarded(
        "a query works at every retained revision",
        number,
        lambda: index.query(where, revision, event.limit, None, event.order, event.end, event.start),
    )
    shown = wanted[: event.limit] if event.limit else wanted
    if event.order == "KEY":
        if answer.keys != shown:
            told = f"at {revision} {_keys(shown)} hold, it found {_keys(answer.keys)}"
            raise Broken("a query finds what matches at that revision, in key order", told, number)
        if answer.count != len(wanted):
            told = f"{len(wanted)} hold at {revision}, it counted {answer.count}"
            raise Broken("count is the number of all matches", told, number)
    else:
        found = set(answer.keys)
        if len(found) < len(answer.keys) or not found <= set(wanted) or len(found) != len(shown):
            told = f"any {len(shown)} of {_keys(wanted)} at {revision}; it found {_keys(answer.keys)}"
            raise Broken("ANY finds true members, as many as there are up to the limit", told, number)
        if answer.count not in (-1, len(wanted)):
            told = f"{len(wanted)} hold at {revision}, it counted {answer.count}"
            raise Broken("count is the number of all matches, or -1", told, number)
    if answer.more != (len(shown) < len(wanted)):
        told = f"{len(shown)} of {len(wanted)} shown at {revision}, more={answer.more}"
        raise Broken("`more` says whether there are others", told, number)


def _check_pages(index: Index, event: Query, where: Where, revision: int, wanted: list[bytes], number: int) -> None:
    cursor: bytes | None = None
    found: list[bytes] = []
    for _ in range(len(wanted) + 2):
        limit = event.limit or 3
        page: Matches = _guarded(
            "a page can be requested",
            number,
            lambda: index.query(where, revision, limit, cursor, "KEY", event.end, event.start),  # noqa: B023
        )
        found += page.keys
        if not page.more or not page.keys:
            break
        cursor = page.keys[-1]
    if found != wanted:
        told = f"{_keys(wanted)} hold at {revision}, pages of {event.limit or 3} gave {_keys(found)}"
        raise Broken("pages neither repeat nor skip", told, number)


def _check_errors(index: Index, life: _Life[I], where: Where, number: int) -> None:
    for revision, error in ((life.oldest - 1, Compacted), (life.newest + 1, FutureRevision)):
        try:
            index.query(where, revision)
        except error:
            continue
        except raised() as other:
            told = f"{revision}, with {life.oldest} to {life.newest} retained, raised {type(other).__name__}: {other}"
            raise Broken(f"a revision out of reach raises {error.__name__}", told, number) from other
        told = f"{revision} was answered, with {life.oldest} to {life.newest} retained"
        raise Broken(f"a revision out of reach raises {error.__name__}", told, number)


def _changed(life: _Life[I], event: Changed, number: int) -> None:
    after = life.at(event.back)
    wanted = []
    before = life.rows(after)
    for revision in sorted(known for known in life.states if known > after):
        rows = life.states[revision]
        wanted += [(revision, key) for key in sorted({*before, *rows}) if before.get(key) != rows.get(key)]
        before = rows
    for index in life.asked:
        told = _guarded("changed can be called", number, lambda: index.changed(after, life.newest))  # noqa: B023
        if sorted(told) != wanted or [revision for revision, _ in told] != sorted(revision for revision, _ in told):
            shown = f"after {after}: {len(wanted)} changes, it told {len(told)}, or others, or out of order"
            raise Broken("changed returns every change of a row, in order of revision", shown, number)


def _ask_again(life: _Life[I], number: int) -> None:
    """Repeats all earlier queries: later writes must not change their results."""
    for where, revision, wanted in life.answers:
        for index in life.asked:
            found = _guarded("a query can be repeated", number, lambda: index.query(where, revision).keys)  # noqa: B023
            if found != wanted:
                told = f"{str(where) or 'all'!r} at {revision}: {_keys(wanted)} before, {_keys(found)} afterwards"
                raise Broken("an answer about the past is unchanged by later writes", told, number)


def _guarded(law: str, number: int, ask: Callable[[], Any]) -> Any:
    return guarded(law, number, ask, InvalidRequest)


def _key(key: bytes) -> str:
    return key.decode()


def _keys(keys: Sequence[bytes]) -> str:
    more = f" and {len(keys) - 6} more" if len(keys) > 6 else ""
    return "[" + " ".join(map(_key, keys[:6])) + "]" + more
