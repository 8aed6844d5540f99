"""Complete runs on the simulated loop: from a main coroutine to its result, with nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

from minikube_py.env import ended
from minikube_py.sim.loop import LoopOptions, Scheduler, SimLoop
from minikube_py.sim.replaced import frozen

T = TypeVar("T")


def run(
    main: Callable[[], Coroutine[Any, Any, T]],
    seed: object = 0,
    options: LoopOptions | None = None,
    trace: Callable[[str], None] | None = None,
) -> T:
    """Like `asyncio.run(main())`, in virtual time; remaining tasks are cancelled at the end.

    Raises: SimFailure."""
    scheduler = Scheduler(seed, options)
    scheduler.trace = trace
    loop = SimLoop(scheduler)
    return run_on(loop, main)


def run_on(loop: SimLoop, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """As `run`, on an existing loop."""
    outcome: list[asyncio.Task[T]] = []

    over: list[None] = []

    async def whole() -> None:
        try:
            task = loop.create_task(main(), name="main")
            await asyncio.wait((task,))
            outcome.append(task)
            await cancel_others(loop)
        finally:
            over.append(None)

    root: list[asyncio.Task[None]] = []
    loop.call_soon(lambda: root.append(loop.create_task(whole(), name="root")))
    with frozen():
        try:
            loop.scheduler.run(over.__len__)
            root[0].result()
            # Marks its exception as seen.
            if not outcome[0].cancelled():
                outcome[0].exception()
        finally:
            loop.scheduler.finish()
    return outcome[0].result()


async def cancel_others(loop: SimLoop) -> None:
    """All tasks except the calling one."""
    await cancel_all(loop, but=cast(asyncio.Task[Any], asyncio.current_task()))


async def cancel_all(loop: SimLoop, but: asyncio.Task[Any]) -> None:
    """As asyncio.run does at its end. Another exception of a cancelled task fails the run."""
    tasks = [task for task in loop.tasks() if task is not but]
    for task in tasks:
        task.cancel()
    await ended(*tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler({"message": "raised while it ended", "exception": error, "task": task})
