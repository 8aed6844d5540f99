"""Registers the running API servers in the store; all of them update the endpoints of the `kubernetes` service.

A killed server's address goes when its lease expires; one that stops removes itself. The last address stays: an
endpoint that may come back is better than none.

Source: `pkg/controlplane/reconcilers/lease.go`. Unlike upstream, addresses include the port, as several servers may
share a host.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from minikube_py.api.errors import Json, StatusError
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import ENDPOINTS
from minikube_py.api.kinds.discovery import ENDPOINTSLICES
from minikube_py.api.validation.ips import validate_endpoint_ip
from minikube_py.apiserver.system import attempt
from minikube_py.apiserver.writes import Writer
from minikube_py.env import Clock, ended
from minikube_py.errors import LeaseNotFound, MinikubeError, NoSpace
from minikube_py.mvcc.types import Put, RangeRequest, prefix_end
from minikube_py.store.storage import Storage

log = logging.getLogger(__name__)
PREFIX: Final = b"/registry/masterleases/"
LEASE_TTL_S: Final = 15
INTERVAL_S: Final = 10.0
GOODBYE_S: Final = 2.0
"""How long a stopping server waits for deregistration; lease expiry does it too."""
_LABELS: Final = {"endpointslice.kubernetes.io/skip-mirror": "true"}


class EndpointReconciler:
    def __init__(self, storage: Storage, writer: Writer, clock: Clock) -> None:
        self._storage = storage
        self._writer = writer
        self._clock = clock
        self._key = b""
        self._lease = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int) -> None:
        """Raises: MinikubeError if the store does not answer."""
        self._key = PREFIX + f"{host}:{port}".encode()
        try:
            await self._announce()
        except NoSpace as error:
            # A full store must not block startup: clients need a server to free space. `_keep` retries.
            log.warning("the endpoint of this server is not announced: %s", error)
        await attempt("the endpoints of the API servers are not put right", self._reconcile())
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await ended(self._task)
        self._task = None
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._storage.lease_revoke(self._lease)
                await self._reconcile()
        except (MinikubeError, StatusError, TimeoutError) as error:
            log.info("the endpoint of this server remains until its lease ends: %s", error)

    async def _keep(self) -> None:
        while True:
            await self._clock.sleep(INTERVAL_S)
            try:
                if not await self._storage.lease_keep_alive(self._lease):
                    await self._announce()
                await attempt("the endpoints of the API servers could not be kept", self._reconcile())
            except MinikubeError as error:
                log.warning("the endpoints of the API servers could not be kept: %s", error)

    async def _announce(self) -> None:
        while True:
            self._lease = (await self._storage.lease_grant(LEASE_TTL_S)).id
            try:
                await self._storage.txn((), (Put(self._key, b"", self._lease),))
                return
            except LeaseNotFound:
                # Expired before use, on a stalled store.
                continue

    async def _reconcile(self) -> None:
        found = await self._storage.range(RangeRequest(PREFIX, prefix_end(PREFIX), keys_only=True))
        subsets = _subsets([kv.key.removeprefix(PREFIX).decode(errors="replace") for kv in found.kvs])
        if not subsets:
            return
        endpoints: Json = {"metadata": {"name": "kubernetes", "labels": dict(_LABELS)}, "subsets": subsets}
        await self._put_right(ENDPOINTS, endpoints, "subsets")
        await self._put_right(ENDPOINTSLICES, _slice(subsets[0]), "endpoints", "ports")

    async def _put_right(self, kind: Kind, wanted: Json, *parts: str) -> None:
        """Makes the object, or puts these parts of it right."""

        def readdress(old: Json) -> Json:
            return {**old, "metadata": dict(old["metadata"]), **{part: wanted[part] for part in parts}}

        try:
            await self._writer.change(kind, "default", "kubernetes", readdress)
        except StatusError as error:
            if error.code != 404:
                raise
            await self._create(kind, wanted)

    async def _create(self, kind: Kind, obj: Json) -> None:
        """Other servers may do so concurrently; the next round fixes omissions."""
        try:
            await self._writer.create_object(kind, "default", obj)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise


def _subsets(addresses: list[str]) -> list[Json]:
    """By port. A name that is no address and port is another's, and left out."""
    by_port: dict[int, list[str]] = {}
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not validate_endpoint_ip(host, "") and port.isdecimal() and 0 < int(port) < 1 << 16:
            by_port.setdefault(int(port), []).append(host)
    return [
        {
            "addresses": [{"ip": host} for host in sorted(hosts)],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }
        for port, hosts in sorted(by_port.items())
    ]


def _slice(subset: Json) -> Json:
    """The EndpointSlice beside the Endpoints; as upstream, of the first subset only."""
    addresses = [address["ip"] for address in subset["addresses"]]
    return {
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv6" if all(":" in text for text in addresses) else "IPv4", "ports": subset["ports"],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }  # fmt: skip
