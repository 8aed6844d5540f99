"""Connections of aiohttp that never outlive their session.

A TLS connection given up in the middle of an answer (a request that is cancelled or times out, a watch) sends a TLS
close and waits for the server's, for up to 30 s. aiohttp forgets it meanwhile: closing the session does not end it, and
if the loop ends then, its socket leaks."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import aiohttp

LOOKED_AT_MIN: Final = 64
TURNS_TO_CLOSE: Final = 2
"""Turns of the loop: an aborted transport loses its connection in the next one, and TLS's underlying transport in the
one after."""


class Connector(aiohttp.TCPConnector):
    """As TCPConnector; closing it also closes the sockets of all connections that it handed out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._given: dict[Any, asyncio.Transport] = {}
        """By socket, which shows whether it is open; an ended TLS transport cannot be queried."""
        self._look_at = LOOKED_AT_MIN

    async def connect(self, *given: Any, **named: Any) -> Any:
        connection = await super().connect(*given, **named)
        transport = connection.transport
        if transport is not None and (sock := transport.get_extra_info("socket")) is not None:
            self._given[sock] = transport
            if len(self._given) >= self._look_at:
                self._given = self._open()
                self._look_at = max(LOOKED_AT_MIN, 2 * len(self._given))
        return connection

    async def close(self, **options: Any) -> None:  # type: ignore[override]
        left, self._given = self._open(), {}
        for transport in left.values():
            transport.abort()
        await super().close(**options)
        for _ in range(TURNS_TO_CLOSE if left else 0):
            await asyncio.sleep(0)

    def _open(self) -> dict[Any, asyncio.Transport]:
        return {sock: transport for sock, transport in self._given.items() if sock.fileno() >= 0}
