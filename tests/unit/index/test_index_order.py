"""The key order of the columns is kept up, not made again, when a compaction frees a few objects."""

from __future__ import annotations

import random

from minikube_py.fields.builtin import NODES
from minikube_py.fields.where import Where
from minikube_py.index.columns import ColumnIndex
from minikube_py.index.contract import RowChange


def test_the_order_follows_keys_that_go_and_come_back() -> None:
    rng = random.Random(4)
    names = [NODES.prefix + b"n%05d" % number for number in range(2000)]
    living = set(names[::2])
    index = ColumnIndex(NODES, 1, [RowChange(name, {}) for name in sorted(living, key=lambda _: rng.random())])
    revision = 1
    for _ in range(300):
        for _ in range(rng.randrange(1, 4)):
            revision += 1
            name = rng.choice(names[:60])
            living ^= {name}
            index.apply(revision, [RowChange(name, {} if name in living else None)])
        if rng.random() < 0.5:
            index.compact(revision)
        if rng.random() < 0.5:
            assert index.query(Where(), revision, 100).keys == sorted(living)[:100]
    assert index.query(Where(), revision).keys == sorted(living)
