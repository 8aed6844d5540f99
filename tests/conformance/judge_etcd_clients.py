"""The test suites of etcd's Python clients, as they are, against three members of ours and of the real etcd.

    python tests/conformance/judge_etcd_clients.py [--suites FOLDER] [--only a,b] [--on etcd,ours] [--tests K]

Each suite is cloned into FOLDER at its commit, and its packages are installed into an environment of its own there. It
runs in a network and a process namespace of its own, for suites expect etcd at localhost:2379 and stop processes by
name. `etcdctl`, which some of them call, is upstream's. The exit code is 1 where a test fails on ours that passes on
etcd and that is not listed here as different by design.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(each) for each in (HERE.parent / "support", ROOT / "tools", ROOT)]

import upstream_build  # noqa: E402
from etcd_api import Caller  # noqa: E402
from patience import Deadline  # noqa: E402

from minikube_py.etcd.messages import pb  # noqa: E402

MEMBERS = 3
PORT = 2379
"""Of the first member, where suites expect it; the gateway's suites find the gateway there."""
TIMEOUT_S = 900
ISOLATED = ("unshare", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
"""So that a suite which stops processes by name stops none but those of its run."""


class Suite(NamedTuple):
    repository: str
    commit: str
    packages: str
    """What pip installs for it, beside pytest."""
    tests: str
    source: tuple[str, ...] = ("",)
    """The folders that its packages are imported from."""
    gateway: bool = False
    environment: dict[str, str] = {}
    different: dict[str, str] = {}
    """What fails on ours by design, by the test's name, with the reason."""


ALARMS = "a client activates an alarm; here members raise them alone"
PEERS = "peers' URLs are expected to be http; here they are reached over TLS alone"
DIFFERENT = {"test_member_list": PEERS} | dict.fromkeys(
    ("test_create_alarm_all_members", "test_create_alarm_specific_member", "test_list_alarms", "test_disarm_alarm"),
    ALARMS,
)
SUITES = {
    "python-etcd3": Suite(
        "kragniz/python-etcd3", "e58a899579ba416449c4e225b61f039457c8072a",
        "grpcio protobuf six tenacity mock hypothesis",
        "tests", ("", "etcd3"),
        environment={"PYTHON_ETCD_HTTP_URL": f"http://127.0.0.1:{PORT}", "TEST_ETCD_VERSION": "v3.7.0"},
        different=DIFFERENT,
    ),
    "aetcd": Suite(
        "martyanov/aetcd", "99da435551f6dfc34a70466b3fb30e0e910df805",
        "grpcio protobuf pytest-asyncio pytest-mock", "-o addopts= --with-cluster tests",
        environment={"TEST_ETCD_HTTP_URL": f"http://127.0.0.1:{PORT}"}, different=DIFFERENT,
    ),
    "etcetra": Suite(
        "lablup/etcetra", "06c133826db891216f708ff33b89eaf733894de6",
        "etcetra==0.1.19 pytest-asyncio", "--asyncio-mode auto tests", source=("tests",),
    ),
    "etcd3aio": Suite(
        "danielsabatini/etcd3aio", "3f1c76713cd323d8f0e96e8938200c439d021244",
        "etcd3aio==0.3.0 pytest-asyncio", "-o addopts= tests/unit tests/integration --ignore tests/integration/tls",
        source=("tests",),
    ),
    "etcd3-py": Suite(
        "Revolution1/etcd3-py", "deea4583c2e61a7d8af58c8790d4fa50cf602544",
        "requests aiohttp semantic-version six mock pytest-asyncio<0.20 pytest<8 setuptools<81",
        "--asyncio-mode auto tests", gateway=True,
        environment={"ETCD_VER": "v3.7.0", "ETCD_ENDPOINT": f"http://127.0.0.1:{PORT}"},
        different={"test_alarm": ALARMS},
    ),
    "etcd3gw": Suite(
        "openstack/etcd3gw", "024ecbc88b0ef767eda03325e622475b0fcf3484",
        "requests futurist pbr urllib3 oslotest", "etcd3gw/tests", gateway=True,
    ),
}  # fmt: skip


class Prepared(NamedTuple):
    suite: Suite
    checkout: Path
    python: Path


def prepared(name: str, folder: Path) -> Prepared:
    suite = SUITES[name]
    checkout, environment = folder / name, folder / f"{name}.venv"
    if not checkout.exists():
        said("git", "clone", "--quiet", f"https://github.com/{suite.repository}", str(checkout))
    said("git", "-C", str(checkout), "checkout", "--quiet", suite.commit)
    python = environment / "bin" / "python"
    if not (environment / "done").exists():
        venv.create(environment, with_pip=True, clear=True)
        said(str(python), "-m", "pip", "install", "--quiet", "pytest", *suite.packages.split())
        (environment / "done").touch()
    return Prepared(suite, checkout, python)


def said(*command: str) -> None:
    subprocess.run(command, check=True)


# --- in the namespaces ------------------------------------------------------------------------------------------------


def grpc_port(number: int, gateway: bool) -> int:
    return PORT + 10 * number + (1 if gateway else 0)


def members(on: str, folder: Path, gateway: bool) -> Iterator[list[str]]:
    """The command of each."""
    peers = [PORT + 10 * number + 5 for number in range(MEMBERS)]
    names = [f"pifpaf{number}" for number in range(MEMBERS)]  # the names that python-etcd3's suite looks for
    scheme = "http://" if on == "etcd" else ""
    initial = ",".join(f"{name}={scheme}127.0.0.1:{peer}" for name, peer in zip(names, peers, strict=True))
    if on == "ours":
        said(
            sys.executable, "-m", "minikube_py", "init-secrets", "--dir", str(folder / "secrets"), "--hosts",
            "127.0.0.1",
        )  # fmt: skip
    for number, name in enumerate(names):
        client = grpc_port(number, gateway and on == "ours")
        place = ["--name", name, "--data-dir", str(folder / name), "--initial-cluster", initial]
        url, peer = f"http://127.0.0.1:{client}", f"127.0.0.1:{peers[number]}"
        if on == "etcd":
            yield [
                str(upstream_build.bin_folder() / "etcd"), *place, "--log-level", "error", "--listen-client-urls", url,
                "--advertise-client-urls", url, "--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls",
                f"http://{peer}",
            ]  # fmt: skip
            continue
        http = ["--listen-client-http-urls", f"http://127.0.0.1:{PORT}"] if gateway and number == 0 else []
        yield [
            sys.executable, "-m", "minikube_py", "store", *place, "--secrets-dir", str(folder / "secrets" / "store"),
            "--listen", f"127.0.0.1:{PORT + 10 * number + 6}", "--listen-peers", peer, "--listen-client-urls", url,
            *http, "--auto-compaction-retention", "0",
        ]  # fmt: skip


def isolated(on: str, gateway: bool, command: list[str]) -> int:
    """In namespaces of its own: three members, and the suite against them."""
    said("ip", "link", "set", "lo", "up")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        for number, member in enumerate(members(on, folder, gateway)):
            log = stack.enter_context((folder / f"{number}.log").open("w"))
            process = subprocess.Popen(member, stdout=log, stderr=log)
            stack.callback(process.kill)
        first = grpc_port(0, gateway and on == "ours")
        caller, deadline = Caller(f"127.0.0.1:{first}"), Deadline()
        while caller.call("KV/Range", pb.RangeRequest(key=b"a"))[0] != "ok":
            deadline.check("the members serve")
        caller.close()
        # Where the gateway has an address of its own, `etcdctl` goes to that of gRPC.
        wrapper = folder / "etcdctl"
        real = shlex.quote(str(upstream_build.bin_folder() / "etcdctl"))
        wrapper.write_text(f'#!/bin/bash\nexec {real} "${{@//:{PORT}/:{first}}}"\n')
        wrapper.chmod(0o755)
        # A suite that finds Docker starts an etcd of its own by it.
        (folder / "docker").write_text("#!/bin/sh\nexit 1\n")
        (folder / "docker").chmod(0o755)
        environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
        if first != PORT:
            environment |= {"ETCDCTL_ENDPOINTS": f"http://127.0.0.1:{first}"}
        return subprocess.run(command, env=environment, check=False).returncode


# --- results ----------------------------------------------------------------------------------------------------------


def run(on: str, it: Prepared, log: Path, only: str) -> dict[str, str]:
    """Of each test: passed, failed or skipped."""
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    environment = it.suite.environment | {
        "PYTHONPATH": os.pathsep.join(str(it.checkout / each) for each in it.suite.source),
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python",
        "MINIKUBE_PY_UPSTREAM_BIN": str(upstream_build.bin_folder()),
    }  # fmt: skip
    tests = [str(it.python), "-m", "pytest", "-p", "no:cacheprovider", "-rf", f"--junitxml={report.resolve()}"]
    tests += [*shlex.split(it.suite.tests), "-k", only]
    pairs = [f"{key}={value}" for key, value in environment.items()]
    inside = [sys.executable, str(Path(__file__).resolve()), "--inside", on, "gateway" if it.suite.gateway else "grpc"]
    with log.open("w") as out, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [*ISOLATED, *inside, "--", "env", *pairs, *tests], stdout=out, stderr=out, cwd=it.checkout,
            env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    if not report.exists():
        raise RuntimeError(f"{log} has no result")
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
        found[f"{case.get('classname')}.{case.get('name')}"] = outcome
    return found


def main() -> int:
    if sys.argv[1:2] == ["--inside"]:
        return isolated(sys.argv[2], sys.argv[3] == "gateway", sys.argv[5:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", type=Path, default=ROOT / "results" / "etcd-clients")
    parser.add_argument("--only", default="", help="these suites, by comma")
    parser.add_argument("--on", default="etcd,ours", help="by comma")
    parser.add_argument("--tests", default="", help="pytest's -k")
    arguments = parser.parse_args()
    upstream_build.build(["etcd", "etcdctl"])
    arguments.suites.mkdir(parents=True, exist_ok=True)
    worse = 0
    for name in filter(None, arguments.only.split(",")) if arguments.only else SUITES:
        it = prepared(name, arguments.suites)
        logs = {on: arguments.suites / f"{name}.{on}.log" for on in arguments.on.split(",")}
        found = {on: run(on, it, log, arguments.tests) for on, log in logs.items()}
        for on, results in found.items():
            counts = {each: list(results.values()).count(each) for each in ("passed", "failed", "skipped")}
            print(f"{name} on {on}: {', '.join(f'{count} {each}' for each, count in counts.items())}", flush=True)
        theirs = found.get("etcd", {})
        for test, outcome in found.get("ours", {}).items():
            if outcome != theirs.get(test, outcome):
                why = it.suite.different.get(test.rpartition(".")[2], "")
                worse += outcome == "failed" and not why
                print(f"  {test}: {theirs[test]} on etcd, {outcome} on ours{f': {why}' if why else ''}", flush=True)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
