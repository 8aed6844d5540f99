"""Requests of tests to a store's members one by one, wherever they run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

from patience import until

from minikube_py.control_plane.store_access import StoreAccess
from minikube_py.control_plane.store_admin import Asking, StoreAdmin
from minikube_py.env import SystemClock
from minikube_py.errors import MinikubeError, NotLeader, Unavailable
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import RangeRequest, RangeResult
from minikube_py.sim.checkers.convergence import MemberView
from minikube_py.store.client_connection import Call, Endpoint, connect
from minikube_py.store.membership import MemberChange
from minikube_py.store.protocol import SERIALIZABLE, Op, decode_range

ASK_WITHIN_S = 2.0
PAUSE_S = 0.05
HASHES = 12
"""The number of revisions at which members are compared, spread over all they answer at."""


class Members:
    """Requests to a store's members, one by one. `where`: the addresses of the expected members, by name. `changed`:
    the completed membership changes."""

    def __init__(self, access: StoreAccess) -> None:
        self.where: dict[str, tuple[str, int]] = {}
        self.changed = 0
        self._committed = 0
        self._access = access
        self._clock = SystemClock()

    def answers(self, name: str) -> bool:
        """Whether a request may succeed."""
        return True

    def endpoints(self) -> list[Endpoint]:
        return [self.endpoint(name) for name in self.where]

    def endpoint(self, name: str) -> Endpoint:
        return self._at(name).endpoints()[0]

    def _at(self, name: str) -> StoreAccess:
        return StoreAccess((self.where[name],), self._access.token, self._access.authority_pem)

    @property
    def addresses(self) -> str:
        """Of the members, for `--store` and `--endpoints`."""
        return ",".join(f"{host}:{port}" for host, port in self.where.values())

    def admin(self) -> StoreAdmin:
        return StoreAdmin(replace(self._access, addresses=tuple(self.where.values())))

    @contextlib.asynccontextmanager
    async def asked(self, name: str) -> AsyncIterator[Asked]:
        connection = await connect(self.endpoint(name), self._clock, ASK_WITHIN_S)
        try:
            yield Asked(connection)
        finally:
            connection.close()
            await connection.wait_closed()

    async def status(self, name: str) -> dict[str, Any] | None:
        """None: it does not answer."""
        try:
            async with self.asked(name) as asked:
                found: dict[str, Any] = await asked.ask(Op.STATUS)
                return found
        except MinikubeError:
            return None

    async def answer(self, name: str) -> dict[str, Any]:
        """The same, retried until it answers."""
        found = await until(lambda: self.status(name), f"{name} answers")
        assert found is not None
        return found

    async def statuses(self, names: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
        """Of all that answer."""
        there = [name for name in names or self.where if self.answers(name)]
        found = await asyncio.gather(*map(self.status, there))
        return {name: status for name, status in zip(there, found) if status is not None}

    async def leader(self, *of: str) -> str:
        """The name of the leader, by its own report and the latest term; `of`: the members to ask."""

        async def found() -> str:
            statuses = await self.statuses(of)
            leading = {name: status for name, status in statuses.items() if status["role"] == "LEADER"}
            name = max(leading, key=lambda each: leading[each]["term"], default="")
            latest = max((status["term"] for status in statuses.values()), default=0)
            return name if name and leading[name]["term"] == latest else ""

        return await until(found, "one of them leads")

    async def followers(self) -> list[str]:
        leader = await self.leader()
        return [name for name in self.where if name != leader]

    async def change(self, change: MemberChange) -> None:
        """Retried if it was certainly not done."""

        async def done() -> bool:
            try:
                await self.admin().change(change)
            except (NotLeader, Unavailable):
                return False
            return True

        await until(done, f"{change.kind.name} {change.name or hex(change.id)}")
        self.changed += 1

    async def unsettled(self) -> str:
        """Why not all members run, follow one leader and have applied everything known as committed at the previous
        call; "": they do. More may be written meanwhile."""
        statuses = await self.statuses()
        missing = self.where.keys() - statuses.keys()
        if missing:
            return f"no answer from {', '.join(sorted(missing))}"
        if len({(status["term"], status["leader"]) for status in statuses.values()}) > 1:
            return f"they do not agree who leads: {_brief(statuses)}"
        for status in statuses.values():
            known = {member["name"] for member in status["members"]}
            if known != self.where.keys():
                return f"{status['member']['name']} has members {sorted(known)}, not {sorted(self.where)}"
            if any(member["learner"] for member in status["members"]):
                return f"{status['member']['name']} has a learner that is to be a voter"
        known_before, self._committed = self._committed, max(status["commit"] for status in statuses.values())
        if min(status["applied"] for status in statuses.values()) < (known_before or self._committed):
            return f"they have not all applied what was committed up to {known_before}: {_brief(statuses)}"
        return ""

    async def settle(self) -> None:
        reason = ""

        async def settled() -> bool:
            nonlocal reason
            reason = await self.unsettled()
            return not reason

        await until(settled, lambda: f"all is well again: {reason}")

    async def views(self) -> list[MemberView]:
        """The members' contents, all at the same entry."""
        views: list[MemberView] = []

        async def same() -> bool:
            nonlocal views
            if await self.unsettled():
                return False
            latest = await self._views()
            views = [view for view in latest if view is not None]
            return len(views) == len(latest) and len({view.applied for view in views}) == 1

        await until(same, "members are alike for long enough to be looked at")
        return views

    async def _views(self) -> list[MemberView | None]:
        statuses = await self.statuses()
        if len(statuses) < len(self.where):
            return [None]
        first = 1 + max(status["compact_revision"] for status in statuses.values())
        last = min(status["revision"] for status in statuses.values())
        revisions = {first + (last - first) * number // (HASHES - 1) for number in range(HASHES)}
        return await asyncio.gather(*(self._view(name, sorted(revisions)) for name in statuses))

    async def _view(self, name: str, revisions: list[int]) -> MemberView | None:
        """None: it did not answer, or applied something meanwhile."""
        try:
            async with self.asked(name) as asked:
                before = await asked.ask(Op.STATUS)
                result = await asked.range(RangeRequest(b"\0", b"\0"))
                # At 0 open sessions also count.
                hashes = {each: (await asked.ask(Op.HASH, each))[0] for each in (0, *revisions)}
                status = await asked.ask(Op.STATUS)
        except MinikubeError:
            return None
        if status["applied"] != before["applied"]:
            return None
        return MemberView(
            status["member"]["id"],
            status["applied"],
            result.revision,
            status["compact_revision"],
            hashes,
            result.kvs,
        )


class Asked(Asking):
    """One connection to one member, for requests it cannot forward."""

    async def send(self, call: Call) -> Any:
        """Raises: as Asking; Unavailable also after a timeout."""
        try:
            async with asyncio.timeout(ASK_WITHIN_S):
                return await super().send(call)
        except TimeoutError:
            raise Unavailable("no answer in time") from None

    async def range(self, request: RangeRequest) -> RangeResult:
        """This member's content."""
        call = Call(Op.RANGE, pack(request), asyncio.get_running_loop().create_future(), SERIALIZABLE)
        answer = await self.send(call)
        return decode_range(call.parts, answer)


def _brief(statuses: dict[str, dict[str, Any]]) -> str:
    keys = ("role", "term", "commit", "applied", "last_index")
    return "; ".join(f"{name} {' '.join(str(status[key]) for key in keys)}" for name, status in statuses.items())
