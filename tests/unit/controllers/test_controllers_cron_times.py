"""Which times of a schedule were missed: upstream's own table (pkg/controller/cronjob/utils_test.go,
TestMostRecentScheduleTime), and indexes as its table of intervals has them (job/indexed_job_utils_test.go)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.api.cron import BadSchedule, Schedule, load_zone, parse
from minikube_py.client.events import timestamp
from minikube_py.controllers.cron_jobs import MISSED_MAX, missed
from minikube_py.controllers.job_pods import (
    first_missing,
    holds,
    intervals_text,
    parse_intervals,
    total,
    with_indexes,
)
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.views import WorkloadView, project_workload

HOUR_S = 1_463_652_000.0
"""2016-05-19T10:00:00Z, a Thursday."""
DAY = 24 * 60.0
# Name: schedule, created, last schedule, now (minutes from then on), deadline in seconds and whether it counts;
# expected: counted from, the last time that was due, how many: none, few or many.
TABLE: dict[str, tuple[str, float, float | None, float, int | None, bool, float, float | None, str]] = {
    "before the next": ("0 * * * *", 0, None, 0.5, None, False, 0, None, "none"),
    "just after the next": ("0 * * * *", 0, None, 61, None, False, 0, 60, "none"),
    "missed 5": ("0 * * * *", 1 / 6, None, 301, None, False, 1 / 6, 300, "few"),
    "complex": ("30 6-16/4 * * 1-5", 0, 30, DAY + 31, None, False, 30, DAY + 30, "few"),
    "another complex one": ("30 10,11,12 * * 1-5", 0, 30, 30.5 * 60, None, False, 30, None, "few"),
    "longer apart": ("30 6-16/4 * * 1-5", 0, 30, 4 * DAY + 31, None, False, 30, 4 * DAY + 30, "few"),
    "shorter apart": ("30 6-16/4 * * 1-5", 0, None, DAY + 31, None, False, 0, DAY + 30, "few"),
    "every": ("@every 1h", -59, 1, 7 * DAY, 10, False, 1, 6 * DAY + 23 * 60 + 1, "many"),
    "created when last due": ("0 * * * *", 0, 0, 0.5, None, False, 0, None, "none"),
    "last due": ("*/5 * * * *", 0, 30, 31, None, False, 30, None, "none"),
    "last due, within the deadline": ("*/5 * * * *", 0, 30, 31, 60, False, 30, None, "none"),
    "last due, beyond the deadline": ("*/5 * * * *", 0, 30, 32, 60, True, 31, None, "none"),
}


def cron(schedule: str, created: float, last: float | None, deadline_s: int | None) -> WorkloadView:
    metadata = {"name": "c", "namespace": "n", "uid": "u", "creationTimestamp": timestamp(HOUR_S + created * 60)}
    spec: dict[str, Any] = {"schedule": schedule, "startingDeadlineSeconds": deadline_s}
    status = {} if last is None else {"lastScheduleTime": timestamp(HOUR_S + last * 60)}
    return project_workload({"metadata": metadata, "spec": spec, "status": status})


@pytest.mark.parametrize("name", TABLE)
def test_what_was_missed(name: str) -> None:
    schedule, created, last, now, deadline_s, counts, since, due, many = TABLE[name]
    found = missed(cron(schedule, created, last, deadline_s), HOUR_S + now * 60, parse(schedule), counts)
    assert found.since_s == round(HOUR_S + since * 60)
    assert found.last_s == (None if due is None else HOUR_S + due * 60)
    assert many == ("none" if not found.times else "many" if found.times > MISSED_MAX else "few")


def test_a_schedule_that_is_never_due_is_no_schedule() -> None:
    with pytest.raises(BadSchedule, match="less than 1 second"):
        missed(cron("59 23 31 2 *", 1 / 6, None, None), HOUR_S + 3600, parse("59 23 31 2 *"), False)


@pytest.mark.parametrize(
    ("before", "new", "text"),
    [
        ("", [], ""),
        ("", [1], "1"),
        ("0", [1], "0,1"),
        ("0,1", [2], "0-2"),
        ("3,5-9", [0, 2, 4], "0,2-9"),
        ("0-2,5,8", [3, 4, 6, 7], "0-8"),
        ("0-2,x,5", [], "0-2,5"),
        ("8-99", [], "8,9"),
    ],
)
def test_intervals_are_merged_and_printed(before: str, new: list[int], text: str) -> None:
    assert intervals_text(with_indexes(parse_intervals(before, 10), new)) == text


@given(st.sets(st.integers(0, 40)), st.integers(0, 12), st.integers(0, 40))
def test_intervals_are_the_set_that_they_stand_for(indexes: set[int], count: int, completions: int) -> None:
    intervals = with_indexes([], sorted(indexes))
    assert total(intervals) == len(indexes) and all(holds(intervals, each) == (each in indexes) for each in range(42))
    assert parse_intervals(intervals_text(intervals), 41) == intervals
    missing = [each for each in range(completions) if each not in indexes]
    assert first_missing(intervals, count, completions) == missing[:count]


SCHEDULES = (
    "* * * 1-11 *", "* 8-18 * * 1-5", "*/7 * * * *", "* * 1-25 * *", "59 23 31 * *", "0 0 29 2 *", "30 2 * * *",
    "@every 90s", "@every 36h", "@hourly", "* * * * 0",
)  # fmt: skip


def walked(schedule: Schedule, cron: WorkloadView, now_s: float) -> tuple[float | None, int]:
    """The last due time and how many, as upstream finds them: one after the other."""
    first_s = schedule.next(parse_time_s(cron.status["lastScheduleTime"]))
    second_s = schedule.next(first_s)
    if now_s < second_s:
        return (None, 0) if now_s < first_s else (first_s, 0)
    between_s = int(second_s - first_s)
    count = int(now_s - first_s) // between_s + 1
    last_s, at_s = None, schedule.next(first_s + (count - 2) * between_s)
    while at_s <= now_s:
        last_s, at_s = at_s, schedule.next(at_s)
    return last_s, count


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SCHEDULES),
    st.sampled_from(("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe")),
    st.integers(0, 400 * 1440),
    st.integers(0, 3 * 1440),
)
def test_the_last_due_time_is_the_one_that_a_walk_finds(text: str, zone: str, last: int, later: int) -> None:
    schedule, found = parse(text, load_zone(zone)), cron(text, 0, last, None)
    now_s = HOUR_S + (last + later) * 60 + 1
    due = missed(found, now_s, schedule, False)
    assert (due.last_s, due.times) == walked(schedule, found, now_s)


def test_a_long_gap_before_a_busy_month_takes_few_steps() -> None:
    """From November 30 to January 1, then each minute: a walk of 26 seconds."""
    asked: list[float] = []

    class Counted:
        def next(self, after_s: float) -> float | None:
            asked.append(after_s)
            return schedule.next(after_s)

    schedule, last = parse("* * * 1-11 *"), parse_time_s("2020-11-30T23:58:30Z") or 0.0
    now_s = parse_time_s("2023-11-14T22:13:20Z") or 0.0
    found = missed(cron("* * * 1-11 *", 0, (last - HOUR_S) / 60, None), now_s, Counted(), False)
    assert found.last_s == now_s // 60 * 60 and len(asked) < 100
