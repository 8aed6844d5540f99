"""Fake kubelets whose pods and nodes follow stages. Kinds without stages behave as usual: pods run at once, nodes are
Ready from the start."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from minikube_py.client.events import EventRecorder
from minikube_py.client.informer import Informer, InformerFactory, Selection
from minikube_py.client.rest import Object, RestClient
from minikube_py.client.transport import ApiTransport
from minikube_py.client.unreadable import unreadable_metrics
from minikube_py.env import Clock, Rng
from minikube_py.kubelet.config import KubeletConfig
from minikube_py.kubelet.fake import FakeKubelet
from minikube_py.kubelet.node_status import KUBELET_PORT
from minikube_py.kubelet.nodes import PlayedNode, Registered
from minikube_py.kubelet.stage_player import Counts, NotYet, StagePlayer, Tools
from minikube_py.kubelet.writes import Writer
from minikube_py.stages.go_values import Int
from minikube_py.stages.stage import NODE, POD, Ref
from minikube_py.stages.template import Door

logger = logging.getLogger(__name__)

COMPONENT: Final = "kubelet"
EVENTS_SALT_NS: Final = 500_000
"""In virtual time, events of one pod may share a nanosecond."""
VERSION: Final = "0.1.0"
_ENDED: Final = ("Succeeded", "Failed")


def time_text(wall_s: float) -> str:
    """RFC 3339 with as many digits of a second as it has, as Go's RFC3339Nano."""
    text = datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{text}Z"


class StagedKubelet(FakeKubelet):
    """`beyond`: a transport for writes beyond kubelet permissions, such as finalizers; None: the usual one."""

    def __init__(
        self,
        transport: ApiTransport,
        clock: Clock,
        rng: Rng,
        config: KubeletConfig,
        on_registered: Registered = lambda *_: None,
        beyond: ApiTransport | None = None,
        informers: InformerFactory | None = None,
    ) -> None:
        super().__init__(transport, clock, rng, config, on_registered, informers)
        assert config.stages is not None
        self._stages = config.stages
        self._counts = Counts()
        self._beyond = beyond or transport
        self._stage_writer = Writer(self._beyond, self._timers, rng, config.writes_at_once)
        self._recorder = EventRecorder(self._client, clock, rng, COMPONENT, salt_ns=EVENTS_SALT_NS)
        self._since = ""
        self._players: dict[Ref, StagePlayer] = {}
        self._ready: dict[str, PlayedNode] = {}
        """Nodes whose objects may be written."""
        self._taken: dict[str, tuple[str, str]] = {}
        """By the uid of a pod, its node and its address there."""

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """As FakeKubelet.start. Raises: RequestError also where there are stages for a kind that is not built in."""
        self._since = time_text(self._clock.wall_s())
        refs = [ref for ref in self._stages.refs() if ref in (POD, NODE) or self._plays_others()]
        for ref in refs:
            self._players[ref] = await self._player(ref)
        self._recorder.start()
        self._stage_writer.start()
        if POD in self._players:
            self._writer.start()
            await self._nodes.start()
        else:
            await super().start()
        for player in self._players.values():
            await player.start()

    async def stop(self) -> None:
        for player in self._players.values():
            await player.stop()
        await self._stage_writer.stop()
        await self._recorder.stop()
        await super().stop()

    async def _player(self, ref: Ref) -> StagePlayer:
        client = self._client if ref in (POD, NODE) else RestClient(self._beyond)
        tools = Tools(client, self._clock, self._rng, self._timers, self._stage_writer, self._recorder)
        selection = Selection(field_selector=await self._field_selector()) if ref == POD else Selection()
        cast = {POD: _Pods(self), NODE: _Nodes(self)}.get(ref) or _Others(self)
        return StagePlayer(ref, self._stages.of(ref), cast, tools, self._counts, selection)

    def _plays_others(self) -> bool:
        """Of several slot processes, one plays objects without a node."""
        return not self.config.slot

    def _informers(self) -> list[Informer[Any]]:
        return [*super()._informers(), *(player.informer for player in self._players.values())]

    def metrics(self) -> dict[str, float]:
        counts = self._counts
        return {
            **super().metrics(),
            **unreadable_metrics(informer.unreadable for informer in self._informers()),
            "kubelet_pods": len(self._players[POD]) if POD in self._players else len(self._played),
            "kubelet_writes_queued": len(self._writer) + len(self._stage_writer),
            "kubelet_stages_failed_total": counts.failed,
            "kubelet_stages_refused_total": counts.refused,
            "kubelet_stages_held_back_total": counts.held_back,
            **{f'kubelet_stages_played_total{{stage="{name}"}}': n for name, n in counts.played.items()},
        }

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _node_played(self, node: PlayedNode) -> None:
        self._ready[node.name] = node
        super()._node_played(node)
        self._look_again(node.name)

    def _node_lost(self, node: PlayedNode) -> None:
        self._ready.pop(node.name, None)
        super()._node_lost(node)
        self._look_again(node.name)

    def _look_again(self, name: str) -> None:
        if (pods := self._players.get(POD)) is not None:
            pods.look_again(name)
        nodes = self._players.get(NODE)
        if nodes is not None and (held := nodes.informer.store.get(name)) is not None:
            nodes.look_at(held.obj)

    # --- addresses --------------------------------------------------------------------------------------------------

    def pod_ip(self, pod: Object) -> str:
        """The pod's address, assigned on first use. Raises: NotYet if none is left."""
        uid, name = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        node = self._ready.get(name)
        if node is None:
            return ""
        if pod["spec"].get("hostNetwork"):
            return node.address
        taken = self._taken.get(uid)
        if taken is None:
            ip = (pod.get("status") or {}).get("podIP") or node.block.take()
            if ip is None:
                raise NotYet(f"node {name} has no address left")
            taken = self._taken[uid] = name, ip
        return taken[1]

    def node_ip(self, name: str) -> str:
        node = self._ready.get(name)
        return node.address if node is not None else ""

    def saw(self, pod: Object) -> None:
        """Its address stays reserved until it ends."""
        status = pod.get("status") or {}
        ip, uid = status.get("podIP"), pod["metadata"]["uid"]
        if status.get("phase") in _ENDED:
            self.give_back(pod)
        elif ip and uid not in self._taken and not pod["spec"].get("hostNetwork"):
            name = pod["spec"].get("nodeName", "")
            self._taken[uid] = name, ip
            if (node := self._ready.get(name)) is not None:
                node.block.reserve(ip)

    def give_back(self, pod: Object) -> None:
        name, ip = self._taken.pop(pod["metadata"]["uid"], ("", ""))
        node = self._ready.get(name)
        if node is not None:
            node.block.give_back(ip)

    # --- shares and what every template may ask ---------------------------------------------------------------------

    def plays_other(self, obj: Object) -> bool:
        low, high = self.config.share.bounds
        return low <= zlib.crc32(obj["metadata"]["name"].encode()) < high

    def is_played(self, node: str) -> bool:
        return node in self._ready

    def general_doors(self) -> dict[str, Door]:
        now = time_text(self._clock.wall_s())
        return {"Now": lambda: now, "StartTime": lambda: self._since, "Version": lambda: VERSION}


class _Others:
    def __init__(self, kubelet: StagedKubelet) -> None:
        self._kubelet = kubelet

    def plays(self, obj: Object) -> bool:
        return self._kubelet.plays_other(obj)

    def doors(self, obj: Object) -> Mapping[str, Door]:
        return self._kubelet.general_doors()

    def saw(self, obj: Object) -> None:
        pass

    def gone(self, obj: Object) -> None:
        pass


class _Nodes(_Others):
    def plays(self, obj: Object) -> bool:
        return self._kubelet.is_played(obj["metadata"]["name"])

    def doors(self, obj: Object) -> Mapping[str, Door]:
        name = obj["metadata"]["name"]
        return {
            **self._kubelet.general_doors(),
            "NodeName": lambda: name,
            "NodeIP": lambda: self._kubelet.node_ip(name),
            "NodePort": lambda: Int(KUBELET_PORT),
        }


class _Pods(_Others):
    def plays(self, obj: Object) -> bool:
        return self._kubelet.is_played(obj["spec"].get("nodeName", ""))

    def saw(self, obj: Object) -> None:
        self._kubelet.saw(obj)

    def gone(self, obj: Object) -> None:
        self._kubelet.give_back(obj)

    def doors(self, obj: Object) -> Mapping[str, Door]:
        """The current pod's address, whatever name and uid a template passes."""
        kubelet, own = self._kubelet, obj["spec"].get("nodeName", "")

        def pod_ip(node: str, host_network: bool, uid: str, name: str, namespace: str) -> str:
            return kubelet.node_ip(node) if host_network else kubelet.pod_ip(obj)

        def listed(ip: str) -> list[str]:
            return [ip] if ip else []

        return {
            **kubelet.general_doors(),
            "NodeIP": lambda: kubelet.node_ip(own),
            "NodeIPWith": kubelet.node_ip,
            "NodeIPsWith": lambda node: listed(kubelet.node_ip(node)),
            "PodIP": lambda: kubelet.pod_ip(obj),
            "PodIPWith": pod_ip,
            "PodIPsWith": lambda *given: listed(pod_ip(*given)),
        }
