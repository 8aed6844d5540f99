"""Whom a member lets in on its peer port, as a table."""

from __future__ import annotations

import pytest

from minikube_py.raft.configuration import NodeId
from minikube_py.store.peer_admission import Admission
from minikube_py.store.peer_protocol import LinkHello, Refusal

ONE, TWO, THREE, NINE = (NodeId(i) for i in (1, 2, 3, 9))
STANDING = Admission(ONE, "store-1", 0xC1, (ONE, TWO, THREE), (NINE,), applied=50)
NEW = Admission(ONE, "store-1", 0xC1, (), (), applied=0)
LEFT = Admission(ONE, "store-1", 0xC1, (TWO, THREE), (ONE,), applied=60)

CASES = [
    ("a member", STANDING, (0xC1, TWO, ONE, 0), None, ""),
    ("a member that is ahead", STANDING, (0xC1, TWO, ONE, 99), None, ""),
    ("not begun yet", Admission(ONE, "store-1"), (0xC1, TWO, ONE, 0), Refusal.EARLY, "store-1 is not in a cluster yet"),
    ("another cluster", STANDING, (0xC2, TWO, ONE, 0), Refusal.CLUSTER, "this is a member of cluster c1, not of c2"),
    ("another member meant", STANDING, (0xC1, TWO, NINE, 0), Refusal.ADDRESSEE, "this is member 1, not 9"),
    ("removed", STANDING, (0xC1, NINE, ONE, 0), Refusal.REMOVED, "member 9 was removed from cluster c1: empty"),
    ("removed, and does not know it", STANDING, (0xC1, NINE, ONE, 99), Refusal.REMOVED, "under a new id"),
    ("a stranger", STANDING, (0xC1, NodeId(7), ONE, 0), Refusal.STRANGER, "member 7 is unknown in cluster c1"),
    ("a stranger that is not ahead", STANDING, (0xC1, NodeId(7), ONE, 50), Refusal.STRANGER, "is unknown"),
    ("one that joined by entries not applied here", STANDING, (0xC1, NodeId(7), ONE, 51), None, ""),
    ("one's own id", STANDING, (0xC1, ONE, ONE, 0), Refusal.STRANGER, "member 1 is this one"),
    ("anybody, to one that knows nobody yet", NEW, (0xC1, TWO, ONE, 0), None, ""),
    ("anybody, to one that was removed", LEFT, (0xC1, NodeId(7), ONE, 0), None, ""),
    ("another cluster's, to one that knows nobody yet", NEW, (0xC2, TWO, ONE, 0), Refusal.CLUSTER, "not of c2"),
]


@pytest.mark.parametrize(
    ("admission", "hello", "refusal", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_admission(admission, hello, refusal, text):
    cluster_id, sender, to, applied = hello
    found = admission.refuses(LinkHello(cluster_id, sender, to, "h:1", applied))
    assert (found and found.refusal) == refusal
    assert found is None or text in str(found)
