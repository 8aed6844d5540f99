# ruff: noqa: E501
"""Kubernetes' own e2e.test, as it is, against ours, or against any cluster.

    python tests/conformance/judge_e2e.py [--focus REGEX] [--skip REGEX] [--kubeconfig FILE] [--logs FOLDER] [--write]

Without `--focus`, the tests that are known to pass here (data/e2e.json); the exit code is 1 where one of them does not.
`--focus` runs whichever match, of all. `--write` puts the results into data/e2e.json and docs/reference/e2e-tests.md.
e2e.test is built from the module k8s.io/kubernetes at first, which takes many minutes; it needs Go. Ours is `minikube-py
up` as a user starts it. Tests whose pods must do what their images do cannot pass on simulated kubelets.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(each) for each in (HERE.parent / "support", ROOT / "tools", ROOT)]

import upstream_build  # noqa: E402
from up_process import Up  # noqa: E402

RESULTS, PAGE = HERE / "data" / "e2e.json", ROOT / "docs" / "reference" / "e2e-tests.md"
NODES = 3
HARMLESS = ("--provider=skeleton", f"--allowed-not-ready-nodes={NODES}", "--system-pods-startup-timeout=10s",
            "--node-schedulable-timeout=20s", "--minStartupPods=0", "--disable-log-dump=true",
            "--dump-logs-on-failure=false", "--ginkgo.no-color")  # fmt: skip
RAN = ("passed", "failed", "panicked", "timedout", "interrupted", "aborted")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """Ours, started as by a user; yields its kubeconfig. What it complained of is in up.log."""
    running = Up(f"--nodes={NODES}", "--enable-admission-plugins=ServiceAccount", f"--kubeconfig={folder / 'kubeconfig'}")
    try:
        assert running.ready(), running.errors
        yield running.kubeconfig
    finally:
        running.end()
        (folder / "up.log").write_text("\n".join([*running.lines, *running.errors]))


def run(program: Path, kubeconfig: Path, focus: str, skip: str, folder: Path, timeout: str) -> dict[str, str]:
    """By name, "passed" or what failed."""
    report = folder / "report.json"
    command = [str(program), f"--kubeconfig={kubeconfig}", *HARMLESS, f"--ginkgo.focus={focus}",
               f"--ginkgo.json-report={report}", f"--ginkgo.timeout={timeout}"]  # fmt: skip
    if skip:
        command.append(f"--ginkgo.skip={skip}")
    with (folder / "e2e.log").open("w") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=False)
    if not report.is_file():
        raise SystemExit(f"e2e.test wrote no report: see {folder / 'e2e.log'}")
    return outcomes(json.loads(report.read_text()))


def outcomes(suites: list[dict[str, Any]]) -> dict[str, str]:
    found = {}
    for spec in (each for suite in suites for each in suite["SpecReports"] or ()):
        if spec["LeafNodeType"] != "It" or spec["State"] not in RAN:
            continue
        name = " ".join((*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]))
        failure = (spec.get("Failure") or {}).get("Message", "").strip().splitlines()
        found[name] = "passed" if spec["State"] == "passed" else f"failed: {' '.join(failure)[:300]}"
    return dict(sorted(found.items()))


def exactly(names: list[str]) -> str:
    """A regular expression of Go that these names match."""
    return "|".join(re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", name) for name in names)


def page(results: Mapping[str, str]) -> str:
    passed = [name for name, outcome in results.items() if outcome == "passed"]
    by_group: dict[str, Counter[str]] = {}
    for name, outcome in results.items():
        group = (re.match(r"\[(sig-[\w-]+)\]", name) or ["", "other"])[1]
        by_group.setdefault(group, Counter())[outcome.partition(":")[0] if outcome == "passed" else "failed"] += 1
    conformance = sum("[Conformance]" in name for name in passed)
    rows = "".join(f"| {group} | {found['passed']} | {found['failed']} |\n" for group, found in sorted(by_group.items()))
    failed = "".join(f"- `{name}`: {outcome}\n" for name, outcome in results.items() if outcome != "passed")
    return f"""# e2e.test

Kubernetes' own end-to-end tests (`k8s.io/kubernetes/test/e2e`, {upstream_build.KUBERNETES}), unchanged, against `minikube-py up --nodes {NODES} --enable-admission-plugins ServiceAccount`: `make judge-e2e` builds them from their Go module and runs those that pass; `make judge-e2e FOCUS=REGEX` runs others.

**{len(passed)} pass, {conformance} of them of the conformance suite.** Tests that need what their images do (webhooks in pods, networking, volumes, probes of real processes) were not run: kubelets here simulate containers.

| Group | Passed | Failed |
|---|---:|---:|
{rows}
Of those that were run, these fail:

{failed}"""


def write(found: Mapping[str, str]) -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    results = dict(sorted({**known, **found}.items()))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))
    print(f"wrote {RESULTS.relative_to(ROOT)} and {PAGE.relative_to(ROOT)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--focus", default="", help="run those that match, of all")
    parser.add_argument("--skip", default="", help="but not those that match this")
    parser.add_argument("--kubeconfig", type=Path, help="of a cluster that runs; default: one of ours is started")
    parser.add_argument("--logs", type=Path, default=ROOT / "results" / "e2e")
    parser.add_argument("--timeout", default="2h", help="of all together")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.logs.mkdir(parents=True, exist_ok=True)
    try:
        program = upstream_build.build_program(upstream_build.PROGRAMS["e2e.test"])
    except upstream_build.UpstreamError as error:
        print(f"judge-e2e: {error}", file=sys.stderr)
        return 1
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    expected = [name for name, outcome in known.items() if outcome == "passed"]
    focus = options.focus or exactly(expected)
    print(f"running {options.focus or f'{len(expected)} tests that are known to pass'}; see {options.logs}", flush=True)
    started = contextlib.nullcontext(options.kubeconfig) if options.kubeconfig else serving(options.logs)
    with started as kubeconfig:
        found = run(program, kubeconfig, focus, options.skip, options.logs, options.timeout)
    for name, outcome in found.items():
        print(f"{'ok  ' if outcome == 'passed' else 'FAIL'} {name}{'' if outcome == 'passed' else f': {outcome}'}")
    print(f"{sum(outcome == 'passed' for outcome in found.values())} of {len(found)} passed")
    if options.write:
        write(found)
    lost = [name for name in (found if options.focus else expected) if found.get(name, "not run") != "passed"]
    return int(any(name in expected for name in lost))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    sys.exit(main())
