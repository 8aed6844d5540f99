"""Leader election by Lease: what a candidate may do by what it saw, and several of them over one API."""

import asyncio
import random
from datetime import UTC, datetime

import pytest
from fake_api import FakeApi
from step_clock import EPOCH_S, StepClock, settle

from minikube_py.api.errors import StatusError
from minikube_py.client.events import EventRecorder
from minikube_py.client.fencing import FencedTransport
from minikube_py.client.leader_election import LeaderElector, LeadershipLost, new_identity
from minikube_py.client.lease_lock import Candidate, LeaseRecord, Timing, record_of, spec_of
from minikube_py.client.rest import RestClient
from minikube_py.errors import RequestError, Unavailable

LEASE = "kube-system/kube-scheduler"
T = Timing()


# --- the candidate: pure ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "since_s", "may_take"),
    [
        pytest.param(LeaseRecord(), 0.0, True, id="never written"),
        pytest.param(LeaseRecord("", 1, "t", "t", 3), 0.0, True, id="released"),
        pytest.param(LeaseRecord("other", 15, "t", "t"), 14.9, False, id="held"),
        pytest.param(LeaseRecord("other", 15, "t", "t"), 15.0, True, id="run out"),
        pytest.param(LeaseRecord("other", 60, "t", "t"), 15.0, False, id="held for as long as its holder wrote"),
        pytest.param(LeaseRecord("me", 15, "t", "t"), 1.0, True, id="one's own, from an earlier life"),
    ],
)
def test_when_a_lease_may_be_taken(seen: LeaseRecord, since_s: float, may_take: bool) -> None:
    candidate = Candidate("me", T)
    candidate.saw(seen, 100.0)
    assert candidate.may_take(100.0 + since_s) is may_take


def test_only_a_change_counts_as_a_sign_of_life() -> None:
    """The times in the record are the holder's clock's: an hour off, they say nothing."""
    candidate = Candidate("me", T)
    record = LeaseRecord("other", 15, "2030-01-01T00:00:00.000000Z", "2030-01-01T00:00:00.000000Z")
    assert candidate.saw(record, 0.0)
    assert not candidate.saw(record, 10.0)
    assert candidate.may_take(15.0)
    assert candidate.saw(record._replace(renew_time="1999-01-01T00:00:00.000000Z"), 15.0)
    assert not candidate.may_take(29.9)


@pytest.mark.parametrize(
    ("seen", "exists", "claim"),
    [
        pytest.param(LeaseRecord(), False, LeaseRecord("me", 15, "now", "now", 0), id="made"),
        pytest.param(LeaseRecord("", 1, "a", "r", 4), True, LeaseRecord("me", 15, "now", "now", 5), id="released"),
        pytest.param(LeaseRecord("x", 9, "a", "r", 4), True, LeaseRecord("me", 15, "now", "now", 5), id="taken"),
        pytest.param(LeaseRecord("me", 9, "a", "r", 4), True, LeaseRecord("me", 15, "a", "now", 4), id="renewed"),
        pytest.param(LeaseRecord("me", 9, "a", "r", 4), False, LeaseRecord("me", 15, "now", "now", 0), id="deleted"),
    ],
)
def test_what_is_written(seen: LeaseRecord, exists: bool, claim: LeaseRecord) -> None:
    candidate = Candidate("me", T)
    candidate.saw(seen, 0.0)
    assert candidate.claim("now", exists) == claim


def test_the_right_to_act_is_counted_from_when_the_renewal_was_sent() -> None:
    candidate = Candidate("me", T)
    candidate.wrote(candidate.claim("now", exists=False), sent_s=10.0, now_s=14.0)
    assert candidate.may_act(21.9) and not candidate.may_act(22.0)
    candidate.saw(LeaseRecord("other", 15, "t", "t", 1), 15.0)
    assert not candidate.may_act(15.0)


@pytest.mark.parametrize(
    ("timing", "acts_s"),
    [
        pytest.param(Timing(), 12.0, id="defaults: as long as client-go renews"),
        pytest.param(Timing(15, 14, 2), 15.0, id="never as long as it takes another to take over"),
        pytest.param(Timing(2.9, 2.4, 0.5), 2.0, id="nor longer than the whole seconds that are written"),
    ],
)
def test_how_long_a_holder_may_act(timing: Timing, acts_s: float) -> None:
    assert timing.acts_s == pytest.approx(acts_s)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param((10, 10, 2), "the lease duration must be above the renew deadline", id="no margin"),
        pytest.param((15, 2.4, 2), "the renew deadline must be above 1.2 x the retry period", id="one try only"),
        pytest.param((15, 10, 0), "the retry period must be above zero", id="no pause"),
        pytest.param((0.9, 0.5, 0.1), "the lease duration must be at least 1 s", id="below what a lease can say"),
    ],
)
def test_timings_that_cannot_work(values: tuple[float, float, float], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Timing(*values)


def test_a_record_is_read_as_it_was_written() -> None:
    record = LeaseRecord("me", 15, "a", "r", 7)
    assert record_of({"spec": spec_of(record)}) == record
    assert record_of({"spec": spec_of(LeaseRecord("", 1, "a", "r", 0))}) == LeaseRecord("", 1, "a", "r", 0)
    assert record_of({}) == record_of({"spec": None}) == LeaseRecord()


# --- electors over an API ---------------------------------------------------------------------------------------------


class Gate:
    """A transport of a process that can be paused: what it asks for waits until it goes on."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self.open = asyncio.Event()
        self.open.set()
        self.down = self.silent = False

    async def request(self, *args, **kwargs):
        await self.open.wait()
        if self.silent:
            await asyncio.get_running_loop().create_future()
        if self.down:
            raise Unavailable("no route to the API")
        return await self._api.request(*args, **kwargs)


class GatedClock:
    """The clock of a process that can be paused: it goes on, but nobody is there to be woken."""

    def __init__(self, clock: StepClock, gate: Gate) -> None:
        self._clock, self._gate = clock, gate
        self.monotonic_s, self.wall_s = clock.monotonic_s, clock.wall_s

    async def sleep(self, duration_s: float) -> None:
        await self._clock.sleep(duration_s)
        await self._gate.open.wait()


class World:
    def __init__(self) -> None:
        self.clock = StepClock()
        self.api = FakeApi(self.clock)
        self.gates: dict[str, Gate] = {}
        self.tasks: list[asyncio.Task] = []

    async def __aenter__(self) -> "World":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def elector(self, identity: str, timing: Timing = T, **options) -> LeaderElector:
        gate = self.gates[identity] = Gate(self.api)
        clock = GatedClock(self.clock, gate)
        rng = random.Random(identity)
        return LeaderElector(RestClient(gate), clock, rng, "kube-scheduler", identity, timing=timing, **options)

    def run(self, elector: LeaderElector) -> asyncio.Task:
        async def lead() -> None:
            await elector.acquire()
            await elector.hold()

        task = asyncio.create_task(lead())
        self.tasks.append(task)
        return task

    @property
    def lease(self):
        return self.api.kind("leases")[LEASE]["spec"]

    async def leader_within(self, electors: list[LeaderElector], wait_s: float) -> float:
        """Seconds until one of `electors` may act."""
        start_s = self.clock.now_s
        while not any(elector.may_act() for elector in electors):
            await self.clock.advance(0.05)
            assert self.clock.now_s - start_s <= wait_s
        return self.clock.now_s - start_s


async def test_the_lease_is_made_as_the_original_makes_it() -> None:
    async with World() as w:
        w.run(w.elector("a"))
        await settle()
        now = datetime.fromtimestamp(EPOCH_S, UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
        assert w.lease == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        await w.clock.advance(20.0)
        assert w.lease["renewTime"] == now.replace(":20.", ":40.")
        assert w.lease["acquireTime"] == now and w.lease["leaseTransitions"] == 0


async def test_a_renewal_is_one_request() -> None:
    async with World() as w:
        w.run(w.elector("a"))
        await settle()
        w.api.calls.clear()
        await w.clock.advance(10.0)
        assert [method for method, _ in w.api.calls] == ["PUT"] * 5


async def test_one_of_several_leads_and_the_others_wait() -> None:
    async with World() as w:
        electors = [w.elector(name) for name in "abc"]
        for elector in electors:
            w.run(elector)
        await w.clock.advance(4.5)
        for _ in range(200):
            await w.clock.advance(0.5)
            assert [elector.may_act() for elector in electors].count(True) == 1
            assert {elector.leader for elector in electors} == {w.lease["holderIdentity"]}
        assert w.lease["leaseTransitions"] == 0


async def test_a_dead_leaders_lease_runs_out() -> None:
    """Not before 15 s after its last renewal was seen, and not much later: one retry, stretched by 2.2 at most."""
    async with World() as w:
        first, others = w.elector("a"), [w.elector(name) for name in "bc"]
        dead = w.run(first)
        await settle()
        for elector in others:
            w.run(elector)
        await w.clock.advance(30.0)
        dead.cancel()
        took_s = await w.leader_within(others, 25.0)
        assert 13.0 <= took_s <= 15.0 + 2 * 4.4
        assert w.lease["leaseTransitions"] == 1
        assert [elector.may_act() for elector in others].count(True) == 1


async def test_a_released_lease_is_taken_at_the_next_try() -> None:
    async with World() as w:
        first, second = w.elector("a"), w.elector("b")
        task = w.run(first)
        await settle()
        w.run(second)
        await w.clock.advance(5.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await first.release()
        assert not first.may_act()
        assert "holderIdentity" not in w.lease and w.lease["leaseDurationSeconds"] == 1
        assert await w.leader_within([second], 4.5) <= 4.45
        assert w.lease["leaseTransitions"] == 1


@pytest.mark.parametrize("taken", [False, True])
async def test_who_renewed_too_late_releases_what_is_still_its_own_and_nothing_else(taken: bool) -> None:
    async with World() as w:
        first, second = w.elector("a"), w.elector("b")
        task = w.run(first)
        await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if taken:
            w.run(second)
        await w.clock.advance(40.0)
        assert not first.may_act()
        assert second.may_act() == taken
        await first.release()
        assert w.lease.get("holderIdentity") == ("b" if taken else None)


async def test_the_same_identity_need_not_wait() -> None:
    """A supervisor that gives one, and knows that the process before is dead, loses no time."""
    async with World() as w:
        dead = w.run(w.elector("scheduler-0"))
        await settle()
        acquired = w.lease["acquireTime"]
        dead.cancel()
        await w.clock.advance(1.0)
        again = w.elector("scheduler-0")
        assert await again.attempt() and again.may_act()
        assert w.lease["acquireTime"] == acquired and w.lease["leaseTransitions"] == 0


async def test_a_leader_that_cannot_reach_the_api_stops_before_another_begins() -> None:
    async with World() as w:
        held: list[bool] = []
        first, second = w.elector("a", on_held=held.append), w.elector("b")
        task = w.run(first)
        await settle()
        w.run(second)
        await w.clock.advance(20.0)
        w.gates["a"].down = True
        stopped_s = None
        while not second.may_act():
            await w.clock.advance(0.05)
            if stopped_s is None and not first.may_act():
                stopped_s = w.clock.now_s
                assert held == [False] and not task.done(), "it does nothing, and goes on trying"
        assert stopped_s is not None and w.clock.now_s - stopped_s >= 2.5
        w.gates["a"].down = False
        await w.clock.advance(2.1)
        assert isinstance(task.exception(), LeadershipLost) and "was taken by b" in str(task.exception())


async def test_a_leader_that_finds_the_lease_as_it_left_it_goes_on() -> None:
    """The API was away for a while, for all alike: nobody acted in between, so nobody need start again."""
    async with World() as w:
        held: list[bool] = []
        first, second = w.elector("a", on_held=held.append), w.elector("b")
        task = w.run(first)
        await settle()
        w.run(second)
        await w.clock.advance(10.0)
        w.gates["a"].down = w.gates["b"].down = True
        await w.clock.advance(60.0)
        assert not first.may_act() and held == [False]
        w.gates["a"].down = False
        await w.clock.advance(2.1)
        assert first.may_act() and held == [False, True] and not task.done()
        w.gates["b"].down = False
        await w.clock.advance(60.0)
        assert first.may_act() and not second.may_act()
        assert w.lease["leaseTransitions"] == 0


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({"holderIdentity": "b"}, "was taken by b", id="another holds it"),
        pytest.param({"holderIdentity": ""}, "was given up by another", id="another held it and gave it up"),
        pytest.param({"leaseTransitions": 2}, "was given up by another", id="another held it, and one of our name"),
        pytest.param({"acquireTime": "2030-01-01T00:00:00.000000Z"}, "was given up by another", id="taken again"),
        pytest.param(None, "or deleted", id="it was deleted"),
    ],
)
async def test_a_leader_that_was_held_up_goes_on_with_nothing_else(spec: dict[str, object] | None, why: str) -> None:
    async with World() as w:
        first = w.elector("a")
        task = w.run(first)
        await settle()
        w.gates["a"].down = True
        await w.clock.advance(20.0)
        if spec is None:
            w.api.remove("leases", LEASE)
        else:
            w.api.change("leases", LEASE, spec={**w.lease, **spec})
        w.gates["a"].down = False
        await w.clock.advance(2.1)
        assert isinstance(task.exception(), LeadershipLost) and why in str(task.exception())
        assert not first.may_act()


async def test_a_leader_that_was_paused_does_not_act_when_it_comes_back() -> None:
    async with World() as w:
        first, second = w.elector("a"), w.elector("b")
        task = w.run(first)
        await settle()
        w.run(second)
        await w.clock.advance(20.0)
        fenced = FencedTransport(w.gates["a"], first.may_act, LEASE)
        create = ("POST", "/api/v1/namespaces/default/configmaps", None, b'{"metadata":{"name":"x"}}')
        begun_in_time = asyncio.create_task(fenced.request(*create))
        await settle()
        assert (await begun_in_time).status == 201
        w.gates["a"].open.clear()
        late = asyncio.create_task(fenced.request("DELETE", "/api/v1/namespaces/default/configmaps/x"))
        await w.clock.advance(40.0)
        assert second.may_act() and w.lease["holderIdentity"] == "b"
        # It wakes: what it does first is a write, before its own election has noticed anything.
        assert first.candidate.holds and not task.done()
        with pytest.raises(Unavailable, match="lease kube-system/kube-scheduler is no longer held"):
            await fenced.request(*create)
        assert fenced.refused == 1
        w.gates["a"].open.set()
        await w.clock.advance(2.1)
        assert isinstance(task.exception(), LeadershipLost)
        # What it had begun before the pause arrives all the same: the API's conditions must stand guard for those.
        assert (await late).status == 200
        assert second.may_act() and w.lease["holderIdentity"] == "b"


async def test_a_lost_answer_is_found_out() -> None:
    async with World() as w:
        elector = w.elector("a")
        w.api.lose_answers = 1
        w.run(elector)
        await settle()
        assert w.lease["holderIdentity"] == "a", "the lease was made,"
        assert not elector.may_act(), "but its maker does not know"
        await w.clock.advance(4.5)
        assert elector.may_act() and w.lease["leaseTransitions"] == 0
        w.api.lose_answers = 1
        await w.clock.advance(60.0)
        assert elector.may_act()


async def test_a_request_without_an_answer_does_not_hold_up_the_next(caplog: pytest.LogCaptureFixture) -> None:
    async with World() as w:
        elector = w.elector("a")
        task = w.run(elector)
        await settle()
        w.gates["a"].silent = True
        await w.clock.advance(7.5)
        w.gates["a"].silent = False
        await w.clock.advance(10.0)
        assert elector.may_act() and not task.done()
        w.gates["a"].silent = True
        await w.clock.advance(12.1)
        assert not elector.may_act() and "is not renewed for 12 s: no answer within 5 s" in caplog.text
        w.gates["a"].silent = False
        await w.clock.advance(7.1)
        assert elector.may_act()


async def test_a_lease_deleted_by_hand_is_made_again() -> None:
    async with World() as w:
        elector = w.elector("a")
        w.run(elector)
        await settle()
        w.api.remove("leases", LEASE)
        await w.clock.advance(2.1)
        assert w.lease["holderIdentity"] == "a" and elector.may_act()


async def test_a_lease_taken_by_force_is_not_fought_over() -> None:
    async with World() as w:
        elector = w.elector("a")
        task = w.run(elector)
        await settle()
        w.api.change("leases", LEASE, spec={**w.lease, "holderIdentity": "thief"})
        await w.clock.advance(2.1)
        assert isinstance(task.exception(), LeadershipLost)
        assert "was taken by thief" in str(task.exception())


async def test_a_forbidden_lease_is_told_once_and_tried_on(caplog: pytest.LogCaptureFixture) -> None:
    async with World() as w:
        elector = w.elector("a")
        w.api.refuse["GET", "leases"] = StatusError(403, "Forbidden", "user may not get leases")
        w.run(elector)
        await w.clock.advance(60.0)
        assert [record.message for record in caplog.records] == [f"lease {LEASE}: user may not get leases"]
        w.api.refuse.clear()
        await w.clock.advance(4.5)
        assert elector.may_act()


async def test_transitions_are_told_by_events_callbacks_and_metrics() -> None:
    async with World() as w:
        leaders: dict[str, list[str]] = {"a": [], "b": []}
        recorder = EventRecorder(RestClient(w.api), w.clock, random.Random(1), "kube-scheduler")
        recorder.start()
        first = w.elector("a", recorder=recorder, on_new_leader=leaders["a"].append)
        second = w.elector("b", recorder=recorder, on_new_leader=leaders["b"].append)
        task = w.run(first)
        await settle()
        w.run(second)
        await w.clock.advance(5.0)
        w.gates["a"].down = True
        await w.clock.advance(40.0)
        w.gates["a"].down = False
        await w.clock.advance(2.1)
        assert task.done()
        assert leaders == {"a": ["a", "b"], "b": ["a", "b"]}
        events = sorted(w.api.kind("events").values(), key=lambda event: int(event["metadata"]["resourceVersion"]))
        assert [event["message"] for event in events] == ["a became leader", "a stopped leading", "b became leader"]
        assert {event["reason"] for event in events} == {"LeaderElection"}
        involved = events[0]["involvedObject"]
        assert (involved["kind"], involved["apiVersion"]) == ("Lease", "coordination.k8s.io/v1")
        assert second.metrics()['leader_election_master_status{name="kube-scheduler"}'] == 1.0
        assert first.metrics()['leader_election_master_status{name="kube-scheduler"}'] == 0.0
        await recorder.stop()


def test_identities_differ() -> None:
    rng = random.Random(1)
    assert new_identity(rng) != new_identity(rng)


@pytest.mark.parametrize("seed", range(20))
async def test_never_two_may_act_whatever_is_cut_paused_or_killed(seed: int) -> None:
    rng = random.Random(seed)
    async with World() as w:
        electors = {name: w.elector(name, Timing(5, 3, 1)) for name in "abc"}
        tasks = {name: w.run(elector) for name, elector in electors.items()}
        led: set[str] = set()
        for _ in range(300):
            await w.clock.advance(rng.uniform(0.05, 0.6))
            acting = {name for name, elector in electors.items() if elector.may_act()}
            assert len(acting) <= 1
            led |= acting
            name = rng.choice("abc")
            gate = w.gates[name]
            fault = rng.random()
            if fault < 0.06:
                gate.down = not gate.down
            elif fault < 0.12:
                gate.open.clear() if gate.open.is_set() else gate.open.set()
            elif fault < 0.14:
                w.api.lose_answers += 1
            if tasks[name].done():
                tasks[name] = w.run(electors[name])
        assert len(led) > 1, "nothing was ever handed over: the faults are too weak"
        for gate in w.gates.values():
            gate.down = False
            gate.open.set()
        await w.clock.advance(1.0)
        for name, task in tasks.items():
            if task.done():
                w.run(electors[name])
        await w.clock.advance(12.0)
        assert sum(elector.may_act() for elector in electors.values()) == 1
