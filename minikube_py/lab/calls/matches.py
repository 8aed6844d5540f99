"""Traces one query through the store's modules, with the interpreter's profile hook.

Only calls that cross from one part to another are kept, and decoded objects are counted. The parts are not changed, so
the diagram follows the code. The hook slows the traced code, so times are measured separately.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Final, cast

from minikube_py.index.contract import Matches
from minikube_py.lab.calls.drawing import Arrow
from minikube_py.mvcc.types import KeyValue, RangeResult

LANES: Final = (
    ("minikube_py.lab", "client"),
    ("minikube_py.apiserver", "API server"),
    ("minikube_py.store", "store member"),
    ("minikube_py.mvcc.state", "store member"),
    ("minikube_py.mvcc.reads", "mvcc.reads"),
    ("minikube_py.mvcc.queries", "mvcc.queries"),
    ("minikube_py.mvcc.tables", "mvcc.tables"),
    ("minikube_py.index.planner", "index.planner"),
    ("minikube_py.index", "index"),
    ("minikube_py.mvcc.key_index", "mvcc.key_index"),
)
"""Module prefixes, first match wins; other modules count as part of their caller."""
CROSSINGS_MAX: Final = 200_000
PARTS_TOLD: Final = 3
UNTOLD: Final = frozenset(("end_of",))
"""Helpers that belong to one part and are used by all."""


@dataclass(slots=True)
class Visit:
    """A call into a lane from another one. `decoded`: JSON texts parsed in it, excluding further crossings."""

    lane: str
    function: str
    parent: Visit | None
    answer: str = ""
    decoded: int = 0
    children: list[Visit] = field(default_factory=list)


class Path:
    """Usage: `with Path("client") as path: ...`; then `path.arrows()`. One thread, without awaiting others."""

    def __init__(self, root: str) -> None:
        self.root = Visit(root, "", None)
        self._at = self.root
        self._frames: list[tuple[FrameType, Visit]] = []
        self._crossings = 0
        self._lanes: dict[str, str] = {}

    def __enter__(self) -> Path:
        sys.setprofile(self._hook)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        sys.setprofile(None)

    def _hook(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            lane = self._lane(frame.f_globals.get("__name__", ""))
            told = lane and lane != self._at.lane and frame.f_code.co_name not in UNTOLD
            if told and self._crossings < CROSSINGS_MAX:
                self._crossings += 1
                visit = Visit(lane, frame.f_code.co_qualname.removesuffix(".__call__"), self._at)
                self._at.children.append(visit)
                self._frames.append((frame, visit))
                self._at = visit
        elif event == "return":
            if self._frames and self._frames[-1][0] is frame:
                visit = self._frames.pop()[1]
                visit.answer = _answer(argument)
                assert visit.parent is not None
                self._at = visit.parent
        elif event == "c_call" and argument.__name__ == "loads":
            self._at.decoded += 1

    def _lane(self, module: str) -> str:
        found = self._lanes.get(module)
        if found is None:
            found = next((lane for prefix, lane in LANES if module.startswith(prefix)), "")
            self._lanes[module] = found
        return found

    def arrows(self) -> list[Arrow]:
        rows: list[Arrow] = []
        self._tell(self.root, rows)
        return rows

    def _tell(self, visit: Visit, rows: list[Arrow]) -> None:
        for child in visit.children:
            rows.append(Arrow(visit.lane, child.lane, f"{child.function}()", "request"))
            self._tell(child, rows)
            rows.append(Arrow(child.lane, visit.lane, child.answer, "reply"))
        if visit.decoded:
            rows.append(Arrow(visit.lane, visit.lane, f"decodes {visit.decoded:,} objects", "own"))

    def lanes(self) -> tuple[str, ...]:
        named = {lane for arrow in self.arrows() for lane in (arrow.source, arrow.target)}
        order = dict.fromkeys(lane for _, lane in LANES)
        return tuple(lane for lane in order if lane in named)

    def decoded(self) -> int:
        def below(visit: Visit) -> int:
            return visit.decoded + sum(map(below, visit.children))

        return below(self.root)


def _of(found: int, count: int) -> str:
    """A negative count means that it was not computed."""
    return f"{found:,} of {count:,}" if count >= 0 else f"{found:,}, not counted further"


def _answer(value: object) -> str:
    if isinstance(value, Matches):
        return f"Matches: {_of(len(value.keys), value.count)}, {value.rows_examined:,} rows examined"
    if isinstance(value, RangeResult):
        decoded = f", {value.stats.objects_decoded:,} decoded" if value.stats is not None else ""
        return f"RangeResult: {_of(len(value.kvs), value.count)}{decoded}"
    if isinstance(value, KeyValue):
        return "KeyValue"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    if isinstance(value, tuple) and not hasattr(value, "_fields") and len(value) <= PARTS_TOLD:
        parts = [part for part in value if hasattr(part, "_fields") or not isinstance(part, str | tuple)]
        return ", ".join(map(_answer, parts))
    if isinstance(value, list | dict | set):
        return f"{len(cast(Any, value)):,} of them"
    return "" if value is None else type(value).__name__
