"""A simulated program's environment: arguments, streams, container files and clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Final, Protocol

from minikube_py.containers.account import Account
from minikube_py.containers.files import FileError, Files

Read = Callable[[], Awaitable[bytes]]
Write = Callable[[bytes], Awaitable[None]]
OUTPUT_BYTES_MAX: Final = 256 << 10
"""Buffer limit of a pipeline stage's output, and of input that a program reads whole."""
ARCHIVE_BYTES_MAX: Final = 16 << 20
OUT_BYTES_AT_ONCE: Final = 16 << 10
"""Output passed on in one step."""
SHELLS_MAX: Final = 16
"""Shells that start one another."""


class Times(Protocol):
    def wall_s(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


async def nothing() -> bytes:
    return b""


class Exit(Exception):
    """`exit`: the shell ends with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Process:
    """`argv[0]` is the program's name. `variables` are its environment; a shell's `cd` changes its own `cwd`. `shells`:
    how many have started one another up to here. All processes of a session share its `account`."""

    def __init__(
        self, argv: list[str], files: Files, times: Times, variables: dict[str, str], host: str,
        read: Read, out: Write, err: Write, cwd: str = "/", tty: bool = False, account: Account | None = None,
        shells: int = 0,
    ) -> None:  # fmt: skip
        self.argv = argv
        self.files = files
        self.times = times
        self.variables = variables
        self.host = host
        self.cwd = cwd
        self.tty = tty
        self.account = account if account is not None else Account()
        self.spend = self.account.spend
        self.shells = shells
        self._read, self._out, self._err = read, out, err

    def of(self, argv: list[str], read: Read, out: Write, err: Write) -> Process:
        """A program that this one starts."""
        return Process(argv, self.files, self.times, self.variables, self.host, read, out, err, self.cwd, self.tty,
                       self.account, self.shells)  # fmt: skip

    @cached_property
    def words(self) -> list[str]:
        """The arguments that are no flags; `--` ends these."""
        given, _, rest = self._parts
        return [each for each in given if not each.startswith("-") or each == "-"] + rest

    @cached_property
    def _parts(self) -> tuple[list[str], list[str], list[str]]:
        at = self.argv.index("--", 1) if "--" in self.argv[1:] else len(self.argv)
        given = self.argv[1:at]
        return given, [each for each in given if each.startswith("-") and each != "-"], self.argv[at + 1 :]

    def wrong(self, options: str, least: int, most: int) -> str:
        """Which of its arguments a program with these one-letter `options` and that many operands does not know, in
        the words of BusyBox and coreutils; or ""."""
        for each in self._parts[1]:
            unknown = each[2:] if each.startswith("--") else each[1:].lstrip(options)[:1]
            if unknown:
                return f"unrecognized option: {unknown}"
        if len(self.words) < least:
            return "missing operand"
        return f"extra operand '{self.words[most]}'" if len(self.words) > most else ""

    @cached_property
    def flags(self) -> str:
        """The letters of all short flags."""
        return "".join(each[1:] for each in self._parts[1])

    async def path(self, word: str) -> str:
        """Raises: FileError, Spent."""
        found = self.files.resolved(word, self.cwd)
        # For all the names in it, wherever it is looked up.
        await self.spend(2 + len(found) // 4)
        return found

    async def contents(self, path: str) -> bytes:
        """Raises: FileError, Spent."""
        await self.spend(1 + (len(self.files.entry(path).data) >> 14))
        return self.files.read(path)

    async def read(self) -> bytes:
        """Raises: Spent."""
        data = await self._read()
        await self.spend(1 + (len(data) >> 10))
        return data

    async def out(self, data: bytes) -> None:
        """Raises: Spent."""
        await self._pass_on(self._out, data)

    async def err(self, data: bytes) -> None:
        """Raises: Spent."""
        await self._pass_on(self._err, data)

    async def _pass_on(self, write: Write, data: bytes) -> None:
        for at in range(0, len(data) or 1, OUT_BYTES_AT_ONCE):
            part = data[at : at + OUT_BYTES_AT_ONCE]
            await self.spend(8 + (len(part) >> 10))
            await write(part)

    async def print(self, text: str) -> None:
        await self.out((text + "\n").encode("utf-8", "surrogateescape"))

    async def complain(self, text: str) -> int:
        """Prints `PROGRAM: message` to stderr; returns the exit code."""
        await self.err(f"{self.argv[0]}: {text}\n".encode("utf-8", "surrogateescape"))
        return 1

    async def all_input(self, bytes_max: int = OUTPUT_BYTES_MAX) -> bytearray:
        """Raises: FileError, Spent."""
        found = bytearray()
        while part := await self.read():
            if len(found) + len(part) > bytes_max:
                raise FileError(f"more than {bytes_max} bytes of input, which is the limit")
            found += part
        return found

    async def inputs(self, words: list[str]) -> bytes:
        """The named files, or the input. Raises: FileError, Spent."""
        if not words:
            return bytes(await self.all_input())
        found = bytearray()
        for word in words:
            try:
                found += await self.all_input() if word == "-" else await self.contents(await self.path(word))
            except FileError as error:
                raise FileError(f"{word}: {error}") from None
            if len(found) > OUTPUT_BYTES_MAX:
                raise FileError(f"{word}: more than {OUTPUT_BYTES_MAX} bytes, which is the limit")
        return bytes(found)
