"""What one session in a container may cost: counted steps, in slices between which the loop serves others.

Whoever works spends its steps first. A step is work of a few microseconds; work that grows with an input spends for
it.
"""

from __future__ import annotations

from typing import Final

from minikube_py.containers.turns import turn

STEPS_MAX: Final = 5_000_000
"""Of one session: a command of `exec`, or a container's main process."""
STEPS_AT_ONCE: Final = 2_000
"""Between two turns of the loop."""
VARIABLES_BYTES_MAX: Final = 1 << 20
"""Variables that one session's shells have set, each with `_VARIABLE_BYTES` beside its name and value."""
_VARIABLE_BYTES: Final = 64


class Spent(Exception):
    """A limit ends the session; `str` names it."""


class Account:
    def __init__(self) -> None:
        self.steps = 0
        self.variables_bytes = 0
        self._left = 0

    async def spend(self, steps: int) -> None:
        """Returns when these steps may be taken. Raises: Spent."""
        self.steps += steps
        if self.steps > STEPS_MAX:
            raise Spent(f"more than {STEPS_MAX} steps in one session, which is the limit")
        self._left -= steps
        if self._left < 0:
            await turn()
            self._left = STEPS_AT_ONCE - steps

    def assign(self, variables: dict[str, str], name: str, value: str) -> bool:
        """Whether there was room for it."""
        old = variables.get(name)
        size = self.variables_bytes + len(value) - (len(old) if old is not None else -len(name) - _VARIABLE_BYTES)
        if size > VARIABLES_BYTES_MAX:
            return False
        self.variables_bytes = max(size, 0)
        variables[name] = value
        return True
