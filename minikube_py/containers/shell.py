"""`sh` in a simulated container: lists of pipelines of simple commands, with quotes, variables and redirections.

Unsupported syntax (loops, conditions, functions, substitutions, jobs) is named and rejected with exit code 2 before the
line runs.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from minikube_py.containers.files import FileError
from minikube_py.containers.process import OUTPUT_BYTES_MAX, Exit, Process, Read, Write

NOT_FOUND: Final = 127
SHELLS: Final = ("sh", "ash", "bash", "/bin/sh", "/bin/ash", "/bin/bash")
BUILT_IN: Final = ("cd", "exit", "export")
LINE_BYTES_MAX: Final = 32 << 10
"""Maximum script or typed line, parsed in one step."""
WORD_BYTES_MAX: Final = 128 << 10
"""Maximum expanded word, like Linux's argument limit."""
_SPECIAL: Final = ("exit", "export")
"""An error of a redirection ends a shell before these (POSIX, 2.8.1)."""
_TOKEN: Final = re.compile(r"[ \t]*(?:(#[^\n]*)|(\n|;|&&|\|\||\||2>&1|2>>|2>|>>|>|<|&)|((?:[^\s;&|<>'\"\\]|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\")+)|(\Z)|(.))", re.DOTALL)  # fmt: skip  # noqa: E501
_PIECE: Final = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)|([^'\"\\]+)", re.DOTALL)
_QUOTED: Final = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", re.DOTALL)
_VARIABLE: Final = re.compile(r"\\([$\"\\`])|\$(?:\{(\w+)\}|(\w+)|([?$#]))")
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_UNKNOWN_WORDS: Final = frozenset(
    ("if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac", "function", "{", "}",
     "!")
)  # fmt: skip
Start = Callable[[Process], Awaitable[int]]


class Unsupported(ValueError):
    pass


@dataclass
class _Command:
    words: list[str] = field(default_factory=list)
    redirects: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class _Pipeline:
    """`when`: the connector before it."""

    when: str
    commands: list[_Command]


def parse(text: str) -> list[_Pipeline]:
    """Raises: Unsupported."""
    if len(text) > LINE_BYTES_MAX:
        raise Unsupported(f"a line of more than {LINE_BYTES_MAX} bytes")
    found: list[_Pipeline] = []
    when, commands, command, operator = ";", list[_Command](), _Command(), ""

    def close() -> None:
        nonlocal commands, command
        if operator:
            raise Unsupported("a redirection without a file")
        if command.words or command.redirects:
            commands.append(command)
        elif commands:
            raise Unsupported("a pipeline without a command")
        if commands:
            found.append(_Pipeline(when, commands))
        commands, command = [], _Command()

    at = 0
    while True:
        match = _TOKEN.match(text, at)
        assert match is not None
        at = match.end()
        _, sign, word, end, wrong = match.groups()
        if wrong is not None:
            raise Unsupported("a quote that is not closed")
        if end is not None:
            break
        if word is not None:
            bare = _QUOTED.sub("", word)
            if "$(" in word or "`" in word:
                raise Unsupported("command substitution")
            if "(" in bare or ")" in bare:
                raise Unsupported("a group of commands or a function")
            if operator:
                command.redirects.append((operator, word))
                operator = ""
            else:
                if not command.words and word in _UNKNOWN_WORDS:
                    raise Unsupported(f"`{word}`")
                command.words.append(word)
        elif operator:
            raise Unsupported(f"`{operator}{sign}`".replace("\n", " "))
        elif sign == "&":
            raise Unsupported("`&`")
        elif sign == "2>&1":
            command.redirects.append((sign, ""))
        elif sign in (">", ">>", "<", "2>", "2>>"):
            operator = sign
        elif sign == "|":
            if not command.words:
                raise Unsupported("a pipeline without a command")
            commands.append(command)
            command = _Command()
        elif sign is not None:
            close()
            when = ";" if sign == "\n" else sign
    close()
    return found


class Shell:
    """One shell: its last exit code, and the variables and directory of `process`."""

    def __init__(self, process: Process, start: Start) -> None:
        self._process = process
        self._start = start
        self._last = 0
        self._ahead: deque[bytes] = deque()
        """Lines read but not run; the last one lacks its newline."""

    async def run(self, text: str) -> int:
        """The last exit code. Raises: Exit."""
        try:
            pipelines = parse(text)
        except Unsupported as error:
            await self._process.err(f"sh: syntax error: {error} is not simulated\n".encode())
            self._last = 2
            return 2
        for pipeline in pipelines:
            if pipeline.when == ("&&" if self._last else "||"):
                continue
            # Yield: a script may be long, and most programs never wait.
            await asyncio.sleep(0)
            self._last = await self._pipeline(pipeline.commands)
        return self._last

    async def interact(self) -> int:
        """Line by line, until the input ends."""
        process = self._process
        while True:
            if process.tty:
                await process.out(f"{process.cwd} # ".encode())
            try:
                line = await self._line()
                if not line:
                    return self._last
                await self.run(line.decode("utf-8", "surrogateescape").rstrip("\r\n"))
            except Exit as ended:
                return ended.code

    async def _line(self) -> bytes:
        """Including its newline; empty at the end. Raises: Exit."""
        await asyncio.sleep(0)
        while len(self._ahead) < 2:
            part = await self._process.read()
            if not part:
                return self._ahead.pop() if self._ahead else b""
            last = self._ahead.pop() if self._ahead else b""
            if len(last) > LINE_BYTES_MAX:
                await self._process.err(f"sh: a line of more than {LINE_BYTES_MAX} bytes\n".encode())
                raise Exit(2)
            self._ahead.extend((last + part).split(b"\n"))
        return self._ahead.popleft() + b"\n"

    async def _pipeline(self, commands: list[_Command]) -> int:
        process = self._process
        if len(commands) == 1:
            return await self._command(commands[0], self._input, process.out)
        read: Read = self._input
        for command in commands[:-1]:
            kept: list[bytes] = []
            await self._apart(command, read, _keeping(kept))
            read = _giving(b"".join(kept))
        return await self._apart(commands[-1], read, process.out)

    async def _apart(self, command: _Command, read: Read, out: Write) -> int:
        """As part of a pipeline: in a subshell with separate directory and variables."""
        own = self._process.of(["sh"], read, out, self._process.err)
        own.variables = dict(own.variables)
        shell = Shell(own, self._start)
        shell._last = self._last
        try:
            return await shell._command(command, read, out)
        except Exit as ended:
            return ended.code

    async def _input(self) -> bytes:
        """A program's input starts with the shell's read-ahead."""
        if any(self._ahead):
            rest = b"\n".join(self._ahead)
            self._ahead.clear()
            return rest
        return await self._process.read()

    async def _command(self, command: _Command, read: Read, out: Write) -> int:
        process = self._process
        words: list[str] = []
        try:
            words = [each for word in command.words for each in self._expanded(word)]
            read, out, err = self._redirected(command, read, out)
        except FileError as error:
            await process.err(f"sh: {error}\n".encode())
            if words and words[0] in _SPECIAL:
                raise Exit(2) from None
            return 2
        while words and (assigned := _ASSIGNED.fullmatch(words[0])) is not None:
            if len(words) == 1 or all(map(_ASSIGNED.fullmatch, words)):
                process.variables[assigned[1]] = assigned[2]
            words = words[1:]
        try:
            return await self._one(process.of(words, read, out, err)) if words else 0
        except FileError as error:
            await err(f"{words[0]}: {error}\n".encode())
            return 1

    async def _one(self, child: Process) -> int:
        """Raises: Exit, FileError."""
        process, words = self._process, child.argv
        match words[0]:
            case "cd":
                path = process.path(words[1] if len(words) > 1 else "/root")
                if not process.files.is_directory(path):
                    await child.err(f"sh: cd: can't cd to {words[1]}\n".encode())
                    return 2
                process.cwd = path
                return 0
            case "exit":
                given = words[1] if len(words) > 1 else str(self._last)
                raise Exit(int(given) % 256 if given.isascii() and given.isdigit() and len(given) < 10 else 2)
            case "export":
                for word in words[1:]:
                    name, _, value = word.partition("=")
                    process.variables[name] = value
                return 0
        code = await self._start(child)
        if code == NOT_FOUND:
            await child.err(f"sh: {words[0]}: not found\n".encode())
        return code

    def _redirected(self, command: _Command, read: Read, out: Write) -> tuple[Read, Write, Write]:
        """Raises: FileError."""
        process = self._process
        err: Write = process.err
        for operator, word in command.redirects:
            if operator == "2>&1":
                err = out
                continue
            path = process.path("".join(self._expanded(word)))
            if operator == "<":
                read = _giving(process.files.read(path))
                continue
            sink = _dropping if path == "/dev/null" else self._into(path, emptied=not operator.endswith(">>"))
            if operator.startswith("2"):
                err = sink
            else:
                out = sink
        return read, out, err

    def _into(self, path: str, *, emptied: bool) -> Write:
        """Raises: FileError."""
        files, times = self._process.files, self._process.times

        def add(data: bytes) -> None:
            files.write(path, (files.read(path) if files.exists(path) else b"") + data, times.wall_s())

        if emptied and files.exists(path):
            files.write(path, b"", times.wall_s())
        add(b"")

        async def write(data: bytes) -> None:
            add(data)

        return write

    def _expanded(self, word: str) -> list[str]:
        """Expands a word; an unquoted variable is split into words.

        Raises: FileError."""
        parts, split = [], False
        for single, double, escaped, plain in (match.groups() for match in _PIECE.finditer(word)):
            if plain is not None:
                value = self._with_variables(plain)
                split = split or value != plain
                parts.append(value)
            elif double is not None:
                parts.append(self._with_variables(double))
            else:
                parts.append(single if single is not None else escaped or "")
        text = "".join(parts)
        return text.split() if split and word.startswith("$") else [text]

    def _with_variables(self, text: str) -> str:
        """Raises: FileError."""
        size = len(text)

        def value(match: re.Match[str]) -> str:
            nonlocal size
            escaped, braced, name, special = match.groups()
            if escaped:
                return escaped
            if special:
                return {"?": str(self._last), "$": "1", "#": "0"}[special]
            found = self._process.variables.get(braced or name, "")
            size += len(found)
            if size > WORD_BYTES_MAX:
                raise FileError(f"a word of more than {WORD_BYTES_MAX} bytes")
            return found

        return _VARIABLE.sub(value, text)


def _keeping(kept: list[bytes]) -> Write:
    size = 0

    async def write(data: bytes) -> None:
        nonlocal size
        size += len(data)
        if size > OUTPUT_BYTES_MAX:
            raise FileError(f"more than {OUTPUT_BYTES_MAX} bytes of output, which is the limit")
        kept.append(data)

    return write


async def _dropping(data: bytes) -> None:
    pass


def _giving(data: bytes) -> Read:
    parts = [data] if data else []

    async def read() -> bytes:
        return parts.pop() if parts else b""

    return read


