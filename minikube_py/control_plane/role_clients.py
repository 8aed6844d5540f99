"""`minikube-py scheduler | controllers | kubelet`: each reaches the API server over HTTPS with the token of its
kubeconfig."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane.components import Component, failure_of
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import read_text
from minikube_py.control_plane.progress import Registered
from minikube_py.control_plane.role import StackedRole
from minikube_py.env import SystemClock
from minikube_py.errors import RequestError
from minikube_py.kubelet.config import NodeSpec, Share


class ClientRole(StackedRole):
    def __init__(self, kubeconfig: Path, name: str) -> None:
        super().__init__()
        self._kubeconfig, self._name = kubeconfig, name
        self._component: Component | None = None

    def failure(self) -> BaseException | None:
        return None if self._component is None else failure_of(self._component)

    async def run(self, component: Component) -> None:
        self.running.push_async_callback(component.stop)
        await component.start()
        self._component = component

    def connect(self) -> ApiTransport:
        """Raises: BadKubeconfig."""
        transport = HttpTransport(load_kubeconfig(self._kubeconfig), user_agent=f"minikube-py-{self._name}")
        self.running.push_async_callback(transport.close)
        return transport


class SchedulerRole(ClientRole):
    """`config`: a KubeSchedulerConfiguration; `seed`: of the generator that breaks ties."""

    def __init__(self, kubeconfig: Path, config: Path | None, seed: int | None) -> None:
        super().__init__(kubeconfig, "scheduler")
        self._config, self._seed = config, seed

    async def start(self) -> str:
        """Raises: BadKubeconfig, SetupError, ConfigError, StatusError, Unavailable."""
        from minikube_py.scheduler.config import SchedulerConfig, parse
        from minikube_py.scheduler.scheduler import Scheduler

        config = parse(_document(self._config)) if self._config else SchedulerConfig()
        scheduler = Scheduler(self.connect(), SystemClock(), random.Random(self._seed), config)
        await self.run(scheduler)
        return "synced"


class ControllersRole(ClientRole):
    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(kubeconfig, "controllers")

    async def start(self) -> str:
        """Raises: BadKubeconfig, StatusError, Unavailable."""
        from minikube_py.controllers.base import ControllerConfig
        from minikube_py.controllers.manager import ControllerManager

        authority = load_kubeconfig(self._kubeconfig).ca_pem or b""
        config = ControllerConfig(root_ca_pem=authority.decode("ascii"))
        manager = ControllerManager(self.connect(), SystemClock(), random.Random(), config=config)
        await self.run(manager)
        return "synced"


class KubeletRole(ClientRole):
    """`shapes`: a JSON list of NodeSpec; without it `nodes` of the default shape. `share` is `index/count`."""

    def __init__(self, kubeconfig: Path, nodes: int, shapes: Path | None, share: str) -> None:
        super().__init__(kubeconfig, "kubelet")
        self._nodes, self._shapes, self._share = nodes, shapes, share

    async def start(self) -> str:
        """Raises: BadKubeconfig, SetupError, StatusError, Unavailable."""
        from minikube_py.kubelet.config import KubeletConfig, numbered_nodes
        from minikube_py.kubelet.fake import FakeKubelet

        specs = read_shapes(self._shapes) if self._shapes else numbered_nodes(self._nodes)
        config = KubeletConfig(nodes=tuple(specs), share=parse_share(self._share))
        clock = SystemClock()
        registered = Registered(clock, lambda text: print(text, flush=True))
        kubelet = FakeKubelet(self.connect(), clock, random.Random(), config, registered)
        await self.run(kubelet)
        return f"{len(specs)} nodes"


def parse_share(text: str) -> Share:
    """`0/3`: the first of three shares. Raises: SetupError."""
    index, _, count = text.partition("/")
    try:
        return Share(int(index), int(count))
    except (ValueError, RequestError) as error:
        raise SetupError(f"--share {text}: write INDEX/COUNT with INDEX below COUNT, as 0/3") from error


def read_shapes(path: Path) -> list[NodeSpec]:
    """Raises: SetupError, naming the entry."""
    entries = _document(path)
    if not isinstance(entries, list):
        raise SetupError(f"{path}: not a list of nodes")
    specs = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise SetupError(f"{path}: entry {number} has no name")
        unknown = sorted(set(entry) - set(NodeSpec._fields))
        if unknown:
            known = ", ".join(NodeSpec._fields)
            raise SetupError(f"{path}: entry {number} ({entry['name']}) has {unknown[0]!r}; known are {known}")
        specs.append(NodeSpec(**entry))
    return specs


def _document(path: Path) -> Any:
    import yaml

    try:
        return yaml.load(read_text(path, "file"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise SetupError(f"{path}: neither JSON nor YAML: {' '.join(str(error).split())}") from error
