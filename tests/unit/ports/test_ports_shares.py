"""Who loses of something scarce: a user who holds less than others never does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minikube_py.ports.shares import Shares

STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 40)), max_size=60)


@given(STEPS, st.integers(0, 100))
def test_the_loser_is_the_oldest_of_the_user_who_holds_most(steps: list[tuple[int, int]], limit: int) -> None:
    shares, held = Shares[int](limit), dict[int, int]()
    for holder, amount in steps:
        if amount == 40:
            shares.let_go(holder)
            held.pop(holder, None)
        else:
            shares.hold(holder, f"user {holder % 3}", amount)
            held[holder] = amount
            if not amount:
                del held[holder]
        while (loser := shares.loser()) is not None:
            of_user = {user: sum(held[each] for each in held if each % 3 == user) for user in range(3)}
            assert of_user[loser % 3] == max(of_user.values())
            assert loser == next(each for each in held if each % 3 == loser % 3)
            shares.let_go(loser)
            del held[loser]
        assert shares.total == sum(held.values()) <= limit
        for user in range(3):
            assert shares.of(f"user {user}") == sum(held[each] for each in held if each % 3 == user)
    for holder in list(held):
        shares.let_go(holder)
    assert (shares.total, shares.most()) == (0, "")


def test_who_holds_nothing_loses_nothing() -> None:
    shares: Shares[str] = Shares(100)
    shares.hold("watch", "u", 10)
    shares.hold("watch", "u", 0)
    shares.hold("body", "u", 200)
    assert shares.loser() == "body"
    shares.let_go("body")
    assert shares.total == 0 and shares.loser() is None and not list(shares.holders("u"))
