"""Whether a node has room for a pod that was bound to it: who fails, in upstream's words, and what comes back."""

from dataclasses import replace
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from step_clock import settle
from test_kubelet_fake import World

from minikube_py.api.errors import StatusError
from minikube_py.kubelet import admission
from minikube_py.kubelet.admission import Room, lacking
from minikube_py.kubelet.config import NodeSpec


def small(**more):
    """A node of two CPUs for three pods."""
    w = World(())
    w.config = replace(w.config, nodes=(NodeSpec("n1", {"cpu": "2", "memory": "1Gi", "pods": "3", **more}),))
    return w


def wanting(**requests):
    return {"containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]}


async def test_a_pod_that_its_node_has_no_room_for_fails_with_upstreams_words():
    async with small() as w:
        w.pod("first", spec=wanting(cpu="1500m"))
        w.pod("second", spec=wanting(cpu="600m"))
        w.pod("third", spec=wanting(cpu="500m", memory="1025Mi"))
        w.pod("last", spec=wanting(cpu="500m"))
        await settle()
        assert [w.status(name)["phase"] for name in ("first", "second", "third", "last")] == [
            "Running", "Failed", "Failed", "Running",
        ]  # fmt: skip
        told = w.status("second")
        assert told["reason"] == "OutOfcpu" and "podIP" not in told and told["startTime"]
        assert told["message"] == (
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000"
        )
        assert w.status("third")["reason"] == "OutOfmemory"
        metrics = w.kubelet.metrics()
        assert metrics['kubelet_admission_rejections_total{reason="OutOfcpu"}'] == 1
        assert metrics["kubelet_started_pods_total"] == 2


async def test_room_comes_back_when_pods_end_or_go_and_a_restarted_kubelet_knows_who_runs():
    async with small() as w:
        for name in ("a", "b", "c", "d"):
            w.pod(name, spec=wanting(cpu="100m"))
        await settle()
        assert w.status("d")["reason"] == "OutOfpods"
        assert w.status("d")["message"].endswith("pods, requested: 1, used: 3, capacity: 3")
        await w.restart()
        w.pod("e")
        await settle()
        assert w.status("e")["reason"] == "OutOfpods"
        w.api.remove("pods", "a/a")
        w.api.change("pods", "a/b", status={**w.status("b"), "phase": "Succeeded"})
        await settle()
        for name in ("f", "g", "h"):
            w.pod(name)
        await settle()
        assert [w.status(name)["phase"] for name in ("f", "g", "h")] == ["Running", "Running", "Failed"]


async def test_overhead_counts_and_an_extended_resource_that_the_node_does_not_have_is_not_its_own():
    async with small(**{"example.com/gpu": "1"}) as w:
        w.pod("heavy", spec={**wanting(cpu="1"), "overhead": {"cpu": "1001m"}})
        w.pod("elsewhere", spec=wanting(**{"example.com/other": "1"}))
        w.pod("gpus", spec=wanting(**{"example.com/gpu": "2"}))
        w.pod("huge", spec=wanting(**{"hugepages-2Mi": "2Mi"}))
        await settle()
        assert w.status("heavy")["reason"] == "OutOfcpu"
        assert w.status("elsewhere")["phase"] == "Running"
        assert w.status("gpus")["reason"] == "OutOfexample.com/gpu"
        assert w.status("huge")["reason"] == "OutOfhugepages-2Mi"


async def test_a_rejection_that_is_refused_is_said_again():
    async with small() as w:
        w.api.refuse["PATCH", "/pods/p/status$"] = StatusError(500, "InternalError", "a bad day")
        w.pod("p", spec=wanting(cpu="3"))
        await settle()
        assert w.status().get("phase") != "Failed"
        w.api.refuse.clear()
        await w.clock.advance(5)
        assert w.status()["reason"] == "OutOfcpu"


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from("nm"), st.integers(0, 3), st.booleans()), max_size=40))
def test_what_is_in_use_is_the_sum_over_who_was_admitted(steps):
    room, admitted = Room(), {}
    for uid, node, cpu, goes in steps:
        asked = {"cpu": cpu, "pods": 1}
        if goes:
            room.leave(str(uid))
            admitted.pop(uid, None)
        else:
            refused = room.refusal(node, asked, {"cpu": "8m", "pods": "3"})
            here = [other for at, other in admitted.values() if at == node]
            assert (refused is None) == (len(here) < 3 and (not cpu or cpu + sum(o["cpu"] for o in here) <= 8))
            if refused is None:
                room.take(node, str(uid), asked)
                admitted[uid] = node, asked
        for name in ("n", "m"):
            beside = room.used_beside(name, "0")
            expected = [asked["cpu"] for uid, (at, asked) in admitted.items() if at == name and uid != 0]
            assert (beside.get("pods", 0), beside.get("cpu", 0)) == (len(expected), sum(expected))


def test_of_a_node_with_many_resources_only_those_that_a_pod_asks_for_are_read_and_nothing_is_kept():
    room, most = Room(), {f"x.io/r{number}": str(number) for number in range(2000)} | {"cpu": "2", "x.io/odd": "odd"}
    with patch.object(admission.quantity, "parse", wraps=admission.quantity.parse) as read:
        assert room.refusal("n", {"cpu": 1000, "x.io/r7": 7, "x.io/odd": 1, "pods": 1}, most) is None
        assert room.refusal("n", {"x.io/r7": 8}, most) == ("OutOfx.io/r7", lacking("x.io/r7", 8, 0, 7))
        assert room.refusal("n", {"memory": 1}, most) == ("OutOfmemory", lacking("memory", 1, 0, 0))
    assert read.call_count < 10
