"""`ApiTransport` straight on the core: no socket, no reparsing, shared bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
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
from minikube_py.client.transport import JSON, ApiResponse, WatchEvent, put_one
from minikube_py.errors import MinikubeError, Unavailable

USER_AGENT: Final = "minikube-py"


class InProcessTransport:
    """Acts as `user`, with that user's rights."""

    def __init__(self, core: ApiServer, user: User = ADMIN) -> None:
        self._core = core
        self._user = user
        self._streams: dict[Stream, None] = {}
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
        if response.text is not None and response.status == 200:
            async with aclosing(response.text):
                async for event in _events(response.text):
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

    async def close(self) -> None:
        """Ends watches and rejects further requests."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        await asyncio.sleep(0)


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
