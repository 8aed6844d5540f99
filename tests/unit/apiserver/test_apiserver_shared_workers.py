"""Worker processes are shared: nobody's large requests wait for all of another's."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from minikube_py.api import yaml_text
from minikube_py.api.errors import StatusError
from minikube_py.api.registry import REGISTRY
from minikube_py.apiserver import forms, work, yaml_lists
from minikube_py.apiserver.workers import Places


async def settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_places_go_to_one_user_after_the_other_and_who_leaves_takes_none() -> None:
    places, order = Places(1, 100), list[str]()

    async def job(user: str, name: str) -> None:
        await places.take(user)
        order.append(name)
        await asyncio.sleep(0)
        places.give()

    await places.take("busy")
    jobs = [asyncio.ensure_future(job("busy", f"busy {at}")) for at in range(5)]
    await settled()
    jobs += [asyncio.ensure_future(job(user, user)) for user in ("one", "two")]
    await settled()
    jobs[1].cancel()
    await settled()
    assert order == []
    places.give()
    await asyncio.gather(*jobs, return_exceptions=True)
    assert order == ["busy 0", "one", "two", "busy 2", "busy 3", "busy 4"]
    assert places.waiting == 0
    await asyncio.wait_for(places.take("last"), 5)


async def test_who_no_longer_waits_is_not_counted() -> None:
    places = Places(0, 2)
    gone = [asyncio.ensure_future(places.take("busy")) for _ in range(2)]
    await settled()
    for each in gone:
        each.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    assert places.waiting == 0
    waiting = asyncio.ensure_future(places.take("busy"))
    await settled()
    places.give()
    await asyncio.wait_for(waiting, 5)


async def test_whoever_waits_most_makes_room_for_others() -> None:
    places = Places(0, 4)
    busy = [asyncio.ensure_future(places.take("busy")) for _ in range(4)]
    await settled()
    with pytest.raises(StatusError, match="4 wait, which is the limit") as refused:
        await places.take("busy")
    assert refused.value.code == 429
    others = [asyncio.ensure_future(places.take("other")) for _ in range(2)]
    await settled()
    assert [each.done() for each in busy] == [False, False, True, True] and not any(each.done() for each in others)
    with pytest.raises(StatusError, match="which is the limit"):
        await busy[3]
    with pytest.raises(StatusError):
        await places.take("other")
    for each in (*busy[:2], *others):
        each.cancel()
    await asyncio.gather(*busy, *others, return_exceptions=True)
    for _ in range(4):
        places.give()
    assert places.waiting == 0


class Counted(work.WorkHere):
    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    async def run(self, job: str, *given: object) -> object:
        if given[:2] != ("yaml_lists", "parts"):
            self.sizes.append(max(len(each) for each in given if isinstance(each, bytes)))
        return await super().run(job, *given)


@pytest.mark.parametrize("more", [{}, {"zones": ["a"]}])
async def test_a_large_list_becomes_the_same_yaml_in_parts(more: dict[str, list[str]]) -> None:
    metadata = {"resourceVersion": "7"}
    items = [{"metadata": {"name": f"é{at}"}, "data": {"a: b": "x\n" * (at % 9)}, "l": [[], {}]} for at in range(6000)]
    counted, form = Counted(), forms.Form(media_type=forms.YAML)
    for some in (items, items[:1], []):
        value = {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": some, **more}
        whole = orjson.dumps(value) + b" " * work.YAML_BYTES_AT_ONCE
        assert await work.in_form(whole, form, counted) == yaml_text.write(value)
    assert len(counted.sizes) > 5 and max(counted.sizes[:-1]) < yaml_lists.PART_BYTES + 1000
    assert yaml_lists.parts(REGISTRY, b"[1]") == [(False, b"[1]")]
