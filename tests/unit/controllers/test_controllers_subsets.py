"""Endpoints subsets: readiness, ports, families, capacity."""

import pytest

from minikube_py.controllers.subsets import build_subsets, repack, truncate
from minikube_py.controllers.views import project_pod, project_service


def service(ports=({"port": 80},), **spec):
    return project_service({
        "metadata": {"name": "s", "namespace": "a", "uid": "s"},
        "spec": {"selector": {"app": "web"}, "ports": list(ports), "clusterIP": "10.96.0.1", **spec},
    })  # fmt: skip


def pod(name, ip="10.0.0.1", *, ready=True, phase="Running", deleting=False, node="n", ports=(), **spec):
    metadata = {"name": name, "namespace": "a", "uid": f"uid-{name}"}
    if deleting:
        metadata["deletionTimestamp"] = "t"
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    if ip:
        status |= {"podIP": ip.split(",")[0], "podIPs": [{"ip": one} for one in ip.split(",")]}
    full = {"nodeName": node, "containers": [{"name": "c", "ports": list(ports)}], **spec}
    return project_pod({"metadata": metadata, "spec": full, "status": status})


def address(name, ip="10.0.0.1", **more):
    target = {"kind": "Pod", "namespace": "a", "name": name, "uid": f"uid-{name}"}
    return {"ip": ip, **more, "nodeName": "n", "targetRef": target}


PORT = {"port": 80, "protocol": "TCP"}
HTTP = {"name": "http", "containerPort": 8080, "protocol": "TCP"}
CASES = {
    "ready and not": (
        service(), [pod("x"), pod("y", "10.0.0.2", ready=False)],
        [{"addresses": [address("x")], "notReadyAddresses": [address("y", "10.0.0.2")], "ports": [PORT]}],
    ),
    "published although not ready": (
        service(publishNotReadyAddresses=True), [pod("x", ready=False, deleting=True)],
        [{"addresses": [address("x")], "ports": [PORT]}],
    ),
    "no address yet": (service(), [pod("x", "")], []),
    "finished": (service(), [pod("x", phase="Succeeded"), pod("y", phase="Failed")], []),
    "being deleted": (service(), [pod("x", deleting=True)], []),
    "target port by number": (
        service([{"port": 80, "targetPort": 9}]), [pod("x")],
        [{"addresses": [address("x")], "ports": [{"port": 9, "protocol": "TCP"}]}],
    ),
    "target port by name": (
        service([{"name": "web", "port": 80, "targetPort": "http"}]), [pod("x", ports=[HTTP])],
        [{"addresses": [address("x")], "ports": [{"port": 8080, "protocol": "TCP", "name": "web"}]}],
    ),
    "a name that the pod does not have": (service([{"port": 80, "targetPort": "http"}]), [pod("x")], []),
    "a name under another protocol": (
        service([{"port": 80, "targetPort": "http", "protocol": "UDP"}]), [pod("x", ports=[HTTP])], []
    ),
    "pods that differ in a named port": (
        service([{"port": 80, "targetPort": "http"}]),
        [pod("x", ports=[HTTP]), pod("y", "10.0.0.2", ports=[{**HTTP, "containerPort": 9090}])],
        [
            {"addresses": [address("x")], "ports": [{"port": 8080, "protocol": "TCP"}]},
            {"addresses": [address("y", "10.0.0.2")], "ports": [{"port": 9090, "protocol": "TCP"}]},
        ],
    ),
    "two ports, one subset": (
        service([{"name": "b", "port": 2}, {"name": "a", "port": 1}]), [pod("x")],
        [{"addresses": [address("x")], "ports": [
            {"port": 1, "protocol": "TCP", "name": "a"}, {"port": 2, "protocol": "TCP", "name": "b"}]}],
    ),
    "headless without ports": (service([], clusterIP="None"), [pod("x")], [{"addresses": [address("x")]}]),
    "no ports but an address": (service([]), [pod("x")], []),
    "host name under the service's domain": (
        service(), [pod("x", hostname="h", subdomain="s")],
        [{"addresses": [address("x", hostname="h")], "ports": [PORT]}],
    ),
    "host name under another domain": (
        service(), [pod("x", hostname="h", subdomain="other")], [{"addresses": [address("x")], "ports": [PORT]}]
    ),
    "the service's family": (
        service(ipFamilies=["IPv6"]), [pod("x", "10.0.0.1,fd00::1")],
        [{"addresses": [address("x", "fd00::1")], "ports": [PORT]}],
    ),
    "no address of the family": (service(ipFamilies=["IPv6"]), [pod("x")], []),
    "sidecar's port": (
        service([{"port": 80, "targetPort": "http"}]),
        [pod("x", initContainers=[{"name": "i", "restartPolicy": "Always", "ports": [HTTP]}])],
        [{"addresses": [address("x")], "ports": [{"port": 8080, "protocol": "TCP"}]}],
    ),
    "app protocol": (
        service([{"port": 80, "appProtocol": "h2c"}]), [pod("x")],
        [{"addresses": [address("x")], "ports": [{"port": 80, "protocol": "TCP", "appProtocol": "h2c"}]}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_subsets(name):
    subject, pods, expected = CASES[name]
    found = build_subsets(subject, pods)
    assert found == expected
    assert repack(found) == expected, "packing what is packed changes nothing"
    assert build_subsets(subject, pods[::-1]) == expected, "the order of pods does not matter"


def many(ready, not_ready):
    return [{
        "addresses": [{"ip": f"r{number}"} for number in range(ready)],
        "notReadyAddresses": [{"ip": f"n{number}"} for number in range(not_ready)],
    }]  # fmt: skip


@pytest.mark.parametrize(
    ("ready", "not_ready", "kept_ready", "kept_not_ready"),
    [(600, 400, 600, 400), (600, 500, 600, 400), (1001, 0, 1000, 0), (1200, 300, 1000, 0), (1000, 5, 1000, 0)],
)
def test_over_capacity_ready_addresses_stay_longest(ready, not_ready, kept_ready, kept_not_ready):
    (kept,), truncated = truncate(many(ready, not_ready))
    assert (len(kept.get("addresses", ())), len(kept.get("notReadyAddresses", ()))) == (kept_ready, kept_not_ready)
    assert truncated == (ready + not_ready > 1000)


def test_subsets_shrink_in_proportion():
    subsets = many(1500, 0) + many(500, 0)
    kept, _ = truncate(subsets)
    assert [len(subset["addresses"]) for subset in kept] == [750, 250]
