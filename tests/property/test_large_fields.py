"""Fields of all kinds, drawn from the schema and filled to 250 KB: the server does little in one step of the loop.

`make large-objects` does the same with all fields, in a whole control plane."""

from __future__ import annotations

import random
from pathlib import Path

import orjson
import pytest
from api_core import MERGE, Core
from large_fields import OBJECTS, Filled, Place, places
from turns import Elsewhere, Turns
from virtual_time import run_virtually

SIZE = 250_000
LINES_MAX = 150_000
CODED_BYTES_MAX = 13 << 18
MENDED_MAX = 40
DRAWN = 6
RNG = random.Random("large fields")
KINDS = sorted(set(OBJECTS) - {"services", "events v1", "horizontalpodautoscalers v1"})
"""Not services, whose addresses are allocated on the loop, nor kinds stored in another version."""


def chosen() -> list[Place]:
    kinds = RNG.sample(KINDS, DRAWN)
    return [RNG.choice([place for place in places(kind) if place.type.kind != "string"]) for kind in kinds]


async def mended(core: Core, filled: Filled, path: str) -> bool:
    for _ in range(MENDED_MAX):
        status, answer = await core.ask("POST", f"{path}?dryRun=All", filled.made(2))
        if status < 300:
            return True
        if not filled.mend((answer.get("details") or {}).get("causes") or []):
            return False
    return False


@pytest.mark.parametrize("place", chosen(), ids=str)
def test_no_large_field_holds_the_loop_for_long(place: Place, tmp_path: Path) -> None:
    async def main() -> None:
        core = await Core(tmp_path).start()
        path = OBJECTS[place.plural][0]
        for namespace in ("drawn", "default"):
            await core.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        filled, turns = Filled.of(place, "big"), Turns()
        await mended(core, filled, path)
        one = f"{path}/{filled.base['metadata']['name']}"
        core.api.hand_work_to(Elsewhere(turns))
        for form in (filled, filled.refusable()):
            body = orjson.dumps(form.sized(SIZE))
            assert len(body) < SIZE * 1.1
            await turns.of(core.ask("POST", path, body))
            await turns.of(core.ask("PUT", one, body))
            await turns.of(core.ask("PATCH", one, {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE))
            await turns.of(core.ask("DELETE", f"{one}?gracePeriodSeconds=0"))
        await core.stop()
        assert turns.most < LINES_MAX and turns.most_bytes < CODED_BYTES_MAX, (turns.most, turns.most_bytes)

    run_virtually(main)


def test_what_validation_accepts_is_found(tmp_path: Path) -> None:
    """Of every kind's own fields, a list that it asks something of."""
    wanted = {
        "configmaps": ("data",), "endpoints": ("subsets",), "nodes": ("spec", "taints"), "roles": ("rules",),
        "services": ("spec", "ports"), "networkpolicies": ("spec", "podSelector", "matchExpressions"),
        "limitranges": ("spec", "limits"), "ingresses": ("spec", "tls"),
    }  # fmt: skip

    async def main() -> list[str]:
        core = await Core(tmp_path).start()
        await core.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "drawn"}})
        refused = []
        for plural, steps in wanted.items():
            (place,) = [each for each in places(plural) if each.steps == steps]
            if not await mended(core, Filled.of(place, "big"), OBJECTS[plural][0]):
                refused.append(plural)
        await core.stop()
        return refused

    assert run_virtually(main) == []
