"""The scheduler's view of storage, shared by the plugins of all profiles, including assumed objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from minikube_py.api import volume_translation as translation
from minikube_py.client.informer import Handler
from minikube_py.client.store import ObjectStore
from minikube_py.scheduler.volumes.assumed import AssumedObjects
from minikube_py.scheduler.volumes.views import (
    ATTACHMENTS,
    BY_CLASS,
    BY_NODE,
    CAPACITIES,
    CLAIMS,
    CLASSES,
    DRIVERS,
    NODE_DRIVERS,
    VOLUMES,
    AttachmentView,
    CapacityView,
    ClaimView,
    ClassView,
    DriverView,
    NodeDriversView,
    VolumeView,
    affinity_terms,
)

if TYPE_CHECKING:
    from minikube_py.scheduler.framework import Handle
    from minikube_py.scheduler.kinds import LentKinds
    from minikube_py.scheduler.plugins.node_affinity import Term

ALL: Final = (VOLUMES, CLAIMS, CLASSES, NODE_DRIVERS, DRIVERS, CAPACITIES, ATTACHMENTS)


class Storage:
    """`volumes` and `claims` include assumptions; their `served` returns the API server's objects."""

    def __init__(self, kinds: LentKinds) -> None:
        volumes, claims = kinds.of(VOLUMES), kinds.of(CLAIMS)
        self.volumes: AssumedObjects[VolumeView] = AssumedObjects(volumes.store)
        self.claims: AssumedObjects[ClaimView] = AssumedObjects(claims.store)
        self.classes: ObjectStore[ClassView] = kinds.of(CLASSES).store
        self.node_drivers: ObjectStore[NodeDriversView] = kinds.of(NODE_DRIVERS).store
        self.drivers: ObjectStore[DriverView] = kinds.of(DRIVERS).store
        self._capacities: ObjectStore[CapacityView] = kinds.of(CAPACITIES).store
        self._attachments: ObjectStore[AttachmentView] = kinds.of(ATTACHMENTS).store
        self._watchers: dict[Callable[[], None], None] = {}
        volumes.add_handler(self._handler(self.volumes))
        claims.add_handler(self._handler(self.claims))

    @staticmethod
    def of(handle: Handle) -> Storage:
        return handle.kinds.shared("storage", lambda: Storage(handle.kinds))

    def _handler(
        self, assumed: AssumedObjects[VolumeView] | AssumedObjects[ClaimView]
    ) -> Handler[VolumeView | ClaimView]:
        def changed(view: VolumeView | ClaimView) -> None:
            assumed.changed(view.key)

        return Handler(changed, lambda old, new: changed(new), changed, self._tell)

    def _tell(self) -> None:
        for told in list(self._watchers):
            told()

    def watch(self, told: Callable[[], None]) -> None:
        """Calls `told` whenever a volume or a claim changes."""
        self._watchers[told] = None

    def unwatch(self, told: Callable[[], None]) -> None:
        self._watchers.pop(told, None)

    def volumes_of_class(self, name: str) -> list[VolumeView]:
        return self.volumes.by_index(BY_CLASS, name)

    def capacities_of_class(self, name: str) -> list[CapacityView]:
        return self._capacities.by_index(BY_CLASS, name)

    def attachments_on(self, node: str) -> list[AttachmentView]:
        return self._attachments.by_index(BY_NODE, node)

    def terms_on(self, volume: VolumeView, node: str) -> tuple[Term, ...] | None:
        """The volume's node affinity for that node: in the driver's terms if a driver replaced the volume's plugin.
        Raises: TranslationError."""
        found = translation.in_tree_of(volume.obj["spec"])
        if found is None or not found[0].is_on:
            return volume.terms
        plugin, source = found
        drivers = self.node_drivers.get(node)
        if drivers is None or not drivers.has_migrated(plugin.plugin):
            return volume.terms
        plugin.handle(source, volume.obj["metadata"].get("labels") or {})
        if not plugin.topology_key:
            return volume.terms
        return affinity_terms(translation.translated_affinity(volume.obj, plugin.topology_key))
