"""Messages in plain form: what arrives is what was sent, and what nobody would send is refused by name."""

from __future__ import annotations

import msgpack
import pytest

from minikube_py.raft.codec import (
    Malformed,
    configuration_from_plain,
    configuration_to_plain,
    decode_change,
    encode_change,
    message_from_plain,
    message_to_plain,
)
from minikube_py.raft.configuration import Change, ChangeType, ConfChange, Configuration
from minikube_py.raft.message import Entry, EntryKind, Message, MessageType, SnapshotMeta

JOINT = Configuration(frozenset([1, 4]), frozenset([1, 2, 3]), frozenset([5]), frozenset([3]), True)
ENTRIES = [Entry(2, 8, b"a"), Entry(2, 9, b"b"), Entry(2, 10, b"c", EntryKind.CHANGE), Entry(3, 11, b"")]
MESSAGES = [
    Message(MessageType.PRE_VOTE, 1, 2, 5, 4, 7),
    Message(MessageType.VOTE, 1, 2, 5, 4, 7, commit=3, hint=2, context=b"transfer"),
    Message(MessageType.VOTE_REPLY, 2, 1, 5, reject=True),
    Message(MessageType.APPEND, 1, 2, 5, 2, 7, 6, ENTRIES),
    Message(MessageType.APPEND, 1, 2, 5, 2, 7, 6),
    Message(MessageType.APPEND_REPLY, 2, 1, 5, 4, 7, reject=True, hint=3),
    Message(MessageType.HEARTBEAT, 1, 2, 5, commit=6, context=b"\0" * 8),
    Message(MessageType.SNAPSHOT, 1, 2, 5, snapshot=SnapshotMeta(7, 4, JOINT)),
    Message(MessageType.READ_INDEX_REPLY, 1, 2, 5, index=7, context=b"r"),
    Message(MessageType.TRANSFER, 2, 1, 5, hint=3),
    Message(MessageType.TIMEOUT_NOW, 1, 3, 5),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.type.name)
def test_messages_arrive_as_they_were_sent(message):
    arrived = message_from_plain(msgpack.unpackb(msgpack.packb(message_to_plain(message))))
    assert arrived._replace(entries=list(arrived.entries)) == message._replace(entries=list(message.entries))
    assert type(arrived.type) is MessageType


def test_entries_of_one_term_and_kind_travel_together():
    plain = message_to_plain(Message(MessageType.APPEND, 1, 2, 5, 2, 7, 6, ENTRIES))
    assert plain[7] == [(2, 0, [b"a", b"b"]), (2, 1, [b"c"]), (3, 0, [b""])]


def plain(**fields):
    """An APPEND as a peer would send it, with some fields as nobody would."""
    names = ["type", "sender", "to", "term", "log_term", "index", "commit", "runs", "reject", "hint", "context"]
    values = dict(zip(names, (5, 1, 2, 5, 2, 7, 6, [[2, 0, [b"a"]]], False, 0, b"")), snapshot=None)
    values.update(fields)
    return list(values.values())


WRONG = [
    ("no list", None, "a message is a list"),
    ("a map", {}, "a message is a list"),
    ("too short", [5, 1], "12 fields"),
    ("told to stand for election by a peer", plain(type=0, runs=[]), "never travels"),
    ("unknown type", plain(type=99, runs=[]), "type 99"),
    ("type is a boolean", plain(type=True), "type is a number"),
    ("nobody sends", plain(sender=0), "sender"),
    ("to a text", plain(to="2"), "to is a number"),
    ("term below 0", plain(term=-1), "term is a number"),
    ("term is a float", plain(term=5.0), "term is a number"),
    ("index too large", plain(index=1 << 63), "index is a number"),
    ("commit is missing", plain(commit=None), "commit is a number"),
    ("reject is a number", plain(reject=0), "reject"),
    ("hint is a list", plain(hint=[]), "hint is a number"),
    ("context is a text", plain(context="r"), "context"),
    ("context too large", plain(context=bytes(2000)), "context"),
    ("runs are bytes", plain(runs=b""), "entries is a list"),
    ("a run of two", plain(runs=[[2, 0]]), "3 fields"),
    ("an empty run", plain(runs=[[2, 0, []]]), "run is empty"),
    ("data is a text", plain(runs=[[2, 0, ["a"]]]), "not bytes"),
    ("data is a mix", plain(runs=[[2, 0, [b"a", None]]]), "not bytes"),
    ("unknown kind", plain(runs=[[2, 9, [b"a"]]]), "kind 9"),
    ("terms go back", plain(runs=[[3, 0, [b"a"]], [2, 0, [b"a"]]]), "term 2 after one of 3"),
    ("terms go back from the entry before", plain(runs=[[1, 0, [b"a"]]]), "term 1 after one of 2"),
    ("a term to come", plain(runs=[[6, 0, [b"a"]]]), "term 6"),
    ("the last index too large", plain(index=(1 << 63) - 1), "beyond"),
    ("the entry before of a term to come", plain(log_term=6, runs=[]), "log_term 6"),
    ("a heartbeat with entries", plain(type=7), "carries no entries"),
    ("an append with a snapshot", plain(snapshot=[1, 1, configuration_to_plain(JOINT)]), "no other"),
    ("a snapshot without one", plain(type=9, runs=[]), "names a snapshot"),
    ("a snapshot of a term to come", plain(type=9, runs=[], snapshot=[1, 6, configuration_to_plain(JOINT)]), "term 6"),
    ("half a snapshot", plain(type=9, runs=[], snapshot=[1, 1]), "3 fields"),
    ("a snapshot of nobody knows whom", plain(type=9, runs=[], snapshot=[1, 1, [1, 2]]), "a configuration has"),
]


@pytest.mark.parametrize(("wrong", "why"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_what_nobody_would_send_is_refused(wrong, why):
    with pytest.raises(Malformed, match=why):
        message_from_plain(wrong)


WRONG_CONFIGURATIONS = [
    ("no list", 7, "a list"),
    ("a set is missing", [[1], [], [], False], "four lists"),
    ("a boolean is missing", [[1], [], [], [], 0], "boolean"),
    ("a member twice", [[1, 1], [], [], [], False], "twice"),
    ("member 0", [[0], [], [], [], False], "not a member id"),
    ("a member that is a text", [["1"], [], [], [], False], "a number"),
    ("voter and learner", [[1], [], [1], [], False], "contradicts"),
    ("crowds", [list(range(1, 2000)), [], [], [], False], "more than"),
]


@pytest.mark.parametrize(
    ("wrong", "why"), [case[1:] for case in WRONG_CONFIGURATIONS], ids=[case[0] for case in WRONG_CONFIGURATIONS]
)
def test_configurations_that_cannot_be(wrong, why):
    with pytest.raises(Malformed, match=why):
        configuration_from_plain(wrong)


@pytest.mark.parametrize("configuration", [JOINT, Configuration(frozenset([3, 1, 2])), Configuration(frozenset())])
def test_configurations_are_read_as_they_were_written(configuration):
    plain = msgpack.unpackb(msgpack.packb(configuration_to_plain(configuration)))
    assert configuration_from_plain(plain) == configuration


CHANGES = [
    ConfChange(),
    ConfChange(context=b"\xff" * 5000),
    ConfChange(leave_joint=True),
    ConfChange((Change(ChangeType.ADD_VOTER, 1), Change(ChangeType.REMOVE, 1 << 62))),
]


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_read_as_they_were_written(change):
    assert decode_change(encode_change(change)) == change


WRONG_CHANGES = [
    ("nothing", b"", "not msgpack"),
    ("more behind it", encode_change(ConfChange()) + b"x", "not msgpack"),
    ("a number", msgpack.packb(7), "a list"),
    ("too short", msgpack.packb([[], False]), "a list, a boolean and bytes"),
    ("an unknown type", msgpack.packb([[[9, 1]], False, b""]), "a known type"),
    ("a member 0", msgpack.packb([[[0, 0]], False, b""]), "not a member id"),
    ("a text", msgpack.packb([[], False, "x"]), "bytes"),
    ("deep", b"\x91" * 5000, "not msgpack"),
]


@pytest.mark.parametrize(("wrong", "why"), [c[1:] for c in WRONG_CHANGES], ids=[c[0] for c in WRONG_CHANGES])
def test_changes_that_cannot_be_read(wrong, why):
    with pytest.raises(Malformed, match=why):
        decode_change(wrong)
