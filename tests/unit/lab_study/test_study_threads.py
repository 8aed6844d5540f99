"""What a candidate leaves to its rivals, such as threads at work, and what it must not get, the batches."""

from __future__ import annotations

import _thread
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from minikube_py.lab.study import contest, runner, threads
from minikube_py.lab.study.contest import Batch, Contest, taken_from
from minikube_py.lab.study.design import StudyError
from minikube_py.lab.study.experiment import Absent
from minikube_py.lab.study.threads import LeftAtWork

MAY_END = threading.Event()


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(threads, "_stayed", {})
    MAY_END.clear()
    before = threading.enumerate()
    yield
    MAY_END.set()
    for thread in threading.enumerate():
        if thread not in before:
            thread.join(1)


class Plain:
    def answer(self, asked: list[int]) -> list[int]:
        return asked

    def change(self, changes: Any) -> None:
        pass

    def figures(self) -> dict[str, float]:
        return {}


class Joins(Plain):
    def change(self, changes: Any) -> None:
        thread = threading.Thread(target=sum, args=(range(10),))
        thread.start()
        thread.join()


class Leaves(Plain):
    """Its thread ends only once its turn is over."""

    def change(self, changes: Any) -> None:
        threading.Thread(target=MAY_END.wait, args=(0.1,), name="upkeep").start()


class LeavesWhenMade(Leaves):
    def __init__(self) -> None:
        self.change(())


class Stays(Plain):
    def change(self, changes: Any) -> None:
        threading.Thread(target=MAY_END.wait, daemon=True).start()


class StaysUnknown(Plain):
    def change(self, changes: Any) -> None:
        began = threading.Event()
        _thread.start_new_thread(lambda: (began.set(), MAY_END.wait()), ())
        began.wait()


def measured(made: Callable[[], Plain], monkeypatch: pytest.MonkeyPatch) -> Any:
    class Study(Contest):
        def __init__(self) -> None:
            pass

        def world(self, *_: Any) -> Any:
            return SimpleNamespace(batches=[Batch([1, 2], [1, 2])] * 3)

        def candidate(self, name: str, *_: Any) -> Any:
            return made() if name == "a" else Plain()

    monkeypatch.setattr("minikube_py.lab.study.threads._WAIT_S", 0.2)
    design: Any = SimpleNamespace(candidates=lambda _: ["a", "plain"])
    unit: Any = SimpleNamespace(levels={}, seed=1, block="b", key="k")
    return Study().measure(design, unit)


class FailsAndLeaves(Leaves):
    def answer(self, asked: list[int]) -> list[int]:
        self.change(())
        raise ValueError("a bug")


class FailsAndStays(Stays):
    def answer(self, asked: list[int]) -> list[int]:
        self.change(())
        raise ValueError("a bug")


class FailsAndLeavesWhenMade(Leaves):
    def __init__(self) -> None:
        self.change(())
        raise ValueError("a bug")


class AbsentAndLeaves(Leaves):
    def __init__(self) -> None:
        self.change(())
        raise Absent("not here")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (FailsAndLeaves, "a (failed): ValueError: a bug"),
        (FailsAndLeavesWhenMade, "a (failed): ValueError: a bug"),
        (AbsentAndLeaves, "a: not here"),
    ],
)
def test_nobody_is_blamed_for_the_thread_of_one_that_failed(
    made: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(made, monkeypatch)
    assert found["absent"] == {"a": told} and list(found["candidates"]) == ["plain"]


@pytest.mark.parametrize("made", [Plain, Joins])
def test_who_ends_what_it_starts_is_measured(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(made, monkeypatch)
    assert found["absent"] == {} and list(found["candidates"]) == ["a", "plain"]


@pytest.mark.parametrize("made", [Leaves, LeavesWhenMade])
def test_who_leaves_a_thread_is_left_out_and_named(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(made, monkeypatch)
    assert list(found["candidates"]) == ["plain"]
    assert "leaves threads at work when its turn is over" in found["absent"]["a"]


@pytest.mark.parametrize("made", [Stays, StaysUnknown])
def test_what_did_not_end_in_one_unit_is_no_part_of_the_next(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LeftAtWork):
        measured(made, monkeypatch)
    for _ in range(2):
        with pytest.raises(LeftAtWork, match=r"of a candidate of an earlier unit .* have still not ended"):
            measured(Plain, monkeypatch)
    MAY_END.set()
    while threads._stayed.keys() & sys._current_frames().keys():
        threading.Event().wait(0.01)
    assert measured(Plain, monkeypatch)["absent"] == {}


@pytest.mark.parametrize("made", [Stays, StaysUnknown, FailsAndStays])
def test_a_thread_that_does_not_end_ends_the_unit(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LeftAtWork, match="the others' times would be wrong"):
        measured(made, monkeypatch)


class StartsAProcess(Plain):
    def change(self, changes: Any) -> None:
        started.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))


class LeavesOneThatEnded(Plain):
    def change(self, changes: Any) -> None:
        started.append(subprocess.Popen(["true"], stdout=subprocess.PIPE))
        started[-1].stdout.read()  # type: ignore[union-attr]


class SetsATimer(Plain):
    def change(self, changes: Any) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 3600)


class SetsAProfiler(Plain):
    def change(self, changes: Any) -> None:
        sys.setprofile(lambda *_: None)


started: list[subprocess.Popen[bytes]] = []


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (StartsAProcess, "leaves process "),
        (LeavesOneThatEnded, "leaves process "),
        (SetsATimer, "leaves the timer ITIMER_VIRTUAL when its turn is over"),
        (SetsAProfiler, "leaves a profiler when its turn is over"),
    ],
)
def test_whatever_would_work_in_anothers_turn_is_ended_and_named(
    made: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started.clear()
    found = measured(made, monkeypatch)
    assert list(found["candidates"]) == ["plain"] and told in found["absent"]["a"]
    assert not signal.getitimer(signal.ITIMER_VIRTUAL)[0] and sys.getprofile() is None
    assert len(started) <= 1 and not threads._children() & {each.pid for each in started}
    for each in started:
        for pipe in (each.stdin, each.stdout):
            if pipe:
                pipe.close()
        each.wait()


def test_work_of_a_process_that_is_waited_for_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's count of what children used goes up by what this one says that it used."""
    used_s = 0.0
    monkeypatch.setattr(contest.resource, "getrusage", lambda _: SimpleNamespace(ru_utime=used_s, ru_stime=used_s))

    class Child(Plain):
        def answer(self, asked: list[int]) -> list[int]:
            nonlocal used_s
            used_s += 15.0
            return asked

    found = measured(Child, monkeypatch)["candidates"]
    assert all(each > 15e6 for each in found["a"]["figures"]["answer_us"])
    assert all(each < 15e6 for each in found["plain"]["figures"]["answer_us"])
    assert found["a"]["elsewhere_ns"] >= 90e9


def test_a_child_of_its_own_is_counted_by_the_system() -> None:
    span = contest._Span()
    subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
    assert span.elsewhere_ns() > 1_000_000


def test_candidates_get_the_world_without_its_batches() -> None:
    world = SimpleNamespace(batches=[Batch([1, 2], [True, False], [3])], free=[4])
    assert taken_from(world) == [Batch([1, 2], [True, False], [3])] and vars(world) == {"free": [4]}


class Slots:
    __slots__ = ("batches",)

    def __init__(self) -> None:
        self.batches = [Batch([1], [1])]


class Property:
    _made = (Batch([1], [1]),)

    @property
    def batches(self) -> Any:
        return self._made


def test_however_a_world_holds_them_they_are_taken_out_or_it_is_refused() -> None:
    world = Slots()
    assert len(taken_from(world)) == 1 and not hasattr(world, "batches")
    with pytest.raises(StudyError, match="must be an attribute of its own: candidates get it without them"):
        taken_from(Property())


def test_a_worker_whose_threads_do_not_end_takes_no_other_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does this process: the units that are left go to a worker."""
    units: Any = [SimpleNamespace(unit=SimpleNamespace(key=str(number))) for number in range(3)]
    monkeypatch.setattr(runner, "run_unit", lambda task: {"key": task.unit.key})
    monkeypatch.setattr(runner, "_by_workers", lambda tasks, jobs, stop_s: iter([("worker", jobs, list(tasks))]))
    assert list(runner._here(units[:2])) == [{"key": "0"}, {"key": "1"}, ("worker", 1, [])]
    monkeypatch.setitem(threads._stayed, threading.get_ident(), threading.current_thread())
    assert list(runner._here(units)) == [("worker", 1, units)]
    sent: list[Any] = []

    def receive() -> Any:
        if sent:
            raise EOFError
        return units[0]

    runner._serve(SimpleNamespace(send=sent.append, recv=receive))  # type: ignore[arg-type]
    assert sent == [({"key": "0"}, True)]
    worker: Any = SimpleNamespace(pipe=SimpleNamespace(recv=lambda: ({"key": "0"}, True)), given=1)
    assert runner._Worker.record(worker) == ({"key": "0"}, False)
