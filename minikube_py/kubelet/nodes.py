"""The nodes that this process plays: registered, adopted, kept alive by leases and status heartbeats."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from minikube_py.api.errors import StatusError
from minikube_py.api.meta import micro_timestamp
from minikube_py.client.backoff import Backoff
from minikube_py.client.events import timestamp
from minikube_py.client.informer import Handler, Informer, InformerFactory
from minikube_py.client.rest import LEASES, NODES, Object, RestClient, path_of, status_error
from minikube_py.client.sharing import shared_labels
from minikube_py.client.transport import JSON, STRATEGIC_MERGE_PATCH, ApiResponse, put_all
from minikube_py.env import Clock, Rng
from minikube_py.errors import InvalidRequest, MinikubeError, OutcomeUnknown, RequestError, Unavailable
from minikube_py.kubelet import node_status
from minikube_py.kubelet.addresses import AddressPlan, Block, shares_that_fit
from minikube_py.kubelet.admission import Texts
from minikube_py.kubelet.config import SLOTS_MAX, KubeletConfig, NodeSpec
from minikube_py.kubelet.heartbeats import Round, batches
from minikube_py.kubelet.pod_status import is_ready
from minikube_py.kubelet.writes import Write, Writer

logger = logging.getLogger(__name__)

REGISTRATIONS_AT_ONCE: Final = 64
REGISTRATION_ATTEMPTS: Final = 10
_VERSION: Final = b'"resourceVersion":"'


@dataclass(slots=True, eq=False)
class NodeView:
    uid: str
    name: str
    pod_cidr: str
    address: str
    ready: bool
    allocatable: Texts
    extended: Texts
    """Capacity of extended resources."""


def project_node(obj: Object) -> NodeView:
    metadata, status = obj["metadata"], obj.get("status") or {}
    address = next((a["address"] for a in status.get("addresses") or () if a.get("type") == "InternalIP"), "")
    cidr = (obj.get("spec") or {}).get("podCIDR", "")
    most = shared_labels(status.get("allocatable"))
    extended = {name: amount for name, amount in (status.get("capacity") or {}).items() if "/" in name}
    return NodeView(
        metadata["uid"], metadata["name"], cidr, address, is_ready(status), most, shared_labels(extended)
    )


@dataclass(slots=True, eq=False)
class PlayedNode:
    """A node that this process plays. `lease_version` "": the lease is not known to exist.

    A node created by others is claimed by creating its lease; the API server refuses earlier writes, and `unsaid` keeps
    them by path."""

    name: str
    uid: str
    address: str
    block: Block
    lease_version: str = ""
    claimed: bool = False
    unsaid: dict[str, Write] = field(default_factory=dict)
    lease_path: str = field(init=False)

    def __post_init__(self) -> None:
        self.lease_path = path_of(LEASES, node_status.LEASE_NAMESPACE, self.name)


Registered = Callable[[int, int], None]
"""Called after each registration: how many nodes are played, and the target."""


class KnownLease(NamedTuple):
    """A lease that predates this process."""

    version: str
    duration_s: int


class Nodes:
    """`on_played(node)` is called for each node that begins to be played, `on_lost(node)` when it is gone."""

    def __init__(
        self,
        client: RestClient,
        clock: Clock,
        rng: Rng,
        config: KubeletConfig,
        writer: Writer,
        on_played: Callable[[PlayedNode], None],
        on_lost: Callable[[PlayedNode], None],
        on_registered: Registered,
        informers: InformerFactory,
    ) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._config = config
        self._writer = writer
        self._on_played = on_played
        self._on_lost = on_lost
        self._on_registered = on_registered
        self._low, self._high = config.share.bounds
        self._whole = config.share.count == 1
        self._of_slot = None if config.slot is None else frozenset(spec.name for spec in config.nodes)
        self.played: dict[str, PlayedNode] = {}
        self._silent: dict[str, PlayedNode] = {}
        self._to_silence = set(config.down)
        self._own: set[str] = {spec.name for spec in config.nodes if self._is_mine(spec.name)}
        self._addresses = address_plan(config, len(self._own))
        self.informer: Informer[NodeView] = informers.make(NODES, project_node)
        self.informer.add_handler(Handler(on_add=self._seen, on_update=self._changed, on_delete=self._gone))
        self._known_leases: dict[str, KnownLease] = {}
        self._leases = Round(clock, self.renew_interval_s, self._renew, config.renew_interval_s)
        self._statuses = Round(clock, lambda: config.status_interval_s * self._stretch(), self._beat)
        self.renewals = self.renewal_failures = 0

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when the configured nodes are registered. Raises: StatusError, RequestError, Unavailable."""
        self._known_leases = await self._list_leases()
        self.informer.start()
        await self.informer.wait_synced()
        # The rest belong to missing or foreign nodes.
        self._known_leases = {}
        if self._config.heartbeats:
            self._leases.start()
            if not self._config.bare_nodes:
                self._statuses.start()
        await self.register(self._config.nodes)

    async def stop(self) -> None:
        await self._leases.stop()
        await self._statuses.stop()
        await self.informer.stop()

    def _is_mine(self, name: str) -> bool:
        if self._of_slot is not None:
            return name in self._of_slot
        return self._whole or self._low <= zlib.crc32(name.encode()) < self._high

    def _stretch(self) -> float:
        # The number of slots is unknown; the number of nodes is known.
        share = self._config.share
        nodes = len(self.played) * share.count if self._of_slot is None else len(self.informer.store)
        return max(1.0, nodes / self._config.heartbeat_nodes)

    def renew_interval_s(self) -> float:
        return self._config.renew_interval_s * self._stretch()

    def lease_duration_s(self) -> int:
        """Stretched with the interval; the node lifecycle controller adapts its timeout to the lease."""
        return round(self._config.lease_duration_s * self._stretch())

    # --- registration -----------------------------------------------------------------------------------------------

    async def register(self, specs: Iterable[NodeSpec]) -> None:
        """Creates the nodes of this process's share; takes over existing ones.

        Raises: StatusError where a node is refused, RequestError where addresses run out, Unavailable."""
        mine = [spec for spec in specs if self._is_mine(spec.name)]
        self._own.update(spec.name for spec in mine)
        for spec in mine:
            if (view := self.informer.store.get(spec.name)) is not None:
                self._seen(view)
        missing = [spec for spec in mine if spec.name not in self.played and spec.name not in self._silent]
        specs_left = iter(missing)

        async def worker() -> None:
            for spec in specs_left:
                await self._register_one(spec)
                self._on_registered(len(self.played), len(self._own))

        workers = min(REGISTRATIONS_AT_ONCE, len(missing))
        outcomes = await asyncio.gather(*(worker() for _ in range(workers)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _register_one(self, spec: NodeSpec) -> None:
        block = self._addresses.new_block()
        address = self._addresses.host_address(block)
        version = self._config.kubelet_version
        now = "" if self._config.bare_nodes else timestamp(self._clock.wall_s())
        body = node_status.new_node(spec, block.cidr, address, version, now)
        backoff = Backoff(self._rng)
        for attempt in range(REGISTRATION_ATTEMPTS):
            try:
                response = await self._client.transport.request("POST", path_of(NODES), None, body)
            except (Unavailable, OutcomeUnknown):
                # The name is ours: if the first attempt succeeded, the retry finds the node.
                if attempt == REGISTRATION_ATTEMPTS - 1:
                    raise
                await self._clock.sleep(backoff.next_s())
                continue
            if response.status < 300:
                # Played from now on; the informer delivers its uid.
                self._play(PlayedNode(spec.name, "", address, block, claimed=True))
                return
            error = status_error(response.status, response.body)
            if error.reason == "AlreadyExists":
                return
            last = attempt == REGISTRATION_ATTEMPTS - 1
            if (error.code != 429 and error.code < 500) or (last and error.code != 500):
                raise error
            await self._clock.sleep(backoff.next_s())
        logger.error("node %s is registered only by a later start: %s", spec.name, error)

    def _play(self, node: PlayedNode) -> None:
        known = self.played.get(node.name)
        if known is not None:
            known.uid = known.uid or node.uid
            return
        self.played[node.name] = node
        lease = self._known_leases.pop(node.name, None)
        if lease is not None:
            # Usually from before a restart of this process.
            node.lease_version, node.claimed = lease.version, True
        if node.name in self._to_silence:
            self._to_silence.discard(node.name)
            self._silent[node.name] = self.played.pop(node.name)
            return
        # The node lifecycle controller waits no longer than the lease duration, and briefly without a lease.
        self._leases.add(node.name, soon=lease is None or lease.duration_s < self.lease_duration_s())
        self._statuses.add(node.name)
        if node.claimed:
            self._on_played(node)
        else:
            self._claim(node)

    def plays(self, name: str) -> bool:
        return name in self.played or name in self._silent

    @property
    def silent(self) -> frozenset[str]:
        return frozenset(self._silent)

    def power_off(self, name: str) -> None:
        """See FakeKubelet.power_off."""
        if name in self._silent:
            return
        node = self.played.pop(name, None)
        if node is None:
            raise InvalidRequest(f"no simulated node is named {name}")
        self._silent[name] = node
        self._leases.discard(name)
        self._statuses.discard(name)
        self._on_lost(node)

    def power_on(self, name: str) -> None:
        """See FakeKubelet.power_on."""
        node = self._silent.pop(name, None)
        if node is None:
            return
        # Recompute addresses in use: pods may have been deleted.
        node.block = node.block.emptied()
        self._play(node)
        view = self.informer.store.get(name)
        if view is not None and not view.ready:
            self._revive(view, node)

    def power_on_all(self) -> None:
        for name in list(self._silent):
            self.power_on(name)

    # --- what the informer sees -------------------------------------------------------------------------------------

    def _seen(self, view: NodeView) -> None:
        if view.name in self._silent:
            return
        if not self._is_mine(view.name):
            self._keep_off(view)
            return
        if not (self._config.manage_all_nodes or view.name in self._own):
            return
        played = self.played.get(view.name)
        if played is not None:
            played.uid = view.uid
        else:
            try:
                block = self._addresses.block_of(view.pod_cidr) if view.pod_cidr else self._addresses.new_block()
            except RequestError as error:
                logger.error("node %s is not played: %s", view.name, error)
                return
            address = view.address or self._addresses.host_address(block)
            played = PlayedNode(view.name, view.uid, address, block)
            self._play(played)
            if not view.pod_cidr:
                self._give_cidr(played)
        if not view.ready and view.name not in self._silent:
            self._revive(view, played)
        self._offer(view, view, played)

    def _keep_off(self, view: NodeView) -> None:
        """Blocks may have been assigned under another slot layout: do not reuse those of other nodes."""
        if self._of_slot is not None and view.pod_cidr:
            try:
                self._addresses.block_of(view.pod_cidr)
            except RequestError as error:
                logger.debug("node %s: %s", view.name, error)

    def _changed(self, old: NodeView, new: NodeView) -> None:
        played = self.played.get(new.name)
        if played is None:
            self._seen(new)
            return
        played.uid = new.uid
        if old.ready and not new.ready:
            self._revive(new, played)
        self._offer(old, new, played)

    def _gone(self, view: NodeView) -> None:
        self._own.discard(view.name)
        self._silent.pop(view.name, None)
        played = self.played.pop(view.name, None)
        if played is not None:
            self._leases.discard(view.name)
            self._statuses.discard(view.name)
            self._on_lost(played)

    def _revive(self, view: NodeView, node: PlayedNode) -> None:
        """Reports the node as healthy: after adoption, or when it was marked as lost."""
        if self._config.bare_nodes:
            return
        now = timestamp(self._clock.wall_s())
        version = self._config.kubelet_version
        body = node_status.adopted_status(node.name, view.uid, node.address, version, now, bool(view.allocatable))
        self._say(node, Write("PATCH", path_of(NODES, "", node.name, "status"), body, STRATEGIC_MERGE_PATCH, _report))

    def _offer(self, old: NodeView, new: NodeView, node: PlayedNode) -> None:
        """Of an extended resource that somebody advertises as capacity, all can be allocated.

        Source: kubelet `pkg/kubelet/nodestatus/setters.go` (MachineInfo)."""
        most, raised = new.allocatable, old.allocatable == new.allocatable
        found: dict[str, str | None] = {
            name: amount
            for name, amount in new.extended.items()
            if name not in most or (raised and old.extended.get(name) != amount)
        }
        found |= {name: None for name in old.extended if name not in new.extended and name in most}
        if found and node.claimed and not self._config.bare_nodes:
            body = orjson.dumps({"metadata": {"uid": node.uid}, "status": {"allocatable": found}})
            path = path_of(NODES, "", node.name, "status")
            self._writer.put(Write("PATCH", path, body, STRATEGIC_MERGE_PATCH, _report))

    def _give_cidr(self, node: PlayedNode) -> None:
        spec = {"podCIDR": node.block.cidr, "podCIDRs": [node.block.cidr]}
        body = orjson.dumps({"metadata": {"uid": node.uid}, "spec": spec})
        self._say(node, Write("PATCH", path_of(NODES, "", node.name), body, STRATEGIC_MERGE_PATCH, _report))

    # --- claims -----------------------------------------------------------------------------------------------------

    def _say(self, node: PlayedNode, write: Write) -> None:
        if node.claimed:
            self._writer.put(write)
        else:
            node.unsaid[write.path] = write

    def _claim(self, node: PlayedNode) -> None:
        """Creates the lease; if one exists by now, the next renewal takes it over or waits for its expiry."""
        now = micro_timestamp(self._clock.wall_s())
        body = node_status.lease(node.name, node.uid, "", self.lease_duration_s(), now)

        def made(response: ApiResponse) -> None:
            if response.status < 300:
                node.lease_version = version_of(response.body)
                self._claimed(node)

        self._writer.put(Write("POST", path_of(LEASES, node_status.LEASE_NAMESPACE), body, JSON, made))

    def _claimed(self, node: PlayedNode) -> None:
        if node.claimed or self.played.get(node.name) is not node:
            return
        node.claimed = True
        for write in node.unsaid.values():
            self._writer.put(write)
        node.unsaid.clear()
        self._on_played(node)

    def _unclaimed(self, node: PlayedNode) -> None:
        """Another kubelet holds the lease: its pods are not ours to run."""
        if node.claimed:
            logger.warning("node %s is another kubelet's: its lease is refused", node.name)
            node.claimed = False
            self._on_lost(node)

    # --- heartbeats -------------------------------------------------------------------------------------------------

    async def _renew(self, names: Sequence[str]) -> None:
        renew_time = micro_timestamp(self._clock.wall_s())
        duration_s = self.lease_duration_s()
        for nodes in batches([self.played[name] for name in names if name in self.played]):
            await self._renew_together(nodes, duration_s, renew_time)

    async def _renew_together(self, nodes: Sequence[PlayedNode], duration_s: int, renew_time: str) -> None:
        """Updates the leases at the versions last seen, or creates them. A failure is retried at the next turn."""
        again = [(node, False) for node in nodes if not node.lease_version]
        seen = [node for node in nodes if node.lease_version]
        body = node_status.lease
        leases = [(n.lease_path, body(n.name, n.uid, n.lease_version, duration_s, renew_time)) for n in seen]
        for node, answer in zip(seen, await put_all(self._client.transport, leases)):
            if isinstance(answer, MinikubeError):
                self.renewal_failures += 1
            elif answer.status in (404, 409):
                again.append((node, True))
            else:
                self._renewed(node, answer)
        if again:
            await asyncio.gather(*(self._renew_one(node, stale, duration_s, renew_time) for node, stale in again))

    async def _renew_one(self, node: PlayedNode, stale: bool, duration_s: int, renew_time: str) -> None:
        """`stale`: the lease is deleted, or was written by another."""
        try:
            response = None if stale else await self._write_lease(node, duration_s, renew_time)
            if response is None or response.status in (404, 409):
                # It may exist: created before a restart or by another process.
                node.lease_version = await self._lease_version(node)
                response = await self._write_lease(node, duration_s, renew_time)
        except MinikubeError:
            self.renewal_failures += 1
            return
        self._renewed(node, response)

    def _renewed(self, node: PlayedNode, response: ApiResponse) -> None:
        if response.status < 300:
            node.lease_version = version_of(response.body)
            self.renewals += 1
            if not node.claimed:
                self._claimed(node)
        else:
            if response.status == 403:
                self._unclaimed(node)
            node.lease_version = ""
            self.renewal_failures += 1

    async def _write_lease(self, node: PlayedNode, duration_s: int, renew_time: str) -> ApiResponse:
        transport, version = self._client.transport, node.lease_version
        body = node_status.lease(node.name, node.uid, version, duration_s, renew_time)
        if version:
            return await transport.request("PUT", node.lease_path, None, body)
        return await transport.request("POST", path_of(LEASES, node_status.LEASE_NAMESPACE), None, body)

    async def _list_leases(self) -> dict[str, KnownLease]:
        """Of all nodes, by page: cheaper than individual reads. Raises: StatusError, Unavailable."""
        found: dict[str, KnownLease] = {}
        async for page in self._client.pages(LEASES, node_status.LEASE_NAMESPACE):
            for lease in page.items:
                metadata, duration_s = lease["metadata"], (lease.get("spec") or {}).get("leaseDurationSeconds")
                if self._is_mine(metadata["name"]):
                    found[metadata["name"]] = KnownLease(metadata["resourceVersion"], duration_s or 0)
        return found

    async def _lease_version(self, node: PlayedNode) -> str:
        """ "" where there is no lease."""
        response = await self._client.transport.request("GET", node.lease_path)
        return version_of(response.body) if response.status == 200 else ""

    async def _beat(self, names: Sequence[str]) -> None:
        body = node_status.heartbeat(timestamp(self._clock.wall_s()))

        async def one(name: str) -> None:
            path = path_of(NODES, "", name, "status")
            try:
                await self._client.transport.request("PATCH", path, None, body, STRATEGIC_MERGE_PATCH)
            except MinikubeError as error:
                logger.debug("status of node %s: %s", name, error)

        for nodes in batches([name for name in names if name in self.played]):
            await asyncio.gather(*map(one, nodes))

    def metrics(self) -> dict[str, float]:
        return {
            "kubelet_nodes": len(self.played),
            "kubelet_lease_renewals_total": self.renewals,
            "kubelet_lease_renewal_failures_total": self.renewal_failures,
            "kubelet_heartbeat_late_seconds": self._leases.late_s,
        }


def address_plan(config: KubeletConfig, nodes: int) -> AddressPlan:
    """The blocks of this process. Raises: RequestError if its nodes do not fit."""
    index, count = config.share.index, config.share.count
    if config.slot is not None:
        # All slots of this size must compute the same count without knowing how many are in use.
        nodes, index = config.slot_nodes, config.slot
        count = shares_that_fit(config.pod_cidr, config.node_cidr, nodes, config.service_cidr, SLOTS_MAX)
        if index >= count:
            raise RequestError(
                f"slot {index} of {nodes} nodes each finds no room in {config.pod_cidr} and {config.node_cidr}: "
                f"{count} such processes do; start fewer, or each with fewer nodes"
            )
    return AddressPlan(
        config.pod_cidr,
        config.node_cidr,
        nodes,
        share_index=index,
        share_count=count,
        service_cidr=config.service_cidr,
    )


def version_of(body: bytes) -> str:
    """The resourceVersion of an object, not decoded: in what the API writes, metadata comes first; "" without one."""
    start = body.find(_VERSION)
    if start < 0:
        return ""
    start += len(_VERSION)
    return body[start : body.index(b'"', start)].decode()


def _report(response: ApiResponse) -> None:
    if response.status >= 400 and response.status not in (404, 409):
        error: StatusError = status_error(response.status, response.body)
        logger.warning("a node's status is refused: %s", error)
