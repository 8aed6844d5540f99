"""Whatever frames the holder of a member's credentials sends: no member ends, the cluster serves, and it starts again.

Fields are drawn at the edges of their types and around what the members hold. A frame that says what cannot be changes
nothing. One lie no member of Raft can see: that a majority holds an entry that none but the receiver has. The receiver
then holds other data than the others; they go on, and it says so.
"""

from __future__ import annotations

from typing import Any

import edges
import msgpack
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from replica_net import ReplicaNet

from minikube_py.mvcc.codec import pack
from minikube_py.mvcc.types import Put, RaiseVersion
from minikube_py.mvcc.versions import LATEST
from minikube_py.raft.codec import Malformed, encode_change, message_from_plain
from minikube_py.raft.configuration import Change, ChangeType, ConfChange, NodeId
from minikube_py.raft.message import TERM_MAX, TERMS_APART_MAX, LogIndex, Message, MessageType
from minikube_py.store.membership import ChangeKind, MemberChange, encode_member_change

FRAMES = settings(
    max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
SIZE = 3
INT_MAX = (1 << 63) - 1
JUNK = msgpack.packb([[[0, 12345]], False, b"junk"])
EVERYBODY = tuple(Change(ChangeType.REMOVE, NodeId(id)) for id in range(1, SIZE + 1))
EXPECT = encode_member_change(MemberChange(ChangeKind.EXPECT, name="store-9"))
CHANGES = [
    b"junk",
    JUNK,
    encode_change(ConfChange(EVERYBODY)),
    encode_change(ConfChange(leave_joint=True)),
    encode_change(ConfChange(context=EXPECT)),
    encode_change(ConfChange(context=msgpack.packb([99, *msgpack.unpackb(EXPECT)[1:]]))),
]
LATER = [msgpack.packb((1, [250, 1])), msgpack.packb((9, [1, b"k", b"v"])), pack(RaiseVersion(LATEST + 1))]
MOST = 6
AHEAD = (TERMS_APART_MAX - 100) // MOST
"""So many terms ahead all frames together stay within what the others believe (ADR 0120)."""
NUMBERS = {
    "term": [-1, 0, 1, 2, AHEAD, TERMS_APART_MAX + 1, TERM_MAX, INT_MAX],
    "index": [-2, -1, 0, 1, 2, INT_MAX],
}


def number(what: str) -> st.SearchStrategy[tuple[bool, int]]:
    """Absolute, or relative to what the receiver holds."""
    return st.tuples(st.booleans(), st.sampled_from(NUMBERS[what]))


RUNS = st.lists(
    st.tuples(
        st.integers(-1, 1),
        st.lists(st.one_of(edges.packed, edges.hostile_bytes, st.sampled_from(LATER)), min_size=1, max_size=3).map(
            lambda datas: (0, datas)
        )
        | st.lists(st.sampled_from(CHANGES), min_size=1, max_size=2).map(lambda datas: (1, datas)),
    ),
    max_size=2,
)
LEADERS = [int(MessageType.APPEND), int(MessageType.HEARTBEAT)]
DRAWN = st.fixed_dictionaries(
    {
        "type": st.sampled_from(LEADERS) | st.sampled_from([int(type) for type in MessageType]),
        "sender": st.integers(1, SIZE + 1),
        "to": st.integers(1, SIZE),
        "term": number("term"),
        "log_term": number("term"),
        "index": number("index"),
        "commit": number("index"),
        "runs": RUNS,
        "reject": st.booleans(),
        "hint": number("index"),
        "context": st.sampled_from([b"", b"transfer", bytes(8), bytes(1024)]),
        "ticks": st.integers(0, 3),
    }
)


def frame(net: ReplicaNet, drawn: dict[str, Any]) -> Message | None:
    """None: not even a frame; the link that brought it ends."""
    raft = net[drawn["to"]].raft
    base = {"term": raft.term, "log_term": raft.log.last_term, "index": raft.log.last_index}
    base |= {"commit": raft.log.committed, "hint": raft.log.last_index}
    value = {}
    for name in base:
        absolute, offset = drawn[name]
        value[name] = offset if absolute else base[name] + offset
    runs = [[value["term"] + min(0, less), kind, datas] for less, (kind, datas) in drawn["runs"]]
    plain = [
        drawn["type"], drawn["sender"], drawn["to"], value["term"], value["log_term"], value["index"], value["commit"],
        runs if drawn["type"] == MessageType.APPEND else [], drawn["reject"], value["hint"], drawn["context"], None,
    ]  # fmt: skip
    try:
        return message_from_plain(msgpack.unpackb(msgpack.packb(plain)))
    except Malformed:
        return None


def holds(net: ReplicaNet, index: int, term: int) -> int:
    return sum(net[id].raft.log.matches(LogIndex(index), term) for id in net.nodes)  # type: ignore[arg-type]


def receive(net: ReplicaNet, message: Message) -> bool:
    """Whether it lies about what a majority holds, unseen."""
    target = net[message.to]
    log = target.raft.log
    before = log.committed
    try:
        target.receive(message)
    except ValueError:
        assert message.type == MessageType.TELL, "for the driver, which takes it from the link"
    return log.committed > before and holds(net, log.committed, log.term(log.committed)) <= SIZE // 2


def begun() -> ReplicaNet:
    net = ReplicaNet()
    assert net.put(b"/a").done and net.change(ChangeKind.EXPECT, name="store-8").done and net.put(b"/b").done
    net.settle()
    return net


def run(frames: list[dict[str, Any]]) -> ReplicaNet:
    net = begun()
    odd: set[int] = set()
    for drawn in frames:
        message = frame(net, drawn)
        if message is not None and receive(net, message):
            odd.add(message.to)
        net.tick(drawn["ticks"])
    serves(net, odd)
    for id, node in net.nodes.items():
        node.crash(power=False)
        node.start()
        assert net[id].raft.log.last_index >= 0
    serves(net, odd)
    if not odd:
        net.assert_alike()
    return net


def serves(net: ReplicaNet, odd: set[int]) -> None:
    for _ in range(200):
        net.tick()
        leader = net.leader()
        if leader.leading and not leader.raft.log.committed < leader.raft.log.last_index:
            break
    outcome = net.propose(net.leader(), Put(b"/c", b"v"))
    for _ in range(200):
        if outcome.ended:
            break
        net.tick()
    assert outcome.done or (outcome.ended and net.put(b"/c").done)
    assert not any(node.failed for node in net.nodes.values()), [node.failed for node in net.nodes.values()]
    for id in odd:
        alike = net[id].state.hash() == net.leader().state.hash()
        assert alike or any(replica.refusals.count for replica in (net[id], net.leader()))


@FRAMES
@given(st.lists(DRAWN, min_size=1, max_size=MOST))
def test_any_frames_leave_the_members_alive_alike_and_restartable(frames: list[dict[str, Any]]) -> None:
    run(frames)
