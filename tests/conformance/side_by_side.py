"""What tests of drawn scenarios share: the events that can be compared, and how differences are shown."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from minikube_py.client.rest import EVENTS, RestClient

TOLD_MAX, SIMILAR_MAX = 20, 8
"""Of more events of one object, counted as often as each came, upstream holds some back, and of more with one reason
it combines some: by their pace, which is chance."""


class Told:
    """The events of each object in the order of their first time, and the objects with too many."""

    def __init__(self) -> None:
        self.by_name: dict[str, list[str]] = {}
        self.many: set[str] = set()

    async def read(self, client: RestClient, namespace: str, kind: str, plain: Callable[[str], str]) -> None:
        """`plain`: a message without what differs by chance."""
        counts: Counter[str] = Counter()
        similar: Counter[tuple[str, str]] = Counter()
        events = await client.list(EVENTS, namespace)
        for event in sorted(events, key=lambda each: str(each["metadata"]["name"].rpartition(".")[2])):
            about, reason = event["involvedObject"], event["reason"]
            if about["kind"] != kind:
                continue
            name = about["name"]
            counts[name] += event["count"]
            similar[name, reason] += 1
            self.by_name.setdefault(name, []).append(f"{event['type']} {reason}: {plain(event['message'])}")
        self.many |= {name for name, count in counts.items() if count > TOLD_MAX}
        self.many |= {name for (name, _), count in similar.items() if count > SIMILAR_MAX}


class Lived(Protocol):
    """A script's run on one server."""

    told: Told
    answers: list[dict[str, dict[str, Any]]]


def comparable(upstream: Told, mine: Told) -> set[str]:
    return {*upstream.by_name, *mine.by_name} - upstream.many - mine.many


def judged(upstream: Lived, mine: Lived, least: int) -> None:
    """What was there after each step, and the events of at least so many objects. Raises: AssertionError."""
    said = []
    for at, (theirs, ours) in enumerate(zip(upstream.answers, mine.answers, strict=True)):
        said += different(f"step {at}", theirs, ours)
    names = comparable(upstream.told, mine.told)
    assert len(names) >= least
    said += different("events", upstream.told.by_name, mine.told.by_name, names)
    assert not said, "\n".join(said)


def different(what: str, upstream: Any, mine: Any, names: Iterable[str] | None = None) -> list[str]:
    """A difference as lines, by name of the object."""
    found = []
    for name in sorted({*upstream, *mine} if names is None else names):
        texts = [json.dumps(side.get(name), indent=1, sort_keys=True).splitlines() for side in (upstream, mine)]
        differ = list(difflib.unified_diff(*texts, "upstream", "ours", lineterm="", n=2))
        if differ:
            found += [f"--- {name}, {what}", *differ]
    return found
