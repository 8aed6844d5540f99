"""The interface of a rival: load the nodes, change one, and find those with enough free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class Node(NamedTuple):
    """A node's free amounts. Its number is its index in the list; its name `node-<number>`."""

    cpu_milli: int
    memory_mib: int
    gpus: int


class Question(NamedTuple):
    """At least this much of each, inclusive."""

    cpu_milli: int
    memory_mib: int
    gpus: int


class Rival(Protocol):
    """`first` returns any `limit` of the matching nodes, `every` all; as numbers, in any order. A query sees every
    update that returned before."""

    def load(self, nodes: Sequence[Node]) -> None: ...

    def update(self, number: int, node: Node) -> None: ...

    def first(self, question: Question, limit: int) -> Sequence[int]: ...

    def every(self, question: Question) -> Sequence[int]: ...


class Absent(Exception):
    """The rival is not installed; the text says what is missing."""


LOGGED = {False: "logged, not synced", True: "durable (synced)"}
"""The durability of a returned update, by whether it is synced."""


class Entry(NamedTuple):
    """`title`: in the table. `write`: the durability of a returned update. `slow`: each query takes long."""

    title: str
    write: str
    start: StartRival
    slow: bool = False


class StartRival(Protocol):
    def __call__(self) -> AbstractContextManager[Rival]:
        """Raises: Absent."""


def name_of(number: int) -> str:
    return f"node-{number:06d}"


def number_of(name: str) -> int:
    return int(name.rpartition("-")[2])


def batches(nodes: Sequence[Node], size: int) -> Iterator[list[tuple[int, Node]]]:
    numbered = list(enumerate(nodes))
    for first in range(0, len(numbered), size):
        yield numbered[first : first + size]
