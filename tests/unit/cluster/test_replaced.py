"""However a cluster in virtual time ends, everything that it replaced in the process is as before."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from minikube_py import Cluster
from minikube_py.cluster.explore import explore
from minikube_py.sim import replaced
from minikube_py.sim.replaced import COLLECTING, Replaced, frozen, unheard
from minikube_py.sim.tasks import in_order

kopf = pytest.importorskip("kopf")
pytestmark = pytest.mark.real_time("plain handlers on threads of their own")
MAPS = "/api/v1/namespaces/default/configmaps"
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
    # The suite freezes what is between modules, and the count falls as such objects end.
    found["gc", "frozen"] = gc.isenabled(), gc.get_freeze_count() > 0
    found["logging", "disable"] = logging.root.manager.disable
    found["warnings", "filters"] = list(warnings.filters)
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


def plain(clients: Any) -> None:
    with clients.httpx() as http:
        for number in range(100):
            http.post(MAPS, json={"metadata": {"name": f"plain-{number}"}}).raise_for_status()
            time.sleep(0.05)


async def abandons(clients: Any) -> None:
    """Each watch is left in a cycle."""
    async with clients.httpx_asyncio() as http:
        for number in range(10):
            request = http.build_request("GET", MAPS, params={"watch": "true"})
            left: list[Any] = [await http.send(request, stream=True)]
            left += [left, left[0].aiter_lines()]
            with suppress(Exception):
                await asyncio.wait_for(anext(left[2]), 0.1)
            await http.post(MAPS, json={"metadata": {"name": f"watched-{number}"}})


def rapidly(*calls: Callable[[], object]) -> None:
    """Each in a thread; the interpreter changes between them as often as it can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=each) for each in calls]
    try:
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)


def digest_of(seed: int) -> str:
    with Cluster(nodes=1, clock="virtual", seed=seed) as cluster:
        for main in (plain, abandons):
            cluster.program(main).name  # noqa: B018
        operated(cluster, handled := [])
        assert "a" in handled
        return cluster.digest


def test_clusters_in_threads_give_what_each_gives_alone() -> None:
    seeds = range(3)
    alone = {seed: digest_of(seed) for seed in seeds}
    before = attributes()
    together: dict[int, str] = {}
    begin = threading.Barrier(len(seeds))

    def work(seed: int) -> None:
        begin.wait()
        together[seed] = digest_of(seed)

    rapidly(*[partial(work, seed) for seed in seeds])
    assert together == alone
    assert changed(before) == []


def test_explorations_in_threads_find_what_each_finds_alone() -> None:
    """The test and its program draw from `random`, of which a process has one."""

    def explored(seed: int) -> list[str]:
        def test(cluster: Cluster) -> None:
            async def draws(clients: Any) -> None:
                async with clients.httpx_asyncio() as http:
                    for _ in range(20):
                        await http.post(MAPS, json={"metadata": {"name": f"of-{random.getrandbits(64)}"}})

            cluster.program(draws)
            cluster.advance(1)
            names.extend(each["metadata"]["name"] for each in cluster.objects("configmaps"))

        names: list[str] = []
        explore(test, [seed])
        return names

    seeds = range(3)
    alone = {seed: explored(seed) for seed in seeds}
    state = random.getstate()
    together: dict[int, list[str]] = {}
    rapidly(*[lambda seed=seed: together.update({seed: explored(seed)}) for seed in seeds])
    assert together == alone and random.getstate() == state


def test_it_is_counted_across_threads() -> None:
    place = SimpleNamespace(value="own")
    replaced = Replaced(place, "value", "another")
    seen: list[str] = []

    def often() -> None:
        for _ in range(3000):
            replaced.hold()
            seen.append(place.value)
            replaced.release()

    rapidly(*[often] * 4)
    assert set(seen) == {"another"} and place.value == "own"


def test_what_others_replace_meanwhile_is_theirs() -> None:
    place = SimpleNamespace(value=repr)
    replaced = Replaced(place, "value", ascii)
    replaced.hold()
    place.value = str
    replaced.release()
    assert place.value is str
    # They saw ours first, and restore it when nobody holds it.
    place.value = ascii
    replaced.hold()
    assert replaced.own is repr
    replaced.release()
    assert place.value is repr


def test_only_the_thread_that_asks_is_unheard(caplog: pytest.LogCaptureFixture) -> None:
    handle, hook = logging.Logger.handle, sys.unraisablehook
    log = logging.getLogger("a logger first used meanwhile")
    with unheard():
        log.error("of the dead")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("of the dead", RuntimeWarning, stacklevel=1)
        other = threading.Thread(target=log.error, args=("of the living",))
        other.start()
        other.join()
    log.error("afterwards")
    assert caplog.messages == ["of the living", "afterwards"]
    assert (logging.Logger.handle, sys.unraisablehook) == (handle, hook)


def test_the_collector_is_the_owners() -> None:
    for wanted in (True, False):
        (gc.enable if wanted else gc.disable)()
        try:
            COLLECTING.hold()
            assert not gc.isenabled()
            COLLECTING.release()
            assert gc.isenabled() == wanted
        finally:
            gc.enable()
    frozen_before = gc.get_freeze_count() > 0
    with frozen():
        assert gc.get_freeze_count() > 0
    assert (gc.get_freeze_count() > 0) is frozen_before


def test_it_notices() -> None:
    before = attributes()
    own = asyncio.as_completed
    asyncio.as_completed = lambda *_, **__: None  # type: ignore[assignment,return-value]
    try:
        assert changed(before) == ["asyncio.as_completed"]
    finally:
        asyncio.as_completed = own


def test_objects_that_the_owner_has_frozen_stay_so_and_are_counted_once(monkeypatch):
    """Counting them walks them all."""
    calls: list[str] = []
    for name in ("get_freeze_count", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: calls.append(name) or 1)
    monkeypatch.setattr(replaced, "_frozen", SimpleNamespace(by_us=False, by_owner=False))
    for _ in range(3):
        with frozen(), frozen():
            pass
    assert calls == ["get_freeze_count"]


def test_the_outer_of_two_runs_freezes(monkeypatch):
    calls: list[str] = []
    for name in ("get_freeze_count", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, lambda name=name: calls.append(name) or 0)
    monkeypatch.setattr(replaced, "_frozen", SimpleNamespace(by_us=False, by_owner=False))
    for _ in range(2):
        with frozen(), frozen():
            calls.append("within")
    assert calls == ["get_freeze_count", "freeze", "within", "unfreeze"] * 2
