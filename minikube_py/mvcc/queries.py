"""Queries with a `where`: parsed once, planned and answered.

The plan does not change the answer: a declared index, the table's columns and a scan that decodes every object give the
same keys. Costs are counted, so that a scan is distinguishable from an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from minikube_py.errors import InvalidRequest
from minikube_py.fields.asked import Asked
from minikube_py.fields.extract import SUMS
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Test, read_where, readings_of
from minikube_py.index.contract import Matches, Order
from minikube_py.index.planner import COLUMNS, Plan, Way, plan
from minikube_py.index.reports import Choice
from minikube_py.index.table import Table
from minikube_py.mvcc.event_log import View
from minikube_py.mvcc.key_index import end_of
from minikube_py.mvcc.scanned import Scanned
from minikube_py.mvcc.tables import Tables
from minikube_py.mvcc.types import KeyValue, QueryStats, RangeRequest
from minikube_py.own_code import raised

Tests = tuple[Test, ...]

QUERIES_MAX: Final = 1024
"""Kinds of queries whose parsed form is cached, and per kind the queries whose plan is."""
PLAN_USES: Final = 64
PLAN_CHANGES: Final = 512
"""A plan is renewed after this many uses, or this many changes of rows."""
DECODE_US: Final = 10.0
"""Approximate cost of decoding one object."""


class Query:
    """Shared by all queries on the same keys and fields. `table` is None if no table holds the fields yet."""

    __slots__ = ("asked", "end", "field_set", "first", "plans", "readings", "single", "table")

    def __init__(self, tables: Tables, request: RangeRequest, fields: Sequence[str]) -> None:
        self.field_set, self.asked = tables.covering(request.key, request.range_end, [*fields, *request.fields])
        self.table: Table | None = tables.serving(self.field_set.name, self.asked)
        self.readings = readings_of(self.field_set, fields)
        self.single = not request.range_end
        # Bounds that exclude none of the FieldSet's objects are open.
        prefix = self.field_set.prefix
        end = end_of(request.range_end)
        self.end = end if end is not None and end.startswith(prefix) else None
        self.first = b"" if request.key <= prefix else request.key
        self.plans: dict[tuple[Tests, int, Order], Planned] = {}


class Planned:
    """The chosen plan, and its lifetime."""

    __slots__ = ("changes", "uses", "way")

    def __init__(self, way: Way, changes: int) -> None:
        self.way = way
        self.changes = changes
        self.uses = 0


class Explained(NamedTuple):
    """`ways`: the plans, the chosen one first, with their estimates, and how to run each (None: not to be run)."""

    ways: list[tuple[Choice, Callable[[], tuple[Matches, QueryStats]] | None]]
    share: float
    rows: int
    revision: int


class Queries:
    """Answers the queries of one state machine."""

    def __init__(self, view: View, tables: Tables) -> None:
        self._view = view
        self._tables = tables
        self._version = -1
        self._known: dict[tuple[object, ...], Query] = {}

    def read(self, request: RangeRequest) -> tuple[Query, Tests]:
        """Raises: InvalidRequest."""
        tables = self._tables
        if self._version != tables.version or len(self._known) >= QUERIES_MAX:
            self._known.clear()
            self._version = tables.version
        where = request.where
        fields = () if where is None else tuple([comparison.field for comparison in where.comparisons])
        place = (fields, request.key, request.range_end, request.fields)
        query = self._known.get(place)
        if query is None:
            query = self._known[place] = Query(tables, request, fields)
        return query, () if where is None else read_where(where, query.readings)

    def answer(self, query: Query, tests: Tests, request: RangeRequest, at: int) -> tuple[Matches, QueryStats]:
        """Answers `request`, except its filters and its revision."""
        table = query.table
        if table is None:
            return self._scan(query, tests, request, at)
        for running in table.running.values():
            running.counts.queries += 1
        if query.single or not table.running:
            return _columns(query, table, tests, request, at)
        way = self._plan(query, table, tests, request)
        found, stats = self._go(way, query, table, tests, request, at)
        if way.running is not None and stats.index:
            way.running.counts.hits += 1
        return found, stats

    def _plan(self, query: Query, table: Table, tests: Tests, request: RangeRequest) -> Way:
        place = (tests, request.limit, request.order)
        planned = query.plans.get(place)
        if planned is not None and planned.uses < PLAN_USES:
            running = planned.way.running
            fresh = table.index.changes - planned.changes < PLAN_CHANGES
            if fresh and (running is None or (running.hosted is not None and running.hosted.askable)):
                planned.uses += 1
                return planned.way
        made = _planned(query, table, tests, request)
        if len(query.plans) >= QUERIES_MAX:
            query.plans.clear()
        way = made.ways[0]
        query.plans[place] = Planned(way._replace(boxed=None), table.index.changes)
        return way

    def _go(
        self, way: Way, query: Query, table: Table, tests: Tests, request: RangeRequest, at: int
    ) -> tuple[Matches, QueryStats]:
        running = way.running
        hosted = running.hosted if running is not None and running.ready else None
        if running is None or hosted is None:
            return _columns(query, table, tests, request, at)
        try:
            revision = min(at, table.index.revision)
            matches = hosted.answer(tests, revision, request.limit, request.order, query.first, query.end, way.boxed)
        except raised() as error:
            # A custom structure failed: fall back to the columns.
            running.failed(error)
            return _columns(query, table, tests, request, at)
        _, _, _, examined, shards, pruned, false_positives = matches
        stats = QueryStats(running.spec.structure, examined, 0, running.spec.name, shards, pruned, false_positives)
        return matches, stats

    # -- fields without a table ----------------------------------------------------------------------------------------

    def _scan(self, query: Query, tests: Tests, request: RangeRequest, at: int) -> tuple[Matches, QueryStats]:
        kvs = self._view.index.range_at(request.key, request.range_end, at)
        scanned = self.scanned(query, kvs, at)
        matches = scanned.answer(tests, request.limit)
        return matches, QueryStats("scan", len(scanned.rows), scanned.decoded)

    def scanned(self, query: Query, kvs: list[KeyValue], at: int) -> Scanned:
        """The requested fields of these objects at revision `at`."""
        return Scanned.of(self._view, _only(query.field_set, query.asked), kvs, at)

    # -- explaining ----------------------------------------------------------------------------------------------------

    def explain(self, request: RangeRequest, at: int) -> Explained:
        """Raises: InvalidRequest."""
        if not request.where:
            raise InvalidRequest("nothing to explain without a condition: give at least one comparison")
        query, tests = self.read(request)
        objects = self._view.index.count(request.key, request.range_end)
        table = query.table
        scan = Choice("", "scan", DECODE_US * objects, -1.0)
        if table is None:
            return Explained([(scan, partial(self._scan, query, tests, request, at))], 1.0, objects, at)
        made = _planned(query, table, tests, request)
        ways: list[tuple[Choice, Callable[[], tuple[Matches, QueryStats]] | None]] = []
        for way in made.ways:
            name = "" if way.running is None else way.running.spec.name
            # It runs later, when the texts' codes may have changed.
            tried = partial(self._go, way._replace(boxed=None), query, table, tests, request, at)
            ways.append((Choice(name, way.structure, way.estimated_us, -1.0), tried))
        if query.single:
            # A single object is read directly, whatever indexes there are.
            ways.sort(key=lambda each: each[0].name != "")
        named = {choice.name for choice, _ in ways}
        for name, running in sorted(table.running.items()):
            if name not in named:
                reason = "it has none of the queried fields"
                if not running.ready:
                    reason = f"it is {running.state}"
                elif running.behind:
                    reason = "it is catching up with writes since its last query"
                ways.append((Choice(name, running.spec.structure, -1.0, -1.0, reason=reason), None))
        ways.append((scan._replace(reason="not tried: it would decode every object"), None))
        return Explained(ways, made.share, table.index.live, at)


def _planned(query: Query, table: Table, tests: Tests, request: RangeRequest) -> Plan:
    anywhere = request.order == "ANY" and not query.first and query.end is None
    return plan(table, tests, request.limit, "ANY" if anywhere else "KEY")


def _columns(query: Query, table: Table, tests: Tests, request: RangeRequest, at: int) -> tuple[Matches, QueryStats]:
    index = table.index
    revision = min(at, index.revision)
    if query.single:
        assert request.where is not None
        held = index.matching(request.where, revision, [request.key])[0]
        return Matches([request.key] if held else [], int(held), False, 1), QueryStats(COLUMNS, 1)
    matches = index.answer(tests, revision, request.limit, request.order, query.first, query.end)
    return matches, QueryStats(COLUMNS, matches.rows_examined)


def _only(field_set: FieldSet, asked: Asked) -> FieldSet:
    """The part of a FieldSet that declares these fields."""
    fields = {meaning[0].name for _, meaning in asked if meaning is not None}
    specs = tuple([spec for spec in field_set.fields if spec.name in fields])
    used = {spec.args["sum"] if spec.extractor in SUMS else spec.minus for spec in specs}
    return FieldSet(
        field_set.name, field_set.prefix, specs, tuple([total for total in field_set.sums if total.name in used])
    )
