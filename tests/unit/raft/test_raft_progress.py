"""A leader's view of a peer, state by state."""

from __future__ import annotations

import pytest
from raft_lone import PLAIN, Lone, of

from minikube_py.raft.configuration import Configuration
from minikube_py.raft.message import MessageType, SnapshotMeta
from minikube_py.raft.progress import Inflights, Progress, ProgressState

PROBE, REPLICATE, SNAPSHOT = ProgressState.PROBE, ProgressState.REPLICATE, ProgressState.SNAPSHOT


def progress(state=PROBE, match=0, next=11, messages_max=3, bytes_max=100) -> Progress:
    one = Progress(match + 1, Inflights(messages_max, bytes_max))
    one.match = match
    if state is REPLICATE:
        one.replicate()
    elif state is SNAPSHOT:
        one.send_snapshot(20)
    one.next = next
    return one


def test_a_probe_is_sent_alone():
    one = progress()
    one.sent(12, 50)
    assert one.paused and one.next == 11, "what comes next is known when it answers"
    assert one.acknowledged(12) and not one.paused and (one.match, one.next) == (12, 13)


def test_replicating_more_goes_out_until_the_limit_of_messages():
    one = progress(REPLICATE)
    for last in (11, 12, 13):
        assert not one.paused
        one.sent(last, 1)
    assert one.paused and one.next == 14
    one.acknowledged(12)
    assert not one.paused and len(one.inflights) == 1


def test_replicating_more_goes_out_until_the_limit_of_bytes():
    one = progress(REPLICATE)
    one.sent(11, 60)
    assert not one.paused
    one.sent(12, 60)
    assert one.paused and one.inflights.size_bytes == 120
    one.acknowledged(11)
    assert not one.paused and one.inflights.size_bytes == 60


def test_acknowledgements_arrive_late_and_twice():
    one = progress(REPLICATE)
    one.sent(11, 1)
    assert one.acknowledged(11)
    assert not one.acknowledged(11) and not one.acknowledged(3)
    assert (one.match, one.next) == (11, 12)


REFUSALS = [
    # state, match, next; refused index, where it may agree -> taken, next
    ("probe: from where it may agree", PROBE, 0, 11, 10, 4, True, 5),
    ("probe: never above what was refused", PROBE, 0, 11, 10, 30, True, 10),
    ("probe: never below what agrees", PROBE, 6, 11, 10, 2, True, 7),
    ("probe: an answer to an earlier one", PROBE, 0, 11, 7, 2, False, 11),
    ("replicating: back to what agrees", REPLICATE, 6, 20, 15, 10, True, 7),
    ("replicating: what agrees is not refused", REPLICATE, 6, 20, 5, 4, False, 20),
    ("waiting for a snapshot", SNAPSHOT, 6, 7, 6, 2, False, 7),
]


@pytest.mark.parametrize(
    ("state", "match", "next", "index", "may_agree", "taken", "after"),
    [case[1:] for case in REFUSALS],
    ids=[case[0] for case in REFUSALS],
)
def test_refusals(state, match, next, index, may_agree, taken, after):
    one = progress(state, match, next)
    assert one.refused(index, may_agree) is taken
    assert one.next == after and one.match == match
    assert one.state is (PROBE if taken else state)


@pytest.mark.parametrize(("well", "next"), [(True, 21), (False, 7)])
def test_a_snapshot_ends(well, next):
    one = progress(SNAPSHOT, match=6, next=7)
    assert one.paused
    one.snapshot_ended(well)
    assert one.state is PROBE and one.next == next
    assert one.paused, "its own word, or a heartbeat's, comes first"


def test_links_that_break_take_back_to_probing():
    one = progress(REPLICATE, match=6, next=7)
    one.sent(8, 10)
    one.commit_sent = 8
    one.probe()
    assert one.state is PROBE and one.next == 7 and len(one.inflights) == 0 and not one.paused
    assert one.commit_sent == 6, "it may not have heard of more"


def test_one_message_above_the_limit_of_bytes_passes_alone():
    inflights = Inflights(10, 100)
    inflights.add(1, 5000)
    assert inflights.full
    inflights.free_to(1)
    assert not inflights.full and inflights.size_bytes == 0 and len(inflights) == 0


@pytest.mark.parametrize("reached", range(1, 9))
def test_who_waits_for_a_snapshot_gets_entries_once_the_log_goes_on_from_what_it_has(reached: int) -> None:
    """The log holds entries 6 to 8. Source: etcd-io/raft's stepLeader, `pr.Match+1 >= r.raftLog.firstIndex()`."""
    lone = Lone(log=[1, 1], offset=5, offset_term=1, **PLAIN)
    lone.raft.snapshot_taken(SnapshotMeta(5, 1, Configuration(frozenset((1, 2, 3)))))
    lone.elect()
    refused = lone.step(MessageType.APPEND_REPLY, 2, index=7, reject=True, hint=0, log_term=0)
    assert of(refused, MessageType.SNAPSHOT), "it has nothing of what the log holds"
    sent = lone.step(MessageType.APPEND_REPLY, 2, index=reached)
    entries = [entry.index for message in of(sent, MessageType.APPEND) if message.to == 2 for entry in message.entries]
    assert entries == (list(range(reached + 1, 9)) if reached >= 5 else [])
    assert of(sent, MessageType.SNAPSHOT) == [], "one at a time"
