"""What a leader refuses for the cluster's sake, by what it knows of its peers."""

from __future__ import annotations

import pytest

from minikube_py.errors import Unavailable
from minikube_py.raft.configuration import Configuration
from minikube_py.raft.status import PeerStatus, Status
from minikube_py.store.membership import ChangeKind, Member, MemberChange, Membership
from minikube_py.store.membership_checks import PROMOTE_LAG_ENTRIES, caught_up, check_timely, heir

LAST = 5000


def peer(id: int, match: int = LAST, *, active: bool = True, state: str = "replicate", learner: bool = False):
    return PeerStatus(id, match, match + 1, state, active, learner, 0, 0)


def status(*peers: PeerStatus) -> Status:
    """Of member 1, which leads."""
    learners = frozenset(each.id for each in peers if each.learner)
    voters = frozenset((1, *(each.id for each in peers))) - learners
    return Status(1, 3, 1, "LEADER", 1, LAST, LAST, LAST, Configuration(voters, learners=learners), 0, peers)


def membership(seen: Status) -> Membership:
    learners = seen.configuration.learners
    return Membership.of(
        Member(id, f"m{id}", learner=id in learners) for id in (*seen.configuration.voters, *learners)
    )


CAUGHT_UP = [
    ("at the end", peer(2), True),
    ("close", peer(2, LAST - PROMOTE_LAG_ENTRIES), True),
    ("probed", peer(2, state="probe"), True),
    ("too far", peer(2, LAST - PROMOTE_LAG_ENTRIES - 1), False),
    ("away", peer(2, active=False), False),
    ("waits for a snapshot", peer(2, state="snapshot"), False),
    ("nothing is known of it", peer(2, 0), False),
]


@pytest.mark.parametrize(("one", "has"), [case[1:] for case in CAUGHT_UP], ids=[case[0] for case in CAUGHT_UP])
def test_who_has_caught_up(one, has):
    assert caught_up(status(one)) == ({2} if has else set())


HEIRS = [
    ("the one with most", (peer(2, 10), peer(3, 20)), 3),
    ("not one that is away", (peer(2, 10), peer(3, 20, active=False)), 2),
    ("not a learner", (peer(2, 10), peer(3, 20, learner=True)), 2),
    ("nobody", (peer(3, 20, learner=True),), None),
]


@pytest.mark.parametrize(("peers", "expected"), [case[1:] for case in HEIRS], ids=[case[0] for case in HEIRS])
def test_who_is_handed_leadership(peers, expected):
    assert heir(status(*peers)) == expected


REMOVE = ChangeKind.REMOVE
CHANGES = [
    ("promote one that lags", (peer(2, 0, learner=True),), MemberChange(ChangeKind.PROMOTE, 2), "not caught up"),
    ("promote one that does not", (peer(2, learner=True),), MemberChange(ChangeKind.PROMOTE, 2), ""),
    ("remove one of three", (peer(2), peer(3)), MemberChange(REMOVE, 3), ""),
    ("remove the dead one", (peer(2), peer(3, active=False)), MemberChange(REMOVE, 3), ""),
    ("remove the live one", (peer(2), peer(3, active=False)), MemberChange(REMOVE, 2), "1 of 2 voters"),
    ("by name too", (peer(2), peer(3, active=False)), MemberChange(REMOVE, name="m2"), "without m2"),
    ("the leader itself", (peer(2), peer(3, active=False)), MemberChange(REMOVE, 1), "1 of 2 voters"),
    ("a learner", (peer(2, active=False), peer(3, learner=True)), MemberChange(REMOVE, 3), ""),
    ("nobody", (peer(2),), MemberChange(REMOVE, 9), ""),
    ("one that is expected", (peer(2, active=False),), MemberChange(ChangeKind.EXPECT, name="m3"), ""),
]


@pytest.mark.parametrize(
    ("peers", "change", "message"), [case[1:] for case in CHANGES], ids=[case[0] for case in CHANGES]
)
def test_changes_that_would_cost_the_quorum(peers, change, message):
    seen = status(*peers)
    if message:
        with pytest.raises(Unavailable, match=message):
            check_timely(change, membership(seen), seen)
    else:
        check_timely(change, membership(seen), seen)
