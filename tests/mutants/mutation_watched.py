"""The journal of witnesses: which mutants were watched in which histories, and where they would have differed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from mutation_operators import Change
from mutation_tree import Tree
from mutation_witness import planted
from mutation_worker import Request

BLOCK: Final = 10
HISTORY_S: Final = 10


class Block(NamedTuple):
    """`seen`: by a mutant's key the seeds in which it would have made a difference."""

    keys: list[str]
    seeds: list[int]
    seen: dict[str, list[int]]


class Watched:
    def __init__(self) -> None:
        self._known: dict[str, set[int]] = {}
        self._seen: dict[str, set[int]] = {}

    def add(self, block: Block) -> None:
        for key in block.keys:
            self._known.setdefault(key, set()).update(block.seeds)
            self._seen.setdefault(key, set()).update(block.seen.get(key, ()))

    def knows(self, key: str, seed: int) -> bool:
        return seed in self._known.get(key, ())

    def seeds(self, change: Change, first: int, end: int) -> list[int]:
        """Those in which the mutant differs, as far as is known."""
        key = change.key
        return [seed for seed in range(first, end) if not self.knows(key, seed) or seed in self._seen.get(key, ())]


class Witnesses:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._watched = Watched()
        for line in path.read_text().splitlines() if path.is_file() else ():
            self._watched.add(Block(**json.loads(line)))

    def watch(
        self, trees: Sequence[Tree], changes: Sequence[Change], until: int, pooled: Any, tell: Callable[[str], None]
    ) -> Watched:
        """Plays the histories below `until` that one of the mutants was not watched in."""
        if not changes:
            return self._watched
        texts, keys = witnessed(trees[0].folder, changes)
        left = [seed for seed in range(until) if not all(self._watched.knows(key, seed) for key in keys)]
        tell(f"{len(keys)} of {len(changes)} mutants are watched in {len(left)} histories")
        blocks = [left[at : at + BLOCK] for at in range(0, len(left), BLOCK)] if keys else []
        pooled(trees, [partial(_play, texts=texts, keys=sorted(keys), seeds=seeds) for seeds in blocks], self._note)
        return self._watched

    def _note(self, block: Block) -> None:
        self._watched.add(block)
        with self._path.open("a") as file:
            file.write(json.dumps(block._asdict()) + "\n")


def witnessed(folder: Path, changes: Sequence[Change]) -> tuple[dict[str, bytes], set[str]]:
    """The changed modules with witnesses in them, and the keys of the mutants that are watched."""
    texts: dict[str, bytes] = {}
    keys: set[str] = set()
    for path in sorted({change.path for change in changes}):
        source = (folder / "minikube_py" / path).read_text(encoding="utf-8")
        text, found = planted(source, [change for change in changes if change.path == path])
        texts[path] = text.encode()
        keys |= found
    return texts, keys


def _play(tree: Tree, texts: dict[str, bytes], keys: list[str], seeds: list[int]) -> Block:
    """Raises: SystemExit if a history goes wrong, as none may without a mutant."""
    with tree.replaced({tree.folder / "minikube_py" / path: text for path, text in texts.items()}):
        answer = tree.ask(Request("witnesses", seeds=seeds, cpu_s=60 + HISTORY_S * len(seeds)))
    if answer.outcome != "passed":
        raise SystemExit(f"histories {seeds} with witnesses: {answer.outcome}, {answer.by}: {answer.text}")
    return Block(keys, seeds, answer.found["seen"])
