"""kill -9 of a real store process under load, ten times on the same directory."""

from __future__ import annotations

import asyncio
import random
import signal
import sys

from patience import PATIENCE_S

from minikube_py.env import SystemClock
from minikube_py.errors import MinikubeError
from minikube_py.mvcc.types import Put, RangeRequest
from minikube_py.store.client import StoreClient
from minikube_py.store.client_connection import Endpoint

KILLS = 10
WRITERS = 32

STORE = """
import asyncio, random, sys
from pathlib import Path
from minikube_py.env import SystemClock
from minikube_py.store.data_dir import DataDir
from minikube_py.store.member import MemberConfig, StoreMember
from minikube_py.store.server import StoreServer

async def main():
    data = DataDir(Path(sys.argv[1]))
    config = MemberConfig(segment_bytes=1 << 20, snapshot_log_bytes=2 << 20)
    member = StoreMember(data.disk(), SystemClock(), random.Random(), config)
    await member.start()
    server = StoreServer(member, "token")
    await server.start()
    print(server.address[1], flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def writer(client: StoreClient, worker: int, acknowledged: dict[bytes, int], proposed: dict[bytes, int]) -> None:
    """Counts up one key until the store is gone: what was acknowledged may only be followed by what was proposed."""
    key = b"/counter/%d" % worker
    number = acknowledged.get(key, 0)
    while True:
        number += 1
        proposed[key] = number
        try:
            await client.txn((), (Put(key, b"%d " % number + bytes(600)),))
        except MinikubeError:
            return
        acknowledged[key] = number


async def test_kill_nine_times_and_once_more(tmp_path):
    rng = random.Random(9)
    acknowledged: dict[bytes, int] = {}
    proposed: dict[bytes, int] = {}
    cluster_id = 0
    total = 0
    for turn in range(KILLS + 1):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", STORE, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        try:
            port = int(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
            endpoint = Endpoint("127.0.0.1", port, "token", None, cluster_id)
            client = StoreClient(endpoint, SystemClock(), rng, request_timeout_s=2)
            await client.start()
            cluster_id = client.cluster_id
            found = await client.range(RangeRequest(b"/counter/", b"/counter0"))
            state = {kv.key: int(kv.value.split()[0]) for kv in found.kvs}
            for key in proposed:
                low, high = acknowledged.get(key, 0), proposed[key]
                assert low <= state.get(key, 0) <= high, f"{key!r} is {state.get(key)}, not in [{low}, {high}]"
            acknowledged, proposed = dict(state), dict(state)
            if turn < KILLS:
                writers = [
                    asyncio.ensure_future(writer(client, worker, acknowledged, proposed)) for worker in range(WRITERS)
                ]
                await asyncio.sleep(rng.uniform(0.05, 0.4))
                process.send_signal(signal.SIGKILL)
                await process.wait()
                # Nobody comes back at that address: what was on its way is unknown.
                await client.close()
                await asyncio.wait_for(asyncio.gather(*writers), PATIENCE_S)
                total += sum(acknowledged.values()) - sum(state.values())
            await client.close()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
    assert total > 1000, "the load was no load"
