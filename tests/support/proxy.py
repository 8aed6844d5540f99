"""Links between members that can be delayed, lossy or cut without root: a TCP proxy as a separate process.

All members reach one of them at the same address, its listener here; the connecting one is identified in /proc, as the
process with the other end of the socket. So there is a rule for each direction between each two members, which applies
to the bytes in that direction, on any connection.

    pass    as they come, `delay_s` later
    hold    they wait, as does the news that a connection has ended: what a router that is down for a while makes of TCP
    drop    they are lost, and so is every connection that lost any, once both its ends can learn of it
    cut     connections are reset, and new ones too

Commands are JSON objects, a line each, on standard input, and each is answered by a line. It ends when its input ends,
and kills the registered processes: none outlives its parent, not even a stopped one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HELD_BYTES_MAX = 256 << 10
"""The bytes buffered for one direction of a connection before its sender has to wait."""
FIND_ATTEMPTS = 40
FIND_PAUSE_S = 0.05
END = b""
"""In a pipe: its sender has closed or lost the connection."""


class Rule(NamedTuple):
    mode: str = "pass"
    delay_s: float = 0.0


PASS = Rule()


class Pipe:
    """One direction of a connection: from `source` to `destination`."""

    def __init__(self, proxy: Proxy, source: str, destination: str) -> None:
        self._proxy = proxy
        self._way = (source, destination)
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._full = False
        self.reader: Side | None = None
        """The side that reads from the source."""
        self.writer: Side | None = None
        """The side that writes to the destination; None until it is connected."""
        self.lossy = False

    @property
    def rule(self) -> Rule:
        return self._proxy.rules.get(self._way, PASS)

    def feed(self, data: bytes) -> None:
        rule = self.rule
        if rule.mode == "drop":
            self.lossy = True
            return
        self._queue.append((self._proxy.loop.time() + rule.delay_s, data))
        self._queued_bytes += len(data)
        self._proxy.bytes += len(data)
        self.pump()

    def pump(self) -> None:
        """Writes what is due, as far as the peer accepts it."""
        if self.writer is not None and not self.lossy and self.rule.mode != "hold":
            now_s = self._proxy.loop.time()
            while self._queue and not self._full and self._queue[0][0] <= now_s:
                _, data = self._queue.popleft()
                self._queued_bytes -= len(data)
                if data == END:
                    self.writer.close()
                else:
                    self.writer.write(data)
            if self._queue and not self._full and self._timer is None:
                self._timer = self._proxy.loop.call_at(self._queue[0][0], self._due)
        if self.reader is not None:
            self.reader.flow(self._queued_bytes < HELD_BYTES_MAX)

    def full(self, full: bool) -> None:
        self._full = full
        self.pump()

    def _due(self) -> None:
        self._timer = None
        self.pump()

    def close(self) -> None:
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Side(asyncio.Protocol):
    """One of a connection's two sockets: its input goes to `out`, its output comes from `into`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self.out: Pipe
        self.into: Pipe

    def join(self, out: Pipe, into: Pipe) -> None:
        self.out, self.into = out, into
        out.reader, into.writer = self, self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connection.made(self, transport)

    def data_received(self, data: bytes) -> None:
        self.out.feed(data)

    def eof_received(self) -> bool:
        """TLS has no half-closed connections: `connection_lost` follows."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost(self)

    def pause_writing(self) -> None:
        self.into.full(True)

    def resume_writing(self) -> None:
        self.into.full(False)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def flow(self, flows: bool) -> None:
        if self._transport is None or self._transport.is_closing() or flows == self._reading:
            return
        self._reading = flows
        if flows:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class Connection:
    """From the socket that a member opened to the member it wanted."""

    def __init__(self, proxy: Proxy, to: str) -> None:
        self._proxy = proxy
        self._to = to
        self.near = Side(self)
        self.far: Side | None = None
        self.pipes: tuple[Pipe, ...] = ()
        self._open = 0
        self._task: asyncio.Task[None] | None = None

    def made(self, side: Side, transport: asyncio.Transport) -> None:
        self._open += 1
        if side is self.near:
            transport.pause_reading()
            self._proxy.connections[self] = None
            self._task = self._proxy.loop.create_task(self._begin(transport))

    async def _begin(self, transport: asyncio.Transport) -> None:
        source = await self._proxy.holder(transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
        way = (source, self._to)
        while (mode := self._proxy.rules.get(way, PASS).mode) in ("hold", "drop"):
            await self._proxy.changed.wait()
        if mode == "cut" or transport.is_closing():
            self.abort()
            return
        there, back = Pipe(self._proxy, source, self._to), Pipe(self._proxy, self._to, source)
        self.pipes = (there, back)
        far = Side(self)
        far.join(back, there)
        self.near.join(there, back)
        try:
            await self._proxy.loop.create_connection(lambda: far, *self._proxy.targets[self._to])
        except OSError:
            self.abort()
            return
        self.far = far
        transport.resume_reading()
        there.pump()
        self.changed()

    def lost(self, side: Side) -> None:
        self._open -= 1
        if self.far is None:
            self.abort()
        elif self._open:
            # The other end learns of it in order with the data.
            side.out.feed(END)
        if not self._open:
            self._over()

    def changed(self) -> None:
        """The rules changed."""
        modes = [pipe.rule.mode for pipe in self.pipes]
        broken = any(pipe.lossy for pipe in self.pipes) and "drop" not in modes and "hold" not in modes
        if "cut" in modes or broken:
            self.abort()
        else:
            for pipe in self.pipes:
                pipe.pump()

    def abort(self) -> None:
        self.near.abort()
        if self.far is not None:
            self.far.abort()

    def _over(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        if self._task is not None:
            self._task.cancel()
        self._proxy.connections.pop(self, None)


class Proxy:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.rules: dict[tuple[str, str], Rule] = {}
        self.targets: dict[str, tuple[str, int]] = {}
        self.pids: dict[str, int] = {}
        self.connections: dict[Connection, None] = {}
        self.changed = asyncio.Event()
        self.accepted = self.unknown = self.bytes = 0
        self._servers: list[asyncio.Server] = []

    # -- commands -----------------------------------------------------------------------------------------------------

    async def listen(self, name: str, host: str, port: int) -> dict[str, Any]:
        """Others reach `name`, which listens at `host:port`, through the returned port."""
        self.targets[name] = (host, port)
        server = await self.loop.create_server(lambda: self._accept(name), "127.0.0.1", 0)
        self._servers.append(server)
        return {"port": server.sockets[0].getsockname()[1]}

    async def running(self, name: str, pid: int) -> dict[str, Any]:
        """Process `pid` is `name`; 0: it does not run."""
        self.pids.pop(name, None)
        if pid:
            self.pids[name] = pid
        return {}

    async def obey(self, rules: list[tuple[str, str, str, float]]) -> dict[str, Any]:
        """Sets the rules; unnamed directions pass."""
        self.rules = {(source, destination): Rule(mode, delay_s) for source, destination, mode, delay_s in rules}
        self.changed.set()
        self.changed = asyncio.Event()
        for connection in list(self.connections):
            connection.changed()
        return {}

    async def stats(self) -> dict[str, Any]:
        return {
            "accepted": self.accepted,
            "open": len(self.connections),
            "unknown": self.unknown,
            "bytes": self.bytes,
        }

    async def obeyed(self, line: bytes) -> dict[str, Any]:
        """The answer to one line of input."""
        command = json.loads(line)
        do = {"listen": self.listen, "running": self.running, "obey": self.obey, "stats": self.stats}
        answer: dict[str, Any] = await do[command.pop("do")](**command)
        return answer

    # -- connections --------------------------------------------------------------------------------------------------

    def _accept(self, to: str) -> Side:
        self.accepted += 1
        return Connection(self, to).near

    async def holder(self, theirs: tuple[str, int], ours: tuple[str, int]) -> str:
        """The owner of the socket at the other end: "" if it cannot be found, as after it ended."""
        for _ in range(FIND_ATTEMPTS):
            inode = _inode(theirs, ours)
            for name, pid in list(self.pids.items()):
                if inode and inode in _sockets(pid):
                    return name
            await asyncio.sleep(FIND_PAUSE_S)
        self.unknown += 1
        return ""

    def stop(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.abort()
        for pid in self.pids.values():
            if pid == os.getppid():
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _inode(local: Sequence[Any], remote: Sequence[Any]) -> str:
    """Of the established socket with these two ends, "" if there is none."""
    ends = [_hex(local), _hex(remote)]
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if fields[1:3] == ends:
                return fields[9]
    return ""


def _hex(address: Sequence[Any]) -> str:
    """In the format of /proc/net/tcp: the host's bytes reversed."""
    host, port = address[:2]
    return "".join(f"{int(part):02X}" for part in reversed(host.split("."))) + f":{port:04X}"


def _sockets(pid: int) -> set[str]:
    return set(_read_sockets(pid))


def _read_sockets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(entry)
                if target.startswith("socket:["):
                    yield target[len("socket:[") : -1]


async def serve() -> None:
    proxy = Proxy()
    reader = asyncio.StreamReader()
    await proxy.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            print(json.dumps(await proxy.obeyed(line)), flush=True)
    finally:
        proxy.stop()


if __name__ == "__main__":
    asyncio.run(serve())
