"""Draws pods that ask for extended resources by name, with the classes, devices and nodes that may serve them.

All names end in the case's suffix, so that no case sees what another one leaves behind; in what order they stand does
not depend on it.
"""

from __future__ import annotations

import random
from typing import Any

Obj = dict[str, Any]
IMPLICIT = "deviceclass.resource.kubernetes.io/"
AMOUNTS = (1, 1, 1, 2, 3, 0)
OWN = ("0", "1", "4")
KINDS = ("x", "y")


class Draw:
    """`own`: what the node has by itself, by resource."""

    def __init__(self, seed: int, suffix: str, node: str) -> None:
        rng = random.Random(seed)
        self.suffix, self.node, self.driver = suffix, node, f"x{suffix}.example"
        names = [f"example.com/{letter}{suffix}" for letter in "abc"]
        kinds = [rng.choice((None, *KINDS)) for _ in names]
        # The last name stands for a class only now and then.
        classed = [True, True, rng.random() < 0.3]
        self.classes = [
            self._class(f"c{i}{suffix}", name if rng.random() < 0.8 else "", kind)
            for i, (name, kind, has) in enumerate(zip(names, kinds, classed, strict=True))
            if has
        ]
        devices = [
            {"name": f"d{i}", "attributes": {"kind": {"string": rng.choice(KINDS)}}} for i in range(rng.randint(1, 7))
        ]
        pool = {"name": f"p{suffix}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": self.driver, "nodeName": node, "pool": pool, "devices": devices}
        self.slice: Obj = {"metadata": {"name": f"s{suffix}"}, "spec": spec}
        self.own = {name: rng.choice(OWN) for name in names if rng.random() < 0.2}
        askable = [*names[:2], *names[:2], names[2], *(IMPLICIT + each["metadata"]["name"] for each in self.classes)]
        self.pod = self._pod(rng, askable)

    def _class(self, name: str, resource: str, kind: str | None) -> Obj:
        expression = f'device.driver == "{self.driver}"'
        if kind is not None:
            expression += f" && device.attributes['{self.driver}'].kind == '{kind}'"
        spec: Obj = {"selectors": [{"cel": {"expression": expression}}]}
        if resource:
            spec["extendedResourceName"] = resource
        return {"metadata": {"name": name}, "spec": spec}

    def _pod(self, rng: random.Random, names: list[str]) -> Obj:
        def container(name: str, **more: Any) -> Obj:
            wanted = rng.sample(sorted(set(names)), rng.choice((0, 1, 1, 2)))
            amounts = {each: str(rng.choice(AMOUNTS)) for each in wanted}
            if rng.random() < 0.4:
                amounts["cpu"] = "1m"
            limits = {each: amount for each, amount in amounts.items() if "/" in each}
            return {"name": name, "image": "x", "resources": {"requests": amounts, "limits": limits}, **more}

        early = [
            container(f"i{i}", **({"restartPolicy": "Always"} if rng.random() < 0.3 else {}))
            for i in range(rng.choice((0, 0, 1, 2)))
        ]
        spec = {
            "containers": [container(f"c{i}") for i in range(rng.randint(1, 2))],
            "initContainers": early,
            "nodeSelector": {"kubernetes.io/hostname": self.node},
            "terminationGracePeriodSeconds": 0,
        }
        return {"metadata": {"name": f"p{self.suffix}"}, "spec": spec}
