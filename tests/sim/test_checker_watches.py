"""The watch checker: named streams, and right ones from a state machine, whole and spoiled."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from correct_history import Recorder
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import Compacted, FieldsRedeclared, Unavailable
from minikube_py.fields.builtin import NODES
from minikube_py.fields.spec import FieldSpec
from minikube_py.fields.where import Comparison, Where
from minikube_py.index.declared import IndexSpec
from minikube_py.mvcc.types import (
    Compact,
    DeclareIndex,
    DeleteRange,
    DropIndex,
    Event,
    KeyValue,
    Put,
    Txn,
    WatchBatch,
)
from minikube_py.sim.checkers import transactions, watches
from minikube_py.sim.checkers.model import Model, tombstone
from minikube_py.sim.checkers.watches import check_watch
from minikube_py.sim.history import Delivery, History, Operation, Watch, WatchPart


def happened() -> Model:
    """2: a=1. 3: b=1. 4: a=2 and c=1 in one txn. 5: a deleted. 6: x=1. 7: a=3."""
    model = Model()
    for command in (
        Put(b"a", b"1"),
        Put(b"b", b"1"),
        Txn((), (Put(b"a", b"2"), Put(b"c", b"1"))),
        DeleteRange(b"a"),
        Put(b"x", b"1"),
        Put(b"a", b"3"),
    ):
        model.run(command)
    return model


TRUE = happened()
A, B, C = b"a", b"b", b"c"


def events(*revisions: int, keys: bytes = b"abcx") -> list[Event]:
    return [event for revision in revisions for event in TRUE.events[revision] if event.kv.key in keys]


def part(start: int, *batches: tuple[int, list[Event]] | WatchBatch) -> WatchPart:
    told = [batch if isinstance(batch, WatchBatch) else WatchBatch(batch[1], batch[0]) for batch in batches]
    return WatchPart(start, 1, deliveries=[Delivery(10 * place, batch) for place, batch in enumerate(told, 1)])


def watch(*parts: WatchPart, key=A, range_end=b"d", live=False) -> Watch:
    return Watch(1, key, range_end, parts=list(parts), live=live)


WHOLE = [(2, events(2)), (3, events(3)), (4, events(4)), (5, events(5)), (7, events(7))]

GOOD = {
    "each revision in a batch": watch(part(2, *WHOLE), live=True),
    "all in one batch": watch(part(2, (7, events(2, 3, 4, 5, 7))), live=True),
    "from the middle": watch(part(4, (5, events(4, 5)), (7, events(7))), live=True),
    "one key": watch(part(2, (4, events(2, 4, keys=b"a")), (7, events(5, 7))), range_end=b"", live=True),
    "bookmarks between": watch(part(2, (1, []), (2, events(2)), (2, []), (3, events(3)), (3, []))),
    "progress past what is not in the range": watch(part(6, (6, []), (7, events(7)))),
    "resumed after what it had seen": watch(part(2, *WHOLE[:2]), part(4, *WHOLE[2:]), live=True),
    "resumed after progress": watch(part(6, (6, [])), part(7, (7, events(7))), live=True),
    "resumed before anything came": watch(part(2), part(2, *WHOLE), live=True),
    "broken off": watch(part(2, *WHOLE[:2])),
    "from now on": watch(part(0, (4, events(4)), (5, events(5)))),
    "ended by the store": watch(part(2, *WHOLE[:1], WatchBatch([], 2, Unavailable("gone"))), part(3, *WHOLE[1:])),
}

LATE_A = [Event("PUT", event.kv, None) for event in events(4, keys=b"a")]
BAD = {
    "ordered: revisions of batches": (watch(part(2, WHOLE[1], WHOLE[0])), "came after"),
    "ordered: events of a batch": (watch(part(2, (3, events(3, 2)))), "out of order"),
    "ordered: events of a revision": (watch(part(4, (4, events(4)[::-1]))), "twice or out of order"),
    "unique: an event twice": (watch(part(2, WHOLE[0], WHOLE[0])), "had come"),
    "unique: within a batch": (watch(part(2, (2, events(2, 2)))), "twice or out of order"),
    "atomic: a revision in two batches": (watch(part(4, (4, events(4)[:1]), (4, events(4)[1:]))), "had come"),
    "reliable: one is missing": (watch(part(2, WHOLE[0], WHOLE[2])), "did not come"),
    "reliable: the end never came": (watch(part(2, *WHOLE[:4]), live=True), "never sent revision 7"),
    "resumable: one is missing between streams": (
        watch(part(2, *WHOLE[:2]), part(4, (5, events(5)))), "did not come"),
    "resumable: one is doubled between streams": (
        watch(part(2, *WHOLE[:2]), part(4, (4, events(3, 4)))), "had come"),
    "resumed too late": (watch(part(2, *WHOLE[:2]), part(5, WHOLE[3])), "was resumed from 5"),
    "resumed too early": (watch(part(2, *WHOLE[:2]), part(3, *WHOLE[1:])), "was resumed from 3"),
    "resumed elsewhere though nothing had come": (watch(part(2), part(3, *WHOLE[1:])), "was resumed from 3"),
    "filter: a key out of the range": (watch(part(6, (6, events(6)))), "came what did not happen"),
    "filter: another key's event": (watch(part(3, (3, events(3))), range_end=b""), "came what did not happen"),
    "before the start": (watch(part(3, (3, events(2, 3)))), "before the start"),
    "bookmark: it had not seen all": (watch(part(2, WHOLE[0], (3, []))), "did not come"),
    "bookmark: beyond the store": (watch(part(2, *WHOLE, (9, []))), "received revision 9"),
    "an event beyond its batch": (watch(part(2, (2, events(2, 3)))), "with an event of 3"),
    "is-create: a made key as an update": (
        watch(part(2, (2, [events(2)[0]._replace(kv=KeyValue(A, b"1", 1, 2, 2, 0))]))), "what happened was"),
    "is-create: made again with its old version": (
        watch(part(7, (7, [Event("PUT", KeyValue(A, b"3", 2, 7, 4, 0), None)]))), "what happened was"),
    "prev-kv: missing": (watch(part(4, (4, [*LATE_A, *events(4, keys=b"c")]))), "what happened was"),
    "prev-kv: an older one": (
        watch(part(5, (5, [events(5)[0]._replace(prev_kv=events(2)[0].kv)]))), "what happened was"),
    "a wrong value": (watch(part(2, (2, [Event("PUT", KeyValue(A, b"x", 2, 2, 1, 0), None)]))), "what happened was"),
    "a deletion with a value": (
        watch(part(5, (5, [events(5)[0]._replace(kv=KeyValue(A, b"2", 0, 5, 0, 0))]))), "what happened was"),
    "after its end": (
        watch(part(2, WatchBatch([], 1, Unavailable("gone")), WHOLE[0])), "after the stream's end"),
    "compacted without a compaction": (
        watch(part(2, WatchBatch([], 1, Compacted(2, 5)))), "compaction that was not"),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_stream_passes(name):
    verdict = check_watch(GOOD[name], TRUE)
    assert verdict.ok, verdict.text


@pytest.mark.parametrize("name", BAD)
def test_a_bad_stream_is_found(name):
    broken, said = BAD[name]
    verdict = check_watch(broken, TRUE)
    assert verdict.outcome == "violation", verdict
    assert said in verdict.text, verdict.text


def test_an_end_for_a_compaction_needs_one():
    ended = watch(part(2, WatchBatch([], 1, Compacted(2, 5))))
    compact = Operation(1, 3, 4, Compact(5), "done")
    assert check_watch(ended, TRUE, [compact]).ok
    assert not check_watch(ended, TRUE, [compact._replace(call_us=11)]).ok, "it was asked for after the watch's end"
    not_below = watch(part(7, WatchBatch([], 1, Compacted(7, 5))))
    assert not check_watch(not_below, TRUE, [compact]).ok


# -- watches on fields -------------------------------------------------------------------------------------------------

N = NODES.prefix + b"n"
FREE = Where((Comparison("free.cpu", ">=", ("3",)),))


def node(cpu: int) -> bytes:
    return b'{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":"%d"}}}' % cpu


POD = b'{"spec":{"nodeName":"n","containers":[{"resources":{"requests":{"cpu":"2"}}}]}}'


def of_nodes() -> Model:
    """2: made with 4. 3: written, still 4. 4: a pod takes 2. 5: written, 5-2. 6: the pod goes. 7: 1 only. 8: gone."""
    model = Model([NODES])
    pods = b"/registry/pods/p"
    for command in (
        Put(N, node(4)),
        Put(N, node(4)),
        Put(pods, POD),
        Put(N, node(5)),
        DeleteRange(pods),
        Put(N, node(1)),
        DeleteRange(N),
    ):
        model.run(command)
    return model


NODE_MODEL = of_nodes()
SET_CHANGES = {
    2: Event("PUT", NODE_MODEL.at(N, 2), None),
    3: Event("PUT", NODE_MODEL.at(N, 3), NODE_MODEL.at(N, 2)),
    4: Event("DELETE", tombstone(N, 4), NODE_MODEL.at(N, 3)),
    5: Event("PUT", NODE_MODEL.at(N, 5), None),
    7: Event("DELETE", tombstone(N, 7), NODE_MODEL.at(N, 5)),
}


def where_watch(changed: dict[int, Event], start=2) -> Watch:
    batches = [(revision, [event]) for revision, event in changed.items()]
    return Watch(1, NODES.prefix, b"/registry/nodes0", FREE, [part(start, *batches)], live=True)


def test_a_watch_on_fields_is_told_what_enters_and_leaves():
    verdict = check_watch(where_watch(SET_CHANGES), NODE_MODEL)
    assert verdict.ok, verdict.text


@pytest.mark.parametrize(
    "name, changed",
    [
        ("left untold", {revision: event for revision, event in SET_CHANGES.items() if revision != 4}),
        ("entered as an update", {**SET_CHANGES, 5: Event("PUT", NODE_MODEL.at(N, 5), NODE_MODEL.at(N, 3))}),
        ("an event of a key outside", {**SET_CHANGES, 8: Event("DELETE", tombstone(N, 8), NODE_MODEL.at(N, 7))}),
        ("the sum was not followed", {2: SET_CHANGES[2], 3: SET_CHANGES[3], 7: SET_CHANGES[7]}),
    ],
)
def test_a_wrong_watch_on_fields_is_found(name, changed):
    assert check_watch(where_watch(dict(sorted(changed.items()))), NODE_MODEL).outcome == "violation"


# -- watches on fields that indexes declare ----------------------------------------------------------------------------

BY_LABEL = FieldSpec("rank", "int", "path@1", {"path": "metadata.labels.rank"})
BY_NOTE = FieldSpec("rank", "int", "path@1", {"path": "metadata.annotations.rank"})
HIGH = Where((Comparison("rank", ">=", ("5",)),))


def ranked(label: int, note: int) -> bytes:
    return b'{"metadata":{"name":"n","labels":{"rank":"%d"},"annotations":{"rank":"%d"}}}' % (label, note)


def declared_twice() -> Model:
    """2: in by its label. 3: rank is the label. 4: written. 5: dropped. 6: rank is the annotation. 7: in by that."""
    model = Model([NODES])
    for command in (
        Put(N, ranked(7, 1)),
        DeclareIndex(IndexSpec("i", "nodes", ("rank",), "scan", declares=(BY_LABEL,))),
        Put(N, ranked(8, 1)),
        DropIndex("i"),
        DeclareIndex(IndexSpec("i", "nodes", ("rank",), "scan", declares=(BY_NOTE,))),
        Put(N, ranked(1, 9)),
    ):
        model.run(command)
    return model


RANKS = declared_twice()
WRITTEN = (4, [RANKS.events[4][0]])
ENDED = WatchBatch([], 4, FieldsRedeclared("again"))
ENTERED = (7, [Event("PUT", RANKS.at(N, 7), None)])


def rank_watch(*parts: WatchPart, live=False) -> Watch:
    return Watch(1, NODES.prefix, b"/registry/nodes0", HIGH, list(parts), live=live)


@pytest.mark.parametrize(
    "watched",
    [
        pytest.param(rank_watch(part(4, WRITTEN)), id="by what was declared first"),
        pytest.param(rank_watch(part(4, WRITTEN, ENDED)), id="and ended by a drop"),
        pytest.param(rank_watch(part(7, ENTERED), live=True), id="by what was declared next"),
        pytest.param(rank_watch(replace(part(0, ENTERED), created_revision=7), live=True), id="from then on"),
        pytest.param(rank_watch(part(0)), id="never served"),
    ],
)
def test_a_watch_is_of_one_meaning(watched):
    drop = Operation(1, 3, 4, DropIndex("i"), "done")
    verdict = check_watch(watched, RANKS, [drop])
    assert verdict.ok, verdict.text


@pytest.mark.parametrize(
    "watched, said",
    [
        pytest.param(rank_watch(part(4, WRITTEN, ENTERED)), "something else than at 3", id="in one stream"),
        pytest.param(rank_watch(part(4, WRITTEN), part(5, ENTERED)), "something else than at 3", id="resumed"),
        pytest.param(rank_watch(part(4, WRITTEN, (6, []))), "something else than at 3", id="by progress alone"),
        pytest.param(rank_watch(part(3, WRITTEN)), "were not declared at 2", id="from before"),
        pytest.param(rank_watch(part(6, (6, []))), "were not declared at 5", id="from where they were dropped"),
        pytest.param(rank_watch(part(7, (7, RANKS.events[7]))), "what happened was", id="by the first meaning"),
    ],
)
def test_a_watch_of_two_meanings_is_found(watched, said):
    verdict = check_watch(watched, RANKS)
    assert verdict.outcome == "violation" and said in verdict.text, verdict


def test_fields_may_be_dropped_and_declared_alike_between_two_batches():
    model = declared_twice()
    for command in (DropIndex("i"), DeclareIndex(IndexSpec("j", "nodes", ("rank",), "scan", declares=(BY_NOTE,)))):
        model.run(command)
    model.run(Put(N, ranked(1, 8)))
    written = (10, [model.events[10][0]])
    assert check_watch(rank_watch(part(7, ENTERED, written), live=True), model).ok
    assert not check_watch(rank_watch(part(7, ENTERED, (8, []), written), live=True), model).ok, "told in between"
    assert not check_watch(rank_watch(part(7, ENTERED, (10, [])), live=True), model).ok, "what came between is missing"


def test_an_end_for_a_declaration_needs_one():
    ended = rank_watch(part(4, WRITTEN, ENDED))
    drop = Operation(1, 3, 4, DropIndex("i"), "unknown")
    assert check_watch(ended, RANKS, [drop]).ok
    for none_before in ([], [drop._replace(call_us=21)], [Operation(1, 3, 4, Compact(3), "done")]):
        assert "declaration that was not" in check_watch(ended, RANKS, none_before).text


# -- right histories, whole and spoiled --------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_what_a_right_store_sent_passes(seed):
    history = Recorder(seed).run()
    verdict = watches.check(history, transactions.check(history))
    assert verdict.ok, verdict.text


def some_delivery(history: History, rng: random.Random):
    """(part, place) of a batch with events."""
    places = [
        (each, place)
        for watched in history.watches
        for each in watched.parts
        for place, delivery in enumerate(each.deliveries)
        if delivery.batch.events
    ]
    return rng.choice(places) if places else (None, 0)


def edit(stream: WatchPart, place: int, changed: list[Event]) -> None:
    delivery = stream.deliveries[place]
    stream.deliveries[place] = delivery._replace(batch=delivery.batch._replace(events=changed))


def drop_event(stream, place, rng):
    changed = list(stream.deliveries[place].batch.events)
    changed.pop(rng.randrange(len(changed)))
    edit(stream, place, changed)


def double_event(stream, place, rng):
    changed = list(stream.deliveries[place].batch.events)
    changed.append(rng.choice(changed))
    edit(stream, place, changed)


def double_batch(stream, place, rng):
    stream.deliveries.insert(place, stream.deliveries[place])


def drop_batch(stream, place, rng):
    """Not the last of all: a stream may break off before it."""
    last = stream.deliveries[-1]
    del stream.deliveries[place]
    stream.deliveries.append(last._replace(batch=last.batch._replace(events=[])))


def lose_prev_kv(stream, place, rng):
    changed = list(stream.deliveries[place].batch.events)
    event = changed[0]
    invented = KeyValue(event.kv.key, b"invented", 1, 1, 1, 0)
    changed[0] = event._replace(prev_kv=None if event.prev_kv else invented)
    edit(stream, place, changed)


def another_value(stream, place, rng):
    changed = list(stream.deliveries[place].batch.events)
    changed[-1] = changed[-1]._replace(kv=changed[-1].kv._replace(value=b"invented"))
    edit(stream, place, changed)


SPOILED = [drop_event, double_event, double_batch, drop_batch, lose_prev_kv, another_value]


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__)
@settings(max_examples=25)
@given(seed=st.integers(0, 1 << 32))
def test_a_spoiled_stream_is_found(spoil, seed):
    recorder = Recorder(seed)
    checked = transactions.check(recorder.run())
    history, rng = recorder.history, random.Random(seed)
    stream, place = some_delivery(history, rng)
    if stream is not None:
        spoil(stream, place, rng)
        assert watches.check(history, checked).outcome == "violation"
