"""etcd's API is served without grpcio, which is for those who have a real etcd."""

from __future__ import annotations

import subprocess
import sys

SERVED = ("server", "http", "node", "kv", "grpc_server")


def test_what_serves_etcds_api_imports_no_grpcio() -> None:
    names = ", ".join(f"minikube_py.etcd.{each}" for each in SERVED)
    script = f"import sys\nsys.modules['grpc'] = None\nimport {names}, minikube_py.control_plane.etcd_door\n"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
