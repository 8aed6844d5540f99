"""The nodes, their changes, and the queries; the same for every rival, from one seed, checked by brute force."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from rivals.contract import Node, Question

UTILISATION = 0.9
SHAPES = ((32_000, 128, 0), (64_000, 256, 0), (96_000, 384, 8), (128_000, 1024, 8), (96_000, 768, 4))
"""milli-CPU, GiB, GPUs of a whole node."""
TRIES_MAX = 200_000
CLASSES = {"none": (0, 0), "few": (12, 100), "many": (2_000, 20_000)}
"""How many of 100,000 nodes a query of the class finds; scaled with the number of nodes, `few` at least 10."""


class Workload:
    def __init__(self, count: int, seed: int) -> None:
        self._rng = random.Random(seed)
        self.shapes = [self._rng.choice(SHAPES) for _ in range(count)]
        self.nodes = [self.drawn(number) for number in range(count)]
        self.truth = Truth(self.nodes)

    def drawn(self, number: int) -> Node:
        """A new state of a node: an independent free share per resource, beta-distributed around the mean."""
        cpu_milli, memory_gib, gpus = self.shapes[number]
        cpu, memory, gpu = (self._rng.betavariate(1, UTILISATION / (1 - UTILISATION)) for _ in range(3))
        return Node(int(cpu_milli * cpu), int(memory_gib * 1024 * memory), round(gpus * gpu))

    def update(self) -> tuple[int, Node]:
        """Another state of some node; also updates the truth."""
        number = self._rng.randrange(len(self.nodes))
        node = self.drawn(number)
        self.truth.set(number, node)
        return number, node

    def questions(self, name: str, count: int) -> list[Question]:
        """Of the class: thresholds are at or near nodes' values, mixed over the resources."""
        low, high = CLASSES[name]
        scale = len(self.nodes) / 100_000
        low, high = (max(low * scale, min(low, 10)), max(high * scale, min(high, 20)))
        found: list[Question] = []
        rows = self.truth.rows
        tops = rows.max(axis=1)
        for _ in range(TRIES_MAX):
            cpu, memory, gpus = (int(rows[i, self._rng.randrange(rows.shape[1])]) for i in range(3))
            question = Question(cpu + self._rng.choice((0, 0, 1)), memory + self._rng.choice((0, 0, 1)), gpus)
            # Each alone can be satisfied: only the combination gives `none`.
            if (np.array(question) <= tops).all() and low <= self.truth.count(question) <= high:
                found.append(question)
                if len(found) == count:
                    return found
        raise SystemExit(
            f"only {len(found)} questions of class {name!r} among {len(self.nodes)} nodes; take more nodes"
        )


class Truth:
    """Brute force over all nodes."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.rows = np.array(nodes, dtype=np.int64).T.copy()

    def set(self, number: int, node: Node) -> None:
        self.rows[:, number] = node

    def _mask(self, question: Question) -> np.ndarray:
        cpu, memory, gpus = self.rows
        return (cpu >= question.cpu_milli) & (memory >= question.memory_mib) & (gpus >= question.gpus)

    def count(self, question: Question) -> int:
        return int(np.count_nonzero(self._mask(question)))

    def every(self, question: Question) -> set[int]:
        return set(np.flatnonzero(self._mask(question)).tolist())

    def check_first(self, question: Question, limit: int, answer: Sequence[int]) -> None:
        """Raises: AssertionError."""
        truth = self.every(question)
        assert len(set(answer)) == len(answer) == min(limit, len(truth)), (question, len(answer), len(truth))
        assert set(answer) <= truth, (question, set(answer) - truth)

    def check_every(self, question: Question, answer: Sequence[int]) -> None:
        """Raises: AssertionError."""
        truth = self.every(question)
        assert len(answer) == len(truth) and set(answer) == truth, (question, len(answer), len(truth))
