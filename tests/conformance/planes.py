"""The same commands typed on upstream's whole control plane and on ours, step by step and at the same time: what they
print, and what is there at rest."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import needs
import ours
from asking import Ask, Server
from kubectl_session import normalise
from lockstep import RESTS_S
from patience import eventually

NODES = 3
TIMEOUT_S = 180
_ROOM = {"cpu": "32", "memory": "256Gi", "pods": "110"}
_NOISE = (
    (re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4}"), "<date>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+\d{4} UTC"), "<date>"),
    (re.compile(r"\b[a-f0-9]{8,10}\b"), "<hash>"),
    (re.compile(r"^W\d{4} [\d:.]+ +\d+ ", re.M), ""),
)


class Plane(NamedTuple):
    """`folder`: where its commands run."""

    name: str
    kubeconfig: str
    folder: Path
    programs: Mapping[str, Path]
    server: Server

    def run(self, typed: str, given: str = "") -> subprocess.CompletedProcess[str]:
        program, *words = shlex.split(typed)
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "KUBECONFIG": self.kubeconfig, "TERM": "dumb"}
        return subprocess.run(
            [str(self.programs[program]), *words], input=given, cwd=self.folder, env=env, capture_output=True,
            text=True, timeout=TIMEOUT_S,
        )  # fmt: skip

    def told(self, typed: str, given: str = "") -> str:
        """What it prints and its exit code, without what differs by chance."""
        done = self.run(typed, given)
        text = f"{done.stdout}{done.stderr}exit code {done.returncode}"
        for pattern, instead in _NOISE:
            text = pattern.sub(instead, text)
        return normalise(text)

    def read(self, path: str) -> Any:
        """What the API answers at this path."""
        answer = self.server.ask(Ask("read", "GET", path))
        assert answer.code == 200, f"{self.name}, {path}: {answer}"
        return json.loads(answer.body)


class Both:
    """`differing`: the steps in which the planes differed, as text; `succeeded`: how many commands did so on both."""

    def __init__(self, theirs: Plane, mine: Plane) -> None:
        self.planes = theirs, mine
        self.steps = self.succeeded = 0
        self.differing: list[str] = []
        self._beside = ThreadPoolExecutor(2)

    def each(self, act: Callable[[Plane], Any]) -> list[Any]:
        """Upstream's result and ours."""
        return list(self._beside.map(act, self.planes))

    def __call__(self, typed: str, given: str = "") -> None:
        """One command, whose output is compared."""
        self.steps += 1
        told = self.each(lambda plane: plane.told(typed, given))
        self.succeeded += all(each.endswith("exit code 0") for each in told)
        self._compare(typed, *told)

    def rest(self, what: str, ask: Callable[[Plane], Any]) -> None:
        """What both planes have at rest: they are asked until they tell the same, and it changes no more."""
        self.steps += 1
        last: list[Any] = []
        since_s = time.monotonic()

        def rests() -> bool:
            nonlocal last, since_s
            now = self.each(ask)
            if now != last or now[0] != now[1]:
                last, since_s = now, time.monotonic()
            return time.monotonic() - since_s >= RESTS_S

        try:
            eventually(rests, what, pause_s=0.1)
        except AssertionError:
            self._compare(what, *(json.dumps(each, indent=1, sort_keys=True) for each in last))

    def until(self, what: str, holds: Callable[[Plane], Any]) -> None:
        """Both planes come to it."""
        self.each(lambda plane: eventually(lambda: holds(plane), f"{plane.name}: {what}", pause_s=0.2))

    def _compare(self, what: str, theirs: str, mine: str) -> None:
        if theirs != mine:
            lines = difflib.unified_diff(theirs.splitlines(), mine.splitlines(), "upstream", "ours", lineterm="")
            self.differing.append("\n".join([f"--- {what}", *lines]))
            print(self.differing[-1])


@contextlib.contextmanager
def both(folder: Path, *programs: str) -> Iterator[Both]:
    """With scheduler, controllers and the simulated kubelets of three nodes each. `programs`: those besides kubectl."""
    known = {name: needs.original_program(name) for name in ("kubectl", *programs)}
    with (
        needs.original("--scheduler", "--controllers", "--kubelets") as theirs,
        ours.serve(("scheduler", "controllers", "kubelet"), nodes=NODES) as mine,
        contextlib.ExitStack() as stack,
    ):
        made = []
        for name, served in (("upstream", theirs), ("ours", mine)):
            (home := folder / name).mkdir()
            server = stack.enter_context(Server(served["url"], served["token"]))
            made.append(Plane(name, served["kubeconfig"], home, known, server))
        nodes = [
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"},
             "status": {"capacity": _ROOM, "allocatable": _ROOM}}
            for number in range(NODES)
        ]  # fmt: skip
        done = made[0].run("kubectl create -f -", json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
        assert done.returncode == 0, done.stderr
        yield Both(*made)
