"""`minikube-py up --members 3` as a user meets it: three store processes under one supervisor, and commands on them."""

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import Deadline, eventually
from ports import free_ports
from up_process import Up, again, up

from minikube_py.api.errors import StatusError
from minikube_py.client.http_transport import HttpTransport
from minikube_py.client.rest import CONFIG_MAPS, PODS, RestClient
from minikube_py.errors import MinikubeError


@pytest.fixture(scope="module", autouse=True)
def own_runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """So that `minikube-py store status` finds the control plane of these tests, and no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        patch.delenv("MINIKUBE_PY_STORE", raising=False)
        yield


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "minikube_py", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def asked(*arguments: str) -> dict[str, Any]:
    done = command(*arguments, "--json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def roles(*flags: str) -> dict[str, str]:
    return {member["name"]: member["role"] for member in asked("store", "status", *flags)["members"]}


def leader() -> str:
    return next(name for name, role in roles().items() if role == "leader")


def store_pid(running: Up, name: str) -> int:
    pid = running.process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if f"\0--name\0{name}\0" in Path(f"/proc/{child}/cmdline").read_text():
            return int(child)
    raise AssertionError(f"{name} does not run")


@contextlib.asynccontextmanager
async def client_of(running: Up) -> AsyncIterator[RestClient]:
    transport = HttpTransport(running.access)
    try:
        yield RestClient(transport)
    finally:
        await transport.close()


async def create_map(client: RestClient, name: str) -> None:
    """Tried again where the API says that it was not done, or cannot tell: the name makes that safe."""
    deadline = Deadline()
    while True:
        try:
            await client.create(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"a": name}}, "default")
            return
        except (StatusError, MinikubeError) as error:
            if getattr(error, "reason", "") == "AlreadyExists":
                return
            deadline.check(error)
            await asyncio.sleep(0.1)


async def maps(client: RestClient) -> set[str]:
    return {item["metadata"]["name"] for item in await client.list(CONFIG_MAPS, "default")}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("three") / "data"


@pytest.fixture(scope="module")
def three(data: Path) -> Iterator[Up]:
    """One for the tests below, in their order: each leaves it well, but for the last, after which a member is gone."""
    with up("--members", "3", "--nodes", "2", "--data-dir", str(data)) as running:
        yield running


def test_commands_on_the_store(three: Up, data: Path, tmp_path: Path) -> None:
    heads = command("store", "status").stdout.splitlines()[0].split("  ")
    assert [head.strip() for head in heads if head.strip()] == [
        "MEMBER", "ID", "ROLE", "READY", "TERM", "COMMIT", "APPLIED", "LAG", "DB SIZE", "SNAPSHOT AGE", "ADDRESS",
    ]  # fmt: skip
    heir = next(name for name, role in roles().items() if role == "follower")
    moved = command("store", "transfer-leader", heir)
    assert moved.returncode == 0 and f"{heir} (" in moved.stdout
    assert leader() == heir

    assert asked("store", "member", "add", "store-4", "--learner")["name"] == "store-4"
    assert roles()["store-4"] == "expected"
    assert "no longer expected" in command("store", "member", "remove", "store-4").stdout
    assert "store-4" not in roles()
    promoted = command("store", "member", "promote", heir)
    assert promoted.returncode == 1 and "votes already" in promoted.stderr
    absent = command("store", "member", "remove", "nobody")
    assert absent.returncode == 1 and "there is no member 'nobody'; the members are: store-1" in absent.stderr

    alike = asked("store", "hash")
    assert alike["alike"] and len({member["hash"] for member in alike["members"]}) == 1
    saved = asked("store", "snapshot", "save", str(tmp_path / "snapshot"))
    verified = asked("store", "snapshot", "verify", str(tmp_path / "snapshot"))
    assert verified["sha256"] == saved["sha256"] and verified["keys"] > 10
    at = str(verified["revision"])
    assert {member["hash"] for member in asked("store", "hash", "--revision", at)["members"]} == {verified["hash"]}

    printed = command("kubeconfig")
    assert printed.returncode == 0 and printed.stdout == (data / "kubeconfig").read_text()


async def test_any_store_process_may_be_killed_and_comes_back(three: Up) -> None:
    assert sorted(roles()) == ["store-1", "store-2", "store-3"] and sorted(roles().values()).count("leader") == 1
    async with client_of(three) as client:
        await create_map(client, "before")
        for name in (leader(), next(name for name, role in roles().items() if role == "follower")):
            said = len(three.lines)
            os.kill(store_pid(three, name), signal.SIGKILL)
            await create_map(client, f"without-{name}")
            assert await asyncio.to_thread(three.until_said, f"{name} is back", said)
        spec = {"containers": [{"name": "c", "image": "x"}]}
        await client.create(PODS, {"metadata": {"name": "after"}, "spec": spec}, "default")
        assert len(await maps(client)) >= 3
    eventually(lambda: asked("store", "hash")["alike"], "all members hold the same")
    # The renewals of leases go on meanwhile: a member may be an entry behind at the moment it is asked.
    eventually(lambda: all(member["lag"] == 0 for member in asked("store", "status")["members"]), "none lags")


async def test_a_member_whose_folder_was_emptied_comes_back_under_a_new_id(three: Up, data: Path) -> None:
    ids = {member["name"]: member["id"] for member in asked("store", "status")["members"]}
    victim = next(name for name, role in roles().items() if role == "follower")
    async with client_of(three) as client:
        await create_map(client, "kept")
    said = len(three.lines)
    folder = data / "members" / victim / "store"
    process = store_pid(three, victim)
    os.kill(process, signal.SIGSTOP)
    for path in folder.iterdir():
        path.unlink()
    os.kill(process, signal.SIGKILL)
    assert three.until_said(f"{victim} is back", said)

    def healed() -> bool:
        members = {member["name"]: member for member in asked("store", "status")["members"]}
        found = members.get(victim, {})
        return found.get("id") != ids[victim] and found.get("role") == "follower" and found.get("lag") == 0

    eventually(healed, "it follows under a new id")
    eventually(lambda: asked("store", "hash")["alike"], "all members hold the same")


def test_a_damaged_member_is_told_with_what_to_type(three: Up, data: Path) -> None:
    victim = next(name for name, role in roles().items() if role == "follower")
    said = len(three.lines)
    process = store_pid(three, victim)
    os.kill(process, signal.SIGSTOP)
    folder = data / "members" / victim
    # What stands before the last snapshot but one may be damaged without harm.
    log = max(path for path in (folder / "store").iterdir() if path.name.startswith("wal-"))
    content = bytearray(log.read_bytes())
    content[20] ^= 255
    log.write_bytes(content)
    os.kill(process, signal.SIGKILL)
    assert three.until_said(f"remove {folder}: it rejoins by itself", said)
    assert command("store", "status").returncode == 1, "one member does not answer"
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert three.until_said(f"{victim} is back", said)
    eventually(lambda: command("store", "status").returncode == 0, "all members answer")


def test_a_member_is_added_as_a_learner_promoted_and_removed(three: Up, data: Path, tmp_path: Path) -> None:
    assert command("store", "member", "add", "store-4", "--learner").returncode == 0
    places = json.loads((data / "members" / "addresses.json").read_text())
    client, peer = free_ports(2)
    initial = ",".join([f"{place['name']}={place['peer']}" for place in places] + [f"store-4=127.0.0.1:{peer}"])
    pki, tokens = data / "pki", data / "tokens"
    fourth = subprocess.Popen(
        [sys.executable, "-m", "minikube_py", "store", "--healthz", "none"]
        + ["--name", "store-4", "--data-dir", str(tmp_path / "fourth"), "--initial-cluster", initial]
        + ["--listen", f"127.0.0.1:{client}", "--listen-peers", f"127.0.0.1:{peer}"]
        + ["--token-file", str(tokens / "store"), "--peer-token-file", str(tokens / "peer")]
        + ["--tls-cert-file", str(pki / "server.crt"), "--tls-private-key-file", str(pki / "server.key")]
        + ["--peer-cert-file", str(pki / "peer.crt"), "--peer-key-file", str(pki / "peer.key")]
        + ["--peer-ca-file", str(pki / "ca.crt")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: roles().get("store-4") == "learner", "it learns")
        eventually(lambda: command("store", "member", "promote", "store-4").returncode == 0, "it has caught up")
        eventually(lambda: roles().get("store-4") == "follower", "it has heard of it")
        eventually(lambda: asked("store", "hash")["alike"], "all members hold the same")
        assert command("store", "member", "remove", "store-4").returncode == 0
        _, errors = fourth.communicate(timeout=30)
        assert fourth.returncode == 3 and re.search("was removed from (the )?cluster", errors)
        assert "store-4" not in roles()
    finally:
        fourth.kill()
        fourth.wait()


def test_a_removed_member_is_not_started_again(three: Up) -> None:
    victim = next(name for name, role in roles().items() if role == "follower")
    said = len(three.lines)
    done = command("store", "member", "remove", victim)
    assert done.returncode == 0 and f"member {victim} (" in done.stdout, done.stderr
    assert three.until_said(f"{victim} is not started again: ", said)
    eventually(lambda: sorted(roles().values()) == ["follower", "leader"], "two are left")


async def test_all_of_it_may_be_killed(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "data"))
    flags = ("--members", "3", *folder)
    with up(*flags) as running:
        async with client_of(running) as client:
            for number in range(10):
                await create_map(client, f"map-{number}")
        running.kill()
    back = await asyncio.to_thread(again, *folder)
    try:
        async with client_of(back) as client:
            assert {f"map-{number}" for number in range(10)} <= await maps(client)
        assert len(roles(*folder)) == 3, "without --members it has as many as the folder holds"
    finally:
        back.end()
    other = command("up", "--members", "5", *folder)
    assert other.returncode == 1 and "holds a store of 3 members; start it with --members 3" in other.stderr


async def test_a_store_of_one_becomes_three_by_a_snapshot(tmp_path: Path) -> None:
    folder = ("--data-dir", str(tmp_path / "one"))
    with up(*folder) as running:
        assert list(roles(*folder).values()) == ["leader"], "one process, and its store answers all the same"
        async with client_of(running) as client:
            await create_map(client, "taken-along")
        saved = asked("store", "snapshot", "save", str(tmp_path / "snapshot"), *folder)
        assert asked("store", "snapshot", "verify", str(tmp_path / "snapshot"))["sha256"] == saved["sha256"]
    done = command("up", "--members", "3", *folder)
    assert done.returncode == 1 and "holds a store of one member; start it without --members" in done.stderr
    again_there = command("up", "--restore", str(tmp_path / "snapshot"), *folder)
    assert again_there.returncode == 1 and "holds a store member already" in again_there.stderr

    folder = ("--data-dir", str(tmp_path / "three"))
    with up("--members", "3", "--restore", str(tmp_path / "snapshot"), *folder) as running:
        async with client_of(running) as client:
            assert "taken-along" in await maps(client)
        eventually(lambda: sorted(roles(*folder).values()) == ["follower", "follower", "leader"], "all three vote")
        eventually(lambda: asked("store", "hash", *folder)["alike"], "all members hold the same")


def judged(pod: Path, kubeconfig: Path) -> dict[str, Any]:
    """What `what-if` says; nothing where nobody could be asked."""
    done = command("what-if", str(pod), "--kubeconfig", str(kubeconfig), "--json")
    return json.loads(done.stdout) if done.returncode == 0 else {}


def test_several_of_each_role(tmp_path: Path) -> None:
    flags = ("--apiservers", "2", "--schedulers", "2", "--controllers", "2", "--data-dir", str(tmp_path / "data"))
    with up(*flags) as running:
        started = [line.split()[1] for line in running.lines if line.startswith("✓ ")]
        assert {"apiserver-1", "apiserver-2", "scheduler-1", "scheduler-2", "controllers-1", "kubelet"} <= set(started)
        assert sum("standby: up-" in line for line in running.lines) == 2
        # Whichever API server is asked: the scheduler that leads comes to each for questions.
        found = [re.search(r"https://[\d.:]+", line) for line in running.lines if line.startswith("✓ apiserver-")]
        urls = [each[0] for each in found if each is not None]
        assert len(urls) == 2
        pod = tmp_path / "pod.json"
        spec = {"containers": [{"name": "c", "image": "x"}]}
        pod.write_text(json.dumps({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}, "spec": spec}))
        for url in urls:
            config = tmp_path / "config"
            config.write_text(re.sub(r"https://[\d.:]+", url, running.kubeconfig.read_text()))
            eventually(lambda config=config: judged(pod, config).get("fits") == 1, f"a scheduler answers at {url}")
