"""Simple JSONPaths: those of printed columns, scales and selectable fields."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from minikube_py.fields.digits import whole_number

Step = str | int | tuple[str, str] | None
"""A member, an index, a filter for equality (`?(@.type=="Ready")`), or every item (None)."""
_STEP: Final = re.compile(
    r"""\.(?P<member>(?:\\.|[^.\[\]])+) | \[(?P<index>-?\d+)\] | \[(?P<all>\*)\] | \['(?P<quoted>(?:[^'\\]|\\.)*)'\]
    | \[\?\(\s*@(?P<left>[\w./\\-]+)\s*==\s*(?P<right>"[^"]*"|'[^']*'|[^\s()]+)\s*\)\]""",
    re.VERBOSE,
)


class BadPath(ValueError):
    """The path is not supported."""


@lru_cache(1024)
def steps_of(path: str) -> tuple[Step, ...]:
    """Raises: BadPath."""
    found: list[Step] = []
    at = 0
    if path in ("", "."):
        return ()
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise BadPath(f"{path!r} cannot be followed from {path[at:]!r} on")
        at = match.end()
        if match["member"] is not None:
            member = re.sub(r"\\(.)", r"\1", match["member"])
            found.append(None if member == "*" else member)
        elif match["index"] is not None:
            found.append(whole_number(match["index"]))
        elif match["all"]:
            found.append(None)
        elif match["quoted"] is not None:
            found.append(re.sub(r"\\(.)", r"\1", match["quoted"]))
        else:
            found.append((match["left"], match["right"].strip("\"'")))
    return tuple(found)


def follow(obj: Any, steps: tuple[Step, ...], left: list[int] | None = None) -> list[Any]:
    """The values at the path: none, one or several. `left`: how many items may be looked at; none are found beyond."""
    found = [obj]
    for step in steps:
        if left is not None and (len(found) > 1 or not isinstance(step, str | int)):
            each = max(len(steps_of(step[0])), 1) if isinstance(step, tuple) else 1
            left[0] -= each * sum(len(value) if isinstance(value, list | dict) else 1 for value in found)
            if left[0] < 0:
                return []
        found = [inner for value in found for inner in _next(value, step)]
    return found


def _next(value: Any, step: Step) -> list[Any]:
    if isinstance(step, str):
        return [value[step]] if isinstance(value, dict) and step in value else []
    if step is None:
        return list(value) if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    if not isinstance(value, list):
        return []
    if isinstance(step, int):
        return [value[step]] if -len(value) <= step < len(value) else []
    path, wanted = step
    return [each for each in value if any(_is_text(v, wanted) for v in follow(each, steps_of(path)))]


def _is_text(value: Any, wanted: str) -> bool:
    """Objects and lists equal no text: writing them as one would take as long as they are."""
    if isinstance(value, dict | list):
        return False
    return (str(value).lower() if isinstance(value, bool) else str(value)) == wanted
