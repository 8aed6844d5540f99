"""Simulated clients record what they see, and go on after whatever ends a watch."""

from __future__ import annotations

import random
from typing import Any

import pytest

from minikube_py.errors import Compacted, FieldsRedeclared, InvalidRequest, OutcomeUnknown, Unavailable
from minikube_py.mvcc.types import Event, KeyValue, Put, PutResult, RangeRequest, RangeResult, WatchBatch
from minikube_py.sim.clients import Client, Follower, Rivals, Traffic, Watched
from minikube_py.sim.recorder import Recorder
from minikube_py.sim.world import Process, World


class Script:
    """An access that answers what it is given, and keeps what it is asked for."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, str]] = []
        self.watches: list[tuple[int, Any]] = []

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def ask(self, request: Any, serializable: bool, host: str = "") -> Any:
        self.asked.append((request, host))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def watch(self, key: bytes, range_end: bytes, start_revision: int, sink: Any, where: Any) -> Script:
        self.watches.append((start_revision, sink))
        return self

    def cancel(self) -> None:
        pass


def in_a_process(main: Any) -> Recorder:
    """Runs `main(process, recorder)` on a machine of its own for ten seconds."""
    world = World(1)
    recorder = Recorder(world.scheduler)
    world.start("client", lambda process: main(process, recorder))
    world.scheduler.run_to(10_000_000_000)
    return recorder


def followed(*batches: WatchBatch, start_revision: int = 2) -> tuple[Script, Recorder]:
    """Each batch comes over the newest stream."""
    access = Script()

    async def main(process: Process, recorder: Recorder) -> None:
        watched = Watched(b"a", b"", None, start_revision)
        Follower(1, access, recorder, process.clock, random.Random(1), watched).begin(start_revision)
        for batch in batches:
            access.watches[-1][1](batch)
            await process.clock.sleep(1.0)

    return access, in_a_process(main)


EVENT = Event("PUT", KeyValue(b"a", b"v", 2, 3, 1, 0), None)


def test_a_watch_that_breaks_goes_on_after_what_it_saw():
    access, recorder = followed(WatchBatch([EVENT], 4), WatchBatch((), 4, Unavailable("lost")), WatchBatch((), 6))
    assert [start for start, _ in access.watches] == [2, 5]
    [watch] = recorder.history.watches
    assert [part.start_revision for part in watch.parts] == [2, 5] and watch.live and watch.parts[-1].told_until == 6


def test_a_stream_that_has_ended_says_nothing_any_more():
    access, recorder = followed(WatchBatch((), 2, Unavailable("lost")))
    access.watches[0][1](WatchBatch([EVENT], 4))
    assert [len(part.deliveries) for part in recorder.history.watches[0].parts] == [1, 0]


@pytest.mark.parametrize(
    ("error", "start"), [(Compacted(2, 9), 10), (FieldsRedeclared(""), 0)], ids=["compacted", "declared again"]
)
def test_what_cannot_go_on_is_another_watch(error, start):
    access, recorder = followed(WatchBatch((), 4, error))
    assert [watch.live for watch in recorder.history.watches] == [False, True]
    assert [begun for begun, _ in access.watches] == [2, start]


def test_fields_that_nobody_has_declared_may_be_declared_soon():
    access, recorder = followed(WatchBatch((), 0, InvalidRequest("not declared")))
    assert len(access.watches) == 2 and len(recorder.history.watches) == 1


def asked(traffic: Traffic, access: Script, roaming: Script) -> Recorder:
    async def main(process: Process, recorder: Recorder) -> None:
        await Client(process, 1, access, traffic, recorder, 1, (), roaming).run()  # type: ignore[arg-type]

    return in_a_process(main)


@pytest.mark.parametrize(
    ("answer", "status"),
    [(PutResult(2), "done"), (Unavailable("no leader"), "refused"), (OutcomeUnknown("lost"), "unknown")],
    ids=["done", "refused", "unknown"],
)
def test_a_request_ends_as_its_answer_says(answer, status):
    traffic, access, roaming = Traffic(), Script(answer), Script(answer)
    traffic.ask(Put(b"a", b"1"))
    [operation] = asked(traffic, access, roaming).history.operations
    assert operation.status == status and (operation.return_us is None) == (status == "unknown")


def test_what_one_leader_was_told_is_read_through_the_other():
    traffic, roaming = Traffic(), Script(PutResult(2), RangeResult([], 0, False, 2))
    traffic.ask(Rivals("new", "old"))
    recorder = asked(traffic, Script(), roaming)
    (put, writer), (read, reader) = roaming.asked
    assert (writer, reader) == ("new", "old") and read == RangeRequest(put.key)
    assert [each.status for each in recorder.history.operations] == ["done", "done"]


def test_nothing_is_read_where_nothing_was_written():
    traffic, roaming = Traffic(), Script(Unavailable("it leads no more"))
    traffic.ask(Rivals("new", "old"))
    asked(traffic, Script(), roaming)
    assert len(roaming.asked) == 1
