"""Several schedulers and controllers at once: one works, another when it is gone, and who was paused does nothing."""

import asyncio
import random

import pytest
from fake_api import FakeApi
from step_clock import StepClock, settle

from minikube_py.api.errors import StatusError
from minikube_py.client.leader_election import LeaderElector, LeadershipLost
from minikube_py.client.rest import RestClient
from minikube_py.control_plane.leading import Leading
from minikube_py.controllers.manager import ControllerManager
from minikube_py.errors import Unavailable
from minikube_py.scheduler.scheduler import Scheduler

ALLOCATABLE = {"cpu": "64", "memory": "64Gi", "pods": "1000"}


class Process:
    """One process: a component behind its own transport, which can be paused (SIGSTOP) as a whole."""

    def __init__(self, world: "World", name: str) -> None:
        self.api, self.clock, self.name = world.api, world.clock, name
        self.open = asyncio.Event()
        self.open.set()
        self.sleeps_on = False
        self.bound: list[str] = []
        self.made = 0
        self.said: list[str] = []
        elector = LeaderElector(RestClient(self), self, random.Random(name), "kube-scheduler", name)
        self.leading = Leading(elector, self, self.make, self.said.append)

    def make(self, transport):
        self.made += 1
        return Scheduler(transport, self, random.Random(0))

    # --- its clock and its transport -------------------------------------------------------------------------------

    def monotonic_s(self) -> float:
        return self.clock.monotonic_s()

    def wall_s(self) -> float:
        return self.clock.wall_s()

    async def sleep(self, duration_s: float) -> None:
        await self.clock.sleep(duration_s)
        await self.open.wait()
        while self.sleeps_on:
            await self.clock.sleep(0.5)

    async def request(self, method, path, *rest):
        await self.open.wait()
        answer = await self.api.request(method, path, *rest)
        if path.endswith("/binding") and answer.status < 300:
            self.bound.append(path.split("/")[-2])
        await self.open.wait()
        return answer

    async def watch(self, path, params=None):
        async for batch in self.api.watch(path, params):
            await self.open.wait()
            yield batch

    async def close(self) -> None:
        return


class World:
    def __init__(self) -> None:
        self.clock = StepClock()
        self.api = FakeApi(self.clock)
        conditions = [{"type": "Ready", "status": "True"}]
        for name in ("n1", "n2"):
            self.api.make("nodes", name, spec={}, status={"allocatable": ALLOCATABLE, "conditions": conditions})
        self.processes: list[Process] = []
        self.pods = 0

    async def __aenter__(self) -> "World":
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes:
            process.open.set()
        await asyncio.gather(*(process.leading.stop() for process in self.processes), return_exceptions=True)

    async def start(self, name: str) -> Process:
        process = Process(self, name)
        self.processes.append(process)
        process.where = await process.leading.start()
        await settle()
        return process

    def pod(self) -> str:
        self.pods += 1
        name = f"p{self.pods}"
        spec = {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "x"}]}
        self.api.make("pods", f"a/{name}", spec=spec)
        return name

    def unbound(self) -> set[str]:
        pods = self.api.kind("pods").values()
        return {pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")}


async def test_one_works_and_the_other_stands_by() -> None:
    async with World() as w:
        first, second = await w.start("a"), await w.start("b")
        assert (first.where, second.where) == ("synced", "standby: a leads")
        names = [w.pod() for _ in range(10)]
        await w.clock.advance(60.0)
        assert sorted(first.bound) == sorted(names) and second.bound == []
        assert (first.made, second.made) == (1, 0)
        assert first.leading.failure() is None and second.leading.failure() is None


async def test_the_one_that_ends_in_order_hands_over_soon() -> None:
    async with World() as w:
        first, second = await w.start("a"), await w.start("b")
        await w.clock.advance(10.0)
        await first.leading.stop()
        name = w.pod()
        await w.clock.advance(4.5)
        assert second.bound == [name]
        assert second.said == ["leads: b took the lease kube-system/kube-scheduler"]


async def test_the_one_that_dies_is_replaced_when_its_lease_ran_out() -> None:
    async with World() as w:
        first, second = await w.start("a"), await w.start("b")
        await w.clock.advance(20.0)
        first.open.clear()
        w.pod()
        await w.clock.advance(12.9)
        assert w.unbound() == {"p1"}
        await w.clock.advance(2.1 + 2 * 4.4)
        assert second.bound == ["p1"] and first.bound == []


@pytest.mark.parametrize("wakes_first", ["its work", "its election"])
async def test_the_one_that_was_paused_binds_nothing_when_it_comes_back(wakes_first: str) -> None:
    """Its watch brings pods that nobody has bound yet: all it would do is refused before it is sent."""
    async with World() as w:
        first, second = await w.start("a"), await w.start("b")
        await w.clock.advance(20.0)
        first.open.clear()
        await w.clock.advance(40.0)
        assert second.leading.elector.may_act()
        second.open.clear()
        mine = [w.pod() for _ in range(5)]
        if wakes_first == "its work":
            # What sleeps is woken later than what waits for the network: the election has noticed nothing yet.
            first.sleeps_on = True
        first.open.set()
        await settle()
        assert first.bound == []
        first.sleeps_on = False
        await w.clock.advance(1.0)
        assert isinstance(first.leading.failure(), LeadershipLost), "its process ends"
        second.open.set()
        await w.clock.advance(30.0)
        assert first.bound == [] and sorted(second.bound) == mine


async def test_work_waits_while_the_lease_cannot_be_renewed() -> None:
    """Only its renewals fail: all else would get through, and must not."""
    async with World() as w:
        first = await w.start("a")
        await w.clock.advance(20.0)
        w.api.refuse["PUT", "/leases/"] = StatusError(503, "ServiceUnavailable", "no leader")
        w.api.refuse["GET", "/leases/"] = StatusError(503, "ServiceUnavailable", "no leader")
        await w.clock.advance(12.1)
        assert "was not renewed in time: all writes are blocked" in first.leading.unwell()
        w.pod()
        await w.clock.advance(60.0)
        assert w.unbound() == {"p1"} and first.bound == [] and first.leading.failure() is None
        w.api.refuse.clear()
        await w.clock.advance(20.0)
        assert first.bound == ["p1"] and first.leading.unwell() == "" and first.made == 1


async def test_a_component_that_cannot_start_is_a_failure_of_the_process() -> None:
    async with World() as w:
        first = Process(w, "a")
        w.processes.append(first)

        class Broken:
            async def start(self) -> None:
                raise Unavailable("cannot list")

            async def stop(self) -> None:
                return

        first.leading._make = lambda transport: Broken()
        with pytest.raises(Unavailable, match="cannot list"):
            await first.leading.start()


async def test_of_two_controller_managers_one_makes_the_pods() -> None:
    async with World() as w:
        made: dict[str, int] = {"a": 0, "b": 0}
        managers = []
        w.api.make("namespaces", "x")
        for name in made:

            class Counting:
                def __init__(self, transport, name=name) -> None:
                    self._transport, self._name = transport, name
                    self.watch, self.close = transport.watch, transport.close

                async def request(self, method, path, *rest):
                    made[self._name] += method == "POST" and path.endswith("/pods")
                    return await self._transport.request(method, path, *rest)

            rng = random.Random(name)
            elector = LeaderElector(RestClient(w.api), w.clock, rng, "kube-controller-manager", name)
            managers.append(
                Leading(
                    elector,
                    w.api,
                    lambda transport, counting=Counting: ControllerManager(
                        counting(transport), w.clock, random.Random(1), names=["replicationcontroller-controller"]
                    ),
                )
            )
        for manager in managers:
            await manager.start()
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        spec = {"replicas": 4, "selector": {"a": "b"}, "template": template}
        w.api.make("replicationcontrollers", "x/web", spec=spec)
        await w.clock.advance(30.0)
        assert made == {"a": 4, "b": 0}
        await managers[0].stop()
        await w.clock.advance(5.0)
        rc = w.api.kind("replicationcontrollers")["x/web"]
        w.api.change("replicationcontrollers", "x/web", spec={**rc["spec"], "replicas": 6})
        await w.clock.advance(5.0)
        assert made == {"a": 4, "b": 2}
        await managers[1].stop()
