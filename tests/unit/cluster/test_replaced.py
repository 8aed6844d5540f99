"""However a cluster in virtual time ends, everything that it replaced in the process is as before."""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from minikube_py import Cluster
from minikube_py.cluster.explore import explore
from minikube_py.sim.tasks import in_order

kopf = pytest.importorskip("kopf")
pytestmark = pytest.mark.real_time("plain handlers on threads of their own")
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}


def modules() -> Iterator[ModuleType]:
    """All but ours."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and name.partition(".")[0] != "minikube_py":
            yield module


def attributes() -> dict[tuple[str, str], Any]:
    """Functions, classes, modules and namespaces of the process that somebody may replace."""
    found: dict[tuple[str, str], Any] = {}
    for module in modules():
        for name, value in vars(module).items():
            if callable(value) or isinstance(value, ModuleType | SimpleNamespace):
                found[module.__name__, name] = value
            if isinstance(value, type) and value.__module__ == module.__name__:
                for each, member in vars(value).items():
                    if callable(member):
                        found[module.__name__, f"{name}.{each}"] = member
    found["sys", "hooks"] = sys.unraisablehook, sys.excepthook, threading.excepthook, sys.get_asyncgen_hooks()
    found["signal", "handlers"] = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    found["gc", "frozen"] = gc.isenabled(), gc.get_freeze_count()
    return found


def changed(before: dict[tuple[str, str], Any]) -> list[str]:
    """What was there before and is another now; lazily imported modules add their own."""
    after = attributes()
    return [
        ".".join(place)
        for place, value in before.items()
        if place not in after or (after[place] is not value and after[place] != value)
    ]


def operated(cluster: Cluster, handled: list[str], error: Exception | None = None) -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.create("configmaps", registry=registry)  # type: ignore[untyped-decorator]
    def plain(name: str, **_: Any) -> None:
        time.sleep(1)
        handled.append(name)

    async def main(clients: Any) -> None:
        if error is not None:
            raise error
        await clients.kopf(registry)

    cluster.program(main)
    cluster.apply(MAP)
    cluster.advance(20)


def ends_well(cluster: Cluster, handled: list[str]) -> None:
    operated(cluster, handled)


def raises(cluster: Cluster, handled: list[str]) -> None:
    operated(cluster, handled)
    raise ValueError("the test's own")


def leaves_a_program_that_crashed(cluster: Cluster, handled: list[str]) -> None:
    operated(cluster, handled)
    cluster._virtual().programs.running[0].crash()


def breaks(cluster: Cluster, handled: list[str]) -> None:
    operated(cluster, handled)
    cluster._virtual().virtual.loop.scheduler.fail("broken by the test")
    cluster.advance(1)


def raises_at_the_end(cluster: Cluster, handled: list[str]) -> None:
    operated(cluster, handled)

    def fails() -> None:
        raise RuntimeError("this program cannot be ended")

    cluster._virtual().programs.running[0].stop = fails  # type: ignore[method-assign]


WAYS = [ends_well, raises, leaves_a_program_that_crashed, breaks, raises_at_the_end]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_however_it_ends(way: Callable[[Cluster, list[str]], None]) -> None:
    # What is imported lazily is there before.
    with Cluster(nodes=0, clock="virtual") as first:
        operated(first, [])
    handled: list[str] = []
    before = attributes()
    with suppress(Exception), Cluster(nodes=0, clock="virtual") as cluster:
        way(cluster, handled)
    assert "a" in handled
    assert changed(before) == []


def test_the_last_of_two_puts_back() -> None:
    with Cluster(nodes=0, clock="virtual") as first:
        operated(first, [])
    before = attributes()
    module = sys.modules["kopf._cogs.clients.events"]
    outer, inner = Cluster(nodes=0, clock="virtual"), Cluster(nodes=0, clock="virtual")
    for cluster in (outer, inner):
        cluster.start()
        operated(cluster, [])
    assert vars(module)["datetime"] is not before["kopf._cogs.clients.events", "datetime"]
    assert sum(place.endswith(".datetime") for place in changed(before)) >= 3
    outer.stop()
    assert asyncio.as_completed is in_order
    assert vars(module)["datetime"] is not before["kopf._cogs.clients.events", "datetime"]
    inner.stop()
    inner.stop()
    assert changed(before) == []


def test_after_exploring() -> None:
    def test(cluster: Cluster) -> None:
        operated(cluster, [])

    explore(test, [1])
    before, state = attributes(), random.getstate()
    explore(test, [1, 2])
    assert changed(before) == []
    assert random.getstate() == state


def test_it_notices() -> None:
    before = attributes()
    own = asyncio.as_completed
    asyncio.as_completed = lambda *_, **__: None  # type: ignore[assignment,return-value]
    try:
        assert changed(before) == ["asyncio.as_completed"]
    finally:
        asyncio.as_completed = own
