"""How one configuration becomes the next: a table of changes."""

from __future__ import annotations

import pytest

from minikube_py.raft.configuration import (
    Change,
    ChangeRefused,
    ChangeType,
    ConfChange,
    Configuration,
    changed,
    checked,
)

ADD, REMOVE, LEARN = ChangeType.ADD_VOTER, ChangeType.REMOVE, ChangeType.ADD_LEARNER
LEAVE = ConfChange(leave_joint=True)


def config(voters=(), outgoing=(), learners=(), learners_next=(), auto_leave=False) -> Configuration:
    return Configuration(
        frozenset(voters), frozenset(outgoing), frozenset(learners), frozenset(learners_next), auto_leave
    )


def change(*pairs) -> ConfChange:
    return ConfChange(tuple(Change(type, node) for type, node in pairs))


ALONE, THREE = config([1]), config([1, 2, 3])
TAKEN = [
    ("nobody: all at once", config(), change((ADD, 1), (ADD, 2), (LEARN, 3)), config([1, 2], learners=[3])),
    ("a voter comes", ALONE, change((ADD, 2)), config([1, 2])),
    ("a voter that is there", THREE, change((ADD, 2)), THREE),
    ("a learner comes", ALONE, change((LEARN, 2)), config([1], learners=[2])),
    ("a learner is promoted", config([1], learners=[2]), change((ADD, 2)), config([1, 2])),
    ("a learner that is there", config([1], learners=[2]), change((LEARN, 2)), config([1], learners=[2])),
    ("a voter is demoted", THREE, change((LEARN, 3)), config([1, 2], learners=[3])),
    ("a voter goes", THREE, change((REMOVE, 3)), config([1, 2])),
    ("a learner goes", config([1], learners=[2]), change((REMOVE, 2)), ALONE),
    ("a stranger goes", THREE, change((REMOVE, 9)), THREE),
    ("a context alone", THREE, ConfChange(context=b"x"), THREE),
    (
        "a context alone, while joint", config([1], [1, 2], auto_leave=True), ConfChange(context=b"x"),
        config([1], [1, 2], auto_leave=True),
    ),
    (
        "one for another", THREE, change((REMOVE, 3), (LEARN, 4)),
        config([1, 2], [1, 2, 3], learners=[4], auto_leave=True),
    ),
    (
        "a voter is demoted among others: it votes in the old half meanwhile", THREE, change((LEARN, 3), (ADD, 4)),
        config([1, 2, 4], [1, 2, 3], learners_next=[3], auto_leave=True),
    ),
    (
        "demoted and removed at once", THREE, change((LEARN, 3), (REMOVE, 3)),
        config([1, 2], [1, 2, 3], auto_leave=True),
    ),
    ("left", config([1, 4], [1, 2, 3], [5], [3], True), LEAVE, config([1, 4], learners=[3, 5])),
]
REFUSED = [
    ("no voter would be left", ALONE, change((REMOVE, 1)), "no voter"),
    ("the only voter becomes a learner", ALONE, change((LEARN, 1)), "no voter"),
    ("nobody and a learner", config(), change((LEARN, 1)), "no voter"),
    ("no such id", ALONE, change((ADD, 0)), "above 0"),
    ("no such type", ALONE, change((7, 2)), "type 7"),
    ("a change while joint", config([1, 2], [1], auto_leave=True), change((ADD, 3)), "joint"),
    ("to leave what is not joint", THREE, LEAVE, "not joint"),
    ("to leave and to change", config([1], [2], auto_leave=True), ConfChange((Change(ADD, 3),), True), "of its own"),
]


@pytest.mark.parametrize(("before", "how", "after"), [case[1:] for case in TAKEN], ids=[case[0] for case in TAKEN])
def test_changes(before, how, after):
    assert changed(before, how) == after == checked(after)


@pytest.mark.parametrize(("before", "how", "why"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_changes_that_are_refused(before, how, why):
    with pytest.raises(ChangeRefused, match=why):
        changed(before, how)


CONTRADICTIONS = [
    ("learner and voter", config([1, 2], learners=[2])),
    ("learner and outgoing voter", config([1], [1, 2], learners=[2])),
    ("a learner to come that never voted", config([1], [1, 2], learners_next=[3])),
    ("a learner to come that stays a voter", config([1, 2], [1, 2], learners_next=[2])),
    ("a learner to come without a joint configuration", config([1], learners_next=[2])),
    ("leaves what is not joint", config([1], auto_leave=True)),
    ("joint without voters", config([], [1])),
]


@pytest.mark.parametrize("wrong", [case[1] for case in CONTRADICTIONS], ids=[case[0] for case in CONTRADICTIONS])
def test_configurations_that_contradict_themselves(wrong):
    with pytest.raises(ChangeRefused):
        checked(wrong)


def test_who_belongs_and_who_votes():
    joint = config([1, 4], [1, 2, 3], [5], [3], True)
    assert joint.members() == [1, 2, 3, 4, 5] and joint.electors() == [1, 2, 3, 4] and joint.joint
    assert [node for node in range(7) if joint.votes(node)] == [1, 2, 3, 4]
    assert [node for node in range(7) if joint.contains(node)] == [1, 2, 3, 4, 5]
    assert not THREE.joint
