"""Quorums against counting by hand."""

from __future__ import annotations

from itertools import product

import pytest

from minikube_py.raft.quorum import committed_index, majority, vote_result


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(voters, needed):
    assert majority(range(voters)) == needed


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_committed_is_the_largest_index_a_majority_has(voters):
    for indexes in product(range(4), repeat=voters):
        match = dict(enumerate(indexes))
        expected = max(i for i in range(4) if sum(has >= i for has in indexes) > voters / 2)
        assert committed_index(range(voters), match) == expected


def test_who_has_not_reported_has_nothing():
    assert committed_index([1, 2, 3], {1: 9}) == 0
    assert committed_index([1, 2, 3], {1: 9, 2: 4}) == 4
    assert committed_index([1], {1: 9, 2: 40}) == 9


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_votes(voters):
    for votes in product((True, False, None), repeat=voters):
        cast = {voter: vote for voter, vote in enumerate(votes) if vote is not None}
        result = vote_result(range(voters), cast)
        for_it, open_votes = votes.count(True), votes.count(None)
        if for_it > voters / 2:
            assert result == "WON"
        elif for_it + open_votes > voters / 2:
            assert result == "PENDING"
        else:
            assert result == "LOST"
