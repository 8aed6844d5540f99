"""Majorities as values: what a set of voters has agreed on. Pure functions over the voters' own figures."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import LogIndex

VoteResult = Literal["WON", "LOST", "PENDING"]


def majority(voters: Collection[NodeId]) -> int:
    return len(voters) // 2 + 1


def committed_index(voters: Collection[NodeId], match: Mapping[NodeId, LogIndex]) -> LogIndex:
    """The largest index that a majority of the voters has; who has not reported has nothing."""
    indexes = sorted((match.get(voter, LogIndex(0)) for voter in voters), reverse=True)
    return indexes[majority(voters) - 1]


def vote_result(voters: Collection[NodeId], votes: Mapping[NodeId, bool]) -> VoteResult:
    """WON with a majority of granted votes, LOST once that cannot be reached any more."""
    granted = sum(votes.get(voter, False) for voter in voters)
    refused = sum(not votes.get(voter, True) for voter in voters)
    if granted >= majority(voters):
        return "WON"
    return "LOST" if len(voters) - refused < majority(voters) else "PENDING"
