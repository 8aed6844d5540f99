"""Health checks, with the response texts of Kubernetes' servers (apiserver/pkg/server/healthz)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

Check = Callable[[], Awaitable[str]]
"""Why it fails, or ""."""
READY_S = 2.0
"""Readiness means that a linearizable read passes within this."""
WITHHELD = "reason withheld"


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
) -> tuple[int, str]:
    """Status and text for `kind`, as `readyz`. If one fails, all are listed; reasons only with `reasons`, as this is
    public."""
    left_out = dict.fromkeys(filter(None, excluded))
    names = [name for name in checks if name not in left_out]
    found = dict(zip(names, await asyncio.gather(*(within(checks[name]) for name in names))))
    lines = []
    for name in checks:
        if name in left_out:
            del left_out[name]
            lines.append(f"[+]{name} excluded: ok")
        elif why := found[name]:
            lines.append(f"[-]{name} failed: {why if reasons else WITHHELD}")
        else:
            lines.append(f"[+]{name} ok")
    if left_out:
        quoted = ", ".join(f'"{name}"' for name in sorted(left_out))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}")
    if any(found.values()):
        return 500, "\n".join([*lines, f"{kind} check failed", ""])
    return 200, "\n".join([*lines, f"{kind} check passed", ""]) if verbose else "ok"
