"""Writes the condition PodGroupScheduled of PodGroups asynchronously."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.errors import MinikubeError
from minikube_py.scheduler.groups.state import POD_GROUPS, SCHEDULED, PodGroupView

if TYPE_CHECKING:
    from minikube_py.scheduler.scheduler import Scheduler

logger = logging.getLogger(__name__)


class GroupConditions:
    """One request per group at a time; of several results the last one is written. A group once scheduled stays so,
    whatever happens to later pods."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._wanted: dict[str, tuple[str, str, str]] = {}
        self._sent: dict[str, tuple[str, tuple[str, str, str]]] = {}
        self._sending: set[str] = set()

    def put(self, group: str, status: str, reason: str, message: str) -> None:
        view = self._view(group)
        if view is None:
            return
        uid, said = self._sent.get(group, ("", ("", "", "")))
        known = said if uid == view.uid else view.condition[:3] if view.condition is not None else None
        wanted = status, reason, message
        if known == wanted or (known is not None and known[0] == "True" and status != "True"):
            return
        self._wanted[group] = wanted
        self._sent[group] = view.uid, wanted
        if group not in self._sending:
            self._sending.add(group)
            self._scheduler.kinds.run(self._send(group))

    def forget(self, group: str) -> None:
        """The group's last pod is gone."""
        self._sent.pop(group, None)

    def _view(self, group: str) -> PodGroupView | None:
        found: PodGroupView | None = self._scheduler.kinds.of(POD_GROUPS).store.get(group)
        return found

    async def _send(self, group: str) -> None:
        try:
            while (wanted := self._wanted.pop(group, None)) is not None:
                view = self._view(group)
                if view is not None:
                    await self._patch(view, *wanted)
        except MinikubeError as error:
            # The group's next attempt writes it again.
            self._sent.pop(group, None)
            logger.warning("condition of pod group %s: %s", group, error)
        finally:
            self._sending.discard(group)

    async def _patch(self, view: PodGroupView, status: str, reason: str, message: str) -> None:
        old = view.condition
        now = datetime.fromtimestamp(self._scheduler.clock.wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition: dict[str, Any] = {
            "type": SCHEDULED,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": old[3] if old is not None and old[0] == status and old[3] else now,
        }
        if view.generation:
            condition["observedGeneration"] = view.generation
        written = {"$setElementOrder/conditions": [{"type": SCHEDULED}], "conditions": [condition]}
        namespace, _, name = view.key.partition("/")
        ref = POD_GROUPS.resource
        path = f"/apis/{ref.group}/{ref.version}/namespaces/{namespace}/{ref.plural}/{name}/status"
        body = orjson.dumps({"metadata": {"uid": view.uid}, "status": written})
        await self._scheduler.client.raw("PATCH", path, None, body, STRATEGIC_MERGE_PATCH)
