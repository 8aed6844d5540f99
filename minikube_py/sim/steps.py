"""Virtual time for a cluster without an event loop: what happens next, one thing at a time, and a record of it.

No two steps share a moment, so that what came before what is never a matter of taste.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

Act = Callable[..., object]
Told = Callable[[str], None]
LOOK_US: Final = 2_000
"""How often it is looked whether all is done: to ask after each step would cost more than the steps."""


class Steps:
    """`now_us` is the time of the step that runs. `taken` counts them. `told` gets a line for each thing worth telling,
    None where nobody listens: then no line is made."""

    def __init__(self, told: Told | None = None) -> None:
        self.now_us = 0
        self.taken = 0
        self.told = told
        self.stopped = False
        self._number = 0
        self._due: list[tuple[int, int, Act, tuple[Any, ...]]] = []

    def at(self, at_us: int, act: Act, *arguments: Any) -> None:
        """`act(*arguments)` is due at `at_us`; what is due at once keeps the order in which it was said."""
        self._number += 1
        heapq.heappush(self._due, (at_us, self._number, act, arguments))

    def after(self, delay_us: int, act: Act, *arguments: Any) -> None:
        self._number += 1
        heapq.heappush(self._due, (self.now_us + delay_us, self._number, act, arguments))

    def run(self, until_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Takes steps until `done` (asked now and then), `until_us`, or a `stop`; whether it was done."""
        due = self._due
        look_us = 0
        while not self.stopped:
            if done is not None and self.now_us >= look_us:
                if done():
                    return True
                look_us = self.now_us + LOOK_US
            if not due or due[0][0] > until_us:
                self.now_us = max(self.now_us, until_us)
                return done is not None and done()
            at_us, _, act, arguments = heapq.heappop(due)
            self.now_us = at_us if at_us > self.now_us else self.now_us + 1
            self.taken += 1
            act(*arguments)
        return False

    def stop(self) -> None:
        """No step is taken any more."""
        self.stopped = True

    def tell(self, text: str) -> None:
        if self.told is not None:
            self.told(f"{self.now_us / 1e6:11.6f} {text}")
