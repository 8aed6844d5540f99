"""The programs that simulated containers have. Nothing runs on the host: each is a function here.

`PROGRAMS` is the whole list; other names are not found, as in an image without them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from minikube_py.containers import archives
from minikube_py.containers.files import Entry, FileError
from minikube_py.containers.process import ARCHIVE_BYTES_MAX, Process

Program = Callable[[Process], Awaitable[int]]
_ESCAPES: Final = (("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r"), ("\\a", "\a"), ("\\e", "\x1b"))
_FORMAT_CHARS_MAX: Final = 1024
_NUMBER_CHARS_MAX: Final = 32
_DATE: Final = "%a %b %e %H:%M:%S UTC %Y"


def _complaining(program: Program, options: str | None, least: int, most: int) -> Program:
    """Refuses what the program does not know, unless it reads its arguments itself (`options` None)."""

    async def run(process: Process) -> int:
        if options is not None and (wrong := process.wrong(options, least, most)):
            # Of grep, 1 says that nothing was found.
            return await process.complain(wrong) + (program is _grep)
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
    parts = text.split("\\\\")
    for escape, meant in _ESCAPES:
        parts = [part.replace(escape, meant) for part in parts]
    return "\\".join(parts)


async def _cat(process: Process) -> int:
    words, code = process.words or ["-"], 0
    for word in words:
        if word == "-":
            while part := await process.read():
                await process.out(part)
            continue
        try:
            await process.out(await process.contents(await process.path(word)))
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
    for name, value in list(process.variables.items()):
        await process.print(f"{name}={value}")
    return 0


async def _hostname(process: Process) -> int:
    await process.print(process.host)
    return 0


async def _pwd(process: Process) -> int:
    await process.print(process.cwd)
    return 0


async def _whoami(process: Process) -> int:
    if process.argv[0] == "whoami" or process.flags:
        named = process.argv[0] == "whoami" or "n" in process.flags
        await process.print("root" if named else "0")
        return 0
    await process.print("uid=0(root) gid=0(root) groups=0(root)")
    return 0


async def _uname(process: Process) -> int:
    told = {"s": "Linux", "n": process.host, "r": "6.1.0", "v": "minikube_py simulated", "m": "x86_64"}
    flags = process.flags or "s"
    await process.print(" ".join(text for letter, text in told.items() if letter in flags or "a" in flags))
    return 0


async def _date(process: Process) -> int:
    form = _DATE
    if process.words:
        if not process.words[0].startswith("+"):
            return await process.complain(f"invalid date '{process.words[0]}'")
        form = process.words[0][1:]
    if len(form) > _FORMAT_CHARS_MAX:
        return await process.complain(f"a format of more than {_FORMAT_CHARS_MAX} characters, which is the limit")
    await process.spend(1 + len(form))
    now_s = process.times.wall_s()
    try:
        text = str(int(now_s)) if form == "%s" else datetime.fromtimestamp(now_s, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return await process.complain(f"invalid date '{form}'")
    await process.print(text)
    return 0


async def _sleep(process: Process) -> int:
    total_s = 0.0
    for word in process.words:
        if word in ("infinity", "inf"):
            total_s = 1e9
            continue
        unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(word[-1:], 0)
        try:
            seconds = float((word[:-1] if unit else word)[:_NUMBER_CHARS_MAX]) * (unit or 1)
        except ValueError:
            seconds = -1.0
        if not seconds >= 0 or len(word) > _NUMBER_CHARS_MAX:
            return await process.complain(f"invalid number '{word}'")
        total_s = min(total_s + seconds, 1e9)
    await process.times.sleep(total_s)
    return 0


async def _ls(process: Process) -> int:
    files, words, code = process.files, process.words or ["."], 0
    hidden, long = bool(set("aA") & set(process.flags)), "l" in process.flags
    for word in words:
        try:
            path = await process.path(word)
            entry = files.entry(path)
        except FileError as error:
            code = await process.complain(f"{word}: {error}")
            continue
        if entry.children is None:
            await _list(process, word, entry, long)
            continue
        if len(words) > 1:
            await process.print(f"{word}:")
        await process.spend(1 + len(entry.children) // 8)
        for name in sorted(entry.children):
            if (hidden or not name.startswith(".")) and (child := entry.children.get(name)) is not None:
                await _list(process, name, child, long)
            else:
                await process.spend(1)
    return code


async def _list(process: Process, name: str, entry: Entry, long: bool) -> None:
    if not long:
        await process.print(name)
        return
    await process.spend(8)
    kind = "-" if entry.children is None else "d"
    rights = "".join("rwx"[2 - bit % 3] if entry.mode >> bit & 1 else "-" for bit in range(8, -1, -1))
    day = datetime.fromtimestamp(entry.changed_s, UTC).strftime("%b %e %H:%M")
    await process.print(f"{kind}{rights}    1 root     root     {len(entry.data):9} {day} {name}")


async def _mkdir(process: Process) -> int:
    for word in process.words:
        try:
            path = await process.path(word)
            process.files.make_directory(path, process.times.wall_s(), parents="p" in process.flags)
        except FileError as error:
            return await process.complain(f"can't create directory '{word}': {error}")
    return 0


async def _touch(process: Process) -> int:
    for word in process.words:
        process.files.append(await process.path(word), b"", process.times.wall_s())
    return 0


async def _rm(process: Process) -> int:
    files, code = process.files, 0
    recursive, forced = bool(set("rR") & set(process.flags)), "f" in process.flags
    for word in process.words:
        try:
            path = await process.path(word)
            if (children := files.entry(path).children) is not None:
                if not recursive:
                    raise FileError("is a directory")
                await process.spend(1 + (files.count // 8 if children else 0))
            files.remove(path)
        except FileError as error:
            if not forced:
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
    data = await process.inputs([word for word in words if not word.startswith("-") or word == "-"])
    await process.spend(1 + len(data) // 256)
    lines = data.splitlines(keepends=True)
    await process.out(b"".join(lines[:wanted] if process.argv[0] == "head" else lines[max(len(lines) - wanted, 0) :]))
    return 0


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise FileError(f"invalid number '{text}'")
    return int(text)


async def _wc(process: Process) -> int:
    data = await process.inputs(process.words)
    await process.spend(1 + len(data) // 256)
    counts = {"l": data.count(b"\n"), "w": len(data.split()), "c": len(data)}
    wanted = [letter for letter in "lwc" if letter in process.flags] or list("lwc")
    await process.print(" ".join(str(counts[letter]) for letter in wanted))
    return 0


async def _grep(process: Process) -> int:
    """Plain text, no pattern."""
    if not process.words:
        return await process.complain("no text to look for") + 1
    wanted = process.words[0].encode("utf-8", "surrogateescape")
    try:
        data = await process.inputs(process.words[1:])
    except FileError as error:
        return await process.complain(str(error)) + 1
    code, at = 1, 0
    while at < len(data):
        # Whole lines, of about 4 KiB.
        end = data.find(b"\n", at + 4096) + 1 or len(data)
        await process.spend(64 + (end - at) // 16)
        found = [line + b"\n" for line in data[at:end].splitlines() if wanted in line]
        at = end
        if found:
            code = 0
            await process.out(b"".join(found))
    return code


async def _test(process: Process) -> int:
    words = process.argv[1:]
    if process.argv[0] == "[":
        if words[-1:] != ["]"]:
            return await process.complain("missing ]") + 1
        words = words[:-1]
    negations = next((at for at, word in enumerate(words) if word != "!"), len(words))
    code = await _tested(process, words[negations:])
    return int(not code) if negations % 2 else code


async def _tested(process: Process, words: list[str]) -> int:
    match words:
        case ["-d" | "-f" | "-e" | "-s" as flag, word]:
            path = await process.path(word)
            directory, there = process.files.is_directory(path), process.files.exists(path)
            found = {"-d": directory, "-f": there and not directory, "-e": there}
            return int(
                not (found[flag] if flag in found else there and (directory or bool(process.files.entry(path).data)))
            )
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
    base = await process.path(directory)
    if "c" in letters:
        await archives.pack(process, base, names[1:])
    else:
        await archives.unpack(process, base, await process.all_input(ARCHIVE_BYTES_MAX), keep_time="m" not in letters)
    return 0


_ANY: Final = 1 << 30
PROGRAMS: Final[dict[str, Program]] = {
    name: _complaining(program, options, least, most)
    for names, program, options, least, most in (
        ("true :", _true, None, 0, _ANY), ("false", _false, None, 0, _ANY), ("echo", _echo, None, 0, _ANY),
        ("cat", _cat, "u", 0, _ANY), ("env", _env, "", 0, 0), ("printenv", _env, "", 0, _ANY),
        ("hostname", _hostname, "", 0, 0), ("pwd", _pwd, "LP", 0, 0), ("whoami", _whoami, "", 0, 0),
        ("id", _whoami, "ugGn", 0, 0), ("uname", _uname, "asnrvm", 0, 0), ("date", _date, "u", 0, 1),
        ("sleep", _sleep, "", 1, _ANY), ("ls", _ls, "aAl1", 0, _ANY), ("mkdir", _mkdir, "p", 1, _ANY),
        ("touch", _touch, "", 1, _ANY), ("rm", _rm, "rRf", 0, _ANY), ("head tail", _head, "n0123456789", 0, _ANY),
        ("wc", _wc, "lwc", 0, _ANY), ("grep", _grep, "F", 0, _ANY), ("test [", _test, None, 0, _ANY),
        ("tar", _tar, None, 0, _ANY),
    )
    for name in names.split()
}  # fmt: skip
