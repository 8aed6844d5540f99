"""The journal of a swarm: a line for each finished history, so that many can be run in several sessions. A file
belongs to one kind of histories and one state of the code."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[1]


class Done(NamedTuple):
    """One history's result from a worker. `crashed`: the error of the simulator itself. `cpu_s`: its CPU time."""

    seed: int
    violations: dict[str, str]
    undecided: dict[str, str]
    counts: Counter[str]
    crashed: str = ""
    cpu_s: float = 0.0


def code_hash(package: Path = PACKAGE) -> str:
    """Of all sources that can influence a history."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Journal:
    """The file in `folder`, which is created if missing, for histories `of` one of histories.NAMES by this code."""

    def __init__(self, folder: Path, of: str, code: str = "") -> None:
        self.path = folder / of / f"{code or code_hash()}.jsonl"

    def read(self) -> list[Done]:
        """Reads the finished histories. An incomplete last line of a killed run does not count, and is removed."""
        if not self.path.is_file():
            return []
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with self.path.open("r+b") as file:
                file.truncate(whole)
        found = [Done(*json.loads(line)) for line in data[:whole].splitlines()]
        return [done._replace(counts=Counter(done.counts)) for done in found]

    def add(self, histories: list[Done]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(done, separators=(",", ":")) + "\n" for done in histories)
