"""IPAddresses, ServiceCIDRs, and the services that get their addresses from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from asking import Ask

NETWORKING = "/apis/networking.k8s.io/v1"
IPS, CIDRS = f"{NETWORKING}/ipaddresses", f"{NETWORKING}/servicecidrs"
SERVICES = "/api/v1/namespaces/default/services"
MERGE = "application/merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_PARENT = {"group": "g.io", "resource": "things", "namespace": "n", "name": "x"}
_NAMES = (
    "10.9.0.1", "fd00::1", "10.9.0.01", "010.9.0.1", "FD00::1", "fd00:0::1", "::ffff:10.9.0.1", "x", "10.9.0.256", "1.2.3", "fe80::1%eth0",
    "", "10.9.0.1/32", "0.0.0.0", "::",
)  # fmt: skip
_PARENTS: tuple[Any, ...] = (
    None, {}, {"resource": "pods"}, {"name": "x"}, {**_PARENT, "group": ""}, {**_PARENT, "group": "A_b"}, {**_PARENT, "resource": "a/b"},
    {**_PARENT, "name": ".."}, {**_PARENT, "namespace": "a%b"}, {"resource": "Pods", "name": "X"}, {**_PARENT, "namespace": "", "group": ""},
)  # fmt: skip
_LISTS: tuple[Any, ...] = (
    None, [], ["10.9.0.0/24"], ["10.9.0.0/24", "fd00::/64"], ["fd00::/64", "10.9.0.0/24"], ["10.9.0.0/24", "10.8.0.0/24"],
    ["fd00::/64", "fd01::/64"], ["10.9.0.0/24", "x"], ["x", "y"], ["10.9.0.0/24", "fd00::/64", "10.7.0.0/24"], ["10.9.0.1/24"], ["10.9.0.0/024"],
    ["010.9.0.0/24"], ["FD00::/64"], ["::ffff:10.9.0.0/120"], ["10.9.0.0"], [""], ["10.9.0.0/33"], ["0.0.0.0/0"], ["10.9.0.1/32"], ["fd00::/32"],
)  # fmt: skip


def _ip(name: str, parent: Any = _PARENT, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "spec": {"parentRef": parent}}


def _cidr(name: str, cidrs: Any, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"cidrs": cidrs}, **more}


def kinds() -> Iterator[Ask]:
    """What is taken, and how it may change."""
    for name in _NAMES:
        yield Ask("named", "POST", f"{IPS}?dryRun=All", _ip(name))
    for parent in _PARENTS:
        yield Ask("parent", "POST", f"{IPS}?dryRun=All", _ip("10.9.0.9", parent))
    yield Ask("empty", "POST", f"{IPS}?dryRun=All", {"metadata": {"name": "10.9.0.9"}})
    yield Ask("made", "POST", IPS, _ip("10.9.0.9", labels={"a": "b"}))
    yield Ask("changed", "PUT", f"{IPS}/10.9.0.9", _ip("10.9.0.9", {**_PARENT, "name": "y"}))
    yield Ask("changed", "PUT", f"{IPS}/10.9.0.9", _ip("10.9.0.9", None))
    yield Ask("changed", "PATCH", f"{IPS}/10.9.0.9", {"metadata": {"labels": {"c": "d"}, "finalizers": ["x"]}}, MERGE)
    yield Ask("changed", "PATCH", f"{IPS}/10.9.0.9", {"metadata": {"labels": {"c": "d"}}}, MERGE)
    for accept in ("application/json", TABLE):
        yield Ask("shown", "GET", f"{IPS}/10.9.0.9", accept=accept)
    yield Ask("deleted", "DELETE", f"{IPS}/10.9.0.9")
    for i, cidrs in enumerate(_LISTS):
        yield Ask("asked", "POST", f"{CIDRS}?dryRun=All", _cidr(f"asked-{i}", cidrs))
    yield Ask("asked", "POST", f"{CIDRS}?dryRun=All", _cidr("A_b", ["10.9.0.0/24"]))
    told = {"conditions": [{"type": "Ready", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2024-01-01T00:00:00Z"}]}
    yield Ask("made", "POST", CIDRS, _cidr("some", ["10.9.0.0/28"], status=told))
    at = f"{CIDRS}/some"
    for cidrs in (["10.9.0.0/28", "10.8.0.0/24"], ["10.8.0.0/28", "fd00::/64"], ["10.9.0.0/28", "x"], ["10.8.0.0/28"], [], ["10.9.0.0/28", "fd00::/64"], ["10.9.0.0/28"], ["10.9.0.0/28", "fd00::/64", "x"]):
        yield Ask("changed", "PUT", at, _cidr("some", cidrs))
    yield Ask("changed", "PATCH", f"{at}/status", {"status": told, "spec": {"cidrs": ["x"]}, "metadata": {"labels": {"a": "b"}}}, MERGE)
    yield Ask("changed", "PATCH", f"{at}/status", {"status": {"conditions": [{"type": "x"}]}}, MERGE)
    yield Ask("changed", "PATCH", at, {"status": {"conditions": []}, "metadata": {"labels": {"c": "d"}}}, MERGE)
    for accept in ("application/json", TABLE):
        yield Ask("shown", "GET", at, accept=accept)
    yield Ask("deleted", "DELETE", at)


def _service(name: str, address: str = "") -> dict[str, Any]:
    spec = {"ports": [{"port": 80}], **({"clusterIP": address} if address else {})}
    return {"metadata": {"name": name}, "spec": spec}


MORE, ADDRESS = _cidr("more", ["10.9.1.0/29"]), "10.9.1.3"
KNOWN, GONE = Ask("known", "POST", SERVICES, _service("probe", ADDRESS)), Ask("known", "DELETE", f"{SERVICES}/probe")


def services() -> Iterator[Ask]:
    """Of a network that was added and is ready."""
    yield Ask("taken", "POST", SERVICES, _service("one", ADDRESS))
    yield Ask("taken", "GET", f"{IPS}/{ADDRESS}")
    yield Ask("taken", "POST", SERVICES, _service("two", ADDRESS))
    yield Ask("taken", "POST", IPS, _ip(ADDRESS))
    yield Ask("reserved", "POST", IPS, _ip("10.9.1.4"))
    yield Ask("reserved", "POST", SERVICES, _service("two", "10.9.1.4"))
    for address in ("10.9.1.0", "10.9.1.7", "10.9.1.8", "10.0.0.0", "10.0.0.255"):
        yield Ask("outside", "POST", SERVICES, _service("two", address))
    yield Ask("external", "PUT", f"{SERVICES}/one", {"metadata": {"name": "one"}, "spec": {"type": "ExternalName", "externalName": "a.b"}})
    yield Ask("external", "GET", f"{IPS}/{ADDRESS}")
    yield Ask("back", "PATCH", f"{SERVICES}/one", {"spec": {"type": "ClusterIP", "externalName": None, "clusterIP": "10.9.1.2", "ports": [{"port": 80}]}}, MERGE)
    yield Ask("back", "GET", f"{IPS}/10.9.1.2")
    yield Ask("kubernetes", "GET", f"{IPS}/10.0.0.1", accept=TABLE)
    yield Ask("gone", "DELETE", f"{SERVICES}/one")
    yield Ask("gone", "GET", f"{IPS}/10.9.1.2")
    yield Ask("unready", "PATCH", f"{CIDRS}/more/status", {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "R", "message": "m", "lastTransitionTime": "2024-01-01T00:00:00Z"}]}}, MERGE)
    yield Ask("default", "GET", CIDRS)
