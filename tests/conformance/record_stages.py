"""Asks KWOK 0.8 what `data/stages.json` holds: its own expressions, templates and lifecycles of drawn inputs, and the
statuses of the pods of `stage_scenes` while the real KWOK plays them on our API server.

    PYTHONPATH=tests/support python tests/conformance/record_stages.py

Needs Go, its module cache, and kwok of `tools/upstream`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import drawn_stages
import ours
import stage_scenes
from asking import Server
from needs import original_program
from stage_scenes import Scene

HERE = Path(__file__).parent
DATA = HERE / "data" / "stages.json"
KWOK = "sigs.k8s.io/kwok", "v0.8.0"
MODULE = f"module answers\n\ngo 1.26\n\nrequire {KWOK[0]} {KWOK[1]}\n"
SEED, QUERIES, TEMPLATES, OBJECTS, PODS = 1, 400, 400, 60, 16
FOLDERS = ("pod/fast", "pod/general", "pod/chaos", "node/fast", "node/heartbeat", "node/heartbeat-with-lease",
           "node/chaos", "volume/fast")  # fmt: skip


def stages_folder() -> Path:
    """Where the stages lie that KWOK ships."""
    command = ["go", "mod", "download", "-json", "@".join(KWOK)]
    done = subprocess.run(command, capture_output=True, check=True, cwd=tempfile.gettempdir())
    return Path(json.loads(done.stdout)["Dir"], "kustomize", "stage")


def built(folder: Path) -> Path:
    (folder / "main.go").write_text((HERE / "stage_answers.go").read_text())
    (folder / "go.mod").write_text(MODULE)
    subprocess.run(["go", "build", "-mod=mod", "-o", "answers", "."], cwd=folder, check=True)
    return folder / "answers"


def asked(program: Path, given: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run([program], input=json.dumps(given).encode(), capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def drawn(folder: Path, seed: int, queries: int, templates: int, objects: int) -> dict[str, Any]:
    """What `asked` takes."""
    lives = drawn_stages.lives(seed, objects)
    return {
        "queries": drawn_stages.queries(seed, queries),
        "templates": drawn_stages.templates(seed, templates),
        "lives": [
            {"files": [str(file) for each in folders for file in stage_files(folder / each)], "objects": found}
            for folders, found in lives
        ],
    }


def stage_files(folder: Path) -> list[Path]:
    others = ("kustomization.yaml", "storage-class.yaml")
    return [each for each in sorted(folder.glob("*.yaml")) if each.name not in others]


@contextmanager
def running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("w") as written:
        process = subprocess.Popen(command, stdout=written, stderr=subprocess.STDOUT)
    try:
        yield
        assert process.poll() is None, log.read_text()[-2000:]
    finally:
        process.terminate()
        process.wait(60)


def statuses_by_kwok(name: str, files: list[Path], drawn: list[Scene], folder: Path) -> dict[str, list[Any]]:
    with ours.serve() as up, Server(up["url"], up["token"]) as server:
        command = [str(original_program("kwok")), f"--kubeconfig={up['kubeconfig']}", "--manage-all-nodes=true"]
        command += ["--node-ip=10.64.9.9", "--node-lease-duration-seconds=40", *(f"--config={file}" for file in files)]
        return stage_scenes.played(server, up["url"], drawn, lambda: running(command, folder / f"kwok-{name}.log"))


def statuses_by_ours(name: str, files: list[Path], drawn: list[Scene], folder: Path) -> dict[str, list[Any]]:
    with ours.serve() as up, Server(up["url"], up["token"]) as server:
        command = [sys.executable, "-m", "minikube_py", "kubelet", f"--kubeconfig={up['kubeconfig']}", "--nodes=0"]
        command += [f"--stages={file}" for file in files]
        return stage_scenes.played(server, up["url"], drawn, lambda: running(command, folder / f"ours-{name}.log"))


def main() -> None:
    source = stages_folder()
    with tempfile.TemporaryDirectory() as folder:
        given = drawn(source, SEED, QUERIES, TEMPLATES, OBJECTS)
        program = Path(sys.argv[1]) if len(sys.argv) > 1 else built(Path(folder))
        answers = asked(program, given)
        scenes = {
            name: statuses_by_kwok(
                name, stage_scenes.stage_files(source, name), stage_scenes.scenes(name, SEED, PODS), Path(folder)
            )
            for name in stage_scenes.SETS
        }
    files = {f"{each}/{file.name}": file.read_text() for each in FOLDERS for file in stage_files(source / each)}
    origin = f"{KWOK[0]} {KWOK[1]} kustomize/stage, Apache License 2.0"
    found = {"source": origin, "files": files, **answers, "scenes": scenes}
    DATA.write_text(json.dumps(found, indent=0, ensure_ascii=False, sort_keys=True) + "\n")
    print(f"{DATA.name}: {DATA.stat().st_size:,} bytes, {len(files)} files")


if __name__ == "__main__":
    main()
