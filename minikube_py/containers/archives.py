"""Archives as `kubectl cp` sends and receives them: headers are read one by one, in counted steps.

Only files and directories, with GNU's long names and pax headers of names, sizes and times; any other kind is refused
by name. Source: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block"; GNU tar, "Basic Tar Format".
"""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Mapping
from typing import Final

from minikube_py.containers.files import FileError
from minikube_py.containers.process import Process

EXTENSION_BYTES_MAX: Final = 8192
"""A header that describes the next entry."""
_BLOCK: Final = tarfile.BLOCKSIZE
_KINDS: Final = {
    tarfile.LNKTYPE: "a hard link", tarfile.SYMTYPE: "a symbolic link", tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device", tarfile.FIFOTYPE: "a named pipe", tarfile.GNUTYPE_SPARSE: "a sparse file",
}  # fmt: skip
_EXTENSIONS: Final = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE,
)  # fmt: skip
_LATEST_S: Final = 253_402_300_799.0
"""The end of the year 9999."""


class _Members:
    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._at = 0
        self._shared: dict[str, str] = {}

    def next(self) -> tuple[tarfile.TarInfo, range] | None:
        """The next entry's header, and where its data are; None at the end.

        Raises: FileError, tarfile.TarError, ValueError."""
        own: dict[str, str] = {}
        for _ in range(4):
            header = bytes(self._data[self._at : self._at + _BLOCK])
            if not header.strip(b"\0"):
                if len(header) < _BLOCK and not (self._at and not header):
                    raise FileError("this is not a tar archive: it breaks off")
                return None
            info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
            if info.type not in _EXTENSIONS:
                return self._described(info, {**self._shared, **own})
            if info.size > EXTENSION_BYTES_MAX:
                raise FileError(f"{info.name}: a header of more than {EXTENSION_BYTES_MAX} bytes, which is the limit")
            where = self._taken(info.size)
            text = bytes(self._data[where.start : where.stop])
            if info.type == tarfile.GNUTYPE_LONGNAME:
                own["path"] = text.partition(b"\0")[0].decode("utf-8", "surrogateescape")
            elif info.type == tarfile.XGLTYPE:
                self._shared |= _records(text)
            elif info.type != tarfile.GNUTYPE_LONGLINK:
                own |= _records(text)
        raise FileError("more than 3 headers that describe one entry, which is the limit")

    def _described(self, info: tarfile.TarInfo, described: Mapping[str, str]) -> tuple[tarfile.TarInfo, range]:
        info.name = described.get("path", info.name)
        if any(key.startswith("GNU.sparse.") for key in described):
            info.type = tarfile.GNUTYPE_SPARSE
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE):
            kind = _KINDS.get(info.type, f"an entry of type {info.type!r}")
            raise FileError(f"{info.name}: {kind}; only files and directories are simulated")
        for key in ("size", "mtime"):
            if len(described.get(key, "")) > 32:
                raise ValueError(f"{key} of more than 32 digits")
        mtime_s = float(described.get("mtime", info.mtime))
        # Not a number is neither.
        info.mtime = min(max(mtime_s, 0.0), _LATEST_S) if mtime_s == mtime_s else 0.0
        size = int(described.get("size", info.size))
        return info, self._taken(0 if info.isdir() else size)

    def _taken(self, size: int) -> range:
        """The data after a header. Raises: ValueError."""
        begin = self._at + _BLOCK
        if not 0 <= size <= len(self._data) - begin:
            raise ValueError("unexpected end of data")
        self._at = begin + -(-size // _BLOCK) * _BLOCK
        return range(begin, begin + size)


def _records(text: bytes) -> dict[str, str]:
    """`LENGTH KEY=VALUE\\n`, one after another. Raises: ValueError."""
    found, at = dict[str, str](), 0
    while at < len(text):
        length = int(text[at : at + 8].partition(b" ")[0])
        record = text[at : at + length]
        key, equals, value = record.partition(b" ")[2].partition(b"=")
        if not 0 < length == len(record) or not equals or not value.endswith(b"\n"):
            raise ValueError("a pax header that breaks off")
        found[key.decode("utf-8", "surrogateescape")] = value[:-1].decode("utf-8", "surrogateescape")
        at += length
    return found


async def unpack(process: Process, base: str, data: bytearray, *, keep_time: bool) -> None:
    """Raises: FileError, Spent."""
    files, now_s = process.files, process.times.wall_s()
    members = _Members(data)
    while True:
        # Of up to three headers that describe the entry.
        await process.spend(64)
        try:
            member = members.next()
        except (tarfile.TarError, ValueError) as error:
            raise FileError(f"this is not a tar archive: {error}") from None
        if member is None:
            return
        info, where = member
        path = files.resolved(info.name.lstrip("/"), base)
        if path != base and not path.startswith(base.rstrip("/") + "/"):
            raise FileError(f"{info.name}: leads out of {base}")
        await process.spend(len(path) // 4)
        await process.spend(len(where) >> 14)
        at_s = float(info.mtime) if keep_time else now_s
        if info.isdir():
            files.make_directory(path, at_s, parents=True, mode=info.mode & 0o7777)
        else:
            files.make_directory(posixpath.dirname(path), at_s, parents=True)
            files.write(path, bytes(memoryview(data)[where.start : where.stop]), at_s, info.mode & 0o7777)


async def pack(process: Process, base: str, names: list[str]) -> None:
    """Writes an archive to the output. Raises: FileError, Spent."""
    files = process.files
    found, written = [], 0
    for name in names:
        path = files.resolved(name, base)
        await process.spend(2 + len(path) // 4)
        try:
            files.entry(path)
        except FileError as error:
            raise FileError(f"{name}: {error}") from None
        found.append((name, path))
    for name, path in found:
        for each, entry in files.entries(path):
            await process.spend(32 + len(each) // 4)
            await process.spend(len(entry.data) >> 14)
            data = bytes(entry.data)
            info = tarfile.TarInfo(name if each == path else posixpath.join(name, each[len(path) :].lstrip("/")))
            info.name = info.name.lstrip("/") or "."
            info.mode, info.mtime = entry.mode, int(entry.changed_s)
            info.type = tarfile.REGTYPE if entry.children is None else tarfile.DIRTYPE
            info.size = len(data)
            header = info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
            written += len(header) + len(data) + -len(data) % _BLOCK
            await process.out(header)
            if data:
                await process.out(data)
                await process.out(bytes(-len(data) % _BLOCK))
    await process.out(bytes(2 * _BLOCK + -(written + 2 * _BLOCK) % tarfile.RECORDSIZE))
