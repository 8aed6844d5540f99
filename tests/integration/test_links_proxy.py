"""The proxy that stands between members in tests of real processes does what a scenario counts on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator

import pytest
from patience import PATIENCE_S
from store_cluster import HOST, Links

WITHIN_S = PATIENCE_S
NOTHING_S = 0.2


class Ends:
    """A connection from `a`, this process, to `b`, which is here as well: what each end sends and gets."""

    def __init__(self, links: Links, port: int) -> None:
        self.links, self.port = links, port
        self.accepted: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        self.writers.append(writer)
        return reader, writer

    async def both(self) -> tuple[tuple[asyncio.StreamReader, asyncio.StreamWriter], ...]:
        near = await self.connect()
        async with asyncio.timeout(WITHIN_S):
            return near, await self.accepted.get()

    async def came(self, reader: asyncio.StreamReader, size: int = 5) -> bytes:
        async with asyncio.timeout(WITHIN_S):
            return await reader.readexactly(size)

    async def nothing(self, reader: asyncio.StreamReader) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), NOTHING_S)

    async def ended(self, reader: asyncio.StreamReader) -> None:
        """Closed or reset."""
        async with asyncio.timeout(WITHIN_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read(1) == b""


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    links = Links()
    await links.start()
    opened: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        ends.accepted.put_nowait((reader, writer))

    server = await asyncio.start_server(accept, HOST, 0)
    answer = await links.say("listen", name="b", host=HOST, port=server.sockets[0].getsockname()[1])
    await links.say("running", name="a", pid=os.getpid())
    ends = Ends(links, answer["port"])
    try:
        yield ends
    finally:
        await links.stop()
        for writer in (*ends.writers, *opened):
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        server.close()
        await server.wait_closed()


async def test_what_passes_is_whole_and_in_order(ends: Ends) -> None:
    (near, to_far), (far, to_near) = await ends.both()
    sent = os.urandom(3 << 20)
    to_far.write(sent)
    to_near.write(b"hello")
    assert await ends.came(far, len(sent)) == sent and await ends.came(near) == b"hello"
    to_far.close()
    await ends.ended(far)
    assert (await ends.links.say("stats"))["unknown"] == 0


async def test_what_is_held_comes_later_and_the_other_way_is_free(ends: Ends) -> None:
    (near, to_far), (far, to_near) = await ends.both()
    await ends.links.set({("a", "b"): ("hold", 0.0)})
    to_far.write(b"first")
    to_near.write(b"hello")
    assert await ends.came(near) == b"hello"
    await ends.nothing(far)
    to_far.close()
    await ends.nothing(far)
    await ends.links.set({})
    assert await ends.came(far) == b"first", "the end of a connection waits behind what was said"
    await ends.ended(far)


async def test_a_connection_that_is_made_meanwhile_stands_once_it_may(ends: Ends) -> None:
    await ends.links.set({("a", "b"): ("hold", 0.0)})
    _, to_far = await ends.connect()
    to_far.write(b"first")
    await asyncio.sleep(NOTHING_S)
    assert ends.accepted.empty()
    await ends.links.set({})
    async with asyncio.timeout(WITHIN_S):
        far, _ = await ends.accepted.get()
    assert await ends.came(far) == b"first"


async def test_what_is_dropped_is_lost_and_breaks_the_connection_once_that_can_be_learned(ends: Ends) -> None:
    (near, to_far), (far, _) = await ends.both()
    await ends.links.set({("a", "b"): ("drop", 0.0)})
    to_far.write(b"first")
    await ends.nothing(far)
    await ends.nothing(near)
    await ends.links.set({})
    await ends.ended(far)
    await ends.ended(near)


async def test_one_that_lost_nothing_outlives_a_drop(ends: Ends) -> None:
    (_, to_far), (far, _) = await ends.both()
    await ends.links.set({("a", "b"): ("drop", 0.0)})
    await ends.links.set({})
    to_far.write(b"hello")
    assert await ends.came(far) == b"hello"


async def test_a_cut_resets_what_there_is_and_what_comes(ends: Ends) -> None:
    (near, _), (far, _) = await ends.both()
    await ends.links.set({("b", "a"): ("cut", 0.0)})
    await ends.ended(near)
    await ends.ended(far)
    await ends.links.set({("a", "b"): ("cut", 0.0)})
    near, _ = await ends.connect()
    await ends.ended(near)
    assert ends.accepted.empty()


async def test_a_delay_keeps_the_order(ends: Ends) -> None:
    (_, to_far), (far, _) = await ends.both()
    await ends.links.set({("a", "b"): ("pass", 0.3)})
    begin_s = time.monotonic()
    to_far.write(b"first")
    await asyncio.sleep(0.05)
    await ends.links.set({})
    to_far.write(b"after")
    assert await ends.came(far, 10) == b"firstafter"
    assert time.monotonic() - begin_s >= 0.3


async def test_rules_are_for_those_they_name(ends: Ends) -> None:
    await ends.links.set({("b", "a"): ("hold", 0.0), ("a", "c"): ("cut", 0.0), ("", "b"): ("cut", 0.0)})
    (_, to_far), (far, _) = await ends.both()
    to_far.write(b"hello")
    assert await ends.came(far) == b"hello"


async def test_it_takes_along_whom_it_was_told_of() -> None:
    links = Links()
    await links.start()
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "input()", stdin=pipe)
    await links.say("running", name="a", pid=process.pid)
    await links.stop()
    async with asyncio.timeout(WITHIN_S):
        assert await process.wait() == -signal.SIGKILL
    assert process.stdin is not None
    process.stdin.close()
