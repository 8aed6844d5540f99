"""Keeps a deleted PodGroup, by its finalizer, while an unfinished pod names it.

Runs with the gate GenericWorkload. Source: `pkg/controller/scheduling/podgroupprotection`.
"""

from __future__ import annotations

from typing import Final

from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import PODS, Object
from minikube_py.controllers.base import ControllerContext
from minikube_py.controllers.views import TERMINAL_PHASES, PodView
from minikube_py.controllers.volume_protection import Protection
from minikube_py.controllers.volume_views import POD_GROUPS, WholeView

FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"


class GroupProtection(Protection):
    """Admission adds the finalizer; this controller only removes it."""

    name = "podgroup-protection-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context, POD_GROUPS, FINALIZER)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._pods.add_handler(Handler(on_update=self._changed, on_delete=self._left))

    def _seen(self, view: WholeView) -> None:
        if view.deleting and FINALIZER in view.finalizers:
            self._workers.queue.add(view.key)

    def _changed(self, old: PodView, new: PodView) -> None:
        if new.terminal and not old.terminal:
            self._left(new)

    def _left(self, pod: PodView) -> None:
        """Pod views do not keep their group's name, so check all groups being deleted: they are few."""
        for view in self._objects.store.values():
            if view.namespace == pod.namespace:
                self._seen(view)

    async def _is_used(self, view: WholeView) -> bool:
        async for page in self._client.pages(PODS, view.namespace):
            if any(_names(pod, view.name) for pod in page.items):
                return True
        return False


def _names(pod: Object, group: str) -> bool:
    named = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return named == group and (pod.get("status") or {}).get("phase") not in TERMINAL_PHASES
