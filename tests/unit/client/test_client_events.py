"""Event recorder: counted, combined, cut, bounded, and never waited for."""

import random

import pytest
from fake_api import FakeApi
from step_clock import StepClock, settle

from minikube_py.api.errors import StatusError
from minikube_py.client.events import NORMAL, EventRecorder, Involved
from minikube_py.client.rest import RestClient

POD = Involved("Pod", "a", "p", "uid-p")


class World:
    def __init__(self, **options):
        self.clock = StepClock()
        self.api = FakeApi(self.clock)
        self.recorder = EventRecorder(RestClient(self.api), self.clock, random.Random(1), "tester", **options)

    @property
    def events(self):
        return list(self.api.kind("events").values())

    def say(self, message="m", reason="R", involved=POD):
        self.recorder.event(involved, NORMAL, reason, message)


@pytest.fixture
async def world():
    world = World()
    world.recorder.start()
    yield world
    await world.recorder.stop()


async def test_an_event_tells_who_what_and_when(world):
    world.say("hello")
    await settle()
    (event,) = world.events
    assert event["involvedObject"] == {
        "kind": "Pod", "namespace": "a", "name": "p", "uid": "uid-p", "apiVersion": "v1"
    }  # fmt: skip
    assert (event["reason"], event["message"], event["type"], event["count"]) == ("R", "hello", "Normal", 1)
    assert event["source"] == {"component": "tester"} and event["reportingComponent"] == "tester"
    assert event["metadata"]["name"].startswith("p.") and event["metadata"]["namespace"] == "a"


async def test_a_repetition_counts_up_the_first(world):
    for _ in range(3):
        world.say()
        await world.clock.advance(5)
    (event,) = world.events
    assert event["count"] == 3 and event["firstTimestamp"] < event["lastTimestamp"]
    assert world.recorder.patched == 2


async def test_another_message_reason_or_object_is_another_event(world):
    world.say("m")
    world.say("other")
    world.say("m", reason="S")
    world.say("m", involved=Involved("Pod", "a", "q", "uid-q"))
    await settle()
    assert len(world.events) == 4


async def test_the_tenth_alike_is_combined(world):
    for number in range(12):
        world.say(f"m{number}")
    await settle()
    combined = [event for event in world.events if event["message"].startswith("(combined from similar events): ")]
    assert len(world.events) == 10 and len(combined) == 1 and combined[0]["count"] == 3
    assert [each["reportingComponent"] for each in world.events].count("") == 1 and not combined[0]["reportingInstance"]
    assert {each["source"]["component"] for each in world.events} == {combined[0]["source"]["component"]}


async def test_a_flood_about_one_object_is_cut_and_others_are_heard(world):
    for _ in range(30):
        world.say()
    world.say(involved=Involved("Pod", "a", "q", "uid-q"))
    await settle()
    assert world.recorder.suppressed == 5
    assert {event["involvedObject"]["name"]: event["count"] for event in world.events} == {"p": 25, "q": 1}


async def test_a_token_comes_back_after_five_minutes(world):
    for _ in range(26):
        world.say()
    await world.clock.advance(301)
    world.say()
    await settle()
    assert world.events[0]["count"] == 26


async def test_a_full_queue_drops_and_counts():
    world = World(queue_max=2)
    for name in "abc":
        world.say(involved=Involved("Pod", "a", name, name))
    assert world.recorder.dropped == 1 and world.recorder.queued == 2


async def test_an_expired_first_event_is_written_anew_and_goes_on_counting(world):
    world.say()
    await settle()
    world.api.kind("events").clear()
    world.say()
    await settle()
    assert [event["count"] for event in world.events] == [2]


async def test_a_lost_answer_makes_no_second_event(world):
    world.api.lose_answers = 1
    world.say()
    await world.clock.advance(10)
    assert len(world.events) == 1 and world.recorder.created == 1


async def test_a_server_that_is_down_is_tried_again(world):
    world.api.down = True
    world.say()
    await world.clock.advance(3)
    world.api.down = False
    await world.clock.advance(20)
    assert len(world.events) == 1


async def test_a_refused_event_is_counted_and_forgotten(world):
    world.api.refuse["POST", "events"] = StatusError(403, "Forbidden", "being terminated")
    world.say()
    await settle()
    assert world.recorder.failed == 1 and world.events == []


async def test_an_object_without_a_namespace_has_its_events_in_default(world):
    world.say(involved=Involved("Node", "", "n", "uid-n"))
    await settle()
    assert world.events[0]["metadata"]["namespace"] == "default"


async def test_an_object_that_changes_is_still_the_same_object(world):
    for version in range(30):
        world.say("m", involved=POD._replace(resource_version=str(version)))
    assert world.recorder.suppressed == 5
