"""The member behind the API: headers of answers, confirmed reads, writes sent to the leader."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar

from minikube_py.errors import Leaderless, LeaseNotFound, MinikubeError, NotLeader
from minikube_py.etcd.errors import NO_LEADER, NOT_PROPOSED, TIMED_OUT, Refused, Status
from minikube_py.etcd.guard import NOBODY, Guard
from minikube_py.etcd.messages import pb
from minikube_py.etcd.pieces import Batch, Kept
from minikube_py.mvcc.codec import USER_COMMANDS, pack
from minikube_py.mvcc.types import AsUser, Command, LeaseGrant, Result, SetAlarm, WatchBatch
from minikube_py.mvcc.versions import USERS
from minikube_py.store.client import StoreClient
from minikube_py.store.member import StoreMember
from minikube_py.store.membership import MemberChange, decode_member_change, encode_member_change

log = logging.getLogger(__name__)
T = TypeVar("T")
REQUEST_S: Final = 7.0
"""As long as etcd waits for a write or a confirmed read: 5 s and two election timeouts."""
ASK_AGAIN_S: Final = 0.1
URLS_S: Final = 1.0
"""How long the members' URLs are believed; those of a member that does not answer, until it does."""
TRIMMED_PER_TURN: Final = 5000

Connect = Callable[[], Awaitable[StoreClient]]
AskUrls = Callable[[], Awaitable[Mapping[int, tuple[str, ...]]]]


class Reply(Protocol):
    """The receiver of an answer that needs no task."""

    def done(self, answer: Any) -> None: ...

    def failed(self, error: MinikubeError | Refused) -> None: ...

    def slowly(self, work: Callable[..., Awaitable[Any]], *given: Any) -> None:
        """It was done; its answer takes longer: `await work(*given)`."""

    def later(self) -> None:
        """It needs a task after all, and nothing of it was done."""


Soon = Callable[[Any, Reply], bool]
"""Whether the request was accepted; if not, nothing of it was done. Raises: Refused, MinikubeError."""


class Node:
    """`connect` returns a started client of the native protocol, through which a follower sends its writes to the
    leader, in a session, so that each is done once however often it is sent. None: a single member. `ask_urls` asks the
    other members for their URLs of this API."""

    def __init__(self, member: StoreMember, connect: Connect | None = None, ask_urls: AskUrls | None = None) -> None:
        self.member = member
        self.guard = Guard(member, self.confirmed)
        self._ask_urls = ask_urls
        self._urls: dict[int, tuple[str, ...]] = {}
        self._urls_until_s = 0.0
        self._asking_urls = asyncio.Lock()
        self.watch_bytes = 0
        """Events queued for the readers of watches."""
        self.kept = Kept()
        self.last_batch: WatchBatch | None = None
        self.last_shared: dict[tuple[bool, frozenset[str]], list[Batch]] = {}
        """Of `last_batch`, by what watches ask."""
        self._connect = connect
        self._client: StoreClient | None = None
        self._connecting = asyncio.Lock()

    def forget_batch(self) -> None:
        self.last_batch = None
        self.last_shared.clear()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def urls(self) -> dict[int, tuple[str, ...]]:
        """The members' URLs of this API, by id, as far as reported."""
        if self._ask_urls is not None:
            async with self._asking_urls:
                # A member may have started again with others.
                if self.member.clock.monotonic_s() >= self._urls_until_s:
                    self._urls.update(await self._ask_urls())
                    self._urls_until_s = self.member.clock.monotonic_s() + URLS_S
        return {**self._urls, int(self.member.member_id): self.member.client_urls}

    async def clear_alarm(self, command: SetAlarm) -> None:
        """Raises: as `command`."""
        if self._leads_alone():
            await self.command(command)
            return
        with refused_as(NOT_PROPOSED):
            await (await self._leaders()).clear_alarm(command)
        await self.confirmed()

    async def change_members(self, change: MemberChange, leaderless: Status = NOT_PROPOSED) -> None:
        """Returns when it is applied here. Raises: InvalidRequest, Unavailable, OutcomeUnknown; Refused with
        `leaderless` if there is no leader."""
        # Validated like external input: invalid data must never be in the log.
        change = decode_member_change(encode_member_change(change))
        if self._leads_alone():
            await in_time(self.member.change_members(change))
            return
        with refused_as(leaderless):
            await (await self._leaders()).change_members(change)
        await self.confirmed()

    @property
    def learner(self) -> bool:
        own = self.member.membership.get(self.member.member_id)
        return own is not None and own.learner

    def header(self, revision: int) -> Any:
        member = self.member
        return pb.ResponseHeader(
            cluster_id=member.replica.cluster_id,
            member_id=int(member.member_id),
            revision=revision,
            raft_term=int(member.raft.term),
        )

    def header_now(self) -> Any:
        return self.header(self.member.state.revision)

    async def confirmed(self, leaderless: Status = TIMED_OUT, within_s: float = REQUEST_S) -> None:
        """Returns when this member's state includes everything acknowledged before this call. Raises: Refused with
        `leaderless` if there is no leader: etcd reads some of its state through the log."""
        if not self.member.readable:
            await in_time(self._confirmed(), leaderless, within_s)

    async def _confirmed(self) -> None:
        while True:
            try:
                return await self.member.confirmed()
            except Leaderless:
                # The store gives up sooner than etcd.
                await self.member.clock.sleep(ASK_AGAIN_S)

    async def command(self, command: Command, *, guarded: bool = True) -> Result:
        """Through the log, once. Raises: RequestError, Unavailable, OutcomeUnknown; Refused after a timeout, with
        unknown outcome."""
        member = self.member
        if guarded and type(command) in USER_COMMANDS:
            # If this member may be behind, only apply knows whether authentication is on.
            behind = not member.readable and member.state.version >= USERS
            if behind or member.state.auth.enabled:
                command = await self.guard.as_user(command)  # type: ignore[arg-type]
        if member.replica.leading or self._connect is None:
            if type(command) is LeaseGrant and not command.id:
                command = command._replace(id=member.new_lease_id())
            try:
                return await in_time(member.storage.command(command))
            except NotLeader:
                if self._connect is None:
                    raise
        with refused_as(NOT_PROPOSED):
            result = await (await self._leaders()).command(command)  # type: ignore[arg-type]
        # A client reads its own writes here: this member must have applied its answer.
        await self.reached(result.revision)
        return result

    def when_confirmed(self, reply: Reply, read: Callable[[], None]) -> None:
        """As `confirmed`, and then calls `read`; its exceptions are the answer."""

        def done(error: MinikubeError | None) -> None:
            self._answer(reply, error, read)

        self.member.when_readable(done)

    @staticmethod
    def _answer(reply: Reply, error: MinikubeError | None, work: Callable[[], None]) -> None:
        """Called by the replica, which continues whatever happens to an answer."""
        try:
            if error is not None:
                raise error
            work()
        except (MinikubeError, Refused) as refused:
            reply.failed(refused)
        except Exception:
            log.exception("a request could not be answered")

    def propose(self, command: Command, reply: Reply, answer: Callable[[Any, Reply], None]) -> bool:
        """As `command`, if this member leads and no user is needed; `answer` passes the result to `reply`. False:
        otherwise. Raises: as `command`."""
        member = self.member
        if not member.replica.leading or member.state.auth.enabled:
            return False
        if not member.readable and member.state.version >= USERS:
            command = AsUser(*NOBODY, command)  # type: ignore[arg-type]

        def settled(result: Any, error: MinikubeError | None) -> None:
            self._answer(reply, error, lambda: answer(result, reply))

        member.propose(command, pack(command), settled)
        return True

    async def reached(self, revision: int) -> None:
        while self.member.state.revision < revision:
            await self.confirmed()

    async def trimmed(self) -> None:
        """Returns when compacted history uses no memory any more."""
        left = self.member.state.trim(TRIMMED_PER_TURN)
        while left:
            await asyncio.sleep(0)
            left = self.member.state.trim(TRIMMED_PER_TURN)

    async def keep_alive(self, lease_id: int) -> int:
        """The renewed TTL, 0 if the lease is unknown."""
        with refused_as(NO_LEADER):
            if self._leads_alone():
                return await in_time(self.member.storage.lease_keep_alive(lease_id))
            return await (await self._leaders()).lease_keep_alive(lease_id)

    async def remaining_s(self, lease_id: int) -> float:
        """Time until the lease ends unless it is renewed. Raises: LeaseNotFound."""
        with refused_as(NO_LEADER):
            if self._leads_alone():
                found = await in_time(self.member.lease_remaining_s(lease_id))
            else:
                found = await (await self._leaders()).lease_remaining_s(lease_id)
                await self.confirmed()
        if found is None:
            raise LeaseNotFound
        return found

    def _leads_alone(self) -> bool:
        return bool(self.member.replica.leading) or self._connect is None

    async def _leaders(self) -> StoreClient:
        """Without a leader, its requests wait for the next one, and end by themselves."""
        assert self._connect is not None
        async with self._connecting:
            if self._client is None:
                self._client = await in_time(self._connect())
        return self._client


@contextlib.contextmanager
def refused_as(status: Status) -> Iterator[None]:
    """Without a leader: as etcd says it there, and without the addresses of the members. Raises: Refused."""
    try:
        yield
    except Leaderless:
        raise Refused(*status) from None


async def in_time(work: Awaitable[T], late: Status = TIMED_OUT, within_s: float = REQUEST_S) -> T:
    """Raises: Refused with `late` after `within_s`."""
    try:
        async with asyncio.timeout(within_s):
            return await work
    except TimeoutError:
        raise Refused(*late) from None
