"""Shrinks histories, and prints them as runnable Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from minikube_py.index.contract import Row
from minikube_py.lab.conformance.history import (
    FIRST_REVISION,
    Apply,
    Asked,
    BuildIndex,
    Changed,
    Compact,
    Declare,
    Drop,
    Event,
    History,
    Query,
    run,
    where_of,
)
from minikube_py.lab.conformance.program import Broken, shown_value
from minikube_py.sim.shrinking import Rounds, fewest


def shrink(build: BuildIndex[Any], history: History, broken: Broken, rounds: int = 1500) -> tuple[History, Broken]:
    """A history with fewer rows, events, changes and comparisons that breaks the same law."""

    def fails_at(tried: History) -> Broken | None:
        try:
            run(build, tried)
        except Broken as found:
            return found if found.law == broken.law else None
        return None

    left = Rounds(rounds)
    rows, fields, events = history.rows, history.fields, history.events

    def with_events(changed: tuple[Event, ...]) -> Broken | None:
        return fails_at(replace(history, fields=fields, rows=rows, events=changed))

    def with_rows(changed: tuple[tuple[bytes, Row], ...]) -> Broken | None:
        return fails_at(replace(history, fields=fields, rows=changed, events=events))

    def with_fields(changed: tuple[str, ...]) -> Broken | None:
        return fails_at(replace(history, fields=changed, rows=rows, events=events))

    if broken.step and with_events(events[: broken.step]) is not None:
        events = events[: broken.step]
    events = fewest(events, left.limited(with_events))
    rows = () if rows and with_rows(()) is not None else fewest(rows, left.limited(with_rows))
    fields = fewest(fields, left.limited(with_fields))
    by_events = left.limited(with_events)
    place = 0
    while place < len(events):
        for simpler in _simpler(events[place]):
            changed = (*events[:place], simpler, *events[place + 1 :])
            if by_events(changed) is not None:
                events = changed
                break
        else:
            place += 1
    least = replace(history, fields=fields, rows=rows, events=events)
    return least, fails_at(least) or broken


def _simpler(event: Event) -> Iterator[Event]:
    """Each is smaller than `event`: fewer changes, fields, comparisons or bounds."""
    if isinstance(event, Apply):
        if len(event.changes) > 1:
            for place in range(len(event.changes)):
                yield event._replace(changes=(*event.changes[:place], *event.changes[place + 1 :]))
        for place, (key, row) in enumerate(event.changes):
            for name in row or {}:
                less = {field: value for field, value in (row or {}).items() if field != name}
                yield event._replace(changes=(*event.changes[:place], (key, less), *event.changes[place + 1 :]))
        if event.gap > 1:
            yield event._replace(gap=1)
    elif isinstance(event, Query):
        for place in range(len(event.asked)):
            yield event._replace(asked=(*event.asked[:place], *event.asked[place + 1 :]))
        for plain in (event._replace(start=b""), event._replace(end=None), event._replace(limit=0)):
            if plain != event:
                yield plain


# -- reading -----------------------------------------------------------------------------------------------------------


def listing(history: History, broken: Broken, structure: str) -> str:
    """The history as Python, and what it shows. `structure`: the structure's name."""
    lines = [f"index = hosted({structure!r}, {history.fields!r}, revision={FIRST_REVISION}, rows={{"]
    lines += [f"    {key.decode()!r}: {_row(row)}," for key, row in history.rows]
    lines.append("})")
    if not history.rows:
        lines = [f"index = hosted({structure!r}, {history.fields!r}, revision={FIRST_REVISION})"]
    revision = oldest = FIRST_REVISION
    for event in history.events:
        if isinstance(event, Apply):
            revision += event.gap
            changes = ", ".join(f"{key.decode()!r}: {_row(row)}" for key, row in event.changes)
            lines.append(f"index.apply({revision}, {{{changes}}})")
            continue
        if isinstance(event, Compact):
            oldest = max(oldest, revision - event.back)
            lines.append(f"index.compact({oldest})")
        elif isinstance(event, Query):
            lines.append(_query(event, max(oldest, revision - event.back)))
        elif isinstance(event, Changed):
            lines.append(f"index.changed(after={max(oldest, revision - event.back)}, until={revision})")
        elif isinstance(event, Declare):
            lines.append(f"also = declared(index, turn={event.turn}, slice_rows={event.slice_rows})  # is queried too")
        elif isinstance(event, Drop):
            lines.append("also.close()")
        else:
            oldest = oldest if event.back is None else max(oldest, revision - event.back)
            beside = "  # and is queried beside the old one" if event.keep else ""
            lines.append(f"index = rebuilt(index, at={oldest}){beside}")
    return "\n".join([*lines, f"# {broken.law}:", f"#   {broken.wanted}"])


def _query(event: Query, revision: int) -> str:
    texts = [f"{str(where_of(event.asked))!r}", f"revision={revision}"]
    texts += [f"limit={event.limit}"] if event.limit else []
    texts += ["order='ANY'"] if event.order == "ANY" else []
    texts += [f"start={event.start.decode()!r}"] if event.start else []
    texts += [f"end={event.end.decode()!r}"] if event.end is not None else []
    note = _in_units(event.asked)
    return f"index.query({', '.join(texts)}){'  # ' + note if note else ''}"


def _in_units(asked: Sequence[Asked]) -> str:
    """The stored values of the texts, where they differ."""
    meant = []
    for each in asked:
        for text, value in zip(each.texts, each.values):
            if text != str(value):
                meant.append(f"{each.field} {text} is {shown_value(int(value))}")
    return ", ".join(meant)


def _row(row: Row | None) -> str:
    return "None" if row is None else repr(dict(row))
