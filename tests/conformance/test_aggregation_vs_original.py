"""Aggregation beside upstream's: the same APIServices on both servers, which ask the same other server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent)]

import judging  # noqa: E402
import needs  # noqa: E402
import ours  # noqa: E402
from aggregation_cases import Step, of_another_server, of_definitions, plain  # noqa: E402
from asking import Answer, Server  # noqa: E402
from extension_server import extension  # noqa: E402
from patience import Deadline  # noqa: E402

PAUSE_S = 0.1


async def _answer(server: Server, step: Step) -> Answer:
    deadline = Deadline(within_s=90)
    while True:
        found = await asyncio.to_thread(server.ask, step.ask)
        text = found.body.decode()
        if not step.until or (step.until in text) is not step.gone:
            return found._replace(body=plain(text).encode())
        deadline.check(f"{step.ask.shown()}: {step.until!r}\n{text[:2000]}")
        await asyncio.sleep(PAUSE_S)


async def _judged(steps: Iterator[Step]) -> None:
    report = judging.Report()
    with (
        needs.original() as upstream, ours.serve(()) as local,
        Server(upstream["url"], upstream["token"]) as theirs, Server(local["url"], local["token"]) as mine,
    ):  # fmt: skip
        for step in steps:
            report.take(step.ask, *[await _answer(server, step) for server in (theirs, mine)])
    print(report.counts())
    assert not report.findings, f"{report.text(60)}\n{report.counts()}"


@pytest.mark.original
@pytest.mark.timeout(600)
async def test_apiservices_of_definitions_live_as_upstreams() -> None:
    await _judged(of_definitions())


@pytest.mark.original
@pytest.mark.timeout(600)
async def test_another_server_is_reached_as_by_upstream(tmp_path: Path) -> None:
    async with extension(tmp_path / "other") as other:
        await _judged(of_another_server(other))
