"""What claims hold of devices, after any order of what is promised, written, served and taken back: as counted again.

Slices of pools come, change their pool, and go meanwhile.
"""

from __future__ import annotations

import random
from typing import Any

from fed_kinds import FedKinds
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_laws import check_devices
from scheduler_objects import node

from minikube_py.scheduler.devices.known import Devices
from minikube_py.scheduler.devices.views import CLAIMS, SLICES, ClaimView, SliceView

NODES = [node("n0"), node("n1")]


def results(rng: random.Random) -> list[dict[str, Any]]:
    """Devices, whole, in part, or for an administrator."""
    found = []
    for device in rng.sample("abc", rng.choice((0, 1, 1, 2))):
        one: dict[str, Any] = {"driver": "x", "pool": rng.choice(("p", "q")), "device": device, "request": "r"}
        how = rng.choice(("whole", "whole", "part", "part", "admin"))
        if how == "admin":
            one["adminAccess"] = True
        elif how == "part":
            one |= {"shareID": "s", "consumedCapacity": {"memory": rng.choice(("1Gi", "512Mi"))}}
        found.append(one)
    return found


class Books:
    def __init__(self, rng: random.Random) -> None:
        self.rng, self.version = rng, 0
        self.kinds = FedKinds()
        self.devices = Devices(self.kinds)  # type: ignore[arg-type]

    def claim(self, allocated: bool) -> ClaimView:
        self.version += 1
        name = f"c{self.rng.randrange(3)}"
        metadata = {"name": name, "namespace": "d", "uid": name, "resourceVersion": str(self.version)}
        status = {"allocation": {"devices": {"results": results(self.rng)}}} if allocated else {}
        return ClaimView({"metadata": metadata, "spec": {}, "status": status})

    def served(self) -> None:
        self.kinds.put(CLAIMS.name, self.claim(self.rng.random() < 0.6))

    def gone(self) -> None:
        self.kinds.remove(CLAIMS.name, f"d/c{self.rng.randrange(3)}")

    def promise(self) -> None:
        known = [claim for claim in self.kinds.stores[CLAIMS.name] if not self.devices.is_promised(claim)]
        if known:
            allocation: Any = {"devices": {"results": results(self.rng)}}
            self.devices.promise(self.rng.choice(known), allocation)

    def take_back(self) -> None:
        known = list(self.kinds.stores[CLAIMS.name])
        if known:
            self.devices.break_promise(self.rng.choice(known))

    def written(self) -> None:
        """The answer to a write, which the informer has not shown yet."""
        view = self.claim(True)
        if view.key in self.kinds.stores[CLAIMS.name]:
            self.devices.assume(view)

    def slice(self) -> None:
        self.version += 1
        name, rng = f"s{self.rng.randrange(4)}", self.rng
        spec: dict[str, Any] = {
            "driver": "x",
            "pool": {"name": rng.choice("pq"), "generation": rng.choice((1, 1, 2)), "resourceSliceCount": 1},
            "devices": [{"name": each} for each in rng.sample("abc", rng.randint(1, 2))],
            **rng.choice(({"nodeName": "n0"}, {"nodeName": "n1"}, {"allNodes": True})),
        }
        metadata = {"name": name, "uid": name, "resourceVersion": str(self.version)}
        self.kinds.put(SLICES.name, SliceView({"metadata": metadata, "spec": spec}))

    def slice_gone(self) -> None:
        self.kinds.remove(SLICES.name, f"s{self.rng.randrange(4)}")

    def check(self) -> None:
        slices = self.kinds.stores[SLICES.name].values()
        check_devices(self.devices, self.kinds.stores[CLAIMS.name].keys(), slices, NODES)


STEPS = ("served", "served", "served", "gone", "promise", "promise", "take_back", "written", "slice", "slice_gone")


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_what_is_held_is_as_counted_again(seed: int) -> None:
    books = Books(random.Random(seed))
    for _ in range(40):
        getattr(books, books.rng.choice(STEPS))()
        books.check()
