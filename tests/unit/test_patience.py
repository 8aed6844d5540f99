"""Who waits long asks seldom, and yet learns of it soon."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from patience import PAUSE_MAX_S, PAUSE_S, next_pause_s, until


def test_pauses_grow_with_the_wait() -> None:
    waited_s, asked = 0.0, 0
    while waited_s < 60:
        pause_s = next_pause_s(waited_s)
        assert PAUSE_S <= pause_s <= max(PAUSE_S, waited_s / 20) and pause_s <= PAUSE_MAX_S
        waited_s, asked = waited_s + pause_s, asked + 1
    assert asked < 1500 < 60 / PAUSE_S / 5
    assert next_pause_s(0, 0.5) == next_pause_s(60, 0.5) == 0.5, "who asks for longer pauses has them"


async def test_in_virtual_time_it_is_asked_as_often_as_ever() -> None:
    times: list[float] = []
    loop = asyncio.get_running_loop()
    await until(lambda: times.append(loop.time()) or len(times) == 300)
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == [pytest.approx(PAUSE_S, abs=0.001)] * 299
