"""What one session in a container may cost: counted steps, in slices between which the loop serves others.

Whoever works spends its steps first. A step is work of a few microseconds; work that grows with an input spends for
it.
"""

from __future__ import annotations

from typing import Final

from minikube_py import env

STEPS_MAX: Final = 5_000_000
"""Of one session: a command of `exec`, or a container's main process."""
FIRST_STEPS: Final = 100
"""What a session that has waited gets at once, so that short commands of many sessions share a turn."""
VARIABLES_BYTES_MAX: Final = 1 << 20
"""Variables that one session's shells have set, each with `_VARIABLE_BYTES` beside its name and value."""
_VARIABLE_BYTES: Final = 64


class Spent(Exception):
    """A limit ends the session; `str` names it."""


class Account:
    def __init__(self) -> None:
        self.steps = 0
        self.variables_bytes = 0
        self._left, self._turn = 0, -1
        self._turns: env.Turns | None = None

    async def spend(self, steps: int) -> None:
        """Returns when these steps may be taken. Raises: Spent."""
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise Spent(f"more than {STEPS_MAX} steps in one session, which is the limit")
        mine = self._turns
        if mine is None:
            mine = self._turns = env.turns()
        if self._left < steps or self._turn != mine.number:
            granted = max(steps, env.STEPS_AT_ONCE if self._turn == mine.number else FIRST_STEPS)
            await mine.next(granted)
            self._left, self._turn = granted, mine.number
        self._left -= steps

    def assign(self, variables: dict[str, str], name: str, value: str) -> bool:
        """Whether there was room for it."""
        old = variables.get(name)
        size = self.variables_bytes + len(value) - (len(old) if old is not None else -len(name) - _VARIABLE_BYTES)
        if size > VARIABLES_BYTES_MAX:
            return False
        self.variables_bytes = max(size, 0)
        variables[name] = value
        return True
