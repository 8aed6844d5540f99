"""A run in virtual time as one HTML file: nodes that fill, waiting pods, and a slider through the run.

The file is self-contained and loads nothing. Pure except `write_page`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import orjson

from minikube_py.fields.builtin import NODES, PODS
from minikube_py.mvcc.types import Event
from minikube_py.ui.view import node_facts, pod_facts, shown_amounts

MOMENTS_MAX: Final = 500_000
"""Changes that a recording holds, some 25 bytes each in the file; it keeps the first, and counts those after."""

NODE_PUT, NODE_GONE, POD_PUT, POD_GONE = range(4)


class Recording:
    """A run's changes of nodes and pods.

    `take` gets each change of the store, as from `HistoryDigest`. Changes that the page does not show, such as
    heartbeats, are skipped."""

    def __init__(self, title: str, moments_max: int = MOMENTS_MAX) -> None:
        self.title = title
        self.left_out = 0
        """Moments beyond `moments_max`."""
        self._moments_max = moments_max
        self._moments: list[list[float]] = []
        self._tables: dict[str, dict[Hashable, int]] = {"nodes": {}, "pods": {}, "names": {}}
        self._rows: dict[str, list[Any]] = {"nodes": [], "pods": [], "names": []}
        self._last: dict[bytes, list[int]] = {}
        """The last value by key."""

    def take(self, now_ns: int, event: Event) -> None:
        """Raises: ValueError if an object is not JSON, as the API server wrote it."""
        key = event.kv.key
        is_pod = key.startswith(PODS.prefix)
        if not is_pod and not key.startswith(NODES.prefix):
            return
        if event.type == "PUT":
            stored = orjson.loads(event.kv.value)
            moment = self._pod(stored) if is_pod else self._node(stored)
            if self._last.get(key) == moment:
                return
            self._last[key] = moment
        else:
            moment = [POD_GONE if is_pod else NODE_GONE, *self._last.pop(key)[1:2]]
        if len(self._moments) < self._moments_max:
            self._moments.append([round(now_ns / 1e9, 6), *moment])
        else:
            self.left_out += 1

    @property
    def held(self) -> int:
        """How many moments."""
        return len(self._moments)

    def as_dict(self) -> dict[str, Any]:
        """`moments`: [seconds, what, ...] in order, where `what` and what follows are

        - 0: a node is put: its row in `nodes`, [name, zone, ready, open, {resource: allocatable}];
        - 1: a node is deleted: the row that it had;
        - 2: a pod is put: its row in `pods`, [namespace/name, {resource: requested}], then rows in `names`: of its node
          ("" while it waits), its phase, and why it waits;
        - 3: a pod is deleted: the row that it had."""
        return {"title": self.title, "left_out": self.left_out, **self._rows, "moments": self._moments}

    def _node(self, node: Mapping[str, Any]) -> list[int]:
        facts = node_facts(node)
        amounts = shown_amounts(facts.allocatable)
        return [NODE_PUT, self._row("nodes", [facts.name, facts.zone, facts.ready, facts.open, amounts])]

    def _pod(self, pod: Mapping[str, Any]) -> list[int]:
        facts = pod_facts(pod)
        phase = "Terminating" if facts.terminating else facts.phase
        names = [self._row("names", name) for name in (facts.node, phase, "" if facts.node else facts.reason)]
        return [POD_PUT, self._row("pods", [facts.key, shown_amounts(facts.requests)]), *names]

    def _row(self, table: str, value: Any) -> int:
        """Equal values share a row."""
        known, rows = self._tables[table], self._rows[table]
        number = known.setdefault(value if isinstance(value, str) else orjson.dumps(value), len(rows))
        if number == len(rows):
            rows.append(value)
        return number


def write_page(path: Path, recordings: Sequence[Recording], say: Callable[[str], None]) -> None:
    """Several recordings share one slider. Deterministic: the same runs give the same bytes.

    Raises: OSError."""
    for each in recordings:
        if each.left_out:
            say(
                f"{path.name} shows the first {each.held:,} changes of {each.title}; {each.left_out:,} later "
                "ones are omitted"
            )
    path.write_bytes(page_of(recordings))


def page_of(recordings: Sequence[Recording]) -> bytes:
    text = _static("recorded.html")
    # A "<" in a name could end the element that holds the data.
    data = orjson.dumps([each.as_dict() for each in recordings]).decode().replace("<", "\\u003c")
    parts = {"style": _static("page.css"), "script": _static("grid.js") + _static("recorded.js"), "data": data}
    for name, part in parts.items():
        before, after = text.split(f"%{name}%", 1)
        text = before + part + after
    return text.encode()


def _static(name: str) -> str:
    return files("minikube_py.ui").joinpath("static", name).read_text("utf-8")
