"""`sh` in a simulated container: lists of pipelines of simple commands, with quotes, variables and redirections.

Unsupported syntax (loops, conditions, functions, substitutions, jobs) is named and rejected with exit code 2 before the
line runs.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Final

from minikube_py.containers.account import VARIABLES_BYTES_MAX
from minikube_py.containers.files import FileError
from minikube_py.containers.process import OUT_BYTES_AT_ONCE, OUTPUT_BYTES_MAX, Exit, Process, Read, Write

NOT_FOUND: Final = 127
SHELLS: Final = ("sh", "ash", "bash", "/bin/sh", "/bin/ash", "/bin/bash")
BUILT_IN: Final = ("cd", "exit", "export")
LINE_STEPS: Final = 10
LINE_BYTES_MAX: Final = 32 << 10
"""Maximum script or typed line."""
WORD_BYTES_MAX: Final = 128 << 10
"""Maximum expanded word, and all words of a command, like Linux's argument limit."""
WORDS_MAX: Final = 8192
"""Words of a command."""
_SPECIAL: Final = ("exit", "export")
"""An error of a redirection ends a shell before these (POSIX, 2.8.1)."""
_TOKEN: Final = re.compile(r"[ \t]*(?:(#[^\n]*)|(\n|;|&&|\|\||\||[12]?>&[12](?![^\s;&|<>])|[12]?>>|[12]?>|<|&)|((?:[^\s;&|<>'\"\\]|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\")+)|(\Z)|(.))", re.DOTALL)  # fmt: skip  # noqa: E501
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


def parsing(text: str) -> Generator[int, None, list[_Pipeline]]:
    """Yields the steps that it is about to take. Raises: Unsupported."""
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
        yield 2 + (match.end() - at) // 32
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
        elif sign is not None and ">&" in sign:
            command.redirects.append((sign.removeprefix("1"), ""))
        elif sign is not None and (sign == "<" or ">" in sign):
            operator = sign.removeprefix("1")
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
        steps = parsing(text)
        try:
            while True:
                await self._process.spend(next(steps))
        except StopIteration as parsed:
            pipelines: list[_Pipeline] = parsed.value
        except Unsupported as error:
            await self._process.err(f"sh: syntax error: {error} is not simulated\n".encode())
            self._last = 2
            return 2
        for pipeline in pipelines:
            if pipeline.when == ("&&" if self._last else "||"):
                continue
            # A script may be long, and most programs never wait.
            await self._process.spend(LINE_STEPS)
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
        await self._process.spend(LINE_STEPS)
        while len(self._ahead) < 2:
            part = await self._process.read()
            if not part:
                return self._ahead.pop() if self._ahead else b""
            last = self._ahead.pop() if self._ahead else b""
            if len(last) > LINE_BYTES_MAX:
                await self._process.err(f"sh: a line of more than {LINE_BYTES_MAX} bytes\n".encode())
                raise Exit(2)
            await self._process.spend(1 + (len(last) + len(part)) // 64)
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
        await own.spend(1 + len(own.variables) // 64)
        own.variables = dict(own.variables)
        held_bytes = own.account.variables_bytes
        shell = Shell(own, self._start)
        shell._last = self._last
        try:
            return await shell._command(command, read, out)
        except Exit as ended:
            return ended.code
        finally:
            own.account.variables_bytes = held_bytes

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
            words = await self._words(command.words)
            read, out, err = await self._redirected(command, read, out)
        except FileError as error:
            await process.err(f"sh: {error}\n".encode())
            if words and words[0] in _SPECIAL:
                raise Exit(2) from None
            return 2
        assigned = []
        for word in words:
            await process.spend(1 + len(word) // 128)
            if (match := _ASSIGNED.fullmatch(word)) is None:
                break
            assigned.append((match[1], match[2]))
        if words := words[len(assigned) :]:
            try:
                return await self._one(process.of(words, read, out, err))
            except FileError as error:
                return await process.of(words, read, out, err).complain(str(error))
        return await self._assign(assigned)

    async def _assign(self, assigned: list[tuple[str, str]]) -> int:
        process = self._process
        for name, value in assigned:
            await process.spend(1)
            if not process.account.assign(process.variables, name, value):
                limit = f"variables of more than {VARIABLES_BYTES_MAX} bytes, which is the limit"
                await process.err(f"sh: {limit}\n".encode())
                return 2
        return 0

    async def _one(self, child: Process) -> int:
        """Raises: Exit, FileError."""
        process, words = self._process, child.argv
        match words[0]:
            case "cd":
                wanted = words[1] if len(words) > 1 else "/root"
                path = await process.path(wanted)
                if not process.files.is_directory(path):
                    await self._say(child, f"cd: can't cd to {wanted}")
                    return 2
                process.cwd = path
                return 0
            case "exit":
                given = words[1] if len(words) > 1 else str(self._last)
                raise Exit(int(given) % 256 if given.isascii() and given.isdigit() and len(given) < 10 else 2)
            case "export":
                parts = [word.partition("=") for word in words[1:]]
                return await self._assign([(name, value) for name, _, value in parts])
        code = await self._start(child)
        if code == NOT_FOUND:
            await self._say(child, f"{words[0]}: not found")
        return code

    async def _say(self, child: Process, text: str) -> None:
        await child.err(f"sh: {text}\n".encode("utf-8", "surrogateescape"))

    async def _redirected(self, command: _Command, read: Read, out: Write) -> tuple[Read, Write, Write]:
        """Raises: FileError."""
        process = self._process
        err: Write = process.err
        for operator, word in command.redirects:
            if ">&" in operator:
                out, err = (err, err) if operator == ">&2" else (out, out) if operator == "2>&1" else (out, err)
                continue
            path = await process.path("".join(await self._expanded(word)))
            if operator == "<":
                read = _giving(await process.contents(path))
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
        if emptied and files.exists(path):
            files.write(path, b"", times.wall_s())
        files.append(path, b"", times.wall_s())

        async def write(data: bytes) -> None:
            await self._process.spend(1 + len(path) // 4)
            files.append(path, data, times.wall_s())

        return write

    async def _words(self, words: list[str]) -> list[str]:
        """All words of a command, expanded. Raises: FileError, Spent."""
        found: list[str] = []
        size = 0
        for word in words:
            more = await self._expanded(word)
            size += sum(map(len, more)) + len(more)
            check_words(len(found) + len(more), size)
            found += more
        return found

    async def _expanded(self, word: str) -> list[str]:
        """Expands a word; an unquoted variable is split into words.

        Raises: FileError, Spent."""
        parts: list[str] = []
        split = False
        left = WORD_BYTES_MAX
        for single, double, escaped, plain in (match.groups() for match in _PIECE.finditer(word)):
            await self._process.spend(1)
            text = plain if plain is not None else double
            value = (single or escaped or "") if text is None else await self._with_variables(text, left)
            left -= len(value)
            if left < 0:
                raise FileError(f"a word of more than {WORD_BYTES_MAX} bytes")
            split = split or (plain is not None and value != plain)
            parts.append(value)
        text = "".join(parts)
        await self._process.spend(1 + len(text) // 128)
        return text.split() if split and word.startswith("$") else [text]

    async def _with_variables(self, text: str, left: int) -> str:
        """Of at most `left` bytes. Raises: FileError, Spent."""
        parts, at = [], 0
        for match in _VARIABLE.finditer(text):
            await self._process.spend(1)
            escaped, braced, name, special = match.groups()
            if special:
                value = {"?": str(self._last), "$": "1", "#": "0"}[special]
            else:
                value = escaped or self._process.variables.get(braced or name, "")
            left -= len(value)
            if left < 0:
                raise FileError(f"a word of more than {WORD_BYTES_MAX} bytes")
            parts += [text[at : match.start()], value]
            at = match.end()
        return "".join((*parts, text[at:]))


def check_words(count: int, size: int) -> None:
    """Whether a command may have so many words and bytes. Raises: FileError."""
    if count > WORDS_MAX or size > WORD_BYTES_MAX:
        limit = f"{WORDS_MAX} words" if count > WORDS_MAX else f"{WORD_BYTES_MAX} bytes"
        raise FileError(f"argument list too long: more than {limit}")


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
    parts = iter(range(0, len(data), OUT_BYTES_AT_ONCE))

    async def read() -> bytes:
        at = next(parts, len(data))
        return data[at : at + OUT_BYTES_AT_ONCE]

    return read
