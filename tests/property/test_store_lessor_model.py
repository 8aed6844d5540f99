"""The lessor beside a model that looks at every lease: what is due is due then, once a second, and never early."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from minikube_py.store.lessor import RETRY_S, Lessor

IDS = st.integers(1, 4)
TTLS = st.sampled_from([1, 2, 3, 10, 20])
STEPS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.5, 3.0, 9.75, 30.0])


class Clock:
    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        raise AssertionError("leases run on the monotonic clock")

    async def sleep(self, duration_s: float) -> None:
        raise AssertionError("the lessor does not wait")


class LessorBesideAModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.lessor = Lessor(self.clock)
        self.deadlines: dict[int, tuple[int, float]] = {}
        self.told: dict[int, float] = {}

    @rule(id=IDS, ttl_s=TTLS)
    def grant(self, id: int, ttl_s: int) -> None:
        if id not in self.deadlines:
            self.lessor.granted(id, ttl_s)
            self.deadlines[id] = (ttl_s, self.clock.now_s + ttl_s)

    @rule(id=IDS)
    def revoke(self, id: int) -> None:
        self.lessor.revoked(id)
        self.deadlines.pop(id, None)
        self.told.pop(id, None)

    @rule(id=IDS, ttl_s=TTLS, step_s=STEPS)
    def grant_under_a_known_id(self, id: int, ttl_s: int, step_s: float) -> None:
        self.revoke(id)
        self.grant(id, ttl_s)
        self.wait(step_s)
        self.look()

    @rule(id=IDS)
    def renew(self, id: int) -> None:
        ttl_s, _ = self.deadlines.get(id, (0, 0.0))
        expected = 0 if id in self.told else ttl_s
        assert self.lessor.renew(id) == expected
        if expected:
            self.deadlines[id] = (ttl_s, self.clock.now_s + ttl_s)

    @rule(step_s=STEPS)
    def wait(self, step_s: float) -> None:
        self.clock.now_s += step_s

    @rule()
    def lead_anew(self) -> None:
        self.lessor.restart([(id, ttl_s) for id, (ttl_s, _) in self.deadlines.items()])
        self.deadlines = {id: (ttl_s, self.clock.now_s + ttl_s) for id, (ttl_s, _) in self.deadlines.items()}
        self.told.clear()

    @rule()
    def look(self) -> None:
        now_s = self.clock.now_s
        due = {id for id, (_, at_s) in self.deadlines.items() if at_s <= now_s and self.told.get(id, now_s) <= now_s}
        assert sorted(self.lessor.expired()) == sorted(due), "each that is due, once"
        self.told.update(dict.fromkeys(due, now_s + RETRY_S))
        assert list(self.lessor.expired()) == []

    @invariant()
    def the_same_leases(self) -> None:
        assert len(self.lessor) == len(self.deadlines)
        for id in range(1, 5):
            left_s = self.lessor.remaining_s(id)
            expected = max(0.0, self.deadlines[id][1] - self.clock.now_s) if id in self.deadlines else None
            assert left_s == expected


LessorBesideAModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLessor = LessorBesideAModel.TestCase
