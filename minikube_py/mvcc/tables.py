"""The declared FieldSets of a store and the indexes over them: which keys they cover, and which table answers a
request.

Only declarations are replicated: the FieldSets, and the indexes, which may add fields. The tables are local to each
member. An extended FieldSet is served by its previous table until a new one has caught up; fields without a table have
to be decoded."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from minikube_py.errors import InvalidRequest
from minikube_py.fields.asked import Asked, asked_of
from minikube_py.fields.evaluate import check_field_set
from minikube_py.fields.spec import FieldSet
from minikube_py.index.columns import COLUMNS_MAX, ColumnIndex
from minikube_py.index.declared import MAX_INDEXES, IndexSpec, check_against, check_spec, extended
from minikube_py.index.ending import Ending
from minikube_py.index.reports import IndexReport
from minikube_py.index.running import Counts, Running
from minikube_py.index.table import Change, Table
from minikube_py.mvcc.decoding import changes_of
from minikube_py.mvcc.event_log import View
from minikube_py.mvcc.key_index import end_of
from minikube_py.mvcc.successor import Successor
from minikube_py.mvcc.types import Event, prefix_end

MAX_FIELD_SETS = 64
NOT_JSON = "are not JSON and cannot be read"

RowsEnded = dict[Table, Ending | None]
"""The prepared part of a large deletion, by table; None if it could not be prepared."""


class Degraded(NamedTuple):
    """A member does not hold all that a FieldSet declares: since when, and why. Answers are the same, by scan;
    declaring the fields or an index on them again rebuilds the table."""

    revision: int
    reason: str

    def __str__(self) -> str:
        return f"degraded since revision {self.revision}: {self.reason}; declare it again to rebuild it"


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


class Tables:
    """`by_name` holds the tables that answer; `declared` the FieldSets as they were declared, `effective` with the
    fields of the indexes `specs`. `version` grows with every change of which table answers."""

    def __init__(self) -> None:
        self.by_name: dict[str, Table] = {}
        self.declared: dict[str, FieldSet] = {}
        self.effective: dict[str, FieldSet] = {}
        self.specs: dict[str, IndexSpec] = {}
        self.degraded: dict[str, Degraded] = {}
        """FieldSets by name, for which no table is built automatically."""
        self.version = 0
        self._counts: dict[str, Counts] = {}
        self._successors: dict[str, Successor] = {}
        self._following: list[tuple[str, Table]] = []
        self._retired: list[Table | Ending] = []
        """Tables no longer used; freeing one at once would take as long as building it."""
        self._prefixes: tuple[bytes, ...] = ()

    # -- declarations --------------------------------------------------------------------------------------------------

    def check(self, field_set: FieldSet, version: int) -> None:
        """Raises: InvalidRequest if it is invalid by the rules of `version`, or exceeds a limit."""
        check_field_set(field_set, version)
        if field_set.name not in self.declared and len(self.declared) >= MAX_FIELD_SETS:
            raise InvalidRequest(f"at most {MAX_FIELD_SETS} field sets can be declared")

    def whole(self, field_set: FieldSet) -> FieldSet:
        """`field_set` with the fields added by the declared indexes."""
        return extended(field_set, self.on(field_set.name))

    def declare(self, field_set: FieldSet, table: Table | None) -> None:
        """`table` answers for it from now on; it was built for the effective FieldSet. None: it could not be built, see
        `degrade`."""
        name = field_set.name
        self.declared[name] = field_set
        self.effective[name] = self.whole(field_set)
        self.degraded.pop(name, None)
        if name in self._successors:
            self._leave(name)
        if table is not None:
            self._put_in(name, table)

    def degrade(self, name: str, revision: int, why: str) -> None:
        """Drops the tables of a FieldSet."""
        self.degraded[name] = Degraded(revision, why)
        if name in self._successors:
            self._leave(name)
        table = self.by_name.pop(name, None)
        if table is not None:
            table.close()
            self._retired.append(table)
        self._feed()
        self.version += 1

    def complete(self, name: str) -> ColumnIndex | None:
        """The rows of a FieldSet if they have all declared fields, at any retained revision."""
        table = self.by_name.get(name)
        return None if table is None or table.index.full else table.index

    def check_index(self, spec: IndexSpec, version: int) -> bool:
        """False: an identical one is declared already. Raises: InvalidRequest."""
        check_spec(spec)
        known = self.specs.get(spec.name)
        if known == spec:
            return False
        if known is not None:
            raise InvalidRequest(f"index {spec.name} is declared already with another definition; drop it first")
        if len(self.specs) >= MAX_INDEXES:
            raise InvalidRequest(f"at most {MAX_INDEXES} indexes can be declared; drop one first")
        base = self.declared.get(spec.on)
        if base is None:
            there = ", ".join(sorted(self.declared)) or "none"
            raise InvalidRequest(
                f"index {spec.name}: no fields are declared on {spec.on!r}; the field sets are: {there}"
            )
        check_against(spec, base, self.on(spec.on), version)
        return True

    def declare_index(self, spec: IndexSpec) -> None:
        """After `check_index`."""
        self.specs[spec.name] = spec
        self._counts[spec.name] = Counts()
        self._extend(spec.on)

    def check_drop(self, name: str) -> None:
        """Raises: InvalidRequest."""
        if name not in self.specs:
            raise InvalidRequest(
                f"there is no index {name[:80]!r}; the indexes are: {', '.join(sorted(self.specs)) or 'none'}"
            )

    def drop_index(self, name: str) -> None:
        """After `check_drop`."""
        spec = self.specs.pop(name)
        del self._counts[name]
        self._extend(spec.on)

    def load_indexes(self, specs: Iterable[IndexSpec]) -> None:
        """The indexes of a restored state, before its FieldSets."""
        for spec in specs:
            self.specs[spec.name] = spec
            self._counts[spec.name] = Counts()

    def on(self, name: str) -> list[IndexSpec]:
        """The indexes on a FieldSet."""
        return [spec for spec in self.specs.values() if spec.on == name]

    def _extend(self, name: str) -> None:
        """The indexes on a FieldSet changed."""
        base = self.declared.get(name)
        if base is None:
            return
        self.effective[name] = self.whole(base)
        self.degraded.pop(name, None)
        successor = self._successors.get(name)
        if successor is not None:
            if successor.table.field_set != self.effective[name]:
                self._leave(name)
            elif successor.caught_up:
                # Before, it answers no query, though it is still fed.
                self._run(name, successor.table)
        if name in self.by_name:
            self._run(name, self.by_name[name])
        self.version += 1

    def _run(self, name: str, table: Table) -> None:
        """Makes `table` hold exactly the declared indexes whose fields it has."""
        wanted = {spec.name: spec for spec in self.on(name)}
        for gone in [each for each, running in table.running.items() if wanted.get(each) != running.spec]:
            table.running.pop(gone).close()
        effective = self.effective[name]
        for spec in wanted.values():
            if spec.name not in table.running and table.serves(asked_of(effective, spec.fields)):
                table.running[spec.name] = Running(spec, table.index, self._counts[spec.name])

    def _put_in(self, name: str, table: Table) -> None:
        former = self.by_name.get(name)
        if former is not None and former is not table:
            former.close()
            self._retired.append(former)
        self.by_name[name] = table
        self._run(name, table)
        self._feed()
        self.version += 1
        if table.index.full:
            self._filled(name, table, table.index.revision)

    def _feed(self) -> None:
        """The tables that receive the changes."""
        self._following = list(self.by_name.items())
        self._following += [(name, each.table) for name, each in self._successors.items() if each.caught_up]
        tables = [table for _, table in self._following]
        self._prefixes = tuple(dict.fromkeys(prefix for table in tables for prefix in table.prefixes))

    def _leave(self, name: str) -> None:
        table = self._successors.pop(name).table
        table.close()
        self._retired.append(table)
        self._feed()

    # -- changes of rows -----------------------------------------------------------------------------------------------

    def prepare(self, revision: int, keys: Sequence[bytes]) -> Generator[None, None, RowsEnded]:
        """Prepares the changes by the deletion of `keys` at `revision`, in slices; nothing may be applied until it is
        done."""
        endings: RowsEnded = {}
        while missing := [table for _, table in self._following if table not in endings]:
            yield
            table = missing[0]
            ending = endings[table] = Ending(revision, len(table.sums))
            try:
                yield from table.prepare(ending, keys)
            except MemoryError:
                raise
            except Exception:
                # It has been dropped meanwhile; or it fails again in `apply`, and is degraded there.
                endings[table] = None
        return endings

    def apply(self, revision: int, events: Sequence[Event], endings: RowsEnded | None = None) -> None:
        """Brings all tables to `revision`; each object's bytes are decoded once. `endings`: the prepared part."""
        if endings is None and True not in [kv[0].startswith(self._prefixes) for _, kv, _ in events]:
            return
        ready = endings or {}
        changes: list[Change] | None = None
        for name, table in self._following:
            full, ending = table.index.full, ready.get(table)
            try:
                if ending is not None:
                    table.finish(ending)
                    self._retired.append(ending)
                    continue
                if changes is None:
                    changes = changes_of(events, self._prefixes)
                if changes:
                    table.apply(revision, changes)
            except MemoryError:
                raise
            except Exception as error:
                self.degrade(name, revision, described(error))
                continue
            if table is self.by_name.get(name) and table.index.full and not full:
                self._filled(name, table, revision)

    def _filled(self, name: str, table: Table, revision: int) -> None:
        """More fields than columns: those without one are answered by scan."""
        why = f"its objects have more than {COLUMNS_MAX} fields; the others are read from the objects"
        self.degraded[name] = Degraded(revision, why)
        if name in self._successors:
            self._leave(name)
        for running in table.running.values():
            if not table.serves(asked_of(self.effective[name], running.spec.fields)):
                running.degrade(why)
        self.version += 1

    def compact(self, revision: int) -> None:
        for name, table in list(self.by_name.items()):
            try:
                table.index.compact(revision)
            except MemoryError:
                raise
            except Exception as error:
                self.degrade(name, revision, described(error))
        for name, successor in list(self._successors.items()):
            try:
                goes_on = successor.compact(revision)
            except MemoryError:
                raise
            except Exception as error:
                self._held_back(name, revision, described(error))
                continue
            if not goes_on:
                self._leave(name)

    # -- building ------------------------------------------------------------------------------------------------------

    @property
    def unbuilt(self) -> bool:
        """Something is left to build, or to free."""
        return (
            bool(self._retired)
            or any(_building(table) is not None or _behind(table) is not None for table in self.by_name.values())
            or any(map(self._outgrown, self.effective))
        )

    def _outgrown(self, name: str) -> bool:
        """Another table is to be built."""
        table = self.by_name.get(name)
        return name not in self.degraded and (table is None or table.field_set != self.effective[name])

    def build(self, view: View, rows: int) -> bool:
        """Adds about `rows` more rows to incomplete tables; True while there is more to do."""
        if self._retired:
            if _disposed(self._retired[-1], rows):
                self._retired.pop()
            return True
        for table in self.by_name.values():
            running = _building(table)
            if running is not None:
                running.build(rows)
                if running.state != "building":
                    self.version += 1
                return True
            running = _behind(table)
            if running is not None:
                running.catch_up(rows)
                return True
        for name in self.effective:
            if self._outgrown(name):
                try:
                    self._succeed(view, name, rows)
                except MemoryError:
                    raise
                except Exception as error:
                    self._held_back(name, view.revision, described(error))
                return True
        return False

    def _held_back(self, name: str, revision: int, why: str) -> None:
        """The fields that an index adds cannot be held; the existing table continues."""
        if name in self._successors:
            self._leave(name)
        self.degraded[name] = Degraded(revision, why)
        self.version += 1

    def _succeed(self, view: View, name: str, rows: int) -> None:
        successor = self._successors.get(name)
        if successor is None:
            successor = self._successors[name] = Successor(view, self.effective[name])
        if not successor.caught_up:
            if successor.step(view, rows):
                self._run(name, successor.table)
                self._feed()
            return
        running = _building(successor.table)
        if running is not None:
            running.build(rows)
            return
        del self._successors[name]
        self._put_in(name, successor.table)

    def check_memory(self) -> None:
        """Drops the indexes that have become too large."""
        for _, table in self._following:
            for running in table.running.values():
                running.check_memory()

    def reports(self) -> list[IndexReport]:
        """The state of each declared index, by name."""
        found = []
        for name, spec in sorted(self.specs.items()):
            table = self.by_name.get(spec.on)
            running = None if table is None else table.running.get(name)
            if table is not None and running is not None:
                report, unread = running.report(), len(table.unreadable)
                if unread and not report.reason:
                    report = report._replace(reason=f"{unread:,} objects {NOT_JSON}")
                found.append(report)
                continue
            if spec.on in self.degraded:
                counts = self._counts[name]
                why = f"{spec.on} is {self.degraded[spec.on]}"
                found.append(IndexReport(spec, "degraded", 0.0, 0, 0, 0.0, counts.queries, counts.hits, why))
                continue
            # Its fields are being added to the table first.
            successor = self._successors.get(spec.on)
            progress = 0.0 if successor is None else successor.progress / 2
            counts = self._counts[name]
            if successor is not None and name in successor.table.running:
                progress += successor.table.running[name].progress / 2
            found.append(IndexReport(spec, "building", progress, 0, 0, 0.0, counts.queries, counts.hits))
        return found

    def unreadable(self) -> dict[str, int]:
        """How many of its objects each answering table could not read, by the name of the FieldSet."""
        return {name: len(table.unreadable) for name, table in self.by_name.items()}

    # -- answering -----------------------------------------------------------------------------------------------------

    def covering(self, key: bytes, range_end: bytes, fields: Sequence[str]) -> tuple[FieldSet, Asked]:
        """The FieldSet that covers the keys of a range and declares the fields. Raises: InvalidRequest."""
        missing = None
        for field_set in self.effective.values():
            if not _within(key, range_end, field_set.prefix):
                continue
            asked = asked_of(field_set, fields)
            missing = next((field for field, meaning in asked if meaning is None), None)
            if missing is None:
                return field_set, asked
        if missing is not None:
            raise InvalidRequest(f"field {missing!r} is not declared for keys under {key.decode('utf-8', 'replace')}")
        raise InvalidRequest(f"no fields are declared for keys under {key.decode('utf-8', 'replace')}")

    def serving(self, name: str, asked: Asked) -> Table | None:
        """The table of a FieldSet, if it holds these fields as currently declared."""
        table = self.by_name.get(name)
        return table if table is not None and table.serves(asked) else None

    def stands(self, name: str, asked: Asked) -> bool:
        """The fields are still declared the same."""
        field_set = self.effective.get(name)
        return field_set is not None and asked_of(field_set, [field for field, _ in asked]) == asked

    def size_bytes(self) -> int:
        size = sum(table.index.stats().size_bytes for _, table in self._following)
        return size + sum(report.size_bytes for report in self.reports())


def _disposed(table: Table | Ending, rows: int) -> bool:
    """True once it is freed completely; what fails is left to Python."""
    try:
        return table.dispose(rows)
    except (LookupError, ValueError, TypeError):
        return True


def _building(table: Table) -> Running | None:
    return next((running for running in table.running.values() if running.state == "building"), None)


def _behind(table: Table) -> Running | None:
    return next((running for running in table.running.values() if running.behind), None)


def _within(key: bytes, range_end: bytes, prefix: bytes) -> bool:
    if not key.startswith(prefix):
        return False
    end = end_of(range_end) if range_end else key
    # All keys of the prefix precede its successor; `end` may be that successor itself.
    return end is not None and (end.startswith(prefix) or end <= prefix_end(prefix))
