"""etcd's promises for watches, against what happened.

Ordered: by revision. Unique: no event twice. Atomic: the events of one revision are in one batch. Reliable: none is
missing. Resumable: nor across streams. Filter: only what was requested, by fields of constant meaning. Bookmark: after
a batch of revision R, nothing at or below R. Is-create and prev-kv: match the key's history. In addition: a live watch
eventually sees everything.

Source: https://etcd.io/docs/v3.6/learning/api_guarantees; etcd tests/robustness/validate/watch.go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from minikube_py.errors import Compacted, FieldsRedeclared
from minikube_py.mvcc.types import Compact, DeclareFields, DeclareIndex, DropIndex, Event
from minikube_py.sim.checkers.model import Model, tombstone, within
from minikube_py.sim.checkers.objects import Unsupported
from minikube_py.sim.checkers.transactions import Checked
from minikube_py.sim.checkers.verdict import OK, Verdict, undecided, violation, worst
from minikube_py.sim.history import Delivery, History, Operation, Watch

DECLARING = (DeclareFields, DeclareIndex, DropIndex)
ENDING = (Compact, *DECLARING)
Truth = dict[int, list[Event]]
"""By revision, the events a watch must get."""


def check(history: History, checked: Checked) -> Verdict:
    """`checked`: the result of `transactions.check` for the same history; it must be ok."""
    ending = [each for each in history.operations if isinstance(each.request, ENDING) and each.status != "refused"]
    return worst(check_watch(watch, checked.model, ending) for watch in history.watches)


def check_watch(watch: Watch, model: Model, ending: Iterable[Operation] = ()) -> Verdict:
    """Checks one watch, with all its streams. `model`: all that happened up to its revision; `ending`: operations for
    which a store may end a watch."""
    problem = _ended_rightly(watch, list(ending)) or _streams(watch)
    if problem:
        return violation(f"{watch}: {problem}")
    first, last = _span(watch)
    if last > model.revision:
        return violation(f"{watch}: received revision {last}, the last one is {model.revision}")
    if watch.live:
        last = model.revision
    problem = _of_two_meanings(watch, model, first, last)
    if problem:
        return violation(f"{watch}: {problem}")
    try:
        truth = _truth(watch, model, first, last) if first <= last else {}
    except Unsupported as beyond:
        return undecided(f"{watch}: the checker cannot judge {beyond}")
    problem = _against(watch, truth, first)
    return violation(f"{watch}: {problem}") if problem else OK


def _deliveries(watch: Watch) -> Iterable[Delivery]:
    return (delivery for part in watch.parts for delivery in part.deliveries)


def _span(watch: Watch) -> tuple[int, int]:
    """The first revision that the watch must cover, and the last one it received."""
    start = next((part.start_revision for part in watch.parts), 0)
    told = [(part, each.batch) for part in watch.parts for each in part.deliveries if each.batch.error is None]
    if not start and told:
        # From the "now" at which it began; if that is unknown, from its first event.
        part, batch = told[0]
        start = part.created_revision or (_revisions(batch.events)[0] if batch.events else batch.revision + 1)
    elif not start and watch.parts:
        start = watch.parts[-1].created_revision
    return max(start, 2), max((batch.revision for _, batch in told), default=0)


def _revisions(events: Iterable[Event]) -> list[int]:
    return [_revision(event) for event in events]


def _revision(event: Event) -> int:
    return event.kv.mod_revision


def _streams(watch: Watch) -> str:
    """Checks that need no knowledge of what happened: order, bookmarks, and where a stream resumes."""
    seen = 0
    for number, part in enumerate(watch.parts):
        if number and seen and part.start_revision != seen + 1:
            return f"it had seen all up to revision {seen}, and was resumed from {part.start_revision}"
        if number and not seen and part.start_revision != watch.parts[0].start_revision:
            return f"it had seen nothing, and was resumed from {part.start_revision}"
        ended = False
        for at_us, batch in part.deliveries:
            when = f"at {at_us / 1e6:.6f}"
            if ended:
                return f"{when} a batch came after the stream's end: {batch}"
            if batch.error is not None:
                ended = True
                continue
            if batch.revision < seen:
                return f"{when} a batch of revision {batch.revision} came after one of {seen}"
            if watch.where is None:
                revisions = _revisions(batch.events)
                if revisions != sorted(revisions):
                    return f"{when} events out of order within a batch: {revisions}"
                if revisions and revisions[0] <= seen:
                    return f"{when} an event of revision {revisions[0]}, though all up to {seen} had come: {batch}"
                if revisions and revisions[-1] > batch.revision:
                    return f"{when} a batch of revision {batch.revision} with an event of {revisions[-1]}"
                if revisions and revisions[0] < part.start_revision:
                    return f"{when} an event of revision {revisions[0]}, before the start at {part.start_revision}"
            seen = batch.revision
    return ""


def _ended_rightly(watch: Watch, ending: list[Operation]) -> str:
    compacts = [each for each in ending if isinstance(each.request, Compact)]
    declarations = [each for each in ending if isinstance(each.request, DECLARING)]
    for at_us, batch in _deliveries(watch):
        error = batch.error
        if isinstance(error, FieldsRedeclared) and not any(each.call_us < at_us for each in declarations):
            return "it was ended for a declaration that was not"
        if isinstance(error, Compacted):
            known = any(
                each.request.revision == error.compact_revision and each.call_us < at_us  # type: ignore[union-attr]
                for each in compacts
            )
            if not known or error.requested > error.compact_revision:
                return f"it was ended for a compaction that was not: {error.requested} < {error.compact_revision}"
    return ""


def _of_two_meanings(watch: Watch, model: Model, first: int, last: int) -> str:
    """If the fields change their meaning at a revision that the watch received, it never learns what left its set.
    Between two batches the fields may have been dropped and declared again identically."""
    where = watch.where
    if where is None or first > last:
        return ""
    meaning = model.meaning(watch.key, where, first - 1)
    if meaning is None:
        return f"it received revision {first}, where its fields were not declared at {first - 1}"
    told = {each.batch.revision for each in _deliveries(watch) if each.batch.error is None}
    for revision in sorted(told | {last}):
        if revision >= first and model.meaning(watch.key, where, revision) != meaning:
            return f"it received revision {revision}, where its fields mean something else than at {first - 1}"
    return ""


def _truth(watch: Watch, model: Model, first: int, last: int) -> Truth:
    """The events in the watch's range in [first, last]."""
    if watch.where is not None:
        return _where_truth(watch, model, first, last)
    truth: Truth = {}
    for revision in range(first, last + 1):
        inside = [event for event in model.events[revision] if within(event.kv.key, watch.key, watch.range_end)]
        if inside:
            truth[revision] = inside
    return truth


def _where_truth(watch: Watch, model: Model, first: int, last: int) -> Truth:
    """PUT: an object entered the set, or was written within it. DELETE: it left, possibly by a write of another
    object."""
    assert watch.where is not None
    truth: Truth = {}
    declared = first - 1
    before = _holding(watch, model, first - 1, declared)
    for revision in range(first, last + 1):
        after = _holding(watch, model, revision, declared)
        if after == before and not any(event.kv.key in after for event in model.events[revision]):
            continue
        written: dict[bytes, Event] = {}
        for event in model.events[revision]:
            if within(event.kv.key, watch.key, watch.range_end):
                earlier = written.get(event.kv.key, event)
                written[event.kv.key] = event._replace(prev_kv=earlier.prev_kv)
        found = []
        for key in [*written, *sorted((before ^ after) - written.keys())]:
            was, now = key in before, key in after
            standing = model.at(key, revision - 1)
            if key in written and was and now:
                found.append(written[key])
            elif now and not was:
                kv = model.at(key, revision)
                assert kv is not None
                found.append(Event("PUT", kv, None))
            elif was and not now:
                found.append(Event("DELETE", tombstone(key, revision), standing))
        if found:
            truth[revision] = found
        before = after
    return truth


def _holding(watch: Watch, model: Model, revision: int, declared: int) -> set[bytes]:
    """The set at `revision`, by the fields as declared at another."""
    assert watch.where is not None
    rows = model.rows_for(watch.key, watch.range_end, watch.where, revision, declared)
    return {key for key in rows.holding(watch.where) if within(key, watch.key, watch.range_end)}


def _against(watch: Watch, truth: Truth, first: int) -> str:
    """Batch by batch: the events since the previous batch; at the end none is left over."""
    seen = first - 1
    left = sorted(truth)
    for at_us, batch in _deliveries(watch):
        if batch.error is not None or batch.revision < first:
            continue
        due = [revision for revision in left if seen < revision <= batch.revision]
        want = [event for revision in due for event in truth[revision]]
        if watch.where is not None:
            # Events of one revision are unordered here: a client may not be able to know an order.
            same = Counter(map(repr, batch.events)) == Counter(map(repr, want))
        else:
            same = list(batch.events) == want
        if not same:
            return f"at {at_us / 1e6:.6f}, {_difference(list(batch.events), want, seen, batch.revision)}"
        seen = max(seen, batch.revision)
    missed = [revision for revision in left if revision > seen]
    if missed and watch.live:
        return f"it is live, and was never sent revision {missed[0]}: {truth[missed[0]][0]}"
    return ""


def _difference(got: list[Event], want: list[Event], seen: int, revision: int) -> str:
    span = f"for the revisions ({seen}, {revision}]"
    missing = [event for event in want if event not in got]
    extra = [event for event in got if event not in want]
    for event in missing:
        other = next((each for each in extra if each.kv.key == event.kv.key), None)
        if other is not None:
            return f"{span} came {other}, what happened was {event}"
    if missing:
        return f"{span} did not come: {missing[0]}"
    if extra:
        return f"{span} came what did not happen: {extra[0]}"
    return f"{span} events came twice or out of order: {got}"
