"""How long one request holds the loop: hostile and large requests over HTTPS, and the most CPU of one step of the loop.

Each request goes over a connection to an API server in this process; large ones are worked on in its worker processes,
which are not counted. Printed: milliseconds of this thread's CPU in the longest step, and how the request was answered.

    python tests/bench/bench_stalls.py [--json] [NAME...]
"""

from __future__ import annotations

import argparse
import asyncio
import asyncio.events
import http.client
import json
import random
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from minikube_py.apiserver.auth import ADMIN
from minikube_py.apiserver.core import ApiServer
from minikube_py.apiserver.http_server import HttpServer
from minikube_py.control_plane.certificates import ensure_certificates
from minikube_py.env import SystemClock, SystemDisk
from minikube_py.store.member import MemberConfig, StoreMember
from tests.support.hostile import Hostile, prepare, requests

http.client._MAXHEADERS = 1000  # type: ignore[attr-defined]
TOKEN = "bench-token"
LIMIT_MS = 20.0


class Steps:
    """The CPU time of each step of the loop, while observed."""

    def __init__(self) -> None:
        self.most_ms = 0.0
        self.what = ""
        self._run = asyncio.events.Handle._run

    def start(self) -> None:
        run, steps, here = self._run, self, threading.get_ident()

        def measured(handle: asyncio.events.Handle) -> None:
            if threading.get_ident() != here:
                run(handle)
                return
            before = time.thread_time_ns()
            run(handle)
            took_ms = (time.thread_time_ns() - before) / 1e6
            if took_ms > steps.most_ms:
                steps.most_ms, steps.what = took_ms, str(handle)[:160]

        asyncio.events.Handle._run = measured  # type: ignore[method-assign]

    def stop(self) -> None:
        asyncio.events.Handle._run = self._run  # type: ignore[method-assign]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[int, ssl.SSLContext, ApiServer]]:
    clock = SystemClock()
    member = StoreMember(SystemDisk(folder / "store"), clock, random.Random(1), MemberConfig(own_gc=True))
    await member.start()
    core = ApiServer(member.storage, clock, random.Random(2), tokens={TOKEN: ADMIN})
    await core.start()
    certificates = ensure_certificates(folder / "certificates", ["127.0.0.1"])
    server = HttpServer(core, tls=certificates.server_context())
    port = await server.start()
    yield port, certificates.client_context(), core
    await core.stop()
    await server.stop()
    await member.stop()


def ask(port: int, context: ssl.SSLContext, one: Hostile) -> int:
    """From another thread, whose steps do not count."""
    headers = {"Content-Type": one.content_type, "Accept": one.accept, "Authorization": f"Bearer {TOKEN}"}
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
    try:
        connection.request(one.method, one.path.replace(" ", "%20"), one.body, headers)
        answer = connection.getresponse()
        while answer.read(1 << 20):
            pass
        return answer.status
    finally:
        connection.close()


async def measure(names: list[str], tell: Callable[[dict[str, Any]], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder)) as (port, context, core):
            await prepare(core)
            steps = Steps()
            for one in requests():
                if names and not any(name in one.name for name in names):
                    continue
                status = 0
                for last in (False, True):
                    # Once unmeasured: starts a worker and fills caches.
                    steps.most_ms = 0.0
                    steps.start()
                    began = time.monotonic()
                    try:
                        status = await asyncio.to_thread(ask, port, context, one)
                        await asyncio.sleep(0.01)
                    finally:
                        steps.stop()
                    took_s = time.monotonic() - began
                    if one.undo:
                        await asyncio.to_thread(ask, port, context, Hostile("undo", "DELETE", one.undo))
                    if last:
                        row = {"request": one.name, "bytes": len(one.body), "status": status}
                        took = {"longest_step_ms": round(steps.most_ms, 1), "step": steps.what, "s": round(took_s, 2)}
                        tell({**row, **took})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []

    def tell(row: dict[str, Any]) -> None:
        rows.append(row)
        if not options.json:
            over = row["step"] if row["longest_step_ms"] > LIMIT_MS else ""
            shown = (row["request"], row["bytes"], row["status"], row["longest_step_ms"], row["s"], over)
            print("| " + " | ".join(map(str, shown)) + " |", flush=True)

    if not options.json:
        print("| request | bytes | status | longest step, ms of CPU | s | |\n|---|---|---|---|---|---|")
    asyncio.run(measure(options.names, tell))
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
