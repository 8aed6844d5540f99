"""Asks upstream's allocator of devices all that its own table of tests asks, and drawn cases.

    PYTHONPATH=tests/conformance python tests/conformance/record_devices.py

Needs Go and the module k8s.io/dynamic-resource-allocation v0.36.2 in its cache: the table is not exported, so that a
copy of the module is built with `device_table.go` and `device_allocations.go` in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from drawn_devices import Draw

HERE = Path(__file__).parent
MODULE = "k8s.io/dynamic-resource-allocation@v0.36.2"
FOUND, NOT_FOUND = 140, 60
"""So many drawn cases are kept, by whether devices are found."""
CALLS_MAX = 2_000


def build(folder: Path) -> None:
    cache = subprocess.run(["go", "env", "GOMODCACHE"], check=True, capture_output=True, text=True).stdout.strip()
    shutil.copytree(Path(cache) / MODULE, folder, dirs_exist_ok=True)
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755)
    shutil.copy(HERE / "device_table.go", folder / "structured" / "allocator_test.go")
    (folder / "structured" / "record").mkdir()
    shutil.copy(HERE / "device_allocations.go", folder / "structured" / "record" / "main.go")
    subprocess.run(["go", "build", "-o", "record", "./structured/record"], cwd=folder, check=True)


def table(folder: Path) -> list[str]:
    """The cases only; that some fail is of no matter, since they run with other features than they are meant for."""
    file = folder / "table"
    environment = {**os.environ, "TABLE_FILE": str(file)}
    subprocess.run(["go", "test", "./structured/", "-count=1"], cwd=folder, env=environment, capture_output=True)
    return sorted(file.read_text().splitlines())


def answers(folder: Path, questions: list[str]) -> list[dict[str, Any]]:
    text = "\n".join(questions) + "\n"
    run = subprocess.run([folder / "record"], input=text, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in run.stdout.splitlines()]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder)
        cases = answers(folder, table(folder))
        count = len(cases)
        drawn = answers(folder, [json.dumps({"name": f"drawn {seed}", **Draw(seed).case()}) for seed in range(3_000)])
    short = [case for case in drawn if case["answer"]["calls"] < CALLS_MAX]
    cases += [case for case in short if case["answer"]["results"]][:FOUND]
    cases += [case for case in short if not case["answer"]["results"]][:NOT_FOUND]
    for case in cases:
        case["node"] = {"metadata": case["node"]["metadata"]}
        if case["name"].startswith("TestAllocator"):
            case["name"] = "table"
    lines = [json.dumps(case, sort_keys=True, separators=(",", ":")) for case in cases]
    (HERE / "data" / "device_allocations.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"device_allocations.json: {count} cases of the table, {len(cases) - count} drawn")


if __name__ == "__main__":
    main()
