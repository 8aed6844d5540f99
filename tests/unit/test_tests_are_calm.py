"""No test measures time: on a machine that is slow, or busy with something else, all of them pass as well.

What concerns time runs in virtual time (`virtual_time`); what waits for processes, threads or sockets waits by
`patience`, whose deadlines only end what hangs. This looks for the rest. `ALLOWED` only shrinks: an entry that says
more than there is fails too.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
VIRTUAL = ("unit", "property", "sim")
LOOKED_AT = ("unit", "property", "integration", "support", "sim")
DEADLINE_MIN_S = 30.0
DEADLINES = {"asyncio.timeout": 0, "asyncio.wait_for": 1}
"""Where they take their seconds."""
READINGS = ("time.monotonic", "time.perf_counter", "time.time")
BY_THEMSELVES = ("support/patience.py", "support/virtual_time.py")

Finding = tuple[str, str]

ALLOWED: dict[Finding, int] = {
    ("integration/test_apiserver_remote_store.py", "sleeps"): 1,
    ("integration/test_leases_of_processes.py", "reads the machine's clock"): 4,
    ("integration/test_links_proxy.py", "reads the machine's clock"): 2,
    ("integration/test_links_proxy.py", "sleeps"): 1,
    ("integration/test_store_peers.py", "sleeps"): 3,
    ("integration/test_up_members.py", "sleeps"): 1,
    ("sim/test_sim_loop.py", "a real loop in virtual time"): 3,
    ("sim/test_sim_network.py", "a real loop in virtual time"): 2,
    ("support/site_operator.py", "sleeps"): 2,
    ("support/virtual_plants.py", "reads the machine's clock"): 1,
    ("unit/cluster/test_failure_reports.py", "sleeps"): 3,
    ("unit/cluster/test_program_plain.py", "sleeps"): 6,
    ("unit/cluster/test_program_threads.py", "sleeps"): 1,
    ("unit/cluster/test_replaced.py", "a short deadline"): 1,
    ("unit/cluster/test_replaced.py", "sleeps"): 2,
    ("unit/cluster/test_surroundings.py", "a real loop in virtual time"): 1,
    ("unit/cluster/test_surroundings.py", "sleeps"): 1,
    ("unit/cluster/test_virtual_door.py", "sleeps"): 1,
    ("unit/cluster/test_webhooks.py", "sleeps"): 1,
}
"""(file, kind): how many. Readings of the clock here prove that something waited at least so long, which a busy machine
cannot break; sleeps are what the test is about, the pauses of a load, or those of a user's operator in virtual time."""


def findings(path: Path) -> Iterator[Finding]:
    name = path.relative_to(TESTS).as_posix()
    text = path.read_text()
    virtual = (name.startswith(VIRTUAL) and "mark.real_time" not in text) or "mark.virtual_time" in text
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            for kind in kinds(node, virtual):
                yield name, kind


def kinds(call: ast.Call, virtual: bool) -> Iterator[str]:
    """What is wrong with this call, if anything."""
    function = ast.unparse(call.func)
    if function in READINGS:
        yield "reads the machine's clock"
    elif function == "time.sleep":
        yield "sleeps"
    elif function == "SystemClock" and virtual:
        yield "the machine's clock in virtual time"
    elif function in ("asyncio.run", "asyncio.new_event_loop") and virtual:
        yield "a real loop in virtual time"
    elif virtual:
        return
    elif function == "asyncio.sleep" and (constant(call, 0) or 0) >= 0.05:
        yield "sleeps"
    elif function in DEADLINES and (constant(call, DEADLINES[function]) or DEADLINE_MIN_S) < DEADLINE_MIN_S:
        yield "a short deadline"
    for keyword in call.keywords:
        if keyword.arg == "deadline" and function == "settings":
            yield "a deadline for examples"


def constant(call: ast.Call, position: int) -> float | None:
    if len(call.args) <= position:
        return None
    argument = call.args[position]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, int | float):
        return float(argument.value)
    return None


def test_no_test_measures_time() -> None:
    found: Counter[Finding] = Counter()
    for folder in LOOKED_AT:
        for path in sorted((TESTS / folder).rglob("*.py")):
            if path.relative_to(TESTS).as_posix() not in BY_THEMSELVES:
                found.update(findings(path))
    more = {finding: count for finding, count in found.items() if count > ALLOWED.get(finding, 0)}
    fewer = {finding: found[finding] for finding, count in ALLOWED.items() if found[finding] < count}
    assert not more, f"use virtual_time or patience: {more}"
    assert not fewer, f"now there is less of it; ALLOWED must say so: {fewer}"


@pytest.mark.parametrize(
    ("text", "virtual", "kind"),
    [
        ("time.perf_counter()", True, "reads the machine's clock"),
        ("time.sleep(1)", False, "sleeps"),
        ("asyncio.sleep(0.1)", False, "sleeps"),
        ("asyncio.sleep(0.1)", True, None),
        ("asyncio.timeout(5)", False, "a short deadline"),
        ("asyncio.timeout(60)", False, None),
        ("asyncio.wait_for(x, 5)", False, "a short deadline"),
        ("SystemClock()", True, "the machine's clock in virtual time"),
        ("settings(deadline=200)", False, "a deadline for examples"),
    ],
)
def test_what_is_found(text: str, virtual: bool, kind: str | None) -> None:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert list(kinds(call, virtual)) == [each for each in [kind] if each]
