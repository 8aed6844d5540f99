"""Is a history of whole transactions strictly serializable, with every answer right?

Each acknowledged write reports the revision it made; that is their order. It must agree with real time; replayed in
that order on a model, every answer must be the same: values, revisions, counts, whether a txn succeeded, and reads at
their revision. A revision without an acknowledged write must come from a write of unknown outcome, or from a lease
expiry; the checker searches for it, first among those that agree with what reads and watches saw.

Source: etcd's robustness tests (tests/robustness/validate) replay a persisted order; here there is none to look up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from minikube_py.errors import Compacted, FutureRevision, InvalidRequest
from minikube_py.mvcc.types import (
    Compact,
    DeclareFields,
    DeclareIndex,
    DeleteRange,
    DeleteResult,
    DropIndex,
    Event,
    KeyValue,
    LeaseGrant,
    LeaseResult,
    LeaseRevoke,
    Put,
    PutResult,
    RangeRequest,
    RangeResult,
    Txn,
    TxnResult,
)
from minikube_py.sim.checkers.model import Impossible, Model, within
from minikube_py.sim.checkers.objects import Undeclared, Unsupported, read_as
from minikube_py.sim.checkers.verdict import OK, Verdict, undecided, violation
from minikube_py.sim.history import NEVER_US, History, KeepAlive, Operation, Watch

STEPS_MAX: Final = 100_000
NOBODY: Final = 0
"""The client of a write made by the store itself: a lease expiry."""


class Checked(NamedTuple):
    """`model` holds the order found (for a violation: its valid part). `writers[r]` made revision r. `seen_us[r]`: the
    time of the first answer that shows that revision r, or a later one, existed."""

    verdict: Verdict
    model: Model
    writers: dict[int, Operation]
    seen_us: list[int]


def check(history: History, steps_max: int = STEPS_MAX) -> Checked:
    """Serializable reads and watches need only see a state that already existed."""
    facts = _Facts()
    model = Model()
    for operation in history.operations:
        facts.add(operation)
        if isinstance(operation.request, DeclareFields) and operation.status != "refused":
            model.run(operation.request)
    for watch in history.watches:
        facts.add_watch(watch)
    seen_us = facts.seen_us()
    problem = facts.problem or _real_time(history, facts, seen_us) or _refusals(history)
    if problem:
        return Checked(violation(problem), model, {}, seen_us)
    search = _Search(facts, model, seen_us, steps_max)
    verdict = search.run()
    if verdict.ok:
        problem = _refused_as_wrong(history, model, search.writers, seen_us)
        verdict = violation(problem) if problem else verdict
    return Checked(verdict, model, search.writers, seen_us)


# -- facts from the history, by revision -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Facts:
    """`writers[r]`: acknowledged as having made revision r. `revokes[r]`: may have made it, if their lease had keys.
    `answers[r]`: to compare with the state of revision r. `sighted[r][key]`: the key as that revision left it."""

    writers: dict[int, Operation] = field(default_factory=dict)
    revokes: dict[int, list[Operation]] = field(default_factory=dict)
    answers: dict[int, list[Operation]] = field(default_factory=dict)
    unknown: list[Operation] = field(default_factory=list)
    grants: dict[int, list[Operation]] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    sighted: dict[int, dict[bytes, KeyValue]] = field(default_factory=dict)
    watched: list[tuple[Watch, dict[int, list[Event]], int, int]] = field(default_factory=list)
    moments: list[tuple[int, int]] = field(default_factory=list)
    problem: str = ""

    def add(self, operation: Operation) -> None:
        request, result = operation.request, operation.result
        if isinstance(request, LeaseGrant) and operation.status != "refused":
            self.grants.setdefault(request.id, []).append(operation)
        if operation.status == "unknown":
            if isinstance(request, Put | DeleteRange | Txn | LeaseRevoke | DeclareIndex | DropIndex):
                self.unknown.append(operation)
            return
        if operation.status == "refused":
            if isinstance(operation.error, FutureRevision):
                self._moment(operation.return_us, operation.error.current)
            return
        if isinstance(request, KeepAlive) or result is None:
            return
        revision = result.revision
        self._moment(operation.return_us, revision)
        self._sight(result)
        if changes(result):
            other = self.writers.setdefault(revision, operation)
            if other is not operation:
                self._fail(f"two writes were both answered with revision {revision}:\n  {other}\n  {operation}")
        elif isinstance(request, LeaseRevoke):
            self.revokes.setdefault(revision, []).append(operation)
            self.ended[request.id] = min(revision, self.ended.get(request.id, revision))
        elif isinstance(request, RangeRequest | DeleteRange | Txn):
            self.answers.setdefault(revision, []).append(operation)

    def add_watch(self, watch: Watch) -> None:
        seen: dict[int, list[Event]] = {}
        first = last = 0
        for part in watch.parts:
            first = first or part.start_revision
            for at_us, batch in part.deliveries:
                if batch.error is None:
                    self._moment(at_us, batch.revision)
                    last = max(last, batch.revision)
                for event in batch.events:
                    if event.type == "PUT" or watch.where is None:
                        self._sight_kv(event.kv)
                        seen.setdefault(event.kv.mod_revision, []).append(event)
        if watch.where is None and first:
            self.watched.append((watch, seen, first, last))

    def seen_us(self) -> list[int]:
        """By revision, plus one entry for which nothing has been seen."""
        last = max((revision for _, revision in self.moments), default=1)
        seen = [NEVER_US] * (last + 2)
        for at_us, revision in self.moments:
            seen[revision] = min(seen[revision], at_us)
        for revision in range(last, 0, -1):
            seen[revision] = min(seen[revision], seen[revision + 1])
        return seen

    def _moment(self, at_us: int | None, revision: int) -> None:
        assert at_us is not None, "an answer has a time"
        self.moments.append((at_us, revision))

    def _sight(self, result: Any) -> None:
        if isinstance(result, TxnResult):
            for response in result.responses:
                self._sight(response)
        elif isinstance(result, RangeResult):
            for kv in result.kvs:
                # Without its value or its lease, it may be stripped.
                if kv.value:
                    self._sight_kv(kv)
        elif isinstance(result, PutResult) and result.prev_kv is not None:
            self._sight_kv(result.prev_kv)
        elif isinstance(result, DeleteResult):
            for kv in result.prev_kvs:
                self._sight_kv(kv)

    def _sight_kv(self, kv: KeyValue) -> None:
        other = self.sighted.setdefault(kv.mod_revision, {}).setdefault(kv.key, kv)
        # A txn may put a key and then delete it: the revision keeps the last, but shows both.
        if other != kv and other.version and kv.version:
            self._fail(f"{kv.key!r} was seen in two states of revision {kv.mod_revision}:\n  {other}\n  {kv}")
        if not kv.version:
            self.sighted[kv.mod_revision][kv.key] = kv

    def _fail(self, text: str) -> None:
        self.problem = self.problem or text


def changes(result: Any) -> bool:
    """Whether an answer reports changed keys."""
    if isinstance(result, DeleteResult):
        return result.deleted > 0
    if isinstance(result, TxnResult):
        return any(map(changes, result.responses))
    return isinstance(result, PutResult)


def _real_time(history: History, facts: _Facts, seen_us: list[int]) -> str:
    """A write's effect did not exist before its call; a linearizable answer is not older than what was seen before its
    call."""
    for operation in history.operations:
        result = operation.result
        if operation.status == "refused" and isinstance(operation.error, FutureRevision):
            revision = operation.error.current
        elif operation.status != "done" or result is None or isinstance(operation.request, KeepAlive):
            continue
        else:
            revision = result.revision
        made = facts.writers.get(revision) is operation
        if made and seen_us[revision] < operation.call_us:
            return f"revision {revision} was seen at {seen_us[revision] / 1e6:.6f}, before its write:\n  {operation}"
        if not made and not operation.serializable and seen_us[revision + 1] < operation.call_us:
            return (
                f"an answer of revision {revision}, though a later one was seen at {seen_us[revision + 1] / 1e6:.6f}, "
                f"before the call:\n  {operation}"
            )
    return ""


def _refusals(history: History) -> str:
    """Refusals must have a reason, and reads at compacted revisions must be refused."""
    compacts = [each for each in history.operations if isinstance(each.request, Compact) and each.status != "refused"]
    named = {each.request.revision: each for each in reversed(compacts) if isinstance(each.request, Compact)}
    for operation in history.operations:
        request, error = operation.request, operation.error
        if isinstance(error, FutureRevision) and error.requested <= error.current:
            return f"refused as future, though it was not:\n  {operation}"
        if isinstance(error, Compacted):
            compact = named.get(error.compact_revision)
            if compact is None or operation.return_us is None or compact.call_us > operation.return_us:
                return f"refused for a compaction that was not requested:\n  {operation}"
            if error.requested > error.compact_revision:
                return f"refused as compacted, though it was not:\n  {operation}"
        if isinstance(request, RangeRequest) and operation.status == "done" and not operation.serializable:
            for compact in compacts:
                before = compact.return_us is not None and compact.return_us < operation.call_us
                if before and compact.status == "done" and 0 < request.revision < _compacted(compact):
                    return f"a read of what {compact.request} had compacted was answered:\n  {operation}"
    return ""


def _refused_as_wrong(history: History, model: Model, writers: dict[int, Operation], seen_us: list[int]) -> str:
    """Queries with fields that are declared the whole time, and with valid bounds, must not be refused as invalid."""
    declared_us = [
        operation.return_us
        for operation in history.operations
        if isinstance(operation.request, DeclareFields) and operation.status == "done"
    ]
    base_us = max((each for each in declared_us if each is not None), default=NEVER_US)
    placed = {id(operation) for operation in writers.values()}
    # A revision that was never seen may still have been made.
    drops = [each for each in history.operations if isinstance(each.request, DropIndex) and each.status == "unknown"]
    unplaced = [each for each in drops if id(each) not in placed]
    for operation in history.operations:
        request, return_us = operation.request, operation.return_us
        if not isinstance(operation.error, InvalidRequest) or not isinstance(request, RangeRequest):
            continue
        if operation.serializable or return_us is None or operation.call_us <= base_us:
            continue
        comparisons = request.where.comparisons if request.where else ()
        wanted = [*request.fields, *(comparison.field for comparison in comparisons)]
        # From what had been seen before the call to what may have existed at its end.
        first = max(1, bisect_left(seen_us, operation.call_us, lo=1) - 1)
        last = first
        while last < model.revision and writers[last + 1].call_us <= return_us:
            last += 1
        if last == model.revision and any(each.call_us <= return_us for each in unplaced):
            continue
        moments = range(first, last + 1)
        if wanted and all(_readable(model, request, wanted, moment) for moment in moments):
            return f"refused, though {wanted} were declared from revision {first} to {last}:\n  {operation}"
    return ""


def _readable(model: Model, request: RangeRequest, wanted: list[str], now: int) -> bool:
    name = model.declaring(request.key, wanted, now)
    field_set = model.effective(name, now) if name is not None else None
    if field_set is None:
        return False
    for comparison in request.where.comparisons if request.where else ():
        spec = field_set.find(comparison.field)
        if spec is None or any(read_as(spec, comparison.field, text) is None for text in comparison.values):
            return False
    return True


def _compacted(operation: Operation) -> int:
    assert isinstance(operation.request, Compact)
    return operation.request.revision


# -- the search ------------------------------------------------------------------------------------------------------


class _Search:
    """Goes from revision to revision; if no possible writer of a revision fits, backtracks to the last choice."""

    def __init__(self, facts: _Facts, model: Model, seen_us: list[int], steps_max: int) -> None:
        self._facts = facts
        self._model = model
        self._seen_us = seen_us
        self._last = len(seen_us) - 2
        self._steps_left = steps_max
        self._steps_max = steps_max
        self._placed: set[int] = set()
        self._ended: dict[int, int] = {}
        self._deepest = (0, "")
        self.writers: dict[int, Operation] = {}
        self._expiries = {
            lease: Operation(NOBODY, min(grant.call_us for grant in grants), None, LeaseRevoke(lease), "unknown")
            for lease, grants in facts.grants.items()
        }

    def run(self) -> Verdict:
        try:
            wrong = self._wrong_answer(1)
            if wrong:
                return violation(wrong)
            return self._search()
        except Unsupported as beyond:
            return undecided(f"the checker cannot judge {beyond}")

    def _search(self) -> Verdict:
        frames: list[Iterator[Operation]] = []
        while self._model.revision < self._last:
            if len(frames) < self._model.revision:
                frames.append(iter(self._candidates(self._model.revision + 1)))
            if not self._advance(frames[-1]):
                frames.pop()
                if not frames:
                    return violation(self._deepest[1])
                self._retreat()
            if self._steps_left <= 0:
                revision, text = self._deepest
                return undecided(f"not decided in {self._steps_max} steps; got to revision {revision}: {text}")
        return OK

    def _advance(self, candidates: Iterator[Operation]) -> bool:
        revision = self._model.revision + 1
        tried = False
        for candidate in candidates:
            tried = True
            self._steps_left -= 1
            wrong = self._place(candidate, revision)
            if not wrong:
                return True
            self._note(revision, wrong)
        if not tried:
            self._note(revision, f"revision {revision} was seen, but no write is known that can have made it")
        return False

    def _note(self, revision: int, text: str) -> None:
        if revision > self._deepest[0]:
            self._deepest = (revision, text)

    def _place(self, operation: Operation, revision: int) -> str:
        """Executes `operation` as the writer of `revision`; returns the contradiction, if any, without effect."""
        try:
            answer = self._model.run(operation.request)  # type: ignore[arg-type]
        except Impossible as impossible:
            return f"revision {revision}: {impossible}:\n  {operation}"
        if self._model.revision < revision:
            return f"revision {revision}: it changes nothing there:\n  {operation}"
        wrong = self._against_sightings(revision)
        if not wrong and operation.status == "done" and not isinstance(operation.result, LeaseResult):
            wrong = differs(operation.request, operation.result, answer)
        if wrong:
            wrong = f"revision {revision}: {wrong}\n  {operation}"
        wrong = wrong or self._against_leases(revision) or self._wrong_answer(revision)
        if wrong:
            self._model.undo()
            return wrong
        self._placed.add(id(operation))
        self.writers[revision] = operation
        if isinstance(operation.request, LeaseRevoke):
            self._ended[operation.request.id] = revision
        return ""

    def _retreat(self) -> None:
        operation = self.writers.pop(self._model.revision)
        self._placed.discard(id(operation))
        if isinstance(operation.request, LeaseRevoke):
            self._ended.pop(operation.request.id, None)
        self._model.undo()

    def _candidates(self, revision: int) -> list[Operation]:
        """The possible writers of `revision`, the likeliest first."""
        acknowledged = self._facts.writers.get(revision)
        if acknowledged is not None:
            return [acknowledged]
        revokes = self._facts.revokes.get(revision, [])
        possible: dict[object, tuple[int, int, Operation]] = {}
        leases = {kv.lease for kv in self._model.current.values() if kv.lease}
        expiries = [self._expiries[lease] for lease in leases if lease in self._expiries]
        for operation in sorted((*revokes, *self._facts.unknown, *expiries), key=lambda each: each.call_us):
            if id(operation) in self._placed or operation.call_us > self._seen_us[revision]:
                continue
            shape = _shape(operation.request)
            if shape in possible:
                # Of two identical requests, take the earlier one: the choice makes no difference, and it permits more.
                continue
            unlike = self._trial(operation, revision)
            if unlike is not None:
                possible[shape] = (unlike, operation.call_us, operation)
        return [operation for _, _, operation in sorted(possible.values(), key=lambda each: each[:2])]

    def _trial(self, operation: Operation, revision: int) -> int | None:
        """How many watches contradict `operation` as the writer of `revision`; None if it is impossible."""
        self._steps_left -= 1
        try:
            self._model.run(operation.request)  # type: ignore[arg-type]
        except Impossible:
            return None
        if self._model.revision < revision:
            return None
        unlike: int | None = None
        if not self._against_sightings(revision):
            unlike = 0
            for watch, seen, first, last in self._facts.watched:
                if first <= revision <= last:
                    events = self._model.events[revision]
                    want = [event for event in events if within(event.kv.key, watch.key, watch.range_end)]
                    unlike += want != seen.get(revision, [])
        self._model.undo()
        return unlike

    # -- checks once a revision is made --------------------------------------------------------------------------------

    def _against_sightings(self, revision: int) -> str:
        left: dict[bytes, KeyValue] = {event.kv.key: event.kv for event in self._model.events[revision]}
        for key, kv in self._facts.sighted.get(revision, {}).items():
            if left.get(key) != kv:
                return f"{key!r} was seen as {kv}, the replay gives {left.get(key)}"
        return ""

    def _against_leases(self, revision: int) -> str:
        for event in self._model.events[revision]:
            lease = event.kv.lease
            if event.type != "PUT" or not lease:
                continue
            grants = self._facts.grants.get(lease, [])
            if not any(grant.call_us <= self._seen_us[revision] for grant in grants):
                return f"revision {revision}: {event.kv.key!r} has lease {lease}, which was not requested"
            ended = min(self._ended.get(lease, revision), self._facts.ended.get(lease, revision))
            if ended < revision and len(grants) == 1:
                return f"revision {revision}: {event.kv.key!r} has lease {lease}, which had ended by revision {ended}"
        return ""

    def _wrong_answer(self, revision: int) -> str:
        """The first answer of a read at `revision` that differs from the model's."""
        for operation in self._facts.answers.get(revision, ()):
            request = operation.request
            if isinstance(request, RangeRequest):
                # If any matches are a correct answer, all of them are needed.
                wanted = request._replace(limit=0) if request.order == "ANY" else request
                try:
                    answer: Any = self._model.range(wanted, revision)
                except Undeclared as undeclared:
                    return f"revision {revision}: {undeclared}, and it was answered:\n  {operation}"
            else:
                try:
                    answer = self._model.run(request)  # type: ignore[arg-type]
                except Impossible as impossible:
                    return f"revision {revision}: {impossible}:\n  {operation}"
                if self._model.revision > revision:
                    self._model.undo()
                    return f"revision {revision}: it changed nothing, and here it had to:\n  {operation}"
            wrong = differs(request, operation.result, answer)
            if wrong:
                return f"revision {revision}: {wrong}\n  {operation}"
        for operation in self._facts.revokes.get(revision, ()):
            attached = self._model.of_lease(operation.request.id)  # type: ignore[union-attr]
            if attached:
                return f"revision {revision}: {attached[0].key!r} has a lease that was ended by then:\n  {operation}"
        return ""


def _shape(request: Any) -> object:
    """Equal for equal requests. A declaration is identified by its name."""
    return (type(request), request.spec.name if isinstance(request, DeclareIndex) else request)


def differs(request: Any, got: Any, want: Any) -> str:
    """How an answer differs from the correct one; "" if it does not."""
    if type(got) is not type(want):
        return f"answered {got}, the replay gives {want}"
    if isinstance(got, TxnResult):
        if got[:2] != want[:2] or len(got.responses) != len(want.responses):
            return f"answered {got}, the replay gives {want}"
        ops = request.success if got.succeeded else request.failure
        parts = (differs(op, *pair) for op, *pair in zip(ops, got.responses, want.responses))
        return next(filter(None, parts), "")
    if isinstance(got, RangeResult):
        same = _any_of(request, got, want) if request.order == "ANY" else got[:5] == want[:5]
    else:
        same = got == want
    return "" if same else f"answered {got}, the replay gives {want}"


def _any_of(request: RangeRequest, got: RangeResult, want: RangeResult) -> bool:
    """Without an order, any min(limit, all) of the matches `want` are correct."""
    size = min(request.limit or len(want.kvs), len(want.kvs))
    distinct = {kv.key for kv in got.kvs}
    members = len(distinct) == len(got.kvs) == size and distinct <= {kv.key for kv in want.kvs}
    return members and set(got.kvs) <= set(want.kvs) and got.revision == want.revision and got.count in (-1, want.count)
