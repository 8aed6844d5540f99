"""Store members as users run them: `minikube-py store` over TLS, linked through our proxy, with faults on demand.

Nothing here needs root, and all processes end with the cluster: members end with their standard input, and the proxy
kills those that cannot."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from patience import PATIENCE_S
from ports import free_ports
from store_members import Members

from minikube_py.control_plane.secret_files import AUTHORITY, STORE_TOKEN
from minikube_py.control_plane.store_access import StoreAccess
from minikube_py.control_plane.tokens import read_token

HOST = "127.0.0.1"
READY_WITHIN_S = PATIENCE_S
ENDS_WITHIN_S = PATIENCE_S
LIMITED = """\
import os, resource, sys
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), hard))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class Role:
    """One of our roles as a process. `out`, `errors`: its output so far."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments
        self.out: list[str] = []
        self.errors: list[str] = []
        self._process: asyncio.subprocess.Process
        self._readers: list[asyncio.Task[None]] = []
        self._where: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def start(self, file_bytes_max: int | None = None) -> None:
        """`file_bytes_max`: writes beyond that size fail, as on a full disk."""
        command = ["-m", "minikube_py", *self.arguments, "--with-parent"]
        if file_bytes_max is not None:
            command = ["-c", LIMITED, str(file_bytes_max), *command]
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        self._readers = [
            asyncio.create_task(self._read(self._process.stdout, self.out)),
            asyncio.create_task(self._read(self._process.stderr, self.errors)),
        ]

    async def _read(self, pipe: asyncio.StreamReader, into: list[str]) -> None:
        while line := await pipe.readline():
            text = line.decode(errors="replace").rstrip("\n")
            into.append(text)
            if into is self.out and text.startswith("ready ") and not self._where.done():
                self._where.set_result(text.removeprefix("ready "))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.returncode is None

    async def ready(self) -> str:
        """Its address, once it serves."""
        ended = asyncio.ensure_future(self._process.wait())
        try:
            await asyncio.wait({ended, self._where}, timeout=READY_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
            assert self._where.done(), f"{self.arguments[0]} is not ready: {self.out[-5:]} {self.errors[-5:]}"
            return self._where.result()
        finally:
            ended.cancel()

    async def ended(self, within_s: float = ENDS_WITHIN_S) -> int:
        """Its exit code, once it has ended by itself and all its output was read."""
        try:
            async with asyncio.timeout(within_s):
                code = await self._process.wait()
        except TimeoutError:
            raise AssertionError(f"{self.arguments} has not ended: {self.out[-5:]} {self.errors[-5:]}") from None
        await asyncio.gather(*self._readers)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._where.cancel()
        return code

    def signal(self, number: signal.Signals) -> None:
        if self.runs:
            self._process.send_signal(number)

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended()


class Links:
    """The proxy's remote control. `rules` by (source, destination); see `proxy`."""

    def __init__(self) -> None:
        self.rules: dict[tuple[str, str], tuple[str, float]] = {}
        self._process: asyncio.subprocess.Process
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        script = Path(__file__).with_name("proxy.py")
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdin=pipe, stdout=pipe, start_new_session=True
        )

    async def stop(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        await self._process.stdout.read()
        await self._process.wait()

    async def say(self, do: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        async with self._lock:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            line = await self._process.stdout.readline()
        assert line, "the proxy has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def set(self, rules: dict[tuple[str, str], tuple[str, float]]) -> None:
        self.rules = rules
        await self.say("obey", rules=[(*way, *rule) for way, rule in rules.items()])


class Place:
    """A member's location: its folder, and its ports. `peer` is its own, `address` the one that others use."""

    def __init__(self, name: str, folder: Path, client: int, peer: int, address: str) -> None:
        self.name, self.folder, self.client, self.peer, self.address = name, folder, client, peer, address
        self.role: Role | None = None
        self.frozen = False
        self.lives: list[Role] = []

    @property
    def runs(self) -> bool:
        return self.role is not None and self.role.runs

    @property
    def files(self) -> Path:
        return self.folder / "store"


class StoreCluster(Members):
    """`places` by name: the current members. `ends`: how members ended, and how often."""

    def __init__(self, folder: Path, secrets: Path, rng: random.Random) -> None:
        admin = secrets / "admin"
        super().__init__(StoreAccess((), read_token(admin / STORE_TOKEN), (admin / AUTHORITY).read_bytes()))
        self.folder, self.secrets, self.rng = folder, secrets, rng
        self.places: dict[str, Place] = {}
        self.links = Links()
        self.lives: list[Role] = []

    # -- life ---------------------------------------------------------------------------------------------------------

    async def place(self, name: str) -> Place:
        client, peer = free_ports(2)
        answer = await self.links.say("listen", name=name, host=HOST, port=peer)
        self.where[name] = HOST, client
        self.places[name] = Place(name, self.folder / name, client, peer, f"{HOST}:{answer['port']}")
        return self.places[name]

    def forget(self, name: str) -> None:
        """It is no longer a member, and not running."""
        assert not self.places[name].runs
        del self.places[name], self.where[name]

    def answers(self, name: str) -> bool:
        return self.places[name].runs and not self.places[name].frozen

    async def form(self, count: int) -> None:
        await self.links.start()
        for number in range(1, count + 1):
            await self.place(f"store-{number}")
        await self.start(*self.places)

    async def start(self, *names: str, flags: Sequence[str] = ()) -> None:
        """Returns when all of them serve."""
        for name in names:
            await self.spawn(name, *flags)
        await asyncio.gather(*(self._role(name).ready() for name in names))

    async def spawn(self, name: str, *flags: str, file_bytes_max: int | None = None) -> Role:
        place = self.places[name]
        initial = ",".join(f"{each.name}={each.address}" for each in self.places.values())
        place.role = Role(
            *("store", "--name", name, "--data-dir", str(place.folder), "--secrets-dir", str(self.secrets / "store")),
            *("--listen", f"{HOST}:{place.client}", "--listen-peers", f"{HOST}:{place.peer}"),
            *("--initial-cluster", initial, *flags),
        )
        self.lives.append(place.role)
        place.lives.append(place.role)
        await place.role.start(file_bytes_max)
        await self.links.say("running", name=name, pid=place.role.pid)
        return place.role

    async def kill(self, *names: str) -> None:
        """kill -9, of all at once."""
        for name in names:
            self._role(name).signal(signal.SIGKILL)
        for name in names:
            await self.gone(name)

    async def gone(self, name: str, within_s: float = ENDS_WITHIN_S) -> int:
        """Its exit code, once it has ended."""
        place = self.places[name]
        code = await self._role(name).ended(within_s)
        place.role, place.frozen = None, False
        await self.links.say("running", name=name, pid=0)
        return code

    async def stop(self, name: str) -> int:
        """As a user does, by SIGTERM."""
        self._role(name).signal(signal.SIGTERM)
        return await self.gone(name)

    def freeze(self, name: str) -> None:
        self._role(name).signal(signal.SIGSTOP)
        self.places[name].frozen = True

    def thaw(self, name: str) -> None:
        self._role(name).signal(signal.SIGCONT)
        self.places[name].frozen = False

    def wipe(self, name: str) -> None:
        """Its disk is lost."""
        assert not self.places[name].runs
        shutil.rmtree(self.places[name].folder)

    def limit_disk(self, name: str, file_bytes_max: int) -> None:
        """Writes beyond that offset of any file fail from now on, as on a full disk."""
        pid = self._role(name).pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (file_bytes_max, hard))

    async def close(self) -> None:
        for place in self.places.values():
            if place.role is not None:
                await self.kill(place.name)
        await self.links.stop()

    def complaints(self) -> list[str]:
        """Members' output on standard error, in all their runs."""
        return [line for role in self.lives for line in role.errors]

    def _role(self, name: str) -> Role:
        role = self.places[name].role
        assert role is not None, f"{name} does not run"
        return role

    # -- links --------------------------------------------------------------------------------------------------------

    async def part(self, *names: str, mode: str = "hold") -> None:
        """Nothing passes between these and all others."""
        others = [name for name in self.places if name not in names]
        ways = [way for one in names for other in others for way in ((one, other), (other, one))]
        await self.links.set(dict.fromkeys(ways, (mode, 0.0)))

    async def mute(self, source: str, *destinations: str, mode: str = "hold") -> None:
        """Messages of `source` do not reach these; theirs reach it."""
        await self.links.set({(source, to): (mode, 0.0) for to in destinations})

    async def slow(self, delay_s: float, *names: str) -> None:
        """All that goes to and from these, by default all, takes that long."""
        ways = [(one, other) for one in self.places for other in self.places if one != other]
        slow = names or tuple(self.places)
        await self.links.set({way: ("pass", delay_s) for way in ways if way[0] in slow or way[1] in slow})

    async def heal(self) -> None:
        await self.links.set({})
        for name, place in self.places.items():
            if place.frozen:
                self.thaw(name)


@contextlib.asynccontextmanager
async def store_cluster(folder: Path, secrets: Path, rng: random.Random, count: int = 3) -> AsyncIterator[StoreCluster]:
    cluster = StoreCluster(folder, secrets, rng)
    try:
        await cluster.form(count)
        yield cluster
    finally:
        await cluster.close()


def make_secrets(folder: Path) -> Path:
    """By the command that users make them with."""
    command = [sys.executable, "-m", "minikube_py", "init-secrets", "--dir", str(folder), "--hosts", HOST]
    subprocess.run(command, check=True, capture_output=True, timeout=READY_WITHIN_S)
    return folder
