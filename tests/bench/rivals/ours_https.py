"""Our API server over HTTPS, in a separate process: a field selector, answered as Table rows with free amounts."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from rivals.contract import LOGGED, Entry, Node, Question, batches, number_of
from rivals.https import Client
from rivals.objects import GPU, key_of, stored

from minikube_py.control_plane import tokens
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.env import SystemClock
from minikube_py.mvcc.types import Put

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
COLUMNS = "columns"
FIELDS = ("free.cpu", "free.memory", f"free.{GPU}")
READY_TRIES = 600


class Api:
    def __init__(self, process: subprocess.Popen[str], structure: str) -> None:
        self._process, self._structure = process, structure
        self.client: Client

    def load(self, nodes: Sequence[Node]) -> None:
        """The process receives the nodes by stdin, and writes them directly to its store."""
        assert self._process.stdin is not None and self._process.stdout is not None
        json.dump(nodes, self._process.stdin)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        ready = json.loads(self._process.stdout.readline())
        self.client = Client(ready["url"], ready["token"])
        if self._structure != COLUMNS:
            self._declare()

    def _declare(self) -> None:
        import time

        spec = {"name": "fits", "on": "nodes", "fields": FIELDS, "structure": self._structure}
        self.client.ask("POST", "/minikube-py/v1/indexes", {}, spec)
        for _ in range(READY_TRIES):
            report = self.client.ask("GET", "/minikube-py/v1/indexes/fits", {})
            if report["status"]["state"] == "ready":
                return
            time.sleep(0.05)
        raise SystemExit(f"the index is not ready: {report}")

    def update(self, number: int, node: Node) -> None:
        self.client.set_node(number, node)

    def first(self, question: Question, limit: int) -> Sequence[int]:
        return self._rows(question, {"limit": str(limit)})

    def every(self, question: Question) -> Sequence[int]:
        return self._rows(question, {})

    def _rows(self, question: Question, more: dict[str, str]) -> Sequence[int]:
        texts = (f"{question.cpu_milli}m", f"{question.memory_mib}Mi", str(question.gpus))
        selector = ",".join(f"{field}>={text}" for field, text in zip(FIELDS, texts))
        params = {"fieldSelector": selector, **more}
        table = self.client.ask("GET", "/api/v1/nodes", params, accept=TABLE)
        return [number_of(row["cells"][0]) for row in table["rows"]]


@contextmanager
def start(structure: str) -> Iterator[Api]:
    with tempfile.TemporaryDirectory(prefix="rival-ours-") as folder:
        command = [sys.executable, "-m", "rivals.ours_https", folder]
        here = Path(__file__).parents[1]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=here)
        assert process.stdin is not None and process.stdout is not None
        try:
            api = Api(process, structure)
            yield api
            api.client.close()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            with closing(process.stdin), closing(process.stdout):
                pass


def entries(structures: Sequence[str]) -> list[Entry]:
    return [
        Entry(f"minikube_py, HTTPS with Table rows, {name}", LOGGED[True], partial(start, name)) for name in structures
    ]


async def serve(folder: Path) -> None:
    """A control plane without components; writes objects from stdin to its store; until SIGTERM."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    plane = ControlPlane(ControlPlaneConfig(folder, port=0, components=()), SystemClock(), random.Random(0))
    await plane.start()
    nodes = [Node(*each) for each in json.loads(await loop.run_in_executor(None, sys.stdin.readline))]
    for batch in batches(nodes, 100):
        await plane.storage.txn((), [Put(key_of(i), stored(i, node)) for i, node in batch])
    print(json.dumps({"url": plane.server, "token": plane.credentials.by_role[tokens.ADMIN]}), flush=True)
    await stop.wait()
    await plane.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
