"""An informer's copy equals the server's state after any interleaving of changes, 410s, restarts and broken watches;
and the handlers' calls, replayed, give the same copy. Objects that cannot be read are absent from both."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import pytest
from fake_api import FakeApi
from hypothesis import given, settings
from hypothesis import strategies as st
from step_clock import StepClock, settle
from virtual_time import run_virtually

from minikube_py.client.informer import Handler, Informer, Selection
from minikube_py.client.rest import CONFIG_MAPS, RestClient

NAMES = st.sampled_from([f"a/{letter}" for letter in "uvw"])
STEPS = st.one_of(
    st.tuples(st.just("make"), NAMES),
    st.tuples(st.just("change"), NAMES),
    st.tuples(st.just("hide"), NAMES),
    st.tuples(st.sampled_from(["spoil project", "spoil index", "spoil key", "spoil handler"]), NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("remake"), NAMES),
    st.tuples(st.sampled_from(["remake unseen", "remove unseen"]), NAMES),
    st.tuples(st.just("settle"), st.none()),
    st.tuples(st.sampled_from(["drop", "compact", "down", "up", "settle"]), st.none()),
    st.tuples(st.just("advance"), st.floats(0.01, 30)),
)


@dataclass(frozen=True, slots=True)
class View:
    uid: str
    version: str
    color: str
    spoils: str = ""


def project(obj: dict[str, Any]) -> View | None:
    if obj.get("data", {}).get("hidden"):
        return None
    metadata, spoils = obj["metadata"], obj.get("data", {}).get("spoils", "")
    if spoils == "project":
        raise TypeError("a list where a text should be")
    return View(metadata["uid"], metadata["resourceVersion"], str(int(metadata["resourceVersion"]) % 3), spoils)


def colors(view: View) -> tuple[Any, ...]:
    if view.spoils == "index":
        raise KeyError("color")
    return ([view.color],) if view.spoils == "key" else (view.color,)


def picky(*views: View) -> None:
    if views[-1].spoils == "handler":
        raise ValueError("no such thing")


class Replay:
    """Applies the handlers' calls, and checks that they make sense."""

    def __init__(self) -> None:
        self.views: set[View] = set()

    def handler(self) -> Handler[View]:
        return Handler(on_add=self.add, on_update=self.update, on_delete=self.delete)

    def add(self, view: View) -> None:
        assert all(known.uid != view.uid for known in self.views), "added twice"
        self.views.add(view)

    def update(self, old: View, new: View) -> None:
        assert old in self.views, "the old state was never told"
        assert old.uid == new.uid
        assert int(old.version) <= int(new.version), "went back"
        self.views.remove(old)
        self.views.add(new)

    def delete(self, view: View) -> None:
        assert view in self.views, "deleted what was not there"
        self.views.remove(view)


def apply(api: FakeApi, step: str, key: str) -> None:
    there = key in api.kind("configmaps")
    if step == "make" and not there:
        api.make("configmaps", key)
    elif step in ("change", "hide") and there:
        api.change("configmaps", key, data={"v": str(api.version), **({"hidden": "1"} if step == "hide" else {})})
    elif step.startswith("spoil") and there:
        api.change("configmaps", key, data={"spoils": step.partition(" ")[2]})
    elif step.startswith(("remove", "remake")) and there:
        if step.endswith("unseen"):
            api.drop_watches()
        api.remove("configmaps", key)
        if step.startswith("remake"):
            api.make("configmaps", key)
        if step.endswith("unseen"):
            api.compact()


@pytest.mark.unreadable
@settings(max_examples=250)
@given(steps=st.lists(STEPS, max_size=40), seed=st.integers(0, 99), page_size=st.sampled_from([0, 1, 2, 1000]))
def test_the_copy_is_the_truth(steps: list[tuple[str, Any]], seed: int, page_size: int) -> None:
    async def scenario() -> None:
        clock = StepClock()
        api = FakeApi(clock)
        informer: Informer[View] = Informer(
            RestClient(api),
            CONFIG_MAPS,
            project,
            clock=clock,
            rng=random.Random(seed),
            selection=Selection(page_size=page_size),
            indexers={"color": colors},
        )
        replay, behind = Replay(), Replay()
        for handler in (replay.handler(), Handler(on_add=picky, on_update=picky), behind.handler()):
            informer.add_handler(handler)
        informer.start()
        for step, argument in steps:
            if step == "drop":
                api.drop_watches()
            elif step == "compact":
                api.compact()
            elif step in ("down", "up"):
                api.down = step == "down"
                api.drop_watches()
            elif step == "settle":
                await settle()
            elif step == "advance":
                await clock.advance(argument)
            else:
                apply(api, step, argument)
        api.down = False
        await clock.advance(120)
        assert informer.failure is None and informer.unreadable.failed == 0
        found = api.kind("configmaps")
        spoiled = {key for key, obj in found.items() if obj.get("data", {}).get("spoils")}
        assert set(informer.unreadable.why) == spoiled
        truth = {key: view for key in found.keys() - spoiled if (view := project(found[key])) is not None}
        assert dict(informer.store.items()) == truth
        assert replay.views == behind.views == set(truth.values())
        for color in "012":
            expected = {view for view in truth.values() if view.color == color}
            assert set(informer.store.by_index("color", color)) == expected
        await informer.stop()

    run_virtually(scenario)
