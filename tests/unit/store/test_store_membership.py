"""Who the members are: each change, each refusal, and what holds after any sequence of them."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.errors import InvalidRequest
from minikube_py.raft.configuration import Change, ChangeType, ConfChange, Configuration
from minikube_py.store.membership import (
    MEMBERS_MAX,
    REMOVED_MAX,
    ChangeKind,
    Member,
    MemberChange,
    Membership,
    decode_member_change,
    encode_member_change,
)

A, B, C = (Member(number, name, f"{name}:1", f"{name}:2") for number, name in ((1, "a"), (2, "b"), (3, "c")))
D = Member(4, "d", "d:1", "d:2", learner=True, auto_promote=True)
THREE = Membership.of((C, A, B))


def expect(name: str, **more: object) -> MemberChange:
    return MemberChange(ChangeKind.EXPECT, name=name, **more)


def join(node: int, name: str, **more: object) -> MemberChange:
    return MemberChange(ChangeKind.JOIN, node, name, **more)


def promote(node: int) -> MemberChange:
    return MemberChange(ChangeKind.PROMOTE, node)


def remove(node: int = 0, name: str = "") -> MemberChange:
    return MemberChange(ChangeKind.REMOVE, node, name)


def changed(membership: Membership, *changes: MemberChange) -> Membership:
    for change in changes:
        membership = membership.apply(change)
    return membership


def test_the_first_members_come_with_the_first_entry():
    first = Membership().apply(MemberChange(ChangeKind.BOOTSTRAP, members=(C, A, B)))
    assert first == THREE and first.configuration() == Configuration(frozenset((1, 2, 3)))


def test_a_member_is_expected_joins_as_a_learner_and_becomes_a_voter():
    expecting = changed(THREE, expect("d", peer="d:1"))
    assert expecting.expecting("d") == Member(0, "d", "d:1") and expecting.named("d") is None
    assert expecting.configuration() == THREE.configuration()
    joined = expecting.apply(join(4, "d", client="d:2"))
    assert joined.get(4) == D and joined.expected == ()
    voting = joined.apply(promote(4))
    assert voting.get(4) == Member(4, "d", "d:1", "d:2")
    assert voting.configuration() == Configuration(frozenset((1, 2, 3, 4)))


def test_one_expected_as_a_learner_stays_one():
    joined = changed(THREE, expect("d", learner=True), join(4, "d"))
    assert joined.get(4).learner and not joined.get(4).auto_promote


def test_a_wiped_member_takes_its_place_under_another_id_in_one_step():
    change = join(9, "b", peer="new:1", rejoin=True)
    after = THREE.apply(change)
    assert after.named("b") == Member(9, "b", "new:1", "b:2", learner=True, auto_promote=True)
    assert after.removed == (2,)
    conf = THREE.conf_change(change)
    assert conf.changes == (Change(ChangeType.REMOVE, 2), Change(ChangeType.ADD_LEARNER, 9))
    assert decode_member_change(conf.context) == change


def test_to_join_twice_changes_nothing():
    joined = changed(THREE, expect("d"), join(4, "d"))
    assert joined.apply(join(4, "d")) == joined
    assert joined.conf_change(join(4, "d")).changes == ()


CONF_CHANGES = [
    ("an expected member is no change to Raft", THREE, expect("d"), ()),
    ("nor is its removal", changed(THREE, expect("d")), remove(name="d"), ()),
    ("nor an address", THREE, MemberChange(ChangeKind.UPDATE, 1, peer="x:1"), ()),
    ("one joins", changed(THREE, expect("d")), join(4, "d"), (Change(ChangeType.ADD_LEARNER, 4),)),
    ("one votes", Membership.of((A, D)), promote(4), (Change(ChangeType.ADD_VOTER, 4),)),
    ("one goes by id", THREE, remove(3), (Change(ChangeType.REMOVE, 3),)),
    ("one goes by name", THREE, remove(name="c"), (Change(ChangeType.REMOVE, 3),)),
]


@pytest.mark.parametrize(
    ("before", "change", "changes"), [case[1:] for case in CONF_CHANGES], ids=[case[0] for case in CONF_CHANGES]
)
def test_what_a_change_is_to_raft(before, change, changes):
    assert before.conf_change(change) == ConfChange(changes, context=encode_member_change(change))


def test_an_update_keeps_what_it_does_not_name():
    after = THREE.apply(MemberChange(ChangeKind.UPDATE, 2, client="b:9"))
    assert after.get(2) == Member(2, "b", "b:1", "b:9")
    assert after.apply(MemberChange(ChangeKind.UPDATE, 2, name="bee")).named("bee").id == 2


REFUSALS = [
    ("members are there", THREE, MemberChange(ChangeKind.BOOTSTRAP, members=(A,)), "members exist already"),
    ("expected without a name", THREE, expect(""), "needs a name"),
    ("expected, but there", THREE, expect("a"), "member 'a' exists already"),
    ("not expected", THREE, join(4, "d"), "announce it first"),
    ("the name is another's", THREE, join(4, "a"), "--rejoin"),
    ("the id is another's", changed(THREE, expect("d")), join(1, "d"), "has another name here"),
    ("removed forever", changed(THREE, remove(3), expect("c")), join(3, "c"), "was removed"),
    ("no id", changed(THREE, expect("d")), join(0, "d"), "needs an id"),
    ("promote a voter", THREE, promote(1), "votes already"),
    ("promote nobody", THREE, promote(8), "no member 8"),
    ("remove nobody", THREE, remove(8), "no member 8"),
    ("remove nobody by name", THREE, remove(name="x"), "no member 'x'"),
    ("remove the last voter", Membership.of((A, D)), remove(1), "last voter"),
    ("replace the last voter", Membership.of((A, D)), join(9, "a", rejoin=True), "last voter"),
    ("update nobody", THREE, MemberChange(ChangeKind.UPDATE, 8), "no member 8"),
    ("a name that is taken", THREE, MemberChange(ChangeKind.UPDATE, 1, name="b"), "'b' is taken"),
]


@pytest.mark.parametrize(
    ("before", "change", "message"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS]
)
def test_what_does_not_fit_is_refused(before, change, message):
    with pytest.raises(InvalidRequest, match=message):
        before.apply(change)
    with pytest.raises(InvalidRequest, match=message):
        before.conf_change(change)


def test_there_is_a_limit_to_members():
    membership = THREE
    for number in range(MEMBERS_MAX - 3):
        membership = membership.apply(expect(f"m{number}"))
    with pytest.raises(InvalidRequest, match=str(MEMBERS_MAX)):
        membership.apply(expect("one more"))
    assert membership.apply(expect("m0", peer="elsewhere:1")).expecting("m0").peer == "elsewhere:1"


def test_removed_ids_are_remembered_up_to_a_limit():
    membership = THREE
    for number in range(10, 10 + REMOVED_MAX + 5):
        membership = changed(membership, expect("d"), join(number, "d"), remove(number))
    assert len(membership.removed) == REMOVED_MAX and membership.removed[-1] == 10 + REMOVED_MAX + 4


texts = st.sampled_from(["a", "b", "c", "d", "e", ""])
ids = st.integers(0, 6)
changes = st.builds(
    MemberChange,
    st.sampled_from(list(ChangeKind)[1:]),
    ids,
    texts,
    st.sampled_from(["", "h:1"]),
    st.sampled_from(["", "h:2"]),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(changes, max_size=30))
def test_whatever_is_asked_names_and_ids_stay_unique_and_someone_votes(asked):
    membership = THREE
    for change in asked:
        assert decode_member_change(encode_member_change(change)) == change
        try:
            conf = membership.conf_change(change)
        except InvalidRequest:
            continue
        voters, learners = set(membership.configuration().voters), set(membership.configuration().learners)
        for kind, node in conf.changes:
            voters.discard(node)
            learners.discard(node)
            if kind != ChangeType.REMOVE:
                (voters if kind == ChangeType.ADD_VOTER else learners).add(node)
        membership = membership.apply(change)
        assert membership.configuration() == Configuration(frozenset(voters), learners=frozenset(learners))
        assert Membership.from_plain(msgpack.unpackb(msgpack.packb(membership.to_plain()))) == membership
        everyone = [member.name for member in (*membership.members, *membership.expected)]
        assert len(set(everyone)) == len(everyone)
        assert not {member.id for member in membership.members} & set(membership.removed)
        assert voters


BROKEN = [b"", b"\xc1", msgpack.packb(5), msgpack.packb([9, 0, "", "", "", False, False, []])]
BROKEN += [
    msgpack.packb(fields)
    for fields in (
        [2, "1", "", "", "", False, False, []],
        [2, -1, "", "", "", False, False, []],
        [2, 1 << 63, "", "", "", False, False, []],
        [2, 1, b"", "", "", False, False, []],
        [2, 1, "x" * 300, "", "", False, False, []],
        [2, 1, "", "", "", 1, False, []],
        [1, 0, "", "", "", False, False, [5]],
        [1, 0, "", "", "", False, False],
    )
]


@pytest.mark.parametrize("data", BROKEN)
def test_what_is_no_change_is_refused(data):
    with pytest.raises(InvalidRequest, match="not a change"):
        decode_member_change(data)


@pytest.mark.parametrize("plain", [None, [[], []], [[[1, "a"]], [], []], [[], [], ["x"]]])
def test_what_is_no_membership_is_refused(plain):
    with pytest.raises(InvalidRequest, match="not a membership"):
        Membership.from_plain(plain)
