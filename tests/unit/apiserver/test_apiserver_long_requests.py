"""No request holds the loop for long: each hostile and each large one, with its work counted turn by turn.

Bodies come at two sizes: the largest that the loop works on, and 256 KiB, which workers take. What the loop does
for either, from the head of the request to its answer and to the watches that see it, is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from turns import Elsewhere, Turns

from minikube_py.api import go_json
from minikube_py.api.errors import StatusError
from minikube_py.apiserver import forms
from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.messages import Request, parse_query
from tests.support.api_core import Core
from tests.support.hostile import CHANGES, Hostile, at_the_edge, bodies, goes_elsewhere, prepare, small, stored_by

LINES_MAX = 150_000
"""Some 5 ms of CPU without tracing."""
CODED_BYTES_MAX = 13 << 18
"""Of JSON read and written in C by one turn: up to 13 ms where it is all small values."""
LARGEST = 256 << 10


async def answered(core: Core, one: Hostile) -> None:
    """To the last byte; a watch up to what is there when it begins."""
    path, _, query = one.path.partition("?")
    try:
        terms = parse_query(query)
    except StatusError:
        return
    asked = Request(one.method, path, terms, one.body, ADMIN, one.accept, one.content_type)
    response = await core.api.handle(asked)
    for _ in response.pieces or ():
        await core.clock.sleep(0)
    if response.stream is not None:
        while response.stream.starting and await response.stream.next():
            await core.clock.sleep(0)
        response.stream.close()


async def worst(core: Core, asked: Iterable[Hostile]) -> tuple[list[tuple[str, int, int]], int]:
    """What goes beyond the bounds: name, lines, bytes; and how many jobs went elsewhere."""
    beyond, jobs = [], 0
    for one in asked:
        turns = Turns()
        core.api.hand_work_to(work := Elsewhere(turns))
        undo = Hostile("undo", "DELETE", one.undo)
        await turns.of(answered(core, one))
        if one.undo:
            await turns.of(answered(core, undo))
        jobs += work.jobs
        if turns.most > LINES_MAX or turns.most_bytes > CODED_BYTES_MAX:
            beyond.append((one.name, turns.most, turns.most_bytes))
    return beyond, jobs


async def test_no_body_that_the_loop_works_on_holds_it_for_long(core: Core) -> None:
    await prepare(core.api, 5, 5, 0)
    edges = [one for one in at_the_edge(goes_elsewhere) if one.body]
    assert len(edges) > 90
    beyond, jobs = await worst(core, edges)
    # Some patches of what is there, which is larger than what they were judged by.
    assert beyond == [] and jobs < len(edges) / 3


async def test_no_body_of_256_kib_holds_the_loop_for_long(core: Core) -> None:
    await prepare(core.api, 5, 5, 0)
    beyond, jobs = await worst(core, [one for one in bodies(LARGEST) if one.body])
    assert beyond == [] and jobs > 80


async def test_no_list_or_watch_holds_the_loop_for_long(core: Core) -> None:
    await prepare(core.api, 600, 600, 1)
    beyond, _ = await worst(core, small())
    assert beyond == []


@pytest.mark.parametrize("name", CHANGES)
def test_the_metadata_of_a_large_object_are_cut_out_as_they_stand(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = go_json.escaped(stored_by(CHANGES[name], 40_000))
    assert len(value) > forms.DECODED_BYTES_MAX
    cut_out = forms.partial_bytes(value, 7, "v1")
    monkeypatch.setattr(forms, "DECODED_BYTES_MAX", len(value))
    assert cut_out == forms.partial_bytes(value, 7, "v1")
