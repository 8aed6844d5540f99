"""PostgreSQL over its Unix socket: B-trees, GiST over points as cubes, BRIN. A separate server in a fresh folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rivals.contract import LOGGED, Absent, Entry, Node, Question

PLAIN = "cpu >= %s and memory >= %s and gpus >= %s"
CUBE = (
    "cube(array[cpu, memory, gpus]::float8[]) <@ cube(array[%s, %s, %s]::float8[], array[1e18, 1e18, 1e18]::float8[])"
)
VARIANTS = {
    "B-tree on each": (PLAIN, ["(cpu)", "(memory)", "(gpus)"]),
    "B-tree on all three": (PLAIN, ["(gpus, cpu, memory)"]),
    "GiST (cube)": (CUBE, ["using gist (cube(array[cpu, memory, gpus]::float8[]))"]),
    "BRIN": (PLAIN, ["using brin (cpu, memory, gpus) with (pages_per_range = 4)"]),
}
SETTINGS = ("shared_buffers=256MB", "listen_addresses=")
UNSYNCED = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


class Postgres:
    def __init__(self, connection: Any, condition: str, indexes: Sequence[str]) -> None:
        self._run, self._connection = connection.execute, connection
        self._condition, self._indexes = condition, indexes

    def load(self, nodes: Sequence[Node]) -> None:
        self._run("create extension if not exists cube")
        self._run("create table nodes(number int primary key, cpu int, memory int, gpus int) with (fillfactor = 70)")
        with self._connection.cursor().copy("copy nodes from stdin") as copy:
            for number, node in enumerate(nodes):
                copy.write_row((number, *node))
        for index in self._indexes:
            self._run(f"create index on nodes {index}")
        self._run("vacuum analyze nodes")

    def update(self, number: int, node: Node) -> None:
        text = "update nodes set cpu = %s, memory = %s, gpus = %s where number = %s"
        self._run(text, (*node, number), prepare=True)

    def first(self, question: Question, limit: int) -> Sequence[int]:
        text = f"select number from nodes where {self._condition} limit %s"
        return [row[0] for row in self._run(text, (*question, limit)).fetchall()]

    def every(self, question: Question) -> Sequence[int]:
        text = f"select number from nodes where {self._condition}"
        return [row[0] for row in self._run(text, question).fetchall()]


@contextmanager
def start(condition: str, indexes: Sequence[str], synced: bool) -> Iterator[Postgres]:
    try:
        import psycopg
    except ImportError:
        raise Absent("pip install 'psycopg[binary]'") from None
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="rival-postgres-"))
    try:
        data = folder / "data"
        as_user = _as_user(folder)
        # The initial data need not survive a crash, however nodes are written later.
        make = [*as_user, binaries / "initdb", "--no-sync", "-D", data, "-A", "trust", "-U", "rival"]
        subprocess.run(make, check=True, capture_output=True, cwd=folder)
        settings = (*SETTINGS, *(() if synced else UNSYNCED), f"unix_socket_directories={folder}")
        options = [part for setting in settings for part in ("-c", setting)]
        command = [*as_user, binaries / "postgres", "-D", data, *options]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            with _connected(psycopg, folder, process) as connection:
                yield Postgres(connection, condition, indexes)
        finally:
            process.terminate()
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _connected(psycopg: Any, folder: Path, process: subprocess.Popen[bytes]) -> Any:
    import time

    for _ in range(200):
        try:
            return psycopg.connect(host=str(folder), user="rival", dbname="postgres", autocommit=True)
        except psycopg.OperationalError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    raise SystemExit(f"PostgreSQL did not start: {(folder / 'log').read_text()[-500:]}")


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise Absent("apt install postgresql postgresql-contrib")
    return found[-1].parent if found else Path(str(on_path)).parent


def _as_user(folder: Path) -> list[str]:
    """PostgreSQL refuses to run as root; Debian's package brings a user for it."""
    if os.getuid() != 0:
        return []
    shutil.chown(folder, "postgres")
    return ["runuser", "-u", "postgres", "--"]


def entries(synced: bool) -> list[Entry]:
    return [
        Entry(f"PostgreSQL, {name}", LOGGED[synced], partial(start, condition, indexes, synced))
        for name, (condition, indexes) in VARIANTS.items()
    ]
