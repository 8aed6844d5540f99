"""`replay openb` on three members of a real etcd, each killed once during it and restarted.

usage: PYTHONPATH=tests/support:tests/bench python tests/bench/bench_etcd_killed.py [--pods N] [--results DIR]

A member is killed with SIGKILL when a fifth, two and three fifths of the pods are in etcd, the leader first; it is
restarted once the others have accepted a tenth more. In the end every pod must be Running or known to fit nowhere, each
must exist in etcd once, and the members must hold the same keys.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from needs import original_program
from patience import eventually
from ports import free_ports

MEMBERS = 3
PODS = "/registry/pods/"
WITHIN_S = 1800.0


class Members:
    """Three etcds on loopback, fsync on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ports = free_ports(2 * MEMBERS)
        self.urls = [f"http://127.0.0.1:{port}" for port in ports[:MEMBERS]]
        self._peers = [f"http://127.0.0.1:{port}" for port in ports[MEMBERS:]]
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, at: int) -> None:
        cluster = ",".join(f"m{each}={peer}" for each, peer in enumerate(self._peers))
        client, peer = self.urls[at], self._peers[at]
        command = [
            str(original_program("etcd")), f"--name=m{at}", f"--data-dir={self._folder / f'm{at}'}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster={cluster}", "--log-level=error",
        ]  # fmt: skip
        with (self._folder / f"m{at}.log").open("ab") as log:
            self._running[at] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, at: int) -> None:
        member = self._running.pop(at)
        member.kill()
        member.wait()

    def send(self, at: int, number: int) -> None:
        self._running[at].send_signal(number)

    def stop(self) -> None:
        for at in list(self._running):
            self.kill(at)

    def ctl(self, *words: str, at: int | None = None) -> str:
        """Empty on failure."""
        urls = [self.urls[each] for each in ([at] if at is not None else self._running)]
        command = [str(original_program("etcdctl")), f"--endpoints={','.join(urls)}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout if not done.returncode else ""

    def healthy(self, at: int) -> bool:
        return "is healthy" in self.ctl("endpoint", "health", at=at)

    def leader(self) -> int:
        def found() -> list[int]:
            told = json.loads(self.ctl("endpoint", "status", "--write-out=json") or "[]")
            leaders = [each["Endpoint"] for each in told if each["Status"]["leader"] == header(each)["member_id"]]
            return [self.urls.index(endpoint) for endpoint in leaders]

        return int(eventually(found, "a leader", pause_s=0.2)[0])

    def pods(self) -> int:
        told = self.ctl("get", "--prefix", PODS, "--count-only", "--write-out=fields")
        return next((int(line.partition(":")[2]) for line in told.splitlines() if line.startswith('"Count"')), 0)

    def names(self) -> list[str]:
        return [key.rpartition("/")[2] for key in self.ctl("get", "--prefix", PODS, "--keys-only").split()]

    def digests(self) -> set[tuple[int, int]]:
        """(revision, hash) of every member."""
        told = json.loads(self.ctl("endpoint", "hashkv", "--write-out=json") or "[]")
        return {(header(each, "HashKV")["revision"], each["HashKV"]["hash"]) for each in told}


def header(each: Any, of: str = "Status") -> Any:
    return each[of]["header"]


def kill_each_once(members: Members, pods: int, running: Callable[[], bool]) -> list[str]:
    """What was killed, and at how many pods."""
    told: list[str] = []
    victims = list(range(MEMBERS))
    for fifth in range(1, MEMBERS + 1):
        reached(members, pods * fifth // 5, running)
        leader = members.leader()
        victim = leader if leader in victims else victims[0]
        victims.remove(victim)
        at = members.pods()
        members.kill(victim)
        told.append(f"{'the leader' if victim == leader else 'a follower'}, m{victim}, at {at:,} pods")
        reached(members, min(at + pods // 10, pods), running)
        members.start(victim)
        eventually(lambda at=victim: members.healthy(at), f"m{victim} is back", WITHIN_S, pause_s=0.2)
    return told


def reached(members: Members, count: int, running: Callable[[], bool]) -> None:
    def there() -> bool:
        if not running():
            raise SystemExit(f"the replay ended before {count} pods were in etcd")
        return members.pods() >= count

    eventually(there, f"{count} pods in etcd", WITHIN_S, pause_s=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=8152, help="the trace has 8,152")
    parser.add_argument("--results", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="etcd-killed-")))
        members = Members(folder)
        stack.callback(members.stop)
        for at in range(MEMBERS):
            members.start(at)
        for at in range(MEMBERS):
            eventually(lambda at=at: members.healthy(at), f"m{at} is healthy", pause_s=0.2)
        command = [sys.executable, "-m", "minikube_py", "replay", "openb", "--etcd-servers", ",".join(members.urls)]
        command += ["--pods", str(arguments.pods), "--results", str(arguments.results)]
        replay = subprocess.Popen(command)
        stack.callback(replay.wait)
        stack.callback(replay.terminate)
        for line in kill_each_once(members, arguments.pods, lambda: replay.poll() is None):
            print(f"killed: {line}")
        if replay.wait():
            raise SystemExit(f"the replay ended with {replay.returncode}")
        names = members.names()
        if not len(names) == len(set(names)) == arguments.pods:
            raise SystemExit(f"{len(names)} pods in etcd with {len(set(names))} names, not {arguments.pods}")
        print(f"{len(names):,} pods in etcd, each once")
        eventually(lambda: len(members.digests()) == 1, members.digests().__repr__(), pause_s=0.5)
        print(f"all members at revision and hash {members.digests()}")


if __name__ == "__main__":
    main()
