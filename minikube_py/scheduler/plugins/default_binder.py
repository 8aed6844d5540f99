"""DefaultBinder: POSTs the pod's binding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from minikube_py.scheduler.framework import CycleState, Status

if TYPE_CHECKING:
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.objects import PodInfo


class DefaultBinder:
    """Bind. Raises the client's errors; the scheduler distinguishes refusals from unknown outcomes."""

    name = "DefaultBinder"

    def __init__(self, args: Mapping[str, Any] | None, handle: Handle) -> None:
        self._handle = handle

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        body = orjson.dumps(
            {
                "kind": "Binding",
                "apiVersion": "v1",
                "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
                "target": {"kind": "Node", "name": node_name},
            }
        )
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding"
        await self._handle.client.raw("POST", path, None, body)
        return None
