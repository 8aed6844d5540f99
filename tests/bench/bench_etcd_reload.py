"""How much rereading an etcd delays others in the same process: the longest turns of the loop, by CPU.

usage: PYTHONPATH=tests/support python tests/bench/bench_etcd_reload.py [--objects N]

The mirror of an API server on an etcd with N pods is loaded, follows changes, and is loaded again as after a restore,
beside objects like those in the API server's caches. This process simulates etcd with precomputed responses.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from typing import Any

import orjson

from minikube_py.env import SystemClock
from minikube_py.etcd.feed import Feed
from minikube_py.etcd.keys import Keys
from minikube_py.etcd.messages import pb
from minikube_py.etcd.mirror import Change
from minikube_py.etcd.pages import MOST
from minikube_py.etcd.wording import Wording
from minikube_py.fields.builtin import NODES, PODS

CHANGES = 20_000
HOUSE_TURNS = 3_000


def pod(number: int) -> bytes:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
    spec = {"nodeName": f"n{number % 99}", "containers": [container]}
    return orjson.dumps({"metadata": {"name": f"p{number}"}, "spec": spec})


class Played:
    """EtcdClient, as far as a feed needs it."""

    place = "played"

    def __init__(self, objects: int) -> None:
        found = [
            pb.KeyValue(
                key=b"/registry/pods/d/p%07d" % number, value=pod(number), create_revision=2, mod_revision=2, version=1
            )
            for number in range(objects)
        ]
        header = pb.ResponseHeader(revision=10, cluster_id=1)
        self._pages = [
            pb.RangeResponse(header=header, kvs=found[at : at + MOST], more=at + MOST < objects).SerializeToString()
            for at in range(0, objects, MOST)
        ]
        self._at = 0

    async def read(self, name: str, request: Any, once_s: float | None = None) -> Any:
        await asyncio.sleep(0)
        if request.limit != MOST:
            return pb.RangeResponse(header=pb.ResponseHeader(revision=10, cluster_id=1))
        if request.key == Keys().low:
            self._at = 0
        self._at += 1
        return pb.RangeResponse.FromString(self._pages[self._at - 1])

    def stream(self, name: str, timeout_s: float | None = None) -> Any:
        raise TimeoutError

    def pass_over(self, place: str) -> None:
        pass


class Turns:
    """The longest turns of the loop since the last call, in milliseconds of this thread's CPU."""

    def __init__(self) -> None:
        self._found: list[float] = []
        self._task = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self._found.append((now - before) * 1e3)
            before = now

    def longest(self) -> str:
        found, self._found = sorted(self._found, reverse=True)[:3], []
        return " ".join(f"{each:.0f}" for each in found)

    def end(self) -> None:
        self._task.cancel()


async def measure(objects: int) -> None:
    client, turns = Played(objects), Turns()
    caches = [orjson.loads(pod(number)) for number in range(objects)]
    feed = Feed(client, Wording(Keys()), SystemClock())  # type: ignore[arg-type]
    feed.pages.keys = MOST
    feed.field_sets = {each.name: each for each in (NODES, PODS)}
    await asyncio.sleep(0)
    turns.longest()
    await feed.start()
    await asyncio.sleep(0)
    print("first load:", turns.longest(), flush=True)
    for number in range(CHANGES):
        revision = feed.mirror.revision + 1
        feed.mirror.apply([Change(b"/registry/pods/d/p%07d" % (number % objects), revision, pod(number), 0)])
        caches[number % objects] = orjson.loads(pod(number))
        await asyncio.sleep(0)
    print("following:", turns.longest(), flush=True)
    await feed._load(0)
    await asyncio.sleep(0)
    print("load again:", turns.longest(), flush=True)
    for _ in range(HOUSE_TURNS):
        await asyncio.sleep(0.0005)
    print("afterwards:", turns.longest(), flush=True)
    turns.end()
    gc.collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=100_000)
    asyncio.run(measure(parser.parse_args().objects))


if __name__ == "__main__":
    main()
