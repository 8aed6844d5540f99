"""docker-compose.yml as a user meets it: up, scale, members killed and wiped under load, down.

Runs wherever an engine with Compose 2 is; each run is a project of its own, on a free port, and leaves nothing.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from containers import Api, Project, Writer, docker, require_engine, until
from ports import free_ports

from minikube_py.client.kubeconfig import load_kubeconfig

NODES_EACH = 500


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_cluster_of_containers_serves_scales_survives_and_leaves_nothing(tmp_path: Path) -> None:
    require_engine()
    project = Project()
    closing = ExitStack()
    try:
        project("build", "--quiet")
        project("up", "--detach", "--wait")
        access = project.kubeconfig(tmp_path / "kubeconfig")
        closing.callback((api := Api(access)).close)
        until("two kubelets' nodes", lambda: len(api.ready_nodes()) == 2 * NODES_EACH)
        kubectl(tmp_path)
        project("up", "--detach", "--wait", "--scale", "kubelet=3")
        until("a third kubelet's nodes", lambda: len(api.ready_nodes()) == 3 * NODES_EACH)
        writer = Writer(access)
        closing.callback(writer.stop)
        writer.start()
        writer.wait_for_more(20)
        members_come_and_go(project, writer)
        a_wiped_member_returns_as_another(project, writer)
        writer.stop()
        assert not writer.refused
        _, listed = api.send("GET", "/api/v1/namespaces/default/configmaps")
        there = {each["metadata"]["name"] for each in listed["items"]}
        assert not set(writer.acknowledged) - there, "acknowledged writes are lost"
        committed = max(each.get("commit", 0) for each in project.members().values())
        until("members have applied what was committed", lambda: project.all_applied(committed))
    finally:
        closing.close()
        project("down", "--volumes", "--timeout", "15", check=False)
    assert project.left() == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_image_alone_is_a_control_plane_in_one_line(tmp_path: Path) -> None:
    require_engine()
    Project()("build", "--quiet")
    name, port = f"minikube-py-alone-{os.getpid()}", free_ports(1)[0]
    docker("run", "--detach", "--rm", "--name", name, "--publish", f"127.0.0.1:{port}:6443", "minikube-py:local")
    try:
        until("that it is ready", lambda: "ready in" in docker("logs", name))
        told = docker("exec", name, "minikube-py", "kubeconfig", "--server", f"https://127.0.0.1:{port}")
        (tmp_path / "kubeconfig").write_text(told)
        api = Api(load_kubeconfig(tmp_path / "kubeconfig"))
        until("its node", lambda: api.ready_nodes() == {"node-0"})
        api.close()
        kubectl(tmp_path)
    finally:
        docker("stop", "--time", "30", name)
    # The engine removes a container after its end.
    until("that it is gone", lambda: name not in docker("ps", "--all", "--format", "{{.Names}}").split())


def kubectl(folder: Path) -> None:
    command = ["kubectl", "--kubeconfig", str(folder / "kubeconfig"), "get", "namespaces", "--output", "name"]
    assert "namespace/default" in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def members_come_and_go(project: Project, writer: Writer) -> None:
    """A follower is killed, then the leader; each comes back."""
    leader = project.leader()
    follower = next(name for name in project.members() if name != leader)
    for victim in (follower, leader):
        project("kill", "--signal", "KILL", victim)
        writer.wait_for_more(20)
        project("start", victim)
        until(f"{victim} back", lambda name=victim: project.role(name) not in ("", "no answer"))
        writer.wait_for_more(5)


def a_wiped_member_returns_as_another(project: Project, writer: Writer) -> None:
    victim = next(name for name in project.members() if name != project.leader())
    before = until(f"{victim}'s id", lambda: project.members().get(victim, {}).get("id", ""))
    project("rm", "--stop", "--force", victim)
    subprocess.run(["docker", "volume", "rm", f"{project.name}_{victim}"], capture_output=True, check=True)
    project("up", "--detach", "--wait", victim)
    # Whoever votes may lead by the time that somebody looks.
    seen = lambda: f"{victim} with a vote: {project.members()}\n{project.logs()}"  # noqa: E731
    until(seen, lambda: project.role(victim) in ("follower", "leader"))
    assert project.members()[victim]["id"] != before
    writer.wait_for_more(20)
