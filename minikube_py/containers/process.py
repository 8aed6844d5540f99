"""A simulated program's environment: arguments, streams, container files and clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from minikube_py.containers.files import FileError, Files

Read = Callable[[], Awaitable[bytes]]
Write = Callable[[bytes], Awaitable[None]]
OUTPUT_BYTES_MAX: Final = 256 << 10
"""Buffer limit of a pipeline stage's output, and of input that a program reads whole."""
ARCHIVE_BYTES_MAX: Final = 16 << 20


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
    """`argv[0]` is the program's name. `variables` are its environment; a shell's `cd` changes its own `cwd`."""

    def __init__(
        self, argv: list[str], files: Files, times: Times, variables: dict[str, str], host: str,
        read: Read, out: Write, err: Write, cwd: str = "/", tty: bool = False,
    ) -> None:  # fmt: skip
        self.argv = argv
        self.files = files
        self.times = times
        self.variables = variables
        self.host = host
        self.read = read
        self.out = out
        self.err = err
        self.cwd = cwd
        self.tty = tty

    def of(self, argv: list[str], read: Read, out: Write, err: Write) -> Process:
        """A program that this one starts."""
        return Process(argv, self.files, self.times, self.variables, self.host, read, out, err, self.cwd, self.tty)

    @property
    def words(self) -> list[str]:
        """The arguments that are no flags."""
        return [each for each in self.argv[1:] if not each.startswith("-") or each == "-"]

    @property
    def flags(self) -> str:
        """The letters of all short flags."""
        return "".join(each[1:] for each in self.argv[1:] if each.startswith("-") and not each.startswith("--"))

    def path(self, word: str) -> str:
        """Raises: FileError."""
        return self.files.resolved(word, self.cwd)

    async def print(self, text: str) -> None:
        await self.out((text + "\n").encode("utf-8", "surrogateescape"))

    async def complain(self, text: str) -> int:
        """Prints `PROGRAM: message` to stderr; returns the exit code."""
        await self.err(f"{self.argv[0]}: {text}\n".encode("utf-8", "surrogateescape"))
        return 1

    async def all_input(self, bytes_max: int = OUTPUT_BYTES_MAX) -> bytes:
        """Raises: FileError."""
        parts, size = [], 0
        while part := await self.read():
            size += len(part)
            if size > bytes_max:
                raise FileError(f"more than {bytes_max} bytes of input, which is the limit")
            parts.append(part)
        return b"".join(parts)

    async def inputs(self) -> bytes:
        """The named files, or the input. Raises: FileError."""
        if not self.words:
            return await self.all_input()
        found = []
        for word in self.words:
            try:
                found.append(await self.all_input() if word == "-" else self.files.read(self.path(word)))
            except FileError as error:
                raise FileError(f"{word}: {error}") from None
            if sum(map(len, found)) > OUTPUT_BYTES_MAX:
                raise FileError(f"{word}: more than {OUTPUT_BYTES_MAX} bytes, which is the limit")
        return b"".join(found)
