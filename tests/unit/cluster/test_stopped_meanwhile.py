"""One thread stops a cluster while another one waits for it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Literal

import pytest

from minikube_py import Cluster, ClusterError
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.cluster.errors import STOPPED
from minikube_py.cluster.folder import Folder
from minikube_py.cluster.local import NOT_RUNNING
from minikube_py.cluster.methods import BlockingMethods
from minikube_py.control_plane.kubeconfig import Access

pytestmark = pytest.mark.real_time("real sockets and threads")
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}  # fmt: skip
Clock = Literal["real", "virtual"]
WAITS: dict[str, Callable[[Cluster], object]] = {
    "request": lambda cluster: cluster.request("GET", "/api/v1/nodes"),
    "apply": lambda cluster: cluster.apply(CONFIG_MAP),
    "objects": lambda cluster: cluster.objects("nodes"),
    "get": lambda cluster: cluster.get("node/node-0"),
    "delete": lambda cluster: (cluster.apply(CONFIG_MAP), cluster.delete("cm/a")),
    "wait": lambda cluster: cluster.wait("cm/none", timeout_s=1e6),
    "end_container": lambda cluster: cluster.end_container("a"),
    "kubectl": lambda cluster: cluster.kubectl("get", "nodes"),
    "snapshot": lambda cluster: cluster.snapshot(),
    "restore": lambda cluster: cluster.restore(cluster.snapshot()),
    "fault": lambda cluster: cluster.conflict_next(),
    "all_well": lambda cluster: cluster.all_well(),
    "advance": lambda cluster: cluster.advance(1e6),
}
VIRTUAL = ("advance",)


def test_the_methods_that_wait_are_all_there() -> None:
    others = {"client", "kubeconfig_path", "token", "transport", "url", "authority_pem", "webhook"}
    methods = {name for name in (*vars(BlockingMethods), "all_well") if not name.startswith("_")}
    assert methods - others <= WAITS.keys()


@pytest.mark.parametrize("clock", ["real", "virtual"])
@pytest.mark.parametrize("name", WAITS)
def test_who_waits_is_told(clock: Clock, name: str) -> None:
    if name in VIRTUAL and clock == "real":
        return
    if name == "kubectl" and shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    cluster = Cluster(nodes=1, clock=clock).start()
    cluster.apply(POD)
    cluster.wait("pod/a", phase="Running")
    begun: SimpleQueue[None] = SimpleQueue()
    raised: list[BaseException] = []

    def waits() -> None:
        try:
            while True:
                begun.put(None)
                WAITS[name](cluster)
        except BaseException as error:
            raised.append(error)
        finally:
            # Whoever waits for more of them than there were sees why.
            for _ in range(3):
                begun.put(None)

    thread = threading.Thread(target=waits)
    thread.start()
    try:
        for _ in range(1 if name in ("wait", "advance") else 3):
            begun.get()
    finally:
        cluster.stop()
        thread.join()
    (error,) = raised
    assert isinstance(error, ClusterError) and str(error) in (STOPPED, NOT_RUNNING), error


def test_requests_under_way_that_faults_delay_do_not_delay_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are answered before the server counts those that it must cut off."""
    left: list[int] = []
    stop = HttpServer.stop

    async def stop_counting(server: HttpServer) -> None:
        left.append(len(delays._waiting))
        await stop(server)

    monkeypatch.setattr(HttpServer, "stop", stop_counting)
    cluster = Cluster(nodes=0).start()
    cluster.slow(1000)
    client = cluster.client.httpx()
    delays: Any = cluster._require_engine().plane.player.gate.delays

    def asks() -> None:
        with pytest.raises(Exception, match=r"disconnected|reset|closed"):
            client.get("/api/v1/nodes", timeout=1000)

    threads = [threading.Thread(target=asks) for _ in range(5)]
    for each in threads:
        each.start()
    while len(delays._waiting) < len(threads):
        pass
    cluster.stop()
    for each in threads:
        each.join()
    assert left == [0]


def test_a_kubeconfig_asked_for_too_late_names_the_reason() -> None:
    folder = Folder(None, lambda: None)
    folder.clear()
    with pytest.raises(ClusterError, match=STOPPED):
        folder.kubeconfig("other", Access("https://127.0.0.1:1", b"authority", "token"))
