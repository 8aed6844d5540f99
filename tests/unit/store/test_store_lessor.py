"""Leases end late or never, not early."""

from __future__ import annotations

from minikube_py.store.lessor import RETRY_S, Lessor


class Clock:
    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        raise AssertionError("leases run on the monotonic clock")

    async def sleep(self, duration_s: float) -> None:
        raise AssertionError("the lessor does not wait")


def make(*leases: tuple[int, int]) -> tuple[Lessor, Clock]:
    clock = Clock()
    lessor = Lessor(clock)
    for lease_id, ttl_s in leases:
        lessor.granted(lease_id, ttl_s)
    return lessor, clock


def test_a_lease_ends_after_its_ttl_not_before():
    lessor, clock = make((1, 10), (2, 20))
    clock.now_s += 9.999
    assert list(lessor.expired()) == []
    clock.now_s += 0.001
    assert list(lessor.expired()) == [1]


def test_renewal_gives_the_full_ttl_anew():
    lessor, clock = make((1, 10))
    clock.now_s += 9
    assert lessor.renew(1) == 10
    clock.now_s += 9.9
    assert list(lessor.expired()) == []
    clock.now_s += 0.1
    assert list(lessor.expired()) == [1]


def test_an_unknown_lease_is_not_renewed():
    lessor, _ = make()
    assert lessor.renew(5) == 0


def test_a_revoked_lease_does_not_end_again():
    lessor, clock = make((1, 10))
    lessor.revoked(1)
    clock.now_s += 100
    assert list(lessor.expired()) == [] and len(lessor) == 0


def test_a_revoke_that_was_not_applied_comes_due_again():
    lessor, clock = make((1, 10))
    clock.now_s += 10
    assert list(lessor.expired()) == [1]
    assert list(lessor.expired()) == []
    clock.now_s += RETRY_S
    assert list(lessor.expired()) == [1]


def test_no_renewal_is_told_done_once_the_revoke_is_on_its_way():
    lessor, clock = make((1, 10))
    clock.now_s += 10
    assert lessor.renew(1) == 10, "the time is over, but nobody has acted on it yet"
    assert list(lessor.expired()) == []
    clock.now_s += 10
    assert list(lessor.expired()) == [1]
    assert lessor.renew(1) == 0
    clock.now_s += RETRY_S
    assert list(lessor.expired()) == [1], "the revoke was not taken, and comes due again"
    lessor.revoked(1)
    lessor.granted(1, 10)
    assert lessor.renew(1) == 10, "another lease under the same id"


def test_after_a_restart_every_lease_has_its_full_ttl():
    lessor, clock = make((1, 10))
    clock.now_s += 9
    lessor.restart([(1, 10), (2, 5)])
    clock.now_s += 5
    assert list(lessor.expired()) == [2]
    lessor.revoked(2)
    clock.now_s += 4.9
    assert list(lessor.expired()) == []
    assert lessor.remaining_s(1) is not None and lessor.remaining_s(3) is None


def test_leases_granted_and_revoked_do_not_pile_up():
    lessor, _ = make((1, 10))
    for lease_id in range(2, 1000):
        lessor.granted(lease_id, 9_000_000_000)
        lessor.revoked(lease_id)
    assert len(lessor._heap) < 100
    assert list(lessor.expired()) == []


def test_many_renewals_do_not_pile_up():
    lessor, clock = make((1, 10))
    for _ in range(1000):
        clock.now_s += 1
        lessor.renew(1)
        list(lessor.expired())
    assert len(lessor._heap) == 1


def test_who_does_not_lead_any_more_knows_of_no_deadline():
    lessor, clock = make((1, 5))
    lessor.clear()
    clock.now_s += 100
    assert list(lessor.expired()) == [] and lessor.remaining_s(1) is None and lessor.renew(1) == 0
    lessor.restart([(1, 5)])
    assert lessor.remaining_s(1) == 5 and list(lessor.expired()) == []
