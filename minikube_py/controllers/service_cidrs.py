"""ServiceCIDRs: ready once created, and kept by a finalizer while a service address belongs to no other one.

Source: k8s.io/kubernetes/pkg/controller/servicecidrs, pkg/api/servicecidr.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.service_cidrs import ALLOCATOR, FAMILY, MANAGED_BY, cidrs_of
from minikube_py.api.meta import timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import ADDRESSES, SERVICE_CIDRS, Object
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.volume_views import WholeView

FINALIZER: Final = "networking.k8s.io/service-cidr-finalizer"
GRACE_S: Final = 10.0
"""API servers may still allocate addresses for this long after the deletion."""
_READY: Final = ("True", "", "Kubernetes Service CIDR is ready")
_IN_USE: Final = (
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
)
_HELD: Final = ("False", "Terminating", _IN_USE)
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_Network = IPv4Network | IPv6Network


def _networks(view: WholeView) -> list[_Network]:
    return [ip_network(text) for text in cidrs_of(view.obj)]


def _contains(network: _Network, address: str) -> bool:
    """The network address, and for IPv4 the broadcast address, do not count."""
    found = ip_address(address)
    last = network.broadcast_address if network.version == 4 else None
    return found in network and found not in (network.network_address, last)


class ServiceCidrs(QueueController):
    name = "service-cidr-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client, self._clock = context.client, context.clock
        self._cidrs: Informer[WholeView] = context.informers.of(SERVICE_CIDRS)
        self._addresses: Informer[WholeView] = context.informers.of(ADDRESSES)
        self._workers = QueueWorkers(context, "service_cidrs", self.sync)
        add = self._workers.queue.add
        self._cidrs.add_handler(
            Handler(
                on_add=self._added, on_update=lambda old, new: add(new.name), on_delete=lambda gone: add(gone.name)
            )
        )
        self._addresses.add_handler(Handler(on_add=self._moved, on_delete=self._moved))

    def _added(self, added: WholeView) -> None:
        self._workers.queue.add(added.name)
        for other in self._cidrs.store.values():
            if any(a.overlaps(b) for a in _networks(added) for b in _networks(other) if a.version == b.version):
                self._workers.queue.add(other.name)

    def _moved(self, address: WholeView) -> None:
        if address.labels.get(MANAGED_BY) == ALLOCATOR:
            for holder in self._holders(address.name):
                self._workers.queue.add(holder.name)

    def _holders(self, address: str) -> Iterator[WholeView]:
        return (each for each in self._cidrs.store.values() if any(_contains(n, address) for n in _networks(each)))

    async def sync(self, name: str) -> None:
        found = self._cidrs.store.get(name)
        if found is None:
            return
        obj = found.obj
        finalizers = obj["metadata"].get("finalizers") or []
        began_s = parse_time_s(obj["metadata"].get("deletionTimestamp") or "")
        if began_s is None:
            if FINALIZER not in finalizers:
                await self._patch(name, {"metadata": {"finalizers": [FINALIZER]}})
            await self._tell(obj, _READY)
        elif not self._may_go(found):
            await self._tell(obj, _HELD)
        elif (left_s := began_s + GRACE_S - self._clock.wall_s()) > 0:
            self._workers.queue.add_after(name, left_s)
        elif FINALIZER in finalizers:
            await self._patch(name, {"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}})

    def _may_go(self, found: WholeView) -> bool:
        """Whether other CIDRs cover all of it, or no service address lies in it alone."""
        others = [n for each in self._cidrs.store.values() if each.name != found.name for n in _networks(each)]
        own = _networks(found)
        if all(any(n.version == o.version and n.subnet_of(o) for o in others) for n in own):  # type: ignore[arg-type]
            return True
        families = {f"IPv{network.version}" for network in own}
        for address in self._addresses.store.values():
            if address.labels.get(MANAGED_BY) != ALLOCATOR or address.labels.get(FAMILY) not in families:
                continue
            if [holder.name for holder in self._holders(address.name)] == [found.name]:
                return False
        return True

    async def _tell(self, obj: Object, told: tuple[str, str, str]) -> None:
        status, reason, message = told
        conditions = (obj.get("status") or {}).get("conditions") or ()
        for each in conditions:
            if each["type"] == "Ready" and (each["status"], each.get("reason") or "", each.get("message")) == told:
                return
        now = timestamp(self._clock.wall_s())
        condition = {"type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
        await self._patch(obj["metadata"]["name"], {"status": {"conditions": [condition]}}, "status")

    async def _patch(self, name: str, patch: Object, subresource: str = "") -> None:
        try:
            await self._client.patch(SERVICE_CIDRS, name, patch, content_type=_STRATEGIC, subresource=subresource)
        except StatusError as error:
            if error.code != 404:
                raise
