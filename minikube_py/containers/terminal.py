"""A terminal driver between client and program: echo, line editing, line endings."""

from __future__ import annotations

import re
from typing import Final

from minikube_py.containers.account import Account
from minikube_py.containers.process import Read, Write

_LINE_BYTES_MAX: Final = 4096
_INTERRUPT, _END, _ERASE_LINE = 0x03, 0x04, 0x15
_ERASE: Final = (0x08, 0x7F)
_TOKEN: Final = re.compile(rb"[\x20-\x7e\x80-\xff]+|\x00+|.", re.DOTALL)


class Terminal:
    """`read` returns whole lines, empty at Ctrl-D; Ctrl-C discards the current line."""

    def __init__(self, read: Read, write: Write, account: Account) -> None:
        self._read = read
        self._write = write
        self._account = account
        self._pending = b""
        self._at = 0
        self._ended = False

    async def write(self, data: bytes) -> None:
        await self._write(data.replace(b"\n", b"\r\n"))

    async def read(self) -> bytes:
        line = bytearray()
        while not self._ended:
            if self._at >= len(self._pending):
                self._pending, self._at = await self._read(), 0
                if not self._pending:
                    self._ended = True
                    break
            token = _TOKEN.match(self._pending, self._at)
            assert token is not None
            # Most tokens are echoed.
            await self._account.spend(8 + len(token[0]) // 1024)
            byte, self._at = token[0][0], token.end()
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
            elif byte >= 0x20 and (part := token[0][: _LINE_BYTES_MAX - len(line)]):
                line += part
                await self._write(part)
        return bytes(line)
