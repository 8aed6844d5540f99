"""What a member with an empty folder decides, as a table; and the words it says."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from minikube_py.errors import InvalidRequest, MinikubeError
from minikube_py.raft.configuration import NodeId
from minikube_py.store.bootstrap import (
    Answer,
    Enter,
    Form,
    Intent,
    Join,
    Refuse,
    Wait,
    answer_from_plain,
    answer_to_plain,
    cluster_id_of,
    decide,
    parse_initial_cluster,
)
from minikube_py.store.membership import ChangeKind, Member, MemberChange, Membership

ONE, TWO, THREE = (Member(NodeId(i), f"store-{i}", f"h{i}:2380", f"h{i}:2379") for i in (1, 2, 3))
TWO_ANEW = Member(NodeId(22), "store-2", "h2:2380", "h2:2379")
INITIAL = parse_initial_cluster("store-1=h1:2380,store-2=h2:2380,store-3=h3:2380")
ALL = (ONE, TWO, THREE)
CLUSTER = cluster_id_of(ALL)
STANDING = Membership.of(ALL)


def new(member: Member, seen=ALL, initial=INITIAL) -> Answer:
    return Answer(member, initial=initial, seen=seen)


def begun(member: Member, membership=STANDING, leader=1, applied=5, cluster_id=CLUSTER) -> Answer:
    return Answer(member, cluster_id, membership, NodeId(leader), applied)


def expecting(name: str, learner: bool = False) -> Membership:
    return STANDING.apply(MemberChange(ChangeKind.EXPECT, name=name, learner=learner))


def after(*changes: MemberChange) -> Membership:
    membership = STANDING
    for change in changes:
        membership = membership.apply(change)
    return membership


FOUR = Member(NodeId(4), "store-4", "h4:2380", "h4:2379")
WITH_FOUR = parse_initial_cluster("store-1=h1:2380,store-2=h2:2380,store-3=h3:2380,store-4=h4:2380")
JOIN_FOUR = MemberChange(ChangeKind.JOIN, FOUR.id, FOUR.name, FOUR.peer, FOUR.client)
EXPECT_FOUR = MemberChange(ChangeKind.EXPECT, name="store-4")
REMOVE_TWO = MemberChange(ChangeKind.REMOVE, id=TWO.id)
REJOIN_TWO = MemberChange(ChangeKind.JOIN, TWO_ANEW.id, "store-2", TWO_ANEW.peer, TWO_ANEW.client, rejoin=True)

CASES = [
    ("nobody answers", ONE, [], Wait("waiting for store-2 (h2:2380), store-3 (h3:2380) to answer")),
    ("one does not answer", ONE, [new(TWO)], Wait("waiting for store-3 (h3:2380) to answer")),
    ("all agree", ONE, [new(TWO), new(THREE)], Form(CLUSTER, ALL)),
    ("another member agrees alike", THREE, [new(ONE), new(TWO)], Form(CLUSTER, ALL)),
    (
        "one has not heard from all",
        ONE,
        [new(TWO), new(THREE, seen=(ONE, THREE))],
        Wait("waiting for store-3 to hear from all members"),
    ),
    (
        "one was wiped since the others heard of it",
        ONE,
        [new(TWO_ANEW), new(THREE)],
        Wait("waiting for store-2, store-3 to hear from all members"),
    ),
    (
        "one knows of a cluster, and counts for no other",
        ONE,
        [new(TWO), new(THREE, seen=())],
        Wait("waiting for store-3 to hear from all members"),
    ),
    (
        "one was started for other members",
        ONE,
        [new(TWO), new(THREE, initial=INITIAL[1:])],
        Wait(
            "store-3 was started with another --initial-cluster, store-2=h2:2380,store-3=h3:2380: they must be equal"
        ),
    ),
    (
        "two swapped their addresses",
        ONE,
        [new(Member(TWO.id, "store-2", THREE.peer)), new(Member(THREE.id, "store-3", TWO.peer))],
        Wait("h2:2380 is store-3, not store-2: one --initial-cluster is wrong"),
    ),
    (
        "one folder was copied",
        ONE,
        [new(Member(ONE.id, "store-2", TWO.peer)), new(THREE)],
        Refuse("two members have the same id: one folder was copied from the other; empty one of them"),
    ),
    ("one has formed, with us in it", TWO, [begun(ONE)], Form(CLUSTER, ALL)),
    ("one has formed, the other not yet", TWO, [begun(ONE), new(THREE)], Form(CLUSTER, ALL)),
    (
        "formed with us in it, and changed since",
        TWO,
        [begun(ONE, after(EXPECT_FOUR, JOIN_FOUR))],
        Enter(CLUSTER, after(EXPECT_FOUR, JOIN_FOUR)),
    ),
    (
        "the one that knows most is believed",
        FOUR,
        [begun(ONE, after(EXPECT_FOUR, JOIN_FOUR), applied=9), begun(TWO, expecting("store-4"), applied=8)],
        Enter(CLUSTER, after(EXPECT_FOUR, JOIN_FOUR)),
    ),
    (
        "wiped, and not asked to rejoin: a leader that is confirmed will say so",
        TWO_ANEW,
        [begun(ONE), begun(THREE)],
        Join(CLUSTER, ONE, replace(REJOIN_TWO, rejoin=False)),
    ),
    ("wiped, and asked to rejoin", (TWO_ANEW, True), [begun(ONE)], Join(CLUSTER, ONE, REJOIN_TWO)),
    (
        "wiped, and the cluster has no leader",
        (TWO_ANEW, True),
        [begun(ONE, leader=0)],
        Wait(f"cluster {CLUSTER:x} now has no leader to let store-2 join; waiting for one"),
    ),
    (
        "known in a record that may be of the past, and its leader is in none",
        TWO_ANEW,
        [begun(THREE, leader=9)],
        Wait(f"cluster {CLUSTER:x} now has no leader to let store-2 join; waiting for one"),
    ),
    ("expected", FOUR, [begun(ONE, expecting("store-4")), begun(TWO)], Join(CLUSTER, ONE, JOIN_FOUR)),
    ("expected as a learner", FOUR, [begun(TWO, expecting("store-4", True))], Join(CLUSTER, ONE, JOIN_FOUR)),
    (
        "not expected by one that says it leads: it may be new, or deposed, and is asked again as who leads",
        FOUR,
        [begun(ONE)],
        Join(CLUSTER, ONE, JOIN_FOUR),
    ),
    (
        "removed before it came",
        TWO,
        [begun(ONE, after(REMOVE_TWO))],
        Refuse(
            f"member 2 (store-2) was removed from cluster {CLUSTER:x}: empty its folder, and it may rejoin under a "
            "new id"
        ),
    ),
    (
        "removed, and one that lags does not know",
        TWO,
        [begun(THREE, applied=3), begun(ONE, after(REMOVE_TWO), applied=9)],
        Refuse(
            f"member 2 (store-2) was removed from cluster {CLUSTER:x}: empty its folder, and it may rejoin under a "
            "new id"
        ),
    ),
    (
        "two clusters",
        TWO,
        [begun(ONE, cluster_id=5), begun(THREE, cluster_id=6)],
        Refuse(
            "store-1 is of cluster 5 and store-3 is of cluster 6: --initial-cluster must name the members of one "
            "cluster"
        ),
    ),
]


@pytest.mark.parametrize(("me", "answers", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_decisions(me, answers, expected):
    me, rejoin = me if isinstance(me, tuple) else (me, False)
    initial = WITH_FOUR if me is FOUR else INITIAL
    assert decide(Intent(me, initial, rejoin), {answer.member.peer: answer for answer in answers}) == expected


def test_a_cluster_of_one_needs_nobody():
    initial = parse_initial_cluster("store-1=h1:2380")
    assert decide(Intent(ONE, initial), {}) == Form(cluster_id_of([ONE]), (ONE,))


def test_the_cluster_id_is_that_of_the_first_entry():
    assert cluster_id_of(ALL) == cluster_id_of(reversed(ALL)) > 0
    moved = Member(ONE.id, ONE.name, ONE.peer, "elsewhere:1")
    various = (ALL, (ONE, TWO), (ONE, TWO_ANEW, THREE), (moved, TWO, THREE))
    assert len({cluster_id_of(members) for members in various}) == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=h:1", (("a", "h:1"),)),
        (" b=h:2 , a=[::1]:1,", (("a", "[::1]:1"), ("b", "h:2"))),
    ],
)
def test_initial_cluster(text, expected):
    assert parse_initial_cluster(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names 0 members; give 1 to 32"),
        ("a", "'a' is not name=host:port"),
        ("=h:1", "is not name=host:port"),
        ("a=:1", "is not name=host:port"),
        ("a=h", "is not name=host:port"),
        ("a=h:x", "is not name=host:port"),
        ("a=h:0", "is not name=host:port"),
        ("a=h:65536", "is not name=host:port"),
        ("a=h:1,a=h:2", "a is named twice"),
        ("a" * 257 + "=h:1", "at most 256 characters"),
        (",".join(f"m{i}=h:1" for i in range(33)), "names 33 members"),
    ],
)
def test_bad_initial_cluster(text, message):
    with pytest.raises(MinikubeError, match=message):
        parse_initial_cluster(text)


def test_an_intent_fits_its_initial_cluster():
    with pytest.raises(MinikubeError, match="a member with peers needs --initial-cluster: all, store-4 too"):
        Intent(FOUR, ())
    with pytest.raises(MinikubeError, match="--name store-4 is not in --initial-cluster: store-1, store-2"):
        Intent(FOUR, INITIAL)
    with pytest.raises(MinikubeError, match="gives store-1 the address h1:2380, but its own flags give h9:1"):
        Intent(Member(ONE.id, "store-1", "h9:1"), INITIAL)


@pytest.mark.parametrize("answer", [new(ONE), new(TWO, ()), begun(ONE), begun(TWO, after(EXPECT_FOUR, REMOVE_TWO))])
def test_answers_survive_the_wire(answer):
    assert answer_from_plain(msgpack.unpackb(msgpack.packb(answer_to_plain(answer)), use_list=False)) == answer


@pytest.mark.parametrize(
    "spoil",
    [
        lambda plain: plain[:-1],
        lambda plain: (*plain, 1),
        lambda plain: ("x", *plain[1:]),
        lambda plain: (plain[0], -1, *plain[2:]),
        lambda plain: (plain[0], True, *plain[2:]),
        lambda plain: (*plain[:2], 5, *plain[3:]),
        lambda plain: (*plain[:3], 1 << 63, *plain[4:]),
        lambda plain: (*plain[:4], "9", *plain[5:]),
        lambda plain: (*plain[:5], (("a", 1),), plain[6]),
        lambda plain: (*plain[:5], (("a", "x" * 300),), plain[6]),
        lambda plain: (*plain[:5], (("a", "b"),) * 33, plain[6]),
        lambda plain: (*plain[:6], ((1, "n", "p", "c", False),)),
        lambda plain: (*plain[:6], (("1", "n", "p", "c", False, False),)),
        lambda plain: None,
    ],
)
def test_what_is_no_answer(spoil):
    with pytest.raises(InvalidRequest, match=r"not an? "):
        answer_from_plain(spoil(answer_to_plain(new(ONE))))
