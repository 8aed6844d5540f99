"""No component does much in one step of the loop about a large legal object: counted, not timed."""

from __future__ import annotations

import orjson
import pytest
from large_objects import BYTES_MAX, CASES, Ask, size
from turns import LINES_MAX, Elsewhere, Turns

from minikube_py.client.transport import JSON
from minikube_py.cluster.virtual import VirtualCluster


async def ask(cluster: VirtualCluster, one: Ask) -> None:
    assert size(one) <= BYTES_MAX, one.path
    body = orjson.dumps(one.body) if one.body is not None else b""
    transport = cluster.transport()
    if one.uid_of:
        found = orjson.loads((await transport.request("GET", one.uid_of, None, None, JSON)).body)
        body = body.replace(b"UID", found["metadata"]["uid"].encode())
    answer = await transport.request(one.verb, one.path, None, body or None, one.type or JSON)
    assert answer.status < 300, (one.verb, one.path, answer.body[:300])


@pytest.mark.parametrize("name", CASES)
def test_what_components_do_with_a_large_object_is_bounded(name: str) -> None:
    case = CASES[name]
    turns = Turns()
    with VirtualCluster(seed=name, nodes=case.nodes) as cluster:
        cluster.plane.core.hand_work_to(Elsewhere(turns))
        for one in case.before:
            cluster.run(lambda one=one: ask(cluster, one))
        cluster.advance(case.rest_s)

        async def after() -> None:
            for one in case.after:
                await ask(cluster, one)
                await cluster.clock.sleep(case.rest_s / len(case.after))

        cluster.run(lambda: turns.of(after()))
    assert turns.most < LINES_MAX, turns.most
