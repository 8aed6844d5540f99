"""Final questions to the members once all is healthy: ordinary reads, reads past the planner, and their contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgpack

from minikube_py.env import Rng
from minikube_py.errors import RequestError
from minikube_py.mvcc.snapshot import rest_hash
from minikube_py.mvcc.types import RangeRequest
from minikube_py.sim import declared_fields
from minikube_py.sim.checkers.convergence import MemberView
from minikube_py.sim.history import Operation, Status
from minikube_py.sim.indexing import answers, build_all
from minikube_py.sim.recorder import Recorder
from minikube_py.sim.workload import ALL, NODE_RANGE, WHERES
from minikube_py.store.member import StoreMember

AUDITOR: Final = 1000
"""The client name of these reads in the history."""


class Audit:
    """Audits `members`, the leader first, all of which have applied the same. `asked_of_indexes` counts."""

    def __init__(self, seed: object, members: Sequence[StoreMember], recorder: Recorder) -> None:
        self._members = members
        self._recorder = recorder
        self._rng = Rng(f"audit {seed}")
        self._state = members[0].state
        self._oldest = max(self._state.compact_revision, 1)
        self.asked_of_indexes = 0

    def build(self) -> str:
        """Builds all declared indexes; returns why it does not finish, "" if it does."""
        for member in self._members:
            unbuilt = build_all(member.state)
            if unbuilt:
                return f"member {member.member_id:x}: {unbuilt}"
            member.tables_changed()
        return ""

    def ask(self) -> None:
        """Asks each for all keys, and about objects, now and in the past. All are up to date, so each must know
        everything answered before."""
        rng = self._rng
        past = sorted({rng.randint(self._oldest, self._state.revision) for _ in range(5)})
        requests = [RangeRequest(ALL, ALL), *(RangeRequest(ALL, ALL, revision=revision) for revision in past[:2])]
        wheres = [RangeRequest(*NODE_RANGE, revision=at, where=where) for where in WHERES for at in (0, *past)]
        # Some of these fields are declared; the others are refused.
        for where in declared_fields.WHERES:
            wheres += [RangeRequest(*NODE_RANGE, revision=at, where=where) for at in (0, rng.choice(past))]
        for where in (*WHERES, *declared_fields.WHERES):
            requests += [RangeRequest(*NODE_RANGE, revision=at, where=where) for at in (0, rng.choice(past))]
        for member in self._members:
            for request in requests:
                self._ask(member, request)
            for request in wheres:
                self._ask_indexes(member, request)

    def _ask(self, member: StoreMember, request: RangeRequest) -> None:
        try:
            self._told(request, "done", member.state.range(request), None)
        except RequestError as error:
            self._told(request, "refused", None, error)

    def _ask_indexes(self, member: StoreMember, request: RangeRequest) -> None:
        """Queries each index directly, because the planner might not have used it."""
        for result, error in answers(member.state, request):
            self._told(request, "done" if error is None else "refused", result, error)
            self.asked_of_indexes += 1

    def _told(self, request: RangeRequest, status: Status, result: object, error: RequestError | None) -> None:
        recorder = self._recorder
        now_us = recorder.now_us()
        told = Operation(AUDITOR, now_us, recorder.now_us(), request, status, result, error)  # type: ignore[arg-type]
        recorder.history.operations.append(told)

    def views(self) -> list[MemberView]:
        state, rng = self._state, self._rng
        revisions = [state.revision, *(rng.randint(self._oldest, state.revision) for _ in range(3))]
        return [_view(member, revisions) for member in self._members]


def _view(member: StoreMember, revisions: Sequence[int]) -> MemberView:
    state = member.state
    return MemberView(
        member.member_id,
        member.raft.log.applied,
        state.revision,
        state.compact_revision,
        {revision: state.hash(revision) for revision in revisions if revision >= state.compact_revision},
        tuple(state.range(RangeRequest(ALL, ALL)).kvs),
        tuple(state.leases()),
        # In the form that other members read: tuples that were applied are lists once restored.
        tuple([repr(msgpack.unpackb(msgpack.packb(record))) for record in state.sessions.records()]),
        rest_hash(state),
    )
