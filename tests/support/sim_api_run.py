"""A run with API servers on the simulated store: their clients' requests and watches, under the same faults and
more.

    PYTHONPATH=tests/support python tests/support/sim_api_run.py 17

The API servers' core is the product's, on its own StoreClient; requests reach it by `sim.api_calls`, not over HTTP."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, cast

from recorded_storage import RecordedStorage
from sim_api_clients import NAMESPACE, ApiClient, ApiFollower, Stretch, check_stretches

from minikube_py.apiserver.core import ApiServer
from minikube_py.client.rest import CONFIG_MAPS, RestClient
from minikube_py.env import Rng
from minikube_py.errors import MinikubeError
from minikube_py.mvcc.types import Compact
from minikube_py.sim.access import StoreAccess
from minikube_py.sim.api_calls import ApiCalls, CallTransport
from minikube_py.sim.checkers import linearizability, transactions
from minikube_py.sim.checkers.verdict import OK, violation
from minikube_py.sim.clients import Watched
from minikube_py.sim.clock import MachineClock, SimClock
from minikube_py.sim.loop import SimFailure, SimLoop
from minikube_py.sim.recorder import Recorder
from minikube_py.sim.replay import replay
from minikube_py.sim.run import (
    AFTERWARDS,
    BEGIN_S,
    FINISH_S,
    SETTLE_S,
    SPAN_US,
    Outcome,
    Run,
    RunOptions,
    drawn_faults,
    drawn_options,
)
from minikube_py.sim.world import Ended, Process

Told = Callable[[str], None]
API_SERVERS: Final = 2
RETRY_S: Final = 0.2
TROUBLES: Final = (0, 1, 3, 6)


def run_seed(seed: int, told: Told | None = None) -> Outcome:
    """The run of one seed with its verdict."""
    return ApiRun(drawn_options(seed), told).go()


class ApiRun(Run):
    """As Run, with API servers between clients and store. Their requests to the store are checked as well."""

    def __init__(self, options: RunOptions, told: Told | None = None) -> None:
        super().__init__(options, told)
        self.beneath = Recorder(self.world.scheduler)
        self.calls = ApiCalls(self.world, Rng(self._rng.getrandbits(64)))
        self.stretches: list[Stretch] = []
        self._hosts = [f"api-{number}" for number in range(API_SERVERS)]
        self._servers = 0
        self._watch_problem = ""
        # No client here chooses between members.
        self.cluster.rivals = None
        ended = self.world.on_end
        assert ended is not None

        def on_end(process: Process, how: Ended) -> None:
            self.calls.ended(process)
            ended(process, how)

        self.world.on_end = on_end

    def _judge(self, outcome: Outcome, problem: str) -> None:
        if problem:
            outcome.verdicts["run"] = violation(problem)
        history, beneath = self.recorder.finish(), self.beneath.finish()
        outcome.verdicts["api registers"] = linearizability.check(history.operations)
        outcome.verdicts["api watches"] = violation(self._watch_problem) if self._watch_problem else OK
        outcome.verdicts["transactions"] = transactions.check(beneath).verdict
        outcome.verdicts["log"] = self.cluster.checks.agreement.verdict()

    # -- the story ----------------------------------------------------------------------------------------------------

    async def _story(self) -> None:
        loop, options = asyncio.get_running_loop(), self.options
        self.cluster.start_all()
        for host in self._hosts:
            self.world.start(host, self._serve)
        await self._until(lambda: len(self.calls.served) == API_SERVERS, BEGIN_S, "begin")
        for number in range(options.clients):
            self._start_client(f"client-{number}", ())
        self.traffic.ask(quota=options.operations)
        self._asides += [loop.create_task(work) for work in (self._trouble_servers(), self._roll())]
        begin_s = self.world.scheduler.now_s
        await self.faults.play(drawn_faults(self.options))
        await asyncio.sleep(max(0.0, begin_s + SPAN_US / 1e6 - self.world.scheduler.now_s))
        await self._heal()
        self.calls.all_well()
        for host in self._hosts:
            self.world.resume(host)
            if self.world.running(host) is None:
                self.world.start(host)
        await self._until(lambda: not self.cluster.unsettled(), SETTLE_S, "settle")
        await self._until(lambda: len(self.calls.served) == API_SERVERS, SETTLE_S, "serve again")
        self.traffic.think_s = min(self.traffic.think_s, 0.05)
        self.traffic.ask(quota=options.clients * options.workers * AFTERWARDS)
        await self._until(self._idle, FINISH_S, "answer")
        await self._finish()

    async def _finish(self) -> None:
        """Once everything is delivered, every API server must show the same, and every watch must have resulted in
        exactly that."""
        loop = cast(SimLoop, asyncio.get_running_loop())
        clock = SimClock(loop, MachineClock())
        rest = RestClient(CallTransport(self.calls, loop, self._rng, self._hosts))
        await ApiClient(rest, clock, self._rng, 0, self.traffic, self.recorder).audit()
        shown = []
        for host in self._hosts:
            rest = RestClient(CallTransport(self.calls, loop, self._rng, [host]))
            page = await rest.list_page(CONFIG_MAPS, NAMESPACE)
            names = {
                item["metadata"]["name"]: (int(item["metadata"]["resourceVersion"]), item["data"]["v"])
                for item in page.items
            }
            shown.append((int(page.resource_version), names))
        last = shown[-1][0]
        if any(names != shown[0][1] for _, names in shown):
            raise SimFailure(f"the API servers show different objects: {shown}")
        await self._until(lambda: self._told_up_to(last), SETTLE_S, "tell all watches")
        self._watch_problem = check_stretches(self.stretches, last, shown[0][1])

    def _told_up_to(self, last: int) -> bool:
        """A watch without events gets there by a bookmark, or when it is reopened."""
        return all(stretch.reached >= last for stretch in self.stretches if stretch.live)

    # -- processes ----------------------------------------------------------------------------------------------------

    async def _serve(self, process: Process) -> None:
        self._servers += 1
        number = self._servers
        hosts = [place.host for place in self.cluster.places]
        access = StoreAccess(process, hosts)
        while True:
            try:
                await access.start()
                storage = RecordedStorage(access.client, self.beneath, number)
                core = ApiServer(storage, process.clock, process.rng)
                await core.start()
                break
            except MinikubeError:
                await process.clock.sleep(RETRY_S)
        self.calls.serve(process, core)
        while True:
            await process.clock.sleep(RETRY_S)
            if self.traffic.asides:
                await self._compact(storage)

    async def _compact(self, storage: RecordedStorage) -> None:
        request = self.traffic.asides.popleft()
        assert isinstance(request, Compact)
        try:
            await storage.compact(request.revision)
        except MinikubeError:
            # It is not needed.
            return

    def _start_client(self, host: str, watched: Sequence[Watched]) -> None:
        async def main(process: Process) -> None:
            self._client_lives += 1
            number = self._client_lives
            rest = RestClient(CallTransport(self.calls, process.loop, process.rng, self._hosts))
            client = ApiClient(rest, process.clock, process.rng, number, self.traffic, self.recorder)
            follower = ApiFollower(rest, process.clock, process.rng, self.stretches)
            await asyncio.gather(follower.run(), *[client.work() for _ in range(self.options.workers)])

        self.world.start(host, main)

    async def _trouble_servers(self) -> None:
        """API servers are also killed and stopped; one at a time or both."""
        troubles = self._rng.choice(TROUBLES)
        for _ in range(troubles):
            await asyncio.sleep(self._rng.random() * SPAN_US / 1e6 / troubles)
            host = self._rng.choice(self._hosts)
            if self._rng.random() < 0.3:
                self.world.pause(host)
                await asyncio.sleep(self._rng.random())
                self.world.resume(host)
            elif self.world.running(host) is not None:
                self.world.kill(host)
                await asyncio.sleep(self._rng.random() * 0.5)
                self.world.start(host)

    def _count(self, counts: Counter[str]) -> None:
        super()._count(counts)
        counts["store operations"] = len(self.beneath.history.operations)
        counts["watch events"] = sum(len(stretch.events) for stretch in self.stretches)
        counts["stretches"] = len(self.stretches)
        counts["API server lives"] = self._servers


if __name__ == "__main__":
    sys.exit(replay(ApiRun, drawn_options(int(sys.argv[1])), sys.stdout))
