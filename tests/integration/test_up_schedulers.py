"""A control plane with a scheduler of one's own configuration, with a second one beside it, and without any."""

import random
from pathlib import Path

import pytest

from minikube_py.cli import main
from minikube_py.client.rest import PODS, RestClient
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.in_process import ControlPlane
from minikube_py.env import SystemClock
from minikube_py.scheduler.config import ConfigError
from minikube_py.scheduler.configuration.chosen import ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
ARGS = "{scoringStrategy: {type: MostAllocated}}"
PACKING = f"{HEAD}profiles: [{{pluginConfig: [{{name: NodeResourcesFit, args: {ARGS}}}]}}]\n"
COMMANDS = [["up"], ["replay", "openb"], ["demo"], ["bench", "density"], ["bench", "schedule"]]
PODS_EACH = 4


def pod(name: str, scheduler: str) -> dict[str, object]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spec = {"schedulerName": scheduler, "containers": [container]}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}


async def test_a_second_scheduler_packs_where_the_first_one_spreads(tmp_path: Path) -> None:
    file = tmp_path / "packing.yaml"
    file.write_text(PACKING)
    config = ControlPlaneConfig(tmp_path / "d", port=0, nodes=4, seed=1, more_schedulers=(("packing", file),))
    plane = ControlPlane(config, SystemClock(), random.Random(1))
    await plane.start()
    try:
        client = RestClient(plane.transport())
        where = {}
        for name in ("packing", "default-scheduler"):
            for number in range(PODS_EACH):
                created = pod(f"{name}-{number}", name)
                await client.request("POST", "/api/v1/namespaces/default/pods", None, created)
                where[name, number] = await bound(client, f"{name}-{number}")
        assert len({where["packing", number] for number in range(PODS_EACH)}) == 1
        told = (await client.transport.request("GET", "/metrics")).body.decode()
        for name in ("packing", "default-scheduler"):
            attempts = f'scheduler_schedule_attempts_total{{result="scheduled",profile="{name}"}}'
            assert f"{attempts} {PODS_EACH}" in told
        assert len({where["default-scheduler", number] for number in range(PODS_EACH)}) > 1
    finally:
        await plane.stop()


async def bound(client: RestClient, name: str) -> str:
    import asyncio

    from patience import PATIENCE_S

    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = (await client.get(PODS, name, "default"))["spec"].get("nodeName")
            if found:
                return str(found)
            await asyncio.sleep(0.01)


def test_the_only_profile_gets_the_name_and_others_must_have_it(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text(PACKING)
    for chosen in (ChosenScheduler(file), ChosenScheduler()):
        assert [p.scheduler_name for p in read_scheduler(chosen, name="mine").profiles] == ["mine"]
    file.write_text(HEAD + "profiles: [{schedulerName: other}]")
    with pytest.raises(ConfigError, match="no profile has the schedulerName mine"):
        read_scheduler(ChosenScheduler(file), name="mine")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_wrong_file(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f"
    file.write_text(HEAD + "profils: []")
    folder = ["--data-dir", str(tmp_path / "d")]
    assert main.main([*command, *folder, "--scheduler-config", str(file)]) == 2
    assert f'{file}: strict decoding error: unknown field "profils"' in capsys.readouterr().err


def test_what_a_file_comes_to_is_written(tmp_path: Path) -> None:
    file, full = tmp_path / "f", tmp_path / "full"
    file.write_text(PACKING)
    words = ["scheduler", "--kubeconfig", "none", "--scheduler-config", str(file), "--write-config-to", str(full)]
    assert main.main(words) == 0
    assert "minCandidateNodesAbsolute: 100" in full.read_text() and "type: MostAllocated" in full.read_text()
