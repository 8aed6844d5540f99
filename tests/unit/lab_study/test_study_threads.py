"""What a candidate leaves to its rivals, threads at work, and what it must not get, the answers."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from minikube_py.lab.study import threads
from minikube_py.lab.study.contest import Batch, Contest, blind
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


@pytest.mark.parametrize("kind", [list, tuple])
def test_the_world_that_a_candidate_gets_has_no_answers(kind: Any) -> None:
    world = SimpleNamespace(batches=kind([Batch([1, 2], [True, False], [3])]), free=[4])
    given = blind(world)
    assert given.batches == kind([Batch([1, 2], None, [3])]) and given.free == [4] and given.free is not world.free
    assert world.batches[0].right == [True, False]
