"""Projects of `docker compose`, and requests of tests to the API servers in them."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from needs import absent
from patience import eventually
from ports import free_ports

from minikube_py.client.kubeconfig import ClusterAccess, load_kubeconfig

ROOT = Path(__file__).parents[2]
ENDPOINTS = "--endpoints=store-1:2390,store-2:2390,store-3:2390"
WITHIN_S = 180


class Project:
    """One `docker compose` project, of `files` (none: docker-compose.yml) and with `env`; it takes free ports."""

    def __init__(self, *files: str, env: dict[str, str] | None = None, kind: str = "test") -> None:
        self.name = f"minikube-py-{kind}-{os.getpid()}"
        self.ports = free_ports(2)
        named = {"MINIKUBE_PY_PORT": str(self.ports[0]), "MINIKUBE_PY_PORT_2": str(self.ports[1])}
        self._env = {**os.environ, **named, **(env or {})}
        self._files = [word for file in files for word in ("--file", file)]

    def __call__(self, *arguments: str, check: bool = True) -> str:
        command = ["docker", "compose", "--project-name", self.name, *self._files, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self._env, capture_output=True, text=True, timeout=600)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.logs()}")
        return done.stdout

    def logs(self) -> str:
        return self("logs", "--tail", "20", check=False)

    def kubeconfig(self, path: Path) -> ClusterAccess:
        path.write_text(self("run", "--rm", "-T", "kubeconfig"))
        return load_kubeconfig(path)

    def members(self) -> dict[str, dict[str, Any]]:
        """By name, what `store status --json` says of each."""
        command = ("store", "status", ENDPOINTS, "--secrets-dir=/secrets", "--json")
        told = json.loads(self("run", "--rm", "-T", "store-status", *command, check=False))
        return {member["name"]: member for member in told["members"]}

    def role(self, name: str) -> str:
        return self.members().get(name, {}).get("role", "")

    def all_applied(self, index: int) -> bool:
        found = self.members().values()
        return len(found) == 3 and all(each.get("applied", -1) >= index for each in found)

    def leader(self) -> str:
        return until("a leader", lambda: next((n for n, m in self.members().items() if m.get("role") == "leader"), ""))

    def left(self) -> list[str]:
        """What the engine still has of this project."""
        found = []
        for kind in ("container", "volume", "network"):
            which = ["--all"] if kind == "container" else []
            label = f"label=com.docker.compose.project={self.name}"
            command = ["docker", kind, "ls", *which, "--quiet", "--filter", label]
            found += subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return found


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=600)
    assert not done.returncode, f"docker {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def until(what: str | Callable[[], str], found: Callable[[], Any]) -> Any:
    """Polls until the answer is true; there is no event to wait for from outside."""
    return eventually(found, what, WITHIN_S, pause_s=0.5)


class Api:
    """`kept`: one connection for all requests, for callers without pauses; the server closes one that is idle for 90
    s."""

    def __init__(self, access: ClusterAccess, kept: bool = False) -> None:
        self._kept = kept
        self._where, self._context = urlsplit(access.server), access.ssl_context()
        self._headers = {"Authorization": f"Bearer {access.token}", "Content-Type": "application/json"}
        self._connection: http.client.HTTPSConnection | None = None

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Raises: OSError, http.client.HTTPException without an answer."""
        if not self._kept:
            self.close()
        if self._connection is None:
            port = self._where.port
            self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=self._context)
        try:
            self._connection.request(method, path, body and json.dumps(body), self._headers)
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ready_nodes(self) -> set[str]:
        _, listed = self.send("GET", "/api/v1/nodes")
        return {node["metadata"]["name"] for node in listed["items"] if is_ready(node)}


def is_ready(node: Any) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", ()))


class Writer(threading.Thread):
    """Creates config maps one after another; records each acknowledged one."""

    def __init__(self, access: ClusterAccess) -> None:
        super().__init__(daemon=True)
        self._api = Api(access, kept=True)
        self.acknowledged: list[str] = []
        self.refused: list[tuple[int, Any]] = []
        self._done = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._done.is_set():
            name = f"written-{number}"
            number += 1
            body = {"metadata": {"name": name}, "data": {"number": str(number)}}
            try:
                status, answer = self._api.send("POST", "/api/v1/namespaces/default/configmaps", body)
            except (OSError, http.client.HTTPException):
                continue
            if status == 201:
                self.acknowledged.append(name)
            else:
                self.refused.append((status, answer))

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        until("more acknowledged writes", lambda: len(self.acknowledged) >= wanted)

    def stop(self) -> None:
        self._done.set()
        self.join(WITHIN_S)
        self._api.close()


def require_engine() -> None:
    for command in (["docker", "info"], ["docker", "compose", "version"]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except FileNotFoundError:
            absent("docker is absent: install Docker Engine and Compose 2")
        if done.returncode:
            absent(f"`{' '.join(command)}` says: {done.stderr.strip()[-300:]}")
