"""Cluster IPs and node ports of services.

Each one in use is a key in the store (an address is the IPAddress of that name), written in the service's txn, so two
services never get the same, even through different API servers. Addresses come from ready ServiceCIDRs.

Source: `pkg/registry/core/service/storage/alloc.go`, `pkg/registry/core/service/{ipallocator,portallocator}`.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from minikube_py.api import services
from minikube_py.api.errors import Json, StatusError, Verbatim, go_json, internal, invalid, invalid_value
from minikube_py.api.kinds.core import SERVICES
from minikube_py.api.kinds.service_cidrs import IPADDRESSES, SERVICECIDRS, address_of, cidrs_of, is_ready
from minikube_py.api.meta import new_uid, timestamp
from minikube_py.api.validation.ips import parse_cidr
from minikube_py.apiserver.object_store import Claim, ObjectStore
from minikube_py.apiserver.preparing import encode
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Clock, Rng
from minikube_py.mvcc.types import RangeRequest, prefix_end

IP_PREFIX: Final = IPADDRESSES.prefix
PORT_PREFIX: Final = b"/registry/ranges/servicenodeports/"
DEFAULT_RANGE: Final = "10.0.0.0/24"
_PROBES: Final = 16


def addresses_of(service: Json) -> list[str]:
    spec = service.get("spec") or {}
    address = spec.get("clusterIP")
    return [address] if address and address != services.HEADLESS and spec.get("type") != "ExternalName" else []


def _node_ports(service: Json) -> list[int]:
    spec = service.get("spec") or {}
    ports = {port["nodePort"] for port in spec.get("ports") or () if port.get("nodePort")}
    if spec.get("healthCheckNodePort"):
        ports.add(spec["healthCheckNodePort"])
    return sorted(ports)


def held_keys(service: Json) -> set[bytes]:
    """The keys that a service holds."""
    keys = {IP_PREFIX + address.encode() for address in addresses_of(service)}
    return keys | {PORT_PREFIX + str(port).encode() for port in _node_ports(service)}


class AddressAllocator:
    """`network`: the value of the default ServiceCIDR."""

    def __init__(
        self, store: ObjectStore, cache: WatchCache, clock: Clock, rng: Rng, cluster_range: str = DEFAULT_RANGE
    ) -> None:
        self._store, self._cache, self._clock, self._rng = store, cache, clock, rng
        self.network = IPv4Network(cluster_range)

    def _networks(self) -> list[IPv4Network]:
        if SERVICECIDRS not in self._cache.caches:
            return [self.network]
        found = (entry.decode() for entry in self._cache.of(SERVICECIDRS).select(SERVICECIDRS.prefix))
        texts = dict.fromkeys(text for obj in found if is_ready(obj) for text in cidrs_of(obj))
        return [network for network in map(parse_cidr, texts) if isinstance(network, IPv4Network)]

    @property
    def first(self) -> str:
        """The address of the `kubernetes` service."""
        return str(self.network.network_address + 1)

    async def allocate(self, service: Json, held: set[bytes] | None = None, taken: Sequence[Claim] = ()) -> list[Claim]:
        """Fills in missing addresses and ports, and returns the claims still to be made.

        `held`: keys of its old state; `taken`: claims that failed in the last attempt. Raises: StatusError 422 if a
        requested one is out of range, 500 if none is left."""
        held = held or set()
        owner = SERVICES.key(service["metadata"]["namespace"], service["metadata"]["name"])
        if services.needs_cluster_ip(service):
            services.set_cluster_ip(service, await self._free_address(taken))
        for port in services.ports_without_node_port(service):
            port["nodePort"] = await self._free_port(taken, _node_ports(service))
        if services.needs_health_port(service["spec"]) and not service["spec"].get("healthCheckNodePort"):
            service["spec"]["healthCheckNodePort"] = await self._free_port(taken, _node_ports(service))
        self._check_range(service, held)
        return [Claim(key, self._claimed(key, service, owner)) for key in sorted(held_keys(service) - held)]

    def _claimed(self, key: bytes, service: Json, owner: bytes) -> bytes:
        if not key.startswith(IP_PREFIX):
            return owner
        obj = address_of(service, key.removeprefix(IP_PREFIX).decode())
        stamped = {"uid": new_uid(self._rng), "creationTimestamp": timestamp(self._clock.wall_s())}
        return encode({**obj, "metadata": {**obj["metadata"], **stamped}})

    def _check_range(self, service: Json, held: set[bytes]) -> None:
        for address in addresses_of(service):
            if IP_PREFIX + address.encode() in held:
                continue
            ip = IPv4Address(address)
            if not any(ip in n and ip not in (n.network_address, n.broadcast_address) for n in self._networks()):
                raise _refused_address(service, "the provided network does not match the current range")

    def explain(self, service: Json, taken: Sequence[Claim]) -> StatusError:
        """Why the request cannot be met."""
        for claim in taken:
            if claim.key.startswith(IP_PREFIX):
                return _refused_address(service, "provided IP is already allocated")
        port = int(taken[0].key.removeprefix(PORT_PREFIX))
        ports = service["spec"].get("ports") or []
        at = next((i for i, item in enumerate(ports) if item.get("nodePort") == port), 0)
        wrong = invalid_value(f"spec.ports[{at}].nodePort", port, "provided port is already allocated")
        return invalid(SERVICES, service["metadata"]["name"], [wrong])

    async def _free_address(self, taken: Sequence[Claim]) -> str:
        tried = {claim.key for claim in taken}
        networks = self._networks()
        for network in networks:
            # The default network's first address belongs to the service `kubernetes`.
            low, high = 2 if network == self.network else 1, network.num_addresses - 1
            for _ in range(_PROBES if low < high else 0):
                key = IP_PREFIX + str(network.network_address + self._rng.randrange(low, high)).encode()
                if key not in tried and await self._store.get(key) is None:
                    return key.removeprefix(IP_PREFIX).decode()
            used = tried | await self._used(IP_PREFIX)
            for offset in range(low, high):
                address = str(network.network_address + offset)
                if IP_PREFIX + address.encode() not in used:
                    return address
        raise internal(f"failed to allocate a serviceIP: range is full ({', '.join(map(str, networks)) or 'none'})")

    async def _free_port(self, taken: Sequence[Claim], own: list[int]) -> int:
        tried = {claim.key for claim in taken} | {PORT_PREFIX + str(port).encode() for port in own}
        low, high = services.NODE_PORT_FIRST, services.NODE_PORT_LAST
        for _ in range(_PROBES):
            port = self._rng.randint(low, high)
            key = PORT_PREFIX + str(port).encode()
            if key not in tried and await self._store.get(key) is None:
                return port
        used = tried | await self._used(PORT_PREFIX)
        for port in range(low, high + 1):
            if PORT_PREFIX + str(port).encode() not in used:
                return port
        raise internal(f"failed to allocate a nodePort: range is full ({low}-{high})")

    async def _used(self, prefix: bytes) -> set[bytes]:
        result = await self._store.range(RangeRequest(prefix, prefix_end(prefix), keys_only=True))
        return {kv.key for kv in result.kvs}


def _refused_address(service: Json, why: str) -> StatusError:
    addresses = service["spec"].get("clusterIPs") or addresses_of(service)
    text = f"failed to allocate IP {addresses[0]}: {why}"
    wrong = invalid_value("spec.clusterIPs", Verbatim(go_json(addresses)), text)
    return invalid(SERVICES, service["metadata"]["name"], [wrong])
