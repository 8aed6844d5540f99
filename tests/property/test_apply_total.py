"""Whatever the log holds, apply refuses it or does it: on every member alike, and again at the next start.

Two machines apply what was drawn, in its packed form as a log holds it; a third is restored from a snapshot half way.
Queries go to the tables and to a scan that decodes every object; they must agree.
"""

from __future__ import annotations

from typing import Any

import edges
import msgpack
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest, RequestError, SessionExpired
from minikube_py.fields.builtin import NODES, PODS
from minikube_py.mvcc.codec import pack, to_plain, unpack
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import DeclareFields, Put, RangeRequest, Txn

DECLARED = [pack(DeclareFields(NODES)), pack(DeclareFields(PODS))]
HISTORIES = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def apply(state: StateMachine, data: bytes) -> Any:
    """The plain reply, or the plain refusal; anything else that is raised is a fault."""
    try:
        return to_plain(state.apply(unpack(data)))
    except (RequestError, SessionExpired) as error:
        return to_plain(error)


def restored(state: StateMachine) -> StateMachine:
    return restore([msgpack.unpackb(msgpack.packb(each)) for each in records(state)])


def agree(states: list[StateMachine]) -> None:
    assert len({state.hash() for state in states}) == 1
    assert len({state.hash(state.revision) for state in states}) == 1


def run(log: list[bytes], snapshot_after: int) -> list[StateMachine]:
    states = [StateMachine(), StateMachine()]
    for at, data in enumerate(log):
        assert len({repr(apply(state, data)) for state in states}) == 1
        if at == snapshot_after:
            states.append(restored(states[0]))
        states[1].build_indexes(64)
    agree([*states, restored(states[0])])
    return states


def pod(spec: str, status: str = "{}", at: int = 0) -> bytes:
    value = f'{{"metadata":{{"name":"p{at}"}},"spec":{spec},"status":{status}}}'
    return pack(Put(edges.POD_KEYS[at], value.encode()))


def asking(*requests: str) -> str:
    containers = ",".join(f'{{"resources":{{"requests":{each}}}}}' for each in requests)
    return f'{{"nodeName":"n0","containers":[{containers}]}}'


HUGE = '{"memory":"5Ei"}'


@HISTORIES
@given(st.lists(edges.packed, max_size=12), st.integers(0, 11))
@example([pod(asking('{"cpu":"10P"}'))], 0)
@example([pod(asking(HUGE, HUGE)), pod(asking(HUGE), at=1)], 0)
@example([pod("{}", '{"phase":["Failed"]}')], 0)
@example([pack(Txn(success=(RangeRequest(b"a", b"z", limit=2**63 - 1),)))], 0)
def test_any_command_is_applied_or_refused_on_every_member_alike(log: list[bytes], snapshot_after: int) -> None:
    run([*DECLARED, *log], snapshot_after + 2)


@HISTORIES
@given(st.lists(edges.hostile_bytes, max_size=12))
def test_any_bytes_are_no_command_or_one_that_apply_takes(entries: list[bytes]) -> None:
    log = []
    for data in entries:
        try:
            log.append(pack(unpack(data)))
        except InvalidRequest:
            continue
    run([*DECLARED, *log], 3)
