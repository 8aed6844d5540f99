"""The parts of the state machine, each beside a model that says all of it: versions by key, events by revision, what
both take, leases, plans and their counts, and who answers since when."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest, LeaseExists, LeaseNotFound, NoSpace
from minikube_py.fields.spec import FieldSet, FieldSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.contract import Matches
from minikube_py.index.declared import IndexSpec
from minikube_py.index.planner import Plan, Way
from minikube_py.mvcc import alarms, queries, snapshot, successor, tables
from minikube_py.mvcc.alarms import NOSPACE, Alarms
from minikube_py.mvcc.event_log import EVENT_BYTES, EventLog
from minikube_py.mvcc.key_index import KEY_VALUE_BYTES, KeyIndex
from minikube_py.mvcc.lease import MAX_TTL_S, Leases
from minikube_py.mvcc.queries import PLAN_CHANGES, PLAN_USES, QUERIES_MAX
from minikube_py.mvcc.reads import LIMIT_REACHABLE
from minikube_py.mvcc.snapshot import BASE, EVENTS, HEAD, LEASE, is_record
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.successor import Successor
from minikube_py.mvcc.tables import described
from minikube_py.mvcc.types import (
    Alarm,
    Compact,
    DeclareFields,
    DeclareIndex,
    DropIndex,
    Event,
    KeyValue,
    Put,
    RangeRequest,
    Release,
    SetAlarm,
    Txn,
)
from minikube_py.mvcc.watch import WatchHub

# -- versions by key ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from([b"a", b"aa", b"b", b"c", b"d"])
ENDS = st.sampled_from([b"", b"\0", b"b", b"c", b"e"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete", "trim"]), NAMES, st.binary(max_size=4)), max_size=40
)


class Versions:
    """Of each key what was written, as (revision, value; None where it ended)."""

    def __init__(self) -> None:
        self.of: dict[bytes, list[tuple[int, bytes | None]]] = {}
        self.oldest = 0

    def at(self, key: bytes, revision: int) -> tuple[int, bytes] | None:
        found = [each for each in self.of.get(key, []) if each[0] <= revision]
        return None if not found or found[-1][1] is None else found[-1]  # type: ignore[return-value]

    def range(self, key: bytes, end: bytes, revision: int) -> list[tuple[bytes, int, bytes]]:
        names = [name for name in sorted(self.of) if within(name, key, end)]
        return [(name, *found) for name in names if (found := self.at(name, revision)) is not None]

    def kept(self) -> list[tuple[bytes, bytes]]:
        """Keys and values of all versions that somebody can still ask for."""
        found = []
        for key, versions in self.of.items():
            for (revision, value), following in zip(versions, [*versions[1:], None], strict=True):
                seen = following is None or following[0] > self.oldest
                if seen and (value is not None or revision > self.oldest):
                    found.append((key, value or b""))
        return found


def within(name: bytes, key: bytes, end: bytes) -> bool:
    return name == key if not end else key <= name and (end == b"\0" or name < end)


def shown(kvs: list[KeyValue]) -> list[tuple[bytes, int, bytes]]:
    return [(kv.key, kv.mod_revision, kv.value) for kv in kvs]


@given(STEPS, NAMES, ENDS, st.integers(0, 4), st.integers(1, 3))
def test_an_index_of_keys_answers_and_weighs_as_the_versions_do(
    steps: list[tuple[str, bytes, bytes]], key: bytes, end: bytes, limit: int, page: int
) -> None:
    index, model, revision = KeyIndex(), Versions(), 0
    for what, name, value in steps:
        if what == "trim":
            model.oldest = revision
            index.trim([b"a", b"aa", b"b", b"c", b"d", b"none"], revision)
        elif what == "put" or name in index.current:
            revision += 1
            before = model.at(name, revision)
            event = index.put(name, value, revision, 7) if what == "put" else index.delete(name, revision)
            model.of.setdefault(name, []).append((revision, value if what == "put" else None))
            assert event.type == what.upper() and event.kv.mod_revision == revision and event.kv.key == name
            assert (event.prev_kv and (event.prev_kv.mod_revision, event.prev_kv.value)) == before
        weight = sum(len(name) + len(value) + KEY_VALUE_BYTES for name, value in model.kept())
        assert index.size_bytes == weight
        assert list(index.live) == sorted(index.current) and not set(index.dead) & set(index.live)
        assert set(index.dead) <= set(index.history)
    assert shown(index.range(key, end)) == model.range(key, end, revision)
    assert shown(index.range(key, end, limit)) == model.range(key, end, revision)[: limit or None]
    assert list(index.keys(key, end)) == [name for name, _, _ in model.range(key, end, revision)]
    assert index.count(key, end) == len(model.range(key, end, revision))
    for at in range(model.oldest, revision + 1):
        wanted = model.range(key, end, at)
        assert shown(index.range_at(key, end, at)) == wanted
        assert shown(index.range_at(key, end, at, limit)) == wanted[: limit or None]
        if end:
            found: list[KeyValue] = []
            start: bytes | None = key
            while start is not None:
                some, start = index.page_at(start, end, at, page)
                found += some
            assert shown(found) == wanted
    whole, sliced = KeyIndex(), KeyIndex()
    present = index.range(b"\0", b"\0")
    whole.load(present)
    for kv in present:
        sliced.load_more([kv])
    for loaded in (whole, sliced):
        assert loaded.range(b"\0", b"\0") == present
        assert loaded.size_bytes == sum(len(kv.key) + len(kv.value) + KEY_VALUE_BYTES for kv in present)


@given(
    st.lists(st.one_of(st.integers(0, 3), st.tuples(st.just("trim"), st.integers(0, 12))), max_size=30),
    st.integers(1, 5),
)
def test_a_log_of_events_holds_what_was_not_trimmed(steps: list[Any], first: int) -> None:
    log, model = EventLog(first), {}
    revision = oldest = first
    for step in steps:
        if isinstance(step, tuple):
            log.trim(first + step[1])
            oldest = max(oldest, min(first + step[1], revision))
        else:
            model[revision] = tuple(Event("PUT", KeyValue(b"k", b"", 1, revision, at, 0), None) for at in range(step))
            log.append(model[revision])
            revision += 1
        kept = {at: events for at, events in model.items() if at >= oldest}
        assert (log.first, log.last) == (oldest, revision - 1)
        assert log.size_bytes == EVENT_BYTES * sum(map(len, kept.values()))
        for after in range(oldest - 1, revision):
            for until in range(after, revision):
                wanted = [kept[at] for at in range(after + 1, until + 1)]
                assert log.between(after, until) == wanted
                assert log.flat(after, until) == [event for events in wanted for event in events]
        assert all(log.at(at) == events for at, events in kept.items())


def test_a_log_gives_its_room_back() -> None:
    log = EventLog(1)
    for _ in range(5000):
        log.append(())
    for upto in range(1, 5001, 7):
        log.trim(upto)
        assert len(log._entries) - (5001 - upto) <= max(1031, (5001 - upto) // 3 + 8)
    assert log.last == 5000


# -- leases ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from([-5, 0, 1, 2, 3, MAX_TTL_S, MAX_TTL_S + 1]), st.integers(0, 2), NAMES
        ),
        max_size=20,
    )
)
def test_leases_are_granted_once_within_their_bounds_and_hold_each_key_once(
    steps: list[tuple[int, int, int, bytes]],
) -> None:
    leases, model, holds = Leases(), {}, {}
    for lease_id, ttl_s, granted, key in steps:
        if not lease_id or ttl_s > MAX_TTL_S or lease_id in model:
            wanted = LeaseNotFound if not lease_id else InvalidRequest if ttl_s > MAX_TTL_S else LeaseExists
            with pytest.raises(wanted):
                leases.grant(lease_id, ttl_s, granted)
        else:
            model[lease_id] = granted
            lease = leases.grant(lease_id, ttl_s, granted)
            assert (lease.ttl_s, lease.granted, lease.remaining_s) == (max(2, ttl_s), granted, 0)
        if lease_id in model:
            leases.move(key, holds.get(key, 0), lease_id)
            holds[key] = lease_id
        elif key in holds:
            leases.move(key, holds.pop(key), 0)
        for number in range(4):
            for asked in range(3):
                if number in model and asked in (0, model[number]):
                    assert leases.get(number, asked).id == number
                else:
                    with pytest.raises(LeaseNotFound):
                        leases.get(number, asked)
            assert leases.revoke_of(number) == (number, model.get(number, 0))
    leases.move(b"x", 99, 0)
    assert {key: number for number in model for key in leases.by_id[number].keys} == holds


# -- room under an alarm -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "exact"), [("GROWTH_BYTES_MAX", 6), ("REWRITTEN_BYTES_MAX", 2 * (1 + 4 + 6)), ("GROWN_BYTES_MAX", 12)]
)
def test_what_releases_may_add_and_rewrite_is_counted_to_the_byte(
    limit: str, exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing = {key: KeyValue(key, b"four", 2, 2, 1, 0) for key in (b"a", b"b")}
    for over in (0, 1):
        monkeypatch.setattr(alarms, limit, exact - over)
        held = Alarms()
        held.set(SetAlarm(True, 1, NOSPACE))
        ops = [Put(b"a", b"fourandsix")], [Put(b"b", b"fourandsix")]
        refused = 0
        for each in ops:
            try:
                held.released(*held.release(each, standing))
            except NoSpace:
                refused += 1
        assert refused == (over if limit != "GROWTH_BYTES_MAX" else 2 * over)
        done = 2 - refused
        assert (held.rewritten_bytes, held.grown_bytes) == (11 * done, 6 * done)
        if limit != "REWRITTEN_BYTES_MAX":
            assert held.release([Put(b"b", b"", ignore_value=True)], standing) == (5, 0)
        held.set(SetAlarm(False, 1, NOSPACE))
        assert (held.rewritten_bytes, held.grown_bytes) == (0, 0)


def test_a_number_of_alarms_is_bounded_and_clearing_takes_what_is_named() -> None:
    held = Alarms()
    for member in range(1, alarms.ALARMS_MAX + 1):
        held.set(SetAlarm(True, member, NOSPACE))
    with pytest.raises(InvalidRequest, match=f"{alarms.ALARMS_MAX} alarms"):
        held.set(SetAlarm(True, 999, NOSPACE))
    held.set(SetAlarm(False, 5, "other"))
    assert Alarm(5, NOSPACE) in held.raised
    held.set(SetAlarm(False, 5))
    assert Alarm(5, NOSPACE) not in held.raised and len(held.raised) == alarms.ALARMS_MAX - 1
    held.set(SetAlarm(False, 0, NOSPACE))
    assert held.raised == set()


# -- fields and indexes ------------------------------------------------------------------------------------------------

FIELDS = FieldSet("things", b"/t/", (FieldSpec("n", "int", "path@1", {"path": "n"}),))
OTHER = FieldSet("others", b"/o/", (FieldSpec("n", "int", "path@1", {"path": "n"}),))
BY_N = IndexSpec("by-n", "things", ("n",), "sorted-runs")
IS_1 = Where((Comparison("n", "=", ("1",)),))
ASKED = RangeRequest(b"/t/", b"/t0", where=IS_1)


def thing(at: int, n: int) -> Put:
    return Put(b"/t/%03d" % at, b'{"metadata":{"name":"t"},"n":%d}' % n)


def declared(things: int = 20) -> StateMachine:
    state = StateMachine()
    for at in range(things):
        state.apply(thing(at, at % 3))
    state.apply(DeclareFields(FIELDS))
    state.apply(DeclareIndex(BY_N))
    while state.build_indexes(1000):
        pass
    return state


@pytest.mark.parametrize("size", [199, 200, 201, 500])
def test_the_reason_of_a_failure_is_kept_up_to_200_characters(size: int) -> None:
    text = described(ValueError("x" * (size - len("ValueError: "))))
    assert text == ("ValueError: " + "x" * 1000)[: min(size, 200)]


def plans_made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    planned = queries._planned

    def noting(*arguments: Any) -> Any:
        made.append(arguments)
        return planned(*arguments)

    monkeypatch.setattr(queries, "_planned", noting)
    return made


def test_a_plan_is_used_so_often_and_for_so_many_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plans_made(monkeypatch)
    state = declared()
    for used in range(1, 2 * (PLAN_USES + 1) + 1):
        state.range(ASKED)
        assert len(made) == 1 + (used - 1) // (PLAN_USES + 1)
    state.range(ASKED._replace(limit=3))
    state.range(ASKED._replace(order="ANY"))
    state.range(ASKED._replace(where=Where((Comparison("n", "=", ("2",)),))))
    assert len(made) == 5, "each question has its own"
    for changes, again in ((PLAN_CHANGES - 1, 0), (PLAN_CHANGES, 1)):
        state = declared()
        state.range(ASKED)
        made.clear()
        table = state.tables.by_name["things"]
        before = table.index.changes
        while table.index.changes - before < changes:
            state.apply(thing(table.index.changes % 20, table.index.changes))
        while state.build_indexes(1000):
            pass
        assert table.index.changes - before == changes
        state.range(ASKED)
        assert len(made) == again


def test_only_so_many_questions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "QUERIES_MAX", 4)
    state = declared()
    kept = state._reads._queries._known
    sizes = []
    for at in range(9):
        state.range(ASKED._replace(key=b"/t/%d" % at))
        sizes.append(len(kept))
    assert sizes == [1, 2, 3, 4, 1, 2, 3, 4, 1] and QUERIES_MAX == 1024
    state = declared()
    sizes = []
    for at in range(9):
        state.range(ASKED._replace(limit=at + 1))
        [query] = state._reads._queries._known.values()
        sizes.append(len(query.plans))
    assert sizes == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    version = state._reads._queries._version
    state.apply(DeclareFields(OTHER))
    state.range(ASKED)
    assert state._reads._queries._version != version and len(state._reads._queries._known) == 1


def test_what_an_index_says_it_did_is_told_under_its_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    state = declared()
    running = state.tables.by_name["things"].running["by-n"]
    counts = running.counts.queries, running.counts.hits
    hosted: Any = running.hosted
    answer = Matches([b"/t/001"], 1, False, 11, 22, 33, 44)
    monkeypatch.setattr(hosted, "answer", lambda *arguments: answer)
    way = Way(running, "sorted-runs", 1.0)
    monkeypatch.setattr(queries, "_planned", lambda *arguments: Plan([way], 1.0))
    stats = state.range(ASKED).stats
    assert stats is not None
    assert (stats.structure, stats.index, stats.rows_examined, stats.objects_decoded) == ("sorted-runs", "by-n", 11, 0)
    assert (stats.shards_examined, stats.shards_pruned, stats.false_positives) == (22, 33, 44)
    assert (running.counts.queries, running.counts.hits) == (counts[0] + 1, counts[1] + 1)

    def fails(*arguments: Any) -> Any:
        raise ValueError("a bug of its own")

    monkeypatch.setattr(hosted, "answer", fails)
    found = state.range(ASKED)
    assert [kv.key for kv in found.kvs] == [b"/t/%03d" % at for at in range(20) if at % 3 == 1]
    assert found.stats is not None and found.stats.index == "" and running.state != "ready"
    assert running.counts.hits == counts[1] + 1


def test_a_limit_that_no_store_reaches_is_none() -> None:
    state = declared()
    for limit, counts in ((LIMIT_REACHABLE - 1, True), (LIMIT_REACHABLE, False), (-1, False), (0, False), (1, True)):
        seen: list[int] = []
        range_ = state.index.range

        def noting(key: bytes, end: bytes, limit: int, seen: list[int] = seen, range_: Any = range_) -> Any:
            seen.append(limit)
            return range_(key, end, limit)

        state.index.range = noting  # type: ignore[method-assign]
        state.range(RangeRequest(b"/t/", b"/t0", limit=limit))
        state.index.range = range_  # type: ignore[method-assign]
        assert seen == [limit + 1 if counts else 0]


def test_each_change_of_who_answers_is_a_new_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever keeps something for one version asks again."""
    state = StateMachine()
    seen = [state.tables.version]

    def later() -> None:
        assert state.tables.version > seen[-1]
        seen.append(state.tables.version)

    state.apply(thing(1, 1))
    assert state.tables.version == seen[-1], "objects alone change nothing"
    state.apply(DeclareFields(FIELDS))
    later()
    state.apply(DeclareFields(OTHER))
    later()
    state.apply(DeclareIndex(BY_N))
    later()
    while state.build_indexes(1000):
        pass
    later()
    state.tables.degrade("others", state.revision, "why")
    later()
    assert [name for name, _ in state.tables._following] == ["things"] and "others" not in state.tables.by_name
    wider = IndexSpec(
        "wide", "things", ("n", "m"), "kd-tree", declares=(FieldSpec("m", "int", "path@1", {"path": "m"}),)
    )
    state.apply(DeclareIndex(wider))
    later()

    def fails(*arguments: Any) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr(tables, "Successor", fails)
    while state.build_indexes(1000):
        pass
    later()
    assert "a bug" in state.tables.degraded["things"].reason
    state.apply(DropIndex("wide"))
    later()
    state.apply(DropIndex("by-n"))
    later()


def test_so_many_sets_of_fields_may_be_declared_and_one_that_is_there_again() -> None:
    state = StateMachine()
    for at in range(tables.MAX_FIELD_SETS):
        state.apply(DeclareFields(FieldSet(f"s{at}", b"/t/", FIELDS.fields)))
    with pytest.raises(InvalidRequest, match="at most 64"):
        state.apply(DeclareFields(FIELDS))
    state.apply(DeclareFields(FieldSet("s5", b"/x/", FIELDS.fields)))
    assert state.tables.declared["s5"].prefix == b"/x/"


@pytest.mark.parametrize("objects", [0, 1, 2, 7])
def test_a_successor_reads_all_that_stood_and_then_what_came_after_a_slice_at_a_time(objects: int) -> None:
    state = StateMachine()
    for at in range(objects):
        state.apply(thing(at, at))
    state.apply(Compact(state.revision)) if objects else None
    oldest = successor.oldest_revision(state)
    assert oldest == max(state.compact_revision, 1)
    reading = Successor(state, FIELDS)
    assert reading.progress == 0.0 and reading.position == oldest
    state.apply(thing(50, 1))
    state.apply(thing(0, 9))
    told, steps = [], 0
    while not reading.step(state, 1):
        told.append(reading.progress)
        steps += 1
        assert steps < 100
    assert told == sorted(told) and all(0 <= each <= 0.99 for each in told) and reading.progress == 1.0
    assert reading.objects == objects and reading.position == state.revision
    for at in range(objects):
        assert told[min(at, len(told) - 1)] <= (at + 1) / max(1, objects)
    rows = reading.table.index.rows([b"/t/%03d" % at for at in (0, 50)], state.revision)
    assert [row and row.get("n") for row in rows] == [9, 1]
    if objects:
        rows = reading.table.index.rows([b"/t/000"], oldest)
        assert [row and row.get("n") for row in rows] == [0]


def test_a_successor_that_a_compaction_overtakes_cannot_go_on() -> None:
    state = StateMachine()
    state.apply(thing(1, 1))
    behind = Successor(state, FIELDS)
    state.apply(thing(2, 1))
    assert behind.compact(behind.position) and not behind.compact(behind.position + 1)
    while not behind.step(state, 100):
        pass
    assert behind.compact(state.revision)


def test_a_release_is_a_txn_that_may_rewrite_under_the_alarm() -> None:
    state = StateMachine()
    state.apply(Put(b"a", b"four"))
    state.apply(SetAlarm(True, 1, NOSPACE))
    with pytest.raises(NoSpace):
        state.apply(Put(b"a", b"fours"))
    state.apply(Release(Txn((), (Put(b"a", b"fours"),))))
    assert (state.alarms.rewritten_bytes, state.alarms.grown_bytes) == (1 + 5, 1)
    with pytest.raises(NoSpace):
        state.apply(Release(Txn((), (Put(b"new", b""),))))


# -- what is left out, what fails, what another ends -------------------------------------------------------------------

RECORDS: dict[str, tuple[list[Any], int]] = {
    "head": ([HEAD, 3, 9, 1, 0, 2], 6),
    "base": ([BASE, b"k", b"v", 1, 2, 3, 0], 7),
    "events": ([EVENTS, 5, [[b"k", b"v", 0], [b"k"]]], 3),
    "lease": ([LEASE, 7, 30, 0], 4),
    "fields": ([snapshot.FIELDS, ["pods"]], 2),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_a_snapshot_has_all_its_parts_each_of_its_type(name: str) -> None:
    whole, least = RECORDS[name]
    assert is_record(whole)
    for size in range(least):
        assert not is_record(whole[:size]), size
    for at in range(1, least):
        assert not is_record([*whole[:at], None, *whole[at + 1 :]]), at
    assert not is_record(tuple(whole)) and not is_record([str(whole[0]), *whole[1:]])


@pytest.mark.parametrize("order", ["KEY", "ANY"])
@pytest.mark.parametrize("limit", [0, 1, 3])
def test_what_is_counted_is_all_that_matches_whatever_the_order_and_limit(order: Any, limit: int) -> None:
    state = declared()
    counted = state.range(ASKED._replace(count_only=True, order=order, limit=limit))
    assert (counted.count, counted.kvs, counted.more) == (len(state.range(ASKED).kvs), [], False)


def test_a_question_that_cannot_be_answered_says_so_to_whoever_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    state = declared()

    def fails(*_: Any) -> Any:
        raise KeyError("a bug")

    monkeypatch.setattr(state._reads, "range", fails)
    monkeypatch.setattr(state._reads, "explain", fails)
    for ask in (state.range, state.explain):
        with pytest.raises(InvalidRequest, match="the request cannot be answered: KeyError: 'a bug'"):
            ask(ASKED)


def test_a_watch_that_another_ends_while_all_catch_up_keeps_no_third_from_it() -> None:
    state = StateMachine()
    state.apply(Put(b"a", b"1"))
    hub, told = WatchHub(state), []
    first = hub.add(b"a", b"", 1, lambda batch: (second.cancel(), told.append("first"))[1])
    second = hub.add(b"a", b"", 1, lambda batch: told.append("second"))
    third = hub.add(b"a", b"", 1, lambda batch: told.append("third"))
    assert hub.catch_up() == 0 and told == ["first", "third"] and second.cancelled
    assert not (first.cancelled or third.cancelled)
