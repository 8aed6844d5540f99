"""Attaches volumes to the nodes of the pods that use them, by VolumeAttachments, and detaches them afterwards.

Only for nodes with the annotation `ATTACHES`, which kubelets set: it is loaded when the first one appears. Upstream
goes through all volumes every 100 ms; here a volume is looked at when its pods, claims, nodes or attachments change, or
when a wait ends.

Source: `pkg/controller/volume/attachdetach`, `pkg/volume/csi/csi_attacher.go`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.client.events import Involved
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import NODES, PODS, Object
from minikube_py.client.transport import STRATEGIC_MERGE_PATCH
from minikube_py.controllers.attachable import (
    ATTACH,
    DETACH,
    Attachable,
    Held,
    Operation,
    Wish,
    attachable_of,
    attachment_name,
    source_of,
    why_elsewhere,
)
from minikube_py.controllers.base import BY_CLAIM, BY_NODE, ControllerContext, QueueController, QueueWorkers, pod_claims
from minikube_py.controllers.views import NodeView, PodView
from minikube_py.controllers.volume_views import ATTACHMENTS, CLAIMS, CSI_DRIVERS, VOLUMES, WholeView
from minikube_py.errors import MinikubeError

UNMOUNT_WAIT_S: Final = 360.0
"""A volume that an unhealthy node still mounts is detached after this."""
OPERATION_TIMEOUT_S: Final = 120.0
WORKERS: Final = 64
"""Upstream has one for each volume: a slow answer about one holds up no other."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


class AttachDetach(QueueController):
    name = "persistentvolume-attach-detach-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client, self._clock = context.client, context.clock
        self._nodes: Informer[NodeView] = context.informers.of(NODES)
        self._pods: Informer[PodView] = context.informers.of(PODS)
        self._claims: Informer[WholeView] = context.informers.of(CLAIMS)
        self._volumes: Informer[WholeView] = context.informers.of(VOLUMES)
        self._drivers: Informer[WholeView] = context.informers.of(CSI_DRIVERS)
        self._attachments: Informer[WholeView] = context.informers.of(ATTACHMENTS)
        self._events = context.recorder("attachdetach-controller")
        # By volume, and by node: the writes of one node's list must not overtake each other.
        self._workers = QueueWorkers(context, self.name, self._sync, WORKERS)
        self._managed: dict[str, None] = {}
        self._in_use: dict[str, tuple[str, ...]] = {}
        self._written: dict[str, tuple[str, ...]] = {}
        """What the status of each node that is there may list; "" is among it until its last write was answered."""
        self._leaving: dict[str, dict[str, None]] = {}
        """By node: the volumes to be detached, which wait for it."""
        self._wishes: dict[str, dict[str, Wish]] = {}
        """By the volume's name and the node; so is `_held`."""
        self._wished_by: dict[str, list[tuple[str, str]]] = {}
        """By the pod's uid."""
        self._wished_at: dict[str, dict[str, None]] = {}
        """By node: the volumes that its pods use."""
        self._held: dict[str, dict[str, Held]] = {}
        self._held_at: dict[str, dict[str, None]] = {}
        """By node."""
        self._reported: dict[str, dict[str, None]] = {}
        """By node: the volumes that its status is to list."""
        self._operations: dict[str, dict[str, Operation]] = {}
        """By the volume's name, and the node unless one node at a time may have it."""
        self._volume_of: dict[str, str] = {}
        """The volume's name by that of its VolumeAttachment."""

    def start(self) -> None:
        self._workers.start()
        for node in sorted(self._nodes.store.values(), key=lambda view: view.name):
            for name in node.attached:
                self._hold(name, node.name, None, True)
                self._reported.setdefault(node.name, {})[name] = None
        for view in sorted(self._attachments.store.values(), key=lambda view: view.name):
            volume, node_name = self._attached_volume(view), view.obj["spec"]["nodeName"]
            if volume is not None and node_name not in self._held.get(volume.name, {}):
                self._hold(volume.name, node_name, volume, False)
        self._nodes.add_handler(Handler(self._node, lambda old, new: self._node(new), self._node_gone))
        self._claims.add_handler(Handler(self._claim, lambda old, new: self._claim(new)))
        self._volumes.add_handler(Handler(self._volume, lambda old, new: self._volume(new)))
        self._drivers.add_handler(Handler(self._driver, lambda old, new: self._driver(new), self._driver))
        changed = self._attachment
        self._attachments.add_handler(Handler(on_update=lambda old, new: changed(new), on_delete=changed))
        self._pods.add_handler(Handler(self._pod, lambda old, new: self._pod(new), self._forget))
        for name in self._held:
            self._look_at(name)

    # --- triggers ----------------------------------------------------------------------------------------------------

    def _look_at(self, name: str, after_s: float = 0.0) -> None:
        self._workers.queue.add_after(f"volume/{name}", after_s)

    def _node(self, node: NodeView) -> None:
        if node.name not in self._written:
            self._written[node.name] = node.attached
            self._workers.queue.add(f"node/{node.name}")
        self._in_use[node.name] = node.in_use
        for name in self._leaving.get(node.name, ()):
            self._look_at(name)
        if node.attaches and node.name not in self._managed:
            self._managed[node.name] = None
            for pod in self._pods.store.by_index(BY_NODE, node.name):
                self._pod(pod)

    def _node_gone(self, node: NodeView) -> None:
        self._written.pop(node.name, None)
        if not node.in_use:
            self._in_use.pop(node.name, None)
        self._forget_node(node.name)
        for name in self._leaving.get(node.name, ()):
            self._look_at(name)

    def _forget_node(self, name: str) -> None:
        """What is known of one that is gone, and no longer needed."""
        if name not in self._nodes.store:
            if name not in self._wished_at:
                self._managed.pop(name, None)
            if name not in self._held_at:
                self._in_use.pop(name, None)

    def _claim(self, claim: WholeView) -> None:
        for pod in self._pods.store.by_index(BY_CLAIM, claim.key):
            self._pod(pod)

    def _volume(self, volume: WholeView) -> None:
        if reference := volume.obj["spec"].get("claimRef"):
            for pod in self._pods.store.by_index(BY_CLAIM, f"{reference.get('namespace')}/{reference.get('name')}"):
                self._pod(pod)

    def _driver(self, driver: WholeView) -> None:
        """Whether its volumes are attached may have changed."""
        for pod in self._pods.store.values():
            if pod_claims(pod):
                self._pod(pod)
        if self._attaches(driver.name):
            return
        for wishes in [*self._wishes.values()]:
            for wish in [wish for wish in wishes.values() if wish.volume.driver == driver.name]:
                for pod in [*wish.pods.values()]:
                    self._forget(pod, wish.volume.name)

    def _attachment(self, view: WholeView) -> None:
        if name := self._volume_of.get(view.name):
            self._look_at(name)

    def _pod(self, pod: PodView) -> None:
        if pod.terminal:
            self._forget(pod)
        elif (pod.claims or pod.ephemeral) and pod.node in self._managed:
            for volume in self._volumes_of(pod):
                wishes = self._wishes.setdefault(volume.name, {})
                wish = wishes.setdefault(pod.node, Wish(volume))
                self._wished_at.setdefault(pod.node, {})[volume.name] = None
                if pod.uid not in wish.pods:
                    self._wished_by.setdefault(pod.uid, []).append((volume.name, pod.node))
                    self._look_at(volume.name)
                wish.volume, wish.pods[pod.uid] = volume, pod

    def _forget(self, pod: PodView, only: str = "") -> None:
        """`only`: this volume of the pod's; "" all."""
        wished = self._wished_by.pop(pod.uid, [])
        if kept := [(name, node) for name, node in wished if only and name != only]:
            self._wished_by[pod.uid] = kept
        for name, node in wished:
            if not only or name == only:
                wishes = self._wishes[name]
                del wishes[node].pods[pod.uid]
                if not wishes[node].pods:
                    del wishes[node]
                    _take_out(self._wished_at, node, name)
                    self._forget_node(node)
                if not wishes:
                    del self._wishes[name]
                self._look_at(name)

    # --- what pods use -----------------------------------------------------------------------------------------------

    def _volumes_of(self, pod: PodView) -> Iterator[Attachable]:
        """The attachable volumes of its bound claims."""
        made = {f"{pod.namespace}/{claim}" for _, claim, _ in pod.ephemeral}
        for key in pod_claims(pod):
            claim = self._claims.store.get(key)
            if claim is None or (claim.obj.get("status") or {}).get("phase") != "Bound":
                continue
            if key in made and (claim.controller is None or claim.controller.uid != pod.uid):
                continue
            view = self._volumes.store.get(claim.obj["spec"].get("volumeName") or "")
            if view is None or (view.obj["spec"].get("claimRef") or {}).get("uid") != claim.uid:
                continue
            volume = attachable_of(view.obj)
            if volume is not None and self._attaches(volume.driver):
                yield volume

    def _attaches(self, driver: str) -> bool:
        """Also if the driver is not known."""
        found = self._drivers.store.get(driver) if driver else None
        return found is None or found.obj["spec"].get("attachRequired") is not False

    def _attached_volume(self, attachment: WholeView) -> Attachable | None:
        named = attachment.obj["spec"]["source"].get("persistentVolumeName")
        view = self._volumes.store.get(named) if named else None
        return None if view is None else attachable_of(view.obj)

    # --- state -------------------------------------------------------------------------------------------------------

    def _hold(self, name: str, node: str, volume: Attachable | None, confirmed: bool) -> None:
        held = self._held.setdefault(name, {}).setdefault(node, Held(volume, confirmed))
        held.volume, held.confirmed = volume or held.volume, confirmed
        self._held_at.setdefault(node, {})[name] = None
        driver, handle = source_of(name)
        if driver:
            self._volume_of[attachment_name(driver, handle, node)] = name

    def _let_go(self, name: str, node: str) -> None:
        self._held.get(name, {}).pop(node, None)
        if not self._held.get(name, {"": None}):
            del self._held[name]
        _take_out(self._leaving, node, name)
        _take_out(self._held_at, node, name)
        self._forget_node(node)
        self._volume_of.pop(attachment_name(*source_of(name), node), None)
        if _take_out(self._reported, node, name):
            self._workers.queue.add(f"node/{node}")

    def _list(self, name: str, node: str) -> None:
        """In the node's status."""
        if name not in self._reported.setdefault(node, {}):
            self._reported[node][name] = None
            self._workers.queue.add(f"node/{node}")

    def _key(self, volume: Attachable | None, node: str) -> str:
        return "" if volume is not None and volume.exclusive else node

    def _may_begin(self, name: str, what: str, key: str) -> bool:
        """No operation is pending, and it is not to wait after a failure of its own."""
        last = self._operations.get(name, {}).get(key)
        if last is None:
            return True
        wait_s = last.retry_s - self._clock.monotonic_s()
        if not last.pending and last.what == what and wait_s > 0:
            self._look_at(name, wait_s)
            return False
        return not last.pending

    def _begin(self, name: str, what: str, node: str, volume: Attachable | None) -> Operation:
        driver, handle = (volume.driver, volume.handle) if volume is not None else source_of(name)
        attachment = attachment_name(driver, handle, node) if driver else ""
        begun = Operation(what, node, volume, attachment, self._clock.monotonic_s() + OPERATION_TIMEOUT_S)
        operations, key = self._operations.setdefault(name, {}), self._key(volume, node)
        if (last := operations.get(key)) is not None and last.what == what:
            begun.wait_s = last.wait_s
        operations[key] = begun
        if attachment:
            self._volume_of[attachment] = name
        return begun

    def _conclude(self, name: str, operation: Operation, why: str = "") -> None:
        """`why` it failed; "" if it succeeded."""
        node, wish = operation.node, self._wishes.get(name, {}).get(operation.node)
        pods = list(wish.pods.values()) if wish is not None else []
        if why:
            operation.fail(self._clock.monotonic_s())
            self._hold(name, node, operation.volume, False)
            self._look_at(name, operation.wait_s)
            if operation.what == ATTACH and operation.volume is not None:
                told = f'AttachVolume.Attach failed for volume "{operation.volume.volume}" : {why}'
                self._tell(pods, "Warning", "FailedAttachVolume", told)
            return
        operations = self._operations[name]
        del operations[self._key(operation.volume, node)]
        if not operations:
            del self._operations[name]
        if operation.what == DETACH:
            self._let_go(name, node)
            return
        assert operation.volume is not None
        self._hold(name, node, operation.volume, True)
        self._list(name, node)
        told = f'AttachVolume.Attach succeeded for volume "{operation.volume.volume}" '
        self._tell(pods, "Normal", "SuccessfulAttachVolume", told)

    def _tell(self, pods: list[PodView], kind: str, reason: str, told: str) -> None:
        for pod in pods:
            involved = Involved("Pod", pod.namespace, pod.name, pod.uid, resource_version=pod.resource_version)
            self._events.event(involved, kind, reason, told)

    # --- work --------------------------------------------------------------------------------------------------------

    async def _sync(self, key: str) -> None:
        what, _, name = key.partition("/")
        if what == "node":
            await self._report(name)
            return
        for operation in [*self._operations.get(name, {}).values()]:
            if operation.pending:
                self._watch(name, operation)
        self._check(name)
        # Detached first: of a volume for one node at a time, the next one waits.
        for node in sorted(self._held.get(name, {})):
            if node not in self._wishes.get(name, {}):
                await self._detach(name, node)
        for node in sorted(self._wishes.get(name, {})):
            await self._attach(name, node)

    def _watch(self, name: str, operation: Operation) -> None:
        found = self._attachments.store.get(operation.attachment)
        succeeded, why = operation.ended(None if found is None else found.obj)
        left_s = operation.ends_s - self._clock.monotonic_s()
        if not succeeded and not why and left_s <= 0:
            why = operation.late()
        if succeeded or why:
            self._conclude(name, operation, why)
        else:
            self._look_at(name, left_s)

    def _check(self, name: str) -> None:
        """A volume whose attachment went away is attached no more."""
        for node, held in [*self._held.get(name, {}).items()]:
            last = self._operations.get(name, {}).get(self._key(held.volume, node))
            if held.volume is None or not held.confirmed or (last is not None and last.pending):
                continue
            if held.volume.driver and self._attaches(held.volume.driver):
                found = self._attachments.store.get(held.volume.attachment(node))
                if found is None or not (found.obj.get("status") or {}).get("attached"):
                    self._let_go(name, node)

    async def _attach(self, name: str, node: str) -> None:
        wish = self._wishes.get(name, {}).get(node)
        if wish is None:
            return
        volume, held = wish.volume, self._held.get(name, {})
        last = self._operations.get(name, {}).get(self._key(volume, node))
        if last is not None and last.pending:
            return
        if node in held and held[node].confirmed:
            if held[node].volume is None:
                # Only the node's status listed it: now its attachment can be looked at, too.
                self._look_at(name)
            held[node].volume, held[node].leaving_s = volume, None
            _take_out(self._leaving, node, name)
            self._list(name, node)
            return
        others = [other for other in sorted(held) if held[other].confirmed]
        if volume.exclusive and others:
            if not wish.told:
                self._tell_of_others(wish, name, others)
            return
        if not self._may_begin(name, ATTACH, self._key(volume, node)):
            return
        operation, why = self._begin(name, ATTACH, node, volume), ""
        if not operation.attachment:
            self._conclude(name, operation)
            return
        if operation.attachment not in self._attachments.store:
            source = {"persistentVolumeName": volume.volume}
            spec = {"attacher": volume.driver, "nodeName": node, "source": source}
            try:
                await self._client.create(ATTACHMENTS, {"metadata": {"name": operation.attachment}, "spec": spec})
            except MinikubeError as error:
                if not isinstance(error, StatusError) or error.reason != "AlreadyExists":
                    why = f"kubernetes.io/csi: attacher.Attach failed: {error}"
        if why:
            self._conclude(name, operation, why)
        else:
            self._watch(name, operation)

    def _tell_of_others(self, wish: Wish, name: str, nodes: list[str]) -> None:
        wish.told = True
        wishes = self._wishes.get(name, {})
        others = [pod for node in nodes if node in wishes for pod in wishes[node].pods.values()]
        others.sort(key=lambda pod: pod.key)
        for pod in wish.pods.values():
            self._tell([pod], "Warning", "FailedAttachVolume", why_elsewhere(wish.volume.volume, pod, others))

    async def _detach(self, name: str, node: str) -> None:
        held = self._held[name][node]
        if not self._may_begin(name, DETACH, self._key(held.volume, node)):
            return
        now_s = self._clock.monotonic_s()
        if held.leaving_s is None:
            held.leaving_s = now_s
        self._leaving.setdefault(node, {})[name] = None
        left_s = held.leaving_s + UNMOUNT_WAIT_S - now_s
        view = self._nodes.store.get(node)
        healthy = view is not None and view.ready == "True"
        is_out = view is not None and any(taint.get("key") == OUT_OF_SERVICE for taint in view.taints)
        if name in self._in_use.get(node, ()) and not is_out and (healthy or left_s > 0):
            if left_s > 0:
                self._look_at(name, left_s)
            return
        # The node learns it first: from then on it does not mount the volume. Then it is looked at again.
        _take_out(self._reported, node, name)
        if name in self._written.get(node, ()):
            self._workers.queue.add(f"node/{node}")
            return
        operation = self._begin(name, DETACH, node, held.volume)
        try:
            why = "" if is_out or left_s <= 0 else await self._why_mounted(name, node)
            if not why and operation.attachment:
                await self._client.delete(ATTACHMENTS, operation.attachment)
                self._watch(name, operation)
                return
        except MinikubeError as error:
            why = "" if isinstance(error, StatusError) and error.code == 404 else str(error) or type(error).__name__
        self._conclude(name, operation, why)

    async def _why_mounted(self, name: str, node: str) -> str:
        """As the node says now, which the cache may not know. Raises: StatusError, Unavailable."""
        try:
            found = await self._client.get(NODES, node)
        except StatusError as error:
            if error.code != 404:
                raise
            return ""
        in_use = (found.get("status") or {}).get("volumesInUse") or ()
        return "volume is still in use by node, according to Node status" if name in in_use else ""

    async def _report(self, node: str) -> None:
        """Writes the node's list. Raises: StatusError, Unavailable."""
        names = tuple(sorted(self._reported.get(node, {})))
        if self._written.get(node, names) == names:
            return
        uid = self._uid(node)
        listed: list[Object] | None = [{"name": name, "devicePath": ""} for name in names] or None
        patch = {"status": {"volumesAttached": listed}}
        if uid:
            # It may be written before it is answered, or without an answer.
            self._written[node] = tuple(dict.fromkeys((*self._written[node], *names, "")))
        try:
            await self._client.patch(NODES, node, patch, content_type=STRATEGIC_MERGE_PATCH, subresource="status")
        except StatusError as error:
            if error.code != 404:
                raise
        # Another node of that name lists nothing yet.
        if uid and uid == self._uid(node):
            self._written[node] = names
        for name in self._leaving.get(node, ()):
            self._look_at(name)

    def _uid(self, node: str) -> str:
        view = self._nodes.store.get(node)
        return view.uid if view is not None else ""


def _take_out(by_node: dict[str, dict[str, None]], node: str, name: str) -> bool:
    """Whether it was there. A node without any is none."""
    names = by_node.get(node, {})
    was = names.pop(name, "") is None
    if not names:
        by_node.pop(node, None)
    return was
