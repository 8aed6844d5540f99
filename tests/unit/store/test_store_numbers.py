"""Numbers that other members, clients and files know: those that were released stay, and each means one thing."""

from __future__ import annotations

import json
from enum import IntEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.mvcc import codec, snapshot
from minikube_py.raft.codec import MEMBERS_MAX, Malformed, decode_change, encode_change
from minikube_py.raft.configuration import Change, ChangeType, ConfChange, NodeId
from minikube_py.raft.message import EntryKind, MessageType
from minikube_py.store import peer_protocol, protocol
from minikube_py.store.framing import LENGTH, FrameReader, frame, unpack_frame
from minikube_py.store.limits import FRAME_BYTES_MAX
from minikube_py.store.membership import ChangeKind
from minikube_py.wal.record import RecordType

RECORDED = Path(__file__).with_name("numbers.json")
ENUMS: tuple[type[IntEnum], ...] = (
    EntryKind, MessageType, ChangeType, RecordType, ChangeKind, protocol.Op, protocol.Answer, peer_protocol.Ask,
    peer_protocol.Say, peer_protocol.Reply, peer_protocol.Refusal,
)  # fmt: skip
RETIRED = {"Op": ("METRICS",)}
CODEC_TAGS = (
    "PUT", "DELETE", "TXN", "GRANT", "REVOKE", "CHECKPOINT", "COMPACT", "DECLARE", "RANGE", "OPEN", "IN_SESSION",
    "CLOSE", "DECLARE_INDEX", "DROP_INDEX", "RAISE", "SET_ALARM", "RELEASE", "PUT_RESULT", "DELETE_RESULT",
    "TXN_RESULT", "LEASE_RESULT", "COMPACT_RESULT", "RANGE_RESULT", "SESSION_RESULT", "EVENT", "BATCH", "ERROR",
)  # fmt: skip
SNAPSHOT_TAGS = ("HEAD", "BASE", "EVENTS", "BOUNDARY", "LEASE", "FIELDS", "END", "SESSION", "ALARM")


def numbers() -> dict[str, dict[str, int]]:
    found = {each.__name__: {one.name: int(one) for one in each} for each in ENUMS}
    found["snapshot"] = {name: getattr(snapshot, name) for name in SNAPSHOT_TAGS}
    found["codec"] = {name: getattr(codec, name) for name in CODEC_TAGS}
    return found


def test_what_was_released_has_its_number() -> None:
    """To add one, add it to the file, too. A number that is there is never changed or given to another, not even when
    what it meant has gone."""
    recorded = json.loads(RECORDED.read_text())
    gone = {name: {one: recorded[name][one] for one in ones} for name, ones in RETIRED.items()}
    found = numbers()
    assert {name: {**ones, **gone.get(name, {})} for name, ones in found.items()} == recorded
    assert [name for name, ones in gone.items() if set(ones.values()) & set(found[name].values())] == []


def test_no_number_means_two_things() -> None:
    for name, each in numbers().items():
        assert len(set(each.values())) == len(each), name


@pytest.mark.parametrize("count", [0, 1, MEMBERS_MAX - 1, MEMBERS_MAX, MEMBERS_MAX + 1])
def test_a_change_of_so_many_members_is_the_largest(count: int) -> None:
    change = ConfChange(tuple(Change(ChangeType.ADD_LEARNER, NodeId(id + 1)) for id in range(count)))
    if count > MEMBERS_MAX:
        with pytest.raises(Malformed, match=f"more than {MEMBERS_MAX} changes"):
            decode_change(encode_change(change))
    else:
        assert decode_change(encode_change(change)) == change


@given(st.integers(1, 40), st.integers(0, 130))
def test_fragments_are_of_the_limit_but_for_the_last_and_none_is_empty(part_bytes: int, size_bytes: int) -> None:
    whole = frame((4, protocol.Answer.OK, bytes(size_bytes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "PART_BYTES", part_bytes)
        pieces = [next(FrameReader(FRAME_BYTES_MAX).feed(data)) for data in protocol.fragments(4, whole)]
    lengths = [len(piece[2]) for piece in pieces]
    assert all(length == part_bytes for length in lengths[:-1]) and 0 < lengths[-1] <= part_bytes
    assert [piece[3] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert sum(lengths) == len(whole) - LENGTH.size
    assert unpack_frame(b"".join(piece[2] for piece in pieces)) == (4, protocol.Answer.OK, bytes(size_bytes))
