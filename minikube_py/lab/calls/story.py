"""Turns recorded calls into time-ordered arrows between lanes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from minikube_py.lab.calls.drawing import Arrow, Diagram, Note
from minikube_py.lab.calls.recorder import Call

STORE: Final = "store"
_CLIENTS: Final = ("user", "scheduler", "controllers", "kubelet")
CANDIDATES: Final = 21
"""Of this many pods, the one with the median time is shown."""
_BLOCK_MAX: Final = 8
"""Maximum length of a repeated sequence of rows."""


def diagram(title: str, subtitle: str, rows: Sequence[Arrow | Note]) -> Diagram:
    """With lanes for the named clients, API servers and the store."""
    named = {lane for row in rows if isinstance(row, Arrow) for lane in (row.source, row.target)}
    servers = sorted(named - {STORE, *_CLIENTS})
    lanes = [*(lane for lane in _CLIENTS if lane in named), *servers, *([STORE] if STORE in named else [])]
    return Diagram(title, subtitle, tuple(lanes), repeated(rows))


def rows_of(calls: Iterable[Call]) -> list[Arrow]:
    """Two arrows for a call and its response, one for an event; in order of time."""
    timed: list[tuple[float, int, Arrow]] = []
    for call in calls:
        source, target = (call.server, STORE) if call.layer in ("store", "events") else (call.role, call.server)
        if call.layer in ("events", "delivery"):
            kind = "event" if call.outcome == "done" else "refused"
            timed.append((call.sent_s, 1, Arrow(target, source, call.text, kind, call.sent_s)))  # type: ignore[arg-type]
            continue
        what = f"{call.text} {_about(call)}".rstrip() if call.layer == "store" else call.text
        timed.append((call.sent_s, 0, Arrow(source, target, what, "request", call.sent_s)))
        good = call.outcome in ("done", "open") or call.outcome.startswith("2")
        answer = call.note if call.outcome == "done" else f"{call.outcome} {call.note}".strip()
        if call.outcome == "open":
            continue
        reply = Arrow(target, source, answer, "reply" if good else "refused", call.ended_s)
        timed.append((call.ended_s, 2, reply))
    timed.sort(key=lambda item: (item[0], item[1]))
    return [arrow for _, _, arrow in timed]


def _about(call: Call) -> str:
    """The resource, if the text does not name it."""
    return f"of {call.resource}" if call.resource and not call.resource.startswith("(") else ""


def repeated(rows: Sequence[Arrow | Note]) -> list[Arrow | Note]:
    """Collapses consecutive repetitions of a sequence, ignoring times, into one with a count."""
    found: list[Arrow | Note] = []
    place = 0
    while place < len(rows):
        length, times = _repetition(rows, place)
        block = list(rows[place : place + length])
        first = block[0]
        if times > 1 and isinstance(first, Arrow):
            all_of_it = "" if length == 1 else f" (with the next {length - 1})"
            block[0] = Arrow(
                first.source, first.target, f"{first.text}  × {times:,}{all_of_it}", first.kind, first.at_s
            )
        found += block
        place += length * times
    return found


def _repetition(rows: Sequence[Arrow | Note], place: int) -> tuple[int, int]:
    """The block at `place` that repeats the most, as (rows, times)."""
    best = (1, 1)
    for length in range(1, _BLOCK_MAX + 1):
        block = [_key(row) for row in rows[place : place + length]]
        if len(block) < length:
            break
        times = 1
        while [_key(row) for row in rows[place + length * times : place + length * (times + 1)]] == block:
            times += 1
        if times > 1 and length * (times - 1) > best[0] * (best[1] - 1):
            best = (length, times)
    return best


def _key(row: Arrow | Note) -> tuple[str, ...]:
    return (row.text,) if isinstance(row, Note) else (row.source, row.target, row.text, row.kind)


def pod_story(calls: Sequence[Call]) -> Diagram | None:
    """One pod from creation to Running: of those created last, the one with the median time.

    None if the calls contain no complete pod."""
    created = [
        call.names[0]
        for call in calls
        if call.layer == "store" and call.resource == "pods" and call.text.startswith("txn: create")
    ]
    ways: dict[str, list[Call]] = {name: [] for name in created[-CANDIDATES:]}
    for call in calls:
        for name in {_pod_of(call, name) for name in call.names} & ways.keys():
            ways[name].append(call)
    whole = [(name, way) for name, way in ways.items() if sum(_writes_pod(call) for call in way) >= 3]
    if not whole:
        return None
    whole.sort(key=lambda item: item[1][-1].sent_s - item[1][0].sent_s)
    name, way = whole[len(whole) // 2]
    counts = Counter(call.layer for call in way)
    subtitle = (
        f"{name}: {counts['api']} API requests, {counts['store']} calls to the store; {counts['events']} events by the "
        f"API server's one watch, {counts['delivery']} deliveries to watchers"
    )
    return diagram("A pod from create to Running", subtitle, rows_of(way))


def _pod_of(call: Call, name: str) -> str:
    """An Event's name starts with its pod's, followed by a dot."""
    return name.rpartition(".")[0] if call.resource == "events" else name


def _writes_pod(call: Call) -> bool:
    return call.layer == "store" and call.resource == "pods" and call.text.startswith("txn")
