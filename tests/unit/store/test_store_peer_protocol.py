"""Words between members: each comes back as it was, however its bytes come, and nothing else is taken for one."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest, OutcomeUnknown, Unavailable
from minikube_py.raft.codec import message_to_plain
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import Entry, EntryKind, LogIndex, Message, MessageType, SnapshotMeta, Term
from minikube_py.store.bootstrap import Answer
from minikube_py.store.framing import FrameReader, ProtocolError, decode_error, frame
from minikube_py.store.membership import Member, Membership
from minikube_py.store.peer_protocol import (
    FRAME_BYTES_MAX,
    HELLO_BYTES_MAX,
    PEER_GREETING,
    PEER_VERSION,
    Ask,
    EntryPacker,
    LinkHello,
    Refusal,
    Reply,
    Say,
    failed_frame,
    link_hello,
    message_frame,
    offer_frame,
    read_message,
    read_offer,
    refusal_frame,
    refused,
    who_answer,
    who_frame,
)
from minikube_py.store.snapshot_transfer import SnapshotOffer

ONE, TWO = NodeId(1), NodeId(2)
META = SnapshotMeta(LogIndex(9), Term(2), Configuration(frozenset((ONE, TWO)), learners=frozenset((NodeId(3),))))
OFFER = SnapshotOffer(META, 12345, bytes(range(32)))


def said(type: MessageType, **fields) -> Message:
    return Message(type, ONE, TWO, Term(5), **fields)


RUN = [Entry(Term(4), LogIndex(8), b"x"), Entry(Term(4), LogIndex(9), b"")]
MIXED = [*RUN, Entry(Term(4), LogIndex(10), b"c", EntryKind.CHANGE), Entry(Term(5), LogIndex(11), b"y" * 70_000)]
MESSAGES = [
    said(MessageType.PRE_VOTE, index=LogIndex(7), log_term=Term(4)),
    said(MessageType.VOTE, index=LogIndex(7), log_term=Term(4), context=b"transfer"),
    said(MessageType.VOTE_REPLY, reject=True),
    said(MessageType.APPEND, index=LogIndex(7), log_term=Term(4), commit=LogIndex(6)),
    said(MessageType.APPEND, index=LogIndex(7), log_term=Term(4), commit=LogIndex(6), entries=RUN),
    said(MessageType.APPEND, index=LogIndex(7), log_term=Term(4), entries=MIXED),
    said(MessageType.APPEND_REPLY, index=LogIndex(7), reject=True, hint=3, log_term=Term(2)),
    said(MessageType.HEARTBEAT, commit=LogIndex(6), context=b"12345678"),
    said(MessageType.READ_INDEX, context=b"\x00" * 16),
    said(MessageType.TIMEOUT_NOW),
]


def read_all(data: bytes, step: int, limit_bytes: int = FRAME_BYTES_MAX) -> list:
    reader = FrameReader(limit_bytes)
    return [each for start in range(0, len(data), step) for each in reader.feed(data[start : start + step])]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000, 1 << 20])
def test_messages_come_back_however_the_bytes_come(step):
    packer = EntryPacker()
    data = b"".join(message_frame(message, packer) for message in MESSAGES)
    found = [read_message(arguments, ONE, TWO) for kind, *arguments in read_all(data, step) if kind == Say.MESSAGE]
    assert [message._replace(entries=list(message.entries)) for message in found] == [
        message._replace(entries=list(message.entries)) for message in MESSAGES
    ]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: MessageType(message.type).name)
def test_a_spliced_message_is_the_bytes_of_a_plain_one(message):
    packer = EntryPacker()
    whole = frame((Say.MESSAGE, message_to_plain(message)))
    assert message_frame(message, packer) == whole
    assert message_frame(message, packer) == whole, "the second time with entries packed before"


def test_the_same_entries_are_packed_once_and_others_are_not_taken_for_them():
    packer = EntryPacker()
    log = [Entry(Term(4), LogIndex(i), b"%d" % i) for i in range(8, 20)]
    for start, stop in [(0, 4), (0, 4), (0, 5), (1, 5), (2, 4), (4, 5), (4, 5)]:
        for to in (TWO, NodeId(3)):
            before = LogIndex(7 + start)
            message = Message(MessageType.APPEND, ONE, to, Term(5), Term(4), before, entries=log[start:stop])
            [(_, plain)] = FrameReader(FRAME_BYTES_MAX).feed(message_frame(message, packer))
            assert read_message([plain], ONE, to).entries == log[start:stop]
    other = [Entry(Term(5), LogIndex(12), b"other")]
    assert packer.find(log[4:5]) is not None and packer.find(other) is None


@pytest.mark.parametrize(
    ("message", "sender", "to"),
    [
        (MESSAGES[0], TWO, TWO),
        (MESSAGES[0], ONE, NodeId(3)),
        (said(MessageType.SNAPSHOT, snapshot=META), ONE, TWO),
    ],
    ids=["of another", "for another", "a snapshot without its bytes"],
)
def test_messages_that_do_not_belong_on_this_link(message, sender, to):
    [(_, plain)] = FrameReader(FRAME_BYTES_MAX).feed(message_frame(message, EntryPacker()))
    with pytest.raises(ProtocolError):
        read_message([plain], sender, to)


@pytest.mark.parametrize("arguments", [[], [None], [MESSAGES], [()], [message_to_plain(MESSAGES[0])[:-1]], [{}, 1]])
def test_what_is_no_message(arguments):
    with pytest.raises(ProtocolError):
        read_message(arguments, ONE, TWO)


def test_offers_come_back():
    message = said(MessageType.SNAPSHOT, snapshot=META)
    [(kind, *arguments)] = FrameReader(FRAME_BYTES_MAX).feed(offer_frame(message, OFFER))
    found, offer = read_offer(arguments, ONE, TWO)
    assert kind == Say.OFFER and (found._replace(entries=()), offer) == (message, OFFER)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda plain, size, sha: (plain, size),
        lambda plain, size, sha: (plain, 0, sha),
        lambda plain, size, sha: (plain, True, sha),
        lambda plain, size, sha: (plain, size, sha[:-1]),
        lambda plain, size, sha: (plain, size, "x" * 32),
        lambda plain, size, sha: (message_to_plain(MESSAGES[0]), size, sha),
        lambda plain, size, sha: (plain[:-1], size, sha),
        lambda plain, size, sha: ((*plain[:1], 7, *plain[2:]), size, sha),
    ],
)
def test_what_is_no_offer(spoil):
    plain = tuple(message_to_plain(said(MessageType.SNAPSHOT, snapshot=META)))
    with pytest.raises(ProtocolError):
        read_offer(spoil(plain, OFFER.size_bytes, OFFER.sha256), ONE, TWO)


# -- hellos and answers -----------------------------------------------------------------------------------------------

HELLO = LinkHello(0xC1, ONE, TWO, "store-1:2380", 17)


def test_a_hello_comes_back():
    [hello] = FrameReader(FRAME_BYTES_MAX).feed(PEER_GREETING.hello("token", Ask.LINK, *HELLO))
    assert hello[:4] == (PEER_GREETING.magic, PEER_VERSION, "token", Ask.LINK) and link_hello(hello[4:]) == HELLO


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        HELLO[:-1],
        (*HELLO, 1),
        ("1", *HELLO[1:]),
        (-1, *HELLO[1:]),
        (1 << 63, *HELLO[1:]),
        (True, *HELLO[1:]),
        (*HELLO[:3], b"store-1:2380", 17),
        (*HELLO[:3], "x" * 257, 17),
        (*HELLO[:4], None),
    ],
)
def test_what_is_no_hello(arguments):
    with pytest.raises(ProtocolError, match="a hello"):
        link_hello(arguments)


@pytest.mark.parametrize("refusal", Refusal)
def test_refusals_come_back(refusal):
    [(kind, *arguments)] = FrameReader(FRAME_BYTES_MAX).feed(refusal_frame(refusal, "because"))
    found = refused(arguments)
    assert kind == Reply.REFUSED and (found.refusal, str(found)) == (refusal, "because")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [([], ""), ([99, "of a later version"], "of a later version"), (["x"], ""), ([True, "y" * 5000], "y" * 1000)],
)
def test_refusals_of_another_version_are_kept_as_text(arguments, text):
    found = refused(arguments)
    assert (found.refusal, str(found)) == (Refusal.GARBLED, text)


def test_answers_come_back():
    member = Member(ONE, "store-1", "h:1", "h:2")
    answer = Answer(member, 0xC1, Membership.of([member]), ONE, 5)
    [(kind, *arguments)] = FrameReader(FRAME_BYTES_MAX).feed(who_frame(answer))
    assert kind == Reply.WHO and who_answer(arguments) == answer
    for bad in ([], [1], [None, None], ["x"]):
        with pytest.raises(ProtocolError):
            who_answer(bad)


@pytest.mark.parametrize("error", [Unavailable("later"), InvalidRequest("no"), OutcomeUnknown("who knows")])
def test_errors_come_back(error):
    [(kind, *arguments)] = FrameReader(FRAME_BYTES_MAX).feed(failed_frame(error))
    found = decode_error(arguments[0])
    assert kind == Reply.FAILED and type(found) is type(error) and str(found) == str(error)


# -- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 5, 1000])
def test_a_frame_over_the_limit_is_refused_before_it_comes(step):
    length = (HELLO_BYTES_MAX + 1).to_bytes(4, "little")
    with pytest.raises(ProtocolError, match=f"{HELLO_BYTES_MAX + 1} bytes is over the limit of {HELLO_BYTES_MAX}"):
        read_all(frame((1,)) + length, step, HELLO_BYTES_MAX)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x92\x01", b"\x01\x02", b"\x90", b"\x80", b"\x01", b"\xa1x"])
def test_a_frame_that_is_no_array_with_something_in_it(body):
    with pytest.raises(ProtocolError):
        list(FrameReader(FRAME_BYTES_MAX).feed(len(body).to_bytes(4, "little") + body))


def test_a_large_frame_in_small_pieces_is_put_together_once():
    data = frame((Say.CHUNK, 0, bytes(4 << 20)))
    reader = FrameReader(FRAME_BYTES_MAX)
    found = [each for start in range(0, len(data), 1000) for each in reader.feed(data[start : start + 1000])]
    assert len(found) == 1 and len(found[0][2]) == 4 << 20


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 9))
@settings(max_examples=100)
def test_garbage_is_refused_and_nothing_worse(bodies, step):
    data = b"".join(len(body).to_bytes(4, "little") + body for body in bodies)
    try:
        read_all(data, step, HELLO_BYTES_MAX)
    except ProtocolError:
        pass


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 20) | st.binary(max_size=4) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=12,
)


@given(st.sampled_from(MESSAGES), st.integers(0, 11), PLAIN)
@settings(max_examples=300)
def test_a_message_with_one_strange_field_is_read_as_a_message_or_refused(message, place, value):
    plain = message_to_plain(message)
    plain[place] = value
    [(_, arrived)] = FrameReader(FRAME_BYTES_MAX).feed(frame((Say.MESSAGE, plain)))
    try:
        found = read_message([arrived], ONE, TWO)
    except ProtocolError:
        return
    assert found.sender == ONE and found.to == TWO
    msgpack.packb(message_to_plain(found))
