"""Kubernetes' own test-cmd - hack/make-rules/test-cmd.sh, 92 functions that drive kubectl - against ours, or upstream.

    python tests/conformance/judge_test_cmd.py [--on ours|upstream] [--only a,b] [--logs FOLDER] [--write]

The scripts are those of the module k8s.io/kubernetes v1.36.2, as they are, and so is kubectl. Both servers run as
test-cmd.sh wants them: token admin-token, a node 127.0.0.1, controllers, no scheduler and no kubelet. Functions run one
after the other, in upstream's order. What each function said is left in the folder of logs. `--write` puts the results
into data/test_cmd.json and the table of them into docs/reference/test-cmd.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(each) for each in (HERE.parent / "support", ROOT / "tools", ROOT)]

import ours  # noqa: E402
import upstream_build  # noqa: E402
from upstream_run import Parts, Upstream, free_ports  # noqa: E402

DRIVER = HERE / "test_cmd.sh"
RESULTS, TABLE = HERE / "data" / "test_cmd.json", ROOT / "docs" / "reference" / "test-cmd.md"
BETWEEN = "between"
TOKEN = "admin-token"
TIMEOUT_S = 400
_CALL = re.compile(r"^failed at (\d+) \S+ \S*?([\w.-]+\.sh)$", re.MULTILINE)
_HARNESS = ("test_cmd.sh", "legacy-script.sh", "test.sh", "util.sh", "sh2ju.sh")


class Outcome(NamedTuple):
    passed: bool
    where: str
    """The line of upstream's script at which it failed."""
    took_s: float


class Scripts:
    """Upstream's scripts in a folder that they may write to, for one server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.root = folder / "kubernetes"
        home = folder / "home"
        home.mkdir()
        host, _, port = url.removeprefix("https://").rpartition(":")
        (folder / "apiserver.crt").write_text(ssl.get_server_certificate((host, int(port))))
        _link(_sources(), self.root, "test")
        _link(_sources() / "test", self.root / "test", "fixtures")
        shutil.copytree(_sources() / "test" / "fixtures", self.root / "test" / "fixtures", copy_function=_executable)
        self._environment = {
            "PATH": os.environ["PATH"], "HOME": str(home), "BIN": str(upstream_build.bin_folder()),
            "TMPDIR": str(folder), "SECURE_API_PORT": port, "ALLOW_SKEW": "yes",
        }  # fmt: skip

    def functions(self) -> list[str]:
        """In upstream's order; those that it calls twice, once."""
        return list(dict.fromkeys(self._said("list").split()))

    def prepare(self) -> None:
        self._said("prepare")

    def _said(self, command: str) -> str:
        done = subprocess.run(
            self._command(command), env=self._environment, cwd=self.root, capture_output=True, text=True
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    @staticmethod
    def _command(name: str) -> list[str]:
        return ["bash", str(DRIVER), name]

    def run(self, function: str, log: Path) -> Outcome:
        began_s = time.monotonic()
        with log.open("w") as out:
            process = subprocess.Popen(
                self._command(function), env=self._environment, cwd=self.root, stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(TIMEOUT_S)
            except subprocess.TimeoutExpired:
                code = -1
            finally:
                # Proxies and watches that a function left in the background.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        where = "" if code == 0 else "timed out" if code == -1 else _failed_at(log.read_text(errors="replace"))
        return Outcome(code == 0, where, time.monotonic() - began_s)


def _link(source: Path, target: Path, but: str) -> None:
    target.mkdir()
    for entry in source.iterdir():
        if entry.name != but:
            (target / entry.name).symlink_to(entry)


def _executable(source: str, target: str) -> None:
    """Scripts may be run, which modules do not keep."""
    shutil.copyfile(source, target)
    os.chmod(target, 0o755)


def _failed_at(text: str) -> str:
    """The innermost call of a script of functions."""
    return next((f"{name}:{line}" for line, name in _CALL.findall(text) if name not in _HARNESS), "?")


def _sources() -> Path:
    return Path(upstream_build.module_info("k8s.io/kubernetes", upstream_build.KUBERNETES)["Dir"])


# --- servers ----------------------------------------------------------------------------------------------------------


class Judge(Upstream):
    """Upstream with the flags of test-cmd.sh."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.token = TOKEN
        self._testdata = _sources() / "hack" / "testdata"

    def _start_api_server(self, etcd: Sequence[str], parts: Parts) -> str:
        (port,) = free_ports(1)
        self._make_signing_key()
        self._start(
            "kube-apiserver", "kube-apiserver", "--bind-address=127.0.0.1", "--authorization-mode=RBAC,AlwaysAllow",
            f"--secure-port={port}", "--enable-admission-plugins=LimitRanger,ResourceQuota",
            "--disable-admission-plugins=ServiceAccount,DefaultStorageClass,DefaultTolerationSeconds,"
            "MutatingAdmissionWebhook,ValidatingAdmissionWebhook,StorageObjectInUseProtection",
            f"--etcd-servers={','.join(etcd)}", "--runtime-config=api/v1", "--service-account-lookup=true",
            f"--service-account-key-file={self.signing_key}", f"--service-account-signing-key-file={self.signing_key}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--cert-dir={self.folder}",
            "--service-cluster-ip-range=10.0.0.0/24", f"--client-ca-file={self._testdata / 'ca' / 'ca.crt'}",
            f"--token-auth-file={self._testdata / 'auth-tokens.csv'}",
        )  # fmt: skip
        url = f"https://127.0.0.1:{port}"
        self._wait("kube-apiserver", f"{url}/readyz")
        return url

    def _start_controllers(self, without: Sequence[str], *more: str) -> None:
        ca = self._testdata / "ca"
        self._start_delegating(
            "kube-controller-manager", f"--cluster-signing-cert-file={ca / 'ca.crt'}",
            f"--cluster-signing-key-file={ca / 'ca.key'}", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
        )  # fmt: skip


@contextlib.contextmanager
def serving(which: str) -> Iterator[str]:
    """The URL of a new server, with controllers."""
    if which == "ours":
        with ours.serve(("controllers",), (sys.executable, __file__, "--serve")) as ready:
            yield ready["url"]
        return
    parts = Parts(controllers=True)
    upstream_build.build(parts.programs)
    with tempfile.TemporaryDirectory() as name:
        server = Judge(Path(name))
        try:
            yield server.start_control_plane(server.start_etcd(1), parts)
        finally:
            server.stop()


async def serve(folder: str, components: str) -> None:
    """Ours, whose administrator has the token that the scripts show."""
    from minikube_py.apiserver.auth import ADMIN
    from minikube_py.control_plane.config import ControlPlaneConfig
    from minikube_py.control_plane.in_process import ControlPlane
    from minikube_py.env import SystemClock

    config = ControlPlaneConfig(Path(folder), port=0, components=tuple(components.split(",")))
    plane = ControlPlane(config, SystemClock(), random.Random(0))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await plane.start()
    plane.core.access.authenticator.add(TOKEN, ADMIN)
    # --authorization-mode=RBAC,AlwaysAllow
    policy = plane.core.access.policy
    policy.allowed, policy.decide = (lambda *_: True), (lambda *_: (True, ""))  # type: ignore[method-assign]
    print("ready", flush=True)
    await stop.wait()
    await plane.stop()


# --- results ----------------------------------------------------------------------------------------------------------


def judged(which: str, only: Sequence[str], logs: Path) -> Iterator[tuple[str, Outcome]]:
    """Each function with its result, on a new server."""
    logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, serving(which) as url:
        scripts = Scripts(Path(name), url)
        scripts.prepare()
        for function in only or [*scripts.functions(), BETWEEN]:
            yield function, scripts.run(function, logs / f"{function}.log")


REASONS = {
    "run_multi_resources_tests": "reads a manifest from raw.githubusercontent.com",
    "run_exec_credentials_tests": "TLS names no authority of clients, which Python's `ssl` cannot do",
}
"""Of what fails, why."""
HEAD = """# test-cmd

Kubernetes' own `hack/make-rules/test-cmd.sh` drives kubectl through the API: {count} functions, and the code between
them. Each is run unchanged, with kubectl {kubernetes}, against upstream and against minikube_py (`make test-cmd`, about
25 minutes for each server; it needs Go). Both servers are set up as the script expects: token `admin-token`, a node
127.0.0.1, controllers, everything allowed, no scheduler and no kubelet. `ALLOW_SKEW` is set, because minikube_py's
version is not a release of Kubernetes.

**Of these {whole}, {ours} pass here and {upstream} on upstream.** CI runs some of them.

| Function | Upstream | minikube_py |
|---|---|---|
"""


def write(which: str, outcomes: dict[str, Outcome], whole: bool) -> None:
    """Of a whole run, the results; of a part, those that are new."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    known = {} if whole else results.get(which, {})
    results[which] = known | {name: found.where or "passed" for name, found in outcomes.items()}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    TABLE.write_text(table(results))


def table(results: dict[str, dict[str, str]]) -> str:
    theirs, mine = results.get("upstream", {}), results.get("ours", {})
    passed = {which: list(found.values()).count("passed") for which, found in results.items()}
    rows = []
    for name in theirs:
        found = mine.get(name, "not run")
        why = REASONS.get(name)
        told = found if found in ("passed", "not run") else f"fails at {found}{f': {why}' if why else ''}"
        rows.append(f"| {name} | {theirs[name] if theirs[name] == 'passed' else f'fails at {theirs[name]}'} | {told} |")
    count = sum(name != BETWEEN for name in theirs)
    head = HEAD.format(count=count, whole=len(theirs), kubernetes=upstream_build.KUBERNETES, **passed)
    return head + "\n".join(rows) + "\n"


def main() -> int:
    if "--serve" in sys.argv:
        asyncio.run(serve(*sys.argv[2:4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", choices=("ours", "upstream"), default="ours")
    parser.add_argument("--only", default="", help="these functions, by comma")
    parser.add_argument("--logs", type=Path, default=ROOT / "results" / "test-cmd")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    upstream_build.build(["kubectl"])
    upstream_build.build_program(upstream_build.kubernetes_program("kubectl-convert"))
    only = [name for name in arguments.only.split(",") if name]
    outcomes: dict[str, Outcome] = {}
    for function, found in judged(arguments.on, only, arguments.logs / arguments.on):
        outcomes[function] = found
        said = "passed" if found.passed else f"FAILED at {found.where}"
        print(f"{function}: {said} ({found.took_s:.0f} s)", flush=True)
    passed = sum(found.passed for found in outcomes.values())
    print(f"{passed} of {len(outcomes)} functions passed on {arguments.on}")
    if arguments.write:
        write(arguments.on, outcomes, not only)
    return 0 if passed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
