"""What real clients do inside a pod: kubectl by SPDY (1.27) and by WebSockets (the newest), and the Python client."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import needs
import patience
import pytest
import yaml
from up_process import Up, up

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "containers": [
            {"name": "c", "image": "i", "command": ["sh", "-c", "echo one; echo two; sleep 100000"],
             "env": [{"name": "GREETING", "value": "hi"}], "ports": [{"containerPort": 8080}]},
        ]
    },
}  # fmt: skip
TIMEOUT_S = 60 * patience.FACTOR


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up("--nodes", "1", "--data-dir", str(tmp_path_factory.mktemp("inside") / "data")) as running:
        kubectl = Kubectl(needs.require_kubectls()[27], running)
        kubectl("apply", "-f", "-", given=yaml.safe_dump(POD).encode())
        kubectl("wait", "--for=condition=Ready", "pod/web", f"--timeout={TIMEOUT_S:.0f}s")
        yield running


class Kubectl:
    def __init__(self, path: Path, running: Up) -> None:
        self.command = [str(path), "--kubeconfig", str(running.kubeconfig)]

    def run(self, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*self.command, *words], input=given, capture_output=True, timeout=TIMEOUT_S)

    def __call__(self, *words: str, given: bytes = b"") -> bytes:
        done = self.run(*words, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(params=("spdy", "websocket"))
def kubectl(request: pytest.FixtureRequest, running: Up) -> Kubectl:
    found = needs.require_kubectls()
    return Kubectl(found[27] if request.param == "spdy" else found[max(found)], running)


def test_a_command_has_its_streams_and_its_exit_code(kubectl: Kubectl) -> None:
    script = "cat; echo $GREETING; ls absent; exit 3"
    done = kubectl.run("exec", "-i", "web", "--", "sh", "-c", script, given=b"typed\n")
    assert (done.returncode, done.stdout) == (3, b"typed\nhi\n")
    assert b"absent: No such file or directory" in done.stderr
    assert b"exit code 3" in done.stderr


def test_what_is_not_there_is_said(kubectl: Kubectl) -> None:
    done = kubectl.run("exec", "web", "--", "python3")
    assert done.returncode == 1
    assert b'exec: "python3": executable file not found in $PATH' in done.stderr


def test_files_go_in_and_come_out(kubectl: Kubectl, tmp_path: Path) -> None:
    data = bytes(range(256)) * 2000
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(data)
    kubectl("cp", str(tmp_path / "there"), "web:/tmp/there")
    kubectl("cp", "web:/tmp/there", str(tmp_path / "back"))
    assert (tmp_path / "back" / "file").read_bytes() == data
    kubectl("exec", "web", "--", "rm", "-r", "/tmp/there")


def test_a_port_is_forwarded_and_one_that_nobody_listens_on_is_not(kubectl: Kubectl) -> None:
    process = subprocess.Popen([*kubectl.command, "port-forward", "pod/web", ":8080"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split(b"->")[0].rpartition(b":")[2])
        for path in ("/a", "/b"):
            connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.read().decode() == f"pod default/web, container c, port 8080: GET {path}\n"
            connection.close()
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        process.stdout.close()


def test_logs(kubectl: Kubectl) -> None:
    assert kubectl("logs", "web") == b"one\ntwo\n"
    assert kubectl("logs", "web", "--tail=1") == b"two\n"
    assert kubectl("logs", "web", "--limit-bytes=2") == b"on"
    assert kubectl("logs", "web", "--timestamps").split()[1::2] == [b"one", b"two"]


def test_a_shell_that_is_run_for_once_ends_its_pod(kubectl: Kubectl) -> None:
    name = f"once-{Path(kubectl.command[0]).name.replace('.', '-')}"
    words = ("run", "-i", "--rm", name, "--image=i", "--restart=Never", "--", "sh")
    done = kubectl.run(*words, given=b"echo in shell; hostname\nexit 4\n")
    assert done.returncode == 4, done.stderr
    assert f"in shell\n{name}\n".encode() in done.stdout


def test_a_pod_ends_with_the_input_of_who_ran_it(kubectl: Kubectl) -> None:
    """`kubectl run -i` sets `stdinOnce`."""
    name = f"piped-{Path(kubectl.command[0]).name.replace('.', '-')}"
    done = kubectl.run("run", "-i", "--rm", name, "--image=i", "--restart=Never", "--", "cat", given=b"hi\n")
    assert (done.returncode, done.stdout.startswith(b"hi\n")) == (0, True), done.stderr


def test_a_terminal_echoes_and_edits_what_is_typed(kubectl: Kubectl) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(kubectl.command[0], [*kubectl.command, "exec", "-it", "web", "--", "sh"])
    seen = b""

    def shown(wanted: bytes) -> bool:
        nonlocal seen
        if select.select([terminal], [], [], 0)[0]:
            with contextlib.suppress(OSError):
                seen += os.read(terminal, 4096)
        return wanted in seen

    def until(wanted: bytes) -> None:
        patience.eventually(partial(shown, wanted), f"{wanted!r} is shown")

    until(b"/ # ")
    os.write(terminal, b"echo twx\x7fo\r")
    until(b"two\r\n/ # ")
    os.write(terminal, b"exit 7\r")
    until(b"exit code 7")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


PYTHON = """
import sys
from kubernetes import client, config
from kubernetes.stream import portforward, stream

config.load_kube_config(sys.argv[1])
v1 = client.CoreV1Api()
words = ["sh", "-c", "echo $GREETING; exit 5"]
found = stream(v1.connect_get_namespaced_pod_exec, "web", "default", command=words, stdout=True, stderr=True,
               _preload_content=False)
found.run_forever(timeout=60)
print(found.read_stdout().strip(), found.returncode)
v1 = client.CoreV1Api()
socket = portforward(v1.connect_get_namespaced_pod_portforward, "web", "default", ports="8080").socket(8080)
socket.setblocking(True)
socket.sendall(b"GET /x HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n")
print(socket.recv(4096).decode().splitlines()[-1])
"""


def test_the_python_client_by_its_own_protocol(running: Up) -> None:
    """As a process: it leaves its sockets open."""
    command = [sys.executable, "-c", PYTHON, str(running.kubeconfig)]
    done = subprocess.run(command, capture_output=True, timeout=2 * TIMEOUT_S)
    assert done.stdout.decode() == "hi 5\npod default/web, container c, port 8080: GET /x\n", done.stderr


def test_what_is_proxied_is_answered_by_the_pod(kubectl: Kubectl) -> None:
    path = "/api/v1/namespaces/default/pods/web:8080/proxy/a/b"
    assert kubectl("get", "--raw", path) == b"pod default/web, container c, port 8080: GET /a/b\n"
