"""The index alone in this process, without store, log and objects: like rivals that hold three integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rivals.contract import Entry, Node, Question, number_of
from rivals.objects import key_of
from rivals.ours_store import FIELDS, where_of

from minikube_py.fields.builtin import NODES
from minikube_py.index.contract import RowChange
from minikube_py.index.hosted import HostedIndex

IN_MEMORY = "in memory"
COMPACT_EVERY = 1000
"""Changes between two compactions, which bound the history as in a store."""


class Alone:
    """A structure on a host with its undo log; the past can be queried, as in the store."""

    def __init__(self, structure: str) -> None:
        self._structure = structure
        self._revision = 1

    def load(self, nodes: Sequence[Node]) -> None:
        rows = [_change(number, node) for number, node in enumerate(nodes)]
        self._index = HostedIndex.alone(NODES, self._structure, FIELDS, 1, rows, frozen_max=0)

    def update(self, number: int, node: Node) -> None:
        self._revision += 1
        self._index.apply(self._revision, (_change(number, node),))
        if not self._revision % COMPACT_EVERY:
            self._index.compact(self._revision)

    def first(self, question: Question, limit: int) -> Sequence[int]:
        found = self._index.query(where_of(question), self._revision, limit, order="ANY")
        return [number_of(key.decode()) for key in found.keys]

    def every(self, question: Question) -> Sequence[int]:
        return [number_of(key.decode()) for key in self._index.query(where_of(question), self._revision).keys]


def _change(number: int, node: Node) -> RowChange:
    amounts = (node.cpu_milli, node.memory_mib << 20, node.gpus)
    return RowChange(key_of(number), dict(zip(FIELDS, amounts)))


@contextmanager
def start(structure: str) -> Iterator[Alone]:
    yield Alone(structure)


def entries(structures: Sequence[str]) -> list[Entry]:
    return [Entry(f"minikube_py, the index alone, {name}", IN_MEMORY, partial(start, name)) for name in structures]
