"""What API servers told their users, as records of the store's checkers: a true story passes, and no false one does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from api_records import OTHERS, PREFIX, ApiRecord, ApiWatch, Asked, Told

from minikube_py.apiserver.preparing import encode
from minikube_py.mvcc.types import Event, KeyValue, WatchBatch
from minikube_py.sim.checkers.convergence import MemberView
from minikube_py.sim.history import Delivery
from minikube_py.sim.judge import judge

USER, WATCHER = 3, 2


def shown(name: str, value: str, version: int) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"value": value}}


def stored(name: str, value: str, created: int, mod: int, version: int) -> KeyValue:
    return KeyValue(PREFIX + name.encode(), encode(shown(name, value, mod)), created, mod, version, 0)


KEPT = stored("new-3-1", "a", 3, 3, 1)
FIRST, SECOND = stored("own-3-0", "b", 4, 4, 1), stored("own-3-0", "c", 4, 5, 2)
GONE = KeyValue(SECOND.key, b"", 0, 6, 0, 0)
LEASED = KeyValue(b"/registry/masterleases/x", b"y", 2, 2, 1, 77)


def asked(method: str, name: str, call_us: int, value: str = "", version: int = 0, status: int = 200, **answer: Any):
    return Asked(USER, method, name, call_us, value, version, call_us + 10, status, answer)


def listed(call_us: int, version: int, *items: dict[str, Any]) -> Asked:
    answer = {"metadata": {"resourceVersion": str(version)}, "items": list(items)}
    return Asked(OTHERS, "LIST", "", call_us, return_us=call_us + 10, status=200, answer=answer)


@dataclass
class Story:
    """One object is made for good; another is made, changed and deleted."""

    store: list[Delivery] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    held: list[KeyValue] = field(default_factory=lambda: [KEPT, LEASED])

    @classmethod
    def true(cls) -> Story:
        story = cls()
        happened = [
            Event("PUT", LEASED, None),
            Event("PUT", KEPT, None),
            Event("PUT", FIRST, None),
            Event("PUT", SECOND, FIRST),
            Event("DELETE", GONE, SECOND),
        ]
        story.store = [
            Delivery(100 * number + 15, WatchBatch((event,), number + 2)) for number, event in enumerate(happened)
        ]
        story.asked = [
            asked("POST", "new-3-1", 100, "a", status=201, **shown("new-3-1", "a", 3)),
            asked("POST", "own-3-0", 200, "b", status=201, **shown("own-3-0", "b", 4)),
            asked("PUT", "own-3-0", 300, "c", 4, **shown("own-3-0", "c", 5)),
            asked("DELETE", "own-3-0", 400, version=5),
            asked("GET", "new-3-1", 500, **shown("new-3-1", "a", 3)),
            asked("GET", "own-3-0", 520, status=404),
            asked("POST", "shared-1", 540, "x", status=409),
            listed(600, 6, shown("new-3-1", "a", 3)),
        ]
        story.told = [
            Told(120, "ADDED", shown("new-3-1", "a", 3)),
            Told(220, "ADDED", shown("own-3-0", "b", 4)),
            Told(320, "MODIFIED", shown("own-3-0", "c", 5)),
            Told(420, "DELETED", shown("own-3-0", "c", 6)),
            Told(500, "BOOKMARK", {"metadata": {"resourceVersion": "6"}}),
        ]
        return story

    def found(self) -> dict[str, str]:
        """What is wrong with it, by who says so."""
        watch = ApiWatch(WATCHER, parts=[(50, 2, self.told)])
        record = ApiRecord(self.store, 1, self.asked, [watch])
        view = MemberView(1, 9, 6, 0, {}, self.held)
        verdicts = judge(record.history(), [view])
        problems = record.problems()
        return {name: verdict.text for name, verdict in verdicts.items() if not verdict.ok} | (
            {"problems": problems[0]} if problems else {}
        )


def test_a_true_story_passes() -> None:
    assert Story.true().found() == {}


def lost_write(story: Story) -> None:
    story.asked.insert(4, asked("POST", "new-3-2", 450, "d", status=201, **shown("new-3-2", "d", 7)))


def answered_twice(story: Story) -> None:
    story.asked.insert(4, asked("POST", "new-3-2", 450, "d", status=201, **shown("new-3-2", "d", 5)))


def other_content(story: Story) -> None:
    story.asked[0].answer = shown("new-3-1", "z", 3)


def old_list(story: Story) -> None:
    story.asked[-1] = listed(600, 4, shown("new-3-1", "a", 3), shown("own-3-0", "b", 4))


def short_list(story: Story) -> None:
    story.asked[-1] = listed(600, 6)


def write_before_its_call(story: Story) -> None:
    story.asked[0].call_us, story.asked[0].return_us = 130, 140


def stale_get(story: Story) -> None:
    story.asked[5] = asked("GET", "own-3-0", 390, **shown("own-3-0", "b", 4))


def lost_get(story: Story) -> None:
    story.asked[4] = asked("GET", "new-3-1", 500, status=404)


def taken_name(story: Story) -> None:
    story.asked[6].name = "new-3-7"


def own_conflict(story: Story) -> None:
    story.asked.insert(3, asked("PUT", "own-3-0", 350, "e", 5, status=409))


def missed(number: int) -> Callable[[Story], None]:
    def spoil(story: Story) -> None:
        del story.told[number]
        if number == 3:
            del story.told[-1]

    return spoil


def repeated(story: Story) -> None:
    story.told.insert(2, copy.deepcopy(story.told[1]))


def swapped(story: Story) -> None:
    story.told[1], story.told[2] = story.told[2], story.told[1]


def wrong_kind(story: Story) -> None:
    story.told[2].kind = "ADDED"


def early_bookmark(story: Story) -> None:
    story.told.insert(2, Told(312, "BOOKMARK", {"metadata": {"resourceVersion": "5"}}))


def member_lacks_it(story: Story) -> None:
    story.held.remove(KEPT)


FALSE = [
    pytest.param(lost_write, "transactions", id="a 201 of what is in no store"),
    pytest.param(answered_twice, "transactions", id="two writes at one version"),
    pytest.param(other_content, "transactions", id="another content than was stored"),
    pytest.param(old_list, "transactions", id="a list older than what was acknowledged"),
    pytest.param(short_list, "transactions", id="a list without an object"),
    pytest.param(write_before_its_call, "transactions", id="a write before its call"),
    pytest.param(stale_get, "problems", id="a get older than what was acknowledged"),
    pytest.param(lost_get, "problems", id="a get that does not find what is there"),
    pytest.param(taken_name, "problems", id="a new name that is taken"),
    pytest.param(own_conflict, "problems", id="a conflict where nobody else writes"),
    pytest.param(missed(0), "watches", id="first event missed"),
    pytest.param(missed(2), "watches", id="event missed"),
    pytest.param(missed(3), "watches", id="last event missed"),
    pytest.param(repeated, "watches", id="event repeated"),
    pytest.param(swapped, "watches", id="events out of order"),
    pytest.param(wrong_kind, "watches", id="a change told as a creation"),
    pytest.param(early_bookmark, "watches", id="a bookmark before its event"),
    pytest.param(member_lacks_it, "durability", id="a member without an object"),
]


@pytest.mark.parametrize(("spoil", "who"), FALSE)
def test_a_false_story_is_found_out(spoil: Callable[[Story], None], who: str) -> None:
    story = Story.true()
    spoil(story)
    assert who in story.found()


def test_an_unanswered_write_counts_where_it_was_done() -> None:
    story = Story.true()
    story.asked[0].status, story.asked[0].return_us, story.asked[0].answer = 0, None, {}
    story.asked.append(Asked(USER, "POST", "new-3-8", 650, "never"))
    assert story.found() == {}
    story.asked[0].call_us = 700
    assert "transactions" in story.found(), "it was seen before anybody asked for it"
