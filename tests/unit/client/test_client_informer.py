"""Informers: what handlers are called with, and what survives 410, restarts and broken watches."""

import asyncio
import random
from dataclasses import dataclass

import orjson
import pytest
from fake_api import FakeApi
from step_clock import StepClock, settle

from minikube_py.api.errors import StatusError
from minikube_py.client import informer
from minikube_py.client.informer import Handler, Informer, Selection
from minikube_py.client.rest import CONFIG_MAPS, PODS, RestClient
from minikube_py.client.transport import WatchEvent
from minikube_py.client.unreadable import unreadable_metrics


@dataclass(frozen=True, slots=True)
class View:
    uid: str
    name: str
    value: str


def project(obj):
    value = (obj.get("data") or {}).get("v", "")
    return None if value == "hidden" else View(obj["metadata"]["uid"], obj["metadata"]["name"], value)


class World:
    def __init__(self, **options):
        self.clock = StepClock()
        self.api = FakeApi(self.clock)
        self.informer = Informer(
            RestClient(self.api),
            options.pop("resource", CONFIG_MAPS),
            options.pop("project", project),
            clock=self.clock,
            rng=random.Random(1),
            **options,
        )
        self.seen = []
        self.informer.add_handler(
            Handler(
                on_add=lambda new: self.seen.append(("add", new.name, new.value)),
                on_update=lambda old, new: self.seen.append(("update", old.value, new.value)),
                on_delete=lambda old: self.seen.append(("delete", old.name, old.value)),
                on_batch=lambda: self.seen.append(("batch",)),
            )
        )

    async def start(self):
        self.informer.start()
        await settle()
        assert self.informer.has_synced()

    def news(self):
        seen, self.seen = [entry for entry in self.seen if entry != ("batch",)], []
        return seen

    @property
    def values(self):
        return {key: view.value for key, view in self.informer.store.items()}


@pytest.fixture
async def world():
    world = World(indexers={"value": lambda view: (view.value,)})
    yield world
    await world.informer.stop()


async def test_first_a_list_then_changes(world):
    world.api.make("configmaps", "a/x", data={"v": "1"})
    await world.start()
    assert world.news() == [("add", "x", "1")]
    world.api.make("configmaps", "a/y", data={"v": "1"})
    world.api.change("configmaps", "a/x", data={"v": "2"})
    world.api.remove("configmaps", "a/y")
    await settle()
    assert world.news() == [("add", "y", "1"), ("update", "1", "2"), ("delete", "y", "1")]
    assert world.values == {"a/x": "2"}


async def test_indexes_follow_every_change(world):
    world.api.make("configmaps", "a/x", data={"v": "1"})
    world.api.make("configmaps", "a/y", data={"v": "1"})
    await world.start()
    store = world.informer.store
    assert [view.name for view in store.by_index("value", "1")] == ["x", "y"]
    world.api.change("configmaps", "a/x", data={"v": "2"})
    world.api.remove("configmaps", "a/y")
    await settle()
    assert store.by_index("value", "1") == [] and store.count_by_index("value", "2") == 1
    assert list(store.index_values("value")) == ["2"]


async def test_an_object_that_the_projection_drops_is_a_deletion(world):
    world.api.make("configmaps", "a/x", data={"v": "1"})
    await world.start()
    world.api.change("configmaps", "a/x", data={"v": "hidden"})
    await settle()
    world.api.change("configmaps", "a/x", data={"v": "3"})
    await settle()
    assert world.news() == [("add", "x", "1"), ("delete", "x", "1"), ("add", "x", "3")]


async def test_pages_are_one_list():
    world = World(selection=Selection(page_size=2))
    for number in range(5):
        world.api.make("configmaps", f"a/{number}")
    await world.start()
    assert len(world.informer.store) == 5 and world.informer.stats.lists == 1
    await world.informer.stop()


async def test_the_handlers_of_a_long_list_let_others_run_between(monkeypatch):
    monkeypatch.setattr(informer, "SLICE_OBJECTS", 10)
    world = World()
    for number in range(95):
        world.api.make("configmaps", f"a/{number}")
    seen = []
    world.informer.add_handler(
        Handler(on_add=lambda _: asyncio.get_running_loop().call_soon(lambda: seen.append(len(world.informer.store))))
    )
    await world.start()
    assert len(world.informer.store) == 95 and len(set(seen)) >= 9
    await world.informer.stop()


async def test_a_continue_token_that_expired_means_one_list_in_one_piece():
    world = World(selection=Selection(page_size=2))
    for number in range(5):
        world.api.make("configmaps", f"a/{number}")
    real = world.api._list

    def expiring(kind, namespace, params):
        if params.get("continue"):
            raise StatusError(410, "Expired", "the provided continue parameter is too old")
        return real(kind, namespace, params)

    world.api._list = expiring
    await world.start()
    assert len(world.informer.store) == 5
    await world.informer.stop()


async def test_410_on_the_watch_lists_again_and_finds_what_was_missed(world):
    for name in "xyz":
        world.api.make("configmaps", f"a/{name}", data={"v": "1"})
    await world.start()
    world.news()
    world.api.drop_watches()
    world.api.remove("configmaps", "a/x")
    world.api.change("configmaps", "a/y", data={"v": "2"})
    world.api.compact()
    await world.clock.advance(60)
    assert sorted(world.news()) == [("delete", "x", "1"), ("update", "1", "1"), ("update", "1", "2")]
    assert world.informer.stats.expired == 1 and world.values == {"a/y": "2", "a/z": "1"}


async def test_made_again_under_its_name_during_a_gap_is_a_deletion_and_an_addition(world):
    world.api.make("configmaps", "a/x", data={"v": "1"})
    await world.start()
    world.news()
    world.api.drop_watches()
    world.api.remove("configmaps", "a/x")
    world.api.make("configmaps", "a/x", data={"v": "2"})
    world.api.compact()
    await world.clock.advance(60)
    assert world.news() == [("delete", "x", "1"), ("add", "x", "2")]


async def test_a_watch_that_the_server_ends_goes_on_without_a_list(world):
    await world.start()
    world.api.drop_watches()
    world.api.make("configmaps", "a/x", data={"v": "1"})
    await world.clock.advance(60)
    assert world.news() == [("add", "x", "1")] and world.informer.stats.lists == 1


async def test_a_server_that_is_down_is_tried_with_growing_pauses(world):
    await world.start()
    world.api.down = True
    world.api.drop_watches()
    await world.clock.advance(120)
    assert 10 < world.informer.stats.errors < 60
    world.api.down = False
    world.api.make("configmaps", "a/x", data={"v": "1"})
    await world.clock.advance(30)
    assert world.values == {"a/x": "1"} and world.informer.stats.lists == 1


async def test_down_at_the_start_is_no_failure(world):
    world.api.down = True
    world.informer.start()
    await world.clock.advance(5)
    assert not world.informer.has_synced()
    world.api.down = False
    await world.clock.advance(30)
    assert world.informer.has_synced()


async def test_a_history_that_the_server_has_never_seen_is_listed_again(world):
    world.api.make("configmaps", "a/x", data={"v": "1"})
    await world.start()
    error = StatusError(504, "Timeout", "Timeout: Too large resource version: 9, current: 3")

    async def refusing(path, params=None):
        world.api.watch = real
        yield [WatchEvent("ERROR", orjson.dumps(error.to_status()))]

    real, world.api.watch = world.api.watch, refusing
    world.api.drop_watches()
    await world.clock.advance(30)
    assert world.informer.stats.lists == 2


async def test_bookmarks_move_the_version_and_older_objects_do_not_move_it_back(world):
    await world.start()
    before = int(world.informer.resource_version)
    old = {"metadata": {"name": "x", "namespace": "a", "uid": "u", "resourceVersion": str(before - 1)}}
    world.informer._apply([WatchEvent("BOOKMARK", b'{"metadata":{"resourceVersion":"%d"}}' % (before + 10))])
    world.informer._apply([WatchEvent("ADDED", orjson.dumps(old))])
    assert int(world.informer.resource_version) == before + 10
    assert world.news() == [("add", "x", "")]


@pytest.mark.unreadable
async def test_what_a_handler_raises_leaves_out_its_object_and_is_told_once(world, caplog):
    def picky(view):
        if view.value == "bad":
            raise KeyError("handler")

    world.informer.add_handler(Handler(on_add=picky, on_update=lambda _, new: picky(new)))
    world.api.make("configmaps", "a/x", data={"v": "bad"})
    world.api.make("configmaps", "a/y", data={"v": "1"})
    await world.start()
    assert world.values == {"a/y": "1"} and world.informer.unreadable.why == {"a/x": "KeyError: 'handler'"}
    assert unreadable_metrics([world.informer.unreadable]) == {'informer_unreadable_objects{resource="configmaps"}': 1}
    world.api.change("configmaps", "a/x", data={"v": "bad"}, more="1")
    await settle()
    told = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert told == ["configmaps a/x cannot be read, and is skipped until it changes: KeyError: 'handler'"]
    world.api.change("configmaps", "a/x", data={"v": "2"})
    await settle()
    assert world.values == {"a/x": "2", "a/y": "1"} and not world.informer.unreadable.why
    world.api.change("configmaps", "a/y", data={"v": "bad"})
    await settle()
    assert world.values == {"a/x": "2"} and world.news()[-1] == ("delete", "y", "bad")
    assert world.informer.failure is None


@pytest.mark.unreadable
@pytest.mark.parametrize("body", [b"[]", b"7", b"{}", b'{"metadata":[]}', b'{"metadata":{"resourceVersion":[]}}'])
async def test_an_event_of_something_that_is_no_object_ends_nothing(world, body):
    await world.start()
    world.informer._apply([WatchEvent("ADDED", body)])
    world.api.make("configmaps", "a/x")
    await settle()
    assert world.values == {"a/x": ""} and list(world.informer.unreadable.why) == ["?"]


@pytest.mark.unreadable
async def test_what_a_late_handler_cannot_take_is_left_out(world):
    world.api.make("configmaps", "a/x")
    await world.start()

    def picky(view):
        raise KeyError("handler")

    world.informer.add_handler(Handler(on_add=picky))
    assert not world.values and world.news() == [("add", "x", ""), ("delete", "x", "")]


async def test_a_late_handler_is_told_what_is_known(world):
    world.api.make("configmaps", "a/x")
    await world.start()
    late = []
    world.informer.add_handler(Handler(on_add=lambda view: late.append(view.name)))
    assert late == ["x"]


async def test_selectors_make_objects_come_and_go():
    world = World(resource=PODS, selection=Selection(field_selector="spec.nodeName!=", label_selector="app=web"))
    world.api.make("pods", "a/p", metadata={"labels": {"app": "web"}}, spec={})
    world.api.make("pods", "a/q", metadata={"labels": {"app": "db"}}, spec={"nodeName": "n"})
    await world.start()
    assert world.values == {}
    world.api.change("pods", "a/p", spec={"nodeName": "n"})
    await settle()
    assert list(world.values) == ["a/p"]
    metadata = world.api.kind("pods")["a/p"]["metadata"]
    world.api.change("pods", "a/p", metadata={**metadata, "labels": {"app": "db"}})
    await settle()
    assert world.values == {} and world.news() == [("add", "p", ""), ("delete", "p", "")]
    await world.informer.stop()


async def test_stop_ends_the_watch_and_those_who_wait(world):
    await world.start()
    assert world.api.watchers == 1
    await world.informer.stop()
    await settle()
    assert world.api.watchers == 0
