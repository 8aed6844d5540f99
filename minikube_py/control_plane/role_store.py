"""`minikube-py store`: a store member and its server in a process of their own."""

from __future__ import annotations

import random
from pathlib import Path

from minikube_py.control_plane.listen import parse_address
from minikube_py.control_plane.role import StackedRole, TlsFiles
from minikube_py.control_plane.tokens import read_token
from minikube_py.env import SystemClock
from minikube_py.store.data_dir import DataDir
from minikube_py.store.member import StoreMember
from minikube_py.store.server import StoreServer


class StoreRole(StackedRole):
    """A store member and its server. `listen_on` is `host:port`, port 0 for any free one."""

    def __init__(self, data_dir: Path, listen_on: str, token_file: Path, tls: TlsFiles) -> None:
        super().__init__()
        self._data_dir, self._listen_on, self._token_file, self._tls = data_dir, listen_on, token_file, tls

    async def start(self) -> str:
        """Raises: SetupError, DataDirBusy, Corruption; MinikubeError where the address cannot be had."""
        host, port = parse_address(self._listen_on, "--listen")
        token, context = read_token(self._token_file), self._tls.context()
        held = DataDir(self._data_dir)
        self.running.callback(held.close)
        member = StoreMember(held.disk(), SystemClock(), random.Random())
        await member.start()
        self.running.push_async_callback(member.stop)
        server = StoreServer(member, token, host, port, context)
        await server.start()
        self.running.push_async_callback(server.stop)
        host, port = server.address
        return f"{host}:{port}"
