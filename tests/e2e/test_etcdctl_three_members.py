"""Every command of the real etcdctl, typed against three members at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from etcd_api import real_etcd
from needs import original_program
from patience import PATIENCE_S, until
from ports import free_ports
from store_cluster import HOST, Role
from test_etcd_three_members import Doors, doors

pytestmark = pytest.mark.original


class Typed:
    """An etcdctl that runs until it is ended. `lines`: its output so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.lines.append(line.decode().strip())

    async def says(self, *lines: str) -> None:
        async def said() -> bool:
            return all(any(wanted in line for line in self.lines) for wanted in lines)

        await until(said, f"{lines} in {self.lines}")

    async def type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        await self._process.stdin.drain()

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()
        await self._reader


def command_line(found: Doors, *words: str) -> list[str]:
    endpoints = ",".join(f"https://{HOST}:{port}" for port in found.ports.values())
    tls = [f"--cacert={found.store}/authority.pem", f"--cert={found.store}/peer.pem", f"--key={found.store}/peer.key"]
    patient = [f"--{which}-timeout={PATIENCE_S:g}s" for which in ("command", "dial")]
    return [str(original_program("etcdctl")), f"--endpoints={endpoints}", *tls, *patient, *words]


@contextlib.asynccontextmanager
async def typing(found: Doors, *words: str) -> AsyncIterator[Typed]:
    pipe = asyncio.subprocess.PIPE
    command = command_line(found, *words)
    typed = Typed(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT))
    try:
        yield typed
    finally:
        await typed.end()


async def refused(found: Doors, *words: str) -> str:
    command = command_line(found, *words)
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode != 0, (words, done.stdout)
    return done.stderr


async def keys_and_watches(found: Doors) -> None:
    ctl = found.etcdctl
    assert await ctl("put", "a", "1") == "OK\n"
    async with typing(found, "watch", "-i") as watching:
        await watching.type("watch a\nwatch --prefix b/ --prev-kv\n")

        # What it misses before it is there is put again.
        async def seen() -> bool:
            await ctl("put", "a", "2")
            await ctl("put", "b/x", "3")
            return "a" in watching.lines and "b/x" in watching.lines

        await until(seen, "both watches tell")
        await watching.type("progress\n")
        await watching.says("progress notify:")
    assert await ctl("get", "--prefix", "--keys-only", "b") == "b/x\n\n"
    done = await asyncio.to_thread(
        subprocess.run,
        command_line(found, "txn"),
        input='value("a") = "2"\n\nput a 4\nget a\n\nget b\n\n',
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.startswith("SUCCESS") and done.stdout.rstrip().endswith("a\n4"), done
    revision = json.loads(await ctl("get", "a", "-w", "json"))["header"]["revision"]
    assert await ctl("compaction", "--physical", str(revision)) == f"compacted revision {revision}\n"
    assert "required revision has been compacted" in await refused(found, "get", "a", f"--rev={revision - 1}")
    assert await ctl("del", "--prefix", "b/") == "1\n"


async def leases_locks_and_elections(found: Doors) -> None:
    ctl = found.etcdctl
    lease = (await ctl("lease", "grant", "300")).split()[1]
    await ctl("put", "leased", "1", f"--lease={lease}")
    assert f"lease {lease} granted with TTL(300s)" in await ctl("lease", "timetolive", lease, "--keys")
    assert lease in await ctl("lease", "list")
    assert "keepalived with TTL(300)" in await ctl("lease", "keep-alive", "--once", lease)
    async with typing(found, "lease", "keep-alive", lease) as keeping:
        await keeping.says(f"lease {lease} keepalived with TTL(300)")
    assert await ctl("lease", "revoke", lease) == f"lease {lease} revoked\n"
    assert await ctl("get", "leased") == ""
    async with typing(found, "lock", "l") as first:
        await first.says("l/")
        async with typing(found, "lock", "l") as second:

            async def waits() -> bool:
                return len((await ctl("get", "--prefix", "--keys-only", "l/")).split()) == 2

            await until(waits, "the second waits")
            assert not second.lines
            await first.end()
            await second.says("l/")
    async with typing(found, "elect", "e", "one") as leads:
        await leads.says("e/", "one")
        async with typing(found, "elect", "-l", "e") as listens:
            await listens.says("one")


async def upkeep(found: Doors, folder: Path) -> None:
    ctl = found.etcdctl
    assert (await ctl("endpoint", "health")).count("is healthy") == 3
    assert (await ctl("defrag", "--cluster")).count("Finished defragmenting") == 3

    async def alike() -> bool:
        hashes = json.loads(await ctl("endpoint", "hashkv", "--cluster", "-w", "json"))
        assert len(hashes) == 3
        return len({(each["HashKV"]["hash"], each["HashKV"]["hash_revision"]) for each in hashes}) == 1

    await until(alike, "members hold the same")
    assert await ctl("alarm", "list") == await ctl("alarm", "disarm") == ""
    assert "invalid downgrade target version" in await refused(found, "downgrade", "validate", "3.6")
    assert "invalid downgrade target version" in await refused(found, "downgrade", "enable", "3.6")
    assert "3.7" in await ctl("downgrade", "cancel")
    everywhere, found.ports = found.ports, dict([*found.ports.items()][:1])
    assert "saved" in (await ctl("snapshot", "save", str(folder / "saved.db"))).lower()
    found.ports = everywhere
    assert "3.7" in await ctl("version")
    # Its verdict is the machine's; that it gets to one is ours.
    checked = command_line(found, "check", "perf", "--load=s", "--auto-compact")
    done = await asyncio.to_thread(
        subprocess.run, checked, capture_output=True, text=True, timeout=70 + PATIENCE_S, check=False
    )
    assert "Throughput" in done.stdout, done
    with real_etcd(folder / "mirror") as target:
        await ctl("put", "m/1", "one")
        async with typing(found, "make-mirror", "--prefix=m/", "--dest-prefix=n/", "--dest-insecure-transport", target):
            there = [str(original_program("etcdctl")), f"--endpoints={target}", "get", "--prefix", "n/"]

            async def mirrored() -> bool:
                await ctl("put", "m/2", "two")
                done = await asyncio.to_thread(subprocess.run, there, capture_output=True, text=True, check=False)
                return done.stdout == "n/1\none\nn/2\ntwo\n"

            await until(mirrored, "both keys are there")


async def members(found: Doors) -> None:
    """One is added as a learner, promoted and removed; another is made leader."""
    ctl = found.etcdctl
    client, peer = free_ports(2)
    name = f"{HOST}:{peer}"
    assert "added as learner to cluster" in await ctl(
        "member", "add", "four", "--learner", f"--peer-urls=https://{name}"
    )
    initial = ",".join(f"{each.name}={each.address}" for each in found.cluster.places.values())
    fourth = Role(
        *("store", "--name", name, "--data-dir", str(found.cluster.folder / "four")),
        *("--secrets-dir", str(found.cluster.secrets / "store"), "--listen", f"{HOST}:{client}"),
        *("--listen-peers", name, "--initial-cluster", f"{initial},{name}={name}"),
    )
    await fourth.start()
    await found.cluster.links.say("running", name=name, pid=fourth.pid)
    try:
        found_id = ""

        async def learns() -> bool:
            nonlocal found_id
            rows = json.loads(await ctl("member", "list", "-w", "json", "--hex"))["members"]
            ids = [each["ID"] for each in rows if each.get("name") == name]
            found_id = f"{ids[0]:x}" if ids and isinstance(ids[0], int) else (ids[0] if ids else "")
            return bool(found_id) and found_id != "0"

        await until(learns, "it learns")

        async def promoted() -> bool:
            command = command_line(found, "member", "promote", found_id)
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
            return done.returncode == 0

        await until(promoted, "it has caught up")
        assert "updated" in await ctl("member", "update", found_id, f"--peer-urls=https://{name}")
        assert "removed from cluster" in await ctl("member", "remove", found_id)
        assert await fourth.ended() == 3
    finally:
        await fourth.kill()
    before = await found.leader()
    target = next(each for each in found.callers if each != before)
    target_id = (await found.ok(target, "Maintenance/Status"))["header"]["member_id"]

    async def moved() -> bool:
        if await found.leader() == target:
            return True
        command = command_line(found, "move-leader", f"{target_id:x}")
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
        return done.returncode == 0 and await found.leader() == target

    await until(moved, "another leads")


async def users_and_roles(found: Doors) -> None:
    ctl = found.etcdctl
    await ctl("user", "add", "root:pw")
    await ctl("user", "grant-role", "root", "root")
    await ctl("role", "add", "reader")
    await ctl("role", "grant-permission", "--prefix", "reader", "read", "open/")
    await ctl("user", "add", "viewer:pw2")
    await ctl("user", "grant-role", "viewer", "reader")
    await ctl("put", "open/a", "1")
    assert await ctl("auth", "enable") == "Authentication Enabled\n"
    root, viewer = ("--user", "root:pw"), ("--user", "viewer:pw2")
    assert await ctl(*root, "get", "open/a") == await ctl(*viewer, "get", "open/a") == "open/a\n1\n"
    for words in (("get", "a"), ("put", "open/a", "2"), ("del", "open/a"), ("user", "list"), ("defrag",)):
        assert "permission denied" in await refused(found, *viewer, *words), words
    assert "invalid user ID or password" in await refused(found, "--user", "viewer:no", "get", "open/a")
    # Without a token it is the certificate that says who asks, and nobody has its name.
    assert "permission denied" in await refused(found, "get", "open/a")
    assert "Authentication Status: true" in await ctl(*root, "auth", "status")
    assert (await ctl(*root, "user", "list")).split() == ["root", "viewer"]
    assert (await ctl(*root, "role", "list")).split() == ["reader"]
    assert "open/" in await ctl(*viewer, "role", "get", "reader")
    assert "reader" in await ctl(*viewer, "user", "get", "viewer", "--detail")
    # Whoever leads dies, and users and roles are those of the others.
    dead = await found.leader()
    await found.cluster.kill(dead)
    found.callers.pop(dead).close()
    port = found.ports.pop(dead)
    assert await ctl(*viewer, "get", "open/a") == "open/a\n1\n"
    done = await asyncio.to_thread(
        subprocess.run,
        command_line(found, *root, "user", "passwd", "viewer", "--interactive=false"),
        input="pw3\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "Password updated" in done.stdout, done
    found.ports[dead] = port
    await found.start(dead)
    assert "invalid user ID or password" in await refused(found, *viewer, "get", "open/a")
    await ctl(*root, "role", "revoke-permission", "--prefix", "reader", "open/")
    assert "permission denied" in await refused(found, "--user", "viewer:pw3", "get", "open/a")
    await ctl(*root, "user", "revoke-role", "viewer", "reader")
    await ctl(*root, "role", "delete", "reader")
    await ctl(*root, "user", "delete", "viewer")
    await ctl(*root, "auth", "disable")
    assert await ctl("get", "open/a") == "open/a\n1\n"


async def test_every_command_of_etcdctl_on_three_members(tmp_path: Path) -> None:
    async with doors(tmp_path) as found:
        await keys_and_watches(found)
        await leases_locks_and_elections(found)
        await users_and_roles(found)
        await members(found)
        await upkeep(found, tmp_path)
