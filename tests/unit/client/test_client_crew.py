import asyncio
import random

from step_clock import StepClock

from minikube_py.client.crew import Crew
from minikube_py.client.repeats import Decoded
from minikube_py.client.workqueue import RateLimitingQueue, work


def workers() -> list[str]:
    return sorted(task.get_name() for task in asyncio.all_tasks() if " worker " in task.get_name())


async def test_workers_begin_with_the_work_and_no_more_than_there_may_be() -> None:
    queue: RateLimitingQueue[int] = RateLimitingQueue(StepClock())
    at_work, go_on = list[int](), asyncio.Event()

    async def handle(item: int) -> None:
        at_work.append(item)
        await go_on.wait()

    crew = Crew(3, lambda _: work(queue, handle, lambda *_: None), "q")
    queue.add(0)
    assert workers() == []
    queue.staff(crew)
    assert workers() == ["q worker 0"]
    for item in range(1, 6):
        queue.add(item)
        assert len(workers()) == min(item + 1, 3)
    await asyncio.sleep(0)
    assert at_work == [0, 1, 2]
    go_on.set()
    await queue.shut_down_with_drain()
    assert at_work == [0, 1, 2, 3, 4, 5]
    await queue.close()
    await crew.stop()
    assert workers() == []


async def test_who_waits_is_woken_and_nobody_is_hired() -> None:
    queue: RateLimitingQueue[int] = RateLimitingQueue(StepClock())
    done: asyncio.Queue[int] = asyncio.Queue()
    crew = Crew(9, lambda _: work(queue, done.put, lambda *_: None), "q")
    queue.staff(crew)
    for item in range(20):
        queue.add(item)
        assert await done.get() == item
        await asyncio.sleep(0)
    assert workers() == ["q worker 0"]
    await crew.stop()
    queue.add(20)
    assert workers() == []
    await queue.close()


def test_the_same_bytes_are_decoded_once_among_the_last_ones() -> None:
    decoded = Decoded(bytes_max=100)
    rng = random.Random(1)
    bodies = [b'{"number":%d}' % rng.randrange(10**9) for _ in range(40)]
    assert decoded(bodies[0]) is decoded(bodies[0])
    assert decoded(bytes(bytearray(bodies[0]))) is decoded(bodies[0])
    for body in bodies:
        first = decoded(body)
        assert decoded(body) is first and first == {"number": int(body[10:-1])}
        assert sum(map(len, decoded._kept)) == decoded._bytes <= 100
    large = b'"%s"' % (b"a" * 200)
    assert decoded(large) == "a" * 200 and not decoded._kept
