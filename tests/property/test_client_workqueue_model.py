"""The work queue against its model of three sets, and the delaying queue against a list of deadlines."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from step_clock import StepClock
from virtual_time import run_virtually

from minikube_py.client.workqueue import DelayingQueue, WorkQueue

ITEMS = st.sampled_from("abcd")


class QueueMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.queue: WorkQueue[str] = WorkQueue(StepClock())
        self.waiting: list[str] = []
        self.dirty: set[str] = set()
        self.processing: set[str] = set()
        self.ended = False

    @rule(item=ITEMS)
    def add(self, item: str) -> None:
        self.queue.add(item)
        if not self.ended and item not in self.dirty:
            self.dirty.add(item)
            if item not in self.processing:
                self.waiting.append(item)

    @rule()
    def get(self) -> None:
        expected = self.waiting.pop(0) if self.waiting else None
        assert self.queue.get_nowait() == expected
        if expected is not None:
            self.dirty.discard(expected)
            self.processing.add(expected)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        item = data.draw(st.sampled_from(sorted(self.processing)))
        self.queue.done(item)
        self.processing.discard(item)
        if item in self.dirty:
            self.waiting.append(item)

    @rule()
    def shut_down(self) -> None:
        self.queue.shut_down()
        self.ended = True

    @invariant()
    def sizes_agree(self) -> None:
        stats = self.queue.stats()
        assert (stats.depth, stats.processing) == (len(self.waiting), len(self.processing))

    @invariant()
    def nothing_waits_twice_or_while_it_is_processed(self) -> None:
        assert len(set(self.waiting)) == len(self.waiting)
        assert not set(self.waiting) & self.processing


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=150, stateful_step_count=40)

DELAYS = st.lists(st.tuples(ITEMS, st.integers(0, 20)), max_size=12)


@settings(max_examples=150)
@given(steps=st.lists(st.tuples(DELAYS, st.integers(0, 10)), max_size=8))
def test_an_item_comes_at_the_earliest_of_its_deadlines(steps: list[tuple[list[tuple[str, int]], int]]) -> None:
    async def scenario() -> None:
        clock = StepClock()
        queue: DelayingQueue[str] = DelayingQueue(clock)
        deadlines: dict[str, float] = {}
        ready: set[str] = set()
        for adds, pause_s in steps:
            for item, delay_s in adds:
                queue.add_after(item, delay_s)
                if delay_s == 0:
                    ready.add(item)
                else:
                    deadlines[item] = min(deadlines.get(item, 1e9), clock.now_s + delay_s)
            await clock.advance(pause_s)
            due = {item for item, when_s in deadlines.items() if when_s <= clock.now_s}
            ready |= due
            deadlines = {item: when_s for item, when_s in deadlines.items() if item not in due}
            taken = set()
            while (item := queue.get_nowait()) is not None:
                taken.add(item)
                queue.done(item)
            assert taken == ready
            ready.clear()
            assert queue.waiting == len(deadlines)
        await queue.close()

    run_virtually(scenario)
