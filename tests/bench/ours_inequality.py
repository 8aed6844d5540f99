"""Ours beside upstream's Go: one label against a number, and the first ten of 20,000 nodes by index. Nanoseconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from rivals.contract import Question
from rivals.ours_index import Alone
from rivals.workload import Workload

from minikube_py.api.selectors import parse_label_selector

NODES, REPEATS = 20_000, 400


def selector() -> float:
    """For one node, as upstream's Requirement.Matches; our scheduler compares columns instead."""
    matches = parse_label_selector("memory-mib>118000").matches
    labels = [{"zone": "a", "arch": "amd64", "memory-mib": str(100_000 + 37 * i)} for i in range(1000)]
    started_ns = time.perf_counter_ns()
    for each in labels:
        matches(each)
    return (time.perf_counter_ns() - started_ns) / len(labels)


def index_first() -> Callable[[], float]:
    """For one query over all nodes, at thresholds that few of them reach."""
    index, work = Alone("columns"), Workload(NODES, 0)
    index.load(work.nodes)
    highest = sorted(node.cpu_milli for node in work.nodes)[-20]
    question = Question(highest, 0, 0)

    def ask() -> float:
        started_ns = time.perf_counter_ns()
        for _ in range(REPEATS):
            found = index.first(question, 10)
        assert len(found) == 10
        return (time.perf_counter_ns() - started_ns) / REPEATS

    return ask
