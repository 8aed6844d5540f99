"""cluster/etcd.yml: two API servers in containers on three members of a real etcd, of which the leader is killed."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import tarfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from containers import Api, Project, docker, require_engine, until
from needs import original_program

MEMBERS = ("etcd-1", "etcd-2", "etcd-3")
MAPS = "/api/v1/namespaces/default/configmaps"


def image_of_etcd(folder: Path, name: str) -> None:
    """As docs/compose.md makes it."""
    with tarfile.open(folder / "etcd.tar", "w") as archive:
        for program in ("etcd", "etcdctl"):
            archive.add(original_program(program), f"usr/local/bin/{program}")
    docker("import", str(folder / "etcd.tar"), name)


def etcdctl(project: Project, *words: str) -> str:
    return project("run", "--rm", "-T", "etcdctl", *words, check=False)


def leader(project: Project) -> str:
    def found() -> str:
        for each in json.loads(etcdctl(project, "endpoint", "status", "--write-out=json") or "[]"):
            if each["Status"]["leader"] == each["Status"]["header"]["member_id"]:
                return str(each["Endpoint"]).removeprefix("https://").partition(":")[0]
        return ""

    return str(until("a leader", found))


def written(api: Api, name: str) -> bool:
    """Whether `name` is there for certain. Where an answer is lost, who wrote looks again."""
    try:
        status, answer = api.send("POST", MAPS, {"metadata": {"name": name}})
    except (OSError, http.client.HTTPException):
        return False
    assert status in (201, 409, 503, 504), answer
    return status in (201, 409)


def write(api: Api, *names: str) -> None:
    for name in names:
        until(f"{name} written", lambda name=name: written(api, name))


@pytest.mark.slow
@pytest.mark.original
@pytest.mark.timeout(1200)
def test_two_api_servers_on_three_etcds_lose_nothing_when_the_leader_dies(tmp_path: Path) -> None:
    require_engine()
    image = f"minikube-py-test-etcd:{os.getpid()}"
    image_of_etcd(tmp_path, image)
    project = Project("docker-compose.yml", "cluster/etcd.yml", env={"ETCD_IMAGE": image}, kind="etcd")
    closing = ExitStack()
    try:
        project("build", "--quiet", "init", "etcd-1")
        project("up", "--detach", "--wait", "apiserver", "apiserver-2", *MEMBERS)
        access = project.kubeconfig(tmp_path / "kubeconfig")
        second = replace(access, server=f"https://127.0.0.1:{project.ports[1]}")
        one, two = Api(access), Api(second)
        for api in (one, two):
            closing.callback(api.close)
        write(one, "a", "b", "c")
        victim = leader(project)
        project("kill", "--signal", "KILL", victim)
        write(one, "d", "e", "f")
        # The other server shows what this one acknowledged.
        _, listed = two.send("GET", MAPS)
        assert {each["metadata"]["name"] for each in listed["items"]} >= set("abcdef")
        project("up", "--detach", "--wait", victim)
    finally:
        closing.close()
        project("down", "--volumes", "--timeout", "1", check=False)
        subprocess.run(["docker", "image", "rm", image], capture_output=True, check=False)
    assert project.left() == []
