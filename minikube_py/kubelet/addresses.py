"""Addresses of nodes and pods: one block per node, one address per pod. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

from minikube_py.errors import RequestError

USUAL_HOST_BITS: Final = 8
"""A /24 per node, as in kube-controller-manager; smaller if the nodes would not fit."""
FEWEST_HOST_BITS: Final = 7
"""110 pods, the usual limit of a node, fit into a /25."""


def _network(text: str) -> ipaddress.IPv4Network:
    try:
        return ipaddress.IPv4Network(text)
    except ValueError as error:
        raise RequestError(f"not an IPv4 network: {text!r}: {error}") from error


def text_of(address: int) -> str:
    return f"{address >> 24}.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}"


class Block:
    """The pod addresses of one node. The network's own address and the broadcast address are not given out."""

    __slots__ = ("_next", "_used", "base", "prefix_bits", "size")

    def __init__(self, base: int, host_bits: int) -> None:
        self.base = base
        self.size = 1 << host_bits
        self.prefix_bits = 32 - host_bits
        self._used: set[int] = set()
        self._next = 1

    @property
    def cidr(self) -> str:
        return f"{text_of(self.base)}/{self.prefix_bits}"

    def emptied(self) -> Block:
        """The same addresses, none in use."""
        return Block(self.base, 32 - self.prefix_bits)

    @property
    def used(self) -> int:
        return len(self._used)

    def take(self) -> str | None:
        """The free address that was released longest ago; None if all are in use."""
        for _ in range(self.size - 2):
            offset = self._next
            self._next = offset % (self.size - 2) + 1
            if offset not in self._used:
                self._used.add(offset)
                return text_of(self.base + offset)
        return None

    def reserve(self, address: str) -> None:
        """Marks an address found in use; ignores addresses outside the block."""
        offset = self._offset(address)
        if offset is not None:
            self._used.add(offset)

    def give_back(self, address: str) -> None:
        offset = self._offset(address)
        if offset is not None:
            self._used.discard(offset)

    def _offset(self, address: str) -> int | None:
        try:
            offset = int(ipaddress.IPv4Address(address)) - self.base
        except ValueError:
            return None
        return offset if 0 < offset < self.size - 1 else None


def _kept_blocks(network: ipaddress.IPv4Network, service_cidr: str | None, host_bits: int) -> range:
    """The numbers of the blocks of `network` that hold addresses of services."""
    services = _network(service_cidr) if service_cidr else None
    if services is None or not network.overlaps(services):
        return range(0)
    base = int(network.network_address)
    first = max(0, int(services.network_address) - base) >> host_bits
    last = min(int(services.broadcast_address) - base, network.num_addresses - 1) >> host_bits
    return range(first, last + 1)


def _free_blocks(network: ipaddress.IPv4Network, service_cidr: str | None, host_bits: int) -> int:
    return (network.num_addresses >> host_bits) - len(_kept_blocks(network, service_cidr, host_bits))


def shares_that_fit(pod_cidr: str, node_cidr: str, nodes: int, service_cidr: str | None, most: int) -> int:
    """How many processes of `nodes` nodes each find room for their blocks and addresses; at most `most`."""
    blocks = _free_blocks(_network(pod_cidr), service_cidr, FEWEST_HOST_BITS)
    return min(most, min(blocks, _network(node_cidr).num_addresses - 2) // max(1, nodes))


class AddressPlan:
    """Hands out blocks to nodes.

    Shares of several processes take every `share_count`-th block, so they never overlap. Blocks with addresses of
    `service_cidr` are not used."""

    def __init__(
        self,
        pod_cidr: str,
        node_cidr: str,
        nodes: int,
        *,
        share_index: int = 0,
        share_count: int = 1,
        service_cidr: str | None = None,
    ) -> None:
        network, hosts = _network(pod_cidr), _network(node_cidr)
        host_bits = USUAL_HOST_BITS
        while _free_blocks(network, service_cidr, host_bits) < nodes * share_count and host_bits > FEWEST_HOST_BITS:
            host_bits -= 1
        self._blocks = network.num_addresses >> host_bits
        free = _free_blocks(network, service_cidr, host_bits)
        if free < max(1, nodes * share_count) or hosts.num_addresses < nodes * share_count + 2:
            raise RequestError(
                f"{nodes} nodes in each of {share_count} processes do not fit into {pod_cidr} and {node_cidr}: "
                f"at least {1 << FEWEST_HOST_BITS} pod addresses and one node address each are needed"
            )
        self._host_bits = host_bits
        self._base = int(network.network_address)
        self._hosts = int(hosts.network_address)
        self._hosts_count = hosts.num_addresses
        self._taken: set[int] = set(_kept_blocks(network, service_cidr, host_bits))
        self._next = share_index
        self._step = share_count

    def block_of(self, cidr: str) -> Block:
        """Reserves a node's existing block. Raises: RequestError."""
        network = _network(cidr)
        base = int(network.network_address)
        first = (base - self._base) >> self._host_bits
        last = (int(network.broadcast_address) - self._base) >> self._host_bits
        # It may be a larger block from when there were fewer nodes.
        self._taken.update(range(max(0, first), min(self._blocks, last + 1)))
        return Block(base, 32 - network.prefixlen)

    def new_block(self) -> Block:
        """Raises: RequestError if all are in use."""
        while self._next in self._taken:
            self._next += self._step
        if self._next >= self._blocks:
            raise RequestError(f"all {self._blocks} blocks of pod addresses are accepted")
        number = self._next
        self._taken.add(number)
        self._next += self._step
        return Block(self._base + (number << self._host_bits), self._host_bits)

    def host_address(self, block: Block) -> str:
        """The address of the node with this block."""
        number = (block.base - self._base) >> self._host_bits
        return text_of(self._hosts + 1 + number % (self._hosts_count - 2))
