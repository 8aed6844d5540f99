"""Members among each other: comparisons of what they hold, changes of members and of the leader, each with its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from noted_member import Noted, Running, kept
from patience import until

from minikube_py.errors import MinikubeError, NotLeader, Unavailable
from minikube_py.mvcc.alarms import CORRUPT
from minikube_py.mvcc.types import SetAlarm
from minikube_py.mvcc.versions import ALARMS
from minikube_py.raft.configuration import NodeId
from minikube_py.store import hash_check, leadership
from minikube_py.store.hash_check import HashCheck
from minikube_py.store.membership import ChangeKind, Member, MemberChange, Membership
from minikube_py.store.membership_checks import PROMOTE_LAG_ENTRIES, caught_up, check_timely, heir

# -- comparisons -------------------------------------------------------------------------------------------------------


async def compared(member: Noted, check: HashCheck, answers: dict[int, list[int]]) -> list[SetAlarm]:
    """Each other member answers with the next of its hashes, one without any never."""
    asked: list[SetAlarm] = []
    check._propose = asked.append  # type: ignore[method-assign, assignment]
    left = {id: list(hashes) for id, hashes in answers.items()}

    def tell(to: NodeId, words: bytes) -> None:
        kind, number, revision = msgpack.unpackb(words)
        assert (kind, revision) == (hash_check.ASKED, member.state.revision)
        if left[to]:
            member.loop.call_later(0.1, check.heard, to, hash_check.SAID, [number, left[to].pop(0)])
            member.loop.call_later(0.1, check.heard, to, hash_check.SAID, [number - 1, 12345])
            member.loop.call_later(0.1, check.heard, NodeId(9), hash_check.SAID, [number, 12345])
            with pytest.raises(ValueError, match="two numbers"):
                check.heard(to, hash_check.SAID, [number, "no hash"])

    member.tell = tell  # type: ignore[method-assign, assignment]
    async with Running(check.run()):
        await asyncio.sleep(15.0)
    return asked


def three_members(**config: Any) -> tuple[Noted, HashCheck]:
    member = Noted(check_s=10.0, **config)
    member.replica.alone = False
    member.membership = Membership.of([Member(NodeId(id), f"m{id}", f"h:{id}") for id in (1, 2, 3)])
    member.raft.configuration.voters = frozenset(map(NodeId, (1, 2, 3)))
    return member, HashCheck(member, lambda command: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answers", "wanted", "checks", "mismatches"),
    [
        ({2: [77, 77], 3: [77, 77]}, [], 1, 0),
        ({2: [77, 77], 3: [1, 1]}, [SetAlarm(True, 3, CORRUPT)], 2, 2),
        ({2: [1, 1], 3: [1, 1]}, [SetAlarm(True, 1, CORRUPT)], 2, 2),
        ({2: [1, 1], 3: [2, 2]}, [SetAlarm(True, 0, CORRUPT)], 2, 2),
        ({2: [77, 77], 3: [1, 77]}, [], 2, 1),
        ({2: [77, 77], 3: [1, 2]}, [SetAlarm(True, 3, CORRUPT)], 2, 2),
        ({2: [77, 1], 3: [1, 77]}, [], 2, 2),
    ],
)
async def test_an_alarm_is_raised_for_what_two_comparisons_say(
    answers: dict[int, list[int]], wanted: list[SetAlarm], checks: int, mismatches: int
) -> None:
    member, check = three_members()
    assert await compared(member, check, answers) == wanted
    assert (check.checks, check.mismatches, len(member.words)) == (checks, mismatches, mismatches)


@pytest.mark.parametrize("change", ["follower", "alone", "old"])
async def test_nothing_is_compared_where_there_is_nobody_to_ask_or_to_tell(change: str) -> None:
    member, check = three_members()
    member.replica.leading = 0 if change == "follower" else 3
    member.replica.alone = change == "alone"
    member.state.version = ALARMS - (change == "old")
    assert await compared(member, check, {2: [1], 3: [1]}) == [] and check.checks == 0


async def test_those_that_do_not_answer_are_waited_for_30_s() -> None:
    member, check = three_members()
    verdict = asyncio.ensure_future(check._compare())
    await asyncio.sleep(0)
    check.heard(NodeId(2), hash_check.SAID, [1, 1])
    await until(lambda: verdict.done())
    assert member.now_s == pytest.approx(hash_check.ANSWER_S, abs=0.3) == pytest.approx(30.0, abs=0.3)
    assert verdict.result() == hash_check.Verdict((), True)
    member.replica.leading = 0
    assert await check._compare() == hash_check.Verdict()


async def test_who_is_behind_answers_when_he_has_come_so_far_or_not_at_all() -> None:
    member, check = three_members()
    member.state.revision, member.hashes = 5, {9: 99, 3: 33}
    check.heard(NodeId(2), hash_check.ASKED, [1, 9])
    check.heard(NodeId(3), hash_check.ASKED, [2, 3])
    await asyncio.sleep(3.0)
    assert member.named("tell") == [], "one answer at a time"
    member.state.revision = 9
    await asyncio.sleep(0.5)
    assert [rest for _, rest in member.named("tell")] == [(NodeId(2), msgpack.packb((hash_check.SAID, 1, 99)))]
    check.heard(NodeId(2), hash_check.ASKED, [1, 1 << 40])
    await asyncio.sleep(0.1)
    member.raft.leader = NodeId(3)
    check.heard(NodeId(3), hash_check.ASKED, [2, 3])
    await asyncio.sleep(0.1)
    assert len(member.named("tell")) == 2, "the leader waits for nobody's question"

    async def compacted(revision: int, *, rows: bool) -> int:
        raise MinikubeError("it was compacted")

    member.hash = compacted  # type: ignore[method-assign]
    check.heard(NodeId(3), hash_check.ASKED, [3, 3])
    await asyncio.sleep(0.1)
    assert len(member.named("tell")) == 2
    for wrong in ([1], [1, 2, 3], ["1", 2], [1, None]):
        with pytest.raises((ValueError, TypeError)):
            check.heard(NodeId(3), hash_check.ASKED, wrong)
    check.stop()


# -- who leads, who belongs --------------------------------------------------------------------------------------------


def status(*peers: tuple[int, int, bool, str], last: int = 5000, voters: tuple[int, ...] = (1, 2, 3)) -> Any:
    return SimpleNamespace(
        id=NodeId(1),
        last_index=last,
        configuration=SimpleNamespace(voters=frozenset(map(NodeId, voters))),
        peers=[
            SimpleNamespace(id=NodeId(id), match=match, active=active, state=how) for id, match, active, how in peers
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("match", "active", "state", "is_caught_up"),
    [
        (5000 - PROMOTE_LAG_ENTRIES, True, "replicate", True),
        (5000 - PROMOTE_LAG_ENTRIES - 1, True, "replicate", False),
        (5000, False, "replicate", False),
        (5000, True, "snapshot", False),
        (5000, True, "probe", True),
    ],
)
def test_who_has_caught_up_could_vote(match: int, active: bool, state: str, is_caught_up: bool) -> None:
    assert caught_up(status((2, match, active, state))) == ({2} if is_caught_up else set())
    assert caught_up(status((2, 0, True, "replicate"), last=10)) == set(), "it has nothing yet"
    assert caught_up(status((2, 1, True, "replicate"), last=10)) == {2}


def test_the_heir_is_the_voter_in_touch_that_has_most() -> None:
    peers = (2, 10, True, "r"), (3, 30, True, "r"), (4, 99, True, "r"), (5, 50, False, "r")
    assert heir(status(*peers, voters=(1, 2, 3, 5))) == 3
    assert heir(status((2, 10, False, "r"))) is None and heir(status()) is None


@pytest.mark.parametrize(("in_touch", "fits"), [((2, 4), True), ((4,), True), ((3,), False), ((), False)])
def test_a_voter_is_removed_only_while_a_majority_of_the_others_is_in_touch(
    in_touch: tuple[int, ...], fits: bool
) -> None:
    members = Membership.of([Member(NodeId(id), f"m{id}", f"h:{id}") for id in (1, 2, 3, 4)])
    of = status(*[(id, 9, id in in_touch, "r") for id in (2, 3, 4)], voters=(1, 2, 3, 4))
    change = MemberChange(ChangeKind.REMOVE, NodeId(3))
    if fits:
        check_timely(change, members, of)
    else:
        with pytest.raises(Unavailable, match="without m3 only"):
            check_timely(change, members, of)
    check_timely(MemberChange(ChangeKind.REMOVE, NodeId(77)), members, of)
    with pytest.raises(Unavailable, match="m2 has not caught up"):
        check_timely(MemberChange(ChangeKind.PROMOTE, NodeId(2)), members, of)


async def test_one_learner_at_a_time_is_promoted_once_it_has_caught_up() -> None:
    member = Noted()
    learners = [Member(NodeId(id), f"m{id}", f"h:{id}", "", True, id != 4) for id in (2, 3, 4)]
    member.membership = Membership.of([Member(NodeId(1), "m1", "h:1"), *learners])
    of = status((2, 1, True, "r"), (3, 5000, True, "r"), (4, 5000, True, "r"))
    member.raft.status = lambda: of
    work = kept(member)
    work._promote()
    assert [rest[0] for _, rest in member.named("propose_change")] == [MemberChange(ChangeKind.PROMOTE, NodeId(3))]

    def busy(*_: Any) -> None:
        member.calls.append((0.0, "busy", ()))
        raise Unavailable("a change is under way")

    of.peers[0].match = 5000
    member.propose_change = busy  # type: ignore[method-assign, assignment]
    work._promote()
    assert len(member.named("busy")) == 1, "while one is under way the next is not tried"


@pytest.mark.parametrize("then", ["leads", "stays", "stops"])
async def test_a_transfer_is_waited_for_2_s(then: str) -> None:
    member = Noted(tick_s=0.05)
    asked = asyncio.ensure_future(leadership.transfer(member, NodeId(2)))  # type: ignore[arg-type]
    await asyncio.sleep(1.9)
    assert not asked.done() and [rest for _, rest in member.named("transfer")] == [(NodeId(2),)]
    if then == "leads":
        member.raft.leader = NodeId(2)
        await asked
    elif then == "stops":
        member.failed = "it stops"
        with pytest.raises(Unavailable, match="it stops"):
            await asked
    else:
        with pytest.raises(Unavailable, match="did not take over within 2 s"):
            await asked
        assert member.now_s == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize("refusals", [3, 10_000])
async def test_a_change_of_members_waits_5_s_for_the_one_before(refusals: int) -> None:
    member = Noted(tick_s=0.05)
    member.replica.leading = 0
    left = [refusals]

    def propose_change(change: MemberChange, done: Callable[[Any, Any], None]) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise Unavailable("a change is under way")
        member.loop.call_later(1.0, done, None, None)

    member.propose_change = propose_change  # type: ignore[method-assign, assignment]
    asked = leadership.change_members(member, MemberChange(ChangeKind.REMOVE, NodeId(2)))  # type: ignore[arg-type]
    if refusals == 3:
        await asked
        assert member.now_s == pytest.approx(3 * 0.05 + 1.0, abs=0.02)
    else:
        with pytest.raises(Unavailable, match="under way"):
            await asked
        assert member.now_s == pytest.approx(leadership.CHANGE_S, abs=0.06)

    def elsewhere(*_: Any) -> None:
        raise NotLeader(NodeId(2))

    member.propose_change = elsewhere  # type: ignore[method-assign, assignment]
    before_s = member.now_s
    with pytest.raises(NotLeader):
        await leadership.change_members(member, MemberChange(ChangeKind.REMOVE, NodeId(2)))  # type: ignore[arg-type]
    assert member.now_s == before_s


@pytest.mark.parametrize("then", ["leads", "nobody", "waits", "failed"])
async def test_who_stops_hands_over_once_nothing_waits_and_not_for_long(then: str) -> None:
    member = Noted(tick_s=0.05)
    member.raft.status = lambda: status(*([] if then == "nobody" else [(2, 9, True, "r")]))
    member.replica.waiting = then == "waits"
    member.failed = "x" if then == "failed" else ""
    asked = asyncio.ensure_future(leadership.hand_over(member))  # type: ignore[arg-type]
    await asyncio.sleep(0.5)
    assert asked.done() == (then in ("nobody", "failed"))
    assert len(member.named("transfer")) == (then == "leads")
    if then == "leads":
        member.replica.leading = 0
    await asked
    ended_s = {"leads": 0.5, "waits": leadership.HAND_OVER_S}.get(then, 0.5)
    assert member.now_s == pytest.approx(ended_s, abs=0.06)
