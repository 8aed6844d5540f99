"""Requests to an external etcd over gRPC: to one member at a time, and to the next if that does not answer.

Reads are retried until their deadline. A write is sent again only if it cannot have started: etcd has no sessions, so
one whose answer is lost ends as OutcomeUnknown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio

from minikube_py.env import Clock
from minikube_py.errors import MinikubeError, OutcomeUnknown, Unavailable
from minikube_py.etcd.codes import StatusCode
from minikube_py.etcd.errors import Excluded, Late, refusal_of
from minikube_py.etcd.messages import BY_NAME
from minikube_py.etcd.schema import Method, methods

REQUEST_TIMEOUT_S: Final = 10.0
READ_ATTEMPT_S: Final = 3.0
"""A member that has not answered a read by then is skipped: it may hang."""
RETRY_S: Final = 0.05
WITH_LEADER: Final = (("hasleader", "true"),)
"""A member that knows no leader refuses at once, and ends its streams."""
OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
)
Attempt = Callable[[float], Awaitable[Any]]
METHODS: Final[dict[str, Method]] = {each.short: each for each in methods()}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """`places`: `host:port` of each member. A PEM authority enables TLS; certificate and key are for client
    authentication."""

    places: tuple[str, ...]
    authority_pem: bytes | None = None
    certificate_pem: bytes | None = None
    key_pem: bytes | None = None
    secure: bool = False

    def credentials(self) -> Any:
        if not self.secure:
            return None
        return grpc.ssl_channel_credentials(self.authority_pem, self.key_pem, self.certificate_pem)


class EtcdClient:
    """Create it within the loop. `answered` gets the header of each answer, and the revision seen when the request was
    sent; it raises Unavailable if etcd is not the same."""

    def __init__(
        self,
        endpoints: Endpoints,
        clock: Clock,
        answered: Callable[[Any, int], None],
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._clock, self._answered, self.timeout_s = clock, answered, timeout_s
        self._places = endpoints.places
        credentials = endpoints.credentials()
        self._channels = [
            grpc.aio.insecure_channel(place, OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(place, credentials, OPTIONS)
            for place in endpoints.places
        ]
        self._at = 0
        self._made: dict[tuple[int, str], Any] = {}
        self.seen_revision = 0
        """The revision of the last answer."""
        self.requests = 0
        self.retries = 0
        self.unknown = 0

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()

    @property
    def place(self) -> str:
        """The member in use."""
        return self._places[self._at]

    async def read(self, name: str, request: Any, once_s: float | None = None) -> Any:
        """`once_s`: how long an attempt may take, and no other follows one that was late. Raises: RequestError,
        Unavailable (Late)."""
        return await self._repeat(name, self._unary(name, request), safe=True, once_s=once_s)

    async def write(self, name: str, request: Any) -> Any:
        """Raises: RequestError, Unavailable, OutcomeUnknown."""
        return await self._repeat(name, self._unary(name, request), safe=False)

    async def exchange(self, name: str, request: Any) -> Any:
        """The first answer of a bidirectional stream, for requests that may be repeated. Raises: RequestError,
        Unavailable."""

        async def first(attempt_s: float) -> Any:
            place, stream = self.place, self.stream(name, attempt_s)
            try:
                await stream.write(request)
                answer = await stream.read()
            except asyncio.InvalidStateError:
                answer = grpc.aio.EOF
            finally:
                stream.cancel()
            if answer is grpc.aio.EOF:
                raise Unavailable(f"etcd at {place} ended the stream")
            return answer

        return await self._repeat(name, first, safe=True)

    def stream(self, name: str, timeout_s: float | None = None) -> Any:
        return self._method(self._at, name)(timeout=timeout_s, metadata=WITH_LEADER)

    def pass_over(self, place: str) -> None:
        """Switches to the next member, unless `place` is no longer in use."""
        if place == self.place:
            self._at = (self._at + 1) % len(self._places)

    def _unary(self, name: str, request: Any) -> Attempt:
        return lambda attempt_s: self._method(self._at, name)(request, timeout=attempt_s, metadata=WITH_LEADER)

    async def _repeat(self, name: str, attempt: Attempt, *, safe: bool, once_s: float | None = None) -> Any:
        """`attempt` asks the member in use when it is called, once."""
        deadline_s = self._clock.monotonic_s() + self.timeout_s
        while True:
            left_s = deadline_s - self._clock.monotonic_s()
            place, seen = self.place, self.seen_revision
            self.requests += 1
            try:
                attempt_s = min(left_s, READ_ATTEMPT_S) if safe else left_s
                answer = await attempt(once_s or attempt_s)
                break
            except Unavailable as ended:
                failed: MinikubeError = ended
            except grpc.aio.AioRpcError as error:
                failed = self._failure(error, place, safe=safe)
                late = once_s is not None and isinstance(failed, Late)
                if late or isinstance(failed, Excluded) or not isinstance(failed, Unavailable):
                    raise failed from None
            self.pass_over(place)
            if self._clock.monotonic_s() + RETRY_S >= deadline_s:
                raise failed
            self.retries += 1
            await self._clock.sleep(RETRY_S)
        # The other requests are answered from one member's state, which may be behind.
        try:
            self._answered(answer.header, seen if name.startswith("KV/") else 0)
        except Unavailable:
            # What a restored etcd has written is written.
            if safe:
                raise
        self.seen_revision = max(self.seen_revision, answer.header.revision)
        return answer

    def _failure(self, error: grpc.aio.AioRpcError, place: str, *, safe: bool) -> MinikubeError:
        refused = refusal_of(StatusCode[error.code().name], error.details() or "")
        if refused is not None and not isinstance(refused, Unavailable):
            return refused
        if isinstance(refused, Excluded):
            return refused
        if safe and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Late(_words(error, place))
        if safe or refused is not None:
            return Unavailable(_words(error, place))
        self.unknown += 1
        return OutcomeUnknown(_words(error, place))

    def _method(self, at: int, name: str) -> Any:
        made = self._made.get((at, name))
        if made is None:
            found = METHODS[name]
            kind = "stream_stream" if found.takes_stream else "unary_unary"
            made = self._made[at, name] = getattr(self._channels[at], kind)(
                f"/{found.service}/{found.name}",
                request_serializer=_serialized,
                response_deserializer=BY_NAME[found.response].FromString,
            )
        return made

    def forget(self) -> None:
        """etcd was replaced, or is at an earlier revision: discard what was seen before."""
        self.seen_revision = 0


def _words(error: grpc.aio.AioRpcError, place: str) -> str:
    """`place`: the member that was asked. Another may be in use by now."""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"etcd at {place} did not answer in time"
    text = error.details() or error.code().name
    return text if text.startswith("etcdserver: ") else f"etcd at {place}: {text}"


def _serialized(message: Any) -> bytes:
    return bytes(message.SerializeToString())


async def quietly(stream: Any, request: Any) -> bool:
    """Sends on a stream that may have ended; whether it was sent."""
    with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
        await stream.write(request)
        return True
    return False
