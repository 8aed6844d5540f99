"""Caches that objects fill are bounded by bytes: what large objects leave there is given back."""

from __future__ import annotations

from typing import Any

import pytest

from minikube_py.api.memo import Bounded, bytes_of
from minikube_py.controllers import views
from minikube_py.kubelet import pod_status, pods
from minikube_py.scheduler import objects

CACHES = [objects._specs, views._intern, views._owners, pods._containers, pod_status._asked]


def pod(number: int, large: int) -> dict[str, Any]:
    names = [f"{number}-{each}" for each in range(large)]
    containers = [{"name": name, "image": "i", "ports": [{"containerPort": 1, "name": name}]} for name in names]
    owner = {"apiVersion": "v1", "kind": "A", "name": "a"}
    return {
        "metadata": {
            "name": f"p{number}", "namespace": "a", "uid": f"u{number}",
            "ownerReferences": [{**owner, "uid": name} for name in names],
        },
        "spec": {
            "containers": containers,
            "tolerations": [{"key": name, "operator": "Exists"} for name in names],
        },
    }  # fmt: skip


@pytest.mark.parametrize("large", [10, 3000])
def test_what_pods_leave_in_caches_is_bounded_by_bytes(large: int) -> None:
    for number in range(30_000 // large // 3):
        of = pod(number, large)
        objects.project_pod(of)
        views.project_pod(of)
        pod_status.asked_by(pods.project_pod(of).containers)
    for cache in CACHES:
        kept = sum(bytes_of(key) for key in cache._values)
        assert kept <= cache.bytes <= cache._bytes_max
        assert all(bytes_of(key) <= cache._bytes_max // 16 for key in cache._values)


def test_equal_values_are_one_until_it_is_full() -> None:
    cache = Bounded(count_max=2, bytes_max=1 << 14)
    first = cache("a", [1])
    assert cache("a", [1]) is first and cache.known("b") is None
    large = ("x" * 100,) * 20
    assert cache(large, [2]) == [2] and cache.known(large) is None, "longer than a sixteenth"
    cache("b", [3])
    cache("c", [4])
    assert cache.known("a") is None and cache.known("c") == [4]
    for number in range(40):
        cache("k" * 800 + str(number), [number])
        assert cache.bytes <= 1 << 14
