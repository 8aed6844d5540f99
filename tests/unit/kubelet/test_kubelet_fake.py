"""Fake kubelets: nodes registered and adopted, pods through their lives, restarts, faults."""

import random
from dataclasses import replace

import pytest
from fake_api import FakeApi
from step_clock import StepClock, settle
from virtual_time import LoopClock

from minikube_py.api.errors import internal
from minikube_py.errors import InvalidRequest, RequestError
from minikube_py.kubelet.config import Delay, KubeletConfig, NodeSpec, Share, numbered_nodes
from minikube_py.kubelet.fake import FakeKubelet


class World:
    def __init__(self, nodes=("n1", "n2"), **config):
        self.clock = StepClock()
        self.api = FakeApi(self.clock)
        self.config = KubeletConfig(nodes=tuple(NodeSpec(name) for name in nodes), **config)
        self.kubelet = None

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        assert self.kubelet.failures == []
        await self.kubelet.stop()

    async def start(self):
        self.kubelet = FakeKubelet(self.api, self.clock, random.Random(1), self.config)
        await self.kubelet.start()
        await settle()

    async def restart(self):
        await self.kubelet.stop()
        await self.start()

    def pod(self, name="p", node="n1", **parts):
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "busybox"}], **parts.pop("spec", {})}
        return self.api.make("pods", f"a/{name}", spec=spec, **parts)

    def status(self, name="p"):
        return self.api.kind("pods")[f"a/{name}"]["status"]

    @property
    def names(self):
        return {key.partition("/")[2] for key in self.api.kind("pods")}


def condition(status, kind):
    return next(c["status"] for c in status["conditions"] if c["type"] == kind)


async def test_nodes_register_ready_with_addresses_and_a_block_each():
    async with World() as w:
        first, second = (w.api.kind("nodes")[name] for name in ("n1", "n2"))
        assert condition(first["status"], "Ready") == "True"
        assert first["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
        assert first["status"]["allocatable"] == first["status"]["capacity"]
        assert first["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.")
        assert {first["spec"]["podCIDR"], second["spec"]["podCIDR"]} == {"10.0.1.0/24", "10.0.2.0/24"}
        addresses = {a["type"]: a["address"] for a in first["status"]["addresses"]}
        assert addresses["Hostname"] == "n1" and addresses["InternalIP"].startswith("172.16.")


async def test_shapes_are_kept():
    taint = {"key": "k", "effect": "NoSchedule"}
    shape = NodeSpec("gpu", {"cpu": "8", "x/gpu": "2"}, {"zone": "z"}, (taint,), {"a": "b"})
    w = World(())
    w.config = KubeletConfig(nodes=(shape,))
    async with w:
        node = w.api.kind("nodes")["gpu"]
        assert node["status"]["capacity"] == {"cpu": "8", "x/gpu": "2"} and node["metadata"]["labels"]["zone"] == "z"
        assert node["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
        assert node["metadata"]["annotations"] == {"a": "b"}


async def test_numbered_nodes():
    assert [spec.name for spec in numbered_nodes(2, first=5)] == ["node-5", "node-6"]


async def test_a_bound_pod_runs_with_an_address_of_its_nodes_block():
    async with World() as w:
        before = {"type": "PodScheduled", "status": "True"}
        w.pod("p", status={"conditions": [before], "qosClass": "BestEffort"})
        w.pod("q")
        await settle()
        status = w.status()
        assert (status["phase"], status["qosClass"]) == ("Running", "BestEffort")
        assert status["podIP"] == status["podIPs"][0]["ip"] and status["podIP"].startswith("10.0.1.")
        assert status["hostIP"] == status["hostIPs"][0]["ip"] and status["startTime"]
        assert status["podIP"] != w.status("q")["podIP"]
        kinds = {c["type"] for c in status["conditions"] if c["status"] == "True"}
        assert kinds == {"PodScheduled", "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"}
        (container,) = status["containerStatuses"]
        assert container["ready"] and container["state"]["running"]["startedAt"] == status["startTime"]
        assert w.api.calls.count(("PATCH", "/api/v1/namespaces/a/pods/p/status")) == 1


async def test_init_containers_and_sidecars():
    inits = [{"name": "i", "image": "x"}, {"name": "s", "image": "y", "restartPolicy": "Always"}]
    async with World() as w:
        w.pod(spec={"initContainers": inits})
        await settle()
        init, sidecar = w.status()["initContainerStatuses"]
        assert init["state"]["terminated"]["reason"] == "Completed" and "running" in sidecar["state"]


async def test_a_pod_on_the_hosts_network_has_the_nodes_address():
    async with World() as w:
        w.pod(spec={"hostNetwork": True})
        await settle()
        assert w.status()["podIP"] == w.status()["hostIP"]


async def test_unbound_pods_and_pods_of_unknown_nodes_wait():
    async with World() as w:
        w.pod("unknown", node="later")
        w.api.make("pods", "a/free", spec={"containers": []})
        await settle()
        assert w.status("unknown")["phase"] == w.status("free")["phase"] == "Pending"
        w.api.make("nodes", "later")
        await w.clock.advance(1)
        assert w.status("unknown")["phase"] == "Running"


async def test_delays_of_start_and_stop():
    async with World(start_delay=Delay(2, 4), stop_delay=Delay(3, 3)) as w:
        for number in range(20):
            w.pod(f"p{number}")
        await w.clock.advance(1.9)
        assert not any(w.status(name)["phase"] == "Running" for name in w.names)
        await w.clock.advance(1)
        running = sum(w.status(name)["phase"] == "Running" for name in w.names)
        assert 0 < running < 20
        await w.clock.advance(1.2)
        assert all(w.status(name)["phase"] == "Running" for name in w.names)
        w.api.remove("pods", "a/p0")
        await w.clock.advance(2.9)
        assert "p0" in w.names
        await w.clock.advance(0.2)
        assert "p0" not in w.names


async def test_the_grace_of_a_pod_bounds_its_stop_delay():
    async with World(stop_delay=Delay(60, 60)) as w:
        w.pod(spec={"terminationGracePeriodSeconds": 5})
        await settle()
        w.api.remove("pods", "a/p")
        await w.clock.advance(5.1)
        assert w.names == set()


async def test_a_pod_deleted_before_it_started_does_not_start():
    async with World(start_delay=Delay(10, 10)) as w:
        w.pod()
        await settle()
        w.api.remove("pods", "a/p")
        await w.clock.advance(20)
        assert w.names == set() and w.kubelet.started == 0


async def test_a_pod_with_finalizers_is_asked_to_go_once():
    async with World() as w:
        w.pod(metadata={"finalizers": ["keep"]})
        await settle()
        w.api.remove("pods", "a/p")
        await w.clock.advance(60)
        assert w.api.calls.count(("DELETE", "/api/v1/namespaces/a/pods/p")) == 1 and w.names == {"p"}


async def test_addresses_come_back_when_pods_go():
    w = World((), pod_cidr="10.1.0.0/24")
    w.config = replace(w.config, nodes=(NodeSpec("n1", {"cpu": "4", "pods": "300"}),))
    async with w:
        for number in range(254):
            w.pod(f"p{number}")
        await settle()
        assert len({w.status(name)["podIP"] for name in w.names}) == 254
        w.pod("late")
        await w.clock.advance(5)
        assert w.status("late")["phase"] == "Pending"
        freed = w.status("p7")["podIP"]
        w.api.remove("pods", "a/p7")
        await w.clock.advance(5)
        assert w.status("late")["podIP"] == freed


async def test_pods_that_finish():
    run = {"minikube-py.io/run-seconds": "30"}
    async with World(complete_after=Delay(5, 5)) as w:
        w.pod("timed", metadata={"annotations": run})
        w.pod("job", spec={"restartPolicy": "Never"})
        w.pod("server")
        await w.clock.advance(6)
        assert {name: w.status(name)["phase"] for name in w.names} == {
            "timed": "Running", "job": "Succeeded", "server": "Running"
        }  # fmt: skip
        await w.clock.advance(25)
        status = w.status("timed")
        assert status["phase"] == "Succeeded" and condition(status, "Ready") == "False"
        state = status["containerStatuses"][0]["state"]["terminated"]
        assert state["exitCode"] == 0 and state["finishedAt"] > state["startedAt"]
        w.api.remove("pods", "a/timed")
        await settle()
        assert "timed" not in w.names


@pytest.mark.parametrize("text", ["soon", "-1", "", "inf", "nan"])
async def test_a_run_time_that_is_no_number_counts_as_not_given(text):
    async with World() as w:
        w.pod(metadata={"annotations": {"minikube-py.io/run-seconds": text}})
        await w.clock.advance(100)
        assert w.status()["phase"] == "Running"


async def test_a_restarted_kubelet_takes_up_what_it_finds():
    run = {"minikube-py.io/run-seconds": "30"}
    async with World() as w:
        w.pod("timed", metadata={"annotations": run})
        w.pod("p")
        await w.clock.advance(10)
        before = w.status("p")
        await w.kubelet.stop()
        w.pod("pending")
        w.api.remove("pods", "a/p")
        w.pod("q")
        await w.clock.advance(10)
        await w.start()
        assert w.names == {"timed", "pending", "q"}
        assert w.status("pending")["phase"] == "Running" and before["phase"] == "Running"
        assert len({w.status(name)["podIP"] for name in w.names}) == 3
        await w.clock.advance(9)
        assert w.status("timed")["phase"] == "Running"
        await w.clock.advance(2)
        assert w.status("timed")["phase"] == "Succeeded"
        posts = [call for call in w.api.calls if call == ("POST", "/api/v1/nodes")]
        assert len(posts) == 2, "nodes that exist are not made again"


async def test_nodes_of_others_are_adopted_unless_told_not_to():
    async with World((), manage_all_nodes=True) as w:
        w.api.make("nodes", "theirs", status={"allocatable": {"cpu": "4"}})
        await settle()
        node = w.api.kind("nodes")["theirs"]
        assert condition(node["status"], "Ready") == "True" and node["status"]["allocatable"] == {"cpu": "4"}
        assert node["spec"]["podCIDR"]
        w.pod(node="theirs")
        await settle()
        assert w.status()["phase"] == "Running"
    async with World(("n1",), manage_all_nodes=False) as w:
        w.api.make("nodes", "theirs")
        await settle()
        assert "conditions" not in w.api.kind("nodes")["theirs"].get("status", {})


async def test_a_node_taken_for_dead_says_that_it_lives():
    async with World() as w:
        status = w.api.kind("nodes")["n1"]["status"]
        conditions = [{**c, "status": "Unknown"} for c in status["conditions"]]
        w.api.change("nodes", "n1", status={**status, "conditions": conditions})
        await settle()
        assert condition(w.api.kind("nodes")["n1"]["status"], "Ready") == "True"


async def test_an_advertised_resource_can_be_allocated():
    """Kubernetes' own task: an administrator patches the capacity."""
    async with World() as w:

        def offered(**capacity):
            status = w.api.kind("nodes")["n1"]["status"]
            plain = {name: amount for name, amount in status["capacity"].items() if "/" not in name}
            extended = {f"example.com/{name}": amount for name, amount in capacity.items()}
            w.api.change("nodes", "n1", status={**status, "capacity": {**plain, **extended}})
            return plain, extended

        for capacity in ({"dongle": "4"}, {"dongle": "8", "key": "1"}, {"key": "1"}, {}):
            plain, extended = offered(**capacity)
            await settle()
            status = w.api.kind("nodes")["n1"]["status"]
            assert status["allocatable"] == status["capacity"] == {**plain, **extended}
        held_back = {"capacity": {"cpu": "1", "x/y": "4"}, "allocatable": {"cpu": "1", "x/y": "1"}}
        w.api.change("nodes", "n1", status={**status, **held_back})
        await settle()
        assert w.api.kind("nodes")["n1"]["status"]["allocatable"] == held_back["allocatable"]


async def test_pods_of_a_deleted_node_are_left_to_the_controllers():
    async with World() as w:
        w.pod()
        await settle()
        w.api.remove("nodes", "n1")
        await settle()
        w.api.remove("pods", "a/p")
        await w.clock.advance(60)
        assert w.names == {"p"} and "n1" not in w.api.kind("nodes")


async def test_a_node_whose_power_is_off_is_silent_and_deals_with_its_pods_when_it_is_on_again():
    async with World() as w:
        w.pod("old")
        await w.clock.advance(15)
        w.kubelet.power_off("n1")
        w.kubelet.power_off("n1")
        w.pod("late")
        w.api.remove("pods", "a/old", gracePeriodSeconds=30)
        await w.clock.advance(400)
        assert w.kubelet.metrics()["kubelet_nodes"] == 1
        assert w.names == {"old", "late"} and not w.status("late").get("podIP")
        renewed = w.api.kind("leases")["kube-node-lease/n1"]["spec"]["renewTime"]
        w.kubelet.power_on("n1")
        await w.clock.advance(30)
        assert w.names == {"late"} and w.status("late")["phase"] == "Running"
        assert w.api.kind("leases")["kube-node-lease/n1"]["spec"]["renewTime"] > renewed


async def test_pods_that_were_marked_while_their_node_was_away_are_ready_again():
    async with World() as w:
        w.pod()
        await settle()
        before = w.status()
        w.kubelet.power_off("n1")
        marked = [{**c, "status": "False"} if c["type"] == "Ready" else c for c in before["conditions"]]
        w.api.change("pods", "a/p", status={**before, "conditions": marked})
        await w.clock.advance(60)
        assert condition(w.status(), "Ready") == "False"
        w.kubelet.power_on("n1")
        await settle()
        assert condition(w.status(), "Ready") == "True"
        assert w.status()["podIP"] == before["podIP"] and w.status()["startTime"] == before["startTime"]


async def test_a_running_pod_that_is_marked_after_its_node_came_back_is_ready_again():
    async with World() as w:
        w.pod()
        await settle()
        before = w.status()
        marked = [{**c, "status": "False"} if c["type"] == "Ready" else c for c in before["conditions"]]
        w.api.change("pods", "a/p", status={**before, "conditions": marked})
        await settle()
        assert condition(w.status(), "Ready") == "True"
        assert w.status()["podIP"] == before["podIP"] and w.status()["startTime"] == before["startTime"]


async def test_only_a_node_that_is_played_can_lose_its_power():
    async with World() as w:
        with pytest.raises(InvalidRequest, match="no simulated node is named n9"):
            w.kubelet.power_off("n9")
        w.kubelet.power_on("n9")


async def test_more_nodes_later():
    async with World(()) as w:
        await w.kubelet.register(numbered_nodes(100))
        assert len(w.api.kind("nodes")) == 100
        assert len({n["spec"]["podCIDR"] for n in w.api.kind("nodes").values()}) == 100


async def test_shares_split_the_nodes_and_never_give_an_address_twice():
    clock = StepClock()
    api = FakeApi(clock)
    specs = tuple(numbered_nodes(40))
    kubelets = [
        FakeKubelet(api, clock, random.Random(i), KubeletConfig(nodes=specs, share=Share(i, 3))) for i in range(3)
    ]
    for kubelet in kubelets:
        api.refuse["GET", "never"] = None
        await kubelet.start()
    await settle()
    assert sum(int(kubelet.metrics()["kubelet_nodes"]) for kubelet in kubelets) == 40
    assert all(kubelet.metrics()["kubelet_nodes"] > 5 for kubelet in kubelets)
    assert len({n["spec"]["podCIDR"] for n in api.kind("nodes").values()}) == 40
    for kubelet in kubelets:
        await kubelet.stop()


async def test_leases_are_made_and_renewed_evenly():
    async with World(tuple(f"n{i}" for i in range(20))) as w:
        await w.clock.advance(5)
        assert 8 <= len(w.api.kind("leases")) <= 12, "spread over the interval"
        await w.clock.advance(6)
        assert len(w.api.kind("leases")) == 20
        lease = w.api.kind("leases")["kube-node-lease/n3"]
        assert lease["spec"]["leaseDurationSeconds"] == 40 and lease["spec"]["holderIdentity"] == "n3"
        assert lease["metadata"]["ownerReferences"][0]["uid"] == w.api.kind("nodes")["n3"]["metadata"]["uid"]
        before = {key: lease["spec"]["renewTime"] for key, lease in w.api.kind("leases").items()}
        await w.clock.advance(10.5)
        assert all(w.api.kind("leases")[key]["spec"]["renewTime"] > at for key, at in before.items())


async def test_a_lease_that_exists_or_was_deleted_or_touched_is_no_obstacle():
    async with World(("n1",)) as w:
        await w.clock.advance(11)
        await w.restart()
        key = "kube-node-lease/n1"
        for _ in range(2):
            before = w.api.kind("leases")[key]["spec"]["renewTime"]
            lease = w.api.kind("leases")[key]
            w.api.change("leases", key, metadata={**lease["metadata"], "labels": {"x": str(w.clock.now_s)}})
            await w.clock.advance(11)
            assert w.api.kind("leases")[key]["spec"]["renewTime"] > before
        w.api.remove("leases", key)
        await w.clock.advance(11)
        assert key in w.api.kind("leases")


async def test_beyond_the_usual_number_heartbeats_are_stretched_and_say_so():
    async with World(tuple(f"n{i}" for i in range(40)), heartbeat_nodes=10) as w:
        await w.clock.advance(11)
        assert {lease["spec"]["leaseDurationSeconds"] for lease in w.api.kind("leases").values()} == {160}
        before = w.kubelet.metrics()["kubelet_lease_renewals_total"]
        await w.clock.advance(40)
        assert w.kubelet.metrics()["kubelet_lease_renewals_total"] - before == pytest.approx(40, abs=2)


async def test_the_first_lease_does_not_wait_for_a_stretched_round():
    async with World(tuple(f"n{i}" for i in range(100)), heartbeat_nodes=5) as w:
        await w.clock.advance(11)
        assert len(w.api.kind("leases")) == 100
        await w.kubelet.register([NodeSpec(f"m{i}") for i in range(50)])
        await w.clock.advance(11)
        assert len(w.api.kind("leases")) == 150


async def test_a_restart_renews_the_leases_it_finds_without_asking_for_each():
    async with World(tuple(f"n{i}" for i in range(40)), heartbeat_nodes=10) as w:
        await w.clock.advance(11)
        await w.kubelet.stop()
        before = len(w.api.calls)
        await w.start()
        await w.clock.advance(41)
        leases = [(verb, path) for verb, path in w.api.calls[before:] if "/leases" in path]
        assert {verb for verb, path in leases if not path.endswith("/leases")} == {"PUT"}
        assert sum(verb == "PUT" for verb, _ in leases) == pytest.approx(40, abs=2)
        assert w.kubelet.metrics()["kubelet_lease_renewal_failures_total"] == 0


async def test_a_restart_with_more_nodes_renews_soon_what_stands_too_short():
    async with World(tuple(f"n{i}" for i in range(10)), heartbeat_nodes=10) as w:
        await w.clock.advance(11)
        await w.kubelet.stop()
        w.config = replace(w.config, nodes=tuple(NodeSpec(f"n{i}") for i in range(100)))
        await w.start()
        await w.clock.advance(15)
        leases = w.api.kind("leases")
        assert len(leases) == 100
        assert {leases[f"kube-node-lease/n{i}"]["spec"]["leaseDurationSeconds"] for i in range(10)} == {400}


async def test_status_heartbeats():
    async with World(("n1",), status_interval_s=100) as w:
        await w.clock.advance(101)
        (ready,) = [c for c in w.api.kind("nodes")["n1"]["status"]["conditions"] if c["type"] == "Ready"]
        assert ready["lastHeartbeatTime"] > ready["lastTransitionTime"] and ready["reason"] == "KubeletReady"


async def test_a_server_that_goes_away_is_waited_for():
    async with World() as w:
        w.api.down = True
        w.api.drop_watches()
        w.pod()
        await w.clock.advance(10)
        w.api.down = False
        await w.clock.advance(30)
        assert w.status()["phase"] == "Running"
        w.api.lose_answers = 1
        w.api.remove("pods", "a/p")
        await w.clock.advance(30)
        assert w.names == set()


async def test_another_pod_of_the_same_name_is_another_pod():
    async with World(start_delay=Delay(1, 1)) as w:
        w.pod()
        await settle()
        w.api.remove("pods", "a/p", gracePeriodSeconds=0)
        uid = w.pod()["metadata"]["uid"]
        await w.clock.advance(2)
        assert w.status()["phase"] == "Running" and uid in w.status()["containerStatuses"][0]["containerID"]


def test_too_many_nodes_for_the_addresses_are_refused_at_once():
    clock = StepClock()
    config = KubeletConfig(nodes=tuple(numbered_nodes(9)), pod_cidr="10.0.0.0/22")
    with pytest.raises(RequestError, match=r"9 nodes in each of 1 processes do not fit into 10\.0\.0\.0/22"):
        FakeKubelet(FakeApi(clock), clock, random.Random(1), config)


@pytest.mark.parametrize("bad", [lambda: Delay(2, 1), lambda: Delay(-1, 1), lambda: Share(3, 3), lambda: Share(-1, 2)])
def test_bad_settings_say_so(bad):
    with pytest.raises(RequestError):
        bad()


def asking(cpu, **more):
    return {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}], **more}


def resize(w, cpu, name="p"):
    spec = w.api.kind("pods")[f"a/{name}"]["spec"]
    w.api.change("pods", f"a/{name}", spec={**spec, **asking(cpu)})


def resizing(status):
    return {c["type"]: c.get("reason") for c in status["conditions"] if c["type"].startswith("PodResize")}


async def test_a_resize_is_begun_and_then_in_force():
    async with World() as w:
        w.pod(spec=asking("1"))
        await settle()
        (state,) = w.status()["containerStatuses"]
        assert (state["resources"], state["allocatedResources"]) == ({"requests": {"cpu": "1"}}, {"cpu": "1"})
        resize(w, "2")
        await settle()
        (state,) = w.status()["containerStatuses"]
        assert (state["resources"], state["allocatedResources"]) == ({"requests": {"cpu": "2"}}, {"cpu": "2"})
        assert resizing(w.status()) == {} and state["state"]["running"]["startedAt"] == w.status()["startTime"]
        path = "/api/v1/namespaces/a/pods/p/status"
        assert w.api.calls.count(("PATCH", path)) == 3


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_resize_waits_for_room(restarted):
    shape = NodeSpec("n1", {"cpu": "2", "memory": "1Gi"})
    w = World(())
    w.config = KubeletConfig(nodes=(shape,))
    async with w:
        w.pod("p", spec=asking("1"))
        w.pod("q", spec=asking("1"))
        await settle()
        resize(w, "1500m")
        await settle()
        assert resizing(w.status()) == {"PodResizePending": "Deferred"}
        (pending,) = (c for c in w.status()["conditions"] if c["type"] == "PodResizePending")
        wanted = "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"
        assert pending["message"] == wanted
        if restarted:
            await w.restart()
            assert resizing(w.status()) == {"PodResizePending": "Deferred"}
        w.api.remove("pods", "a/q")
        await w.clock.advance(1)
        assert resizing(w.status()) == {}
        assert w.status()["containerStatuses"][0]["allocatedResources"] == {"cpu": "1500m"}


async def test_what_a_status_says_nothing_of_is_not_resized():
    async with World() as w:
        w.pod(spec=asking("1"))
        await settle()
        status = w.status()
        (state,) = status["containerStatuses"]
        told = {name: value for name, value in state.items() if name != "resources"}
        w.api.change("pods", "a/p", status={**status, "containerStatuses": [told]})
        await settle()
        calls = len(w.api.calls)
        resize(w, "2")
        await settle()
        assert len(w.api.calls) == calls


async def test_ephemeral_containers_run_each_since_its_own_time():
    async with World() as w:
        w.pod()
        await settle()
        spec, started = w.api.kind("pods")["a/p"]["spec"], w.status()["startTime"]
        times = {}
        for count in (1, 2):
            await w.clock.advance(5)
            added = [{"name": f"debugger-{number}", "image": "busybox"} for number in range(count)]
            w.api.change("pods", "a/p", spec={**spec, "ephemeralContainers": added})
            await settle()
            told = w.status()["ephemeralContainerStatuses"]
            states = {each["name"]: each["state"]["running"]["startedAt"] for each in told}
            assert states.items() > times.items() and len(states) == count and len(set(states.values())) == count
            times = states
        assert w.status()["containerStatuses"][0]["state"]["running"]["startedAt"] == started not in times.values()
        await w.restart()
        assert w.api.calls.count(("PATCH", "/api/v1/namespaces/a/pods/p/status")) == 3


async def test_a_node_that_the_server_cannot_make_stops_no_start():
    """Under its name stands what cannot be read, and only a control plane that runs can delete it."""

    class Unreadable(FakeApi):
        def create(self, kind, namespace, body):
            if body["metadata"]["name"] == "n1":
                raise internal("what is stored there cannot be read")
            return super().create(kind, namespace, body)

    api, clock = Unreadable(StepClock()), LoopClock()
    config = KubeletConfig(nodes=(NodeSpec("n1"), NodeSpec("n2")))
    kubelet = FakeKubelet(api, clock, random.Random(1), config)
    await kubelet.start()
    assert "n2" in api.kind("nodes") and "n1" not in api.kind("nodes")
    await kubelet.stop()
