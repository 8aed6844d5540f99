"""What controllers decide, without an API: ranking, expectations, slow start, zones, taints, health, owners, views."""

import itertools
import random
import string

import pytest
from step_clock import StepClock

from minikube_py.controllers import ranking
from minikube_py.controllers.expectations import Expectations
from minikube_py.controllers.node_health import grace_s, observe, silent_conditions
from minikube_py.controllers.node_taints import (
    NO_EXECUTE,
    NOT_READY,
    UNREACHABLE,
    changed_taints,
    no_schedule_changes,
    toleration_s,
    unhealthy_changes,
)
from minikube_py.controllers.owner_graph import Item, OwnerGraph, unblocked_owners
from minikube_py.controllers.pod_control import slow_start
from minikube_py.controllers.views import OwnerRef, matches, project_lease, project_node, project_pod
from minikube_py.controllers.zones import ZoneQueue, ZoneState, eviction_rate_per_s, zone_of, zone_state

NOW_S = 1_700_000_000.0


def pod(name, *, node="n1", phase="Running", ready=True, ready_at="2023-11-14T00:00:00Z", cost=None, restarts=0,
        created="2023-11-13T00:00:00Z", deleting=False):  # fmt: skip
    metadata = {"name": name, "namespace": "a", "uid": f"uid-{name}", "creationTimestamp": created}
    if cost is not None:
        metadata["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    if deleting:
        metadata["deletionTimestamp"] = created
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": ready_at}
    status = {"phase": phase, "conditions": [condition], "containerStatuses": [{"restartCount": restarts}]}
    return project_pod({"metadata": metadata, "spec": {"nodeName": node} if node else {}, "status": status})


RANKING = {
    "unassigned before assigned": (pod("x", node=""), pod("y")),
    "pending before unknown": (pod("x", phase="Pending"), pod("y", phase="Unknown")),
    "unknown before running": (pod("x", phase="Unknown"), pod("y")),
    "not ready before ready": (pod("x", ready=False), pod("y")),
    "lower deletion cost first": (pod("x", cost="-5"), pod("y", cost="0")),
    "a cost that is no number counts as 0": (pod("x", cost="-1"), pod("y", cost="many")),
    "ready for a shorter time first": (pod("x", ready_at="2023-11-14T22:00:00Z"), pod("y")),
    "more restarts first": (pod("x", restarts=3), pod("y", restarts=1)),
    "newer first": (pod("x", created="2023-11-14T20:00:00Z"), pod("y")),
    "assignment weighs more than the cost": (pod("x", node="", cost="9"), pod("y", cost="-9")),
    "ages of the same order: by uid": (
        pod("a", created="2023-11-13T00:00:00Z"), pod("b", created="2023-11-13T00:10:00Z")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RANKING)
def test_which_pod_goes_first(name):
    first, second = RANKING[name]
    for pods in ([first, second], [second, first]):
        assert ranking.pods_to_delete(pods, [], 1, NOW_S) == [first]


def test_the_pod_with_more_ready_siblings_on_its_node_goes_first():
    alone, crowded, other = pod("a", node="n1"), pod("b", node="n2"), pod("c", node="n2")
    assert ranking.pods_to_delete([alone, crowded], [alone, crowded, other], 1, NOW_S) == [crowded]


ROUND = (
    # `a` before `b` and `b` before `c` by uid, as their ages are about the same; `c` before `a` by its restarts.
    pod("a"), pod("b", ready_at="2023-11-14T00:00:01Z"), pod("c", restarts=1),
)  # fmt: skip


def placed(pods, now_s):
    """By binary insertion."""
    found = []
    for each in pods:
        low, high = 0, len(found)
        while low < high:
            middle = (low + high) // 2
            if ranking.pods_to_delete([found[middle], each], [], 1, now_s) == [each]:
                high = middle
            else:
                low = middle + 1
        found.insert(low, each)
    return [each.name for each in found]


def test_comparisons_that_go_round_in_a_circle_come_to_one_order_in_each_python():
    for first, second in itertools.pairwise((*ROUND, ROUND[0])):
        assert ranking.pods_to_delete([first, second], [], 1, NOW_S) == [first]
    rng = random.Random(7)
    drawn = [
        tuple(
            pod(each, ready_at=f"2023-11-14T00:00:0{rng.randrange(3)}Z", restarts=rng.randrange(3))
            for each in rng.sample(string.ascii_lowercase, 9)
        )
        for _ in range(50)
    ]
    for pods in (*itertools.permutations(ROUND), *drawn):
        count = len(pods) - 1
        assert [each.name for each in ranking.pods_to_delete(pods, [], count, NOW_S)] == placed(pods, NOW_S)[:count]


def test_all_go_where_all_are_asked_for():
    pods = [pod("a"), pod("b")]
    assert ranking.pods_to_delete(pods, [], 2, NOW_S) == pods


def no_look(key, delay_s):
    pass


def test_expectations_are_met_by_what_is_seen():
    expectations = Expectations(no_look, StepClock())
    assert expectations.satisfied("k")
    expectations.expect("k", 2)
    expectations.creation_observed("k")
    assert not expectations.satisfied("k")
    expectations.creation_observed("k")
    assert expectations.satisfied("k")


def test_a_deletion_counts_once_per_pod():
    expectations = Expectations(no_look, StepClock())
    expectations.expect("k", 0, ["u1", "u2"])
    expectations.deletion_observed("k", "u1")
    expectations.deletion_observed("k", "u1")
    assert not expectations.satisfied("k")
    expectations.deletion_observed("k", "u2")
    assert expectations.satisfied("k")


async def test_expectations_lapse_and_after_a_list_the_key_is_looked_at_then():
    clock, looks = StepClock(), []
    expectations = Expectations(lambda key, delay_s: looks.append((key, clock.now_s + delay_s)), clock, 300)
    expectations.expect("k", 1)
    await clock.advance(100)
    assert not expectations.satisfied("k") and looks == []
    expectations.pods_listed()
    assert looks == [("k", 301)]
    await clock.advance(200)
    assert not expectations.satisfied("k") and looks[1:] == [("k", 301)]
    await clock.advance(1)
    assert expectations.satisfied("k") and len(looks) == 2


@pytest.mark.parametrize(
    ("count", "fails_at", "calls", "done"),
    [(0, None, 0, 0), (1, None, 1, 1), (10, None, 10, 10), (10, 0, 1, 0), (10, 4, 7, 6), (100, 1, 3, 2)],
)
async def test_slow_start_doubles_and_stops_at_the_first_bad_batch(count, fails_at, calls, done):
    made = 0

    async def call() -> None:
        nonlocal made
        made += 1
        if made - 1 == fails_at:
            raise ValueError("full")

    successes, failure = await slow_start(count, call)
    assert (made, successes, failure is not None) == (calls, done, fails_at is not None)


@pytest.mark.parametrize(
    ("ready", "not_ready", "expected"),
    [
        (3, 0, ZoneState.NORMAL),
        (0, 1, ZoneState.FULL_DISRUPTION),
        (1, 2, ZoneState.NORMAL),
        (2, 3, ZoneState.PARTIAL_DISRUPTION),
        (9, 11, ZoneState.PARTIAL_DISRUPTION),
        (10, 11, ZoneState.NORMAL),
        (0, 0, ZoneState.NORMAL),
    ],
)
def test_zone_states(ready, not_ready, expected):
    assert zone_state(ready, not_ready, 0.55) is expected


@pytest.mark.parametrize(
    ("state", "size", "expected"),
    [
        (ZoneState.NORMAL, 10, 0.1),
        (ZoneState.PARTIAL_DISRUPTION, 50, 0.0),
        (ZoneState.PARTIAL_DISRUPTION, 51, 0.01),
        (ZoneState.FULL_DISRUPTION, 10, 0.1),
    ],
)
def test_eviction_rates(state, size, expected):
    assert eviction_rate_per_s(state, size, 0.1, 0.01, 50) == expected


def test_zone_names():
    assert zone_of({}) == ""
    assert zone_of({"topology.kubernetes.io/zone": "z"}) != zone_of({"topology.kubernetes.io/region": "z"})


def test_a_zone_gives_one_node_at_once_then_one_per_period():
    zone = ZoneQueue(0.1)
    zone.waiting = {"a": None, "b": None, "c": None}
    assert [zone.take(0.0), zone.take(0.0), zone.take(9.9), zone.take(10.0)] == ["a", None, None, "b"]
    assert zone.next_s(10.0) == pytest.approx(10.0)
    zone.set_rate(0.0, 10.0)
    assert zone.take(1000.0) is None and zone.next_s(1000.0) is None


def node(*, conditions=None, taints=(), unschedulable=False, created="2023-11-14T22:13:20Z"):
    documents = [{"type": kind, "status": status} for kind, status in (conditions or {}).items()]
    return project_node({
        "metadata": {"name": "n", "uid": "u", "creationTimestamp": created},
        "spec": {"taints": [{"key": k, "effect": e} for k, e in taints], "unschedulable": unschedulable},
        "status": {"conditions": documents},
    })  # fmt: skip


def short(effects):
    return {f"{key.rsplit('/')[-1]}:{effect}" for key, effect in effects}


NO_SCHEDULE = {
    "healthy": (node(conditions={"Ready": "True"}), set(), set()),
    "not ready": (node(conditions={"Ready": "False"}), {"not-ready:NoSchedule"}, set()),
    "silent": (node(conditions={"Ready": "Unknown"}), {"unreachable:NoSchedule"}, set()),
    "cordoned": (node(unschedulable=True), {"unschedulable:NoSchedule"}, set()),
    "pressure": (
        node(conditions={"MemoryPressure": "True", "DiskPressure": "True", "PIDPressure": "Unknown"}),
        {"memory-pressure:NoSchedule", "disk-pressure:NoSchedule"},
        set(),
    ),
    "uncordoned": (
        node(taints=[("node.kubernetes.io/unschedulable", "NoSchedule")]), set(), {"unschedulable:NoSchedule"}
    ),
    "taints of others stay": (node(taints=[("gpu", "NoSchedule")]), set(), set()),
    "NoExecute is not its business": (node(taints=[(NOT_READY, "NoExecute")]), set(), set()),
    "swapped": (
        node(conditions={"Ready": "Unknown"}, taints=[(NOT_READY, "NoSchedule")]),
        {"unreachable:NoSchedule"},
        {"not-ready:NoSchedule"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_SCHEDULE)
def test_no_schedule_taints_follow_the_node(name):
    subject, add, remove = NO_SCHEDULE[name]
    found = no_schedule_changes(subject)
    assert (short(found[0]), short(found[1])) == (add, remove)


def test_no_execute_taints_follow_readiness():
    assert short(unhealthy_changes("False")[0]) == {"not-ready:NoExecute"}
    assert short(unhealthy_changes("Unknown")[0]) == {"unreachable:NoExecute"}
    assert short(unhealthy_changes("True")[1]) == {"not-ready:NoExecute", "unreachable:NoExecute"}


def test_changing_taints_keeps_those_of_others_and_says_nothing_where_nothing_changes():
    taints = [{"key": "gpu", "value": "a", "effect": "NoSchedule"}, {"key": NOT_READY, "effect": NO_EXECUTE}]
    add, remove = {(UNREACHABLE, NO_EXECUTE)}, {(NOT_READY, NO_EXECUTE)}
    changed = changed_taints(taints, add, remove, "now")
    assert changed == [taints[0], {"key": UNREACHABLE, "effect": NO_EXECUTE, "timeAdded": "now"}]
    assert changed_taints(changed, add, remove, "later") is None


TAINT = {"key": "k", "value": "v", "effect": "NoExecute"}
INF = float("inf")
TOLERATIONS = {
    "none": ([], 0),
    "everything": ([{"operator": "Exists"}], INF),
    "by key": ([{"key": "k", "operator": "Exists"}], INF),
    "by value": ([{"key": "k", "value": "v"}], INF),
    "another value": ([{"key": "k", "value": "w"}], 0),
    "another effect": ([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], 0),
    "for a while": ([{"key": "k", "operator": "Exists", "tolerationSeconds": 300}], 300),
    "negative means at once": ([{"key": "k", "operator": "Exists", "tolerationSeconds": -1}], 0),
    "the first that matches counts": (
        [{"key": "k", "operator": "Exists", "tolerationSeconds": 30}, {"operator": "Exists"}], 30
    ),
    "unknown operator": ([{"key": "k", "operator": "Near"}], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLERATIONS)
def test_tolerations(name):
    tolerations, expected = TOLERATIONS[name]
    assert toleration_s([TAINT], tolerations) == expected


def test_of_several_taints_the_shortest_toleration_counts():
    taints = [{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoExecute"}]
    tolerations = [
        {"key": "a", "operator": "Exists", "tolerationSeconds": 60},
        {"key": "b", "operator": "Exists", "tolerationSeconds": 20},
    ]
    assert toleration_s(taints, tolerations) == 20
    assert toleration_s(taints, tolerations[:1]) == 0


def lease(renewed, duration_s=40):
    spec = {"renewTime": renewed, "leaseDurationSeconds": duration_s}
    return project_lease({"metadata": {"name": "n", "uid": "u"}, "spec": spec})


def test_a_node_is_heard_of_when_its_lease_or_status_moves():
    ready = node(conditions={"Ready": "True"})
    health = observe(None, ready, None, 10.0, 0.0)
    assert health.heard_s == 10.0
    health = observe(health, ready, lease("1"), 20.0, 0.0)
    assert health.heard_s == 20.0
    health = observe(health, ready, lease("1"), 30.0, 0.0)
    assert health.heard_s == 20.0
    health = observe(health, ready, lease("0"), 40.0, 0.0)
    assert health.heard_s == 20.0, "a lease that goes back is no sign of life"


def test_a_node_that_never_reported_is_silent_since_it_was_made():
    assert observe(None, node(), None, 100.0, 70.0).heard_s == 30.0


@pytest.mark.parametrize(
    ("subject", "lease_of", "expected"),
    [
        (node(), None, 60),
        (node(conditions={"Ready": "True"}), None, 50),
        (node(conditions={"Ready": "True"}), lease("1"), 50),
        (node(conditions={"Ready": "True"}), lease("1", 10), 50),
        (node(conditions={"Ready": "True"}), lease("1", 400), 500),
    ],
)
def test_grace_follows_the_lease(subject, lease_of, expected):
    assert grace_s(subject, lease_of, 60, 50) == expected


def test_conditions_of_a_silent_node():
    subject = node(conditions={"Ready": "True", "PIDPressure": "Unknown"})
    found = {c["type"]: c["reason"] for c in silent_conditions(subject, "t")}
    assert found == {
        "Ready": "NodeStatusUnknown",
        "MemoryPressure": "NodeStatusNeverUpdated",
        "DiskPressure": "NodeStatusNeverUpdated",
    }


def owner(uid, block=False):
    return OwnerRef("v1", "ConfigMap", "o", uid, False, block)


def test_the_graph_keeps_edges_only():
    graph, item = OwnerGraph(), Item(("", "v1", "pods"), "a", "p", "u")
    graph.add(item, (owner("x"), owner("y")))
    assert graph.dependents("x") == [item] and graph.edges == 2
    graph.update(item, (owner("x"), owner("y")), (owner("y"), owner("z")))
    assert not graph.has_dependents("x") and graph.has_dependents("z")
    graph.remove(item, (owner("y"), owner("z")))
    assert graph.edges == 0


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((owner("x", True),), (), ["x"]),
        ((owner("x", True),), (owner("x"),), ["x"]),
        ((owner("x", True),), (owner("x", True),), []),
        ((owner("x"),), (), []),
    ],
)
def test_owners_that_are_no_longer_blocked(old, new, expected):
    assert unblocked_owners(old, new) == expected


def test_an_empty_selector_selects_nothing():
    assert not matches({}, {"a": "b"})
    assert matches({"a": "b"}, {"a": "b", "c": "d"}) and not matches({"a": "b"}, {"a": "c"})
