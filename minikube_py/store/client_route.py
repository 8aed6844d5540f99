"""Chooses the member a client connects to: the leader if one can be found and reached, otherwise any.

Members report the leader in their welcome and whenever it changes. The client tries the reported leader, then all
configured and reported addresses, starting them shortly after each other and in parallel, so that a silent one delays
none. The present connection is kept until a better one is up: reads and watches continue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from minikube_py.env import Clock, Rng, ended
from minikube_py.errors import MinikubeError, Unavailable
from minikube_py.ports.addresses import split_address
from minikube_py.store.client_connection import ClientConnection, Endpoint, connect

CONNECT_TIMEOUT_S: Final = 10.0
STAGGER_S: Final = 0.3
"""How long an address may take to answer before the next one is tried in parallel."""
RETRY_S_MIN: Final = 0.05
RETRY_S_MAX: Final = 1.0
ENDPOINTS_MAX: Final = 64
"""The most addresses kept, configured and reported."""


class Route:
    """Keeps one connection. `moved(new, old)` is called when it is replaced; `old` may be None, or still be up."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        clock: Clock,
        rng: Rng,
        moved: Callable[[ClientConnection, ClientConnection | None], None],
    ) -> None:
        if not 0 < len(endpoints) <= ENDPOINTS_MAX:
            raise ValueError(f"a client needs 1 to {ENDPOINTS_MAX} endpoints, not {len(endpoints)}")
        self._given = {endpoint.address: endpoint for endpoint in endpoints}
        self._told: dict[str, Endpoint] = {}
        self._clock = clock
        self._rng = rng
        self._moved = moved
        self._at: dict[int, str] = {}
        self._term = 0
        self._wake = asyncio.Event()
        self._suspected = False
        self._keeper: asyncio.Task[None] | None = None
        self.connection: ClientConnection | None = None
        self.cluster_id = endpoints[0].cluster_id
        self.why: dict[str, str] = {}
        """By address: why it could not be used when last tried."""

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when a member has been reached. Raises: Unavailable; MinikubeError if a store refuses this client."""
        failures: list[MinikubeError] = []
        found = await self._search(None, failures)
        if found is None:
            refusals = [error for error in failures if not isinstance(error, Unavailable)]
            if refusals or len(failures) == 1:
                raise (refusals or failures)[0]
            raise Unavailable(f"no member of the store can be reached: {self.reasons()}")
        self._take(found)
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await ended(self._keeper)
            self._keeper = None

    def news(self) -> None:
        """The connection was lost or the leader changed: search again now."""
        self._wake.set()

    def suspect(self) -> None:
        """The connected member is silent: ask the others whether it still leads."""
        self._suspected = True
        self._wake.set()

    def reasons(self) -> str:
        """What is known of each address, for display."""
        known = [f"{address}: {why}" for address, why in self.why.items()]
        return "; ".join(known) or "no address has been tried yet"

    # -- keeping ------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        delay_s = RETRY_S_MIN
        while True:
            self._wake.clear()
            present = self._present()
            if present is not None and self._leads(present) and not self._suspected:
                delay_s = RETRY_S_MIN
                await self._wake.wait()
                continue
            self._suspected = False
            found = await self._search(present, [])
            if found is not None:
                self._take(found)
                if self._leads(found):
                    continue
            # Not the leader yet; members report it once they know one.
            await self._news_within(delay_s * self._rng.uniform(0.5, 1.0))
            delay_s = min(RETRY_S_MAX, delay_s * 2)

    def _present(self) -> ClientConnection | None:
        if self.connection is not None and self.connection.why_lost:
            self.why[self.connection.endpoint.address] = self.connection.why_lost
            self.connection = None
        return self.connection

    def _take(self, found: ClientConnection) -> None:
        old, self.connection = self._present(), found
        welcome = found.welcome
        # A store that was wiped and restarted is another cluster: its revisions mean nothing to those who saw these.
        self.cluster_id = welcome.cluster_id
        self._moved(found, old)
        if old is not None:
            old.close()

    def _leads(self, connection: ClientConnection) -> bool:
        """It claims to lead; the claim is dropped once another member reports a later leader."""
        if connection.leads and connection.leadership.term < self._term:
            connection.leads_no_more(0, "")
        return connection.leads

    async def _news_within(self, delay_s: float) -> None:
        try:
            async with asyncio.timeout(delay_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    # -- looking for the leader ---------------------------------------------------------------------------------------

    def learn(self, connection: ClientConnection) -> None:
        """Records what a member reports: the leader, the members' addresses, and its own address."""
        first, leadership = connection.endpoint, connection.leadership
        if leadership.leader_id:
            self._term = max(self._term, leadership.term)
        told: dict[str, Endpoint] = {}
        for _, address in leadership.members:
            place = split_address(address)
            if place is not None and address not in self._given and len(told) < ENDPOINTS_MAX:
                told[address] = first._replace(host=place[0], port=place[1])
        if told:
            self._told = told
        if connection.welcome.member_id:
            self._at[connection.welcome.member_id] = first.address
        if len(self._at) > ENDPOINTS_MAX:
            self._at = {connection.welcome.member_id: first.address}

    def _candidates(self, present: ClientConnection | None) -> list[Endpoint]:
        """Every address, the likeliest first, except that of the present connection."""
        known = {**self._given, **self._told}
        self.why = {address: why for address, why in self.why.items() if address in known}
        others = list(known)
        self._rng.shuffle(others)
        likely = self._hints(present) if present is not None else []
        ordered = dict.fromkeys([*likely, *others])
        here = present.endpoint.address if present is not None else ""
        return [
            known[address]._replace(cluster_id=self.cluster_id)
            for address in ordered
            if address in known and address != here
        ]

    def _hints(self, connection: ClientConnection) -> list[str]:
        """Addresses of the leader that a member names: where it was met before, or the reported one."""
        leadership = connection.leadership
        if not leadership.leader_id or connection.leads:
            return []
        found = [self._at.get(leadership.leader_id, ""), leadership.leader_address]
        return [address for address in found if address]

    async def _search(
        self, present: ClientConnection | None, failures: list[MinikubeError]
    ) -> ClientConnection | None:
        """A better connection than `present`: to the leader, or to any member if `present` is None. None: there is none
        now."""
        waiting = self._candidates(present)
        running: dict[str, asyncio.Task[None]] = {}
        results: asyncio.Queue[tuple[str, ClientConnection | MinikubeError]] = asyncio.Queue()
        # A fallback member, and the leader.
        second: ClientConnection | None = None
        best: ClientConnection | None = None
        chosen: ClientConnection | None = None
        try:
            while waiting or running:
                if waiting:
                    endpoint = waiting.pop(0)
                    running[endpoint.address] = asyncio.get_running_loop().create_task(self._try(endpoint, results))
                patient = not waiting and present is None and second is None
                got = await _next(results, None if patient else STAGGER_S)
                if got is None:
                    if not waiting:
                        # Do not wait for the rest: one that serves was found.
                        break
                    continue
                address, answer = got
                running.pop(address, None)
                if isinstance(answer, ClientConnection) and answer.why_lost:
                    answer = Unavailable(answer.why_lost)
                if not isinstance(answer, ClientConnection):
                    self.why[address] = str(answer)
                    failures.append(answer)
                    continue
                self.learn(answer)
                if self._leads(answer):
                    self.why.pop(address, None)
                    best = answer
                    break
                self.why[address] = _follows(answer)
                hints = self._hints(answer)
                waiting.sort(key=lambda endpoint: endpoint.address not in hints)
                # It may still serve reads and watches.
                if second is None and present is None:
                    second = answer
                else:
                    answer.close()
            chosen = best or second
            return chosen
        finally:
            for task in running.values():
                task.cancel()
            found = [best, second]
            while not results.empty():
                found += [late for late in results.get_nowait() if isinstance(late, ClientConnection)]
            for connection in found:
                if connection is not None and connection is not chosen:
                    connection.close()

    async def _try(
        self, endpoint: Endpoint, results: asyncio.Queue[tuple[str, ClientConnection | MinikubeError]]
    ) -> None:
        try:
            results.put_nowait((endpoint.address, await connect(endpoint, self._clock, CONNECT_TIMEOUT_S)))
        except MinikubeError as error:
            results.put_nowait((endpoint.address, error))


async def _next(
    results: asyncio.Queue[tuple[str, ClientConnection | MinikubeError]], timeout_s: float | None
) -> tuple[str, ClientConnection | MinikubeError] | None:
    try:
        async with asyncio.timeout(timeout_s):
            return await results.get()
    except TimeoutError:
        return None


def _follows(connection: ClientConnection) -> str:
    leadership = connection.leadership
    if not leadership.leader_id:
        return "it knows no leader"
    where = f" at {leadership.leader_address}" if leadership.leader_address else ""
    return f"it follows member {leadership.leader_id:x}{where}"
