"""`minikube-py scheduler | controllers | kubelet`: each reaches the API server over HTTPS with the token of its
kubeconfig."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane.config import NodeShape
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import read_text
from minikube_py.control_plane.role import StackedRole
from minikube_py.env import SystemClock


class ClientRole(StackedRole):
    def __init__(self, kubeconfig: Path, name: str) -> None:
        super().__init__()
        self._kubeconfig, self._name = kubeconfig, name

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
        self.running.push_async_callback(scheduler.stop)
        await scheduler.start()
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
        self.running.push_async_callback(manager.stop)
        await manager.start()
        return "synced"
