"""A terminal driver between client and program: echo, line editing, line endings."""

from __future__ import annotations

from typing import Final

from minikube_py.containers.process import Read, Write

_LINE_BYTES_MAX: Final = 4096
_INTERRUPT, _END, _ERASE_LINE = 0x03, 0x04, 0x15
_ERASE: Final = (0x08, 0x7F)


class Terminal:
    """`read` returns whole lines, empty at Ctrl-D; Ctrl-C discards the current line."""

    def __init__(self, read: Read, write: Write) -> None:
        self._read = read
        self._write = write
        self._pending = b""
        self._ended = False

    async def write(self, data: bytes) -> None:
        await self._write(data.replace(b"\n", b"\r\n"))

    async def read(self) -> bytes:
        line = bytearray()
        while not self._ended:
            if not self._pending:
                self._pending = await self._read()
                if not self._pending:
                    self._ended = True
                    break
            byte, self._pending = self._pending[0], self._pending[1:]
            if byte in b"\r\n":
                await self._write(b"\r\n")
                return bytes(line) + b"\n"
            if byte == _END:
                if not line:
                    self._ended = True
            elif byte == _INTERRUPT:
                await self._write(b"^C\r\n")
                return b"\n"
            elif byte in _ERASE:
                if line:
                    line.pop()
                    await self._write(b"\b \b")
            elif byte == _ERASE_LINE:
                await self._write(b"\b \b" * len(line))
                line.clear()
            elif len(line) < _LINE_BYTES_MAX and byte >= 0x20:
                line.append(byte)
                await self._write(bytes((byte,)))
        return bytes(line)
