"""Tutorials of the command line, as typed: each command of their consoles is run, and prints what the page shows."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from needs import absent, kubectls
from patience import Deadline
from up_process import program_in, up

PAGES = Path(__file__).parents[2] / "docs/tutorials"
READS = ("kubectl get", "minikube-py store status", "minikube-py explain")
"""What may be asked again until it shows what the page shows: components need a moment."""
VARIES = (
    (r"\bweb-[0-9a-z]+-[0-9a-z]{5}\b", "POD"),
    (r"\bnode-\d\b", "NODE"),
    (r"\b[0-9a-f]{12,16}\b", "ID"),
    (r"\b\d+m(\d+s)?\b|\b\d+(\.\d+)?s\b", "TIME"),
    (r"\b\d+(\.\d+)+(:\d+)?\b", "ADDRESS"),
    (r"\b\d+(\.\d+)? [KM]iB\b", "SIZE"),
    (r"\b(leader|follower)\b", "ROLE"),
    (r"(?<= )\d+(?= )", "N"),
    (r"\s+", " "),
)
"""What differs from run to run, and what stands for it."""


class Typed(NamedTuple):
    command: str
    prints: list[str]


OF_A_MACHINE = re.compile(r"^(\* | {2}|'|microseconds)")
"""Measured, or of this run; and programs that a release of hypothesis chooses."""


def typed(text: str) -> list[Typed]:
    found = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append(Typed(command, printed.splitlines()))
    assert found
    return found


def normal(line: str) -> str:
    for pattern, stands in VARIES:
        line = re.sub(pattern, stands, line)
    return line.strip()


def lacks(expected: list[str], printed: str) -> str | None:
    """The first line that the page shows and that was not printed, in this order."""
    lines = iter([normal(line) for line in printed.splitlines()])
    return next((line for line in expected if normal(line) not in lines), None)


class Shell:
    def __init__(self, folder: Path) -> None:
        self.programs = program_in(folder)
        self._folder = folder
        self._environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def has_kubectl(self) -> Shell:
        if not (found := kubectls()):
            absent("kubectl is not on PATH")
        (self.programs / "kubectl").symlink_to(found[max(found)])
        return self

    def types(self, lines: list[Typed]) -> None:
        for line in lines:
            if line.command.startswith("export "):
                name, _, value = line.command.removeprefix("export ").partition("=")
                self._environment[name] = value
            else:
                self._runs(line)

    def runs(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], cwd=self._folder, env=self._environment, capture_output=True, text=True
        )

    def _runs(self, line: Typed) -> None:
        deadline = Deadline()
        while True:
            done = self.runs(line.command)
            missing = lacks(line.prints, done.stdout)
            if done.returncode in (0, -9) and missing is None:
                return
            report = f"$ {line.command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}\nmissing: {missing}"
            assert line.command.startswith(READS), report
            deadline.check(report)


@pytest.mark.kubectl
def test_your_first_cluster(tmp_path: Path) -> None:
    shell = Shell(tmp_path).has_kubectl()
    before, _, after = (PAGES / "your-first-cluster.md").read_text(encoding="utf-8").partition("## Stop")
    flags = ("--nodes", "5", "--data-dir", str(tmp_path / "first"))
    with up(*flags):
        shell.types(typed(before))
    with up(*flags):
        shell.types(typed(after))


@pytest.mark.kubectl
def test_kill_the_leader(tmp_path: Path) -> None:
    page = (PAGES / "kill-the-leader.md").read_text(encoding="utf-8")
    data = tmp_path / "three"
    with up("--members", "3", "--data-dir", str(data), expected="store-1") as running:
        lines = typed(page)
        killed = next(at for at, line in enumerate(lines) if line.command.startswith("kill -9"))
        shell = Shell(tmp_path).has_kubectl()
        shell.types(lines[:killed])
        others = f"{data}/members/store-1"
        shell.types([Typed(lines[killed].command.replace("three/members/store-1", others), [])])
        shell.types(lines[killed + 1 :])
        assert running.until_said("store-1 is back") or any("store-1 is back" in line for line in running.errors)


def installed(folder: Path, pyproject: str) -> None:
    """As `pip install --no-deps -e .` leaves it, which would fetch what builds it. `folder` is on sys.path."""
    document = tomllib.loads(pyproject)
    name, version = document["project"]["name"], document["project"]["version"]
    about = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = document["project"]["entry-points"].items()
    texts = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in each.items()) for group, each in points]
    (about / "entry_points.txt").write_text("\n".join(texts))


def test_an_index_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (PAGES / "an-index-of-your-own.md").read_text(encoding="utf-8")
    paths = [str(tmp_path), *os.environ.get("PYTHONPATH", "").split(":")]
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, paths)))
    monkeypatch.chdir(tmp_path)
    shell, module, printed = Shell(tmp_path), tmp_path / "ordered.py", ""
    codes: list[int] = []
    with contextlib.ExitStack() as running:
        for kind, text in re.findall(r"```(python|toml|)\n(.*?)```", page, re.DOTALL):
            if kind == "toml":
                installed(tmp_path, text)
            elif kind and not module.exists():
                module.write_text(text)
            elif kind:
                before, _, rest = module.read_text().partition("    def put(")
                module.write_text(f"{before}{text}\n    def remove({rest.partition('    def remove(')[2]}")
            elif text.startswith("minikube-py up "):
                running.enter_context(up(*text.split()[2:]))
            elif text.startswith(("minikube-py ", "pip ")):
                for command in text.splitlines():
                    if command.startswith("minikube-py "):
                        done = shell.runs(command)
                        codes.append(done.returncode)
                        printed = done.stdout
            elif not text.startswith("git "):
                shown, printed = (re.sub(", at revision.*", "", each) for each in (text, printed))
                lines = [line for line in shown.splitlines() if not OF_A_MACHINE.match(line)]
                assert lacks(lines, printed) is None, printed
    assert codes == [1, 0, 0, 0, 0, 0]
    assert (tmp_path / "ordered.svg").exists()
