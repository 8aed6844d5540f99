"""Volumes that are attached to nodes before they are mounted: their names, and the texts about them. Pure.

Source: `pkg/volume/csi`, `pkg/volume/fc`, `pkg/volume/iscsi`, `pkg/volume/util/operationexecutor`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from minikube_py.api.volume_translation import TranslationError, in_tree_of
from minikube_py.client.rest import Object
from minikube_py.controllers.views import PodView

ATTACH: Final = "attach"
DETACH: Final = "detach"
FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 122.0
_CSI: Final = "kubernetes.io/csi/"
_SHARED_MODES: Final = frozenset(("ReadWriteMany", "ReadOnlyMany"))


class Attachable(NamedTuple):
    """A PersistentVolume `volume`. `name`: as in a node's `status.volumesAttached`; `driver`: that of CSI, "" if
    nobody is asked to attach it; `exclusive`: it is attached to one node at a time."""

    name: str
    volume: str
    driver: str
    handle: str
    exclusive: bool

    def attachment(self, node: str) -> str:
        return attachment_name(self.driver, self.handle, node) if self.driver else ""


def attachment_name(driver: str, handle: str, node: str) -> str:
    return "csi-" + hashlib.sha256(f"{handle}{driver}{node}".encode()).hexdigest()


def attachable_of(volume: Object) -> Attachable | None:
    """None for volumes that are mounted without being attached, and for those of azureFile."""
    spec, name = volume["spec"], volume["metadata"]["name"]
    modes = spec.get("accessModes") or ()
    exclusive = bool(modes) and _SHARED_MODES.isdisjoint(modes)
    driver, handle = _csi_source(spec, volume["metadata"].get("labels") or {})
    if driver:
        return Attachable(f"{_CSI}{driver}^{handle}", name, driver, handle, exclusive)
    if (source := spec.get("fc")) is not None:
        unique = _fibre_channel_name(source)
        return Attachable(f"kubernetes.io/fc/{unique}", name, "", "", exclusive) if unique else None
    if (source := spec.get("iscsi")) is not None:
        unique = f"{source.get('targetPortal', '')}:{source.get('iqn', '')}:{source.get('lun') or 0}"
        return Attachable(f"kubernetes.io/iscsi/{unique}", name, "", "", exclusive)
    return None


def _csi_source(spec: Mapping[str, Any], labels: Mapping[str, str]) -> tuple[str, str]:
    """(driver, handle), also of in-tree volumes that a driver replaced; ("", "") for others."""
    if (source := spec.get("csi")) is not None:
        return source.get("driver") or "", source.get("volumeHandle") or ""
    found = in_tree_of(spec)
    if found is None:
        return "", ""
    plugin, source = found
    try:
        handle = plugin.handle(source, labels)
    except TranslationError:
        return "", ""
    return (plugin.driver, handle) if handle else ("", "")


def _fibre_channel_name(source: Mapping[str, Any]) -> str:
    """As Go prints its lists."""
    targets, wwids = source.get("targetWWNs") or (), source.get("wwids") or ()
    if targets and source.get("lun") is not None:
        return f"[{' '.join(targets)}]:{source['lun']}"
    return f"[{' '.join(wwids)}]" if wwids else ""


def source_of(name: str) -> tuple[str, str]:
    """(driver, handle) of a name in a node's status; ("", "") if nobody is asked to detach it."""
    if not name.startswith(_CSI):
        return "", ""
    driver, _, handle = name.removeprefix(_CSI).partition("^")
    return driver, handle


@dataclass(slots=True)
class Wish:
    """The pods of a node that use a volume, by uid. `told`: that another node has it."""

    volume: Attachable
    pods: dict[str, PodView] = field(default_factory=dict)
    told: bool = False


@dataclass(slots=True)
class Held:
    """A volume at a node. `volume`: None if only the node's status tells of it; `confirmed`: False after a failure,
    when it may be attached or not; `leaving_s`: since when it is to be detached, monotonic."""

    volume: Attachable | None
    confirmed: bool
    leaving_s: float | None = None


@dataclass(slots=True)
class Operation:
    """ATTACH or DETACH of a volume at a node, by a VolumeAttachment. `ends_s`: when it is given up; after a failure
    the next begins at `retry_s`, both monotonic."""

    what: str
    node: str
    volume: Attachable | None
    attachment: str
    ends_s: float
    pending: bool = True
    wait_s: float = 0.0
    retry_s: float = 0.0

    def fail(self, now_s: float) -> None:
        self.pending = False
        self.wait_s = min(LONGEST_WAIT_S, 2 * self.wait_s) or FIRST_WAIT_S
        self.retry_s = now_s + self.wait_s

    def ended(self, attachment: Object | None) -> tuple[bool, str]:
        """Whether it succeeded; else why it failed, "" while it goes on."""
        status = (attachment or {}).get("status") or {}
        if self.what == DETACH:
            return attachment is None, (status.get("detachError") or {}).get("message") or ""
        if attachment is not None and attachment["metadata"].get("deletionTimestamp"):
            return False, "volume attachment is being deleted"
        if status.get("attached"):
            return True, ""
        return False, (status.get("attachError") or {}).get("message") or ""

    def late(self) -> str:
        """Why it failed if nobody acted."""
        volume = self.volume
        driver = volume.driver if volume is not None and self.what == ATTACH else "unknown"
        handle = volume.handle if volume is not None else ""
        return f"timed out waiting for external-attacher of {driver} CSI driver to {self.what} volume {handle}"


def why_elsewhere(volume: str, pod: PodView, others: Sequence[PodView]) -> str:
    """The event for a pod whose volume is exclusively attached to another node, where `others` use it."""
    names = [other.name for other in others if other.namespace == pod.namespace]
    strangers = len(others) - len(names)
    if not others:
        why = "Volume is already exclusively attached to one node and can't be attached to another"
    elif not names:
        why = f"Volume is already used by {strangers} pod(s) in different namespaces"
    else:
        why = f"Volume is already used by pod(s) {', '.join(names)}"
        if strangers:
            why += f" and {strangers} pod(s) in different namespaces"
    return f'Multi-Attach error for volume "{volume}" {why}'
