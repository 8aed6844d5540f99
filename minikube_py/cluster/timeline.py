"""A log of a program under test: its reads and writes, the events it saw, and the faults, a line each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

import orjson

from minikube_py.client.transport import ApiResponse, WatchEvent
from minikube_py.mvcc.types import Event

NS_PER_S: Final = 1_000_000_000
LINES_MAX: Final = 160
TEXT_MAX: Final = 200
REGISTRY: Final = "/registry/"
TURN_MAX: Final = 6
"""The lines of one turn of a program that polls, at most."""
TIMELINE: Final = "reads and writes, in virtual seconds since the first program or fault:"
REPEATS_MIN: Final = 2
_READ: Final = re.compile(r"(?<= items) at revision \d+$")
"""A list's revision grows with any write, such as a heartbeat."""


class Change(NamedTuple):
    """A change in the store by any client."""

    key: str
    kind: str
    revision: int


Entry = str | Change | Callable[[], str]


class Timeline:
    """`now_ns`: of the cluster. Lines are formatted when shown."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._entries: list[tuple[int, Entry]] = []
        self._unanswered: dict[object, tuple[int, Entry]] = {}
        self.zero_ns = now_ns()
        self.plurals: dict[str, None] = {}

    def add(self, entry: Entry) -> None:
        self._entries.append((self._now_ns(), entry))

    def changed(self, now_ns: int, event: Event) -> None:
        kv = event.kv
        kind = "deleted" if event.type != "PUT" else "created" if kv.version == 1 else "changed"
        self.add(Change(kv.key.decode(errors="replace").removeprefix(REGISTRY), kind, kv.mod_revision))

    def request(
        self, who: str, method: str, path: str, params: Mapping[str, str] | None, body: bytes | None
    ) -> Callable[[object], None]:
        """Returns the function to call with the answer."""
        self.plurals[plural_of(path)] = None
        asked = " ".join(filter(None, (method, path, _query(params))))

        self._unanswered[asked_at := object()] = self._now_ns(), f"{who}: {asked}: no answer came"

        def told(answer: object) -> None:
            self._unanswered.pop(asked_at, None)
            if answer is None:
                self.add(f"{who}: {asked}")
            else:
                self.add(lambda: f"{who}: {asked}: {_answer(answer)}")

        return told

    def events(self, who: str, path: str, batch: Sequence[WatchEvent]) -> None:
        self.add(lambda: "\n".join(f"{who} sees {_event(path, each)}" for each in batch if each.type != "BOOKMARK"))

    def revision_before(self, plural: str, draw: int) -> int:
        """That just before a change of such objects: by half of the draws, the odd ones, a change by which one came or
        went. 0 if there was none since the start."""
        changes = [each for _, each in self._entries if isinstance(each, Change) and plural in each.key.split("/")[:2]]
        found = [each.revision for each in changes if draw % 2 == 0 or each.kind != "changed"]
        return found[-1 - draw // 2 % len(found)] - 1 if found else 0

    def lines(self) -> list[str]:
        """Changes relevant to the program, repeated lines once; if there are too many, the middle is omitted."""
        told: list[tuple[int, str]] = []
        for at_ns, entry in sorted([*self._entries, *self._unanswered.values()], key=itemgetter(0)):
            if isinstance(entry, Change):
                if not self.plurals.keys() & {*entry.key.split("/")[:2]}:
                    continue
                text = f"    store: {entry.key} {entry.kind} at revision {entry.revision}"
            else:
                text = entry if isinstance(entry, str) else entry()
            told += [(at_ns - self.zero_ns, line[:TEXT_MAX]) for line in text.splitlines()]
        found = list(_once(told))
        if len(found) > LINES_MAX:
            half = LINES_MAX // 2
            found[half:-half] = [f"            ... {len(found) - 2 * half} lines left out ..."]
        return found


def _once(told: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Lines that repeat, one by one or several in turn, as by a program that polls, and how many times."""
    keys = [_READ.sub("", text) for _, text in told]
    at = 0
    while at < len(told):
        period, more = next(
            ((n, more) for n in range(1, TURN_MAX + 1) if (more := _repeats(keys, at, n)) >= REPEATS_MIN), (1, 0)
        )
        yield from (f"{at_ns / NS_PER_S:10.4f}  {text}" for at_ns, text in told[at : at + period])
        at += period * (more + 1)
        if more:
            what = f"these {period} lines" if period > 1 else "this line"
            yield f"            ... {what} {more} more times, until {told[at - 1][0] / NS_PER_S:.4f} ..."


def _repeats(keys: Sequence[str], at: int, period: int) -> int:
    """How many times the lines that begin there follow again."""
    first, more = keys[at : at + period], 0
    while keys[at + period * (more + 1) : at + period * (more + 2)] == first:
        more += 1
    return more


def plural_of(path: str) -> str:
    """`/api/v1/namespaces/a/pods/b/status` is of pods."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[:1] == ["api"] else parts[3:]
    if parts[:1] == ["namespaces"] and len(parts) > 2:
        parts = parts[2:]
    return parts[0] if parts else ""


def _query(params: Mapping[str, str] | None) -> str:
    return "&".join(f"{name}={value}" for name, value in (params or {}).items())


def _answer(answer: object) -> str:
    if not isinstance(answer, ApiResponse):
        return f"{type(answer).__name__}: {answer}"
    try:
        body: dict[str, Any] = orjson.loads(answer.body)
        metadata = body.get("metadata") or {}
    except (orjson.JSONDecodeError, AttributeError):
        return str(answer.status)
    if answer.status >= 300:
        return f"{answer.status} {body.get('reason', '')}: {body.get('message', '')}"
    items = f" with {len(body['items'])} items" if isinstance(body.get("items"), list) else ""
    revision = metadata.get("resourceVersion")
    return f"{answer.status}{items}{f' at revision {revision}' if revision else ''}"


def _event(path: str, event: WatchEvent) -> str:
    obj: dict[str, Any] = orjson.loads(event.object)
    metadata = obj.get("metadata") or {}
    if event.type == "ERROR":
        return f"the watch of {path} end: {obj.get('code')} {obj.get('message')}"
    name = "/".join(filter(None, (plural_of(path), metadata.get("namespace"), metadata.get("name"))))
    return f"{event.type} {name} at revision {metadata.get('resourceVersion')}"
