"""Health checks, with the response texts of Kubernetes' servers (apiserver/pkg/server/healthz)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

Check = Callable[[], Awaitable[str]]
"""Why it fails, or ""."""
READY_S = 2.0
"""Readiness means that a linearizable read passes within this."""
WITHHELD = "reason withheld"


class Results:
    """Of the checks that were made together, by name and by what was asked (`readyz`), for `/metrics/slis`."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], bool] = {}
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def observe(self, name: str, kind: str, passed: bool) -> None:
        self._last[name, kind] = passed
        self._counts[name, "success" if passed else "error", kind] += 1

    def reset(self) -> None:
        self._last.clear()
        self._counts.clear()

    def render(self) -> bytes:
        last = [f'{{name="{name}",type="{kind}"}} {passed:d}' for (name, kind), passed in sorted(self._last.items())]
        counts = [
            f'{{name="{name}",status="{status}",type="{kind}"}} {count}'
            for (name, status, kind), count in sorted(self._counts.items())
        ]
        lines = _family("kubernetes_healthcheck", "gauge", "the result of a single healthcheck", last)
        lines += _family("kubernetes_healthchecks_total", "counter", "the results of all healthcheck", counts)
        return "".join(f"{line}\n" for line in lines).encode()


def _family(name: str, kind: str, what: str, samples: Sequence[str]) -> list[str]:
    head = f"# HELP {name} [STABLE] This metric records {what}.", f"# TYPE {name} {kind}"
    return [*head, *(name + sample for sample in samples)] if samples else []


async def well() -> str:
    """Always passes: the response is the proof."""
    return ""


async def within(check: Check, what: str = "no answer", timeout_s: float = READY_S) -> str:
    """Runs the check with a timeout. `one` and `all_of` use this."""
    try:
        async with asyncio.timeout(timeout_s):
            return await check()
    except TimeoutError:
        return f"{what} within {timeout_s:g} s"


async def one(check: Check) -> tuple[int, str]:
    """Status and text of a check by name."""
    why = await within(check)
    return (500, f"internal server error: {why}\n") if why else (200, "ok")


async def all_of(
    kind: str,
    checks: Mapping[str, Check],
    excluded: Sequence[str] = (),
    *,
    verbose: bool = False,
    reasons: bool = False,
    results: Results | None = None,
    unasked: str = "",
) -> tuple[int, str]:
    """Status and text for `kind`, as `readyz`. If one fails, all are listed; reasons only with `reasons`, as this is
    public. `results` keeps what was found. A check of several names is made once; `unasked` is excluded always."""
    left_out = dict.fromkeys(filter(None, excluded))
    names = [name for name in checks if name not in left_out and name != unasked]
    once = dict.fromkeys(checks[name] for name in names)
    told = dict(zip(once, await asyncio.gather(*map(within, once))))
    found = {name: told[checks[name]] for name in names}
    if results is not None:
        for name in names:
            results.observe(name, kind, not found[name])
    lines = []
    for name in checks:
        if name not in found:
            left_out.pop(name, None)
            lines.append(f"[+]{name} excluded: ok")
        elif why := found[name]:
            lines.append(f"[-]{name} failed: {why if reasons else WITHHELD}")
        else:
            lines.append(f"[+]{name} ok")
    if left_out:
        quoted = ",".join(f'"{name}"' for name in sorted(left_out))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
    if any(found.values()):
        return 500, "\n".join([*lines, f"{kind} check failed", ""])
    return 200, "\n".join([*lines, f"{kind} check passed", ""]) if verbose else "ok"
