"""`minikube-py up` as a process, for tests from a user's view."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from patience import PATIENCE_S, Deadline

from minikube_py.client.kubeconfig import ClusterAccess, load_kubeconfig

READY_WITHIN_S = PATIENCE_S
ENDS_WITHIN_S = PATIENCE_S


def program_in(folder: Path) -> Path:
    """A new folder there for PATH, with `minikube-py` as an installation has it: of this code, in this Python."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "minikube-py").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m minikube_py "$@"\n')
    (programs / "minikube-py").chmod(0o755)
    return programs


class Up:
    """Its output is read continuously, so that a full pipe never blocks it."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minikube_py", "up", "--port", "0", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._said = threading.Condition()
        self._open = 2
        assert self.process.stdout is not None and self.process.stderr is not None
        sources = ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        self._readers = [threading.Thread(target=self._read, args=each, daemon=True) for each in sources]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe, into: list[str]) -> None:  # type: ignore[no-untyped-def]
        with pipe:
            for line in pipe:
                with self._said:
                    into.append(line.decode().rstrip("\n"))
                    self._said.notify_all()
        with self._said:
            self._open -= 1
            self._said.notify_all()

    def until_said(self, text: str, after: int = 0, timeout_s: float = READY_WITHIN_S) -> bool:
        """Whether a line with `text` came, from line `after` on, before the process ended."""

        def found() -> bool:
            return any(text in line for line in self.lines[after:])

        with self._said:
            if not self._said.wait_for(lambda: found() or self._open == 0, timeout_s):
                raise AssertionError(f"did not say {text!r} in {timeout_s} s: {self.lines} {self.errors}")
            return found()

    def ready(self) -> bool:
        """False if it ended instead; its output is in `errors`."""
        try:
            return self.until_said("kubectl --kubeconfig")
        except BaseException:
            self.process.kill()
            raise

    @property
    def kubeconfig(self) -> Path:
        found = [match[1] for line in self.lines if (match := re.search(r"kubectl --kubeconfig (\S+) get", line))]
        return Path(found[0])

    @property
    def access(self) -> ClusterAccess:
        return load_kubeconfig(self.kubeconfig)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.access.server.removeprefix("https://").rpartition(":")
        return host, int(port)

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.access.ca_pem.decode())  # type: ignore[union-attr]

    def children(self) -> dict[str, int]:
        """Role -> pid of the processes it started itself (`--split`)."""
        pid = self.process.pid
        found: dict[str, int] = {}
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            arguments = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            found |= {name: int(child) for name in ROLES if name in arguments}
        return found

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(ENDS_WITHIN_S)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        for reader in self._readers:
            reader.join(ENDS_WITHIN_S)
        return code


LEGITIMATE = ("by no node's fault", "no node is ready")
"""Messages of the node monitor: that it was delayed itself; that all nodes are new, or none has reported yet."""
ROLES = ("store", "apiserver", "scheduler", "controllers", "kubelet")


@contextlib.contextmanager
def up(*flags: str, expected: str = "") -> Iterator[Up]:
    """A ready control plane that ends without complaints, except lines that contain `expected`, and messages about
    missing CPU time or nodes that were not ready yet."""
    running = Up(*flags)
    try:
        assert running.ready(), running.errors
        yield running
    finally:
        running.end()
    allowed = [*LEGITIMATE, *filter(None, (expected,))]
    complaints = [line for line in running.errors if not any(each in line for each in allowed)]
    assert not complaints, "\n".join(complaints)


def again(*flags: str) -> Up:
    """Starts again on the data of a killed one, whose children end by themselves a moment later."""
    deadline = Deadline()
    while not (running := Up(*flags)).ready():
        running.end()
        assert "in use by process" in "".join(running.errors), running.errors
        deadline.check(running.errors)
    return running
