"""Validates objects here, or in a worker process if that takes long.

A body of a hundred bytes may meet rules that take seconds: expressions and patterns of another body. The check starts
here with a step allowance (`cel.allowance`) and, if exceeded, restarts in a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from minikube_py.api import strategy
from minikube_py.api.errors import Json
from minikube_py.api.kind import Cluster, Kind
from minikube_py.apiserver.checks import Steps, check, finished, steps_of_create, steps_of_update
from minikube_py.apiserver.preparing import Body, key_of
from minikube_py.apiserver.work import Work
from minikube_py.cel.allowance import OutOfSteps, kept, within

STEPS_MAX: Final = 30_000
"""Steps per check and event loop turn: about 6 ms."""
TURNS_MAX: Final = 50
"""Turns for a check that compiles what it needs. Once done, it is kept; a worker process would compile it again."""
SPARED: Final = 7
"""After a long check, this many of the same kind go directly to a worker."""
_KINDS_KEPT_MAX: Final = 1_000


class _Worked(Protocol):
    work: Work


async def in_turns(work: Callable[..., Any], *given: Any) -> Any:
    """The result of work that changes nothing but what it keeps. Raises: OutOfSteps if a turn is too short for more of
    it."""
    for _ in range(TURNS_MAX):
        before = kept()
        try:
            return within(STEPS_MAX, work, *given)
        except OutOfSteps:
            if kept() == before:
                raise
        await asyncio.sleep(0)
    raise OutOfSteps


class Long:
    """Runs checks here, or elsewhere if long. `at`: owner of the worker processes."""

    def __init__(self, at: _Worked) -> None:
        self._at = at
        self._spared: dict[object, int] = {}

    @property
    def work(self) -> Work:
        return self._at.work

    async def run(self, of: object, here: Callable[[], Any], job: str, *given: Any) -> Any:
        """`of` groups checks of similar cost. `here` must change nothing and return the job's result."""
        if self.tries(of):
            try:
                return await in_turns(here)
            except OutOfSteps:
                self.was_long(of)
        return await self._at.work.run(job, *given)

    def tries(self, of: object) -> bool:
        """Whether a check starts here."""
        spared = self._spared.pop(of, 0) if self._spared else 0
        if spared:
            self._spared[of] = spared - 1
        return not spared

    def was_long(self, of: object) -> None:
        if len(self._spared) >= _KINDS_KEPT_MAX:
            self._spared.clear()
        self._spared[of] = SPARED


class Settling:
    def __init__(self, at: _Worked, cluster: Cluster) -> None:
        self._cluster = cluster
        self._long = Long(at)

    def create(self, kind: Kind, obj: Json) -> Coroutine[Any, Any, Json]:
        return self._settled(steps_of_create(kind, obj, self._cluster))

    async def finish_update(self, kind: Kind, new: Json, old: Json, sub: str, said: list[str]) -> Json:
        strategy.admit_update(kind, new, old, sub, self._cluster)
        return await self.update(kind, new, old, sub, said)

    def update(self, kind: Kind, new: Json, old: Json, sub: str, said: list[str]) -> Coroutine[Any, Any, Json]:
        return self._settled(steps_of_update(kind, new, old, sub, said, self._cluster))

    async def _settled(self, steps: Steps) -> Json:
        """As `Long.run`, which nearly every object can do without."""
        checked = kind, new, old, sub, repeated = next(steps)
        of = kind, sub
        if self._long.tries(of):
            try:
                return finished(steps, await in_turns(check, *checked))
            except OutOfSteps:
                self._long.was_long(of)
        asked = Body(key_of(kind), b"", "", "", "", "", sub, definition=kind.definition)
        return finished(steps, await self._long.work.run("checked", asked, new, old, repeated))
