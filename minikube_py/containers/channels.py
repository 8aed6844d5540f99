"""Multiplexed byte streams over an upgraded connection: SPDY streams or WebSocket channels.

Both provide `Channel`s with backpressure.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from wsproto.connection import Connection as WebSocketFrames
from wsproto.connection import ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from minikube_py.containers.spdy import STREAMS_MAX, Data, Ended, Malformed, Opened, Spdy
from minikube_py.env import Slices, turns

log = logging.getLogger(__name__)
UNREAD_BYTES_MAX: Final = 256 << 10
"""Received bytes of one connection that no reader has taken: then it is not read until one does."""
ALL_UNREAD_BYTES_MAX: Final = 64 << 20
"""The same of all connections, with unfinished messages and frames: those that hold the most end, until a quarter is
free."""
MESSAGE_BYTES_MAX: Final = 1 << 20
MESSAGE_FRAMES_MAX: Final = 1024
PART_BYTES_MAX: Final = 64 << 10
"""Bytes sent, or given to a reader, per event loop turn."""
_RECEIVED_BYTES_AT_ONCE: Final = 2048
"""Bytes of a WebSocket, which may be hundreds of frames, between two turns of the loop."""
_MESSAGES_AT_ONCE: Final = 200
"""Messages, each a step, given to a reader between two turns of the loop."""
FRAMES_STEPS: Final = 500
"""What these count as, or a step of SPDY."""
_REASON_CHARS_MAX: Final = 100
"""Of ASCII, in a frame of control, which has 125 bytes."""
_CLOSED: Final = 255
"""In v5.channel.k8s.io: the number of the channel that ends follows."""


class Duplex(Protocol):
    """The bytes of one connection, both ways."""

    async def read(self) -> bytes:
        """At least one byte; none at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Returns once the reader has caught up. Raises: ConnectionError."""
        ...


Send = Callable[[bytes], Awaitable[None]]
End = Callable[[bool], Awaitable[None]]


class _All:
    """What the connections of a loop hold."""

    def __init__(self) -> None:
        self.bytes = 0
        self.connections: dict[Unread, asyncio.Task[object]] = {}

    def end_largest(self) -> None:
        held, before = self.bytes, len(self.connections)
        for each in sorted(self.connections, key=lambda each: -each.bytes):
            if self.bytes <= ALL_UNREAD_BYTES_MAX * 3 // 4:
                break
            self.bytes -= each.bytes
            self.connections.pop(each).cancel()
        text = "%d connections into pods ended: %d bytes that no program read were held; the limit is %d"
        log.warning(text, before - len(self.connections), held, ALL_UNREAD_BYTES_MAX)


_ALL: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _All]] = WeakKeyDictionary()


class Unread:
    """Bytes that one connection holds, and of them those that readers can take. Its pump runs in this context, and is
    cancelled by a connection that finds too much held."""

    def __init__(self) -> None:
        self.bytes = 0
        self.readable = 0
        self._room: asyncio.Future[None] | None = None
        self._all = _ALL.setdefault(asyncio.get_running_loop(), _All())

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._all.connections[self] = task
        self._all.bytes += self.bytes

    def __exit__(self, *error: object) -> None:
        if self._all.connections.pop(self, None) is not None:
            self._all.bytes -= self.bytes

    def hold(self, size: int) -> None:
        """A change of what waits for the rest of its message or frame."""
        self.bytes += size
        if self in self._all.connections:
            self._all.bytes += size
            if self._all.bytes > ALL_UNREAD_BYTES_MAX:
                self._all.end_largest()

    def add(self, size: int) -> None:
        self.readable += size
        self.hold(size)
        if size < 0 and self._room is not None:
            room, self._room = self._room, None
            room.set_result(None)

    async def room(self) -> None:
        while self.readable > UNREAD_BYTES_MAX:
            if self._room is None:
                self._room = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._room)


class Channel:
    """`read` returns received bytes, empty at the end. `end(reset)` ends sending."""

    def __init__(self, unread: Unread, send: Send, end: End, headers: Mapping[str, str] | None = None) -> None:
        self.headers = headers if headers is not None else {}
        self.ended = False
        self._send = send
        self._end = end
        self._sent_end = False
        self._inbox: deque[bytearray] = deque()
        self._unread = unread
        self._waiter: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        while not self._inbox:
            if self.ended:
                return b""
            if self._waiter is None:
                self._waiter = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._waiter)
        data = self._inbox.popleft()
        self._unread.add(-len(data))
        return bytes(data)

    async def write(self, data: bytes) -> None:
        """In parts that fit a frame of each protocol. Raises: ConnectionError."""
        for at in range(0, len(data) or 1, PART_BYTES_MAX):
            if not self._sent_end:
                await self._send(data[at : at + PART_BYTES_MAX])

    async def end(self, *, reset: bool = False) -> None:
        """Idempotent; nothing is read any more. Raises: ConnectionError."""
        if not self._sent_end:
            self._sent_end = True
            self.close(dropping=True)
            await self._end(reset)

    async def take(self, data: bytes) -> None:
        """Received data. Returns once there is room for more; data after its end is dropped."""
        if self.ended:
            return
        for at in range(0, len(data), PART_BYTES_MAX):
            part = data[at : at + PART_BYTES_MAX]
            # Many small parts would take a hundred times their bytes.
            if self._inbox and len(self._inbox[-1]) + len(part) <= PART_BYTES_MAX:
                self._inbox[-1] += part
            else:
                self._inbox.append(bytearray(part))
        self._unread.add(len(data))
        self._wake()
        await self._unread.room()

    def close(self, *, dropping: bool = False) -> None:
        """End of input; `dropping`: discard buffered data too."""
        self.ended = True
        if dropping:
            self._unread.add(-sum(map(len, self._inbox)))
            self._inbox.clear()
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class SpdyChannels:
    """Streams that the client opens, in order; None after the last."""

    def __init__(self, duplex: Duplex, unread: Unread | None = None) -> None:
        self.opened: asyncio.Queue[Channel | None] = asyncio.Queue()
        self._duplex = duplex
        self._unread = unread or Unread()
        self._spdy = Spdy()
        self._held = 0
        self._channels: dict[int, Channel] = {}

    async def pump(self) -> None:
        """Reads until the connection ends. Raises: Malformed, ConnectionError."""
        try:
            with self._unread:
                while data := await self._duplex.read():
                    await turns().next(FRAMES_STEPS)
                    await self._take(data)
                    while self._spdy.more:
                        await turns().next(FRAMES_STEPS)
                        await self._take(b"")
        finally:
            for each in self._channels.values():
                each.close()
            self._hold(0)
            self.opened.put_nowait(None)

    async def _take(self, data: bytes) -> None:
        """One step of what was received. Raises: Malformed, ConnectionError."""
        events = self._spdy.receive(data)
        self._hold(self._spdy.held_bytes)
        if self._spdy.outgoing:
            outgoing = bytes(self._spdy.outgoing)
            self._spdy.outgoing.clear()
            await self._duplex.write(outgoing)
        for event in events:
            match event:
                case Opened(stream, headers):
                    if self.opened.qsize() >= STREAMS_MAX:
                        raise Malformed(f"{STREAMS_MAX} streams were opened without a request")
                    self._channels[stream] = channel = self._channel(stream, headers)
                    self.opened.put_nowait(channel)
                case Data(stream, part):
                    if (found := self._channels.get(stream)) is not None:
                        await found.take(part)
                case Ended(stream, reset):
                    found = self._channels.pop(stream, None) if reset else self._channels.get(stream)
                    if found is not None:
                        found.close(dropping=reset)
                case _:
                    # It opens no new streams; open ones continue.
                    continue

    def _hold(self, size: int) -> None:
        before, self._held = self._held, size
        self._unread.hold(size - before)

    async def finish(self, wrong: str = "") -> None:
        """Raises: ConnectionError."""
        await self._duplex.write(self._spdy.go_away(failed=bool(wrong)))

    def drop(self) -> None:
        """What is held, once nobody reads or writes any more. Leaves no reference cycle."""
        for each in self._channels.values():
            each.close(dropping=True)
        self._channels.clear()
        self.opened, self._spdy = asyncio.Queue(), Spdy()

    def _channel(self, stream: int, headers: Mapping[str, str]) -> Channel:
        async def send(data: bytes) -> None:
            await self._duplex.write(self._spdy.data(stream, data))

        async def end(reset: bool) -> None:
            frame = self._spdy.reset(stream) if reset else self._spdy.data(stream, b"", fin=True)
            self._spdy.forget(stream)
            self._hold(self._spdy.held_bytes)
            if self._channels.pop(stream, None) is not None:
                await self._duplex.write(frame)

        return Channel(self._unread, send, end, headers)


class WebSocket:
    """Messages over a connection that was upgraded: a `Duplex` of whole messages.

    `text`: messages are sent as text; both kinds are taken."""

    def __init__(self, duplex: Duplex, *, text: bool = False) -> None:
        self.unread = Unread()
        self._duplex = duplex
        self._text = text
        self._frames = WebSocketFrames(ConnectionType.SERVER)
        self._messages: deque[bytes] = deque()
        self._message = bytearray()
        self._message_frames = 0
        self._slices = Slices(_MESSAGES_AT_ONCE)
        self._ended = False

    async def read(self) -> bytes:
        """The next message that is not empty; nothing at the end. Raises: Malformed, ConnectionError."""
        while not self._messages and not self._ended:
            data = await self._duplex.read()
            if not data:
                self._ended = True
                break
            try:
                for at in range(0, len(data), _RECEIVED_BYTES_AT_ONCE):
                    await turns().next(FRAMES_STEPS)
                    self._frames.receive_data(data[at : at + _RECEIVED_BYTES_AT_ONCE])
                    # One write, as TLS transports of Python 3.11 do not tell that the connection is lost until later.
                    if answers := b"".join([self._taken(event) for event in self._frames.events()]):
                        await self._duplex.write(answers)
            except (LocalProtocolError, RemoteProtocolError) as error:
                raise Malformed(str(error)) from None
        if not self._messages:
            return b""
        # One write can bring thousands, and whoever reads them waits for nothing between two of them.
        await self._slices.spend()
        message = self._messages.popleft()
        self.unread.hold(-len(message))
        return message

    async def pump(self) -> None:
        """Drops what the client sends, until it closes. Raises: Malformed, ConnectionError."""
        while await self.read():
            pass

    async def write(self, data: bytes) -> None:
        """Raises: ConnectionError."""
        message = TextMessage(data.decode()) if self._text else BytesMessage(data)
        await self._send(message)

    async def finish(self, wrong: str = "") -> None:
        """`wrong`: what the client did, as the frame says. Raises: ConnectionError."""
        code = CloseReason.PROTOCOL_ERROR if wrong else CloseReason.NORMAL_CLOSURE
        await self._send(CloseConnection(code, wrong[:_REASON_CHARS_MAX] or None))

    async def _send(self, event: TextMessage | BytesMessage | CloseConnection) -> None:
        try:
            await self._duplex.write(self._frames.send(event))
        except LocalProtocolError:
            # The client sent a close frame.
            raise ConnectionResetError("the WebSocket is closed") from None

    def drop(self) -> None:
        """What was received and not read."""
        self._messages.clear()
        self._message = bytearray()

    def _taken(self, event: object) -> bytes:
        """The answer. Raises: Malformed."""
        if isinstance(event, (Ping, CloseConnection)):
            self._ended = self._ended or isinstance(event, CloseConnection)
            return self._frames.send(event.response())
        if isinstance(event, (BytesMessage, TextMessage)):
            part = event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
            self._message += part
            self.unread.hold(len(part))
            if len(self._message) > MESSAGE_BYTES_MAX:
                raise Malformed(f"a message of more than {MESSAGE_BYTES_MAX} bytes")
            self._message_frames += event.frame_finished
            if self._message_frames > MESSAGE_FRAMES_MAX:
                raise Malformed(f"a message of more than {MESSAGE_FRAMES_MAX} frames")
            if event.message_finished:
                if self._message:
                    self._messages.append(bytes(self._message))
                self._message, self._message_frames = bytearray(), 0
        return b""


class NumberedChannels:
    """Channels of WebSocket messages that begin with their channel's number; in `coded` ones it is a digit, and the
    rest base64. `closes`: clients tell the end of a channel (v5.channel.k8s.io)."""

    def __init__(self, duplex: Duplex, count: int, *, coded: bool = False, closes: bool = False) -> None:
        self._socket = WebSocket(duplex, text=coded)
        self._coded = coded
        self._closes = closes
        self._unread = self._socket.unread
        self.channels = [self._channel(number) for number in range(count)]

    async def pump(self) -> None:
        """Reads until the connection ends. Raises: Malformed, ConnectionError."""
        try:
            with self._unread:
                while message := await self._socket.read():
                    await self._take(message[0], message[1:])
        finally:
            for each in self.channels:
                each.close()

    async def _take(self, number: int, data: bytes) -> None:
        """Raises: Malformed."""
        if self._coded:
            number -= ord("0")
            try:
                data = base64.b64decode(data, validate=True)
            except binascii.Error as error:
                raise Malformed(f"a message that is not base64: {error}") from None
        if self._closes and number == _CLOSED and data:
            if data[0] < len(self.channels):
                self.channels[data[0]].close()
        elif 0 <= number < len(self.channels) and data:
            await self.channels[number].take(data)

    async def finish(self, wrong: str = "") -> None:
        """Raises: ConnectionError."""
        await self._socket.finish(wrong)

    def drop(self) -> None:
        """As of SpdyChannels."""
        self._socket.drop()
        for each in self.channels:
            each.close(dropping=True)
        self.channels.clear()

    def _channel(self, number: int) -> Channel:
        async def send(data: bytes) -> None:
            if self._coded:
                await self._socket.write(bytes((ord("0") + number,)) + base64.b64encode(data))
            else:
                await self._socket.write(bytes((number,)) + data)

        async def end(reset: bool) -> None:
            pass

        return Channel(self._unread, send, end)
