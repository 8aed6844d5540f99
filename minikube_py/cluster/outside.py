"""The public API for a cluster that runs elsewhere, as named by a kubeconfig."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import yaml

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import ClusterAccess, load_kubeconfig, read_document
from minikube_py.client.transport import ApiTransport
from minikube_py.cluster.arguments import FilePath, Namespace, Text, checked
from minikube_py.cluster.errors import ClusterError
from minikube_py.cluster.folder import Folder
from minikube_py.cluster.loop_thread import LoopThread
from minikube_py.cluster.methods import DEFAULT, BlockingMethods
from minikube_py.cluster.operations import Operations, waited
from minikube_py.cluster.player import GatedPlane
from minikube_py.cluster.waiting import Waiting
from minikube_py.control_plane.private_files import write_private
from minikube_py.env import Clock, SystemClock
from minikube_py.sim.faults import Fault


class OutsideCluster(BlockingMethods):
    """`kubeconfig`: of an administrator; `context` "": its current one. As Cluster, except what needs its parts: nodes
    that go down, snapshots, faults, virtual time."""

    of_this_process = False

    @checked
    def __init__(self, kubeconfig: FilePath, context: Text = "") -> None:
        super().__init__()
        self._engine = _Engine(Path(kubeconfig).expanduser(), context)
        self._views: list[BlockingMethods] = []

    def start(self) -> Self:
        """Raises: BadKubeconfig, Unavailable."""
        self._engine.start()
        return self

    def stop(self) -> None:
        for each in (self, *self._views):
            each.client.close()
        self._engine.stop()

    def in_namespace(self, name: Namespace) -> OutsideNamespaced:
        view = OutsideNamespaced(self, name)
        self._views.append(view)
        return view

    def _reached(self) -> _Engine:
        return self._engine


class OutsideNamespaced(BlockingMethods):
    def __init__(self, cluster: OutsideCluster, namespace: str) -> None:
        super().__init__(namespace)
        self.cluster = cluster
        self._kinds = cluster._kinds

    def _reached(self) -> _Engine:
        return self.cluster._reached()


class _Connection:
    """The part that lives on the thread."""

    def __init__(self, access: ClusterAccess) -> None:
        self.folder = Folder(None, lambda: None)
        self.transport = HttpTransport(access)

    async def start(self) -> None:
        """Connections are opened by requests."""

    async def stop(self) -> None:
        try:
            await self.transport.close()
        finally:
            self.folder.clear()


class _Engine:
    time_passes = True

    def __init__(self, kubeconfig: Path, context: str) -> None:
        self._given, self._context = kubeconfig, context
        self._access = load_kubeconfig(kubeconfig, context or None)
        self._connection: _Connection
        self._thread = LoopThread(partial(_Connection, self._access))

    def start(self) -> None:
        self._connection = self._thread.start()

    @property
    def ending(self) -> bool:
        return self._thread.ending

    def stop(self) -> None:
        self._thread.stop()

    @property
    def clock(self) -> Clock:
        return SystemClock()

    @property
    def url(self) -> str:
        return self._access.server

    @property
    def token(self) -> str:
        if self._access.token is None:
            raise ClusterError(f"{self._given} names no token; use kubeconfig_path")
        return self._access.token

    @property
    def authority_pem(self) -> str:
        return (self._access.ca_pem or b"").decode("ascii")

    def kubeconfig(self, namespace: str) -> Path:
        """The given one; or a copy with that context and namespace, if they differ from its own."""
        if namespace == DEFAULT and not self._context:
            return self._given
        path = self._connection.folder.path / f"kubeconfig-{namespace}"
        if not path.exists():
            document = read_document(self._given)
            if self._context:
                document["current-context"] = self._context
            for each in document.get("contexts") or ():
                if isinstance(each, dict) and isinstance(each.get("context"), dict):
                    each["context"]["namespace"] = namespace
            write_private(path, yaml.safe_dump(document).encode())
        return path

    def transport(self) -> ApiTransport:
        return self._connection.transport

    own_transport = transport

    def in_process(self, package: Any) -> Any:
        return None

    def clients_within(self, namespace: str) -> None:
        """Clients for coroutines use sockets, too."""

    def call(self, work: Callable[[Operations], Any], operations: Operations, reads: bool) -> Any:
        return self._thread.run(lambda: work(operations))

    def wait(
        self, operations: Operations, waiting: Waiting, timeout_s: float, namespace: str | None, selector: str
    ) -> list[dict[str, Any]]:
        return waited(self._thread, SystemClock(), operations, waiting, timeout_s, namespace, selector)

    @property
    def plane(self) -> GatedPlane:
        raise ClusterError("this cluster runs elsewhere: faults are for a Cluster of this process")

    def within(self, work: Any, *named: Any) -> Any:
        raise ClusterError("this cluster runs elsewhere: its parts cannot be reached from here")

    def inject(self, fault: Fault) -> None:
        """Never called: `plane` is used first, which raises."""

    def do(self, name: str, call: Callable[[], None]) -> None:
        """As `inject`."""

    def all_well(self) -> None:
        """No fault can be injected here."""


def default_kubeconfig() -> Path:
    """$KUBECONFIG, or ~/.kube/config: read, never written."""
    return Path(os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or Path.home() / ".kube" / "config")
