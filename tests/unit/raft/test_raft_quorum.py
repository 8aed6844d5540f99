"""Quorums against counting by hand."""

from __future__ import annotations

from itertools import product

import pytest

from minikube_py.raft.configuration import Configuration
from minikube_py.raft.quorum import committed_index, has_majority, majority, vote_result


def among(voters, outgoing=()) -> Configuration:
    return Configuration(frozenset(voters), frozenset(outgoing))


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(voters, needed):
    assert majority(range(voters)) == needed


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_committed_is_the_largest_index_a_majority_has(voters):
    for indexes in product(range(4), repeat=voters):
        match = dict(enumerate(indexes))
        expected = max(i for i in range(4) if sum(has >= i for has in indexes) > voters / 2)
        assert committed_index(among(range(voters)), match) == expected


def test_who_has_not_reported_has_nothing():
    assert committed_index(among([1, 2, 3]), {1: 9}) == 0
    assert committed_index(among([1, 2, 3]), {1: 9, 2: 4}) == 4
    assert committed_index(among([1]), {1: 9, 2: 40}) == 9


def test_nobody_agrees_on_nothing():
    assert committed_index(among([]), {1: 9}) == 0
    assert vote_result(among([]), {1: True}) == "LOST" and not has_majority(among([]), [1, 2])


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_votes(voters):
    for votes in product((True, False, None), repeat=voters):
        cast = {voter: vote for voter, vote in enumerate(votes) if vote is not None}
        result = vote_result(among(range(voters)), cast)
        for_it, open_votes = votes.count(True), votes.count(None)
        if for_it > voters / 2:
            assert result == "WON"
        elif for_it + open_votes > voters / 2:
            assert result == "PENDING"
        else:
            assert result == "LOST"


HALVES = [([1], [1, 2, 3]), ([1, 2, 3], [2, 3, 4]), ([1, 2, 3], [4, 5, 6]), ([1, 2], [3])]


@pytest.mark.parametrize(("voters", "outgoing"), HALVES)
def test_joint_configurations_need_both_halves(voters, outgoing):
    joint, nodes = among(voters, outgoing), sorted({*voters, *outgoing})
    for indexes in product(range(3), repeat=len(nodes)):
        match = dict(zip(nodes, indexes))
        halves = [committed_index(among(half), match) for half in (voters, outgoing)]
        assert committed_index(joint, match) == min(halves)
    for votes in product((True, False, None), repeat=len(nodes)):
        cast = {node: vote for node, vote in zip(nodes, votes) if vote is not None}
        results = {vote_result(among(half), cast) for half in (voters, outgoing)}
        expected = "LOST" if "LOST" in results else "PENDING" if "PENDING" in results else "WON"
        assert vote_result(joint, cast) == expected
