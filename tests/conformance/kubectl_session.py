"""Runs the steps of a kubectl session against a server, and makes what differs by nature alike."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from scenario import Step

UNTIL_TIMEOUT_S = 40
COMMAND_TIMEOUT_S = 60


class Output(NamedTuple):
    code: int
    stdout: str
    stderr: str


NORMAL = [
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"), "<date>"),
    (re.compile(r'("?resourceVersion"?: ?)"\d+"'), r'\1"<rv>"'),
    (re.compile(r"https://[\d.]+:\d+"), "<server>"),
    (re.compile(r"\b(10|127|172|192)\.\d+\.\d+\.\d+\b"), "<ip>"),
    (re.compile(r"\b(web-rc)-[a-z0-9]{5}\b"), r"\1-<rand>"),
    (re.compile(r"(?<![\w.=:/-])(?:(\d+m)?\d+s|[2-9]m)(?![\w.])"), "<age>"),
    (re.compile(r"<invalid>"), "<age>"),
    (re.compile(r"(Resource Version:\s+)\d+"), r"\1<rv>"),
    (re.compile(r"/tmp/\S+?\.(yaml|json)"), "<file>"),
    (re.compile(r"\bkwok-\d[\w.]*|\bv1\.\d+\.\d+(?=\s|$)"), "<version>"),
    (re.compile(r"in record \(\d+\)"), "in record (<rv>)"),
]


EXPLAINED = re.compile(r"^(KIND|VERSION|GROUP|FIELD):|\t<")


def normalise(text: str) -> str:
    for pattern, replacement in NORMAL:
        text = pattern.sub(replacement, text)
    # Columns are padded to their longest cell, which may hold what was just replaced.
    lines = [re.sub(r" {2,}", "  ", line.rstrip()) for line in text.splitlines()]
    return "\n".join(lines)


def without_status(value: Any) -> Any:
    """A parsed object or list without `status`, which whoever plays the nodes writes in its own way."""
    if isinstance(value, dict):
        return {key: without_status(item) for key, item in value.items() if key != "status"}
    return [without_status(item) for item in value] if isinstance(value, list) else value


def run_step(kubectl: Path, kubeconfig: Path, home: Path, step: Step) -> Output:
    """One command; with `until`, repeated until its text appears, at most UNTIL_TIMEOUT_S."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "KUBECONFIG": str(kubeconfig),
        "TERM": "dumb",
        **dict(step.env),
    }
    deadline = time.monotonic() + UNTIL_TIMEOUT_S
    while True:
        done = subprocess.run(
            [str(kubectl), *shlex.split(step.command)],
            input=step.stdin,
            env=env,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            cwd=home,
        )
        if not step.until or step.until in done.stdout + done.stderr or time.monotonic() > deadline:
            return Output(done.returncode, done.stdout, done.stderr)
        time.sleep(0.1)


def comparable(step: Step, output: Output) -> dict[str, object]:
    """What of an output must be alike on both sides, by the step's own rule."""
    stdout, stderr = normalise(output.stdout), normalise(output.stderr)
    if step.keep:
        stdout = "\n".join(line for line in stdout.splitlines() if line.startswith(step.keep))
    if step.compare == "code":
        return {"code": output.code}
    if step.compare == "stdout":
        return {"stdout": stdout}
    if step.compare == "fields":
        stdout = "\n".join(line for line in stdout.splitlines() if EXPLAINED.search(line))
    if step.compare == "object":
        stdout = yaml.safe_dump(without_status(yaml.safe_load(output.stdout)))
        stdout = normalise(re.sub(r"(?<=resourceVersion: )\S+", '"1"', stdout))
    if step.compare == "sorted":
        stdout = "\n".join(sorted(stdout.splitlines()))
    return {"code": output.code, "stdout": stdout, "stderr": stderr}


def session(
    kubectl: Path, minor: int, kubeconfig: Path, home: Path, steps: Iterable[Step]
) -> Iterator[tuple[Step, Output]]:
    """What runs beside others has ended before anything is created from standard input."""
    with ThreadPoolExecutor() as beside:
        waiting: list[tuple[Step, Future[Output]]] = []
        for step in steps:
            if step.only and minor not in step.only:
                continue
            if step.beside:
                waiting.append((step, beside.submit(run_step, kubectl, kubeconfig, home, step)))
                continue
            if step.stdin:
                yield from ((each, output.result()) for each, output in waiting)
                waiting.clear()
            yield step, run_step(kubectl, kubeconfig, home, step)
        yield from ((each, output.result()) for each, output in waiting)
