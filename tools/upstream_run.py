"""Runs upstream's programs on loopback, with their data in one folder: etcd, and the control plane above it."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from upstream_build import (
    KUBERNETES,
    STAGES,
    UpstreamError,
    bin_folder,
    build,
    build_program,
    module_info,
    scheduler_perf_program,
)

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.1
QUOTA_BYTES = 8 << 30
IN_FLIGHT = 3000
CLIENT_PER_S = 5000
"""Limits of upstream that would cap a measurement are raised to these; mention it beside any figure."""
MEDIA_TYPES = ("application/json", "application/vnd.kubernetes.protobuf")
"""Upstream's default is the last."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Parts:
    """The components that run beside etcd and the API server."""

    scheduler: bool = False
    controllers: bool = False
    kubelets: bool = False
    fairness: bool = False
    """Priority and fairness, which queues requests."""
    without: tuple[str, ...] = ()
    """Controllers that do not run."""
    only: tuple[str, ...] = ()
    """Controllers that run; none named: all."""
    controller_flags: tuple[str, ...] = ()
    """More flags of kube-controller-manager."""
    accounts: bool = False
    """Pods run as service accounts, which no controller creates unless `controllers` run."""
    feature_gates: str = ""
    """Of all programs, in their flag's format."""
    certificates: bool = False
    """Client certificates of an authority that also signs certificate requests."""
    audit_policy: Path | None = None
    """Audit events go to `audit.log` beside it."""
    media_type: str = ""
    """In which the API server stores built-in kinds, one of MEDIA_TYPES; by default protobuf."""

    @property
    def programs(self) -> list[str]:
        chosen = {"kube-scheduler": self.scheduler, "kube-controller-manager": self.controllers, "kwok": self.kubelets}
        return ["etcd", "kube-apiserver", *(name for name, wanted in chosen.items() if wanted)]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _die_with_parent() -> None:
    """In the child: it ends even if the script was killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Upstream:
    """Running processes and their readiness checks. Must be stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = secrets.token_hex(12)
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def signing_key(self) -> Path:
        return self.folder / "service-account.key"

    @property
    def authority(self) -> tuple[Path, Path]:
        """For client certificates, with its key."""
        return self.folder / "client-ca.crt", self.folder / "client-ca.key"

    # --- etcd ---------------------------------------------------------------------------------------------------------

    def start_etcd(self, members: int) -> list[str]:
        """Their client URLs, once all of them report healthy."""
        ports = free_ports(2 * members)
        clients = [f"http://127.0.0.1:{port}" for port in ports[:members]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[members:]]
        cluster = ",".join(f"m{at}={peer}" for at, peer in enumerate(peers))
        for at, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            self._start(
                f"etcd-{at}", "etcd", f"--name=m{at}", f"--data-dir={self.folder / f'etcd-{at}'}",
                f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster={cluster}",
                f"--quota-backend-bytes={QUOTA_BYTES}", "--log-level=warn",
            )  # fmt: skip
        for at, client in enumerate(clients):
            self._wait(f"etcd-{at}", f"{client}/health")
        return clients

    # --- the control plane --------------------------------------------------------------------------------------------

    def start_control_plane(self, etcd: Sequence[str], parts: Parts) -> str:
        """The API server's URL, once it and all components are ready."""
        url = self._start_api_server(etcd, parts)
        self._write_kubeconfig(url)
        if parts.scheduler:
            self._start_scheduler(*self._gate_flags(parts))
        if parts.controllers:
            signing = self._signing_flags() if parts.certificates else []
            self._start_controllers(parts, *signing, *self._gate_flags(parts), *parts.controller_flags)
        if parts.kubelets:
            stages = sorted((bin_folder() / STAGES).glob("*.yaml"))
            self._start(
                "kwok", "kwok", f"--kubeconfig={self.kubeconfig}", "--manage-all-nodes=true",
                "--node-lease-duration-seconds=40", *(f"--config={stage}" for stage in stages),
            )  # fmt: skip
        return url

    @staticmethod
    def _audit_flags(parts: Parts) -> list[str]:
        policy = parts.audit_policy
        if policy is None:
            return []
        return [f"--audit-policy-file={policy}", f"--audit-log-path={policy.with_name('audit.log')}"]

    @staticmethod
    def _gate_flags(parts: Parts) -> list[str]:
        return [f"--feature-gates={parts.feature_gates}"] if parts.feature_gates else []

    def _start_api_server(self, etcd: Sequence[str], parts: Parts) -> str:
        (port,) = free_ports(1)
        self._make_signing_key()
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{self.token},admin,admin-uid,"system:masters"\n')
        self._start(
            "kube-apiserver", "kube-apiserver", f"--etcd-servers={','.join(etcd)}", f"--cert-dir={self.folder}",
            "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}",
            "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.signing_key}", f"--service-account-signing-key-file={self.signing_key}",
            f"--token-auth-file={tokens}", "--authorization-mode=RBAC",
            "--allow-privileged=true",
            f"--disable-admission-plugins={'' if parts.accounts else 'ServiceAccount,'}TaintNodesByCondition",
            f"--max-requests-inflight={IN_FLIGHT}", f"--max-mutating-requests-inflight={IN_FLIGHT}",
            f"--enable-priority-and-fairness={str(parts.fairness).lower()}",
            *([f"--client-ca-file={self._make_authority()[0]}"] if parts.certificates else []),
            *([f"--storage-media-type={parts.media_type}"] if parts.media_type else []),
            *self._gate_flags(parts), *self._audit_flags(parts),
            *(["--runtime-config=scheduling.k8s.io/v1alpha2=true"] if parts.feature_gates else []),
        )  # fmt: skip
        url = f"https://127.0.0.1:{port}"
        self._wait("kube-apiserver", f"{url}/readyz")
        self._wait("kube-apiserver", f"{url}/api/v1/namespaces/default")
        return url

    def _make_authority(self) -> tuple[Path, Path]:
        certificate, key = self.authority
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-subj", "/CN=upstream-client-ca", "-days", "3650", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, check=True, capture_output=True)
        return certificate, key

    def _make_signing_key(self) -> None:
        if shutil.which("openssl") is None:
            raise UpstreamError("openssl is not installed; the API server's signing key is made with it")
        command = ["openssl", "genrsa", "-out", str(self.signing_key), "2048"]
        subprocess.run(command, check=True, capture_output=True)

    def _write_kubeconfig(self, url: str) -> None:
        name = "upstream"
        cluster = {"server": url, "insecure-skip-tls-verify": True}
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "admin"}}],
        }  # fmt: skip
        self.kubeconfig.write_text(json.dumps(document))

    def _start_scheduler(self, *more: str) -> None:
        config = self.folder / "scheduler.yaml"
        connection = {"kubeconfig": str(self.kubeconfig), "qps": CLIENT_PER_S, "burst": CLIENT_PER_S}
        config.write_text(json.dumps({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False}, "clientConnection": connection,
        }))  # fmt: skip
        self._start_delegating("kube-scheduler", f"--config={config}", *more)

    def _signing_flags(self) -> list[str]:
        certificate, key = self.authority
        return [f"--cluster-signing-cert-file={certificate}", f"--cluster-signing-key-file={key}"]

    def _start_controllers(self, parts: Parts, *more: str) -> None:
        names = parts.only or ("*", *(f"-{name}" for name in parts.without))
        self._start_delegating(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
            f"--controllers={','.join(names)}",
            f"--service-account-private-key-file={self.signing_key}",
            f"--kube-api-qps={CLIENT_PER_S}", f"--kube-api-burst={CLIENT_PER_S}", *more,
        )  # fmt: skip

    def _start_delegating(self, name: str, *flags: str) -> None:
        """A component that asks the API server to authenticate its own callers."""
        (port,) = free_ports(1)
        asks = (f"--authentication-kubeconfig={self.kubeconfig}", f"--authorization-kubeconfig={self.kubeconfig}")
        self._start(name, name, *flags, *asks, "--bind-address=127.0.0.1", f"--secure-port={port}")
        self._wait(name, f"https://127.0.0.1:{port}/healthz")

    # --- processes ----------------------------------------------------------------------------------------------------

    def _start(self, name: str, program: str, *flags: str) -> None:
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)}
        with open(self.folder / f"{name}.log", "wb") as log:
            self.children[name] = subprocess.Popen(
                [str(bin_folder() / program), *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.folder, env=environment, preexec_fn=_die_with_parent,
            )  # fmt: skip

    def _wait(self, name: str, url: str) -> None:
        context = ssl._create_unverified_context() if url.startswith("https") else None
        request = urllib.request.Request(url, headers={"authorization": f"Bearer {self.token}"})
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(request, context=context, timeout=5) as answer:
                    answer.read()
                return
            except OSError as error:
                if self.children[name].poll() is not None or time.monotonic() > deadline_s:
                    log = (self.folder / f"{name}.log").read_text(errors="replace")
                    raise UpstreamError(f"{name} is not ready: {error}\n{log[-2000:]}") from error
                time.sleep(POLL_S)

    def wait_until_one_ends(self) -> list[str]:
        """The names of those that ended unexpectedly."""
        while True:
            if ended := [name for name, child in self.children.items() if child.poll() is not None]:
                return ended
            time.sleep(POLL_S)

    def stop(self) -> None:
        """One by one, in reverse start order: kube-apiserver does not stop without its etcd."""
        for child in reversed(self.children.values()):
            child.terminate()
            try:
                child.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def kill(self) -> None:
        """For processes whose data is not needed: stopping takes seconds."""
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()


def run(
    folder: Path, members: int, parts: Parts | None, ready: Callable[[dict[str, Any]], None], *, kept: bool,
    etcd_url: str | None = None,
) -> list[str]:
    """Runs etcd, and with `parts` the control plane, until one of them ends; prints `ready` once. Returns what ended.

    `kept`: keeps the data, so everything is stopped in order. `etcd_url`: of a running etcd."""
    build(parts.programs if parts else ["etcd"])
    upstream = Upstream(folder)
    try:
        etcd = [etcd_url] if etcd_url else upstream.start_etcd(members)
        facts: dict[str, Any] = {"etcd": etcd}
        if parts is not None:
            url = upstream.start_control_plane(etcd, parts)
            facts |= {"url": url, "token": upstream.token, "kubeconfig": str(upstream.kubeconfig)}
        pids = {name: child.pid for name, child in upstream.children.items()}
        ready({**facts, "pids": pids, "bin": str(bin_folder())})
        return upstream.wait_until_one_ends()
    finally:
        if kept:
            upstream.stop()
        else:
            upstream.kill()


def why_it_failed(log: str) -> str:
    """What upstream's test calls fatal, or else its log's end."""
    at = log.find("FATAL ERROR")
    return log[at : at + 500] if at >= 0 else log[-1500:]


def scheduler_perf(folder: str, test: str, workload: str, scratch: Path) -> list[dict[str, Any]]:
    """The data items of one workload of upstream's own benchmark of its scheduler, which is run as it is.

    A workload that misses its own threshold is reported all the same. It runs in a copy of its folder, which it reads.
    """
    build(["etcd"])
    binary = build_program(scheduler_perf_program(folder))
    source = Path(module_info("k8s.io/kubernetes", KUBERNETES)["Dir"], "test", "integration", "scheduler_perf")
    if not (source / folder).is_dir():
        raise UpstreamError(f"{source} has no folder {folder}")
    shutil.copytree(source, scratch / "perf", copy_function=shutil.copyfile)
    for each in (scratch / "perf", *(scratch / "perf").rglob("*/")):
        each.chmod(0o755)
    items, log = scratch / "items", scratch / "log"
    items.mkdir()
    command = [
        str(binary), "-test.run=^$", "-test.benchtime=1ns", "-perf-scheduling-label-filter=",
        f"-test.bench=BenchmarkPerfScheduling/^{test}$/^{workload}$", f"-data-items-dir={items}",
    ]  # fmt: skip
    path = os.pathsep.join((str(bin_folder()), os.environ.get("PATH", "")))
    with open(log, "wb") as out:
        subprocess.run(command, cwd=scratch / "perf" / folder, stdout=out, stderr=out, env={**os.environ, "PATH": path})
    found = [item for file in sorted(items.glob("*.json")) for item in json.loads(file.read_text())["dataItems"] or []]
    if not found:
        said = why_it_failed(log.read_text(errors="replace"))
        raise UpstreamError(f"no data: is there a workload {test}/{workload} in {folder}?\n{said}")
    return found
