"""The cost of a link between two members: acknowledged APPENDs per second, bytes, processor time; both ends here.

    python tests/bench/bench_peers.py [--seconds 2]
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from patience import until
from peer_world import MemorySource, Talker, append, entries_from, snapshot_message, talking

from minikube_py.control_plane.certificates import ensure_authority
from minikube_py.control_plane.tls import peer_client_context, peer_server_context
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Entry, Message, MessageType, Term
from minikube_py.store.peer_connection import PeerLimits

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
SNAPSHOT_BYTES = 200_000_000


class Load(NamedTuple):
    """`entries` of `size_bytes` in each APPEND, `in_flight` of them, to this many `followers`."""

    entries: int
    size_bytes: int
    in_flight: int
    followers: int = 1


LOADS = (Load(1, 256, 1), Load(1, 256, 8), Load(100, 256, 2, 2), Load(256, 256, 1, 2), Load(1, 1_000_000, 4))


def contexts(folder: Path) -> Contexts:
    authority = ensure_authority(folder / "ca.crt", folder / "ca.key")
    files = folder / "peer.crt", folder / "peer.key"
    authority.ensure_leaf(*files, ["localhost"], client=True)
    return peer_server_context(*files, authority.pem), peer_client_context(*files, authority.pem)


class Flow:
    """A leader that keeps `in_flight` APPENDs in flight to each follower, which acknowledges each."""

    def __init__(self, load: Load, leader: Talker, followers: list[Talker]) -> None:
        self._load, self._leader, self._followers = load, leader, followers
        self._waiting = dict.fromkeys((each.id for each in followers), 0)
        self.acknowledged = 0
        self.stopped = False
        leader.driver.on_receive = self._answered
        for each in followers:
            each.driver.on_receive = lambda message, each=each: self._answer(each, message)

    def push(self) -> None:
        # New objects for each, as from a log.
        entries = [Entry(*entry) for entry in entries_from(1, self._load.entries, self._load.size_bytes)]
        for each in self._followers:
            self._waiting[each.id] += 1
        self._leader.send(*[append(1, each.id, entries) for each in self._followers])

    def _answer(self, follower: Talker, message: Message) -> None:
        follower.driver.received.clear()
        follower.send(Message(MessageType.APPEND_REPLY, follower.id, NodeId(1), Term(3), index=message.index))

    def _answered(self, message: Message) -> None:
        self._leader.driver.received.clear()
        self.acknowledged += 1
        self._waiting[message.sender] -= 1
        if not self.stopped and all(waiting < self._load.in_flight for waiting in self._waiting.values()):
            self.push()


async def measure(load: Load, tls: Contexts | None, duration_s: float) -> str:
    async with talking(1 + load.followers, tls=tls, limits=PeerLimits()) as (leader, *followers):
        flow = Flow(load, leader, followers)
        begun_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(load.in_flight):
            flow.push()
        await asyncio.sleep(duration_s)
        flow.stopped = True
        elapsed_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
        rate = flow.acknowledged / elapsed_s
        return (
            f"{load.entries:>8} {load.size_bytes:>10,} {load.in_flight:>9} {load.followers:>9} {rate:>10,.0f}"
            f" {rate * load.entries:>12,.0f} {rate * load.entries * load.size_bytes / 1e6:>8,.1f}"
            f" {cpu_s / flow.acknowledged * 1e6:>8,.0f}"
        )


async def snapshot(tls: Contexts | None) -> float:
    """MB/s without the usual rate limit."""
    async with talking(2, tls=tls, limits=PeerLimits(snapshot_bytes_per_s=1 << 40)) as (one, two):
        one.driver.source = MemorySource(bytes(SNAPSHOT_BYTES))
        begun_s = time.perf_counter()
        one.send(snapshot_message(1, 2, one.driver.source))
        await until(lambda: two.driver.incoming is not None and two.driver.incoming.offset == SNAPSHOT_BYTES, 60)
        return SNAPSHOT_BYTES / 1e6 / (time.perf_counter() - begun_s)


async def main(duration_s: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, tls in (("in the clear", None), ("mutual TLS", contexts(Path(folder)))):
            print(f"{name}\n entries size_bytes in_flight followers  appends/s    entries/s     MB/s   cpu_us")
            for load in LOADS:
                print(await measure(load, tls, duration_s))
            print(f"  snapshot {await snapshot(tls):,.0f} MB/s\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    asyncio.run(main(parser.parse_args().seconds))
