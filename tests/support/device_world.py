"""Devices, classes and claims in a cluster in virtual time, made in one line."""

from __future__ import annotations

from typing import Any

import orjson

from minikube_py.cluster.virtual import VirtualCluster

DRIVER = "gpu.example"
GROUP = "/apis/resource.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"


def device(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def device_slice(name: str, *devices: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """`spec`: where it can be used, and other parts."""
    pool = {"name": spec.pop("pool", name), "generation": 1, "resourceSliceCount": spec.pop("count", 1)}
    body = {"driver": DRIVER, "pool": pool, **spec}
    return {"metadata": {"name": name}, "spec": {**body, **({"devices": list(devices)} if devices else {})}}


def device_class(name: str, *expressions: str, **spec: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": each}} for each in (f'device.driver == "{DRIVER}"', *expressions)]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


def request(name: str, **exactly: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **exactly}}


def claim(name: str, *requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": list(requests or (request("r"),)), **devices}}}


def pod(name: str, *claims: str, **spec: Any) -> dict[str, Any]:
    named = [{"name": f"c{i}", "resourceClaimName": each} for i, each in enumerate(claims)]
    body = {"containers": [{"name": "c", "image": "x"}], "resourceClaims": named, **spec}
    return {"metadata": {"name": name}, "spec": body}


class DeviceWorld:
    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.cluster.request(method, path, None if body is None else orjson.dumps(body), **more)
        return orjson.loads(answer.body)

    def make(self, *objects: dict[str, Any]) -> None:
        for each in objects:
            spec = each["spec"]
            if "pool" in spec:
                path = f"{GROUP}/resourceslices"
            elif "containers" in spec:
                path = PODS
            else:
                path = CLAIMS if "devices" in spec else f"{GROUP}/deviceclasses"
            made = self.ask("POST", path, each)
            assert "uid" in made["metadata"], made

    def later(self, seconds: float = 3.0) -> None:
        self.cluster.advance(seconds)

    def pod(self, name: str) -> tuple[str, str]:
        """Its node, or why it has none."""
        found = self.ask("GET", f"{PODS}/{name}")
        conditions = {each["type"]: each for each in found["status"].get("conditions") or ()}
        return found["spec"].get("nodeName", ""), conditions.get("PodScheduled", {}).get("message", "")

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"{CLAIMS}/{name}").get("status") or {}
        return found

    def devices(self, name: str) -> list[str]:
        """The devices allocated to the claim."""
        allocation = self.status(name).get("allocation") or {"devices": {}}
        return [f"{each['pool']}/{each['device']}" for each in allocation["devices"].get("results") or ()]
