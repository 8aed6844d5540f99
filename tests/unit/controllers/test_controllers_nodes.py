"""Node lifecycle and taint eviction: silence, taints, zones, tolerations, recovery."""

import pytest
from controller_world import World
from step_clock import settle

from minikube_py.controllers import node_lifecycle

LIFECYCLE, EVICTION = "node-lifecycle-controller", "taint-eviction-controller"
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}


def node(w, name, *, status="True", labels=None, **spec):
    condition = {"type": "Ready", "status": status, "lastHeartbeatTime": "t0", "lastTransitionTime": "t0"}
    w.api.make("nodes", name, metadata={"labels": labels or {}}, spec=spec, status={"conditions": [condition]})


def beat(w, *names):
    """Renews leases."""
    for name in names:
        key = f"kube-node-lease/{name}"
        spec = {"renewTime": f"{w.clock.now_s:012.3f}", "leaseDurationSeconds": 40}
        if key in w.api.kind("leases"):
            w.api.change("leases", key, spec=spec)
        else:
            w.api.make("leases", key, spec=spec)


async def live(w, duration_s, *names, step_s=5.0):
    """Time goes by while the named nodes renew their leases."""
    end_s = w.clock.now_s + duration_s
    while w.clock.now_s < end_s:
        beat(w, *names)
        await w.clock.advance(min(step_s, end_s - w.clock.now_s))


def taints(w, name):
    found = w.api.kind("nodes")[name].get("spec", {}).get("taints") or []
    return {f"{taint['key'].rpartition('/')[2]}:{taint['effect']}" for taint in found}


def ready(w, name):
    conditions = {c["type"]: c for c in w.api.kind("nodes")[name]["status"]["conditions"]}
    return conditions["Ready"]["status"]


async def test_a_silent_node_becomes_unknown_after_its_grace_and_is_tainted():
    async with World(LIFECYCLE) as w:
        node(w, "n1")
        node(w, "n2")
        beat(w, "n2")
        await live(w, 45, "n1")
        assert ready(w, "n2") == "True"
        await live(w, 25, "n1")
        assert ready(w, "n2") == "Unknown"
        conditions = {c["type"]: c["reason"] for c in w.api.kind("nodes")["n2"]["status"]["conditions"]}
        assert conditions["Ready"] == "NodeStatusUnknown" and conditions["DiskPressure"] == "NodeStatusNeverUpdated"
        assert taints(w, "n2") == {"unreachable:NoSchedule", "unreachable:NoExecute"}
        assert ready(w, "n1") == "True" and taints(w, "n1") == set()
        assert ("NodeNotReady", "Node n2 status is now: NodeNotReady") in w.reasons()


@pytest.mark.parametrize("started_s", [0.0, 0.1, 1 / 3, 12_345.678, 420_587.765_074_066])
async def test_a_grace_of_ten_periods_has_passed_after_ten_periods(started_s):
    """A pass takes no time here, and the times of passes are rounded."""
    w = World(LIFECYCLE)
    w.clock.now_s = started_s
    async with w:
        node(w, "n1")
        node(w, "n2")
        await live(w, 5, "n1", "n2")
        await live(w, 49, "n1")
        assert ready(w, "n2") == "True", "seen at 5 s"
        await live(w, 1.5, "n1")
        assert ready(w, "n2") == "Unknown"


async def test_a_status_heartbeat_is_a_sign_of_life_too():
    async with World(LIFECYCLE) as w:
        node(w, "n1")
        for _ in range(10):
            status = w.api.kind("nodes")["n1"]["status"]
            condition = {**status["conditions"][0], "lastHeartbeatTime": f"{w.clock.now_s}"}
            w.api.change("nodes", "n1", status={"conditions": [condition]})
            await live(w, 20)
        assert ready(w, "n1") == "True"


async def test_time_in_which_this_process_stood_still_is_not_held_against_nodes():
    async with World(LIFECYCLE) as w:
        node(w, "n1")
        await live(w, 20, "n1")
        # Stopped and continued: the clock moved, and nobody could be heard.
        w.clock.now_s += 300
        await live(w, 40)
        assert ready(w, "n1") == "True"
        await live(w, 30)
        assert ready(w, "n1") == "Unknown"


async def test_passes_over_very_many_nodes_come_more_seldom(monkeypatch):
    monkeypatch.setattr(node_lifecycle, "NODES_PER_PERIOD", 10)
    monkeypatch.setattr(node_lifecycle, "SLICE_NODES", 7)
    async with World(LIFECYCLE) as w:
        names = [f"n{i}" for i in range(40)]
        for name in names:
            node(w, name)
        await live(w, 45, *names[1:])
        assert {ready(w, name) for name in names} == {"True"}
        await live(w, 30, *names[1:])
        assert [name for name in names if ready(w, name) != "True"] == ["n0"]
        assert taints(w, "n0") == {"unreachable:NoSchedule", "unreachable:NoExecute"}


async def test_a_longer_lease_means_longer_patience():
    async with World(LIFECYCLE) as w:
        node(w, "n1")
        node(w, "n2")
        w.api.make("leases", "kube-node-lease/n2", spec={"renewTime": "1", "leaseDurationSeconds": 80})
        await live(w, 95, "n1")
        assert ready(w, "n2") == "True"
        await live(w, 20, "n1")
        assert ready(w, "n2") == "Unknown"


async def test_a_node_that_never_reported_is_given_the_startup_grace():
    async with World(LIFECYCLE) as w:
        w.api.make("nodes", "new")
        node(w, "n1")
        await live(w, 55, "n1")
        assert not w.api.kind("nodes")["new"].get("status", {}).get("conditions")
        await live(w, 15, "n1")
        assert {c["reason"] for c in w.api.kind("nodes")["new"]["status"]["conditions"]} == {"NodeStatusNeverUpdated"}


async def test_a_node_that_recovers_loses_its_taints():
    async with World(LIFECYCLE) as w:
        node(w, "n1")
        node(w, "n2")
        await live(w, 70, "n1")
        assert "unreachable:NoExecute" in taints(w, "n2")
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "t1", "lastTransitionTime": "t1"}
        w.api.change("nodes", "n2", status={"conditions": [condition]})
        await live(w, 10, "n1", "n2")
        assert taints(w, "n2") == set()


async def test_a_node_that_says_it_is_not_ready_is_tainted_so_and_swaps_when_it_falls_silent():
    async with World(LIFECYCLE) as w:
        node(w, "n1")
        node(w, "n2", status="False")
        await live(w, 10, "n1", "n2")
        assert taints(w, "n2") == {"not-ready:NoSchedule", "not-ready:NoExecute"}
        await live(w, 70, "n1")
        assert taints(w, "n2") == {"unreachable:NoSchedule", "unreachable:NoExecute"}


async def test_cordon_and_uncordon():
    async with World(LIFECYCLE) as w:
        node(w, "n1", taints=[{"key": "gpu", "effect": "NoSchedule"}])
        await settle()
        w.api.change("nodes", "n1", spec={**w.api.kind("nodes")["n1"]["spec"], "unschedulable": True})
        await settle()
        assert taints(w, "n1") == {"unschedulable:NoSchedule", "gpu:NoSchedule"}
        w.api.change("nodes", "n1", spec={**w.api.kind("nodes")["n1"]["spec"], "unschedulable": False})
        await settle()
        assert taints(w, "n1") == {"gpu:NoSchedule"}


async def test_conflicting_writes_of_taints_are_merged():
    async with World(LIFECYCLE) as w:
        node(w, "n1")
        await settle()
        w.api.drop_watches()
        w.api.change("nodes", "n1", spec={"unschedulable": True})
        await w.clock.advance(0.5)
        w.api.change("nodes", "n1", spec={"unschedulable": True, "taints": [{"key": "x", "effect": "NoSchedule"}]})
        await live(w, 10, "n1")
        assert taints(w, "n1") == {"unschedulable:NoSchedule", "x:NoSchedule"}


async def test_old_names_of_the_os_and_arch_labels_follow_the_new_ones():
    async with World(LIFECYCLE) as w:
        node(w, "n1", labels={"kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "x"})
        await settle()
        labels = w.api.kind("nodes")["n1"]["metadata"]["labels"]
        assert labels["beta.kubernetes.io/os"] == "linux" and labels["beta.kubernetes.io/arch"] == "x"


async def test_pods_of_a_silent_node_are_not_ready():
    async with World(LIFECYCLE) as w:
        node(w, "n1")
        node(w, "n2")
        for name, home in (("x", "n1"), ("y", "n2")):
            w.api.make("pods", f"a/{name}", spec={"nodeName": home}, status=READY)
        await live(w, 70, "n1")
        found = {key: pod["status"]["conditions"][0]["status"] for key, pod in w.api.kind("pods").items()}
        assert found == {"a/x": "True", "a/y": "False"}


async def test_nodes_of_a_healthy_zone_are_tainted_one_in_ten_seconds():
    async with World(LIFECYCLE) as w:
        well = [f"w{number}" for number in range(8)]
        for name in (*well, "s1", "s2", "s3"):
            node(w, name)
        await live(w, 61, *well)
        silent = ["s1", "s2", "s3"]
        assert sum("unreachable:NoExecute" in taints(w, name) for name in silent) == 1
        await live(w, 10, *well)
        assert sum("unreachable:NoExecute" in taints(w, name) for name in silent) == 2
        await live(w, 10, *well)
        assert sum("unreachable:NoExecute" in taints(w, name) for name in silent) == 3
        assert all("unreachable:NoSchedule" in taints(w, name) for name in silent)


async def test_a_small_zone_that_is_mostly_down_evicts_nothing():
    async with World(LIFECYCLE) as w:
        for name in ("w1", "w2", "s1", "s2", "s3"):
            node(w, name)
        await live(w, 200, "w1", "w2")
        assert all(ready(w, name) == "Unknown" for name in ("s1", "s2", "s3"))
        assert not any("unreachable:NoExecute" in taints(w, name) for name in ("s1", "s2", "s3"))


async def test_zones_are_judged_apart():
    async with World(LIFECYCLE) as w:
        for zone in ("east", "west"):
            for number in range(4):
                node(w, f"{zone}{number}", labels={"topology.kubernetes.io/zone": zone})
        well = ["east0", "east1", "east2", "west0"]
        await live(w, 70, *well)
        assert "unreachable:NoExecute" in taints(w, "east3")
        assert not any("unreachable:NoExecute" in taints(w, f"west{number}") for number in range(4))


async def test_when_all_are_silent_evictions_stop_and_start_again_with_fresh_grace():
    async with World(LIFECYCLE) as w:
        for name in ("n1", "n2"):
            node(w, name)
        await live(w, 200)
        assert ready(w, "n1") == ready(w, "n2") == "Unknown"
        assert not any("NoExecute" in taint for name in ("n1", "n2") for taint in taints(w, name))
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "t1", "lastTransitionTime": "t1"}
        w.api.change("nodes", "n1", status={"conditions": [condition]})
        await live(w, 15, "n1")
        assert "unreachable:NoExecute" in taints(w, "n2")


async def test_a_deleted_node_is_forgotten():
    async with World(LIFECYCLE) as w:
        node(w, "n1")
        node(w, "n2")
        await live(w, 10, "n1", "n2")
        w.api.remove("nodes", "n2")
        await live(w, 100, "n1")
        assert ("RegisteredNode", "Node n2 event: Registered Node n2 in Controller") in w.reasons()
        assert ("RemovingNode", "Node n2 event: Removing Node n2 from Controller") in w.reasons()


# --- taint eviction ---------------------------------------------------------------------------------------------------

NO_EXECUTE = {"key": "k", "effect": "NoExecute"}


def pod(w, name, *tolerations, home="n1"):
    spec = {"nodeName": home, "tolerations": list(tolerations)}
    w.api.make("pods", f"a/{name}", spec=spec, status={"phase": "Running"})


def leaving(w):
    return {key for key, pod in w.api.kind("pods").items() if "deletionTimestamp" in pod["metadata"]}


def tolerate(seconds=None):
    toleration = {"key": "k", "operator": "Exists", "effect": "NoExecute"}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


async def test_pods_leave_when_their_toleration_ends():
    async with World(EVICTION) as w:
        node(w, "n1")
        node(w, "n2")
        pod(w, "none")
        pod(w, "some", tolerate(60))
        pod(w, "less", tolerate(60), {**tolerate(20), "key": ""})
        pod(w, "forever", tolerate())
        pod(w, "elsewhere", home="n2")
        await settle()
        w.api.change("nodes", "n1", spec={"taints": [NO_EXECUTE]})
        await settle()
        assert leaving(w) == {"a/none"}
        (condition,) = w.api.kind("pods")["a/none"]["status"]["conditions"]
        assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "DeletionByTaintManager")
        assert ("TaintManagerEviction", "Marking for deletion Pod a/none") in w.reasons()
        await w.clock.advance(59)
        assert leaving(w) == {"a/none"}
        await w.clock.advance(2)
        assert leaving(w) == {"a/none", "a/some", "a/less"}
        await w.clock.advance(10_000)
        assert "a/forever" not in leaving(w)


async def test_a_taint_taken_back_in_time_cancels():
    async with World(EVICTION) as w:
        node(w, "n1")
        pod(w, "p", tolerate(60))
        await settle()
        w.api.change("nodes", "n1", spec={"taints": [NO_EXECUTE]})
        await w.clock.advance(30)
        w.api.change("nodes", "n1", spec={})
        await w.clock.advance(100)
        assert leaving(w) == set()
        assert ("TaintManagerEviction", "Cancelling deletion of Pod a/p") in w.reasons()
        w.api.change("nodes", "n1", spec={"taints": [NO_EXECUTE]})
        await w.clock.advance(59)
        assert leaving(w) == set(), "a new taint, a new period"
        await w.clock.advance(2)
        assert leaving(w) == {"a/p"}


async def test_a_pod_bound_to_a_tainted_node_is_judged_too():
    async with World(EVICTION) as w:
        node(w, "n1", taints=[NO_EXECUTE])
        await settle()
        pod(w, "early")
        w.api.make("pods", "a/late", spec={})
        await settle()
        w.api.change("pods", "a/late", spec={"nodeName": "n1", "terminationGracePeriodSeconds": 30})
        await settle()
        assert "a/early" in leaving(w) and ("a/late" in leaving(w) or "a/late" not in w.api.kind("pods"))


async def test_another_taint_that_is_not_tolerated_evicts_at_once():
    async with World(EVICTION) as w:
        node(w, "n1", taints=[NO_EXECUTE])
        pod(w, "p", tolerate(60))
        await settle()
        w.api.change("nodes", "n1", spec={"taints": [NO_EXECUTE, {"key": "worse", "effect": "NoExecute"}]})
        await settle()
        assert leaving(w) == {"a/p"}


async def test_a_pod_that_goes_by_itself_is_forgotten():
    async with World(EVICTION) as w:
        node(w, "n1", taints=[NO_EXECUTE])
        pod(w, "p", tolerate(60))
        await settle()
        w.api.remove("pods", "a/p", gracePeriodSeconds=0)
        pod(w, "p", tolerate())
        await w.clock.advance(100)
        assert leaving(w) == set()


async def test_the_whole_way_from_silence_to_eviction():
    async with World(LIFECYCLE, EVICTION) as w:
        node(w, "n1")
        node(w, "n2")
        toleration = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
        pod(w, "p", {**toleration, "tolerationSeconds": 300}, home="n2")
        pod(w, "q", {**toleration, "tolerationSeconds": 300}, home="n1")
        await live(w, 300, "n1")
        assert leaving(w) == set()
        await live(w, 70, "n1")
        assert leaving(w) == {"a/p"}
