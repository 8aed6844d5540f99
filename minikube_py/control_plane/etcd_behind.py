"""An external etcd behind the API server, in place of our store: its address and the client's credentials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.etcd_urls import parse_urls
from minikube_py.control_plane.private_files import read_text
from minikube_py.env import Clock
from minikube_py.errors import to_install
from minikube_py.etcd.keys import PREFIX
from minikube_py.ports.addresses import join_address

if TYPE_CHECKING:
    from minikube_py.etcd.storage import EtcdStorage

COMPACTION_INTERVAL_S = 300.0
"""kube-apiserver's default."""


@dataclass(frozen=True, slots=True)
class EtcdBehind:
    """`servers`: of `--etcd-servers`, separated by commas."""

    servers: str
    authority_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    prefix: str = PREFIX
    compaction_interval_s: float = COMPACTION_INTERVAL_S

    def flags(self) -> list[str]:
        """For another process with the same etcd."""
        files = {
            "--etcd-cafile": self.authority_file,
            "--etcd-certfile": self.certificate_file,
            "--etcd-keyfile": self.key_file,
        }
        named = [word for flag, path in files.items() if path is not None for word in (flag, str(path.absolute()))]
        interval = ["--etcd-compaction-interval", f"{math.floor(self.compaction_interval_s * 1000)}ms"]
        return ["--etcd-servers", self.servers, *named, "--etcd-prefix", self.prefix, *interval]

    def storage(self, clock: Clock) -> EtcdStorage:
        """Not started. Raises: SetupError."""
        try:
            from minikube_py.etcd.client import Endpoints
            from minikube_py.etcd.storage import EtcdStorage
        except ModuleNotFoundError as error:
            raise SetupError(f"--etcd-servers needs {error.name}: {to_install('etcd')}") from None
        secure, places = self._places()
        endpoints = Endpoints(
            tuple([join_address(*place) for place in places]),
            _pem(self.authority_file, "authority of --etcd-cafile"),
            _pem(self.certificate_file, "certificate of --etcd-certfile"),
            _pem(self.key_file, "private key of --etcd-keyfile"),
            secure,
        )
        return EtcdStorage(endpoints, clock, prefix=self.prefix, compaction_interval_s=self.compaction_interval_s)

    def check(self) -> None:
        """Raises: SetupError."""
        secure, _ = self._places()
        if (self.certificate_file is None) != (self.key_file is None):
            raise SetupError("--etcd-certfile and --etcd-keyfile go together")
        if not secure and (self.authority_file or self.certificate_file):
            raise SetupError("--etcd-cafile, --etcd-certfile and --etcd-keyfile are for https:// in --etcd-servers")
        if not self.prefix.strip("/"):
            raise SetupError("--etcd-prefix must not be empty: other programs' keys would be read; give /registry")

    def _places(self) -> tuple[bool, Sequence[tuple[str, int]]]:
        return parse_urls(self.servers, "--etcd-servers", plain_anywhere=True)


def _pem(path: Path | None, what: str) -> bytes | None:
    return None if path is None else read_text(path, what).encode()
