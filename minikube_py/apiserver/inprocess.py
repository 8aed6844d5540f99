"""`ApiTransport` straight on the core: no socket, no reparsing, shared bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final, cast

import orjson

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.messages import NO_QUERY, Request
from minikube_py.apiserver.outgoing import ANSWER_BYTES_MAX
from minikube_py.apiserver.rules import User
from minikube_py.apiserver.watch_stream import Stream
from minikube_py.client.rest import refused_watch
from minikube_py.client.transport import JSON, USER_AGENT, ApiResponse, WatchEvent, put_one
from minikube_py.errors import MinikubeError, Unavailable

REFUSAL_BYTES_MAX: Final = 1 << 20
"""Of what another server answers instead of a watch."""
REFUSAL_S: Final = 10.0
"""How long that may take. As the refusal of an upgrade."""


class InProcessTransport:
    """Acts as `user`, with that user's rights."""

    def __init__(self, core: ApiServer, user: User = ADMIN) -> None:
        self._core = core
        self._user = user
        self._streams: dict[Stream, None] = {}
        self._waits: dict[asyncio.Timeout, None] = {}
        """Of watches that another server answers."""
        self._closed = False

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> ApiResponse:
        """See ApiTransport. No streams here: use `watch`."""
        if self._closed:
            raise Unavailable("the transport is closed")
        asked = Request(method, path, params or NO_QUERY, body or b"", self._user, JSON, content_type)
        asked.user_agent = USER_AGENT
        response = await self._core.handle(asked)
        if response.stream is not None or response.text is not None:
            if response.stream is not None:
                response.stream.close()
            if response.text is not None:
                await response.text.aclose()
            raise ValueError("a watch is opened with watch(), not with request()")
        return ApiResponse(response.status, response.whole(), response.headers)

    async def put_all(self, writes: Sequence[tuple[str, bytes]]) -> Sequence[ApiResponse | MinikubeError]:
        """See `client.transport.put_all`."""
        if self._closed:
            return [Unavailable("the transport is closed")] * len(writes)
        answers: list[ApiResponse | MinikubeError | None] = list(await self._core.renew(self._user, writes))
        others = [place for place, answer in enumerate(answers) if answer is None]
        if others:
            sent = await asyncio.gather(*(put_one(self, *writes[place]) for place in others))
            for place, answer in zip(others, sent):
                answers[place] = answer
        return cast(list[ApiResponse | MinikubeError], answers)

    async def watch(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[list[WatchEvent]]:
        """See ApiTransport. Each batch is one turn's events; the objects are shared with all other watchers."""
        if self._closed:
            raise Unavailable("the transport is closed")
        query = {**(params or {}), "watch": "true"}
        response = await self._core.handle(Request("GET", path, query, b"", self._user))
        stream = response.stream
        if response.text is not None:
            async with aclosing(response.text), aclosing(self._until_closed(response.text)) as parts:
                if response.status != 200:
                    yield [refused_watch(response.status, await _refusal(parts))]
                    return
                async for event in _events(parts):
                    yield [event]
            return
        if stream is None:
            yield [refused_watch(response.status, response.body)]
            return
        self._streams[stream] = None
        try:
            while batches := await stream.next():
                for batch in batches:
                    yield batch.events
        finally:
            self._streams.pop(stream, None)
            stream.close()

    async def _until_closed(self, text: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        while not self._closed:
            try:
                async with asyncio.timeout(None) as wait:
                    self._waits[wait] = None
                    part = await anext(text, b"")
            except TimeoutError:
                return
            finally:
                self._waits.pop(wait, None)
            if not part:
                return
            yield part

    async def close(self) -> None:
        """Ends watches and rejects further requests."""
        self._closed = True
        while self._waits:
            self._waits.popitem()[0].reschedule(0.0)
        for stream in list(self._streams):
            stream.close()
        await asyncio.sleep(0)


async def _refusal(parts: AsyncIterator[bytes]) -> bytes:
    """As much of it as is read, in REFUSAL_S."""
    said = b""
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(REFUSAL_S):
            async for part in parts:
                said += part
                if len(said) > REFUSAL_BYTES_MAX:
                    break
    return said[:REFUSAL_BYTES_MAX]


async def _events(parts: AsyncIterator[bytes]) -> AsyncIterator[WatchEvent]:
    """Of a watch that another server answers, until it ends or breaks off."""
    held = b""
    with suppress(ConnectionError):
        async for part in parts:
            *lines, held = (held + part).split(b"\n")
            if len(held) > ANSWER_BYTES_MAX:
                raise Unavailable(f"an event is longer than {ANSWER_BYTES_MAX} bytes, which is the limit")
            for line in filter(None, lines):
                try:
                    event = orjson.loads(line)
                    yield WatchEvent(str(event["type"]), orjson.dumps(event["object"]))
                except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                    raise Unavailable(f"an event of another server is not one: {error}") from None
