"""Laws of Raft's values: quorums and configurations, progress and its limits, the log, and what travels as plain data.

Quorums are checked against counting by hand over all sets of up to six members.
"""

from __future__ import annotations

from itertools import combinations, product

import msgpack
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from raft_rules import is_quorum, subsets

from minikube_py.raft import quorum
from minikube_py.raft.codec import decode_change, encode_change, message_from_plain, message_to_plain
from minikube_py.raft.configuration import (
    Change,
    ChangeRefused,
    ChangeType,
    ConfChange,
    Configuration,
    changed,
    checked,
)
from minikube_py.raft.log import RaftLog
from minikube_py.raft.message import Entry, EntryKind, Message, MessageType, SnapshotMeta
from minikube_py.raft.progress import Inflights, Progress, ProgressState

IDS = st.integers(1, 6)
SETS = st.frozensets(IDS, max_size=5)
VOTERS = st.frozensets(IDS, min_size=1, max_size=5)
INDEXES = st.integers(0, 12)
WORD = st.integers(0, 2**63 - 1)


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Sound ones, joint or not."""
    voters = draw(VOTERS)
    outgoing = draw(st.one_of(st.just(frozenset()), VOTERS))
    learners = draw(SETS) - voters - outgoing
    learners_next = draw(st.just(frozenset()) if not outgoing else SETS) & outgoing - voters
    return Configuration(voters, outgoing, learners, learners_next, bool(outgoing) and draw(st.booleans()))


CHANGES = st.builds(Change, st.sampled_from(ChangeType), IDS)
CONF_CHANGES = st.one_of(
    st.builds(ConfChange, st.lists(CHANGES, max_size=4).map(tuple), context=st.binary(max_size=8)),
    st.just(ConfChange(leave_joint=True)),
)

# Quorums


@given(configurations(), st.dictionaries(IDS, st.booleans()))
def test_a_vote_is_won_when_both_halves_are_lost_when_one_is(configuration: Configuration, votes: dict) -> None:
    granted = {id for id, vote in votes.items() if vote}
    may_grant = set(range(1, 7)) - {id for id, vote in votes.items() if not vote}
    result = quorum.vote_result(configuration, votes)
    if is_quorum(configuration, granted):
        assert result == "WON"
    elif is_quorum(configuration, may_grant):
        assert result == "PENDING"
    else:
        assert result == "LOST"
    assert quorum.has_majority(configuration, granted) == (result == "WON")


@given(configurations(), st.dictionaries(IDS, INDEXES))
def test_what_is_committed_is_the_highest_that_a_quorum_has(configuration: Configuration, match: dict) -> None:
    expected = max(
        index
        for index in (0, *match.values())
        if index == 0 or is_quorum(configuration, {id for id, has in match.items() if has >= index})
    )
    assert quorum.committed_index(configuration, match) == expected


@given(configurations(), st.dictionaries(IDS, INDEXES), IDS, INDEXES)
def test_commit_and_votes_only_grow_with_what_is_heard(
    configuration: Configuration, match: dict, who: int, more: int
) -> None:
    before = quorum.committed_index(configuration, match)
    after = quorum.committed_index(configuration, {**match, who: max(match.get(who, 0), more)})
    assert after >= before
    votes = dict.fromkeys(match, True)
    if quorum.vote_result(configuration, votes) == "WON":
        assert quorum.vote_result(configuration, {**votes, who: True}) == "WON"


@settings(max_examples=60)
@given(configurations())
def test_any_two_quorums_meet_in_a_joint_configuration_and_in_each_half(configuration: Configuration) -> None:
    everyone = sorted(configuration.voters | configuration.outgoing)
    halves = [Configuration(half) for half in (configuration.voters, configuration.outgoing) if half]
    deciding = {
        one: [set(ids) for ids in subsets(everyone) if quorum.has_majority(one, ids)]
        for one in (configuration, *halves)
    }
    for joint in deciding[configuration]:
        assert all(joint & other for half in halves for other in deciding[half])
        assert all(joint & other for other in deciding[configuration])


def test_nobody_decides_nothing() -> None:
    nobody = Configuration(frozenset())
    assert quorum.committed_index(nobody, {1: 5}) == 0
    assert quorum.vote_result(nobody, {1: True}) != "WON"


# Configurations


@given(configurations(), CONF_CHANGES)
def test_a_change_leads_to_a_sound_configuration_or_is_refused(before: Configuration, change: ConfChange) -> None:
    try:
        after = changed(before, change)
    except ChangeRefused:
        return
    assert checked(after) == after and after.voters
    assert not after.learners & (after.voters | after.outgoing)
    if before.joint and not change.leave_joint:
        assert after == before
    if len(change.changes) <= 1 and not change.leave_joint:
        assert len(after.voters ^ before.voters) <= 1 and not (after.joint and not before.joint)
    if len(change.changes) > 1:
        assert after.outgoing == before.voters and after.auto_leave


@settings(max_examples=200)
@given(configurations(), CONF_CHANGES)
def test_quorums_before_and_after_any_change_meet(before: Configuration, change: ConfChange) -> None:
    """Else both could decide, each without the other (the thesis, 4.1 and 4.3)."""
    try:
        after = changed(before, change)
    except ChangeRefused:
        return
    everyone = sorted(before.voters | before.outgoing | after.voters | after.outgoing)
    old = [ids for ids in subsets(everyone) if quorum.has_majority(before, ids)]
    new = [ids for ids in subsets(everyone) if quorum.has_majority(after, ids)]
    assert all(one & other for one in old for other in new)


@given(configurations(), st.lists(CHANGES, min_size=2, max_size=4))
def test_in_and_out_of_a_joint_configuration(before: Configuration, changes: list[Change]) -> None:
    assume(not before.joint)
    try:
        joint = changed(before, ConfChange(tuple(changes)))
    except ChangeRefused:
        return
    after = changed(joint, ConfChange(leave_joint=True))
    assert not after.joint and after.voters == joint.voters
    assert after.learners == joint.learners | joint.learners_next
    last = {change.node: change.type for change in changes}
    for node, kind in last.items():
        assert (node in after.voters) == (kind == ChangeType.ADD_VOTER)
        assert (node in after.learners) == (kind == ChangeType.ADD_LEARNER)
    for node in set(range(1, 7)) - set(last):
        assert (node in after.voters, node in after.learners) == (node in before.voters, node in before.learners)
    with pytest.raises(ChangeRefused):
        changed(after, ConfChange(leave_joint=True))


@given(VOTERS, SETS, IDS)
def test_what_is_added_and_removed_again_leaves_no_trace(voters: frozenset, learners: frozenset, node: int) -> None:
    before = Configuration(voters - {node} or frozenset((9,)), learners=learners - voters - {node, 9})
    for kind in (ChangeType.ADD_VOTER, ChangeType.ADD_LEARNER):
        after = changed(before, ConfChange((Change(kind, node),)))
        assert after.contains(node) and after.votes(node) == (kind == ChangeType.ADD_VOTER)
        assert changed(after, ConfChange((Change(ChangeType.REMOVE, node),))) == before


@given(configurations(), st.binary(max_size=20))
def test_a_context_alone_changes_nothing(before: Configuration, context: bytes) -> None:
    assert changed(before, ConfChange(context=context)) == before


# Progress


class Peer:
    """A follower's log as a number, and what it is asked; the truth that Progress must never overtake."""

    def __init__(self, has: int) -> None:
        self.has = has


ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 4)),
    st.tuples(st.just("acknowledge"), st.integers(0, 30)),
    st.tuples(st.just("refuse"), st.integers(0, 30)),
    st.tuples(st.just("probe"), st.just(0)),
    st.tuples(st.just("snapshot"), st.integers(1, 30)),
    st.tuples(st.just("snapshot ended"), st.integers(0, 1)),
)


@given(st.integers(1, 10), st.lists(ACTIONS, max_size=40))
def test_progress_never_forgets_and_never_skips(start: int, actions: list[tuple[str, int]]) -> None:
    """match < next; match only grows and is only what was acknowledged; what is in flight keeps to its limits."""
    progress = Progress(start, Inflights(3, 100))
    best = 0
    for name, number in actions:
        if name == "send" and not progress.paused:
            progress.sent(progress.next + number - 1, 10 * number)
        elif name == "acknowledge" and number < progress.next:
            best = max(best, number)
            known = progress.match
            assert progress.acknowledged(number) == (number > known)
            if progress.state is ProgressState.PROBE and number == progress.match:
                progress.replicate()
        elif name == "refuse":
            progress.refused(progress.next - 1, number)
        elif name == "probe":
            progress.probe()
        elif name == "snapshot" and number >= progress.match and progress.state is not ProgressState.SNAPSHOT:
            progress.send_snapshot(number)
        elif name == "snapshot ended" and progress.state is ProgressState.SNAPSHOT:
            progress.snapshot_ended(bool(number))
        assert progress.match == best < progress.next
        assert len(progress.inflights) <= 3
        assert progress.inflights.size_bytes >= 0
        if progress.state is not ProgressState.REPLICATE:
            assert len(progress.inflights) == 0
        if progress.state is ProgressState.SNAPSHOT:
            assert progress.paused


@given(
    st.integers(1, 5),
    st.integers(1, 200),
    st.lists(st.one_of(st.tuples(st.just("add"), st.integers(0, 90)), st.tuples(st.just("free"), st.integers(0, 40)))),
)
def test_inflights_count_what_is_not_acknowledged(messages_max: int, bytes_max: int, actions: list) -> None:
    inflights = Inflights(messages_max, bytes_max)
    model: list[tuple[int, int]] = []
    last = 0
    for name, number in actions:
        if name == "free":
            inflights.free_to(number)
            model = [one for one in model if one[0] > number]
        elif not inflights.full:
            last += 1
            inflights.add(last, number)
            model.append((last, number))
        size = sum(one[1] for one in model)
        assert (len(inflights), inflights.size_bytes) == (len(model), size)
        assert inflights.full == (len(model) >= messages_max or size >= bytes_max)
    inflights.clear()
    assert (len(inflights), inflights.size_bytes, inflights.full) == (0, 0, False)


# The log

TERMS = st.lists(st.integers(1, 4), max_size=8).map(sorted)


def log_of(terms: list[int]) -> RaftLog:
    return RaftLog(entries=[Entry(term, index, b"%d@%d" % (index, term)) for index, term in enumerate(terms, start=1)])


def content(log: RaftLog) -> list[Entry]:
    return list(log.slice(log.offset, log.last_index))


@given(TERMS, TERMS, st.data())
def test_accepting_makes_the_log_agree_and_takes_away_no_more_than_it_must(
    own: list[int], other: list[int], data: st.DataObject
) -> None:
    """Figure 2, receiver implementation 3 and 4, against doing it entry by entry."""
    mine, leaders = log_of(own), log_of(other)
    shared = [index for index in range(min(len(own), len(other)) + 1) if not index or own[:index] == other[:index]]
    before = data.draw(st.sampled_from(shared))
    new = content(leaders)[before : data.draw(st.integers(before, len(other)))]
    expected = content(mine)
    for entry in new:
        if entry.index <= len(expected) and expected[entry.index - 1].term != entry.term:
            expected = expected[: entry.index - 1]
        if entry.index > len(expected):
            expected.append(entry)
    kept = next((n for n, (a, b) in enumerate(zip(content(mine), expected)) if a != b), min(len(own), len(expected)))
    mine.accept(new)
    assert content(mine) == expected
    assert mine.stable == mine.handed == kept, "what was replaced is not durable, and has to be written"


@given(TERMS, st.integers(0, 12), st.integers(0, 6))
def test_where_logs_may_still_agree(own: list[int], index: int, term: int) -> None:
    """The hint skips all entries of terms that the other cannot have, and none that it may."""
    log = log_of(own)
    place, found = log.agreement(index, term)
    assert 0 <= place <= min(index, log.last_index)
    expected = max(n for n in range(min(index, len(own)) + 1) if n == 0 or own[n - 1] <= term)
    assert place == expected
    assert found == (own[place - 1] if place else 0)


# Plain data

ENTRIES = st.builds(Entry, WORD, WORD, st.binary(max_size=20), st.sampled_from([int(kind) for kind in EntryKind]))
METAS = st.builds(SnapshotMeta, WORD, WORD, configurations())
MESSAGES = st.builds(
    Message,
    type=st.sampled_from([int(type) for type in MessageType if type != MessageType.HUP]),
    sender=st.integers(1, 2**63 - 1),
    to=st.integers(1, 2**63 - 1),
    term=WORD,
    log_term=WORD,
    index=WORD,
    commit=WORD,
    entries=st.lists(ENTRIES, max_size=3),
    reject=st.booleans(),
    hint=WORD,
    context=st.binary(max_size=16),
    snapshot=st.none() | METAS,
)


def same(one: Message, other: Message) -> bool:
    return one._replace(entries=tuple(one.entries)) == other._replace(entries=tuple(other.entries))


def travelled(plain: object) -> object:
    return msgpack.unpackb(msgpack.packb(plain), use_list=True, raw=False, strict_map_key=False)


@given(MESSAGES)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    message = sound(message)
    assert same(message_from_plain(travelled(message_to_plain(message))), message)


def sound(message: Message) -> Message:
    """What members do say: a snapshot in SNAPSHOT alone, entries in APPEND alone, without holes and their terms in
    order; no last entry and no snapshot of a term to come."""
    meta = message.snapshot or SnapshotMeta(1, 1, Configuration(frozenset((1,))))
    meta = meta._replace(term=min(meta.term, message.term))
    message = message._replace(
        snapshot=meta if message.type == MessageType.SNAPSHOT else None,
        index=min(message.index, 2**62),
        log_term=min(message.term, message.log_term),
    )
    if message.type != MessageType.APPEND:
        return message._replace(entries=())
    terms = sorted(min(max(entry.term, message.log_term), message.term) for entry in message.entries)
    entries = tuple(
        entry._replace(index=message.index + n, term=term)
        for n, (entry, term) in enumerate(zip(message.entries, terms), start=1)
    )
    return message._replace(entries=entries)


@given(CONF_CHANGES)
def test_a_change_is_read_as_it_was_written(change: ConfChange) -> None:
    assert decode_change(encode_change(change)) == change


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=9)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=14) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(JUNK)
def test_junk_is_no_message(junk: object) -> None:
    """Whatever a peer sends, it is a message of sound parts or a ValueError that says what is wrong."""
    try:
        message = message_from_plain(junk)
    except ValueError as error:
        assert str(error)
    else:
        assert isinstance(message, Message)


@settings(max_examples=300)
@given(MESSAGES, st.data())
def test_a_message_with_one_part_broken_is_refused_or_still_sound(message: Message, data: st.DataObject) -> None:
    plain = travelled(message_to_plain(sound(message)))
    assert isinstance(plain, list)
    path = data.draw(st.sampled_from(list(paths(plain))))
    holder = plain
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = data.draw(JUNK)
    try:
        read = message_from_plain(plain)
    except ValueError as error:
        assert str(error)
        return
    assert_sound(read)


def paths(plain: object, before: tuple[int, ...] = ()):
    if isinstance(plain, list):
        for position, part in enumerate(plain):
            yield (*before, position)
            yield from paths(part, (*before, position))


def assert_sound(message: Message) -> None:
    assert message.type in list(MessageType) and message.type != MessageType.HUP
    for number in (
        message.sender,
        message.to,
        message.term,
        message.log_term,
        message.index,
        message.commit,
        message.hint,
    ):
        assert type(number) is int and number >= 0
    assert type(message.reject) is bool and type(message.context) is bytes
    for entry in message.entries:
        assert isinstance(entry, Entry) and type(entry.data) is bytes and type(entry.term) is int and entry.term >= 0
        assert entry.kind in list(EntryKind) and type(entry.index) is int
    if message.type == MessageType.SNAPSHOT:
        assert isinstance(message.snapshot, SnapshotMeta)
        assert checked(message.snapshot.configuration)


@pytest.mark.parametrize("cut", range(12))
def test_a_message_cut_short_or_too_long_is_refused(cut: int) -> None:
    plain = list(message_to_plain(Message(MessageType.APPEND, 1, 2, 3, 4, 5, 6, (Entry(3, 6, b"x"),))))
    if cut < len(plain):
        with pytest.raises(ValueError):
            message_from_plain(plain[:cut])
    with pytest.raises(ValueError):
        message_from_plain([*plain, *range(cut + 1)])


@given(st.binary(max_size=40))
def test_junk_is_no_change(junk: bytes) -> None:
    try:
        change = decode_change(junk)
    except ValueError as error:
        assert str(error)
    else:
        assert isinstance(change, ConfChange)


def test_is_quorum_itself() -> None:
    """The measure that the laws are checked with, against the definition over all pairs of small sets."""
    for voters, outgoing in product(subsets(range(1, 4)), repeat=2):
        for ids in subsets(range(1, 4)):
            halves = [half for half in (voters, outgoing) if half]
            expected = bool(halves) and all(
                any(set(some) <= ids for some in combinations(sorted(half), len(half) // 2 + 1)) for half in halves
            )
            assert is_quorum(Configuration(voters, outgoing), ids) == expected
