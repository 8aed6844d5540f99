"""ReplicationController, step by step: what it creates, adopts, releases, deletes and reports."""

from controller_world import World
from step_clock import settle

from minikube_py.api.errors import StatusError

NAME = "replicationcontroller-controller"


def world(**config):
    return World(NAME, **config)


async def test_pods_are_made_from_the_template_and_owned():
    async with world() as w:
        w.controller(3)
        await w.clock.advance(1)
        assert len(w.pods()) == 3
        for key, pod in w.pods().items():
            (reference,) = pod["metadata"]["ownerReferences"]
            assert reference["controller"] and reference["blockOwnerDeletion"] and reference["name"] == "web"
            assert pod["metadata"]["labels"] == {"app": "web"} and key.startswith("a/web-")
        status = w.api.kind("replicationcontrollers")["a/web"]["status"]
        assert status == {
            "replicas": 3,
            "fullyLabeledReplicas": 3,
            "readyReplicas": 0,
            "availableReplicas": 0,
            "observedGeneration": 1,
        }
        assert [reason for reason, _ in w.reasons()] == ["SuccessfulCreate"] * 3


async def test_nothing_is_made_twice_while_the_watch_lags():
    async with world() as w:
        w.api.drop_watches()
        w.controller(2)
        await settle()
        await w.clock.advance(120)
        assert len(w.pods()) == 2


async def test_a_lost_answer_makes_no_pod_too_many():
    async with world() as w:
        w.api.lose_answers = 1
        w.controller(1)
        await w.clock.advance(30)
        assert len(w.pods()) == 1


async def test_scale_up_and_down_and_to_zero():
    async with world() as w:
        w.controller(2)
        await w.clock.advance(1)
        for replicas in (5, 1, 0):
            w.scale(replicas)
            await w.clock.advance(1)
            assert len(w.pods()) == replicas
            status = w.api.kind("replicationcontrollers")["a/web"]["status"]
            assert status["replicas"] == replicas
        assert status["observedGeneration"] == 4


async def test_no_more_than_the_burst_in_one_go_but_all_in_the_end():
    async with world(burst_replicas=4) as w:
        w.controller(10)
        await w.clock.advance(5)
        assert len(w.pods()) == 10
        w.scale(1)
        await w.clock.advance(5)
        assert len(w.pods()) == 1


async def test_deleted_failed_and_succeeded_pods_are_replaced():
    async with world() as w:
        w.controller(3)
        await w.clock.advance(1)
        gone, failed, succeeded = list(w.pods())
        w.api.remove("pods", gone)
        w.api.change("pods", failed, status={"phase": "Failed"})
        w.api.change("pods", succeeded, status={"phase": "Succeeded"})
        await w.clock.advance(1)
        active = [k for k, p in w.pods().items() if p["status"]["phase"] == "Pending"]
        assert len(active) == 3 and failed in w.pods() and succeeded in w.pods()


async def test_a_pod_with_grace_is_replaced_as_soon_as_it_is_asked_to_go():
    async with world() as w:
        w.controller(1)
        await w.clock.advance(1)
        (key,) = w.pods()
        w.run_pod(key)
        w.api.remove("pods", key)
        await w.clock.advance(1)
        assert len(w.pods()) == 1 and len(w.pods(live=False)) == 2


async def test_ready_and_available_are_counted():
    async with world() as w:
        w.controller(2, minReadySeconds=10)
        await w.clock.advance(1)
        first, _ = w.pods()
        w.run_pod(first)
        await w.clock.advance(1)
        status = w.api.kind("replicationcontrollers")["a/web"]["status"]
        assert (status["readyReplicas"], status["availableReplicas"]) == (1, 0)
        await w.clock.advance(11)
        assert w.api.kind("replicationcontrollers")["a/web"]["status"]["availableReplicas"] == 1


async def test_matching_orphans_are_adopted_and_count():
    async with world() as w:
        w.api.make("pods", "a/orphan", metadata={"labels": {"app": "web"}}, spec={})
        w.api.make("pods", "a/stranger", metadata={"labels": {"app": "db"}}, spec={})
        w.controller(2)
        await w.clock.advance(1)
        owned = {k for k, p in w.pods().items() if p["metadata"].get("ownerReferences")}
        assert len(owned) == 2 and "a/orphan" in owned


async def test_a_pod_of_another_controller_is_left_alone():
    async with world() as w:
        reference = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": True}
        w.api.make("pods", "a/theirs", metadata={"labels": {"app": "web"}, "ownerReferences": [reference]}, spec={})
        w.controller(1)
        await w.clock.advance(1)
        assert w.pods()["a/theirs"]["metadata"]["ownerReferences"] == [reference] and len(w.pods()) == 2


async def test_a_pod_that_matches_no_more_is_released_and_replaced():
    async with world() as w:
        w.controller(1)
        await w.clock.advance(1)
        (key,) = w.pods()
        metadata = w.pods()[key]["metadata"]
        w.api.change("pods", key, metadata={**metadata, "labels": {"app": "debug"}})
        await w.clock.advance(1)
        assert w.pods()[key]["metadata"].get("ownerReferences") in (None, []) and len(w.pods()) == 2


async def test_a_controller_that_is_being_deleted_neither_creates_nor_adopts():
    async with world() as w:
        w.controller(1)
        await w.clock.advance(1)
        w.api.remove("replicationcontrollers", "a/web", propagationPolicy="Foreground")
        (key,) = w.pods()
        w.api.remove("pods", key)
        w.api.make("pods", "a/orphan", metadata={"labels": {"app": "web"}}, spec={})
        await w.clock.advance(1)
        assert list(w.pods()) == ["a/orphan"]
        assert "ownerReferences" not in w.pods()["a/orphan"]["metadata"]


async def test_a_failing_creation_is_reported_retried_and_forgotten_when_it_works():
    async with world() as w:
        w.api.refuse["POST", "/pods$"] = StatusError(403, "Forbidden", "exceeded quota")
        w.controller(4)
        await w.clock.advance(0.004)
        posts = [call for call in w.api.calls if call == ("POST", "/api/v1/namespaces/a/pods")]
        assert len(posts) == 2, "one of four, for slow start stops; and one more when its own status comes back"
        (condition,) = w.api.kind("replicationcontrollers")["a/web"]["status"]["conditions"]
        assert (condition["type"], condition["reason"], condition["message"]) == (
            "ReplicaFailure", "FailedCreate", "exceeded quota"
        )  # fmt: skip
        assert ("FailedCreate", "Error creating: exceeded quota") in w.reasons()
        w.api.refuse.clear()
        await w.clock.advance(10)
        assert len(w.pods()) == 4
        assert not w.api.kind("replicationcontrollers")["a/web"]["status"].get("conditions")


async def test_in_a_terminating_namespace_it_is_quiet():
    async with world() as w:
        w.api.remove("namespaces", "a")
        home = w.api.kind("namespaces").pop("a")
        w.controller(2)
        w.api.kind("namespaces")["a"] = home
        await w.clock.advance(5)
        assert w.pods() == {} and w.reasons() == []


async def test_the_pods_least_missed_go_first():
    async with world() as w:
        w.controller(3)
        await w.clock.advance(1)
        first, second, third = w.pods()
        w.run_pod(first)
        w.run_pod(second, ready=False)
        await w.clock.advance(1)
        w.scale(2)
        await w.clock.advance(1)
        assert third not in w.pods() and {first, second} <= set(w.pods())
        w.scale(1)
        await w.clock.advance(1)
        assert list(w.pods()) == [first]


async def test_two_controllers_with_one_selector_do_not_fight():
    async with world() as w:
        w.controller(2, "a/web")
        w.controller(2, "a/other")
        await w.clock.advance(5)
        owners = sorted(p["metadata"]["ownerReferences"][0]["name"] for p in w.pods().values())
        assert owners == ["other", "other", "web", "web"]
        before = w.api.version
        await w.clock.advance(60)
        assert w.api.version == before, "at rest nothing is written"
