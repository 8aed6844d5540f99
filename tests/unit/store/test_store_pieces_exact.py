"""Pieces of a store, each beside a rule that says all of it: frames, pages, parts of answers, runs of entries, when a
snapshot is due and what it lets go, what a transfer takes, and what a member may be."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import run_virtually

from minikube_py.errors import Compacted, InvalidRequest, MinikubeError
from minikube_py.mvcc.state import StateMachine
from minikube_py.mvcc.types import Compact, DeleteRange, Event, KeyValue, Put, RangeRequest, RangeResult
from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import Entry, LogIndex, SnapshotMeta, Term
from minikube_py.store import paging, protocol, snapshot_transfer
from minikube_py.store.framing import FrameReader, Greeting, ProtocolError, frame, unpack_frame
from minikube_py.store.log_files import _run_end
from minikube_py.store.membership import (
    MEMBERS_MAX,
    REMOVED_MAX,
    TEXT_MAX,
    ChangeKind,
    Member,
    MemberChange,
    Membership,
    decode_member_change,
    encode_member_change,
)
from minikube_py.store.protocol import decode_range, event_frames, fragments, key_value_bytes, range_frames, split
from minikube_py.store.replica_config import ReplicaConfig
from minikube_py.store.replica_snapshots import ENTRY_BYTES, Snapshots
from minikube_py.store.server import StoreServer
from minikube_py.store.snapshot_transfer import SNAPSHOT_BYTES_MAX, IncomingSnapshot, SnapshotOffer, TransferRefused

# -- frames ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=6), max_size=6),
    st.lists(st.integers(1, 30), min_size=1),
)
def test_frames_are_what_was_sent_however_the_bytes_come(values: list[list[int]], cuts: list[int]) -> None:
    data, found, at = b"".join(map(frame, values)), [], 0
    reader = FrameReader(100)
    for turn in range(10_000):
        if at >= len(data):
            break
        size = cuts[turn % len(cuts)]
        found += reader.feed(data[at : at + size])
        at += size
    assert found == [tuple(value) for value in values]


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_frame_may_have_as_many_bytes_as_the_limit_and_no_more(pieces: int) -> None:
    whole = frame(["x" * 50])
    for over in (0, 1):
        reader, step = FrameReader(len(whole) - 4 - over), len(whole) // pieces + 1
        parts = [whole[at : at + step] for at in range(0, len(whole), step)]
        if over:
            with pytest.raises(ProtocolError, match=f"of {len(whole) - 4} bytes is over the limit of {len(whole) - 5}"):
                [list(reader.feed(part)) for part in parts]
        else:
            assert [each for part in parts for each in reader.feed(part)] == [("x" * 50,)]


@pytest.mark.parametrize("body", [b"", b"\xc1", msgpack.packb(5), msgpack.packb([]), msgpack.packb({1: 2}), b"\x91"])
def test_what_is_no_array_is_no_frame(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack_frame(body)


def test_a_frame_may_hold_maps_by_number_and_its_lists_are_tuples() -> None:
    assert unpack_frame(msgpack.packb([1, {5: [2, 3]}])) == (1, {5: (2, 3)})


def test_a_hello_is_refused_for_the_first_thing_that_is_wrong() -> None:
    greeting = Greeting("magic", 3, "is a test's")
    [hello] = FrameReader(1000).feed(greeting.hello("token", 0))
    assert hello == ("magic", 3, "token", 0) and greeting.refuses(hello, "token") is None
    assert greeting.refuses(("magic", 3, "token"), "token") == (
        "hello",
        "this port is a test's; this is not its handshake",
    )
    assert greeting.refuses(("other", 3, "token", 0), "token")[0] == "hello"  # type: ignore[index]
    long = greeting.refuses(("magic", "9" * 50, "token", 0), "token")
    assert long == ("version", "protocol version '" + "9" * 50 + "' is not supported, only 3")
    for shown in ("Token", "", 5, None, b"token"):
        assert greeting.refuses(("magic", 3, shown, 0), "token") == ("token", "the token is wrong")


# -- parts of answers --------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 12), max_size=20), st.integers(1, 20))
def test_parts_are_as_large_as_they_may_be_and_hold_one_item_at_least(sizes: list[int], most: int) -> None:
    parts = list(split(sizes, iter(sizes), most))
    assert [at for start, stop in parts for at in range(start, stop)] == list(range(len(sizes)))
    for position, (start, stop) in enumerate(parts):
        held = sizes[start:stop]
        first = next((at for at, size in enumerate(held) if size), len(held))
        assert stop > start and (sum(held) <= most or first == len(held) - 1)
        if position + 1 < len(parts):
            assert sum(held) + sizes[stop] > most and sum(held) > 0


def kvs(sizes: list[int]) -> list[KeyValue]:
    return [KeyValue(b"%03d" % at, bytes(size), 1, at + 1, 1, 0) for at, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 200), max_size=12), st.booleans())
def test_an_answer_and_a_batch_arrive_as_they_were(sizes: list[int], with_fields: bool) -> None:
    found = kvs(sizes)
    fields: Any = [(at, None) for at in range(len(found))] if with_fields else None
    result = RangeResult(found, 99, True, 7, fields, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "PART_BYTES", 150)
        patch.setattr(protocol.split, "__defaults__", (150,))
        frames = [unpack_frame(each[4:]) for each in range_frames(5, result)]
        *parts, (number, kind, rest) = frames
        assert all(each[:2] == (5, protocol.Answer.PART) for each in parts) and (number, kind) == (5, 0)
        back = decode_range([(kvs_, fields_) for _, _, kvs_, fields_ in parts], rest)
        assert back == result
        assert len(frames) == max(1, len(list(split(found, map(key_value_bytes, found), 150))))
        events = [Event("PUT", kv, None) for kv in found]
        batches = [unpack_frame(each[4:]) for each in event_frames(6, 7, events)]
        assert [more for *_, more in batches] == [True] * (len(batches) - 1) + [False]
        shown = [event for _, _, _, some, _ in batches for event in protocol.decode_events(some)]
        assert shown == events and {revision for _, _, revision, _, _ in batches} == {7}
        whole = frame((1, bytes(sum(sizes))))
        pieces = [unpack_frame(each[4:]) for each in fragments(8, whole)]
        assert b"".join(piece for _, _, piece, _ in pieces) == whole[4:]
        assert [last for *_, last in pieces] == [False] * (len(pieces) - 1) + [True]
        assert all(len(piece) == 150 for _, _, piece, _ in pieces[:-1])


# -- pages -------------------------------------------------------------------------------------------------------------

NAMES = [b"k%02d" % at for at in range(12)]
REQUESTS = st.builds(
    RangeRequest,
    st.sampled_from([b"", b"\0", b"k", b"k03", b"z"]),
    st.sampled_from([b"\0", b"k05", b"l"]),
    limit=st.integers(0, 9),
    revision=st.integers(0, 14),
    keys_only=st.booleans(),
    count_only=st.booleans(),
    sort_target=st.sampled_from(["KEY", "VERSION", "CREATE", "MOD", "VALUE"]),
    sort_order=st.sampled_from(["NONE", "ASCEND", "DESCEND"]),
    min_mod_revision=st.sampled_from([0, 0, 4]),
    max_mod_revision=st.sampled_from([0, 0, 9]),
)


def stored() -> StateMachine:
    state, rng = StateMachine(), random.Random(5)
    for at, name in enumerate(NAMES):
        state.apply(Put(name, b"%d" % rng.randrange(9)))
        if at % 3 == 2:
            state.apply(Put(NAMES[at - 1], b"again"))
        if at == 7:
            state.apply(DeleteRange(NAMES[2], NAMES[4]))
    return state


class Reading:
    def __init__(self, state: StateMachine) -> None:
        self.state = state

    def read(self, request: RangeRequest) -> RangeResult:
        return self.state.range(request)


@given(REQUESTS, st.integers(1, 5))
def test_what_is_read_in_pages_is_what_is_read_at_once(request: RangeRequest, page: int) -> None:
    async def main() -> None:
        state = stored()
        try:
            wanted = state.range(request)
        except MinikubeError as error:
            with pytest.raises(type(error)):
                await paging.read(Reading(state), request)
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(paging, "PAGE", page)
            found = await paging.read(Reading(state), request)
        assert found == wanted

    run_virtually(main)


async def test_what_is_written_between_two_pages_is_not_seen_and_history_that_goes_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paging, "PAGE", 3)
    everything = RangeRequest(b"k", b"l", sort_target="VALUE", sort_order="ASCEND")
    for compacts in (False, True):
        state = stored()
        wanted = state.range(everything)

        async def turn(_: float, state: StateMachine = state, compacts: bool = compacts) -> None:
            state.apply(Put(NAMES[-1], b"later"))
            state.apply(DeleteRange(NAMES[-2]))
            if compacts:
                state.apply(Compact(state.revision))

        monkeypatch.setattr(paging, "asyncio", SimpleNamespace(sleep=turn))
        if compacts:
            with pytest.raises(Compacted):
                await paging.read(Reading(state), everything)
        else:
            assert await paging.read(Reading(state), everything) == wanted


def test_what_one_step_answers_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    state = stored()
    live = state.index.count(b"k", b"l")
    everything = RangeRequest(b"k", b"l")
    cases = [
        (everything, live), (everything._replace(limit=3), 4), (everything._replace(count_only=True), 0),
        (everything._replace(range_end=b""), 0), (everything._replace(fields=("x",)), 0),
        (everything._replace(limit=3, sort_target="VALUE", sort_order="DESCEND"), live),
        (everything._replace(revision=state.revision - 5), live + 2),
        (everything._replace(revision=state.revision - 5, limit=1), 5),
        (everything._replace(revision=state.revision), live),
    ]  # fmt: skip
    for request, page in cases:
        for size in (page, page - 1):
            monkeypatch.setattr(paging, "PAGE", size)
            assert paging.is_small(state, request) == (size >= page or page == 0), (request, size)


# -- the log and its snapshots -----------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from([1, 1, 1, 2]), st.sampled_from([0, 0, 0, 1]), st.integers(0, 30)), min_size=1),
    st.integers(0, 80),
)
def test_a_run_is_of_one_term_and_kind_and_as_long_as_fits(shape: list[tuple[int, int, int]], most: int) -> None:
    entries = [Entry(Term(term), LogIndex(at), bytes(size), kind) for at, (term, kind, size) in enumerate(shape, 1)]
    start = 0
    while start < len(entries):
        stop = _run_end(entries, start, most)
        run = entries[start:stop]
        assert run and len({(entry.term, entry.kind) for entry in run}) == 1

        def size(those: list[Entry]) -> int:
            return len(those[0].data) + sum(len(entry.data) + 5 for entry in those[1:])

        assert len(run) == 1 or size(run) <= most
        if stop < len(entries) and (entries[stop].term, entries[stop].kind) == (run[0].term, run[0].kind):
            assert size([*run, entries[stop]]) > most
        start = stop


class Files:
    def __init__(self) -> None:
        self.written_bytes = 0
        self.snapshot: Any = None
        self.reclaims = False

    def reclaimable(self, data_bytes: int) -> bool:
        return self.reclaims


def snapshot_file(index: int, size_bytes: int) -> Any:
    return SimpleNamespace(head=SimpleNamespace(index=index), size_bytes=size_bytes)


def raft(applied: int, wanted: bool = False) -> Any:
    return SimpleNamespace(log=SimpleNamespace(applied=applied), snapshot_wanted=wanted)


LIMITS = ReplicaConfig(snapshot_log_bytes=1000, log_bytes_max=5000)


@pytest.mark.parametrize(
    ("newest_bytes", "alone", "due_at"), [(None, True, 1000), (900, True, 1000), (3000, True, 3000), (9000, True, 9000),
                                          (3000, False, 3000), (9000, False, 5000)]
)  # fmt: skip
def test_a_snapshot_is_due_after_so_much_log(newest_bytes: int | None, alone: bool, due_at: int) -> None:
    files = Files()
    snapshots = Snapshots(files, LIMITS)  # type: ignore[arg-type]
    files.written_bytes = 700
    snapshots.begin(100)
    if newest_bytes is not None:
        files.snapshot = snapshot_file(5, newest_bytes)
    for over in (-1, 0):
        files.written_bytes = 600 + due_at + over
        assert snapshots.due(raft(9), alone, None) == (over == 0)
    files.written_bytes = 600
    assert snapshots.due(raft(9, wanted=True), alone, None) and not snapshots.due(raft(9), alone, None)
    assert not snapshots.due(raft(0, wanted=True), alone, None), "there is nothing to snapshot"
    snapshots._taking = True
    assert not snapshots.due(raft(9, wanted=True), alone, None)


def test_where_the_disk_is_full_one_is_due_if_it_gives_room_back() -> None:
    files = Files()
    snapshots = Snapshots(files, LIMITS)  # type: ignore[arg-type]
    assert not snapshots.due(raft(9), True, 500)
    files.reclaims = True
    assert snapshots.due(raft(9), True, 500) and not snapshots.due(raft(9), True, None)
    for index, lacks in ((8, False), (9, True), (10, True)):
        files.snapshot = snapshot_file(index, 10)
        assert snapshots.lacks_entry(raft(9)) == lacks and snapshots.due(raft(9), True, 500) == (not lacks)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(0, 12), st.integers(0, 400), st.integers(0, 6)
)
def test_behind_a_snapshot_a_tail_is_kept_as_long_and_large_as_it_may_be(
    sizes: list[int], entries_max: int, bytes_max: int, offset: int
) -> None:
    entries = [Entry(Term(1), LogIndex(at), bytes(size)) for at, size in enumerate(sizes, offset + 1)]
    last = offset + len(entries)
    kept: list[int] = []

    def cut(first: int, until: int) -> list[Entry]:
        assert offset <= first < until
        return [entry for entry in entries if first < entry.index <= until]

    log = SimpleNamespace(offset=LogIndex(offset), slice=cut)
    limits = ReplicaConfig(tail_entries_max=entries_max, tail_bytes_max=bytes_max)
    Snapshots(Files(), limits)._forget_log(SimpleNamespace(log=log, compact=kept.append), LogIndex(last))  # type: ignore[arg-type]
    [keep_from] = kept

    def weight(after: int) -> int:
        return sum(len(entry.data) + ENTRY_BYTES for entry in entries if entry.index > after)

    assert last - keep_from <= entries_max and weight(keep_from) <= bytes_max
    if keep_from > offset and last - keep_from < entries_max:
        assert weight(keep_from - 1) > bytes_max, "one more would have fitted"


class Part:
    """A file that is received, and the folder it is in."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.gone: list[str] = []
        self.disk = SimpleNamespace(remove=self.gone.append)

    def write_incoming(self) -> tuple[str, Part]:
        return "part", self

    def write_at(self, offset: int, data: bytes) -> None:
        assert offset == len(self.data)
        self.data += data

    def sync(self) -> None: ...

    def close(self) -> None: ...


def offer(size_bytes: int) -> SnapshotOffer:
    meta = SnapshotMeta(LogIndex(7), Term(2), Configuration(frozenset((NodeId(1),))))
    return SnapshotOffer(meta, size_bytes, bytes(32))


@pytest.mark.parametrize(
    ("size", "fits"), [(-1, False), (0, False), (1, True), (SNAPSHOT_BYTES_MAX, True), (SNAPSHOT_BYTES_MAX + 1, False)]
)
def test_a_snapshot_that_is_offered_has_a_size_that_can_be_held(size: int, fits: bool) -> None:
    if fits:
        IncomingSnapshot(Part(), offer(size), 1)  # type: ignore[arg-type]
    else:
        with pytest.raises(TransferRefused, match=f"a snapshot of {size} bytes"):
            IncomingSnapshot(Part(), offer(size), 1)  # type: ignore[arg-type]


def test_what_comes_of_a_snapshot_comes_in_order_and_is_synced_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_transfer, "SYNC_BYTES", 100)
    part = Part()
    incoming = IncomingSnapshot(part, offer(300), 1)  # type: ignore[arg-type]
    synced = [incoming.write(at, bytes(size)) is not None for at, size in ((0, 99), (99, 1), (100, 99), (199, 101))]
    assert synced == [False, True, False, True] and len(part.data) == incoming.offset == 300
    part = Part()
    incoming = IncomingSnapshot(part, offer(300), 1)  # type: ignore[arg-type]
    incoming.write(0, bytes(10))
    for offset, data in ((0, b"x"), (9, b"x"), (11, b"x"), (10, b""), (10, bytes(291))):
        with pytest.raises(TransferRefused, match="expected are those from 10 to 300"):
            incoming.write(offset, data)
    with pytest.raises(TransferRefused, match="10 of 300 bytes received"):
        next(incoming.finish())
    assert not incoming.closed and not incoming.complete
    incoming.discard()
    incoming.discard()
    assert incoming.closed and part.gone == ["part"]
    with pytest.raises(TransferRefused, match="has ended"):
        incoming.write(10, b"x")


# -- members -----------------------------------------------------------------------------------------------------------


def member(id: int, name: str = "", **kind: Any) -> Member:
    return Member(NodeId(id), name or f"m{id}", f"h:{id}", **kind)


THREE = Membership.of([member(1), member(2), member(3, learner=True)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (MemberChange(ChangeKind.BOOTSTRAP, members=(member(9),)), "members exist already"),
        (MemberChange(ChangeKind.EXPECT), "a member needs a name"),
        (MemberChange(ChangeKind.EXPECT, name="m1"), "member 'm1' exists already"),
        (MemberChange(ChangeKind.JOIN, name="m9"), "a joining member needs an id"),
        (MemberChange(ChangeKind.JOIN, NodeId(9), "m9"), "no member 'm9' is expected"),
        (MemberChange(ChangeKind.JOIN, NodeId(9), "m1"), "there is a member 'm1' with another id"),
        (MemberChange(ChangeKind.JOIN, NodeId(2), "m1", rejoin=True), "member 2 has another name here"),
        (MemberChange(ChangeKind.PROMOTE, NodeId(1)), "member 'm1' votes already"),
        (MemberChange(ChangeKind.PROMOTE, NodeId(9)), "there is no member 9"),
        (MemberChange(ChangeKind.REMOVE, name="m9"), "there is no member 'm9'"),
        (MemberChange(ChangeKind.UPDATE, NodeId(9)), "there is no member 9"),
        (MemberChange(ChangeKind.UPDATE, NodeId(1), "m2"), "the name 'm2' is taken"),
    ],
)
def test_a_change_that_does_not_fit_says_why(change: MemberChange, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        THREE.apply(change)
    with pytest.raises(InvalidRequest, match=said):
        THREE.conf_change(change)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([member(1), member(1, "x")], "two members have the same id"),
        ([member(1), member(2, "m1")], "two members have the same name"),
        ([member(1, learner=True)], "no member would vote"),
        ([member(id) for id in range(1, MEMBERS_MAX + 2)], f"at most {MEMBERS_MAX} members"),
    ],
)
def test_what_cannot_be_the_members_of_a_store_is_refused(members: list[Member], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Membership.of(members)


def test_so_many_members_and_expected_ones_there_may_be_and_so_many_removed_are_known() -> None:
    full = Membership.of([member(id) for id in range(1, MEMBERS_MAX)])
    more = full.apply(MemberChange(ChangeKind.EXPECT, name="a"))
    with pytest.raises(InvalidRequest, match="expected ones included"):
        more.apply(MemberChange(ChangeKind.EXPECT, name="b"))
    changed = more.apply(MemberChange(ChangeKind.EXPECT, name="a", peer="p:1"))
    assert [each.peer for each in changed.expected] == ["p:1"]
    assert changed.apply(MemberChange(ChangeKind.REMOVE, name="a")).expected == ()
    assert Membership.of([member(id) for id in range(1, MEMBERS_MAX + 1)]).members[-1].id == MEMBERS_MAX
    one = Membership.of([member(1)])
    for id in range(2, REMOVED_MAX + 5):
        one = one.apply(MemberChange(ChangeKind.EXPECT, name="x", learner=True))
        one = one.apply(MemberChange(ChangeKind.JOIN, NodeId(id), "x", "p:2"))
        one = one.apply(MemberChange(ChangeKind.REMOVE, NodeId(id)))
    assert list(one.removed) == list(range(5, REMOVED_MAX + 5))
    with pytest.raises(InvalidRequest, match="was removed"):
        one.apply(MemberChange(ChangeKind.JOIN, NodeId(9), "x"))
    with pytest.raises(InvalidRequest, match="'m1' is the last voter"):
        one.apply(MemberChange(ChangeKind.REMOVE, NodeId(1)))


@pytest.mark.parametrize(("expects_learner", "votes_later"), [(False, True), (True, False)])
def test_one_that_joins_has_what_was_expected_and_one_that_comes_again_what_stood(
    expects_learner: bool, votes_later: bool
) -> None:
    base = THREE.apply(MemberChange(ChangeKind.EXPECT, name="x", peer="p:1", client="c:1", learner=expects_learner))
    joined = base.apply(MemberChange(ChangeKind.JOIN, NodeId(9), "x")).get(9)
    assert joined == Member(NodeId(9), "x", "p:1", "c:1", True, votes_later)
    joined = base.apply(MemberChange(ChangeKind.JOIN, NodeId(9), "x", "p:2", "c:2"))
    assert joined.get(9) == Member(NodeId(9), "x", "p:2", "c:2", True, votes_later) and joined.expected == ()
    assert joined.apply(MemberChange(ChangeKind.JOIN, NodeId(9), "x", "p:3")) is joined, "once is enough"
    again = joined.apply(MemberChange(ChangeKind.JOIN, NodeId(10), "x", rejoin=True))
    assert again.get(10) == Member(NodeId(10), "x", "p:2", "c:2", True, votes_later)
    assert again.get(9) is None and again.removed == (9,)
    back = THREE.apply(MemberChange(ChangeKind.JOIN, NodeId(10), "m2", "p:9", rejoin=True))
    assert back.get(10) == Member(NodeId(10), "m2", "p:9", "", True, True), "it voted, and will again"


@pytest.mark.parametrize(
    "change",
    [
        MemberChange(ChangeKind.UPDATE, NodeId((1 << 63) - 1), "n" * TEXT_MAX, "p", "c"),
        MemberChange(ChangeKind.JOIN, NodeId(1), "n", learner=True, rejoin=True),
        MemberChange(ChangeKind.BOOTSTRAP, members=(member(1), member(2, learner=True, auto_promote=True)), version=3),
    ],
)
def test_a_change_is_read_as_it_was_written(change: MemberChange) -> None:
    assert decode_member_change(encode_member_change(change)) == change
    plain = list(msgpack.unpackb(encode_member_change(change)))
    for at, wrong in ((0, 99), (1, -1), (1, 1 << 63), (2, "n" * (TEXT_MAX + 1)), (2, 5), (5, 1), (6, None), (8, 0)):
        spoiled = [*plain, 1][: max(len(plain), at + 1)]
        spoiled[at] = wrong
        with pytest.raises(InvalidRequest, match="not a change of members"):
            decode_member_change(msgpack.packb(spoiled))


def test_a_membership_is_read_as_it_was_written_and_nothing_else_is() -> None:
    whole = THREE.apply(MemberChange(ChangeKind.EXPECT, name="x")).apply(MemberChange(ChangeKind.REMOVE, NodeId(2)))
    plain = msgpack.unpackb(msgpack.packb(whole.to_plain()), use_list=False)
    assert Membership.from_plain(plain) == whole
    for wrong in ((), (1, 2, 3), (plain[0], plain[1], (0,)), (plain[0], plain[1], ("1",)), (((1,),), (), ())):
        with pytest.raises(InvalidRequest, match="not a membership"):
            Membership.from_plain(wrong)


# -- the server --------------------------------------------------------------------------------------------------------


class Leading:
    def __init__(self) -> None:
        leader = member(2)
        self.leads: Member | None = leader
        self.clock: Any = SimpleNamespace()
        self.leader_listeners: list[Any] = []
        self.member_id = NodeId(1)
        self.replica: Any = SimpleNamespace(cluster_id=7, leader=lambda: self.leads)
        self.raft: Any = SimpleNamespace(term=4)
        self.state: Any = SimpleNamespace(revision=9)
        self.membership = THREE


async def test_a_server_says_who_leads_and_whose_store_it_is() -> None:
    leading = Leading()
    server = StoreServer(leading, "token", port=0)  # type: ignore[arg-type]
    members = ((1, ""), (2, ""), (3, ""))
    assert server.greeting() == (7, 9, 1, (2, "", 4, members))
    leading.leads = None
    assert server.leadership() == (0, "", 4, members)
    assert server.welcome((protocol.GREETING.magic, protocol.VERSION, "token", 0)) is None
    assert server.welcome((protocol.GREETING.magic, protocol.VERSION, "token", 7)) is None
    said = server.welcome((protocol.GREETING.magic, protocol.VERSION, "token", 8))
    assert str(said) == "this is cluster 7, not 8"
    assert "token is wrong" in str(server.welcome((protocol.GREETING.magic, protocol.VERSION, "x", 7)))
    await server.stop()
    assert leading.leader_listeners == []


async def test_an_address_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    leading = Leading()
    server = StoreServer(leading, "token", "127.0.0.1", 99)  # type: ignore[arg-type]

    async def listen(*_: Any) -> None:
        raise OSError(98, "the address is in use")

    monkeypatch.setattr(server.port, "listen", listen)
    with pytest.raises(MinikubeError, match=r"cannot serve the store on 127\.0\.0\.1:99: the address is in use"):
        await server.start()
    assert leading.leader_listeners == []
