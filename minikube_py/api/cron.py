"""Schedules of CronJobs: five fields, `@hourly` and its like, `@every 90s`; and their next activation.

Source: github.com/robfig/cron v3 (parser.go, spec.go, constantdelay.go), with the same rules, messages and DST
handling. Zones are those of the standard library's `zoneinfo`; the default is UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from minikube_py.api.errors import go_quote
from minikube_py.api.values import BadValue, duration_ns

YEARS_AHEAD_MAX: Final = 5
"""Search limit for the next activation."""
_STAR: Final = 1 << 63
_EPOCH: Final = datetime(1970, 1, 1)


class Schedule(Protocol):
    def next(self, after_s: float) -> float | None:
        """The first time later than `after_s`; None if there is none within some years."""
        ...


class BadSchedule(ValueError):
    """An invalid schedule; the text is upstream's."""


class _Bounds(NamedTuple):
    low: int
    high: int
    names: Mapping[str, int] = {}


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_BOUNDS: Final = (
    _Bounds(0, 59),
    _Bounds(0, 23),
    _Bounds(1, 31),
    _Bounds(1, 12, {name: i + 1 for i, name in enumerate(_MONTHS)}),
    _Bounds(0, 6, {name: i for i, name in enumerate(_DAYS)}),
)
"""Minute, hour, day of the month, month, day of the week."""
_DESCRIPTORS: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


def parse(text: str, zone: tzinfo = UTC) -> Schedule:
    """`zone` applies unless the schedule names one. Raises: BadSchedule."""
    if not text:
        raise BadSchedule("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        head, blank, rest = text.partition(" ")
        if not blank:
            raise BadSchedule("invalid schedule format: runtime error: slice bounds out of range [:-1]")
        name = head.partition("=")[2]
        try:
            zone = load_zone(name)
        except BadSchedule as error:
            raise BadSchedule(f"provided bad location {name}: {error}") from None
        text = rest.strip()
    if text.startswith("@"):
        return _described(text, zone)
    fields = text.split()
    if len(fields) != len(_BOUNDS):
        raise BadSchedule(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    minute, hour, day, month, weekday = (_field(field, bounds) for field, bounds in zip(fields, _BOUNDS))
    return Spec(minute, hour, day, month, weekday, zone)


def _described(text: str, zone: tzinfo) -> Schedule:
    if text in _DESCRIPTORS:
        return parse(_DESCRIPTORS[text], zone)
    if not text.startswith("@every "):
        raise BadSchedule(f"unrecognized descriptor: {text}")
    length = text.removeprefix("@every ")
    try:
        return Every(max(duration_ns(length) // 10**9, 1))
    except BadValue as error:
        raise BadSchedule(f"failed to parse duration {length}: {error}") from None


def _field(text: str, bounds: _Bounds) -> int:
    bits = 0
    for part in filter(None, text.split(",")):
        bits |= _range(part, bounds)
    return bits


def _range(text: str, bounds: _Bounds) -> int:
    """`number`, `low-high` or `*`, each with or without `/step`, as a set of bits."""
    span, *steps = text.split("/")
    low, *highs = span.split("-")
    star = 0
    if low in ("*", "?"):
        start, end, star = bounds.low, bounds.high, _STAR
    else:
        start = _number(low, bounds.names)
        if len(highs) > 1:
            raise BadSchedule(f"too many hyphens: {text}")
        end = _number(highs[0], bounds.names) if highs else start
    if len(steps) > 1:
        raise BadSchedule(f"too many slashes: {text}")
    step = _number(steps[0]) if steps else 1
    if steps:
        end = end if highs else bounds.high
        star = 0 if step > 1 else star
    if start < bounds.low:
        raise BadSchedule(f"beginning of range ({start}) below minimum ({bounds.low}): {text}")
    if end > bounds.high:
        raise BadSchedule(f"end of range ({end}) above maximum ({bounds.high}): {text}")
    if start > end:
        raise BadSchedule(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise BadSchedule(f"step of range should be a positive number: {text}")
    return sum(1 << value for value in range(start, end + 1, step)) | star


def _number(text: str, names: Mapping[str, int] = {}) -> int:
    if (named := names.get(text.lower())) is not None:
        return named
    if not _INTEGER.fullmatch(text):
        raise BadSchedule(f"failed to parse int from {text}: strconv.Atoi: parsing {go_quote(text)}: invalid syntax")
    value = int(text[:40])
    if abs(value) >= 1 << 63:
        raise BadSchedule(
            f"failed to parse int from {text}: strconv.Atoi: parsing {go_quote(text)}: value out of range"
        )
    if value < 0:
        raise BadSchedule(f"negative number ({value}) not allowed: {text}")
    return value


@lru_cache(256)
def load_zone(name: str) -> tzinfo:
    """A zone of the IANA database. Raises: BadSchedule."""
    if name in ("", "UTC", "Local"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise BadSchedule(f"unknown time zone {name}") from None


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed interval after the given time."""

    delay_s: int

    def next(self, after_s: float) -> float | None:
        return float(int(after_s // 1) + self.delay_s)


class _Unit(NamedTuple):
    matches: Callable[[datetime], Any]
    start: Callable[[int], int]
    forward: Callable[[int], int]
    wrapped: Callable[[datetime], bool]


@dataclass(frozen=True, slots=True)
class Spec:
    """Five fields, as sets of bits; `_STAR` is set where one of them began with a star."""

    minute: int
    hour: int
    day: int
    month: int
    weekday: int
    zone: tzinfo

    def next(self, after_s: float) -> float | None:
        """Goes from the month down to the second; if one wraps around, restart."""
        at_s, touched = int(after_s // 1) + 1, False
        year_max = self._local(at_s).year + YEARS_AHEAD_MAX
        while self._local(at_s).year <= year_max:
            for unit in self._units():
                at_s, touched, wrapped = self._advance(unit, at_s, touched)
                if wrapped:
                    break
            else:
                return float(at_s)
        return None

    def _advance(self, unit: _Unit, at_s: int, touched: bool) -> tuple[int, bool, bool]:
        """To where `unit` matches, or until it wraps around. The first advance of all begins at the unit's start."""
        while not unit.matches(self._local(at_s)):
            if not touched:
                at_s, touched = unit.start(at_s), True
            at_s = unit.forward(at_s)
            if unit.wrapped(self._local(at_s)):
                return at_s, touched, True
        return at_s, touched, False

    def _units(self) -> tuple[_Unit, ...]:
        return (
            _Unit(
                lambda local: self.month >> local.month & 1,
                lambda at_s: self._instant(self._local(at_s).replace(day=1, hour=0, minute=0, second=0)),
                lambda at_s: self._instant(_month_later(self._local(at_s))),
                lambda local: local.month == 1,
            ),
            _Unit(
                self._is_day,
                lambda at_s: self._instant(self._local(at_s).replace(hour=0, minute=0, second=0)),
                self._next_day,
                lambda local: local.day == 1,
            ),
            _Unit(
                lambda local: self.hour >> local.hour & 1,
                lambda at_s: self._instant(self._local(at_s).replace(minute=0, second=0)),
                lambda at_s: at_s + 3600,
                lambda local: local.hour == 0,
            ),
            _Unit(
                lambda local: self.minute >> local.minute & 1,
                lambda at_s: at_s - at_s % 60,
                lambda at_s: at_s + 60,
                lambda local: local.minute == 0,
            ),
            _Unit(
                lambda local: local.second == 0,
                lambda at_s: at_s,
                lambda at_s: at_s + 1,
                lambda local: local.second == 0,
            ),
        )

    def _is_day(self, local: datetime) -> bool:
        of_month = bool(self.day >> local.day & 1)
        of_week = bool(self.weekday >> local.isoweekday() % 7 & 1)
        both = (self.day | self.weekday) & _STAR
        return of_month and of_week if both else of_month or of_week

    def _next_day(self, at_s: int) -> int:
        """The next midnight, even if the clock skips it."""
        at_s = self._instant(self._local(at_s) + timedelta(days=1))
        hour = self._local(at_s).hour
        if hour > 12:
            return at_s + (24 - hour) * 3600
        return at_s - hour * 3600

    def _local(self, at_s: int) -> datetime:
        """Local wall-clock time."""
        return (datetime.fromtimestamp(at_s, UTC).astimezone(self.zone)).replace(tzinfo=None, fold=0)

    def _offset_s(self, at_s: int) -> int:
        found = datetime.fromtimestamp(at_s, UTC).astimezone(self.zone).utcoffset()
        return int(found.total_seconds()) if found is not None else 0

    def _instant(self, local: datetime) -> int:
        """As Go's time.Date: for ambiguous or skipped local times, one of the two instants."""
        as_utc_s = (local - _EPOCH) // timedelta(seconds=1)
        return as_utc_s - self._offset_s(as_utc_s - self._offset_s(as_utc_s))


def _month_later(local: datetime) -> datetime:
    years, month = divmod(local.month, 12)
    first = local.replace(year=local.year + years, month=month + 1, day=1)
    return first + timedelta(days=local.day - 1)
