"""Plain functions as programs in virtual time: synchronous clients, time.sleep, crashes where they wait."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from minikube_py import Cluster, ClusterError, SimFailure
from minikube_py.cluster.aimed_faults import Aimed
from minikube_py.cluster.explore import Outcome, run_once
from minikube_py.cluster.program_plain import KILLS_MAX
from minikube_py.sim.faults import Fault

pytestmark = pytest.mark.real_time("plain functions on threads of their own")
MAPS = "/api/v1/namespaces/default/configmaps"


def of_httpx(clients: Any) -> None:
    with clients.httpx() as http:
        since = http.get(MAPS).json()["metadata"]["resourceVersion"]
        http.post(MAPS, json={"metadata": {"name": "made"}}).raise_for_status()
        with http.stream("GET", MAPS, params={"watch": "true", "resourceVersion": since}) as response:
            assert any('"made"' in line for line in response.iter_lines())
        assert http.post(MAPS, json={"metadata": {"name": "made"}}).status_code == 409
        http.post(MAPS, json={"metadata": {"name": "done"}}).raise_for_status()


def of_lightkube(clients: Any) -> None:
    lightkube = pytest.importorskip("lightkube")
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap

    client = clients.lightkube()
    client.create(ConfigMap(metadata=ObjectMeta(name="made")))
    for event, each in client.watch(ConfigMap):
        if (event, each.metadata.name) == ("ADDED", "made"):
            break
    with pytest.raises(lightkube.ApiError) as refused:
        client.create(ConfigMap(metadata=ObjectMeta(name="made")))
    assert refused.value.status.code == 409
    client.create(ConfigMap(metadata=ObjectMeta(name="done")))


def of_kubernetes(clients: Any) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    core = kubernetes.client.CoreV1Api(clients.kubernetes())
    core.create_namespaced_config_map("default", {"metadata": {"name": "made"}})
    watch = kubernetes.watch.Watch()
    for event in watch.stream(core.list_namespaced_config_map, "default"):
        if event["object"].metadata.name == "made":
            watch.stop()
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.create_namespaced_config_map("default", {"metadata": {"name": "made"}})
    assert refused.value.status == 409
    core.create_namespaced_config_map("default", {"metadata": {"name": "done"}})


@pytest.mark.parametrize("main", [of_httpx, of_lightkube, of_kubernetes])
def test_a_plain_function_may_use_any_of_these_clients(main: Callable[[Any], None]) -> None:
    digests = []
    threads = threading.active_count()
    for _ in range(2):
        with Cluster(clock="virtual", seed=5) as cluster:
            program = cluster.program(main)
            cluster.wait("cm/done")
            cluster.advance(1)
            assert program.returned and program.starts == 1, program.error
            digests.append(cluster.digest)
    assert digests[0] == digests[1]
    assert threading.active_count() == threads


def test_its_sleeps_take_virtual_time_and_it_ends_where_it_sleeps() -> None:
    ticks: list[tuple[int, float]] = []
    cleared: list[int] = []
    lives: list[Any] = []
    threads = threading.active_count()

    def ticking(clients: Any) -> None:
        lives.append(clients)
        life = len(lives)
        try:
            while True:
                ticks.append((life, cluster.now_s))
                time.sleep(100)
        finally:
            cleared.append(life)

    with Cluster(clock="virtual") as cluster:
        begun_s = cluster.now_s
        program = cluster.program(ticking)
        cluster.advance(250)
        assert [round(at_s - begun_s) for _, at_s in ticks] == [0, 100, 200]
        program.crash()
        cluster.advance(5)
        assert [life for life, _ in ticks] == [1, 1, 1, 2] and cleared == [1]
        program.stop()
        cluster.advance(300)
        assert len(ticks) == 4 and not program.running
    assert cleared == [1, 2] and threading.active_count() == threads


@pytest.mark.timeout(60)
def test_a_timeout_of_an_event_is_in_virtual_time() -> None:
    waited: list[tuple[bool, float]] = []
    event, own = threading.Event(), threading.Event.wait

    def waits(clients: Any) -> None:
        thread = threading.Thread(target=threading.Event().wait, args=(0.001,))
        thread.start()
        thread.join()
        for timeout_s in (1000, 0, -1, 1e9, 1e9):
            begun_s = cluster.now_s
            waited.append((event.wait(timeout_s), round(cluster.now_s - begun_s)))

    async def sets(clients: Any) -> None:
        await asyncio.sleep(3000)
        event.set()

    with Cluster(nodes=0, clock="virtual") as cluster:
        programs = cluster.program(waits), cluster.program(sets)
        cluster.advance(3001)
        assert [program.error for program in programs] == [None, None]
        assert waited == [(False, 1000), (False, 0), (False, 0), (True, 2000), (True, 0)]
        assert not event._cond._waiters  # type: ignore[attr-defined]
        event.clear()
        program = cluster.program(lambda clients: event.wait(1000))
        cluster.advance(1)
        program.crash()
        cluster.advance(5)
        assert program.starts == 2 and len(event._cond._waiters) == 1  # type: ignore[attr-defined]
    assert threading.Event.wait is own


def test_the_cluster_s_date_follows_from_its_seconds() -> None:
    """As docs/how-to/explore.md tells an operator's author."""

    def main(clients: Any) -> None:
        made = clients.httpx().post(MAPS, json={"metadata": {"name": "made"}}).json()
        age = now() - datetime.fromisoformat(made["metadata"]["creationTimestamp"])
        ages_s.append(age.total_seconds())

    def now() -> datetime:
        return datetime.fromtimestamp(1_700_000_000 + cluster.now_s, UTC)

    ages_s: list[float] = []
    with Cluster(nodes=0, clock="virtual") as cluster:
        cluster.advance(5000)
        cluster.program(main)
        cluster.advance(1)
    assert 0 <= ages_s[0] < 2


def test_a_thread_of_its_own_that_ends_such_a_wait_is_refused() -> None:
    def main(clients: Any) -> None:
        event = threading.Event()
        others.append(threading.Thread(target=event.set, name="other"))
        event.wait(1000)

    others: list[threading.Thread] = []
    with pytest.raises(SimFailure, match=r"main: .* \(here: other\)"), Cluster(nodes=0, clock="virtual") as cluster:
        cluster.program(main)
        cluster.advance(1)
        others[0].start()
        others[0].join()
        cluster.advance(1)


def test_a_function_that_never_ends_leaves_no_thread() -> None:
    threads = threading.active_count()

    def watches(clients: Any) -> None:
        with clients.httpx().stream("GET", MAPS, params={"watch": "true"}) as response:
            for _ in response.iter_lines():
                pass

    with Cluster(clock="virtual") as cluster:
        cluster.program(watches)
        cluster.advance(1)
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads


def reads_with_kubernetes(clients: Any) -> Iterator[str]:
    kubernetes = pytest.importorskip("kubernetes")
    core = kubernetes.client.CoreV1Api(clients.kubernetes())
    for event in kubernetes.watch.Watch().stream(core.list_namespaced_config_map, "default"):
        yield event["object"].metadata.name


def reads_with_lightkube(clients: Any) -> Iterator[str]:
    pytest.importorskip("lightkube")
    from lightkube.resources.core_v1 import ConfigMap

    for _, each in clients.lightkube().watch(ConfigMap):
        yield each.metadata.name


def reads_with_httpx(clients: Any) -> Iterator[str]:
    with clients.httpx().stream("GET", MAPS, params={"watch": "true"}) as response:
        for line in response.iter_lines():
            yield json.loads(line)["object"]["metadata"]["name"]


def reads_and_asks_at_the_end(clients: Any) -> Iterator[str]:
    try:
        yield from reads_with_httpx(clients)
    finally:
        clients.httpx().get(MAPS)


@pytest.mark.parametrize(
    "reads", [reads_with_kubernetes, reads_with_lightkube, reads_with_httpx, reads_and_asks_at_the_end]
)
def test_the_generators_of_a_killed_one_end_in_silence(
    reads: Callable[[Any], Iterator[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def main(clients: Any) -> None:
        http = clients.httpx()
        for name in reads(clients):
            if name.startswith("in-"):
                http.post(MAPS, json={"metadata": {"name": name.replace("in", "out")}})
                if name == "in-2":
                    raise ValueError("not killed")
                time.sleep(3)

    with Cluster(nodes=0, clock="virtual") as cluster:
        program = cluster.program(main)
        for number in (1, 2):
            cluster.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"in-{number}"}})
            cluster.wait(f"cm/out-{number}")
            program.crash()
            cluster.advance(6)
        program.stop()
        program.error = None
        gc.collect()
    assert not told


def test_one_that_holds_many_watches_is_killed_at_once() -> None:
    def main(clients: Any) -> None:
        http, now = clients.httpx(), {"params": {"watch": "true"}}
        with ExitStack() as watches:
            for _ in range(KILLS_MAX + 20):
                watches.callback(http.send(http.build_request("GET", MAPS, **now), stream=True).close)
            time.sleep(1000)

    with Cluster(nodes=0, clock="virtual") as cluster:
        program = cluster.program(main)
        cluster.advance(100)
        program.crash()
        cluster.advance(5)
        assert program.starts == 2


def test_what_it_raises_is_told_and_it_is_started_again() -> None:
    def fails(clients: Any) -> None:
        raise SystemExit(3)

    with Cluster(clock="virtual") as cluster:
        program = cluster.program(fails)
        cluster.advance(10)
        assert program.starts > 2 and "SystemExit: 3" in str(program.error)


async def yields(_: Any) -> AsyncIterator[None]:
    yield


def yields_plainly(_: Any) -> Iterator[None]:
    yield


@pytest.mark.parametrize("main", [yields, yields_plainly, partial(yields), partial(yields_plainly)])
def test_a_generator_function_is_refused_by_name(main: Callable[..., Any]) -> None:
    with Cluster(nodes=0, clock="virtual") as cluster:
        with pytest.raises(ClusterError, match=r"a call of a generator function runs nothing .* yields.* Take its"):
            cluster.program(main)
        program = cluster.program(lambda clients: main(clients))
        cluster.advance(1)
        assert "runs nothing of its body" in str(program.error) and not program.returned


def test_only_its_own_thread_may_wait() -> None:
    told: list[Exception] = []

    def main(clients: Any) -> None:
        def beside() -> None:
            try:
                clients.httpx().get(MAPS)
            except ClusterError as error:
                told.append(error)

        other = threading.Thread(target=beside)
        other.start()
        other.join()

    with Cluster(clock="virtual") as cluster:
        assert cluster.program(main).error is None
        cluster.advance(1)
    assert "has one thread" in str(told[0])


def test_clients_of_the_other_form_are_refused_by_name() -> None:
    async def asks(clients: Any) -> None:
        clients.kubernetes()

    async def asks_for_kr8s(clients: Any) -> None:
        await clients.kr8s_asyncio()

    with Cluster(clock="virtual") as cluster:
        for main, said in ((asks, "a plain function; this one is asynchronous"), (asks_for_kr8s, "in real time only")):
            program = cluster.program(main)
            cluster.advance(0.01)
            assert said in str(program.error)
            program.stop()


SWALLOWS = """
import sys, threading, time
from contextlib import suppress
from minikube_py import Cluster
from minikube_py.cluster.aimed_faults import Aimed
from minikube_py.cluster.explore import run_once
from minikube_py.sim.faults import Fault

def bare(clients):
    while True:
        try:
            time.sleep(1)
        except:
            pass

def by_base(clients):
    http = clients.httpx()
    while True:
        with suppress(BaseException):
            http.post("/api/v1/namespaces/default/configmaps", json={"metadata": {"generateName": "a-"}})
            time.sleep(1)

def in_a_watch(clients):
    http = clients.httpx()
    while True:
        try:
            with http.stream("GET", "/api/v1/pods", params={"watch": "true"}) as response:
                for _ in response.iter_lines():
                    pass
        except BaseException:
            continue
        finally:
            with suppress(BaseException):
                time.sleep(1)

def crash(cluster, program):
    program.crash()
    cluster.advance(5)

def stop(cluster, program):
    program.stop()
    cluster.advance(5)

def end(cluster, program):
    pass

for main in (bare, by_base, in_a_watch):
    for way in (crash, stop, end):
        try:
            with Cluster(nodes=0, clock="virtual") as cluster:
                program = cluster.program(main)
                cluster.advance(3)
                way(cluster, program)
        except Exception as error:
            print(main.__name__, way.__name__, type(error).__name__, error)

def test(cluster):
    cluster.program(by_base)
    cluster.advance(30)

fault = Aimed(Fault(5_000_000, "crash_client", amount=0))
for faults in ((), (fault,)):
    print("explored", repr(run_once(test, 1, faults).error))
def well(clients):
    time.sleep(1)
with Cluster(nodes=0, clock="virtual") as cluster:
    program = cluster.program(well)
    cluster.advance(2)
    print("well", program.returned)
"""


@pytest.mark.timeout(120)
def test_one_that_cannot_be_killed_is_named_and_everything_ends() -> None:
    done = subprocess.run([sys.executable, "-c", SWALLOWS], capture_output=True, text=True, timeout=100)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    for line in lines[:9]:
        main, _, said = line.split(maxsplit=2)
        assert said.startswith("SimFailure at ") and f"the program {main} cannot be killed: it catches that" in said
    assert [line.split()[0] for line in lines] == 3 * ["bare"] + 3 * ["by_base"] + 3 * ["in_a_watch"] + [
        "explored", "explored", "well",
    ]  # fmt: skip
    # The calm one at its end, the other where it crashes.
    at_s = [float(line.split("SimFailure('at ")[1].split()[0]) for line in lines[9:11]]
    assert at_s[0] > 30 and 5 < at_s[1] < 30
    assert all("the program by_base cannot be killed" in line for line in lines[9:11]) and lines[11] == "well True"


def takes_one_for_both(clients: Any) -> None:
    """Wrong: if it ends between its writes, the second is never done."""
    http = clients.httpx()
    while True:
        if http.get(f"{MAPS}/first").status_code == 404:
            for name in ("first", "second"):
                http.post(MAPS, json={"metadata": {"name": name}}).raise_for_status()
        time.sleep(1)


def looks_for_both(clients: Any) -> None:
    http = clients.httpx()
    while True:
        for name in ("first", "second"):
            if http.get(f"{MAPS}/{name}").status_code == 404:
                http.post(MAPS, json={"metadata": {"name": name}}).raise_for_status()
        time.sleep(1)


def test_a_plain_operator_is_explored() -> None:
    def outcome(main: Callable[[Any], None], *faults: Aimed) -> Outcome:
        def test(cluster: Cluster) -> None:
            cluster.program(main)
            cluster.wait("cm/second", timeout_s=30)

        return run_once(test, 7, faults)

    between = Aimed(Fault(0, "crash_client", amount=1))
    wrong, again = outcome(takes_one_for_both, between), outcome(takes_one_for_both, between)
    assert not wrong.passed and wrong.timeline.lines() == again.timeline.lines()
    assert outcome(takes_one_for_both).passed and outcome(looks_for_both, between).passed
