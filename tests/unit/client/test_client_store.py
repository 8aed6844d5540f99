"""The store of an informer: its indexes."""

from __future__ import annotations

from minikube_py.client.store import ObjectStore


class Counting(str):
    compared = 0

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counting.compared += 1
        return str.__eq__(self, other)


def test_values_of_a_changed_object_are_not_compared_each_with_each() -> None:
    store: ObjectStore[list[str]] = ObjectStore({"label": lambda item: item})
    many = [f"v{number}" for number in range(1000)]
    store.put("a", [*map(Counting, many)])
    store.put("a", [*map(Counting, [*many[1:], "new"])])
    assert Counting.compared < 10 * len(many)
    assert (store.by_index("label", "v0"), len(store.by_index("label", "v1"))) == ([], 1)
