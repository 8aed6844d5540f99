"""Who refuses a pre-vote because its own log is more complete asks for votes at once, where it may (ADR 0183)."""

from __future__ import annotations

import pytest
from raft_lone import Lone, of

from minikube_py.raft.message import MessageType

HEARTBEAT = MessageType.HEARTBEAT


@pytest.mark.parametrize("role", ["learner", "leader is heard", "a vote, not a pre-vote"])
def test_who_refuses_a_shorter_log_asks_for_votes_itself_only_where_it_may(role):
    """It may be the only one who can win, and its own timeout may be up to half as long again away."""
    if role == "learner":
        lone = Lone(term=3, log=[1, 3], voters=(2, 3), learners=(1,))
    else:
        lone = Lone(term=3, log=[1, 3])
    if role == "leader is heard":
        lone.step(HEARTBEAT, 2)
    asked = MessageType.VOTE if "not a" in role else MessageType.PRE_VOTE
    sent = lone.step(asked, 3, term=4, index=1, log_term=1)
    assert lone.raft.role == "FOLLOWER" and not of(sent, MessageType.PRE_VOTE)
