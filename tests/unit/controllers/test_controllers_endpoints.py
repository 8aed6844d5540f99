"""Endpoints follow services and pods."""

from controller_world import World
from step_clock import settle

from minikube_py.api.errors import StatusError

NAME = "endpoints-controller"
SELECTOR = {"app": "web"}


def service(w, key="a/web", **spec):
    full = {"selector": SELECTOR, "ports": [{"port": 80}], "clusterIP": "10.96.0.1", **spec}
    return w.api.make("services", key, metadata={"labels": {"team": "x"}}, spec=full)


def pod(w, name, ip, **options):
    w.api.make("pods", f"a/{name}", metadata={"labels": SELECTOR}, spec={"containers": [{"name": "c"}]})
    w.run_pod(f"a/{name}", ip, **options)


def addresses(w, key="a/web"):
    subsets = w.api.kind("endpoints")[key].get("subsets") or []
    return (
        [a["ip"] for s in subsets for a in s.get("addresses", ())],
        [a["ip"] for s in subsets for a in s.get("notReadyAddresses", ())],
    )


async def test_ready_and_unready_pods_come_and_go():
    async with World(NAME) as w:
        service(w)
        pod(w, "p1", "10.0.0.1")
        pod(w, "p2", "10.0.0.2", ready=False)
        await w.clock.advance(2)
        assert addresses(w) == (["10.0.0.1"], ["10.0.0.2"])
        w.run_pod("a/p2", "10.0.0.2", ready=True)
        await w.clock.advance(2)
        assert addresses(w) == (["10.0.0.1", "10.0.0.2"], [])
        w.api.remove("pods", "a/p1")
        await w.clock.advance(2)
        assert addresses(w) == (["10.0.0.2"], []), "as soon as it is asked to go"
        w.api.change("pods", "a/p2", status={**w.api.kind("pods")["a/p2"]["status"], "phase": "Failed"})
        await w.clock.advance(2)
        assert addresses(w) == ([], [])


async def test_labels_of_a_pod_decide():
    async with World(NAME) as w:
        service(w)
        service(w, "a/db", selector={"app": "db"})
        pod(w, "p1", "10.0.0.1")
        await w.clock.advance(2)
        metadata = w.api.kind("pods")["a/p1"]["metadata"]
        w.api.change("pods", "a/p1", metadata={**metadata, "labels": {"app": "db"}})
        await w.clock.advance(2)
        assert addresses(w) == ([], []) and addresses(w, "a/db") == (["10.0.0.1"], [])


async def test_labels_and_annotations_are_those_of_the_original():
    async with World(NAME) as w:
        service(w)
        await w.clock.advance(1)
        metadata = w.api.kind("endpoints")["a/web"]["metadata"]
        assert metadata["labels"] == {"team": "x", "endpoints.kubernetes.io/managed-by": "endpoint-controller"}
        created = w.api.kind("services")["a/web"]["metadata"]["creationTimestamp"]
        assert metadata["annotations"] == {"endpoints.kubernetes.io/last-change-trigger-time": created}


async def test_headless_services_are_labelled():
    async with World(NAME) as w:
        service(w, clusterIP="None")
        await w.clock.advance(1)
        assert w.api.kind("endpoints")["a/web"]["metadata"]["labels"]["service.kubernetes.io/headless"] == ""


async def test_services_without_selector_and_external_names_are_not_touched():
    async with World(NAME) as w:
        service(w, "a/manual", selector=None)
        service(w, "a/external", type="ExternalName")
        w.api.make("endpoints", "a/manual", subsets=[{"addresses": [{"ip": "1.2.3.4"}]}])
        before = w.api.version
        await w.clock.advance(5)
        assert w.api.version == before and list(w.api.kind("endpoints")) == ["a/manual"]


async def test_a_deleted_service_takes_its_endpoints():
    async with World(NAME) as w:
        service(w)
        await w.clock.advance(1)
        w.api.remove("services", "a/web")
        await w.clock.advance(1)
        assert w.api.kind("endpoints") == {}


async def test_leftovers_of_services_deleted_while_nobody_watched_go_at_the_start():
    w = World(NAME)
    w.api.make("endpoints", "a/old", subsets=[])
    leader = {"control-plane.alpha.kubernetes.io/leader": "{}"}
    w.api.make("endpoints", "a/leader", metadata={"annotations": leader})
    async with w:
        await w.clock.advance(1)
        assert list(w.api.kind("endpoints")) == ["a/leader"]


async def test_deleted_or_changed_endpoints_are_put_right():
    async with World(NAME) as w:
        service(w)
        pod(w, "p1", "10.0.0.1")
        await w.clock.advance(2)
        w.api.remove("endpoints", "a/web")
        await w.clock.advance(2)
        assert addresses(w) == (["10.0.0.1"], [])


async def test_a_stale_copy_does_not_overwrite():
    async with World(NAME) as w:
        service(w)
        await w.clock.advance(1)
        w.api.drop_watches()
        metadata = w.api.kind("endpoints")["a/web"]["metadata"]
        w.api.change("endpoints", "a/web", metadata={**metadata, "annotations": {"mine": "1"}})
        pod(w, "p1", "10.0.0.1")
        await w.clock.advance(120)
        assert addresses(w) == (["10.0.0.1"], [])
        assert w.api.kind("endpoints")["a/web"]["metadata"]["annotations"]["mine"] == "1"


async def test_above_capacity_it_says_so():
    w = World(NAME)
    service(w)
    for number in range(1001):
        pod(w, f"p{number}", f"10.0.{number // 250}.{number % 250}")
    async with w:
        await w.clock.advance(5)
        endpoints = w.api.kind("endpoints")["a/web"]
        assert len(endpoints["subsets"][0]["addresses"]) == 1000
        assert endpoints["metadata"]["annotations"]["endpoints.kubernetes.io/over-capacity"] == "truncated"
        w.api.remove("pods", "a/p0")
        await w.clock.advance(5)
        annotations = w.api.kind("endpoints")["a/web"]["metadata"]["annotations"]
        assert "endpoints.kubernetes.io/over-capacity" not in annotations


async def test_a_refused_write_is_reported_and_tried_again():
    async with World(NAME) as w:
        w.api.refuse["POST", "/endpoints$"] = StatusError(422, "Invalid", "bad label")
        service(w)
        await settle()
        assert ("FailedToCreateEndpoint", "Failed to create endpoint for service a/web: bad label") in w.reasons()
        w.api.refuse.clear()
        await w.clock.advance(10)
        assert "a/web" in w.api.kind("endpoints")


async def test_at_rest_nothing_is_written():
    async with World(NAME) as w:
        service(w)
        pod(w, "p1", "10.0.0.1")
        await w.clock.advance(5)
        before = w.api.version
        w.api.change("services", "a/web", spec={**w.api.kind("services")["a/web"]["spec"], "sessionAffinity": "None"})
        await w.clock.advance(60)
        assert w.api.version == before + 1


async def test_slices_of_many_pods_hold_a_hundred_each_and_are_filled_up_again():
    async with World("endpointslice-controller") as w:
        w.api.make("nodes", "n1")
        service(w)
        for i in range(250):
            pod(w, f"p{i}", f"10.0.{i // 200}.{i % 200}")
        await w.clock.advance(5)
        pieces = w.api.kind("endpointslices")
        assert sorted(len(piece["endpoints"]) for piece in pieces.values()) == [50, 100, 100]
        assert len({each["addresses"][0] for piece in pieces.values() for each in piece["endpoints"]}) == 250
        for i in range(60):
            w.api.remove("pods", f"a/p{i}")
        for i in range(300, 330):
            pod(w, f"p{i}", f"10.0.9.{i - 300}")
        await w.clock.advance(5)
        pieces = w.api.kind("endpointslices")
        assert sorted(len(piece["endpoints"]) for piece in pieces.values()) == [80, 100, 100]
        leaving = [e for piece in pieces.values() for e in piece["endpoints"] if e["conditions"]["terminating"]]
        assert len(leaving) == 60 and not any(each["conditions"]["ready"] for each in leaving)


async def test_a_pod_whose_node_is_not_there_waits_for_it():
    async with World("endpointslice-controller") as w:
        service(w)
        pod(w, "p1", "10.0.0.1")
        await w.clock.advance(2)
        (piece,) = w.api.kind("endpointslices").values()
        assert not piece["endpoints"]
        w.api.make("nodes", "n1")
        await w.clock.advance(2)
        (piece,) = w.api.kind("endpointslices").values()
        assert [each["addresses"] for each in piece["endpoints"]] == [["10.0.0.1"]]
