"""Files that pages show in YAML are read by what they are for, and the page of prediction's own predictor is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from doc_commands import PAGES, ROOT

from minikube_py import Cluster
from minikube_py.api.usage import DeclaredUsage
from minikube_py.cli import input_files
from minikube_py.cli.main import main
from minikube_py.fields.usage import Usage
from minikube_py.scheduler.configuration.chosen import ChosenScheduler
from minikube_py.scheduler.configuration.files import read_scheduler

ELSEWHERE = {
    "docs/faq.md": "tests/unit/tools/test_faq.py",
    "docs/how-to/gangs.md": "tests/unit/cli/test_cli_gangs.py",
    "docs/how-to/grant-a-device-port.md": "tests/integration/test_port_extender.py",
    "docs/tutorials/a-cost-model-of-your-own.md": "tests/unit/lab/test_model_tutorial.py",
    "docs/tutorials/a-scheduler-plugin-of-your-own.md": "tests/unit/lab/test_scheduler_tutorial.py",
}
"""Pages whose files another test uses."""
FILES = [
    (page.relative_to(ROOT).as_posix(), text)
    for page in PAGES
    for text in re.findall(r"^```ya?ml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_a_page_is_tested_elsewhere(page: str, test: str) -> None:
    assert page in {name for name, _ in FILES}
    assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "text"), [each for each in FILES if each[0] not in ELSEWHERE])
def test_a_file_on_a_page_is_read(page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shown.yaml"
    path.write_text(text, encoding="utf-8")
    document = yaml.safe_load(text)
    if "services" in document:
        # For docker-compose; here, that it changes services and folders that there are. Paths are those in a container.
        monkeypatch.setattr(input_files, "require_there", lambda text, *_: Path(text))
        composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
        for name, service in document["services"].items():
            assert main([*service["command"], "--help"]) == 0 and name in composed["services"]
            assert all((ROOT / each.split(":")[0]).exists() for each in service["volumes"] if each.startswith("./"))
    elif document["kind"] == "KubeSchedulerConfiguration":
        assert read_scheduler(ChosenScheduler(path)).profiles
    elif document["kind"] == "ClusterResourceUsage":
        pod = {"name": "p", "namespace": "default", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
        declared = DeclaredUsage((document,), {}, lambda name: None)
        used = declared.usage({"metadata": pod, "spec": {"containers": [{"name": "c"}]}}, 1_767_225_660.0)
        assert used == Usage(60_000_000, 64 << 20) and not declared.wrong
    elif document["kind"] == "Stage":
        with Cluster(clock="virtual", seed=1, stages=path) as cluster:
            assert cluster.wait("node/node-0", condition="Ready")
    else:
        with Cluster(clock="virtual", seed=1) as cluster:
            assert cluster.apply(text)


def test_the_predictor_on_its_page_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs/prediction.md").read_text(encoding="utf-8")
    ((name, text),) = re.findall(r"```python\n# (\S+)\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)
    (command,) = re.findall(r"^minikube-py (predictor check .*?)(?: *#.*)?$", page, re.MULTILINE)
    code = main([*command.split(), "--examples", "3"])
    assert code == 0, capsys.readouterr()
