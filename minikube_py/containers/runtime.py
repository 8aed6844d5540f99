"""Containers that a client has accessed: files, programs, main process and ports.

A container costs nothing before that. Its main process starts when its output is first requested, backdated to the
start time in its status: earlier output is available at once. It does not affect the pod's phase, unless an attached
client ends it.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from minikube_py.containers.account import Account, Spent
from minikube_py.containers.files import FileError, Files, Held
from minikube_py.containers.process import SHELLS_MAX, Exit, Process, Read, Times, Write, nothing
from minikube_py.containers.programs import PROGRAMS
from minikube_py.containers.shell import LINE_BYTES_MAX as SCRIPT_BYTES_MAX
from minikube_py.containers.shell import NOT_FOUND, SHELLS, Shell, check_words
from minikube_py.containers.terminal import Terminal
from minikube_py.env import ended

Json = dict[str, Any]
LOG_BYTES_MAX: Final = 1 << 20
"""Log size per container; the oldest lines are dropped."""
LOG_LINES_MAX: Final = 16_384
CONTAINERS_MAX: Final = 1024
MOUNTS_BYTES_MAX: Final = 8192
"""All mount paths of a container."""
ENVIRONMENT_MAX: Final = 4096
"""Variables of a container."""
_FIELD_DEPTH_MAX: Final = 8
LINE_BYTES_MAX: Final = 16 << 10
KILLED: Final = 137
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DIRECTORIES: Final = frozenset(("", "/bin", "/sbin", "/usr/bin", "/usr/local/bin"))
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_SPECS: Final = ("containers", "initContainers", "ephemeralContainers")


class NotThere(Exception):
    """Why the container or the program in it cannot be reached, in the words of upstream's kubelet and runtime."""


class Key(NamedTuple):
    uid: str
    container: str
    restarts: int


class Streams(NamedTuple):
    """`read` gives what a client types, `out` and `err` take what a program prints."""

    read: Read
    out: Write
    err: Write
    tty: bool


class Line(NamedTuple):
    at_s: float
    text: bytes
    """Including its newline."""


class LateTimes:
    """The clock of a backdated process: it really sleeps only once it reaches the present. `ends_s`: its container's
    end, None while running."""

    def __init__(self, times: Times, begun_s: float, ends_s: float | None) -> None:
        self._times = times
        self._ends_s = ends_s
        self.now_s = min(begun_s, times.wall_s())
        self.present = asyncio.Event()

    def wall_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        """Raises: Exit if the container ends meanwhile."""
        self.now_s += seconds
        if self._ends_s is not None and self.now_s > self._ends_s:
            raise Exit(KILLED)
        ahead_s = self.now_s - self._times.wall_s()
        if ahead_s > 0:
            self.present.set()
            await self._times.sleep(ahead_s)


class Container:
    """`state`: that of the status, `running` or `terminated`. Raises: FileError."""

    def __init__(self, pod: Json, spec: Json, state: Json, held: Held, times: Times) -> None:
        metadata = pod["metadata"]
        self.uid: str = metadata["uid"]
        self.name: str = spec["name"]
        self.namespace: str = metadata["namespace"]
        self.pod: str = metadata["name"]
        self.spec = spec
        self.times = times
        ended = state.get("terminated") or {}
        self.started_s = _seconds((ended or state.get("running") or {}).get("startedAt"), times.wall_s())
        self.ended_s = _seconds(ended.get("finishedAt"), self.started_s) if ended else None
        self.host = str((pod["spec"].get("hostname") or self.pod)[:63])
        if len(spec.get("env") or ()) > ENVIRONMENT_MAX:
            raise FileError(f"more than {ENVIRONMENT_MAX} variables, which is the limit")
        self.variables = _environment(pod, spec, self.host)
        address = (pod.get("status") or {}).get("podIP") or "127.0.0.1"
        given = {
            "/etc/hostname": f"{self.host}\n".encode(),
            "/etc/hosts": f"127.0.0.1\tlocalhost\n{address}\t{self.host}\n".encode(),
        }
        mounts = [each["mountPath"] for each in spec.get("volumeMounts") or () if each["mountPath"].startswith("/")]
        if sum(map(len, mounts)) > MOUNTS_BYTES_MAX:
            raise FileError(f"mount paths of more than {MOUNTS_BYTES_MAX} bytes, which is the limit")
        self.cwd = Files.resolved(spec.get("workingDir") or "/", "/")
        self.files = Files(held, self.started_s, given, [Files.resolved(each, "/") for each in mounts])
        self.main: Main | None = None
        self.users = 0
        self.changed = False
        """Whether a client's command has changed the files."""

    def process(self, argv: list[str], streams: Streams, account: Account, times: Times | None = None) -> Process:
        variables = dict(self.variables)
        if streams.tty:
            variables["TERM"] = "xterm"
        return Process(argv, self.files, times or self.times, variables, self.host, streams.read, streams.out,
                       streams.err, self.cwd, streams.tty, account)  # fmt: skip


class Main:
    """A container's main process: its output so far, and attached clients."""

    def __init__(self, container: Container) -> None:
        self.lines: deque[Line] = deque()
        self.first = 0
        """How many lines have gone from the front."""
        self.exit_code: int | None = None
        self.typed = False
        """Whether an attached client has affected it, so it cannot be reproduced."""
        self._bytes = 0
        self._part = b""
        self._account = Account()
        self._inbox: asyncio.Queue[bytes] = asyncio.Queue(16)
        self._closed = False
        self._listeners: list[Write] = []
        self._changed = asyncio.Event()
        self._times = LateTimes(container.times, container.started_s, container.ended_s)
        self.task = asyncio.get_running_loop().create_task(self._run(container))

    async def _run(self, container: Container) -> None:
        spec = container.spec
        argv = [*(spec.get("command") or ()), *(spec.get("args") or ())]
        read: Read = self._typed if spec.get("stdin") else nothing
        streams = Streams(read, self._print, self._print, False)
        if spec.get("tty"):
            terminal = Terminal(read, self._print, self._account)
            streams = Streams(terminal.read, terminal.write, terminal.write, True)
        # An unknown program prints nothing and keeps running.
        if argv and known(argv[0]):
            process = container.process(argv, streams, self._account, self._times)
            try:
                self.exit_code = await _ended(process, streams.err)
            except Exit as ended:
                self.exit_code = ended.code
        elif container.ended_s is not None:
            self.exit_code = 0
        self._times.present.set()
        self._notify()

    async def _typed(self) -> bytes:
        self._times.present.set()
        if self._closed and self._inbox.empty():
            return b""
        return await self._inbox.get()

    async def caught_up(self) -> None:
        """Returns once its output has caught up with the present."""
        await self._times.present.wait()

    def end(self) -> None:
        """Its container was ended. Idempotent."""
        if self.exit_code is None:
            self.task.cancel()
            self.exit_code = KILLED
            self._times.present.set()
            self._notify()

    async def wait(self) -> int:
        """The exit code of a process that ends."""
        while self.exit_code is None:
            await self._changed.wait()
        return self.exit_code

    async def type(self, data: bytes) -> None:
        self.typed = True
        if not self._closed:
            await self._inbox.put(data)

    def close_input(self) -> None:
        """Nothing more can be typed until a restart (`stdinOnce`). Idempotent."""
        self.typed = self._closed = True
        if not self._inbox.full():
            self._inbox.put_nowait(b"")

    def listen(self, write: Write) -> Callable[[], None]:
        """`write` gets output from now on; call the result to stop."""
        self._listeners.append(write)

        def stop() -> None:
            self._listeners = [each for each in self._listeners if each is not write]

        return stop

    def since(self, number: int) -> list[Line]:
        """Lines from that absolute number on."""
        return list(islice(self.lines, max(number - self.first, 0), None))

    async def news(self, sleep: Callable[[float], Awaitable[None]], patience_s: float) -> None:
        """Returns on output, at its end, or after `patience_s`."""
        waiting = [asyncio.ensure_future(self._changed.wait()), asyncio.ensure_future(sleep(patience_s))]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def _print(self, data: bytes) -> None:
        *whole, self._part = (self._part + data).split(b"\n")
        if len(self._part) > LINE_BYTES_MAX:
            # As container runtimes do, long lines are split.
            whole, self._part = [*whole, self._part], b""
        for text in whole:
            await self._account.spend(1)
            line = text.removesuffix(b"\r") + b"\n"
            self.lines.append(Line(self._times.now_s, line))
            self._bytes += len(line)
            while self._bytes > LOG_BYTES_MAX or len(self.lines) > LOG_LINES_MAX:
                self._bytes -= len(self.lines.popleft().text)
                self.first += 1
        if whole:
            self._notify()
        for write in tuple(self._listeners):
            try:
                await write(data)
            except ConnectionError:
                # The attached client has disconnected; the process continues.
                self._listeners = [each for each in self._listeners if each is not write]

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def known(name: str) -> bool:
    return name in SHELLS or (posixpath.dirname(name) in _DIRECTORIES and posixpath.basename(name) in PROGRAMS)


async def _ended(process: Process, err: Write) -> int:
    """The exit code of a session's first process. Raises: Exit."""
    try:
        try:
            return await start(process)
        except FileError as error:
            return await process.complain(str(error))
    except Spent as limit:
        # So that this can be said.
        process.account.steps = 0
        await err(f"{process.argv[0]}: killed: {limit}\n".encode("utf-8", "surrogateescape"))
        return KILLED


async def start(process: Process) -> int:
    """Runs a program by its name, or a shell. NOT_FOUND if unknown. Raises: Exit, FileError, Spent."""
    name, size = process.argv[0], sum(map(len, process.argv))
    check_words(len(process.argv), size)
    await process.spend(8 + len(process.argv) // 8 + size // 256)
    if name in SHELLS:
        return await _shell(process)
    if not known(name):
        return NOT_FOUND
    return await PROGRAMS[posixpath.basename(name)](process)


async def _shell(process: Process) -> int:
    words = process.argv[1:]
    process.shells += 1
    if process.shells > SHELLS_MAX:
        raise FileError(f"more than {SHELLS_MAX} shells started one another, which is the limit")
    shell = Shell(process, start)
    try:
        flags = 0
        while flags < len(words) and words[flags].startswith("-"):
            flags += 1
        if any("c" in each for each in words[:flags]):
            return await shell.run(words[flags]) if flags < len(words) else 2
        if flags < len(words):
            script = (await process.contents(await process.path(words[flags])))[: SCRIPT_BYTES_MAX + 1]
            return await shell.run(script.decode("utf-8", "surrogateescape"))
        return await shell.interact()
    except Exit as ended:
        return ended.code


class Runtime:
    """`await stop()` ends all processes."""

    def __init__(self, times: Times) -> None:
        self._times = times
        self._held = Held()
        self._containers: dict[Key, Container] = {}

    def find(self, pod: Json, name: str, *, ended: bool = False, previous: bool = False) -> Container:
        """A running container; `ended`: or a terminated one; `previous`: the one before the restart.

        Raises: NotThere."""
        spec = _named(pod["spec"], _SPECS, name)
        status = _named(pod.get("status") or {}, _STATUSES, name) or {}
        state = status.get("lastState" if previous else "state") or {}
        if spec is None or not ("running" in state or (ended and "terminated" in state)):
            raise NotThere(f'container not found ("{name}")')
        key = Key(pod["metadata"]["uid"], name, (status.get("restartCount") or 0) - previous)
        found = self._containers.get(key)
        if found is None:
            if len(self._containers) >= CONTAINERS_MAX:
                kept = f"the files or the output of {CONTAINERS_MAX} containers are kept, which is the limit"
                raise NotThere(f"{kept}: delete some pods")
            try:
                found = self._containers[key] = Container(pod, spec, state, self._held, self._times)
            except FileError as error:
                raise NotThere(f'failed to create the files of container "{name}": {error}') from None
        elif "terminated" in state and found.main is not None:
            found.main.end()
        return found

    @contextmanager
    def use(self, container: Container) -> Iterator[None]:
        """In use until the context ends. Reproducible containers are not kept: their main process would print the same
        again."""
        container.users += 1
        try:
            yield
        finally:
            container.users -= 1
            typed = container.main is not None and container.main.typed
            if not (container.users or container.changed or typed):
                for key in [key for key, each in self._containers.items() if each is container]:
                    self.drop(key)

    def oldest(self, count: int) -> list[tuple[Key, str, str]]:
        """Containers to check: key, namespace and pod. Rotates: the next call gives others."""
        first = [(key, each.namespace, each.pod) for key, each in islice(self._containers.items(), count)]
        for key, _, _ in first:
            self._containers[key] = self._containers.pop(key)
        return first

    def drop(self, key: Key) -> None:
        found = self._containers.pop(key, None)
        if found is not None:
            found.files.drop()
            if found.main is not None:
                found.main.task.cancel()

    async def exec(self, container: Container, argv: list[str], streams: Streams) -> int:
        """The exit code. Raises: NotThere if the program is unknown."""
        if not argv or not known(argv[0]):
            name = argv[0] if argv else ""
            raise NotThere(
                "error executing command in container: OCI runtime exec failed: exec failed: unable to start container "
                f'process: exec: "{name}": executable file not found in $PATH: unknown'
            )
        try:
            check_words(len(argv), sum(map(len, argv)))
        except FileError as error:
            raise NotThere(f"error executing command in container: {error}") from None
        account = Account()
        if streams.tty:
            terminal = Terminal(streams.read, streams.out, account)
            streams = Streams(terminal.read, terminal.write, terminal.write, True)
        process, before = container.process(argv, streams, account), container.files.changes
        try:
            return await _ended(process, streams.err)
        finally:
            container.changed = container.changed or container.files.changes != before

    def main(self, container: Container) -> Main:
        """The container's main process, started if needed."""
        if container.main is None:
            container.main = Main(container)
        return container.main

    async def attach(self, container: Container, streams: Streams) -> int:
        """Waits for the main process; returns its exit code."""
        main = self.main(container)
        stop = main.listen(streams.out)
        once = bool(container.spec.get("stdinOnce")) and streams.read is not nothing
        typing = asyncio.get_running_loop().create_task(_type(streams.read, main.type))
        if once:
            typing.add_done_callback(lambda _: main.close_input())
        try:
            return await main.wait()
        finally:
            stop()
            typing.cancel()
            if once:
                # Its client may be gone, and the callback comes only after somebody asks whether the container is used.
                main.close_input()

    async def stop(self) -> None:
        tasks = [each.main.task for each in self._containers.values() if each.main is not None]
        for key in list(self._containers):
            self.drop(key)
        await ended(*tasks)


async def _type(read: Read, write: Callable[[bytes], Awaitable[None]]) -> None:
    while data := await read():
        await write(data)


def _named(parts: Json, names: tuple[str, ...], wanted: str) -> Json | None:
    return next((each for part in names for each in parts.get(part) or () if each.get("name") == wanted), None)


def _seconds(text: Any, otherwise_s: float) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except (TypeError, ValueError):
        return otherwise_s


def _environment(pod: Json, spec: Json, host: str) -> dict[str, str]:
    """Plain values and fields of the pod; those of ConfigMaps and Secrets are empty."""
    found = {"PATH": _PATH, "HOSTNAME": host, "HOME": "/root"}
    for each in spec.get("env") or ():
        path = ((each.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
        found[each["name"]] = _field(pod, path) if path else each.get("value") or ""
    return found


def _field(pod: Json, path: str) -> str:
    value: Any = pod
    for part in path.split(".", _FIELD_DEPTH_MAX):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
