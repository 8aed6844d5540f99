"""When schedules are due: robfig/cron's own cases, and laws beside a search minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minikube_py.api.cron import BadSchedule, load_zone, parse

# robfig/cron v3.0.1, spec_test.go: TestNext, without the cases that name seconds.
NEXT = (
    ("Mon Jul 9 14:45 2012", "0/15 * * * *", "Mon Jul 9 15:00 2012"),
    ("Mon Jul 9 14:59 2012", "0/15 * * * *", "Mon Jul 9 15:00 2012"),
    ("Mon Jul 9 15:45 2012", "20-35/15 * * * *", "Mon Jul 9 16:20 2012"),
    ("Mon Jul 9 23:46 2012", "*/15 * * * *", "Tue Jul 10 00:00 2012"),
    ("Mon Jul 9 23:45 2012", "20-35/15 * * * *", "Tue Jul 10 00:20 2012"),
    ("Mon Jul 9 23:35 2012", "0 0 9 Apr-Oct ?", "Thu Aug 9 00:00 2012"),
    ("Mon Jul 9 23:35 2012", "0 0 */5 Apr,Aug,Oct Mon", "Tue Aug 1 00:00 2012"),
    ("Mon Jul 9 23:35 2012", "0 0 */5 Oct Mon", "Mon Oct 1 00:00 2012"),
    ("Mon Jul 9 23:35 2012", "0 0 * Feb Mon", "Mon Feb 4 00:00 2013"),
    ("Mon Jul 9 23:35 2012", "0 0 * Feb Mon/2", "Fri Feb 1 00:00 2013"),
    ("Mon Jul 9 23:35 2012", "0 0 29 Feb ?", "Mon Feb 29 00:00 2016"),
    ("Mon Jul 9 23:35 2012", "0 0 30 Feb ?", None),
    ("Mon Jul 9 23:35 2012", "0 0 31 Apr ?", None),
)
# The same file: leaps of the clock in New York and London.
ZONED = (
    ("2012-03-11T00:00:00-05:00", "30 2 11 Mar ?", "2013-03-11T02:30:00-04:00"),
    ("2012-03-11T00:00:00-05:00", "0 * * * ?", "2012-03-11T01:00:00-05:00"),
    ("2012-03-11T01:00:00-05:00", "0 * * * ?", "2012-03-11T03:00:00-04:00"),
    ("2012-03-11T00:00:00-05:00", "0 1 * * ?", "2012-03-11T01:00:00-05:00"),
    ("2012-03-11T01:00:00-05:00", "0 1 * * ?", "2012-03-12T01:00:00-04:00"),
    ("2012-03-11T00:00:00-05:00", "0 2 * * ?", "2012-03-12T02:00:00-04:00"),
    ("2012-11-04T00:00:00-04:00", "30 2 04 Nov ?", "2012-11-04T02:30:00-05:00"),
    ("2012-11-04T01:45:00-04:00", "30 1 04 Nov ?", "2012-11-04T01:30:00-05:00"),
    ("2012-11-04T00:00:00-04:00", "0 * * * ?", "2012-11-04T01:00:00-04:00"),
    ("2012-11-04T01:00:00-04:00", "0 * * * ?", "2012-11-04T01:00:00-05:00"),
    ("2012-11-04T01:00:00-05:00", "0 * * * ?", "2012-11-04T02:00:00-05:00"),
    ("2012-11-04T00:00:00-04:00", "0 1 ? * *", "2012-11-04T01:00:00-04:00"),
    ("2012-11-04T01:00:00-04:00", "0 1 ? * *", "2012-11-04T01:00:00-05:00"),
    ("2012-11-04T01:00:00-05:00", "0 1 ? * *", "2012-11-05T01:00:00-05:00"),
    ("2012-11-04T00:00:00-04:00", "0 0 ? * *", "2012-11-05T00:00:00-05:00"),
)


def moment(text: str) -> float:
    return datetime.strptime(text, "%a %b %d %H:%M %Y").replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(("after", "schedule", "expected"), NEXT)
def test_the_next_time(after: str, schedule: str, expected: str | None) -> None:
    assert parse(schedule).next(moment(after)) == (None if expected is None else moment(expected))


@pytest.mark.parametrize(("after", "schedule", "expected"), ZONED)
def test_the_next_time_where_the_clock_leaps(after: str, schedule: str, expected: str) -> None:
    found = parse(schedule, ZoneInfo("America/New_York")).next(datetime.fromisoformat(after).timestamp())
    assert found == datetime.fromisoformat(expected).timestamp()


_minutes = st.sampled_from(("*", "0", "*/7", "59", "1-5,50"))
_hours = st.sampled_from(("*", "3", "*/5", "22-23"))
_days = st.sampled_from(("*", "1", "31", "?", "*/10", "28-30"))
_months = st.sampled_from(("*", "feb", "1,12", "*/5"))
_weekdays = st.sampled_from(("*", "sun", "1-5", "?", "*/3"))


@settings(max_examples=100, deadline=None)
@given(st.tuples(_minutes, _hours, _days, _months, _weekdays), st.floats(0, 4e9))
@example(("*", "*", "31", "feb", "*"), 0.0)
@example(("0", "3", "1", "feb", "sun"), 951_782_399.5)
def test_a_schedule_is_due_at_the_first_minute_that_all_fields_allow(fields: tuple[str, ...], after_s: float) -> None:
    names = {"feb": "2", "sun": "0"}
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))

    def allowed(text: str, low: int, high: int) -> set[int]:
        found: set[int] = set()
        for part in names.get(text, text).split(","):
            span, _, step = part.partition("/")
            first, _, last = span.partition("-")
            start, end = (low, high) if first in "*?" else (int(first), int(last or first))
            found |= set(range(start, end + 1, int(step or 1)))
        return found

    minutes, hours, days, months, weekdays = (allowed(text, *span) for text, span in zip(fields, bounds))
    either = fields[2] not in "*?" and fields[4] not in "*?"

    def fits(day: datetime) -> bool:
        by_day, by_weekday = day.day in days, day.isoweekday() % 7 in weekdays
        return day.month in months and (by_day or by_weekday if either else by_day and by_weekday)

    found = parse(" ".join(fields)).next(after_s)
    day = datetime.fromtimestamp(after_s, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first = None
    for _ in range(5 * 366):
        times = [day + timedelta(hours=h, minutes=m) for h in sorted(hours) for m in sorted(minutes) if fits(day)]
        first = next((each.timestamp() for each in times if each.timestamp() > after_s), None)
        if first is not None:
            break
        day += timedelta(days=1)
    assert found == first


# pkg/util/parsers/parsers_test.go, and what the parser says of the rest.
REFUSED = {
    "": "empty spec string",
    "invalid schedule": "expected exactly 5 fields, found 2: [invalid schedule]",
    "TZ=0": "invalid schedule format: runtime error: slice bounds out of range [:-1]",
    "CRON_TZ=UTC": "invalid schedule format: runtime error: slice bounds out of range [:-1]",
    "TZ=Invalid/Timezone 0 0 * * *": "provided bad location Invalid/Timezone: unknown time zone Invalid/Timezone",
    "60 * * * *": "end of range (60) above maximum (59): 60",
    "0 0 0 * *": "beginning of range (0) below minimum (1): 0",
    "5-3 * * * *": "beginning of range (5) beyond end of range (3): 5-3",
    "*/0 * * * *": "step of range should be a positive number: */0",
    "1-2-3 * * * *": "too many hyphens: 1-2-3",
    "1/2/3 * * * *": "too many slashes: 1/2/3",
    "1/-2 * * * *": "negative number (-2) not allowed: -2",
    "x * * * *": 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax',
    "@reboot": "unrecognized descriptor: @reboot",
    "@every 1": 'failed to parse duration 1: time: missing unit in duration "1"',
    "@every 1x": 'failed to parse duration 1x: time: unknown unit "x" in duration "1x"',
}


@pytest.mark.parametrize("schedule", REFUSED)
def test_what_is_no_schedule_is_refused(schedule: str) -> None:
    with pytest.raises(BadSchedule) as refused:
        parse(schedule)
    assert str(refused.value) == REFUSED[schedule]


def test_every_counts_whole_seconds_from_now() -> None:
    assert parse("@every 90s").next(10.7) == 100.0
    assert parse("@every 1ms").next(10.0) == 11.0


@pytest.mark.parametrize("name", ["Nowhere/City", "../etc/passwd", "a\0b", "/UTC", "x" * 5000])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(BadSchedule, match="unknown time zone"):
        load_zone(name)
