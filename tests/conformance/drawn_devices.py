"""Draws what an allocator is asked: slices, classes and claims, with all that a device can be and a claim can ask.

Pools of different drivers have different names: upstream keeps the counters of a pool by its name alone, so that two
drivers with a pool of one name share the counters of whichever is looked at first. Ours keeps them apart.
"""

from __future__ import annotations

import random
from typing import Any

QUANTITIES = ("0", "1", "2", "3", "4", "1k", "1Ki", "1500m", "4Gi", "8Gi", "0.5", "1e3", "-1")
ATTRIBUTES: tuple[dict[str, Any], ...] = (
    {"string": "x"},
    {"string": "y"},
    {"string": ""},
    {"int": 0},
    {"int": 1},
    {"int": 1 << 62},
    {"bool": True},
    {"bool": False},
    {"version": "1.0.0"},
    {"version": "1.0.1"},
)
EFFECTS = ("NoSchedule", "NoExecute", "None", "Unheard")
ZONES = ("a", "b")
DRIVERS = ("one.example", "two.example")


class Draw:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.node = {"metadata": {"name": "n0", "labels": {"zone": self.rng.choice(ZONES)}}}

    def case(self) -> dict[str, Any]:
        self.classes = [self._class(f"c{i}") for i in range(self.rng.randint(1, 3))]
        slices: list[dict[str, Any]] = []
        for driver in DRIVERS:
            for i in range(self.rng.randint(0, 2)):
                slices += self._pool(driver, f"{driver[0]}{i}")
        self.rng.shuffle(slices)
        devices = [
            f"{each['spec']['driver']}/{each['spec']['pool']['name']}/{device['name']}"
            for each in slices
            for device in each["spec"].get("devices") or ()
            if not device.get("allowMultipleAllocations")
        ]
        held = sorted(set(self.rng.sample(devices, self.rng.randint(0, len(devices) // 3))))
        shared, capacity = self._shared(slices)
        return {
            "node": self.node,
            "claims": [self._claim(f"w{i}") for i in range(self.rng.choice((1, 1, 1, 2, 3)))],
            "classes": self.classes,
            "slices": slices,
            "allocated": {"devices": held, "shared": shared, "capacity": capacity},
        }

    def _shared(self, slices: list[dict[str, Any]]) -> tuple[list[str], dict[str, dict[str, str]]]:
        shared, capacity = [], {}
        for each in slices:
            for device in each["spec"].get("devices") or ():
                if device.get("allowMultipleAllocations") and self.rng.random() < 0.3:
                    id = f"{each['spec']['driver']}/{each['spec']['pool']['name']}/{device['name']}"
                    shared.append(f"{id}/share-{len(shared)}")
                    taken = {name: self.rng.choice(("1", "2", "1Ki")) for name in device.get("capacity") or {}}
                    if taken:
                        capacity[id] = taken
        return shared, capacity

    def _class(self, name: str) -> dict[str, Any]:
        rng = self.rng
        spec: dict[str, Any] = {}
        selectors = [
            f'device.driver == "{rng.choice(DRIVERS)}"',
            "device.allowMultipleAllocations",
            'device.attributes["one.example"].kind == "x"',
        ]
        chosen = [each for each, likely in zip(selectors, (0.6, 0.1, 0.05), strict=True) if rng.random() < likely]
        if chosen:
            spec["selectors"] = [{"cel": {"expression": each}} for each in chosen]
        if rng.random() < 0.4:
            spec["config"] = [self._config() for _ in range(rng.randint(1, 2))]
        return {"metadata": {"name": name}, "spec": spec}

    def _config(self) -> dict[str, Any]:
        return {"opaque": {"driver": self.rng.choice(DRIVERS), "parameters": {"a": self.rng.randint(0, 9)}}}

    # --- slices -----------------------------------------------------------------------------------------------------

    def _reach(self) -> dict[str, Any]:
        return self.rng.choice(
            (
                {"nodeName": "n0"},
                {"nodeName": "n0"},
                {"nodeName": "n0"},
                {"nodeName": "n1"},
                {"allNodes": True},
                {"nodeSelector": self._selector()},
            )
        )

    def _selector(self) -> dict[str, Any]:
        rng = self.rng
        terms: list[dict[str, Any]] = [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": [rng.choice(ZONES)]}]},
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]},
        ]
        return {"nodeSelectorTerms": [rng.choice(terms)]}

    def _pool(self, driver: str, name: str) -> list[dict[str, Any]]:
        rng = self.rng
        counters = rng.random() < 0.4
        parts = rng.choice((1, 1, 1, 2, 3))
        per_device = rng.random() < 0.15
        reach = self._reach()
        found = []
        for i in range(parts):
            spec = {"driver": driver, **({"perDeviceNodeSelection": True} if per_device else reach)}
            if not per_device and rng.random() < 0.1:
                spec = {"driver": driver, **self._reach()}
            spec["devices"] = [
                self._device(f"d{i}{j}", counters, per_device) for j in range(rng.choice((0, 1, 1, 2, 3, 4)))
            ]
            found.append(spec)
        if counters:
            sets = [{"name": each, "counters": {"memory": {"value": "4"}, "cores": {"value": "3"}}} for each in "st"]
            found.append({"driver": driver, "allNodes": True, "sharedCounters": sets[: rng.choice((1, 2, 2, 2))]})
        if found and rng.random() < 0.05 and found[0].get("devices"):
            found[-1].setdefault("devices", []).append(found[0]["devices"][0])
        count = len(found) + (1 if rng.random() < 0.06 else 0)
        for spec in found:
            spec["pool"] = {"name": name, "generation": 2, "resourceSliceCount": count}
            if rng.random() < 0.04:
                spec["pool"]["generation"] = rng.choice((1, 3))
        return [
            {"metadata": {"name": f"{name}-{rng.randint(0, 99):02}-{i}"}, "spec": spec} for i, spec in enumerate(found)
        ]

    def _device(self, name: str, counters: bool, per_device: bool) -> dict[str, Any]:
        rng = self.rng
        device: dict[str, Any] = {"name": name, "attributes": {}}
        for names in (("kind", "one.example/kind"), ("two.example/rank", "rank")):
            # Not both: which of them an expression sees is then left to chance.
            attribute = rng.choice(names)
            if rng.random() < 0.8:
                device["attributes"][attribute] = rng.choice(ATTRIBUTES[:2] if rng.random() < 0.6 else ATTRIBUTES)
        if per_device:
            device.update(self._reach())
        if rng.random() < 0.3:
            device["allowMultipleAllocations"] = True
        if rng.random() < 0.4:
            device["capacity"] = {
                each: self._capacity() for each in rng.sample(("memory", "one.example/speed"), rng.randint(1, 2))
            }
        if counters and rng.random() < 0.8:
            amounts = {
                each: {"value": rng.choice(("1", "2", "3"))} for each in ("memory", "cores") if rng.random() < 0.8
            }
            device["consumesCounters"] = [
                {"counterSet": "s" if rng.random() < 0.8 else "t", "counters": amounts or {"memory": {"value": "1"}}}
            ]
        if rng.random() < 0.2:
            device["taints"] = [
                {"key": rng.choice("kl"), "value": rng.choice(("", "v")), "effect": rng.choice(EFFECTS)}
            ]
        if rng.random() < 0.1:
            device["bindingConditions"] = ["Ready"]
            device["bindingFailureConditions"] = ["Failed"]
            device["bindsToNode"] = rng.random() < 0.5
        return device

    def _capacity(self) -> dict[str, Any]:
        rng = self.rng
        found: dict[str, Any] = {"value": rng.choice(QUANTITIES[2:])}
        if rng.random() < 0.4:
            found["requestPolicy"] = {
                "default": "1",
                **rng.choice(
                    (
                        {"validValues": ["1", "2", "4"]},
                        {"validRange": {"min": "1"}},
                        {"validRange": {"min": "1", "max": "3"}},
                        {"validRange": {"min": "1", "max": "4", "step": "2"}},
                        {},
                    )
                ),
            }
        return found

    # --- claims -----------------------------------------------------------------------------------------------------

    def _claim(self, name: str) -> dict[str, Any]:
        rng = self.rng
        requests = [self._request(f"r{i}") for i in range(rng.choice((1, 1, 2, 2, 3)))]
        names = [request["name"] for request in requests]
        for request in requests:
            names += [f"{request['name']}/{each['name']}" for each in request.get("firstAvailable") or ()]
        devices: dict[str, Any] = {"requests": requests}
        if rng.random() < 0.35:
            devices["constraints"] = [self._constraint(names) for _ in range(rng.choice((1, 1, 2)))]
        if rng.random() < 0.3:
            devices["config"] = [self._claim_config(names) for _ in range(rng.randint(1, 2))]
        return {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"devices": devices}}

    def _claim_config(self, names: list[str]) -> dict[str, Any]:
        named = self.rng.sample(names, self.rng.randint(0, min(2, len(names))))
        return {**({"requests": named} if named else {}), **self._config()}

    def _constraint(self, names: list[str]) -> dict[str, Any]:
        rng = self.rng
        kind = rng.choice(("matchAttribute", "distinctAttribute"))
        attribute = rng.choice(("one.example/kind", "two.example/rank", "one.example/kind", "one.example/rank"))
        named = rng.sample(names, rng.randint(0, min(2, len(names))))
        return {kind: attribute, **({"requests": named} if named else {})}

    def _request(self, name: str) -> dict[str, Any]:
        if self.rng.random() < 0.25:
            choices = [{"name": f"s{i}", **self._asked()} for i in range(self.rng.randint(1, 3))]
            return {"name": name, "firstAvailable": choices}
        exactly = self._asked()
        if self.rng.random() < 0.1:
            exactly["adminAccess"] = self.rng.random() < 0.8
        return {"name": name, "exactly": exactly}

    def _asked(self) -> dict[str, Any]:
        rng = self.rng
        found: dict[str, Any] = {"deviceClassName": rng.choice(self.classes)["metadata"]["name"]}
        if rng.random() < 0.02:
            found["deviceClassName"] = "missing"
        if rng.random() < 0.15:
            found["allocationMode"] = "All"
        else:
            found |= {
                "allocationMode": "ExactCount",
                "count": rng.choice((1, 1, 1, 2, 2, 3, 33 if rng.random() < 0.1 else 1)),
            }
        if rng.random() < 0.2:
            expression = rng.choice(
                (
                    'device.driver == "one.example"',
                    '"kind" in device.attributes["one.example"]',
                    'device.attributes["two.example"].?rank.orValue("x") == "y"',
                    'device.attributes["one.example"].kind == "x"',
                )
            )
            found["selectors"] = [{"cel": {"expression": expression}}]
        if rng.random() < 0.25:
            found["tolerations"] = [
                rng.choice(
                    (
                        {"operator": "Exists"},
                        {"operator": "Exists", "key": "k"},
                        {"operator": "Equal", "key": "l", "value": "v", "effect": "NoExecute"},
                        {"key": "k", "operator": "Equal", "effect": "NoSchedule"},
                    )
                )
            ]
        if rng.random() < 0.2:
            found["capacity"] = {
                "requests": {
                    rng.choice(("memory", "memory", "one.example/speed", "absent")): rng.choice(QUANTITIES[:8])
                }
            }
        return found
