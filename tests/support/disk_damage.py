"""Damage to a member's log on disk: power cuts, bit rot, full disks.

kill -9 alone loses no written data: the page cache survives. A power cut may lose unsynced data; a record states up to
where the log was durable when it was written, so the file shows what may be lost."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from minikube_py.wal.recovery import read_segment
from minikube_py.wal.segment import HEAD_BYTES, decode_head, segment_sequence

SECTOR_BYTES = 512
DAMAGES = ("flip", "cut", "zero", "swap", "copy", "lose")


def damage(image: dict[str, bytearray], name: str, other: str, how: str, offset: int) -> None:
    """Damage by an editor, a bad disk or a hasty restore to the file `name` of a folder's image, one of DAMAGES: from
    `offset` on, or to all of it, and with the file `other`."""
    data = image[name]
    if how == "flip" and offset < len(data):
        data[offset] ^= 1 << (offset % 8)
    elif how == "cut":
        del data[offset:]
    elif how == "zero":
        data[offset : offset + SECTOR_BYTES] = bytes(len(data[offset : offset + SECTOR_BYTES]))
    elif how == "swap":
        image[name], image[other] = image[other], image[name]
    elif how == "copy":
        image[name] = bytearray(image[other])
    elif how == "lose":
        del image[name]


class LogEnd(NamedTuple):
    """Of the newest segment: records reach to `end`, and up to `sure` they are certainly durable."""

    path: Path
    sure: int
    end: int


def log_end(files: Path) -> LogEnd:
    """Of the log in this folder, of a running or stopped member."""
    names = [name for name in (path.name for path in files.iterdir()) if segment_sequence(name) is not None]
    path = files / max(names)
    data = path.read_bytes()
    sure = end = HEAD_BYTES
    for record in read_segment(path.name, data, decode_head(path.name, data), None):
        sure, end = record.synced, record.end
    return LogEnd(path, max(sure, HEAD_BYTES), end)


def tear(files: Path, rng: random.Random) -> int:
    """A power cut: of unsynced data, some sectors are on the disk and others are not. Returns how many bytes are lost
    or garbage."""
    path, sure, end = log_end(files)
    lost = 0
    with path.open("r+b") as file:
        start = sure
        while start < end:
            stop = min(end, (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
            fate = rng.random()
            if fate < 0.6:
                file.seek(start)
                file.write(bytes(stop - start) if fate < 0.5 else rng.randbytes(stop - start))
                lost += stop - start
            start = stop
    return lost


def rot(files: Path, rng: random.Random) -> int:
    """Changes a durable byte. Returns its position."""
    path, sure, _ = log_end(files)
    assert sure > HEAD_BYTES, "nothing is durable yet"
    place = rng.randrange(HEAD_BYTES, sure)
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes((byte ^ (1 << rng.randrange(8)),)))
    return place
