"""etcd's own bugs, by their numbers there: for each, what would show its like here. docs/reference/etcd-bugs.md says
what each of them was."""

from __future__ import annotations

import random

import pytest
from replica_net import SMALL, Outcome, ReplicaNet

from minikube_py.errors import Compacted, FutureRevision
from minikube_py.mvcc.snapshot import records, restore
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Compact, Compare, DeleteRange, Put, RangeRequest, Txn, WatchBatch
from minikube_py.mvcc.watch import WatchHub
from minikube_py.raft.message import Message, MessageType
from minikube_py.store.replica import Replica

KEYS = (b"/", b"0")


class Watched:
    """A sink that writes down what a watch from `start` on must never do. It does not raise: whoever calls it would
    take that for a fault of its own."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.revision = start - 1
        self.events: list[tuple[int, bytes]] = []
        self.error: Exception | None = None
        self.wrong: list[str] = []

    def __call__(self, batch: WatchBatch) -> None:
        if self.error is not None:
            self.wrong.append(f"{batch} after the end")
        for event in batch.events:
            if not self.revision < event.kv.mod_revision <= batch.revision:
                self.wrong.append(f"an event of {event.kv.mod_revision} in ({self.revision}, {batch.revision}]")
            self.events.append((event.kv.mod_revision, event.kv.key))
        if self.events != sorted(self.events, key=lambda event: event[0]):
            self.wrong.append("events out of order")
        self.error = batch.error
        if batch.error is None:
            if batch.revision < self.revision:
                self.wrong.append(f"{batch.revision} came after {self.revision}")
            self.revision = batch.revision

    @property
    def revisions(self) -> list[int]:
        return [revision for revision, _ in self.events]

    def assert_saw(self, *revisions: int) -> None:
        assert self.wrong == []
        assert self.revisions == list(revisions)


def watch(hub: WatchHub, start: int, key: bytes = KEYS[0], range_end: bytes = KEYS[1]) -> Watched:
    watched = Watched(start)
    hub.add(key, range_end, start, watched)
    return watched


def others(net: ReplicaNet, replica: Replica) -> list[int]:
    return [id for id in net.nodes if id != replica.member_id]


def caught_up(hub: WatchHub, budget: int = 7) -> None:
    while hub.catch_up(budget):
        pass


def apart(net: ReplicaNet, behind: int, writes: int) -> None:
    """`behind` hears nothing of so many writes, and can learn of them only by a snapshot."""
    net.isolate(behind)
    for i in range(writes):
        assert net.put(b"/apart/%d" % i).done
    for id in others(net, net[behind]):
        net.snapshot(id)
        assert net[id].raft.log.offset > net[behind].raft.log.last_index


# -- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("members", [1, 3])
def test_13766_after_a_crash_no_entry_is_skipped_and_none_applied_twice(members):
    """The index that a snapshot names and the state that it holds are of one moment, whatever is applied meanwhile."""
    for seed in range(6):
        net = ReplicaNet(seed, members=members)
        done: set[bytes] = set()
        for turn in range(4):
            leader = net.leader()
            outcomes: dict[bytes, Outcome] = {}
            taking = {id: net[id].take_snapshot() for id in net.nodes}
            for i in range(12):
                value = b"%d.%d" % (turn, i)
                outcomes[value] = net.propose(leader, Put(b"/one", value))
                for id, node in net.nodes.items():
                    if net.rng.random() < 0.7:
                        node.work()
                    if id in taking and i > 2 and net.rng.random() < 0.5:
                        for sync in taking[id]:
                            if sync is not None:
                                sync()
                            if net.rng.random() < 0.3:
                                break
                while net.queue and net.rng.random() < 0.8:
                    net.deliver(net.queue.popleft())
            done |= {value for value, outcome in outcomes.items() if outcome.done}
            for steps in taking.values():
                steps.close()
            dead = net.rng.choice(list(net.nodes))
            net.nodes[dead].crash(power=net.rng.random() < 0.7)
            net.nodes[dead].start()
        net.put(b"/one", b"last")
        net.assert_alike()
        for id in net.nodes:
            state = net[id].state
            values = [event.kv.value for event in state.events(*KEYS, 2, state.revision)]
            assert len(values) == len(set(values)), "none applied twice"
            assert done <= set(values), "none skipped"
            assert state.get(b"/one").version == len(values)


def test_14370_alone_nothing_is_answered_or_shown_before_it_is_on_disk():
    for seed in range(15):
        net = ReplicaNet(seed, members=1)
        net.put(b"/first")
        node = net.nodes[1]
        seen = watch(net[1].hub, 3)
        known = {b"/first"}
        for turn in range(3):
            node.slow = True
            outcomes = {key: net.propose(net[1], Put(key, b"v")) for key in (b"/%d/%d" % (turn, i) for i in range(4))}
            node.work()
            assert node.sync is not None and not any(outcome.ended for outcome in outcomes.values())
            assert len(seen.events) == len(known) - 1 and not net[1].state.get(b"/%d/0" % turn)
            if turn < 2:
                node.slow = False
                node.work()
                assert all(outcome.done for outcome in outcomes.values())
                known |= outcomes.keys()
        node.crash()
        node.slow = False
        node.start()
        net.settle()
        assert known <= net.contents(1).keys() and seen.wrong == []


def test_17780_no_crash_amid_a_compaction_at_a_deletion_takes_back_a_revision():
    """The newest revision is a tombstone that the compaction leaves nothing of but its number."""
    for steps in range(12):
        net = ReplicaNet(steps, members=1)
        for command in (Put(b"/a", b"1"), Put(b"/b", b"1"), DeleteRange(b"/b"), DeleteRange(b"/a"), Compact(5)):
            assert net.propose(net.leader(), command).ended or not net.settle()
        net[1].state.trim(1000)
        taking = net[1].take_snapshot()
        for _, sync in zip(range(steps), taking, strict=False):
            if sync is not None:
                sync()
        net.nodes[1].crash()
        taking.close()
        again = net.nodes[1].start()
        net.settle()
        assert (again.state.revision, again.state.compact_revision) == (5, 5)
        net.put(b"/c")
        assert again.state.get(b"/c").mod_revision == 6


# -- watches ----------------------------------------------------------------------------------------------------------


def test_15220_progress_never_overtakes_events_nor_goes_back():
    for seed in range(60):
        rng = random.Random(seed)
        state = StateMachine()
        hub = WatchHub(state)
        watches: list[tuple[Watched, bool]] = []
        for _ in range(80):
            what = rng.randrange(6)
            if what < 2:
                state.apply(Put(b"/%d" % rng.randrange(5), b"v"))
            elif what == 2:
                hub.notify()
            elif what == 3:
                hub.catch_up(rng.randint(1, 4))
            elif what == 4:
                hub.progress()
            else:
                quiet = rng.random() < 0.3
                watched = Watched(rng.randint(2, state.revision + 4))
                watcher = hub.add(b"quiet" if quiet else b"/", b"" if quiet else b"0", watched.start, watched)
                watches.append((watched, quiet))
                assert not hub.progress(watcher) or watched.revision == hub.revision
        hub.notify()
        caught_up(hub)
        hub.progress()
        for watched, quiet in watches:
            expected = range(watched.start, state.revision + 1)
            watched.assert_saw(*([] if quiet else expected))
            assert watched.revision == max(state.revision, watched.start - 1), "also where nothing happens"


def test_15271_a_watch_does_not_go_back_when_its_member_gets_a_snapshot():
    net = ReplicaNet()
    for i in range(3):
        net.put(b"/before/%d" % i)
    behind = others(net, net.leader())[0]
    hub = net[behind].hub
    in_step, from_the_past = watch(hub, 5), watch(hub, 3)
    for i in range(5):
        net.put(b"/seen/%d" % i)
    hub.catch_up(2)
    apart(net, behind, 30)
    net.heal()
    net.tick(10)
    assert hub.behind == 2, "a snapshot came"
    hub.progress()
    caught_up(hub)
    net.put(b"/after")
    hub.progress()
    in_step.assert_saw(*range(5, 41))
    from_the_past.assert_saw(*range(3, 41))
    assert in_step.revision == from_the_past.revision == net[behind].state.revision == 40


def test_20221_a_watch_of_the_future_hears_of_nothing_earlier_though_a_snapshot_comes():
    net = ReplicaNet()
    net.put(b"/first")
    behind = others(net, net.leader())[0]
    hub = net[behind].hub
    # Before what the snapshot brings, amid it, its last, just after, and later.
    watches = {start: watch(hub, start) for start in (3, 15, 32, 33, 36)}
    hub.progress()
    apart(net, behind, 30)
    net.heal()
    net.tick(10)
    # Those that start later are among them until the member looks: then progress says how far they have seen.
    assert net[behind].state.revision == 32 and hub.behind == 5
    hub.progress()
    caught_up(hub)
    hub.progress()
    for i in range(8):
        net.put(b"/after/%d" % i)
        hub.progress()
    for start, watched in watches.items():
        watched.assert_saw(*range(start, 41))


@pytest.mark.parametrize("budget", [1, 5, 1000])
def test_17529_a_watch_that_compaction_overtakes_is_told_and_misses_nothing_silently(budget):
    rng = random.Random(budget)
    state = StateMachine()
    hub = WatchHub(state)
    for i in range(100):
        state.apply(Put(b"/%d" % i, b"v"))
    hub.notify()
    watches = [watch(hub, rng.randint(2, 90)) for _ in range(30)]
    for turn in range(60):
        hub.catch_up(budget)
        state.apply(Put(b"/more/%d" % turn, b"v"))
        if turn % 10 == 9:
            state.apply(Compact(state.compact_revision + 12 if turn > 9 else 20))
            state.trim(1000)
        hub.notify()
    caught_up(hub)
    ended = [watched for watched in watches if watched.error is not None]
    assert bool(ended) == (budget < 1000)
    for watched in watches:
        watched.assert_saw(*range(watched.start, watched.revision + 1))
        if watched.error is None:
            assert watched.revision == state.revision
        else:
            assert isinstance(watched.error, Compacted) and watched.revision + 1 < state.compact_revision


def test_17529_no_watch_starves_while_others_catch_up_and_writes_go_on():
    state = StateMachine()
    hub = WatchHub(state)
    for i in range(300):
        state.apply(Put(b"/%d" % i, b"v"))
    hub.notify()
    watches = [watch(hub, 2) for _ in range(20)]
    turns = 0
    while hub.catch_up(100):
        state.apply(Put(b"/more", b"v"))
        hub.notify()
        turns += 1
        assert turns < 100
    for watched in watches:
        watched.assert_saw(*range(2, state.revision + 1))


@pytest.mark.parametrize("again", [False, True], ids=["deleted for good", "put again"])
def test_18089_compacting_at_a_deletion_leaves_it_to_be_watched(again):
    state = StateMachine()
    hub = WatchHub(state)
    for command in (*(Put(b"/k", b"%d" % i) for i in range(3)), DeleteRange(b"/k")):
        state.apply(command)
    if again:
        state.apply(Put(b"/k", b"again"))
    hub.notify()
    slow = watch(hub, 5)
    state.apply(Compact(5))
    while state.trim(1):
        pass
    restored = restore(list(records(state)))
    late = watch(hub, 5)
    caught_up(hub)
    hub_there = WatchHub(restored)
    there = watch(hub_there, 5)
    caught_up(hub_there)
    for watched in (slow, late, there):
        watched.assert_saw(*([5, 6] if again else [5]))
    assert state.log.at(5)[0].type == restored.log.at(5)[0].type == "DELETE"


@pytest.mark.parametrize("how", ["log", "own snapshot", "leader's snapshot"])
def test_19179_a_deletion_at_the_compacted_revision_outlives_a_restart(how):
    """The tombstone is all that is left of its key when the member starts; the compaction comes before or after."""
    for compact_first in (True, False):
        net = ReplicaNet()
        leader = net.leader()
        member = others(net, leader)[0]
        if how == "leader's snapshot":
            net.isolate(member)
        for command in (Put(b"/a", b"v"), Put(b"/b", b"v"), Compact(3), DeleteRange(b"/a"), DeleteRange(b"/b")):
            assert net.propose(leader, command).ended or not net.settle()
        compaction = [Compact(4)]
        if compact_first:
            net.propose(leader, compaction.pop())
        for i in range(20):
            net.put(b"/c/%d" % i)
        if how == "leader's snapshot":
            for id in others(net, net[member]):
                net.snapshot(id)
        else:
            if how == "own snapshot":
                net.snapshot(member)
            net.nodes[member].crash()
            net.nodes[member].start()
        net.heal()
        net.tick(10)
        for command in compaction:
            assert net.propose(net.leader(), command).ended or not net.settle()
        net.assert_alike()
        state, hub = net[member].state, net[member].hub
        state.trim(1000)
        assert state.compact_revision == 4 and state.revision == 25
        watched = watch(hub, 4)
        caught_up(hub)
        watched.assert_saw(*range(4, 26))
        assert watched.events[:2] == [(4, b"/a"), (5, b"/b")]


# -- what members agree on --------------------------------------------------------------------------------------------

READS_IN_TXNS = {
    "compacted": (RangeRequest(b"/a", revision=3), Compacted),
    "future": (RangeRequest(b"/a", revision=1000), FutureRevision),
    "compacted, nested": (Txn((), (RangeRequest(b"/a", revision=3),)), Compacted),
}


@pytest.mark.parametrize("name", READS_IN_TXNS)
def test_18667_a_txn_whose_read_is_refused_writes_nowhere(name):
    read, error = READS_IN_TXNS[name]
    net = ReplicaNet()
    behind = others(net, net.leader())[0]
    for i in range(4):
        net.put(b"/a", b"%d" % i)
    apart(net, behind, 20)
    leader = net.leader()
    net.propose(leader, Compact(10))
    net.settle()
    for ops in ((Put(b"/k", b"v"), read), (read, Put(b"/k", b"v")), (DeleteRange(b"/a"), read)):
        outcome = net.propose(leader, Txn((Compare(b"/a", "VALUE", "=", b"3"),), ops))
        net.settle()
        assert isinstance(outcome.error, error)
    # One of them learns of it by the log, one by a snapshot, and one out of its own log after a crash.
    net.heal()
    net.tick(10)
    net.nodes[others(net, leader)[1]].crash()
    net.nodes[others(net, leader)[1]].start()
    net.put(b"/last")
    net.assert_alike()
    for id in net.nodes:
        state = net[id].state
        assert state.get(b"/k") is None and state.get(b"/a").value == b"3" and state.revision == 26


# -- reads ------------------------------------------------------------------------------------------------------------


def kept(net: ReplicaNet, *types: MessageType) -> list[Message]:
    """What of these types is sent from now on, while it arrives as ever."""
    found: list[Message] = []

    def keep(message: Message) -> bool:
        if message.type in types:
            found.append(message)
        return False

    net.drop = keep
    return found


def overtaken(net: ReplicaNet, old: Replica) -> None:
    """`old` leads on, as far as it knows; another one does, and has committed a write."""
    net.isolate(old.member_id)
    new = net.leader(of=tuple(others(net, old)))
    assert net.propose(new, Put(b"/new", b"v")).ended or not net.settle()
    assert new.state.get(b"/new") is not None


def test_20418_late_answers_to_an_earlier_read_confirm_no_later_one():
    """The answers to the heartbeats of a read that was done come a second time, when their leader is one no more."""
    net = ReplicaNet(config=SMALL)
    old = net.leader()
    net.settle()
    answers = kept(net, MessageType.HEARTBEAT_REPLY, MessageType.READ_INDEX)
    first, asked = Outcome(), Outcome()
    old.read(first.read)
    net.settle()
    net[others(net, old)[0]].read(asked.read)
    net.settle()
    assert first.done and asked.done and len(answers) >= 5
    again = list(answers)
    term = old.leading
    # Without its own ticks it does not learn that nobody answers: a process that was paused, and goes on.
    net.isolate(old.member_id)
    for _ in range(100):
        for id in others(net, old):
            net[id].tick()
        net.settle()
        if any(net[id].leading for id in others(net, old)):
            break
    new = next(net[id] for id in others(net, old) if net[id].leading)
    net.propose(new, Put(b"/new", b"v"))
    net.settle()
    assert new.state.get(b"/new") is not None and old.leading == term
    late, forwarded = Outcome(), []
    old.read(late.read)
    net.settle()
    net.drop = lambda message: bool(message.type == MessageType.READ_INDEX_REPLY and forwarded.append(message))
    for message in again * 2:
        old.receive(message)
        net.settle()
    assert not late.ended, "an old answer says nothing of now"
    assert forwarded == []
    net.drop = lambda message: False
    net.heal()
    net.until(lambda: late.ended)
    assert late.done and old.state.get(b"/new") is not None


def test_21399_each_attempt_of_a_read_has_a_name_of_its_own():
    net = ReplicaNet()
    leader = net.leader()
    follower = net[others(net, leader)[0]]
    sent: list[Message] = []

    def lose(message: Message) -> bool:
        if message.type in (MessageType.READ_INDEX, MessageType.HEARTBEAT) and message.context:
            sent.append(message)
        return message.type == MessageType.READ_INDEX_REPLY

    net.drop = lose
    outcome = Outcome()
    follower.read(outcome.read)
    net.tick(60)
    for type in (MessageType.READ_INDEX, MessageType.HEARTBEAT):
        names = [(message.to, message.term, message.context) for message in sent if message.type == type]
        assert len(names) >= 3, "it was asked again"
        assert len(set(names)) == len(names)
    assert not outcome.ended
    net.drop = lambda message: False
    net.until(lambda: outcome.ended)
    assert outcome.done


def test_21399_a_late_answer_to_a_followers_earlier_question_answers_no_later_one():
    net = ReplicaNet()
    leader = net.leader()
    follower = net[others(net, leader)[0]]
    answers = kept(net, MessageType.READ_INDEX_REPLY)
    for _ in range(3):
        outcome = Outcome()
        follower.read(outcome.read)
        net.settle()
        assert outcome.done
    assert len(answers) == 3
    net.isolate(follower.member_id)
    net.put(b"/new")
    late = Outcome()
    follower.read(late.read)
    net.settle()
    for message in list(answers):
        follower.receive(message)
        net.settle()
    assert not late.ended and follower.state.get(b"/new") is None
    net.heal()
    net.until(lambda: late.ended)
    assert late.done and follower.state.get(b"/new") is not None
