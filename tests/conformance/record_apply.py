"""Writes down what structured-merge-diff's own tests of merging do, step by step, as facts for our apply.

    python tests/conformance/record_apply.py

Copies the module from Go's cache, lays `record_apply.go` into its test fixture and runs its tests, twenty times: in
which order they convert differs. The tests on whole Kubernetes objects (real_test.go) are left out for their size.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
DATA = HERE / "data" / "apply_merge.json"
_WRAPPED = (
    ("Update", '"update"', ""),
    ("Apply", 'map[bool]string{false: "apply", true: "force"}[force]', ", force"),
)
MODULE = "sigs.k8s.io/structured-merge-diff/v6@v6.3.2"


def record(into: Path) -> None:
    """Runs the instrumented tests; their lines go to `into`."""
    cache = subprocess.run(("go", "env", "GOMODCACHE"), capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "module"
        shutil.copytree(Path(cache) / MODULE, copy)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        (copy / "merge" / "real_test.go").unlink()
        fixture = copy / "internal" / "fixture"
        shutil.copy(HERE / "record_apply.go", fixture / "record.go")
        state = fixture / "state.go"
        text = state.read_text()
        for verb, op, more in _WRAPPED:
            given = "tv *typed.TypedValue, version fieldpath.APIVersion, manager string"
            old = f"func (s *State) {verb}Object({given}{', force bool' if more else ''}) error {{\n"
            assert old in text, f"{verb}Object has changed"
            wrapped = old + (
                f"\treturn s.step({op}, tv, version, manager, func() error {{ "
                f"return s.do{verb}(tv, version, manager{more}) }})\n}}\n\n"
            )
            text = text.replace(old, wrapped + old.replace(f"{verb}Object", f"do{verb}"))
        head = "func (tc TestCase) TestWithConverter(parser Parser, converter merge.Converter) error {\n"
        assert head in text, "TestWithConverter has changed"
        begun = head + "\tbegin()\n\tdefer end(tc)\n\tconverter = recordingConverter{converter}\n"
        state.write_text(text.replace(head, begun))
        done = subprocess.run(
            ("go", "test", "-count=20", "-run", "Test", "./merge/"), cwd=copy,
            env={**os.environ, "APPLY_FACTS": str(into)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(done.stdout, done.stderr)
        done.check_returncode()


def gathered(lines: list[str]) -> dict[str, Any]:
    schemas: dict[int, object] = {}
    cases: list[dict[str, Any]] = []
    left_out = set()
    for fact in map(json.loads, lines):
        if fact.pop("record") == "schema":
            schemas[fact["number"]] = yaml.safe_load(fact["types"])
        elif fact.pop("filtered"):
            left_out.add(fact["name"])
        else:
            # Some tests run a hundred times, for the order of Go's maps, in which they convert.
            known = [case for case in cases if fact["steps"] == case["steps"] and fact["name"] == case["name"]]
            for case in known:
                case["converted"] += [each for each in fact["converted"] or () if each not in case["converted"]]
            if not known:
                cases.append({**fact, "converted": fact["converted"] or [], "steps": fact["steps"] or []})
    return {"module": MODULE, "schemas": schemas, "cases": cases, "left_out": len(left_out)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "facts"
        record(lines)
        found = gathered(lines.read_text().splitlines())
    DATA.write_text(json.dumps(found, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{DATA.name}: {len(found['cases'])} cases, {found['left_out']} tests with include filters left out")


if __name__ == "__main__":
    main()
