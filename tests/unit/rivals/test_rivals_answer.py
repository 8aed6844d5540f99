"""The rivals that can run anywhere answer as brute force does, before and after changes; a wrong answer is caught."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from bench_rivals import COLUMNS, Bench
from needs import absent
from rivals import duck, ours_store, postgres, rocks, sqlite, tantivy_index
from rivals.contract import Absent, Entry, Node, Question
from rivals.workload import Workload

ENTRIES = [
    *ours_store.entries(["columns", "max-tree"], False),
    *sqlite.entries(True),
    *duck.entries(False),
    *tantivy_index.entries(False),
    *rocks.entries(False),
    *postgres.entries(False),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.title for entry in ENTRIES])
def test_a_rival_answers_as_brute_force_does(entry: Entry) -> None:
    try:
        row = Bench(400, 1, 0.0).measure(entry)
    except Absent as missing:
        absent(str(missing))
    assert set(row["ms"]) == set(COLUMNS)
    assert all(cell["rounds"] >= 1 and cell["ms"] > 0 for cell in row["ms"].values())


class Liar:
    """Says what `lie` makes of the truth."""

    def __init__(self, lie: str) -> None:
        self._lie = lie
        self._nodes: list[Node] = []

    def load(self, nodes: Sequence[Node]) -> None:
        self._nodes = list(nodes)

    def update(self, number: int, node: Node) -> None:
        if self._lie != "forgets updates":
            self._nodes[number] = node

    def first(self, question: Question, limit: int) -> Sequence[int]:
        return self.every(question)[: limit - (self._lie == "stops early")]

    def every(self, question: Question) -> Sequence[int]:
        strict = int(self._lie == "takes >= for >")
        return [i for i, node in enumerate(self._nodes) if all(a >= b + strict for a, b in zip(node, question))]


@pytest.mark.parametrize(
    ("lie", "caught"),
    [("", False), ("forgets updates", True), ("stops early", True), ("takes >= for >", True)],
)
def test_a_wrong_answer_is_caught(lie: str, caught: bool) -> None:
    @contextmanager
    def start() -> Iterator[Liar]:
        yield Liar(lie)

    # So many changes of so few nodes that one that is forgotten matters.
    bench, entry = Bench(400, 1, 0.15), Entry("liar", "", start)
    if caught:
        with pytest.raises(AssertionError):
            bench.measure(entry)
    else:
        bench.measure(entry)


def test_questions_are_of_their_class() -> None:
    work = Workload(1000, 3)
    for name, low, high in (("none", 0, 0), ("few", 10, 20), ("many", 20, 200)):
        assert all(low <= work.truth.count(question) <= high for question in work.questions(name, 8))
