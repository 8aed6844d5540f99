"""The cost of each step of an inequality query in upstream's Go code, and the effect of the patches in docs/upstream.

  nice python tests/bench/bench_upstream_inequality.py                          some minutes; the first time Go compiles
  nice python tests/bench/bench_upstream_inequality.py --only affinity --rounds 3 --json inequality.json
  nice python tests/bench/bench_upstream_inequality.py --check                  upstream's own tests on patched copies

The benchmarks of tests/bench/upstream_inequality run against the modules of upstream, at the versions that
tools/upstream builds. Those of NodeAffinity alternate between unpatched and patched copies of the
modules. A time is the minimum of all rounds; a ratio is the median over rounds of one round's ratio. Beside them, the
same query in Python.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from upstream_build import ETCD, GO_LINE, KUBERNETES, PROGRAMS, STAGING, go, module_info, write_module  # noqa: E402

BENCHES, PATCHES = Path(__file__).with_name("upstream_inequality"), ROOT / "docs" / "upstream"
PATCHED = ("k8s.io/component-helpers", "k8s.io/apimachinery")
CHECKED = {"k8s.io/component-helpers": "./scheduling/...", "k8s.io/apimachinery": "./pkg/labels/ ./pkg/fields/"}
LINE = re.compile(r"^Benchmark(\w+?)(?:-\d+)?\s+\d+\s+(.*)$", re.MULTILINE)
ENVIRONMENT = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-buildvcs=false"}


def patched_copies(folder: Path) -> dict[str, Path]:
    """Copies of the modules, with the patches applied."""
    found = {}
    for module in PATCHED:
        copy = folder / "staging" / "src" / module
        shutil.copytree(module_info(module, STAGING)["Dir"], copy, copy_function=shutil.copyfile)
        for each in (copy, *copy.rglob("*/")):
            each.chmod(0o755)
        found[module] = copy
    for patch in sorted(PATCHES.glob("*.patch")):
        subprocess.run(["git", "apply", "--whitespace=nowarn", str(patch)], cwd=folder, check=True)
    return found


def affinity(folder: Path, copies: Mapping[str, Path]) -> None:
    modules = ("k8s.io/api", *PATCHED)
    lines = [f"module inequality\ngo {GO_LINE}", *(f"require {name} {STAGING}" for name in modules)]
    lines += [f"replace {name} => {path}" for name, path in copies.items()]
    (folder / "go.mod").write_text("\n".join(lines) + "\n")


def listing(folder: Path, copies: Mapping[str, Path]) -> None:
    write_module(folder, PROGRAMS["kube-apiserver"])
    (folder / "tools.go").unlink()


def etcd(folder: Path, copies: Mapping[str, Path]) -> None:
    (folder / "go.mod").write_text(f"module inequality\ngo {GO_LINE}\nrequire go.etcd.io/etcd/server/v3 {ETCD}\n")
    shutil.copy(BENCHES / "etcd_test.go", folder)
    go(["mod", "tidy"], folder)


MODULES: dict[str, Callable[[Path, Mapping[str, Path]], None]] = {
    "affinity": affinity, "listing": listing, "etcd": etcd,
}  # fmt: skip


def compiled(name: str, folder: Path, copies: Mapping[str, Path]) -> Path:
    folder.mkdir()
    shutil.copy(BENCHES / f"{name}_test.go", folder)
    MODULES[name](folder, copies)
    go(["test", "-c", "-mod=mod", "-trimpath", "-o", str(folder / "bench"), "."], folder)
    return folder / "bench"


def measured(program: Path, time_s: float) -> dict[str, dict[str, float]]:
    """One round: each benchmark's figures by unit."""
    command = [str(program), "-test.bench=.", f"-test.benchtime={time_s}s"]
    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, check=True)
    found = {}
    for name, rest in LINE.findall(done.stdout):
        words = rest.split()
        found[name] = {unit: float(figure) for figure, unit in zip(words[::2], words[1::2])}
    return found


def least(rounds: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The minimum over rounds: other work only adds."""
    return {
        name: {unit: min(each[name][unit] for each in rounds) for unit in figures}
        for name, figures in rounds[0].items()
    }


def ratios(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Ratios of nanoseconds, after to before, by round: median, minimum, maximum."""
    found = {}
    for name in before[0]:
        each = sorted(new[name]["ns/op"] / old[name]["ns/op"] for old, new in zip(before, after))
        found[name] = {key: round(value, 3) for key, value in
                       (("median", statistics.median(each)), ("least", each[0]), ("most", each[-1]))}  # fmt: skip
    return found


def ours(rounds: int) -> dict[str, dict[str, float]]:
    """The same in Python: one node's labels compared, and 20,000 nodes queried by an index of one column."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "bench")]
    from ours_inequality import index_first, selector

    return {name: {"ns/op": min(work() for _ in range(rounds))}
            for name, work in (("SelectorGt", selector), ("IndexFirstTen", index_first()))}  # fmt: skip


def check(copies: Mapping[str, Path]) -> None:
    """Upstream's own tests of the patched code. Raises: CalledProcessError."""
    for module, packages in CHECKED.items():
        folder = copies[module]
        for other, path in copies.items():
            if other != module:
                go(["mod", "edit", f"-replace={other}={path}"], folder)
        command = ["go", "test", "-mod=mod", "-count=1", *packages.split()]
        subprocess.run(command, cwd=folder, env=ENVIRONMENT, check=True)


def told(name: str, figures: Mapping[str, float]) -> str:
    return f"{name}: " + ", ".join(f"{value:,.4g} {unit}" for unit, value in figures.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="affinity,listing,etcd,ours", help="which, by comma")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--time", type=float, default=0.2, help="seconds for a benchmark in a round (default: 0.2)")
    parser.add_argument("--check", action="store_true", help="run upstream's tests on the patched copies, no benchmark")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    result: dict[str, Any] = {
        "versions": {"kubernetes": KUBERNETES, "etcd": ETCD,
                     "go": subprocess.check_output(["go", "version"], text=True).split()[2]},
        "load_average": os.getloadavg()[0], "cpus": os.cpu_count(), "machine": platform.machine(),
        "rounds": arguments.rounds, "seconds": arguments.time,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="inequality-") as scratch:
        folder = Path(scratch)
        copies = patched_copies(folder) if arguments.check or "affinity" in wanted else {}
        if arguments.check:
            check(copies)
            return
        for name in (each for each in wanted if each != "ours"):
            program = compiled(name, folder / name, {})
            patched = compiled(name, folder / "patched", copies) if name == "affinity" else None
            before, after = [], []
            for _ in range(arguments.rounds):
                before.append(measured(program, arguments.time))
                if patched is not None:
                    after.append(measured(patched, arguments.time))
            result[name] = least(before)
            if after:
                result["patched"], result["ratio"] = least(after), ratios(before, after)
    if "ours" in wanted:
        result["ours"] = ours(arguments.rounds)
    for part in ("affinity", "patched", "ratio", "listing", "etcd", "ours"):
        for name, figures in result.get(part, {}).items():
            print(f"{part} {told(name, figures)}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
