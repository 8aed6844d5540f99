"""Annotates nodes with how long their kubelets may keep Secrets and ConfigMaps, by the number of nodes.

Off by default: it writes each node once more, for kubelets alone. Source: `pkg/controller/ttl`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import NODES
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.views import NODE_TTL, NodeView

_NUMBER: Final = re.compile(r"[+-]?[0-9]+")


class _Size(NamedTuple):
    """The sizes of a cluster, in nodes, at which the TTL stays."""

    least: int
    most: int
    ttl_s: int


_SIZES: Final = (
    _Size(0, 100, 0), _Size(90, 500, 15), _Size(450, 1000, 30), _Size(900, 2000, 60), _Size(1800, 2**31 - 1, 300),
)  # fmt: skip


class NodeTtl(QueueController):
    name = "ttl-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._nodes: Informer[NodeView] = context.informers.of(NODES)
        self._workers = QueueWorkers(context, self.name, self._sync)
        self._count = self._step = 0
        self._nodes.add_handler(Handler(self._came, lambda old, new: self._seen(new), self._went))

    def _came(self, node: NodeView) -> None:
        self._count += 1
        self._step += self._count > _SIZES[self._step].most
        self._seen(node)

    def _went(self, node: NodeView) -> None:
        self._count -= 1
        self._step -= self._count < _SIZES[self._step].least

    def _seen(self, node: NodeView) -> None:
        """Nodes written before the TTL changed are so again as they change: kubelets report all the time."""
        if not self._is_right(node):
            self._workers.queue.add(node.name)

    def _is_right(self, node: NodeView) -> bool:
        return _NUMBER.fullmatch(node.ttl) is not None and int(node.ttl) == _SIZES[self._step].ttl_s

    async def _sync(self, name: str) -> None:
        node = self._nodes.store.get(name)
        if node is not None and not self._is_right(node):
            patch = {"metadata": {"annotations": {NODE_TTL: str(_SIZES[self._step].ttl_s)}}}
            await self._client.patch(NODES, name, patch, content_type=STRATEGIC_MERGE_PATCH)
