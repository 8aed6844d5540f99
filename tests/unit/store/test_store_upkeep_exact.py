"""What a member does by the clock, and when: ticks, alarms, slices of indexes, files made ready."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from noted_member import Noted, Running, kept

from minikube_py.errors import Unavailable
from minikube_py.mvcc.alarms import CORRUPT, NOSPACE
from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Alarm, Compact, LeaseRevoke, Put, SetAlarm
from minikube_py.mvcc.versions import ALARMS
from minikube_py.raft.configuration import NodeId
from minikube_py.store.alarming import AGAIN_S, Alarming, stands_aside
from minikube_py.store.folder import FolderLost
from minikube_py.store.lessor import Lessor
from minikube_py.store.membership import Member, Membership
from minikube_py.store.releases import Refusals
from minikube_py.store.upkeep import BUILD_ROWS, BUILD_STEPS_MAX, EXPIRED_PER_UPKEEP, SLICE_PAUSE_S, UPKEEP_TICKS

# -- by the tick -------------------------------------------------------------------------------------------------------


async def test_a_tick_comes_on_time_and_what_was_missed_is_not_made_up_for() -> None:
    member = Noted(tick_s=1.0)
    async with Running(kept(member)._tick_forever()):
        await asyncio.sleep(3.5)
        assert member.times("tick") == pytest.approx([1.0, 2.0, 3.0], abs=0.01)
        member.loop.charge(0.9)  # type: ignore[attr-defined]
        await asyncio.sleep(0.7)
        # The one at 4 s was late, and the next one comes on time all the same.
        assert len(member.times("tick")) == 5 and member.times("tick")[-1] == pytest.approx(5.0, abs=0.1)
        member.loop.charge(4.4)  # type: ignore[attr-defined]
        await asyncio.sleep(0.0)
        before = len(member.times("tick"))
        await asyncio.sleep(2.5)
        assert len(member.times("tick")) - before in (2, 3), "not one for each that was missed"
    assert UPKEEP_TICKS == 2
    trims = member.times("trim")
    assert len(trims) == len(member.times("tick")) // 2 and {rest for _, rest in member.named("trim")} == {(1000,)}


async def test_leases_that_expire_in_one_moment_end_a_few_at_a_time() -> None:
    """As after a restart, which renews all of them: 100,000 held the loop for 0.6 s."""
    member = Noted()
    work, lessor = kept(member), Lessor(member.clock)
    member.lessor = lessor
    lessor.restart([(id, 5) for id in range(1, 1001)])
    await asyncio.sleep(6.0)
    ended: list[int] = []
    for _ in range(10):
        before = len(ended)
        work._upkeep()
        ended = [each.id for each in member.proposed()]
        assert len(ended) - before == EXPIRED_PER_UPKEEP == 100
    assert sorted(ended) == list(range(1, 1001))
    few = [SimpleNamespace(keys=range(each)) for each in (10, 1989, 1, 5)]
    member.state.lessor.by_id = dict(enumerate(few, 1))
    lessor.restart([(id, 5) for id in range(1, 5)])
    await asyncio.sleep(6.0)
    before = len(member.proposed())
    work._upkeep()
    assert [each.id for each in member.proposed()[before:]] == [1, 2, 3], "2,000 keys are enough"


async def test_upkeep_asks_the_leader_alone_to_propose() -> None:
    member = Noted(retain_s=0.0, retain_bytes=100)
    work = kept(member)
    member.lessor.expired = lambda: [5, 6]
    member.replica.leading = 0
    work._upkeep()
    assert member.proposed() == [] and member.times("progress") == [0.0]
    work._upkeep()
    assert member.times("progress") == [0.0], "only where there is something new"
    member.replica.leading = 3
    work._upkeep()
    assert member.proposed() == [LeaseRevoke(5, 0), LeaseRevoke(6, 0)]
    member.lessor.expired = list
    member.state.revision, member.replica.files.written_bytes = 50, 1000
    work._upkeep()
    member.state.revision, member.replica.files.written_bytes = 90, 2000
    work._upkeep()
    assert member.proposed()[2:] == [Compact(1), Compact(50)] or member.proposed()[2:] == [Compact(50)]
    member.state.compact_revision = 1000
    member.replica.files.written_bytes = 9000
    before = len(member.proposed())
    work._upkeep()
    assert len(member.proposed()) == before, "what is compacted already is not again"
    assert member.times("check_memory") == []
    member.state.tables.specs = {"i": 1}
    work._upkeep()
    assert len(member.times("check_memory")) == 1


async def test_what_failed_without_stopping_the_member_is_told_once() -> None:
    member = Noted()
    work = kept(member)
    for _ in range(2):
        work._upkeep()
    assert member.words == []
    member.replica.hub.in_vain, member.replica.hub.last_in_vain = 1, "a bug there"
    member.replica.tell.in_vain, member.replica.tell.last = 2, "a bug here"
    member.state.tables.degraded = {"pods": "degraded: x", "nodes": "degraded: y"}
    for _ in range(2):
        work._upkeep()
    assert member.words == [
        "the fields of pods are degraded: x",
        "the fields of nodes are degraded: y",
        "a watcher failed on its input; others are not affected: a bug there",
        "a caller failed on its input; others are not affected: a bug here",
    ]
    member.words.clear()
    member.state.tables.degraded = {"nodes": "degraded: z"}
    member.replica.tell.in_vain = 3
    work._upkeep()
    assert member.words == [
        "the fields of nodes are degraded: z", "a caller failed on its input; others are not affected: a bug here"
    ]  # fmt: skip
    member.state.tables.degraded = {}
    work._upkeep()
    member.state.tables.degraded = {"nodes": "degraded: z"}
    work._upkeep()
    assert member.words[2:] == ["the fields of nodes are degraded: z"], "it has come again"


async def test_objects_that_are_not_json_are_told_again_when_they_have_doubled() -> None:
    member = Noted()
    work = kept(member)
    for count in (0, 3, 3, 5, 6, 0, 1):
        member.state.tables.unreadable = lambda count=count: {"minions": count}
        work._upkeep()
    text = "of the objects of minions, {} are not JSON and cannot be read; their fields are missing"
    assert member.words == [text.format(count) for count in (3, 6, 1)]


ALARM = SetAlarm(True, 2, NOSPACE)


@pytest.mark.parametrize(
    ("words", "leads", "wanted"),
    [
        (msgpack.packb((0, pack(ALARM))), True, [ALARM]),
        (msgpack.packb((0, pack(ALARM))), False, []),
        (msgpack.packb((0, pack(Put(b"a", b"")))), True, []),
        (msgpack.packb((0,)), True, []),
        (msgpack.packb((0, b"nonsense")), True, []),
        (msgpack.packb((0, 5)), True, []),
        (msgpack.packb((9, 1)), True, []),
        (msgpack.packb(5), True, []),
        (b"", True, []),
        (b"\xc1", True, []),
    ],
)
async def test_what_another_member_says_is_proposed_if_it_is_an_alarm_and_else_refused(
    words: bytes, leads: bool, wanted: list[Any]
) -> None:
    member = Noted()
    member.replica.leading = 3 if leads else 0
    member.membership = Membership.of([Member(NodeId(id), f"m{id}", f"h:{id}") for id in (1, 2)])
    member.raft.configuration = member.membership.configuration()
    member.replica.refusals = Refusals()
    kept(member).heard(NodeId(2), words)
    assert member.proposed() == wanted and member.named("tell") == []
    assert member.replica.refusals.count == (leads and not wanted)


async def test_the_leader_proposes_and_the_others_tell_it() -> None:
    member = Noted()
    work = kept(member)
    work._ask(ALARM)
    assert member.proposed() == [ALARM]
    member.replica.leading = 0
    member.raft.leader = NodeId(3)
    work._ask(ALARM)
    assert [rest for _, rest in member.named("tell")] == [(NodeId(3), msgpack.packb((0, pack(ALARM))))]
    member.raft.leader = NodeId(0)
    work._ask(ALARM)
    member.replica.leading, member.state.version = 3, ALARMS - 1
    work._ask(ALARM)
    assert len(member.named("tell")) == len(member.proposed()) == 1

    def refuses(*_: Any, **__: Any) -> None:
        raise Unavailable("too much waits")

    member.propose = refuses  # type: ignore[method-assign]
    member.state.version = ALARMS
    work._ask(ALARM)


async def test_an_alarm_is_asked_for_once_a_second_until_it_is_there() -> None:
    asked: list[tuple[float, SetAlarm]] = []
    member = Noted()
    alarming = Alarming(member, lambda command: asked.append((member.now_s, command)))  # type: ignore[arg-type]

    async def look(seconds: float) -> list[SetAlarm]:
        asked.clear()
        for _ in range(round(10 * seconds)):
            alarming.look()
            await asyncio.sleep(0.1)
        return [command for _, command in asked]

    assert AGAIN_S == 1.0 and await look(2.0) == []
    member.room.shortage = "it is full"
    assert await look(2.95) == [SetAlarm(True, 1, NOSPACE)] * 3 and member.replica.shortage == "it is full"
    member.state.alarms.raised = {Alarm(1, NOSPACE)}
    assert await look(2.0) == [] and member.words == ["alarm NOSPACE of member 1: it is full"]
    member.replica.lacks_entry = True
    assert await look(0.5) == [SetAlarm(True, 1, NOSPACE)]
    member.replica.lacks_entry, member.room.shortage = False, ""
    assert set(await look(2.0)) == {SetAlarm(False, 1, NOSPACE)}
    member.state.alarms.raised = {Alarm(9, NOSPACE), Alarm(8, CORRUPT), Alarm(0, CORRUPT)}
    member.replica.leading = 0
    assert await look(2.0) == [], "who does not lead clears nobody's"
    member.replica.leading = 3
    found = await look(1.5)
    assert found[:2] == [SetAlarm(False, 8, CORRUPT), SetAlarm(False, 9, NOSPACE)]
    assert member.words[1:] == [
        "alarm CORRUPT: members hold different data; compare them with `minikube-py store hash`",
        "alarm CORRUPT of member 8: members hold different data; compare them with `minikube-py store hash`",
        "alarm NOSPACE of member 9: writes that need space are refused",
        "alarm NOSPACE of member 1 is cleared",
    ]
    assert member.failed == ""


@pytest.mark.parametrize(
    ("voters", "marked", "aside"),
    [
        ({1, 2, 3}, {1}, True), ({1, 2, 3}, {2}, False), ({1, 2}, {1}, True), ({1, 2}, {1, 2}, False),
        ({1, 2, 3}, {1, 2}, False),
    ],
)  # fmt: skip
async def test_a_minority_that_is_named_stands_aside(voters: set[int], marked: set[int], aside: bool) -> None:
    member = Noted()
    member.raft.configuration.voters = frozenset(map(NodeId, voters))
    member.state.alarms.raised = {Alarm(each, CORRUPT) for each in marked}
    assert stands_aside(member) == aside  # type: ignore[arg-type]
    Alarming(member, lambda command: None).look()  # type: ignore[arg-type]
    assert ("start it with --rejoin" in member.failed and "/data" in member.failed) == aside


# -- slices ------------------------------------------------------------------------------------------------------------


async def test_indexes_are_built_in_slices_that_end_by_time_or_number_and_only_while_there_is_work() -> None:
    member = Noted()
    work = kept(member)
    async with Running(work._build_indexes()):
        await asyncio.sleep(1.0)
        assert member.times("build") == [], "there is nothing to be built"
        member.rows_left, member.step_s = 2 * BUILD_STEPS_MAX + 10, 0.0
        work._unbuilt.set()
        await asyncio.sleep(1.0)
        assert len(member.times("build")) == 2 * BUILD_STEPS_MAX + 10
        assert {rest for _, rest in member.named("build")} == {(BUILD_ROWS,)} and BUILD_ROWS == 48
        changed = member.times("tables_changed")
        assert len(changed) == 3 and changed[1] - changed[0] == pytest.approx(SLICE_PAUSE_S, abs=0.003)
        member.calls.clear()
        member.rows_left, member.step_s = 10, 0.0015
        work._unbuilt.set()
        await asyncio.sleep(1.0)
        times = member.times("build")
        assert len(times) == 10 and len(member.times("tables_changed")) == 4, "three rows of 1.5 ms are over 4 ms"
        gaps = [after - before for before, after in itertools.pairwise(times)]
        assert [at for at, gap in enumerate(gaps, 1) if gap > 0.004] == [3, 6, 9]
        member.calls.clear()
        await asyncio.sleep(1.0)
        assert member.calls == []


async def test_files_are_made_ready_when_they_are_wanted_and_again_later_where_that_failed() -> None:
    member = Noted(tick_s=0.5, segment_bytes=1 << 20)
    async with Running(kept(member)._keep_house()):
        await asyncio.sleep(2.5)
        assert member.calls == []
        member.replica.files.wants_upkeep = True
        member.file_error = OSError(28, "no space left")
        began_s = member.now_s
        await asyncio.sleep(9.0)
        times = [at - began_s for at in member.times("prepare")]
        # Looked at once a second (two ticks); pauses of 1, 2 and 4 s between failures.
        assert len(times) == 4 and [round(after - before) for before, after in itertools.pairwise(times)] == [1, 2, 4]
        assert member.words[0] == (
            "cannot prepare the next segment of the log: no space left: /data has 5 bytes free, and 1,048,576 bytes "
            "are needed; free space there; committed data is safe; trying again in 1 s"
        )
        assert member.words[1].endswith("trying again in 2 s") and member.failed == ""
        member.file_error = None
        await asyncio.sleep(20.0)
        member.replica.files.wants_upkeep = False
        member.calls.clear()
        member.replica.snapshot_due = True
        await asyncio.sleep(1.1)
        assert len(member.times("snapshot")) == 1
        member.snapshotter.retry.due = False
        member.calls.clear()
        await asyncio.sleep(3.0)
        assert member.calls == []
        member.snapshotter.retry.due, member.snapshot_error = True, OSError(5, "an error")
        await asyncio.sleep(1.1)
        assert member.words[-1] == "cannot take a snapshot: it failed; trying again in 7 s; the log is kept"
        member.snapshot_error = FolderLost(5, "an error")
        await asyncio.sleep(1.1)
        assert member.failed == "cannot sync its folder: an error (/data)"
        member.failed, member.snapshot_error = "", None
        member.replica.files.wants_upkeep, member.file_error = True, FolderLost(5, "lost")
        await asyncio.sleep(1.1)
        assert member.failed == "cannot sync its folder: lost (/data)"
