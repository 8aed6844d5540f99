"""A component that works only while it holds a lease: a standby, then the leader; it stops at once when the lease is
lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from minikube_py.client.fencing import FencedTransport
from minikube_py.client.leader_election import LeaderElector
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane.components import Component, failure_of
from minikube_py.control_plane.progress import Say
from minikube_py.env import ended


class Leading:
    """`make(transport)` makes the component each time the lease is acquired; its writes go through a fence.

    While the lease cannot be renewed the fence blocks its writes, and `unwell` reports it. When the lease is lost the
    component is stopped and `failure` reports it: the process then exits, as upstream's does, and its supervisor
    restarts it."""

    def __init__(
        self,
        elector: LeaderElector,
        transport: ApiTransport,
        make: Callable[[ApiTransport], Component],
        say: Say = lambda _: None,
    ) -> None:
        self.elector = elector
        self.component: Component | None = None
        self._transport = FencedTransport(transport, elector.may_act, str(elector.lock))
        self._make, self._say = make, say
        self._task: asyncio.Task[None] | None = None
        self._started = asyncio.Event()

    async def start(self, held: bool = False) -> str:
        """Returns when the component works, or when another is known to lead; `held`: the elector already holds the
        lease. Raises: what the component's start raises, LeadershipLost."""
        leads = held or await self.elector.attempt()
        self._task = asyncio.create_task(self._run(leads))
        if not leads:
            if not self.elector.leader:
                # Another candidate was faster.
                await self.elector.look()
            leader = self.elector.leader
            return f"standby: {leader} leads" if leader else "standby"
        started = asyncio.create_task(self._started.wait())
        await asyncio.wait((self._task, started), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._task.done():
            self._task.result()
        return "synced"

    async def stop(self) -> None:
        """Ends the work, then releases the lease, so that another need not wait for its expiry."""
        if self._task is not None:
            self._task.cancel()
            await ended(self._task)
        await self.elector.release()

    def failure(self) -> BaseException | None:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            return self._task.exception()
        return None if self.component is None else failure_of(self.component)

    def unwell(self) -> str:
        """Why it can do nothing although it leads."""
        if self.component is None or self.elector.may_act():
            return ""
        return f"the lease {self.elector.lock} was not renewed in time: all writes are blocked"

    async def _run(self, leads: bool) -> None:
        if not leads:
            await self.elector.acquire()
            self._say(f"leads: {self.elector.candidate.identity} took the lease {self.elector.lock}")
        component = self._make(self._transport)
        holding = asyncio.create_task(self.elector.hold())
        starting = asyncio.create_task(component.start())
        try:
            # The lists of a large cluster take longer than a renewal.
            await asyncio.wait((holding, starting), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                self.component = component
                self._started.set()
            await holding
        finally:
            for task in (holding, starting):
                task.cancel()
            await ended(holding, starting)
            await component.stop()
