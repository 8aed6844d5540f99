"""The small parts of a member, each by a rule that says all of it: when work is tried again, where syncs run, how much
room there is, when history may go, what is walked by the collector, how long a slice is."""

from __future__ import annotations

import asyncio
import errno
import gc
import sys
from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import LoopClock, run_virtually

from minikube_py.env import SystemClock
from minikube_py.index.reports import Choice
from minikube_py.mvcc.types import QueryStats
from minikube_py.raft.message import LogIndex
from minikube_py.raft.ready import ReadState
from minikube_py.store import collector, explaining
from minikube_py.store.collector import Collector
from minikube_py.store.compaction import SAMPLES, CompactionPolicy
from minikube_py.store.fsync import AVERAGE_WEIGHT, SLOW_SYNC_S, FsyncRunner, Histogram
from minikube_py.store.hash_check import Verdict, judge
from minikube_py.store.read_rounds import ReadRounds
from minikube_py.store.retry import Retry
from minikube_py.store.room import Room, explained
from minikube_py.store.snapshotter import PAUSE_S, SLICE_S, Snapshotter, drive


class Hand(LoopClock):
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def advance(self, duration_s: float) -> None:
        self.now_s += duration_s


# -- again, later ------------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.just(0.0), st.floats(0.01, 100.0)), max_size=25))
def test_failed_work_is_due_after_pauses_that_double_from_1_s_up_to_60(steps: list[float]) -> None:
    """0: it succeeds; else it fails, and so much time goes by."""
    clock = Hand()
    retry = Retry(clock)
    assert retry.due and retry.failures == 0
    pause_s = failures = 0
    for step in steps:
        if not step:
            retry.succeeded()
            pause_s = 0
            assert retry.due and retry.failure == "" and retry.pause_s == 0
            continue
        pause_s, failures = min(60, max(1, 2 * pause_s)), failures + 1
        assert retry.failed("why") == pause_s == retry.pause_s
        assert retry.failure == "why" and retry.failures == failures and not retry.due
        clock.advance(step)
        assert retry.due == (step >= pause_s)
    retry.failed("why")
    clock.advance(retry.pause_s)
    assert retry.due


# -- syncs -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 3, allow_nan=False), max_size=30), st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_a_histogram_counts_as_prometheus_does(values: list[float], bounds: list[int]) -> None:
    ordered = tuple(sorted({bound / 10 for bound in bounds}))
    histogram = Histogram(ordered)
    for value in values:
        histogram.observe(value)
    wanted = {f'x_bucket{{le="{bound:g}"}}': sum(value <= bound for value in values) for bound in ordered}
    found = histogram.samples("x")
    assert found.pop("x_sum") == pytest.approx(sum(values)) and found.pop("x_count") == len(values)
    assert found == wanted | {'x_bucket{le="+Inf"}': len(values)}
    for bound in ordered:
        exact = Histogram(ordered)
        exact.observe(bound)
        assert exact.samples("x")[f'x_bucket{{le="{bound:g}"}}'] == 1


def test_the_buckets_of_syncs_and_batches_are_those_of_the_docs() -> None:
    syncs = FsyncRunner(Hand()).histogram
    bounds = [0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1]
    assert list(syncs.samples("s"))[:-3] == [f's_bucket{{le="{bound:g}"}}' for bound in bounds]
    turns: Any = __import__("minikube_py.store.turns", fromlist=["Turns"])
    batches = turns.Turns(SimpleNamespace(), SimpleNamespace(), Hand(), lambda: None, lambda _: None).batches
    assert list(batches.samples("s"))[:-3] == [f's_bucket{{le="{1 << power}"}}' for power in range(11)]


class Timed:
    """Syncs that take what the test says, on a clock of their own."""

    def __init__(self, mode: Any = "auto") -> None:
        self.clock = Hand()
        self.runner = FsyncRunner(self.clock, mode)
        self.took_s = 0.0
        self.errors: list[OSError | None] = []

    def sync(self, took_s: float, error: OSError | None = None) -> bool:
        """Whether it ran at once."""
        self.took_s = took_s

        def run() -> None:
            self.clock.advance(took_s)
            if error is not None:
                raise error

        before = len(self.errors)
        if self.runner.threaded:
            # What a thread would do, without its timing.
            self.runner._finish(*self.runner._timed(run), self.errors.append)
            assert len(self.errors) == before + 1
            return False
        self.runner.run(run, self.errors.append)
        assert len(self.errors) == before + 1
        return True


@given(st.lists(st.sampled_from([0.0001, 0.001, 0.0015, 0.0021, 0.01, 0.05]), max_size=60))
def test_slow_syncs_go_to_the_thread_and_come_back_once_they_are_twice_as_fast(times_s: list[float]) -> None:
    timed = Timed()
    average_s, threaded = 0.0, False
    for took_s in times_s:
        assert timed.sync(took_s) is not threaded
        average_s += (took_s - average_s) / 10
        threaded = average_s > (0.001 if threaded else 0.002)
        assert timed.runner.threaded == threaded
    assert AVERAGE_WEIGHT == 0.1 and SLOW_SYNC_S == 0.002
    for mode in ("inline", "thread", "auto"):
        timed.runner.use(mode)  # type: ignore[arg-type]
        assert timed.runner.threaded == (mode == "thread" or (mode == "auto" and average_s > 0.002))
    assert timed.runner.histogram.count == len(times_s)


def test_the_fixed_modes_stay_and_an_error_is_handed_on() -> None:
    inline = Timed("inline")
    for _ in range(40):
        assert inline.sync(1.0)
    error = OSError(5, "an error")
    assert inline.sync(0.0, error) and inline.errors[-1] is error and inline.errors[0] is None
    assert Timed("thread").runner.threaded


@pytest.mark.real_time("a thread works")
async def test_what_syncs_several_times_goes_to_the_thread_and_errors_of_its_own_come_back() -> None:
    runner = FsyncRunner(SystemClock())
    before_s = sys.getswitchinterval()
    ended: asyncio.Queue[OSError | None] = asyncio.Queue()

    def twice() -> None:
        raise ValueError("a bug")

    twice.syncs = 2  # type: ignore[attr-defined]
    runner.run(twice, ended.put_nowait)
    assert ended.empty()
    error = await ended.get()
    assert isinstance(error, OSError) and "ValueError: a bug" in str(error)
    assert sys.getswitchinterval() == pytest.approx(min(before_s, 0.0005))
    runner.use("thread")
    order: list[str] = []
    runner.run(lambda: order.append("sync"), lambda _: ended.put_nowait(None))
    assert await ended.get() is None and order == ["sync"]
    await runner.wait(lambda: order.append("other file"))
    assert order == ["sync", "other file"]
    runner.close()
    assert sys.getswitchinterval() == pytest.approx(before_s)
    runner.close()


# -- room --------------------------------------------------------------------------------------------------------------


class Disk:
    folder = "/data"

    def __init__(self, free_bytes: int | None) -> None:
        self.free = free_bytes

    def free_bytes(self) -> int:
        if self.free is None:
            raise OSError(5, "an error")
        return self.free

    def free_files(self) -> int | None:
        return None


@given(
    st.sampled_from([0, 1000, 2000]), st.sampled_from([0, 400]),
    st.lists(st.tuples(st.integers(-1, 1), st.sampled_from([0, 950, 1000, 1900, 2000]),
                       st.sampled_from([-421, -420, -400, 0, 1, 20, 21]), st.sampled_from([0, 50])), max_size=8),
)  # fmt: skip
def test_there_is_a_shortage_from_the_bound_on_and_room_again_with_some_to_spare(
    quota: int, reserve: int, looks: list[tuple[int, int, int, int]]
) -> None:
    disk = Disk(0)
    room = Room(disk, quota, reserve)  # type: ignore[arg-type]
    short = False
    for off, data, over, held in looks:
        disk.free, data_bytes = reserve + over - held, max(0, data + off)
        room.look(data_bytes, held)
        full = bool(quota) and data_bytes >= (quota - quota // 20 if short else quota)
        tight = not full and reserve + over < (reserve + reserve // 20 if short else reserve)
        assert room.free_bytes == reserve + over
        assert ("the quota is" in room.shortage) == full and ("bytes free" in room.shortage) == tight
        if full:
            assert f"take {data_bytes:,} bytes, the quota is {quota:,}" in room.shortage
            assert f"below {quota - quota // 20:,}" in room.shortage
        short = full or tight
        assert bool(room.shortage) == short


def test_a_disk_that_does_not_tell_has_room_until_a_write_fails() -> None:
    room = Room(Disk(None), 1000, 400)  # type: ignore[arg-type]
    room.look(999)
    assert room.shortage == "" and room.free_bytes == 400


@pytest.mark.parametrize(
    ("code", "free", "needed", "said"),
    [
        (errno.EIO, 7, 9, "an error (/data)"),
        (errno.ENOSPC, 7000, 0, "an error: /data has 7,000 bytes free; free space there; committed data is safe"),
        (errno.EDQUOT, 7, 9000, "an error: /data has 7 bytes free, and 9,000 bytes are needed; raise the quota of its"),
        (errno.ENOSPC, None, 0, "an error: /data has an unknown number of bytes free; free space there"),
    ],
)
def test_an_error_of_the_disk_says_where_and_what_to_do(code: int, free: int | None, needed: int, said: str) -> None:
    assert explained(OSError(code, "an error"), Disk(free), needed).startswith(said)  # type: ignore[arg-type]
    assert explained(OSError("words alone"), Disk(free)) == "words alone (/data)"  # type: ignore[arg-type]
    assert explained(OSError("words alone"), SimpleNamespace()) == "words alone (its folder)"  # type: ignore[arg-type]


# -- slices ------------------------------------------------------------------------------------------------------------


class Counting(LoopClock):
    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, duration_s: float) -> None:
        self.pauses.append(duration_s)
        await super().sleep(duration_s)


def test_long_work_has_its_slice_and_then_a_pause() -> None:
    """A third of a busy loop: 3 ms of steps, 6 ms for others; with `pause_s` a pause after each step."""

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        clock = LoopClock()
        for pause_s, step_s, wanted in ((None, 0.001, 3), (None, 0.0031, 1), (0.25, 0.0001, 1)):
            counting = Counting()

            def steps(step_s: float = step_s) -> Generator[None, None, str]:
                for _ in range(12):
                    loop.charge(step_s)
                    yield None
                return "done"

            async def wait(sync: Any) -> None:
                raise AssertionError("there is no sync")

            assert await drive(steps(), wait, counting, pause_s) == "done"
            assert set(counting.pauses) == {PAUSE_S if pause_s is None else pause_s}
            assert len(counting.pauses) in (12 // wanted, 12 // wanted - 1)
        assert clock.monotonic_s() > 0 and (SLICE_S, PAUSE_S) == (0.003, 0.006)

    run_virtually(main)


async def test_syncs_are_waited_for_and_their_errors_go_back_to_whoever_asked() -> None:
    waited: list[Any] = []

    async def wait(sync: Any) -> None:
        waited.append(sync)
        sync()

    def fails() -> None:
        raise OSError(5, "an error")

    def works() -> None:
        pass

    closed: list[str] = []

    def steps(catches: bool) -> Generator[Any, None, str]:
        try:
            yield works
            try:
                yield fails
            except OSError:
                if not catches:
                    raise
            return "done"
        finally:
            closed.append("closed")

    assert await drive(steps(True), wait, LoopClock()) == "done" and waited == [works, fails]
    with pytest.raises(OSError, match="an error"):
        await drive(steps(False), wait, LoopClock())
    assert closed == ["closed"] * 2

    def endless() -> Generator[None, None, str]:
        try:
            while True:
                yield None
        finally:
            closed.append("cancelled")
            raise OSError(5, "cannot be closed")

    task = asyncio.ensure_future(drive(endless(), wait, LoopClock(), 0.1))
    await LoopClock().sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed[-1] == "cancelled"


async def test_a_snapshotter_counts_what_it_took_and_what_failed() -> None:
    clock = LoopClock()
    loop: Any = asyncio.get_running_loop()
    fails = False

    def take_snapshot() -> Generator[Any, None, None]:
        loop.charge(0.5)
        yield None
        if fails:
            raise OSError(errno.ENOSPC, "no space")

    async def wait(sync: Any) -> None: ...

    replica: Any = SimpleNamespace(take_snapshot=take_snapshot, files=SimpleNamespace(disk=Disk(12)))
    snapshotter = Snapshotter(wait, clock)
    assert snapshotter.age_s is None and set(snapshotter.metrics("p_").values()) == {0}
    await snapshotter.take(replica)
    await clock.sleep(3.0)
    assert snapshotter.age_s == pytest.approx(3.0, abs=0.01)
    fails = True
    with pytest.raises(OSError, match="no space"):
        await snapshotter.take(replica)
    assert snapshotter.retry.failure.startswith("no space: /data has 12 bytes free") and not snapshotter.retry.due
    found = snapshotter.metrics("p_")
    assert (found["p_snapshots_total"], found["p_snapshot_failures_total"]) == (1, 1)
    assert found["p_snapshot_duration_seconds"] == pytest.approx(0.5, abs=0.02)
    fails = False
    await snapshotter.take(replica)
    assert snapshotter.retry.due and snapshotter.metrics("p_")["p_snapshots_total"] == 2
    assert snapshotter.age_s == pytest.approx(0.0, abs=0.01)


# -- reads -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["add", "ask", "answer", "no answer", "old", "apply", "tick"]),
                          st.integers(0, 5)), max_size=40))  # fmt: skip
def test_each_read_ends_once_when_its_index_is_there_or_nobody_could_be_asked_for_long(
    steps: list[tuple[str, int]],
) -> None:
    """Beside a model: a read is new, asked under a context, confirmed at an index, or to be asked for again."""
    rounds = ReadRounds(99)
    where: dict[Any, tuple[str, Any]] = {}
    since: dict[Any, int] = {}
    order: list[Any] = []
    contexts: list[bytes] = []
    tick = 0
    for what, number in steps:
        if what == "add":
            name = len(since)
            order.append(name)
            since[name], where[name] = tick, ("new", None)
            rounds.add(name, tick)  # type: ignore[arg-type]
        elif what == "ask":
            context = rounds.ask()
            assert context not in contexts and context.startswith(b"%016x" % 99)
            contexts.append(context)
            where.update({name: ("asked", context) for name, (state, _) in where.items() if state == "new"})
        elif what in ("answer", "no answer") and contexts:
            context = contexts[number % len(contexts)]
            rounds.answered(ReadState(LogIndex(number) if what == "answer" else None, context))
            for name, at in list(where.items()):
                if at == ("asked", context):
                    where[name] = ("confirmed", number) if what == "answer" else ("again", None)
        elif what == "old":
            rounds.answered(ReadState(LogIndex(0), b"of another life"))
        elif what == "apply":
            found = rounds.ready(LogIndex(number))
            confirmed = {name for name, (state, at) in where.items() if state == "confirmed" and at <= number}
            # In the order of their answers: one that waits holds up those that were answered after it.
            assert set(found) <= confirmed
            assert number < 5 or set(found) == confirmed
            for name in found:
                del where[name]  # type: ignore[arg-type]
        elif what == "tick":
            tick += 1
            where.update({name: ("new", None) for name, (state, _) in where.items() if state == "again"})
            late = [name for name in order if where.get(name, ("", 0))[0] == "new" and tick - since[name] > 2]
            assert sorted(rounds.expired(tick, 2)) == late  # type: ignore[type-var]
            for name in late:
                del where[name]
        assert rounds.size == len(where) and rounds.pending == any(state == "new" for state, _ in where.values())
    assert sorted(rounds.take_all()) == sorted(where) and rounds.size == 0 and not rounds.pending  # type: ignore[type-var]
    assert rounds.take_all() == [] == rounds.ready(LogIndex(99))


@given(
    st.dictionaries(st.integers(1, 5), st.integers(1, 3), max_size=5), st.frozensets(st.integers(1, 5), max_size=5)
)  # fmt: skip
def test_only_a_majority_of_the_voters_names_who_is_odd(hashes: dict[int, int], voters: frozenset[int]) -> None:
    found = judge(hashes, voters)  # type: ignore[arg-type]
    votes = [digest for member, digest in hashes.items() if member in voters]
    if not votes or len(set(hashes.values())) == 1:
        assert found == Verdict((), False)
        return
    right = next((digest for digest in set(votes) if 2 * votes.count(digest) > len(voters)), None)
    if right is None:
        assert found == Verdict((), True)
    else:
        assert found == Verdict(tuple(sorted(id for id, digest in hashes.items() if digest != right)), False)


# -- history -----------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from([0.0, 60.0, 600.0]), st.sampled_from([0, 6000]),
    st.lists(st.tuples(st.floats(0, 90), st.integers(0, 900)), max_size=60),
)  # fmt: skip
def test_history_goes_when_it_is_too_old_or_too_large_and_not_before(
    retain_s: float, retain_bytes: int, steps: list[tuple[float, int]]
) -> None:
    policy = CompactionPolicy(retain_s, retain_bytes)
    clock_s, written = 1000.0, 0
    known: list[tuple[float, int, int]] = []
    compacted = compacted_bytes = 0
    for revision, (passed_s, wrote) in enumerate(steps, 1):
        clock_s, written = clock_s + passed_s, written + wrote
        found = policy.due(clock_s, revision, written)
        known.append((clock_s, revision, written))
        if found:
            assert found > compacted and found <= revision
            at_s, _, by_then = known[found - 1]
            old = bool(retain_s) and clock_s - at_s >= retain_s
            large = bool(retain_bytes) and written - compacted_bytes > retain_bytes
            assert old or (large and written - by_then >= retain_bytes // 2)
            compacted, compacted_bytes = found, by_then
        # What stays is neither older nor larger than it may be, up to one sample's distance.
        sample_s, sample_bytes = retain_s / SAMPLES, retain_bytes // SAMPLES
        for at_s, at, _ in known[compacted:]:
            if retain_s and clock_s - at_s >= retain_s + sample_s + 90:
                raise AssertionError(f"revision {at} is {clock_s - at_s} s old")
        if retain_bytes:
            assert written - compacted_bytes <= retain_bytes + 2 * sample_bytes + 2 * 900
    if not retain_s and not retain_bytes:
        assert compacted == 0


# -- the collector -----------------------------------------------------------------------------------------------------


class Gc:
    """What the collector does to Python's."""

    def __init__(self) -> None:
        self.middle, self.frozen, self.fresh = 0, 0, 0
        self.done: list[str] = []
        self.threshold: tuple[int, ...] = (700, 10, 10)

    def get_threshold(self) -> tuple[int, ...]:
        return self.threshold

    def set_threshold(self, *threshold: int) -> None:
        self.threshold = threshold

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.middle

    def get_freeze_count(self) -> int:
        return self.frozen

    def collect(self) -> None:
        self.done.append("collect")

    def freeze(self) -> None:
        self.done.append("freeze")
        self.frozen, self.fresh = self.frozen + self.fresh, 0

    def unfreeze(self) -> None:
        self.done.append("unfreeze")


def test_what_is_new_is_walked_and_all_of_it_once_it_has_grown_by_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Gc()
    monkeypatch.setattr(collector, "gc", fake)
    monkeypatch.setattr(Collector, "_owner", None)
    one, other = Collector(), Collector()
    one.start()
    other.start()
    assert fake.threshold == collector.THRESHOLDS and fake.done == ["freeze"]
    other.step()
    other.keep()
    other.stop()
    one.step()
    assert fake.done == ["freeze"], "only the first one does anything, and only where something is new"
    fake.middle = 1

    def steps(growth: int) -> list[str]:
        """What each of 200 steps did."""
        found = []
        for _ in range(200):
            fake.done.clear()
            fake.fresh = growth
            one.step()
            found.append("full" if fake.done == ["unfreeze", "collect", "freeze"] else " ".join(fake.done))
        return found

    plain = ["collect freeze"] * 199
    assert steps(5) == [*plain, "full"], "nothing was there before"
    assert fake.frozen == 1000
    assert steps(1) == [*plain, "collect freeze"], "not a quarter more"
    one.keep(most=True)
    assert fake.done[-1] == "freeze"
    fake.frozen = 4000
    assert steps(1) == [*plain, "collect freeze"], "growth is counted from here"
    fake.frozen = 5000 - 1
    assert steps(0) == [*plain, "full" if fake.frozen >= 1.25 * 4199 else "collect freeze"]
    one.stop()
    assert fake.threshold == (700, 10, 10) and fake.done[-1] == "unfreeze" and Collector._owner is None
    assert gc is not fake


# -- explaining --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("times_us", "runs"), [((100, 90, 80, 95, 99, 1), 5), ((2500,), 1), ((1999, 2001), 2)])
def test_a_quick_way_is_measured_five_times_and_a_slow_one_once(times_us: tuple[int, ...], runs: int) -> None:
    clock = Hand()
    left = list(times_us)

    def run() -> Any:
        clock.advance(left.pop(0) / 1e6)
        return SimpleNamespace(keys=[b"a", b"b"]), QueryStats("s", 1, 2, "", 3, 4, 5)

    found = explaining._tried(Choice("i", "s", 1.0, -1.0), run, clock)
    assert len(times_us) - len(left) == runs and found.taken_us == pytest.approx(min(times_us[:runs]), abs=1e-3)
    assert (found.found, found.rows_examined, found.objects_decoded) == (2, 1, 2)
    assert (found.shards_examined, found.shards_pruned, found.false_positives) == (3, 4, 5)


async def test_ways_that_are_outdated_meanwhile_are_not_tried() -> None:
    state: Any = SimpleNamespace(tables=SimpleNamespace(version=1), compact_revision=0)
    asked: list[str] = []

    def way(name: str) -> Any:
        def run() -> Any:
            asked.append(name)
            if name == "last in force":
                state.tables.version = 2
            return SimpleNamespace(keys=[]), QueryStats()

        return Choice(name, "s", 1.0, -1.0), run

    untried = Choice("never", "s", 1.0, -1.0, reason="it is being built")
    ways = [way("first"), (untried, None), way("last in force"), way("late"), (untried, None)]
    state.explain = lambda request: SimpleNamespace(ways=ways, share=0.5, rows=7, revision=3)
    found = await explaining.explained(state, SimpleNamespace(), LoopClock())  # type: ignore[arg-type]
    assert list(dict.fromkeys(asked)) == ["first", "last in force"]
    assert [each.name for each in (found.chosen, *found.others)] == ["first", "never", "last in force", "late", "never"]
    assert found.others[2].reason.startswith("not tried") and found.others[0] == untried
    state.compact_revision = 4
    state.tables.version = 2
    assert (await explaining.explained(state, SimpleNamespace(), LoopClock())).chosen.reason  # type: ignore[arg-type]
