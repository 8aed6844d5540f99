"""Majorities: pure functions of a configuration and the voters' values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from minikube_py.raft.configuration import Configuration, NodeId
from minikube_py.raft.message import LogIndex

VoteResult = Literal["WON", "LOST", "PENDING"]
NOTHING = LogIndex(0)


def majority(voters: Collection[NodeId]) -> int:
    return len(voters) // 2 + 1


def committed_index(configuration: Configuration, match: Mapping[NodeId, LogIndex]) -> LogIndex:
    """The largest index that a majority of the voters has, of both halves if the configuration is joint. A voter that
    has not reported counts as 0; without voters the result is 0."""
    index = _agreed(configuration.voters, match)
    if configuration.outgoing:
        return min(index, _agreed(configuration.outgoing, match))
    return index


def vote_result(configuration: Configuration, votes: Mapping[NodeId, bool]) -> VoteResult:
    """WON with a majority of granted votes, LOST once that is impossible; joint: WON in both halves, LOST in one."""
    result = _elected(configuration.voters, votes)
    if not configuration.outgoing or result == "LOST":
        return result
    other = _elected(configuration.outgoing, votes)
    return result if other == "WON" else other


def has_majority(configuration: Configuration, nodes: Collection[NodeId]) -> bool:
    return vote_result(configuration, dict.fromkeys(nodes, True)) == "WON"


def _agreed(voters: Collection[NodeId], match: Mapping[NodeId, LogIndex]) -> LogIndex:
    indexes = sorted([match.get(voter, NOTHING) for voter in voters])
    return indexes[(len(indexes) - 1) // 2] if indexes else NOTHING


def _elected(voters: Collection[NodeId], votes: Mapping[NodeId, bool]) -> VoteResult:
    granted = refused = 0
    for voter in voters:
        vote = votes.get(voter)
        if vote is not None:
            granted += vote
            refused += not vote
    needed = majority(voters)
    if granted >= needed:
        return "WON"
    return "LOST" if len(voters) - refused < needed else "PENDING"
