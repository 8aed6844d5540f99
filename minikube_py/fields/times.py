"""Times as int64 microseconds since 1970: RFC 3339 read and printed.

Source: RFC 3339, section 5.6. Objects use a subset: `Time` has whole seconds and `MicroTime` six digits, both UTC.
Digits finer than a microsecond are truncated; leap seconds and years before 1 are rejected, as in Go."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,18}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_EPOCH_DAY: Final = datetime(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str) -> int | None:
    """Microseconds since 1970 of an RFC 3339 text; None if it is invalid."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = match.groups()
    try:
        days = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second)).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    total_s = ((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    if sign is not None:
        if int(hours) > 23 or int(minutes) > 59:
            return None
        offset_s = (int(hours) * 60 + int(minutes)) * 60
        total_s += offset_s if sign == "-" else -offset_s
    return total_s * 1_000_000 + (int(fraction[:6].ljust(6, "0")) if fraction else 0)


def time_text(micros: int) -> str:
    """RFC 3339 in UTC, with six digits unless it is a whole second; the bare number beyond the years 1 to 9999."""
    try:
        moment = _EPOCH + micros * _MICROSECOND
    except OverflowError:
        return str(micros)
    digits = f".{moment.microsecond:06d}" if moment.microsecond else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + f"{digits}Z"
