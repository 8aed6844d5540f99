"""Every role as a process of its own by what init-secrets made, all started at the same moment, as containers are."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE_S, eventually
from ports import free_ports

from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.client.rest import NODES, PODS, RestClient

HEALTHY_WITHIN_S = PATIENCE_S
ENDS_WITHIN_S = PATIENCE_S


class Roles:
    """Processes by name, each with its own health port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.secrets = folder, folder / "secrets"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.health: dict[str, str] = {}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "minikube_py", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def start(self, name: str, role: str, *flags: str) -> None:
        self.health[name] = f"127.0.0.1:{free_ports(1)[0]}"
        command = [sys.executable, "-m", "minikube_py", role, *flags, "--healthz", self.health[name]]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def is_healthy(self, name: str) -> bool:
        role = name.rpartition("-")[0] or name
        return self.run("health", role, "--address", self.health[name]).returncode == 0

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def end(self) -> dict[str, int]:
        """Exit codes after SIGTERM."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        codes = {}
        for name, process in self.processes.items():
            try:
                codes[name] = process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                codes[name] = -9
        return codes


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    started = Roles(tmp_path)
    try:
        yield started
    finally:
        codes = started.end()
    assert set(codes.values()) <= {0}, codes


async def test_all_start_at_once_find_each_other_and_end_in_time(roles: Roles) -> None:
    made = roles.run("init-secrets", "--dir", str(roles.secrets), "--stores", "localhost", "--hosts", "localhost")
    assert made.returncode == 0, made.stderr
    peers, clients, (port,) = free_ports(3), free_ports(3), free_ports(1)
    initial = ",".join(f"store-{i + 1}=localhost:{peer}" for i, peer in enumerate(peers))
    server = f"https://127.0.0.1:{port}"
    for role in ("scheduler", "controllers", "kubelet"):
        path = roles.secrets / role / "kubeconfig"
        path.write_text(path.read_text().replace("https://127.0.0.1:6443", server))
        count = 2 if role == "kubelet" else 1
        flags = ("--nodes", "3", "--claim-share") if role == "kubelet" else ("--leader-elect",)
        for number in range(count):
            roles.start(f"{role}-{number}" if count > 1 else role, role, "--kubeconfig", str(path), *flags)
    stores = ",".join(f"localhost:{client}" for client in clients)
    secrets = ("--secrets-dir", str(roles.secrets / "apiserver"))
    roles.start("apiserver", "apiserver", "--store", stores, *secrets, "--secure-port", str(port))
    for number, (peer, client) in enumerate(zip(peers, clients, strict=True), start=1):
        flags = ("--listen", f"localhost:{client}", "--advertise", "localhost", "--initial-cluster", initial)
        listen = ("--listen-peers", f"localhost:{peer}")
        folders = ("--data-dir", str(roles.folder / f"data-{number}"), "--secrets-dir", str(roles.secrets / "store"))
        roles.start(f"store-{number}", "store", "--name", f"store-{number}", *flags, *listen, *folders, "--rejoin")
    for name in roles.processes:
        eventually(lambda name=name: roles.is_healthy(name), f"{name} is well: {roles.log(name)}", HEALTHY_WITHIN_S)

    shown = roles.run("kubeconfig", "--secrets-dir", str(roles.secrets / "admin"), "--server", server)
    (roles.folder / "kubeconfig").write_text(shown.stdout)
    admin = ("--timeout", "1s", "--endpoints", stores, "--secrets-dir", str(roles.secrets / "admin"))
    status = roles.run("store", "status", *admin)
    assert status.returncode == 0 and status.stdout.count("follower") == 2, status
    assert roles.run("store", "hash", *admin).returncode == 0

    transport = HttpTransport(load_kubeconfig(roles.folder / "kubeconfig"))
    try:
        client = RestClient(transport)
        assert {node["metadata"]["name"] for node in await client.list(NODES)} == {f"node-{n}" for n in range(6)}
        spec = {"containers": [{"name": "c", "image": "x"}]}
        for number in range(6):
            await client.create(PODS, {"metadata": {"name": f"p{number}"}, "spec": spec}, "default")
        async for batch in transport.watch("/api/v1/pods", {"resourceVersion": "0", "timeoutSeconds": "30"}):
            pods = await client.list(PODS, "default")
            if batch and all(pod["status"]["phase"] == "Running" for pod in pods):
                break
        assert [pod["status"]["phase"] for pod in await client.list(PODS, "default")] == ["Running"] * 6
    finally:
        await transport.close()

    os.kill(roles.processes["store-1"].pid, signal.SIGSTOP)
    eventually(lambda: roles.run("store", "status", *admin).returncode == 1, "one does not answer")
    os.kill(roles.processes["store-1"].pid, signal.SIGCONT)
    eventually(lambda: roles.run("store", "status", *admin).returncode == 0, "it answers again")


def test_a_store_without_a_majority_says_that_it_is_not_well(roles: Roles) -> None:
    assert roles.run("init-secrets", "--dir", str(roles.secrets), "--stores", "localhost").returncode == 0
    peers, clients = free_ports(2), free_ports(2)
    initial = ",".join(f"store-{i + 1}=localhost:{peer}" for i, peer in enumerate(peers))
    for number in range(2):
        flags = ("--listen", f"localhost:{clients[number]}", "--initial-cluster", initial)
        folders = ("--data-dir", str(roles.folder / f"data-{number}"), "--secrets-dir", str(roles.secrets / "store"))
        roles.start(f"store-{number + 1}", "store", "--name", f"store-{number + 1}", *flags, *folders)
    eventually(lambda: roles.is_healthy("store-1") and roles.is_healthy("store-2"), "both are well")
    roles.processes["store-2"].kill()
    roles.processes.pop("store-2").wait()
    eventually(lambda: not roles.is_healthy("store-1"), "it is not")
    said = roles.run("health", "store", "--address", roles.health["store-1"])
    assert "no leader: no majority is reachable" in said.stderr

    folders = ("--data-dir", str(roles.folder / "data-0"), "--secrets-dir", str(roles.secrets / "store"))
    roles.processes["store-1"].terminate()
    assert roles.processes.pop("store-1").wait(ENDS_WITHIN_S) == 0
    alone = roles.run("store", "--name", "store-1", "--listen", "127.0.0.1:0", "--healthz", "none", *folders)
    assert alone.returncode == 1
    assert "this member is one of 2, the others are store-2 (localhost:" in alone.stderr
