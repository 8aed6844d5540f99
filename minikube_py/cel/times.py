"""Parts of timestamps and durations. Source: cel-go `common/types/{timestamp,duration}.go`."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from minikube_py.cel.values import NANOSECONDS, EvaluationError, Timestamp, civil, days_from_civil

_OFFSET: Final = re.compile(r"([+-]?[0-9]+)")


def _offset_s(zone: str, at: Timestamp) -> int | EvaluationError:
    """How far a zone is from UTC, by its name or as `+01:30`. The zone of the server is UTC."""
    hours, colon, minutes = zone.partition(":")
    if not colon:
        return 0 if zone in ("", "UTC", "Local") else _zone_offset_s(zone, at)
    for part in (hours, minutes):
        if _OFFSET.fullmatch(part) is None:
            return EvaluationError(f'strconv.Atoi: parsing "{part}": invalid syntax')
    offset = int(hours) * 60
    return (offset - int(minutes) if zone.startswith("-") else offset + int(minutes)) * 60


def _zone_offset_s(name: str, at: Timestamp) -> int | EvaluationError:
    try:
        known = zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return EvaluationError(f"unknown time zone {name}")
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    try:
        moved = (epoch + timedelta(seconds=at.ns // NANOSECONDS)).astimezone(known).utcoffset()
    except OverflowError:
        return 0
    return int((moved or timedelta()).total_seconds())


def _year(at: Timestamp, offset_s: int) -> int:
    return civil(at, offset_s)[0]


def _day_of_year(at: Timestamp, offset_s: int) -> int:
    year, month, day, _ = civil(at, offset_s)
    return days_from_civil(year, month, day) - days_from_civil(year, 1, 1)


def _day_of_week(at: Timestamp, offset_s: int) -> int:
    return ((at.ns // NANOSECONDS + offset_s) // 86_400 + 4) % 7


_PARTS: Final[dict[str, Callable[[Timestamp, int], int]]] = {
    "year": _year,
    "month": lambda at, offset_s: civil(at, offset_s)[1] - 1,
    "day_of_year": _day_of_year,
    "day_of_month": lambda at, offset_s: civil(at, offset_s)[2] - 1,
    "day_of_month_1_based": lambda at, offset_s: civil(at, offset_s)[2],
    "day_of_week": _day_of_week,
    "hours": lambda at, offset_s: civil(at, offset_s)[3] // 3600,
    "minutes": lambda at, offset_s: civil(at, offset_s)[3] // 60 % 60,
    "seconds": lambda at, offset_s: civil(at, offset_s)[3] % 60,
    "milliseconds": lambda at, offset_s: at.ns % NANOSECONDS // 1_000_000,
}


def _in_utc(part: Callable[[Timestamp, int], int]) -> Callable[[Any], Any]:
    return lambda at: part(at, 0)


def _in_zone(part: Callable[[Timestamp, int], int]) -> Callable[[Any, Any], Any]:
    def asked(at: Timestamp, zone: str) -> Any:
        offset_s = _offset_s(zone, at)
        return offset_s if isinstance(offset_s, EvaluationError) else part(at, offset_s)

    return asked


def _whole(unit_ns: int, below: int = 0) -> Callable[[Any], Any]:
    def asked(duration: Any) -> int:
        rest = abs(duration.ns) % below if below else abs(duration.ns)
        found: int = rest // unit_ns
        return -found if duration.ns < 0 else found

    return asked


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{f"timestamp_to_{name}": _in_utc(part) for name, part in _PARTS.items()},
    **{f"timestamp_to_{name}_with_tz": _in_zone(part) for name, part in _PARTS.items()},
    "duration_to_hours": _whole(3600 * NANOSECONDS),
    "duration_to_minutes": _whole(60 * NANOSECONDS),
    "duration_to_seconds": _whole(NANOSECONDS),
    "duration_to_milliseconds": _whole(1_000_000),
}
