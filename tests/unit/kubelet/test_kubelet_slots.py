"""Kubelet processes that claim slots: each plays nodes of its own, however they come and go."""

import asyncio
import ipaddress
import random
import zlib

import pytest
from fake_api import FakeApi
from step_clock import StepClock, settle

from minikube_py.api.errors import StatusError
from minikube_py.client.leader_election import LeaderElector
from minikube_py.client.lease_lock import Timing
from minikube_py.client.rest import RestClient
from minikube_py.errors import RequestError
from minikube_py.kubelet.config import SLOTS_MAX, KubeletConfig, numbered_nodes
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.kubelet.slots import Slots, slot_of

LEASE = "kube-system/minikube-py-kubelet-{}"


class World:
    def __init__(self) -> None:
        self.clock = StepClock()
        self.api = FakeApi(self.clock)
        self.tasks: list[asyncio.Task] = []
        self.held: dict[str, tuple[int, LeaderElector]] = {}
        self.said: list[str] = []

    async def __aenter__(self) -> "World":
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def start(self, name: str, timing: Timing | None = None) -> asyncio.Task:
        """A process that claims a slot and holds it; `held` says which, while it does."""
        rng = random.Random(zlib.crc32(name.encode()))
        slots = Slots(RestClient(self.api), self.clock, rng, name, timing=timing, say=self.said.append)

        async def run() -> None:
            slot, elector = await slots.claim()
            self.held[name] = slot, elector
            try:
                await elector.hold()
            finally:
                del self.held[name]

        task = asyncio.create_task(run())
        self.tasks.append(task)
        return task

    async def kill(self, task: asyncio.Task) -> None:
        task.cancel()
        await settle()

    @property
    def slots(self) -> dict[str, int]:
        return {name: slot for name, (slot, _) in self.held.items()}

    def holder(self, slot: int) -> str:
        return self.api.kind("leases")[LEASE.format(slot)]["spec"].get("holderIdentity", "")


async def test_the_first_has_slot_0_at_once() -> None:
    async with World() as w:
        w.start("a")
        await settle()
        assert w.slots == {"a": 0} and w.holder(0) == "a"


async def test_those_that_start_together_have_slots_of_their_own_soon() -> None:
    async with World() as w:
        for name in "abcdefgh":
            w.start(name)
        await w.clock.advance(3.0)
        assert sorted(w.slots.values()) == list(range(8))


async def test_one_that_comes_later_hears_the_others_first() -> None:
    async with World() as w:
        for name in "ab":
            w.start(name)
        await w.clock.advance(60.0)
        w.start("c")
        await settle()
        assert "c" not in w.slots, "both leases may be those of the dead"
        await w.clock.advance(3.5)
        assert w.slots["c"] == 2


async def test_a_dead_ones_slot_is_taken_over_when_its_lease_ran_out() -> None:
    async with World() as w:
        tasks = {name: w.start(name) for name in "abc"}
        await w.clock.advance(60.0)
        dead = w.slots["b"]
        await w.kill(tasks["b"])
        w.start("d")
        await w.clock.advance(11.0)
        assert "d" not in w.slots and w.holder(dead) == "b"
        await w.clock.advance(5.0)
        assert w.slots["d"] == dead
        assert any(f"held: slots {dead}; waiting" in text for text in w.said)


async def test_of_two_that_come_one_takes_the_dead_ones_slot() -> None:
    async with World() as w:
        tasks = {name: w.start(name) for name in "ab"}
        await w.clock.advance(60.0)
        dead = w.slots["a"]
        await w.kill(tasks["a"])
        for name in "cd":
            w.start(name)
        await w.clock.advance(25.0)
        assert sorted(w.slots[name] for name in "cd") == sorted([dead, 2])


async def test_a_slot_that_was_given_back_is_taken_at_once() -> None:
    async with World() as w:
        w.start("a")
        w.start("b")
        await w.clock.advance(20.0)
        slot, elector = w.held["a"]
        await w.kill(w.tasks[0])
        await elector.release()
        w.start("c")
        await settle()
        assert w.slots["c"] == slot


async def test_the_same_name_takes_its_slot_again() -> None:
    async with World() as w:
        tasks = {name: w.start(name) for name in "ab"}
        await w.clock.advance(20.0)
        slot = w.slots["b"]
        await w.kill(tasks["b"])
        w.start("b")
        await settle()
        assert w.slots["b"] == slot


async def test_a_lease_that_was_deleted_leaves_a_gap_that_is_filled() -> None:
    async with World() as w:
        tasks = {name: w.start(name) for name in "abc"}
        await w.clock.advance(20.0)
        slot = min(w.slots.values())
        name = next(name for name, each in w.slots.items() if each == slot)
        await w.kill(tasks[name])
        w.api.remove("leases", LEASE.format(slot))
        w.start("d")
        await settle()
        assert w.slots["d"] == slot == 0


async def test_an_api_that_is_away_is_waited_for() -> None:
    async with World() as w:
        w.api.refuse["GET", "leases"] = StatusError(503, "ServiceUnavailable", "no leader")
        w.start("a")
        await w.clock.advance(10.0)
        assert not w.slots and "cannot be read: no leader" in w.said[0]
        w.api.refuse.clear()
        await w.clock.advance(2.1)
        assert w.slots == {"a": 0}


async def test_there_is_a_limit_and_it_says_its_value() -> None:
    async with World() as w:
        for name in range(SLOTS_MAX):
            w.start(str(name))
        await w.clock.advance(30.0)
        assert len(w.slots) == SLOTS_MAX
        late = w.start("late")
        await w.clock.advance(5.0)
        assert isinstance(late.exception(), RequestError) and f"all {SLOTS_MAX} slots" in str(late.exception())


@pytest.mark.parametrize("seed", range(10))
async def test_never_two_hold_a_slot_however_they_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    timing = Timing(5, 3, 1)
    async with World() as w:
        living: dict[str, asyncio.Task] = {}
        for step in range(150):
            if len(living) < 6 and rng.random() < 0.2:
                living[f"p{step}"] = w.start(f"p{step}", timing)
            if living and rng.random() < 0.1:
                await w.kill(living.pop(rng.choice(list(living))))
            await w.clock.advance(rng.uniform(0.1, 1.0))
            acting = [slot for slot, elector in w.held.values() if elector.may_act()]
            assert len(acting) == len(set(acting))
        await w.clock.advance(20.0)
        assert set(w.slots) == set(living)
        assert max(w.slots.values(), default=0) <= 12, "slots of the dead are used again"


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("minikube-py-kubelet-0", 0),
        ("minikube-py-kubelet-17", 17),
        ("minikube-py-kubelet-017", None),
        ("minikube-py-kubelet-", None),
        ("minikube-py-kubelet-x", None),
        ("minikube-py-kubelet-²", None),
        (f"minikube-py-kubelet-{SLOTS_MAX}", None),
        ("kube-scheduler", None),
    ],
)
def test_names_of_leases(name: str, slot: int | None) -> None:
    assert slot_of(name) == slot


# --- the nodes of a slot ----------------------------------------------------------------------------------------------


def kubelet_of(w: World, slot: int, nodes: int = 3, **config) -> FakeKubelet:
    specs = tuple(numbered_nodes(nodes, first=slot * nodes))
    return FakeKubelet(
        w.api, w.clock, random.Random(slot), KubeletConfig(nodes=specs, slot=slot, slot_nodes=nodes, **config)
    )


async def test_slots_play_nodes_of_their_own_with_blocks_of_their_own() -> None:
    async with World() as w:
        kubelets = [kubelet_of(w, slot) for slot in range(3)]
        for kubelet in kubelets:
            await kubelet.start()
        await w.clock.advance(11.0)
        nodes = w.api.kind("nodes")
        assert set(nodes) == {f"node-{number}" for number in range(9)}
        blocks = [ipaddress.ip_network(node["spec"]["podCIDR"]) for node in nodes.values()]
        assert not any(a.overlaps(b) for i, a in enumerate(blocks) for b in blocks[:i])
        addresses = {node["status"]["addresses"][0]["address"] for node in nodes.values()}
        assert len(addresses) == 9
        assert [kubelet.metrics()["kubelet_nodes"] for kubelet in kubelets] == [3, 3, 3]
        for number in range(9):
            spec = {"nodeName": f"node-{number}", "containers": [{"name": "c", "image": "x"}]}
            w.api.make("pods", f"a/p{number}", spec=spec)
        await settle()
        assert [kubelet.metrics()["kubelet_started_pods_total"] for kubelet in kubelets] == [3, 3, 3]
        for kubelet in kubelets:
            assert kubelet.failures == []
            await kubelet.stop()


async def test_blocks_from_another_division_are_not_given_out_twice() -> None:
    """Nodes came by their blocks in slots of 3; now a slot has 5, and holds nodes of two old ones."""
    async with World() as w:
        for slot in range(3):
            kubelet = kubelet_of(w, slot)
            await kubelet.start()
            await kubelet.stop()
        kubelets = [kubelet_of(w, slot, 5) for slot in range(3)]
        for kubelet in kubelets:
            await kubelet.start()
        await settle()
        blocks = [ipaddress.ip_network(node["spec"]["podCIDR"]) for node in w.api.kind("nodes").values()]
        assert len(blocks) == 15 and len(set(blocks)) == 15
        for kubelet in kubelets:
            await kubelet.stop()


async def test_a_process_watches_the_pods_of_its_slot_alone() -> None:
    kubelet = kubelet_of(World(), 1, 3)
    hashes = sorted(zlib.crc32(f"node-{number}".encode()) for number in (3, 4, 5))
    assert kubelet._share_selector() == f"hash.spec.nodeName in ({','.join(map(str, hashes))})"


@pytest.mark.parametrize(
    ("slot", "nodes", "fits"),
    [
        pytest.param(63, 500, True, id="the usual"),
        pytest.param(63, 1000, True, id="64,000 nodes"),
        pytest.param(5, 20_000, True, id="120,000 nodes in smaller blocks"),
        pytest.param(6, 20_000, False, id="one more than fit"),
        pytest.param(1, 100_000, False, id="two of 100,000"),
    ],
)
def test_room_for_slots(slot: int, nodes: int, fits: bool) -> None:
    if fits:
        kubelet_of(World(), slot, nodes)
        return
    with pytest.raises(RequestError, match=f"slot {slot} of {nodes} nodes each finds no room"):
        kubelet_of(World(), slot, nodes)
