"""How objects are printed as rows: columns, ages, and what several kinds share.

Columns and cells are those of upstream's `pkg/printers/internalversion`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from minikube_py.api.errors import Json

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
Age = Callable[[Any], str]
"""From a timestamp's text (or None) to the time since, human-readable."""


class Column(NamedTuple):
    name: str
    type: str
    format: str
    description: str
    priority: int

    def definition(self) -> Json:
        return self._asdict()


def human_duration(duration_s: float) -> str:
    """Two or three significant digits: `90s`, `5m12s`, `3h4m`, `2d5h`, `45d`, `3y20d`."""
    seconds = int(duration_s)
    if seconds < -1:
        return "<invalid>"
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, rest = divmod(hours, 24)
    if hours < 192:
        return f"{days}d{rest}h" if rest else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if rest and hours < 24 * 365 * 8 else f"{years}y"


def format_labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def more_text(shown: list[str], count: int, most: int) -> str:
    """The first ones of `count`, and how many more there are."""
    text = ",".join(shown)
    return f"{text} + {count - most} more..." if count > most else text or "<unset>"


NAME: Final = Column("Name", "string", "name", "Name of the object.", 0)
AGE: Final = Column("Age", "string", "", "Time since the object was created.", 0)


def column(name: str, description: str, priority: int = 0, type: str = "string") -> Column:
    return Column(name, type, "", description, priority)


def print_name_and_age(obj: Json, age: Age) -> list[Any]:
    return [obj["metadata"]["name"], age(obj["metadata"].get("creationTimestamp"))]


def _no_conditions(obj: Json) -> list[Json] | None:
    return None


_USUAL_COLUMNS: Final = 20


class Printer(NamedTuple):
    """`cells(obj, age)` gives one value for each column; `conditions(obj)` those of the row, None for most. Rows of a
    list are sorted by `order(obj)`, where that is not the order of names."""

    columns: tuple[Column, ...]
    cells: Callable[[Json, Age], list[Any]]
    conditions: Callable[[Json], list[Json] | None] = _no_conditions
    order: Callable[[Json], Any] | None = None

    def at_once(self, count: int) -> int:
        """How many rows take as long as `count` of a usual width."""
        return max(count * _USUAL_COLUMNS // max(len(self.columns), _USUAL_COLUMNS), 1)


DEFAULT_PRINTER: Final = Printer(
    (NAME, Column("Created At", "date", "", "Time of creation.", 0)),
    lambda obj, age: [obj["metadata"].get("name", ""), obj["metadata"].get("creationTimestamp")],
)
