"""Between two tests on one cluster: faults, programs and webhooks of the first one end before the second one begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.cluster.kinds import NOT_FOUND
from minikube_py.cluster.webhooks import leads_to

if TYPE_CHECKING:
    from minikube_py.cluster.local import Cluster
    from minikube_py.cluster.methods import BlockingMethods

CONFIGURATIONS: Final = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
LOST: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Before:
    """The programs and webhooks that a cluster has before a test."""

    def __init__(self, cluster: Cluster) -> None:
        self.engine = engine = cluster._require_engine()
        self._cluster = cluster
        self._programs = engine.programs_started()
        self._webhooks = engine.plane.player.served()

    def put_back(self) -> bool:
        """Ends all later programs and webhooks with the configurations of the latter, and every fault. Nodes that were
        down are ready again. False if that cluster cannot continue, or was stopped.

        Raises: WaitTimeout if a node is not ready again; ClusterError, SimFailure."""
        cluster, engine = self._cluster, self.engine
        if cluster._engine is not engine or engine.failure() is not None:
            return False
        player = engine.plane.player
        down = player.nodes_down
        engine.end_programs(self._programs)
        cluster.all_well()
        if new := {name for name, hook in player.served().items() if self._webhooks.get(name) is not hook}:
            self._end_webhooks(new - self._webhooks.keys())
        for node in cluster.objects("nodes") if down else ():
            if player.plays(name := node["metadata"]["name"]):
                cluster.wait(f"node/{name}", condition="Ready", until=_is_not_lost)
        return True

    def _end_webhooks(self, names: set[str]) -> None:
        """Those that replaced an earlier one give way to it."""
        cluster = self._cluster
        for kind in CONFIGURATIONS if names else ():
            for each in cluster.objects(kind):
                urls = [hook.get("clientConfig", {}).get("url", "") for hook in each.get("webhooks") or ()]
                if any(leads_to(url) in names for url in urls):
                    cluster.delete(f"{kind}/{each['metadata']['name']}")
        player = self.engine.plane.player
        self.engine.do("webhooks", lambda: player.serve_only(self._webhooks))


def delete_namespace(cluster: BlockingMethods, name: str) -> None:
    """Unless the test has deleted it. Raises: StatusError."""
    try:
        cluster.delete(f"namespace/{name}")
    except StatusError as error:
        if error.code != NOT_FOUND:
            raise


def _is_not_lost(node: dict[str, Any]) -> bool:
    return not any(taint["key"] in LOST for taint in node["spec"].get("taints") or ())
