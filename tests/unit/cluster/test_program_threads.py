"""What runs on other threads reaches no program in virtual time: it runs inline, or is refused by name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio.to_thread
import pytest

from minikube_py import Cluster, SimFailure

pytestmark = [
    pytest.mark.real_time("threads beside a cluster in virtual time"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
Main = Callable[[Any], Coroutine[Any, Any, None]]


async def posts(clients: Any, name: str) -> None:
    async with clients.httpx_asyncio() as http:
        await http.post("/api/v1/namespaces/default/configmaps", json={"metadata": {"name": name}})


async def by_asyncio(clients: Any) -> None:
    await posts(clients, await asyncio.to_thread(lambda: threading.current_thread().name.lower()))


async def by_anyio(clients: Any) -> None:
    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(posts, clients, f"of-{number}")
        limiter = anyio.CapacityLimiter(1)
        name = await anyio.to_thread.run_sync(lambda: threading.current_thread().name, limiter=limiter)
    await posts(clients, name.lower())


@pytest.mark.parametrize("main", [by_asyncio, by_anyio])
def test_what_these_run_in_a_thread_runs_inline_and_repeats(main: Main) -> None:
    own, digests = anyio.to_thread.run_sync, []
    for _ in range(3):
        with Cluster(nodes=0, clock="virtual", seed=5) as cluster:
            program = cluster.program(main)
            cluster.wait("cm/mainthread")
            cluster.advance(1)
            assert program.returned and program.error is None
            digests.append(cluster.digest)
            assert anyio.run(anyio.to_thread.run_sync, threading.current_thread) is not threading.current_thread()
    assert digests[0] == digests[1] == digests[2]
    assert anyio.to_thread.run_sync is own


def elsewhere(call: Callable[..., object], *given: object) -> None:
    """On another thread, to its end, which the simulation waits for; it is refused there."""

    def refused() -> None:
        with pytest.raises(NotImplementedError):
            call(*given)

    other = threading.Thread(target=refused, name="other")
    other.start()
    other.join()


async def by_hand(clients: Any) -> None:
    loop = asyncio.get_running_loop()
    elsewhere(loop.call_soon_threadsafe, print)
    await asyncio.Event().wait()


async def by_a_coroutine(clients: Any) -> None:
    loop = asyncio.get_running_loop()
    coroutine = posts(clients, "never")

    elsewhere(asyncio.run_coroutine_threadsafe, coroutine, loop)
    coroutine.close()
    await asyncio.Event().wait()


async def by_a_call(clients: Any) -> None:
    elsewhere(asyncio.get_running_loop().call_soon, print)
    await asyncio.Event().wait()


async def by_a_timer(clients: Any) -> None:
    elsewhere(asyncio.get_running_loop().call_later, 1, print)
    await asyncio.Event().wait()


async def by_a_task(clients: Any) -> None:
    coroutine = posts(clients, "never")
    elsewhere(asyncio.get_running_loop().create_task, coroutine)
    coroutine.close()
    await asyncio.Event().wait()


async def by_the_end_of_a_task(clients: Any) -> None:
    task = asyncio.create_task(asyncio.Event().wait())
    elsewhere(task.cancel)
    await task


async def by_a_result(clients: Any) -> None:
    elsewhere(asyncio.get_running_loop().create_future().set_result, 1)
    await asyncio.Event().wait()


async def by_an_exception(clients: Any) -> None:
    elsewhere(asyncio.get_running_loop().create_future().set_exception, ValueError())
    await asyncio.Event().wait()


async def by_the_end_of_a_future(clients: Any) -> None:
    elsewhere(asyncio.get_running_loop().create_future().cancel)
    await asyncio.Event().wait()


async def by_a_future_that_is_awaited(clients: Any) -> None:
    """Not made by the loop, as those that libraries make."""
    future = asyncio.Future[int]()
    waiting = asyncio.create_task(asyncio.wait((future,)))
    # The order of what is ready is drawn: it has begun to wait only once time passes.
    await asyncio.wait((waiting,), timeout=1)
    elsewhere(future.set_result, 1)
    await waiting


@pytest.mark.parametrize(
    "main",
    [by_hand, by_a_coroutine, by_a_call, by_a_timer, by_a_task, by_the_end_of_a_task, by_a_result, by_an_exception,
     by_the_end_of_a_future, by_a_future_that_is_awaited],
)  # fmt: skip
@pytest.mark.parametrize("as_program", [True, False])
def test_a_call_from_another_thread_is_refused_in_the_test(main: Main, as_program: bool) -> None:
    said = r"(by_|cluster).*: a simulated loop takes no call from another thread \(here: other\).* asyncio.to_thread"
    with pytest.raises(SimFailure, match=said), Cluster(nodes=0, clock="virtual") as cluster:
        if as_program:
            cluster.program(main)
        else:
            cluster.run(lambda: main(None))
        cluster.wait("cm/never", timeout_s=5)


@pytest.mark.parametrize("done_before", [True, False])
def test_an_executor_of_its_own_is_refused_done_or_not(done_before: bool) -> None:
    async def main(clients: Any) -> None:
        going = executor.submit(release.wait)
        if done_before:
            release.set()
            going.result()
        await asyncio.wrap_future(going)

    release = threading.Event()
    with ThreadPoolExecutor(1) as executor, Cluster(nodes=0, clock="virtual") as cluster:
        program = cluster.program(main)
        cluster.advance(0.01)
        release.set()
        assert "takes no call from another thread" in str(program.error)
        program.stop()


def test_a_plain_program_may_call_a_loop_that_it_takes_turns_with() -> None:
    """kopf posts events so, from handlers that are plain functions."""
    from minikube_py.cluster.program_plain import Baton

    told: list[str] = []

    async def main(clients: Any) -> None:
        loop = asyncio.get_running_loop()
        await Baton(lambda: loop.call_soon_threadsafe(told.append, "called"), clients.transport).carry()
        await asyncio.sleep(1)

    with Cluster(nodes=0, clock="virtual") as cluster:
        program = cluster.program(main)
        cluster.advance(2)
        assert program.returned and told == ["called"]
