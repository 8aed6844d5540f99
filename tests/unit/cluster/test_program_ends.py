"""However a program under test ends, it ends alone: it is restarted as its kubelet would, and the cluster goes on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from minikube_py import Cluster

RAISED: list[Callable[[], BaseException]] = [
    lambda: ValueError("bad"),
    lambda: MemoryError(),
    lambda: SystemExit(2),
    lambda: KeyboardInterrupt(),
    lambda: asyncio.CancelledError(),
    lambda: GeneratorExit(),
    lambda: BaseExceptionGroup("several", [SystemExit(1), ValueError("bad")]),
    lambda: ExceptionGroup("several", [ValueError("bad")]),
]
Main = Callable[[Any], Coroutine[Any, Any, None]]


def at_once(made: Callable[[], BaseException]) -> Main:
    async def main(_: Any) -> None:
        await asyncio.sleep(1)
        raise made()

    return main


def by_itself(made: Callable[[], BaseException]) -> Main:
    async def main(_: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    return main


def in_a_group(made: Callable[[], BaseException]) -> Main:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise made()

    async def main(_: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            await asyncio.sleep(2)
            raise ValueError("a task that is cancelled does not end its group")

    return main


@pytest.mark.parametrize("kind", [at_once, by_itself, in_a_group])
@pytest.mark.parametrize("made", RAISED, ids=lambda made: type(made()).__name__)
def test_it_is_restarted_and_its_error_is_known(kind: Callable[..., Main], made: Callable[[], BaseException]) -> None:
    with Cluster(nodes=0, clock="virtual") as cluster:
        program = cluster.program(kind(made))
        cluster.advance(0.5)
        assert (program.starts == 1 and program.error is None) or kind is by_itself
        cluster.advance(60)
        assert program.starts > 2 and program.error is not None and not program.returned
        assert len(cluster.objects("namespaces")) == 4


@pytest.mark.parametrize("code", [None, 0, 1, "why"])
def test_a_background_task_that_exits_ends_its_process_alone(code: object) -> None:
    async def exits() -> None:
        await asyncio.sleep(1)
        raise SystemExit(code)

    async def main(_: Any) -> None:
        task = asyncio.create_task(exits())
        await asyncio.sleep(2)
        raise ValueError(f"never reached, {task}")

    with Cluster(nodes=0, clock="virtual") as cluster:
        program = cluster.program(main)
        cluster.advance(60)
        assert len(cluster.objects("namespaces")) == 4
        if code:
            assert program.starts > 2 and str(program.error) == f"SystemExit: {code}"
        else:
            assert program.returned and program.starts == 1 and program.error is None


def test_a_long_run_ends_the_growth_of_the_delays() -> None:
    async def main(_: Any) -> None:
        began_s.append(cluster.now_s)
        await asyncio.sleep(lasts_s[0])
        raise ValueError("bad")

    began_s: list[float] = []
    lasts_s = [1.0]
    with Cluster(nodes=0, clock="virtual") as cluster:
        cluster.program(main)
        cluster.advance(300)
        short = [round(after - before - lasts_s[0], 6) for before, after in itertools.pairwise(began_s)]
        assert short == sorted(short) and short[-1] > 10
        lasts_s[0], began_s[:] = 700.0, []
        cluster.advance(10_000)
        # The first of them is still about the run before.
        long = [round(after - before - lasts_s[0], 6) for before, after in itertools.pairwise(began_s)]
        assert len(long) > 5 and max(long) < 1
