"""CronJobs and what is done to them, step by step, drawn from a seed and a moment.

Nothing waits for a minute to begin: a CronJob is given a last run in the past, so that it is late, and none of its
times falls into the minutes after the moment. No step makes it due at a time that has its job already: upstream's
controller then asks for that job without its namespace, and tries forever.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

Json = dict[str, Any]
STEPS = 4
ZONES = (
    None, None, None, "Etc/UTC", "Asia/Kolkata", "America/New_York", "Europe/Berlin", "Asia/Kathmandu",
    "Australia/Lord_Howe", "Pacific/Chatham", "America/St_Johns", "Africa/Casablanca",
)  # fmt: skip
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
LATE_S = (5 * MINUTE_S, 50 * MINUTE_S, 3 * HOUR_S, 26 * HOUR_S, 8 * DAY_S, 40 * DAY_S, 200 * DAY_S, 370 * DAY_S)


class Step(NamedTuple):
    """`what` is done, with a spec or the body of a patch or job, and how late it is then."""

    what: str
    body: Json | None = None
    late_s: int = 0


class Drawn(NamedTuple):
    name: str
    body: Json
    steps: list[Step]


def draw(seed: int, name: str, now: datetime) -> Drawn:
    rng = random.Random(f"{seed} {name}")
    every = rng.random() < 0.2
    timed = {"schedule": _schedule(rng, now, every, 0), "timeZone": rng.choice(ZONES)}
    spec = {**timed, "jobTemplate": _template(rng), **_rules(rng, every)}
    body: Json = {"kind": "CronJob", "metadata": {"name": name}, "spec": spec}
    first = Step("late", late_s=rng.choice(LATE_S))
    return Drawn(name, body, [first, *(_step(rng, now, name, every, at) for at in range(1, STEPS))])


def _schedule(rng: random.Random, now: datetime, every: bool, at: int) -> str:
    """In any zone, whose offsets are whole quarters of an hour, its minute is over four ahead, and no other step's."""
    if every:
        return rng.choice(("@every 90m", "@every 1h1s", "@every 36h"))
    minute, hour = (now.minute + 5 + at) % 60, rng.randrange(24)
    found = [
        "* * * *", "* * * *", "*/2 * * *", f"{hour} * * *", "6-16/4 * * 1-5", "2 * * *", "1-3 * * *", f"{hour} 1 * *",
        f"{hour} 13 * FRI", f"{hour} 31 * ?", "0 * JAN-NOV SUN,3", "0 31 2 *", "0 29 2 *",
    ]  # fmt: skip
    return f"{minute} {rng.choice(found)}"


def _template(rng: random.Random) -> Json:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": rng.choice(("ends", "fails", "runs", "runs"))}],
        "nodeName": "n",
    }
    spec: Json = {"template": {"spec": pod}, "backoffLimit": 0}
    if rng.random() < 0.2:
        spec["suspend"] = True
    metadata: Json = {"labels": {"a": "b"}, "annotations": {"note": "n"}} if rng.random() < 0.3 else {}
    return {"metadata": metadata, "spec": spec}


def _rules(rng: random.Random, every: bool) -> Json:
    """Times of `@every` before a deadline that moves with the clock are chance."""
    found: Json = {"concurrencyPolicy": rng.choice(("Allow", "Forbid", "Forbid", "Replace", "Replace"))}
    if rng.random() < 0.3 and not every:
        found["startingDeadlineSeconds"] = rng.choice((0, 10, 10 * MINUTE_S, 2 * HOUR_S, 60 * DAY_S))
    if rng.random() < 0.2:
        found["suspend"] = True
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        if rng.random() < 0.5:
            found[name] = rng.choice((0, 1, 2))
    return found


def _step(rng: random.Random, now: datetime, name: str, every: bool, at: int) -> Step:
    roll = rng.random()
    if roll < 0.6:
        changed = {"schedule": _schedule(rng, now, every, at), "timeZone": rng.choice(ZONES)}
        return Step("late", {**changed, "suspend": rng.random() < 0.1}, rng.choice(LATE_S) + 71 * at)
    if roll < 0.75:
        return Step("changed", {"spec": {**_rules(rng, every), "suspend": rng.random() < 0.2}})
    if roll < 0.85:
        return Step("delete a job")
    if roll < 0.92:
        return Step("end a job")
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "runs"}]}
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": name, "controller": True}
    return Step(
        "job by hand",
        {"metadata": {"name": f"{name}-hand", "ownerReferences": [owner]}, "spec": {"template": {"spec": pod}}},
    )


def before(now: datetime, late_s: int) -> str:
    return (now.astimezone(UTC) - timedelta(seconds=late_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
