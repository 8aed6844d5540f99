"""Measurements so far: one JSON line per finished unit, so that an interrupted run resumes.

Each line ends with a checksum, `"sum"`: the CRC-32 of the line without it, so that damage is noticed. Journals begun
before there were checksums are read as they are, and go on without.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import orjson

from minikube_py.lab.study.design import Design, StudyError

NAME: Final = "cells.jsonl"
RECORDED: Final = "recorded"
"""Of texts, such as titles of pictures: the fingerprint of the run of which they speak."""
AGAIN: Final = "again"
"""How often a finished unit was measured once more; its first measurement counts."""
SUM: Final = b',"sum":'
SUMMED: Final = re.compile(rb',"sum":"[0-9a-f]{8}"}$')
_NO_LOCKS: Final = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""Of file systems without locks."""
Record = dict[str, Any]


def digest(design: Design) -> str:
    """Raises: StudyError for a number of more than 64 bits and its like."""
    try:
        raw = orjson.dumps([design.raw, design.mode], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise StudyError(f"the design has a value that cannot be recorded: {error}; correct it there") from error
    return hashlib.sha256(raw).hexdigest()[:16]


def of_study(
    path: Path, design: Design, resume: bool, about: Mapping[str, Any] | None = None, alone: bool = True
) -> Journal:
    """Raises: StudyError."""
    header = {"study": design.raw["study"], "mode": design.mode, "design": digest(design)}
    return Journal(path, header, resume, about, alone=alone)


def fingerprint(records: Iterable[Record]) -> str:
    """Of the records of a run, in any order."""
    ordered = sorted(records, key=lambda record: str(record["key"]))
    return hashlib.sha256(orjson.dumps(ordered, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


class Journal:
    """The lines of one run. The first, `header`, tells which; lines that a kill cut short or whose checksum is
    another are skipped and reported.

    `about`: recorded when the run began: the registering commit, the machine, and a digest of the code. `flag`: by
    which a user names the place."""

    def __init__(
        self,
        path: Path,
        header: Record,
        resume: bool | None = None,
        about: Mapping[str, Any] | None = None,
        flag: str = "another folder with --out",
        alone: bool = True,
    ) -> None:
        """`alone`: it is added to, so no other process may. `resume`: None goes on with what is there, if anything is.
        Raises: StudyError, if data in `path` would be lost or mixed."""
        self.path, self._other = path, flag
        self.about: Record = dict(about or {})
        self.records: dict[str, Record] = {}
        self.torn, self.summed, self._lockless = 0, True, ""
        try:
            if resume and not (path.exists() and path.stat().st_size):
                raise StudyError(
                    f"nothing to resume or report: {path} is not there; begin without --resume and --report"
                )
            with ExitStack() as stack:
                self._file = stack.enter_context(path.open("ab"))
                if alone:
                    self._lock()
                # What is read before it is locked, another run may add to.
                if path.stat().st_size:
                    self._read(header, resume is not False, alone)
                else:
                    self._write({**header, "about": self.about})
                stack.pop_all()
        except OSError as error:
            raise StudyError(f"cannot use {path}: {error.strerror}; name {flag}") from error

    def _lock(self) -> None:
        """Until it is closed, or the process ends, where there are locks. Raises: StudyError."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(f"another run adds to {self.path}; wait for its end, or name {self._other}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            self._lockless = error.strerror or str(error)

    def require_code(self, code: str) -> None:
        """Raises: StudyError, if the run began with another digest of code and data."""
        if self.about.get("code", code) != code:
            begun = self.about.get("environment", self.about).get("commit") or "a copy without commits"
            raise StudyError(
                f"{self.path} was begun with other code or data, at commit {begun}; "
                f"go on with that code, or name {self._other}"
            )

    def notes(self) -> list[str]:
        """What a user should know of a journal that is gone on with."""
        found = []
        if self._lockless:
            found.append(f"note: {self.path} cannot be locked ({self._lockless}): let no second run add to it")
        if not self.summed:
            found.append(f"note: {self.path} is of a version without checksums: damage to it may not be seen")
        if self.torn:
            found.append(f"{self.torn} lines of {self.path} cannot be read; their units run again")
        return found

    def add(self, record: Record) -> None:
        self.records[record["key"]] = record
        self._write(record)

    def close(self) -> None:
        self._file.close()

    def _write(self, line: Record) -> None:
        self._file.write((sealed(line) if self.summed else _dumped(line)) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, header: Record, resume: bool, alone: bool) -> None:
        lines, self.summed = read_lines(self.path)
        first = lines[0] if lines else None
        if not first or {name: first.get(name) for name in header} != header:
            raise StudyError(f"{self.path} is of another design or mode, or no journal; name {self._other}")
        self.about = first.get("about", self.about)
        for line in lines[1:]:
            if line is None or "key" not in line:
                self.torn += 1
                continue
            first = self.records.get(line["key"])
            if first is None or "failed" in first:
                self.records[line["key"]] = line
            else:
                # Whoever could choose which measurement counts could choose the better one.
                first[AGAIN] = first.get(AGAIN, 0) + 1
        if not resume:
            found = len(self.records)
            raise StudyError(f"{self.path} holds {found} finished units; give --resume, or {self._other}")
        if alone and not self.path.read_bytes().endswith(b"\n"):
            # Terminate a truncated line, so that the next one is separate.
            self._file.write(b"\n")
            self._file.flush()


def _dumped(line: Record) -> bytes:
    return orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY)


def sealed(line: Record) -> bytes:
    """With its checksum, at the end."""
    body = _dumped(line)
    return b'%b%b"%08x"}' % (body[:-1], SUM, zlib.crc32(body))


def opened(line: bytes, summed: bool) -> Record | None:
    """Without its checksum; None if it is damaged. `summed`: it must have one."""
    if summed:
        body = line.rpartition(SUM)[0] + b"}"
        if line != b'%b%b"%08x"}' % (body[:-1], SUM, zlib.crc32(body)):
            return None
        line = body
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def read_lines(path: Path) -> tuple[list[Record | None], bool]:
    """And whether they have checksums: if one has, all must."""
    lines = path.read_bytes().splitlines()
    summed = any(SUMMED.search(line) for line in lines)
    return [opened(line, summed) for line in lines], summed
