"""Controllers on the dictionary-based API server, under a manual clock."""

from __future__ import annotations

import random
from typing import Any

from fake_api import FakeApi, Json
from step_clock import StepClock, settle

from minikube_py.controllers.base import ControllerConfig
from minikube_py.controllers.manager import ControllerManager

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


class World:
    """`names`: the controllers to run."""

    def __init__(self, *names: str, **config: Any) -> None:
        self.clock = StepClock()
        self.api = FakeApi(self.clock)
        self.config = ControllerConfig(discovery_period_s=0, **config)
        self.names = names
        self.manager: ControllerManager | None = None
        self.api.make("namespaces", "a")

    async def __aenter__(self) -> World:
        self.manager = ControllerManager(self.api, self.clock, random.Random(1), names=self.names, config=self.config)
        await self.manager.start()
        await settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.manager is not None
        assert self.manager.failures == []
        await self.manager.stop()

    def pods(self, *, live: bool = True) -> dict[str, Json]:
        return {
            key: pod
            for key, pod in self.api.kind("pods").items()
            if not live or "deletionTimestamp" not in pod["metadata"]
        }

    def controller(self, replicas: int, key: str = "a/web", **spec: Any) -> Json:
        selector = {"app": "web"}
        full = {"replicas": replicas, "selector": selector, "template": TEMPLATE, **spec}
        return self.api.make("replicationcontrollers", key, spec=full)

    def scale(self, replicas: int, key: str = "a/web") -> None:
        spec = self.api.kind("replicationcontrollers")[key]["spec"]
        metadata = self.api.kind("replicationcontrollers")[key]["metadata"]
        generation = metadata["generation"] + 1
        self.api.change(
            "replicationcontrollers",
            key,
            spec={**spec, "replicas": replicas},
            metadata={**metadata, "generation": generation},
        )

    def run_pod(self, key: str, ip: str = "10.0.0.1", ready: bool = True, node: str = "n1") -> None:
        """The actions of a kubelet."""
        pod = self.api.kind("pods")[key]
        self.api.change("pods", key, spec={**pod["spec"], "nodeName": node})
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": self.api._now()}
        status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]}
        self.api.change("pods", key, status=status)

    def reasons(self) -> list[tuple[str, str]]:
        events = sorted(self.api.kind("events").values(), key=lambda e: int(e["metadata"]["resourceVersion"]))
        return [(event["reason"], event["message"]) for event in events]
