"""An object that repeats the last one but for version and time has the projection that decoding it gives."""

from __future__ import annotations

import random
from typing import Any

import orjson

from minikube_py.client.repeats import Repeats
from minikube_py.controllers.views import LEASE, LeaseView

Json = dict[str, Any]
TIMES = (
    "2026-11-23T20:00:00.000001Z", "2026-11-23T20:00:10.000002Z", "2026-11-23T20:00:10Z", "",
    'a","b":"0123456789012',
)  # fmt: skip


def drawn(rng: random.Random) -> bytes:
    name = rng.choice("ab")
    version = rng.choice(("7", "8", "100", "x"))
    metadata: Json = {"resourceVersion": version, "name": name, "namespace": "n", "uid": name}
    edge = rng.randrange(12)
    if edge == 0:
        metadata["labels"] = {"resourceVersion": rng.choice(("7", "8")), "renewTime": rng.choice(TIMES)}
    elif edge == 1:
        metadata = {"annotations": {"resourceVersion": rng.choice(("7", "8"))}, **metadata}
    elif edge == 2:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": rng.choice("uv")}]
    elif edge == 3:
        metadata = dict(reversed(metadata.items()))
    spec: Json = {"renewTime": TIMES[rng.choice((0, 0, 0, 1, 1, 1, 2, 3, 4))], "leaseDurationSeconds": 40}
    if edge == 4:
        del spec[rng.choice(("renewTime", "leaseDurationSeconds"))]
    return orjson.dumps({"kind": "Lease", "metadata": metadata, "spec": spec})


def shown(lease: LeaseView) -> list[Any]:
    return [getattr(lease, name) for each in LeaseView.__mro__ for name in getattr(each, "__slots__", ())]


def test_a_projection_that_is_found_is_the_one_that_decoding_gives() -> None:
    rng = random.Random(3)
    repeats, store, found_ones = Repeats(LEASE), dict[str, LeaseView](), 0
    for _ in range(20_000):
        if rng.random() < 0.02:
            # Changed behind its back, or gone.
            key = rng.choice(("n/a", "n/b"))
            if rng.random() < 0.5:
                store.pop(key, None)
            elif key in store:
                store[key] = LEASE.again(store[key], "1", "2")
        body = drawn(rng)
        obj = orjson.loads(body)
        wanted, key = LEASE(obj), f"n/{obj['metadata']['name']}"
        found = repeats.find(body, store.get)
        if found is None:
            store[key] = wanted
            repeats.learn(body, key, wanted)
            continue
        found_ones += 1
        assert found[0] == key and found[2] == wanted.resource_version
        assert shown(found[1]) == shown(wanted)
        store[key] = found[1]
    assert 2_000 < found_ones < 19_000
