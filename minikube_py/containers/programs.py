"""The programs that simulated containers have. Nothing runs on the host: each is a function here.

`PROGRAMS` is the whole list; other names are not found, as in an image without them.
"""

from __future__ import annotations

import asyncio
import io
import posixpath
import tarfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from minikube_py.containers.files import FileError
from minikube_py.containers.process import ARCHIVE_BYTES_MAX, Process

_ENTRIES_AT_ONCE: Final = 64
"""Of an archive, between two turns of the loop."""

Program = Callable[[Process], Awaitable[int]]
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\", "\\a": "\a", "\\e": "\x1b"}
_DATE: Final = "%a %b %e %H:%M:%S UTC %Y"


def _complaining(program: Program) -> Program:
    async def run(process: Process) -> int:
        try:
            return await program(process)
        except FileError as error:
            return await process.complain(str(error))

    return run


async def _true(process: Process) -> int:
    return 0


async def _false(process: Process) -> int:
    return 1


async def _echo(process: Process) -> int:
    words = process.argv[1:]
    newline = escapes = False
    while words and words[0] in ("-n", "-e", "-ne", "-en"):
        newline, escapes = newline or "n" in words[0], escapes or "e" in words[0]
        words = words[1:]
    text = " ".join(words)
    if escapes:
        text = _unescaped(text)
    await process.out((text + ("" if newline else "\n")).encode("utf-8", "surrogateescape"))
    return 0


def _unescaped(text: str) -> str:
    parts, at = [], 0
    while at < len(text):
        found = _ESCAPES.get(text[at : at + 2])
        parts.append(found if found is not None else text[at])
        at += 2 if found is not None else 1
    return "".join(parts)


async def _cat(process: Process) -> int:
    words, code = process.words or ["-"], 0
    for word in words:
        if word == "-":
            while part := await process.read():
                await process.out(part)
            continue
        try:
            await process.out(process.files.read(process.path(word)))
        except FileError as error:
            code = await process.complain(f"{word}: {error}")
    return code


async def _env(process: Process) -> int:
    names = process.words if process.argv[0] == "printenv" else []
    if names:
        values = [process.variables[name] for name in names if name in process.variables]
        for value in values:
            await process.print(value)
        return 0 if len(values) == len(names) else 1
    for name, value in process.variables.items():
        await process.print(f"{name}={value}")
    return 0


async def _hostname(process: Process) -> int:
    await process.print(process.host)
    return 0


async def _pwd(process: Process) -> int:
    await process.print(process.cwd)
    return 0


async def _whoami(process: Process) -> int:
    await process.print("root" if process.argv[0] == "whoami" else "uid=0(root) gid=0(root) groups=0(root)")
    return 0


async def _uname(process: Process) -> int:
    await process.print(f"Linux {process.host} 6.1.0 minikube_py simulated x86_64" if "a" in process.flags else "Linux")
    return 0


async def _date(process: Process) -> int:
    moment = datetime.fromtimestamp(process.times.wall_s(), UTC)
    form = next((word[1:] for word in process.words if word.startswith("+")), _DATE)
    await process.print(str(int(process.times.wall_s())) if form == "%s" else moment.strftime(form))
    return 0


async def _sleep(process: Process) -> int:
    total_s = 0.0
    for word in process.words:
        if word in ("infinity", "inf"):
            total_s = 1e9
            continue
        unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(word[-1:], 0)
        try:
            seconds = float(word[:-1] if unit else word) * (unit or 1)
        except ValueError:
            return await process.complain(f"invalid number '{word}'")
        if not seconds >= 0:
            return await process.complain(f"invalid number '{word}'")
        total_s = min(total_s + seconds, 1e9)
    await process.times.sleep(total_s)
    return 0


async def _ls(process: Process) -> int:
    files, words, code = process.files, process.words or ["."], 0
    for word in words:
        path = process.path(word)
        try:
            names = files.children(path) if files.is_directory(path) else [word] if files.entry(path) else []
        except FileError as error:
            code = await process.complain(f"{word}: {error}")
            continue
        if len(words) > 1 and files.is_directory(path):
            await process.print(f"{word}:")
        for name in names:
            if name.startswith(".") and not set("aA") & set(process.flags):
                continue
            entry = files.entry(posixpath.join(path, name) if files.is_directory(path) else path)
            if "l" in process.flags:
                kind = "-" if entry.children is None else "d"
                rights = "".join("rwx"[2 - bit % 3] if entry.mode >> bit & 1 else "-" for bit in range(8, -1, -1))
                day = datetime.fromtimestamp(entry.changed_s, UTC).strftime("%b %e %H:%M")
                await process.print(f"{kind}{rights}    1 root     root     {len(entry.data):9} {day} {name}")
            else:
                await process.print(name)
    return code


async def _mkdir(process: Process) -> int:
    for word in process.words:
        try:
            process.files.make_directory(process.path(word), process.times.wall_s(), parents="p" in process.flags)
        except FileError as error:
            return await process.complain(f"can't create directory '{word}': {error}")
    return 0


async def _touch(process: Process) -> int:
    for word in process.words:
        path = process.path(word)
        data = process.files.read(path) if process.files.exists(path) else b""
        process.files.write(path, data, process.times.wall_s())
    return 0


async def _rm(process: Process) -> int:
    code = 0
    for word in process.words:
        path = process.path(word)
        try:
            if process.files.entry(path).children is not None and not set("rR") & set(process.flags):
                raise FileError("is a directory")
            process.files.remove(path)
        except FileError as error:
            if "f" not in process.flags:
                code = await process.complain(f"can't remove '{word}': {error}")
    return code


async def _head(process: Process) -> int:
    words, wanted = list(process.argv[1:]), 10
    for at, word in enumerate(words):
        if word == "-n" and at + 1 < len(words):
            wanted, words[at : at + 2] = _whole(words[at + 1]), []
            break
        if word.startswith("-") and word.lstrip("-n").isdigit():
            wanted, words[at : at + 1] = _whole(word.lstrip("-n")), []
            break
    process.argv = [process.argv[0], *words]
    lines = (await process.inputs()).splitlines(keepends=True)
    await process.out(b"".join(lines[:wanted] if process.argv[0] == "head" else lines[max(len(lines) - wanted, 0) :]))
    return 0


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FileError(f"invalid number '{text}'")
    return int(text)


async def _wc(process: Process) -> int:
    data = await process.inputs()
    counts = {"l": data.count(b"\n"), "w": len(data.split()), "c": len(data)}
    wanted = [letter for letter in "lwc" if letter in process.flags] or list("lwc")
    await process.print(" ".join(str(counts[letter]) for letter in wanted))
    return 0


async def _grep(process: Process) -> int:
    """Plain text, no pattern."""
    if not process.words:
        return await process.complain("no text to look for") + 1
    wanted = process.words[0]
    process.argv = [process.argv[0], *process.words[1:]]
    try:
        data = await process.inputs()
    except FileError as error:
        return await process.complain(str(error)) + 1
    lines = [line for line in data.splitlines() if wanted.encode() in line]
    for line in lines:
        await process.out(line + b"\n")
    return 0 if lines else 1


async def _test(process: Process) -> int:
    words = process.argv[1:]
    if process.argv[0] == "[":
        if words[-1:] != ["]"]:
            return await process.complain("missing ]") + 1
        words = words[:-1]
    if words[:1] == ["!"]:
        process.argv = ["test", *words[1:]]
        return int(not await _test(process))
    match words:
        case ["-d" | "-f" | "-e" | "-s" as flag, word]:
            path = process.path(word)
            directory, there = process.files.is_directory(path), process.files.exists(path)
            found = {"-d": directory, "-f": there and not directory, "-e": there}
            return int(not (found[flag] if flag in found else there and (directory or bool(process.files.read(path)))))
        case ["-n", word] | [word]:
            return int(not word)
        case ["-z", word]:
            return int(bool(word))
        case [one, "=" | "==", two]:
            return int(one != two)
        case [one, "!=", two]:
            return int(one == two)
        case []:
            return 1
        case _:
            return await process.complain("this test is not simulated") + 1


async def _tar(process: Process) -> int:
    """What `kubectl cp` needs: `cf - PATH...` and `x[m]f - [-C DIRECTORY]`."""
    words = process.argv[1:]
    directory = "."
    if "-C" in words[:-1]:
        at = words.index("-C")
        directory, words[at : at + 2] = words[at + 1], []
    letters = "".join(word.lstrip("-") for word in words[:1])
    names = [word for word in words[1:] if not word.startswith("--")]
    if names[:1] != ["-"] or not set(letters) <= set("cxtfmopzv") - set("zt") or len(set(letters) & set("cx")) != 1:
        return await process.complain("only `cf - PATH...` and `xf - -C DIRECTORY` are simulated")
    base = process.path(directory)
    if "c" in letters:
        await process.out(await _packed(process, base, names[1:]))
        return 0
    await _unpack(process, base, await process.all_input(ARCHIVE_BYTES_MAX), keep_time="m" not in letters)
    return 0


async def _packed(process: Process, base: str, names: list[str]) -> bytes:
    """Raises: FileError."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in names:
            path = process.files.resolved(name, base)
            try:
                found = list(process.files.entries(path))
            except FileError as error:
                raise FileError(f"{name}: {error}") from None
            for number, (each, entry) in enumerate(found):
                if not number % _ENTRIES_AT_ONCE:
                    await asyncio.sleep(0)
                info = tarfile.TarInfo(posixpath.join(name, posixpath.relpath(each, path)) if each != path else name)
                info.name = info.name.lstrip("/") or "."
                info.mode, info.mtime = entry.mode, int(entry.changed_s)
                info.type = tarfile.REGTYPE if entry.children is None else tarfile.DIRTYPE
                info.size = len(entry.data)
                archive.addfile(info, io.BytesIO(entry.data))
                if buffer.tell() > 2 * ARCHIVE_BYTES_MAX:
                    raise FileError(f"an archive of more than {2 * ARCHIVE_BYTES_MAX} bytes, which is the limit")
    return buffer.getvalue()


async def _unpack(process: Process, base: str, data: bytes, *, keep_time: bool) -> None:
    """Raises: FileError."""
    files, now_s = process.files, process.times.wall_s()
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for number, info in enumerate(archive):
                if not number % _ENTRIES_AT_ONCE:
                    await asyncio.sleep(0)
                path = files.resolved(info.name.lstrip("/"), base)
                if path != base and not path.startswith(base.rstrip("/") + "/"):
                    raise FileError(f"{info.name}: leads out of {base}")
                at_s = float(info.mtime) if keep_time else now_s
                if info.isdir():
                    files.make_directory(path, at_s, parents=True, mode=info.mode & 0o7777)
                elif info.isreg():
                    files.make_directory(posixpath.dirname(path), at_s, parents=True)
                    source = archive.extractfile(info)
                    files.write(path, source.read() if source is not None else b"", at_s, info.mode & 0o7777)
                else:
                    raise FileError(f"{info.name}: only files and directories are simulated")
    except (tarfile.TarError, EOFError, ValueError, UnicodeError) as error:
        raise FileError(f"this is not a tar archive: {error}") from None


PROGRAMS: Final[dict[str, Program]] = {
    name: _complaining(program)
    for names, program in (
        ("true :", _true), ("false", _false), ("echo", _echo), ("cat", _cat), ("env printenv", _env),
        ("hostname", _hostname), ("pwd", _pwd), ("whoami id", _whoami), ("uname", _uname), ("date", _date),
        ("sleep", _sleep), ("ls", _ls), ("mkdir", _mkdir), ("touch", _touch), ("rm", _rm), ("head tail", _head),
        ("wc", _wc), ("grep", _grep), ("test [", _test), ("tar", _tar),
    )
    for name in names.split()
}  # fmt: skip
