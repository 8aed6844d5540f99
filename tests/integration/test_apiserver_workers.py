"""Worker processes: what they answer, and what becomes of those that end, or take too long, or too much memory."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from patience import patience, until

from minikube_py.api.errors import StatusError
from minikube_py.apiserver import workers as workers_module
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.preparing import Body
from minikube_py.apiserver.workers import FRESH_MAX, Workers
from tests.support.api_core import Core

MAPS = ("", "v1", "configmaps")


def body(text: bytes) -> Body:
    return Body(MAPS, text, "application/json", "Strict", "default", "")


@pytest_asyncio.fixture
async def workers() -> AsyncIterator[Callable[..., Workers]]:
    made: list[Workers] = []

    def make(**limits: Any) -> Workers:
        made.append(Workers(Limits(**limits)))
        return made[-1]

    yield make
    for each in made:
        each.close()


async def test_a_job_is_done_or_refused_as_here(workers: Callable[..., Workers]) -> None:
    pool = workers()
    made = await pool.run("create", body(b'{"metadata":{"name":"a"},"data":{"b":"c"}}'), 0.0, 1)
    assert made.name == "a" and b'"data":{"b":"c"}' in made.value
    with pytest.raises(StatusError, match="unexpected end of JSON input") as refused:
        await pool.run("create", body(b"{"), 0.0, 1)
    assert refused.value.code == 400
    made = await pool.run("create", body(b'{"metadata":{"name":"A_"}}'), 0.0, 1)
    assert made.refusal.code == 422
    assert (pool.done, len(pool._all)) == (3, 1)


async def test_a_worker_that_ended_is_replaced(workers: Callable[..., Workers]) -> None:
    pool = workers()
    await pool.run("create", body(b'{"metadata":{"name":"a"}}'), 0.0, 1)
    (worker,) = pool._all
    worker._process.kill()
    await asyncio.to_thread(worker._process.wait)
    assert (await pool.run("create", body(b'{"metadata":{"name":"a"}}'), 0.0, 1)).name == "a"
    assert pool._all and worker not in pool._all


async def test_idle_workers_that_end_are_gone_at_once(workers: Callable[..., Workers]) -> None:
    pool = workers(workers_max=4)
    given = body(b'{"metadata":{"name":"a"}}')
    await asyncio.gather(*(pool.run("create", given, 0.0, 1) for _ in range(4)))
    ended = set(pool._all)
    for worker in ended:
        worker._process.kill()
    # Whoever asks before the loop has heard of it is served all the same.
    assert (await pool.run("create", given, 0.0, 1)).name == "a"
    await until(lambda: len(pool._all) == 1)
    assert not pool._all & ended and pool._idle == list(pool._all)


@pytest.mark.parametrize("kills", range(FRESH_MAX + 1))
async def test_a_request_outlives_the_processes_that_work_on_it(workers: Callable[..., Workers], kills: int) -> None:
    """One is idle when the job comes; each that gets it is ended in the middle of it."""
    pool = workers(workers_max=1)
    await pool.run("create", body(b'{"metadata":{"name":"a"}}'), 0.0, 1)
    values = b",".join(b'"k%d":"v"' % number for number in range(40_000))
    asking = asyncio.create_task(pool.run("create", body(b'{"metadata":{"name":"b"},"data":{%s}}' % values), 0.0, 1))
    ended: set[object] = set()
    for _ in range(kills):
        await until(lambda: bool(pool._all - ended))
        (worker,) = pool._all - ended
        ended.add(worker)
        worker._process.kill()
    assert (await asking).name == "b"
    assert pool.lost == kills


async def test_a_job_that_ends_every_process_is_refused_in_the_end(
    workers: Callable[..., Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "module_command", lambda name: [sys.executable, "-c", ""])
    pool = workers()
    with pytest.raises(StatusError, match=f"{FRESH_MAX} processes .* have ended on this one") as refused:
        await pool.run("create", body(b"{}"), 0.0, 1)
    assert refused.value.code == 500 and pool.lost == FRESH_MAX and not pool._all


async def test_a_job_that_takes_too_long_is_ended_with_its_worker(workers: Callable[..., Workers]) -> None:
    pool = workers(job_timeout_s=0.01)
    with pytest.raises(StatusError, match=r"did not complete within 0\.01 s of work") as refused:
        await pool.run("read", body(b"[" * 10_000_000))
    assert refused.value.code == 504
    assert not pool._all and pool.killed == 1


async def test_few_may_wait(workers: Callable[..., Workers]) -> None:
    pool = workers(workers_max=1, jobs_waiting_max=1)
    given = body(b'{"metadata":{"name":"a"}}')
    found = await asyncio.gather(*(pool.run("create", given, 0.0, 1) for _ in range(4)), return_exceptions=True)
    refused = [each for each in found if isinstance(each, StatusError)]
    assert len(refused) == 2 and {(each.code, each.retry_after_s) for each in refused} == {(429, 1)}
    assert "1 wait, which is the limit" in refused[0].message


async def test_a_job_that_cannot_be_done_is_no_fault_of_the_others(workers: Callable[..., Workers]) -> None:
    pool = workers()
    with pytest.raises(StatusError) as refused:
        await pool.run("no such job")
    assert refused.value.code == 500
    assert (await pool.run("create", body(b'{"metadata":{"name":"a"}}'), 0.0, 1)).name == "a"
    assert len(pool._all) == 1


async def test_large_requests_over_a_connection_go_to_a_worker(tmp_path: Path) -> None:
    core = await Core(tmp_path).start()
    http = HttpServer(core.api)
    port = await http.start()
    path = "/api/v1/namespaces/default/configmaps"
    sent = json.dumps({"metadata": {"name": "a"}, "data": {f"k{i}": "v" for i in range(20_000)}}).encode()
    status, answer = await _post(port, path, sent)
    assert status == 201 and len(answer["data"]) == 20_000
    assert (await _post(port, path, sent))[0] == 409
    metrics = http.metrics()
    assert (metrics["apiserver_worker_jobs_total"], metrics["apiserver_workers"]) == (2, 1)
    await core.api.stop()
    await http.stop()
    await core.member.stop()
    assert not http._workers._all  # type: ignore[union-attr]


async def _post(port: int, path: str, sent: bytes) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n".encode() + sent)
    async with patience():
        answer = await reader.read()
    writer.close()
    return int(answer[9:12]), json.loads(answer.partition(b"\r\n\r\n")[2])
