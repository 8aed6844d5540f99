"""Twins: drawn scripts to upstream's scheduler and to ours, each step compared.

    python tests/conformance/judge_scheduler.py --seeds 60 [--themes fit,ports] [--journal FILE] [--write] [--record]

Upstream's is the module k8s.io/kubernetes v1.36.2, whole, run by `scheduler_answers.go` in virtual time (needs Go; it
is built once). With a journal, what was judged already is not judged again. `--write` puts the counts into
data/scheduler_twins.json, `--record` a sample of scripts with upstream's answers into data/scheduler_answers.jsonl,
which the tests play without Go.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(each) for each in (HERE, HERE.parent / "support", ROOT / "tools", ROOT)]

import upstream_build as upstream  # noqa: E402
from differences import SCHEDULER_SCRIPTS  # noqa: E402
from drawn_scheduling import THEMES, script  # noqa: E402
from scheduler_twin import Comparison, played  # noqa: E402

Json = dict[str, Any]
COUNTS, SAMPLE = HERE / "data" / "scheduler_twins.json", HERE / "data" / "scheduler_answers.jsonl"
SOURCE = HERE / "scheduler_answers.go"
SAMPLED = 2
"""Scripts of each theme that are recorded, beside those that once showed a difference."""
ONCE = (
    ("fit", 14), ("everything", 19), ("volumes", 32), ("node affinity", 36), ("node affinity", 42), ("configured", 0),
    ("preemption", 7), ("preemption", 19), ("preemption", 3011), ("preemption", 5057), ("preemption", 5061),
    ("wake-ups", 3029), ("sampled", 5086), ("taints", 9), ("preemption", 20049),
    ("images", 9004), ("profiles", 20077), ("profiles", 40027), ("wake-ups", 40031), ("wake-ups", 40114),
    ("wake-ups", 51002),
)  # fmt: skip
BATCH = 40
AGAIN = 20
"""Times that a script which differs is asked again. Which of several pods that wake at one instant goes first, upstream
leaves to the order of a Go map: binding 511 ends as ours does in one of five runs of its own."""
PARTS = ("scripts", "pods", "woken for nothing upstream", "woken for nothing here", "differing")


def built() -> Path:
    """Raises: upstream_build.UpstreamError."""
    named = hashlib.sha256(SOURCE.read_bytes() + upstream.KUBERNETES.encode()).hexdigest()[:12]
    found = upstream.bin_folder() / f"scheduler-answers-{named}"
    if not found.is_file():
        upstream.note("building upstream's scheduler with what writes down its answers ...")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            upstream.write_module(folder, upstream.PROGRAMS["kube-scheduler"])
            (folder / "answers_test.go").write_bytes(SOURCE.read_bytes())
            found.parent.mkdir(parents=True, exist_ok=True)
            draft = found.with_suffix(f".{os.getpid()}")
            upstream.go(["test", "-c", "-mod=mod", "-o", str(draft), "."], folder)
            draft.replace(found)
    return found


def answered(program: Path, scripts: Iterable[Json]) -> list[list[Json]]:
    with tempfile.TemporaryDirectory() as name:
        asked, answers = Path(name, "scripts"), Path(name, "answers")
        asked.write_text("".join(json.dumps(each) + "\n" for each in scripts))
        environment = {**os.environ, "SCRIPTS_FILE": str(asked), "ANSWERS_FILE": str(answers)}
        done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"upstream's scheduler broke:\n{(done.stdout + done.stderr)[-4000:]}")
        return [json.loads(line)["answers"] for line in answers.read_text().splitlines()]


def judged(found: Json, theirs: list[Json]) -> Json:
    """A line of the journal: how many pods were to be placed, which plugins had a say, and what differs."""
    idle = [0, 0]
    try:
        compared = Comparison(found, theirs, played(found, theirs))
        idle = [compared.for_nothing, compared.for_nothing_here]
        differing = [f"step {step} ({found['steps'][step]['do']}): {text}" for step, text in compared.found]
    except Exception as error:
        differing = [f"ours broke: {type(error).__name__}: {error}"]
    said: Counter[str] = Counter()
    pods = 0
    for answer in theirs:
        for attempt in answer.get("attempts") or ():
            pods += 1
            said.update(_spoke(attempt))
        gated = sum("SchedulingGated" in (pod.get("PodScheduled") or ()) for pod in (answer.get("pods") or {}).values())
        said.update({"SchedulingGates": gated} if gated else {})
    line = {"name": found["name"], "pods": pods, "plugins": dict(said), "for_nothing": idle, "asked": 1}
    return line | {"differences": differing}


def _spoke(attempt: Json) -> set[str]:
    """Plugins that turned the pod down, or told its nodes apart."""
    given = list((attempt.get("scores") or {}).values())
    unlike = {plugin for plugin in (given[0] if given else ()) if len({each.get(plugin) for each in given}) > 1}
    preempted = {"DefaultPreemption"} if "preemption: " in attempt.get("message", "") else set()
    return unlike | preempted | set(attempt.get("plugins") or ())


def _batches(names: list[tuple[str, int]]) -> Iterable[list[tuple[str, int]]]:
    return (names[start : start + BATCH] for start in range(0, len(names), BATCH))


def slim(answer: Json) -> Json:
    return {key: value for key, value in answer.items() if key != "events"}


def record(program: Path) -> None:
    chosen = [(theme, seed) for theme in THEMES for seed in range(SAMPLED)]
    scripts = [script(*each) for each in dict.fromkeys((*chosen, *ONCE))]
    lines = []
    for found, theirs in zip(scripts, answered(program, scripts), strict=True):
        for _ in range(AGAIN):
            if judged(found, theirs)["differences"]:
                theirs = answered(program, [found])[0]
        lines.append(json.dumps({**found, "answers": [slim(each) for each in theirs]}, separators=(",", ":")))
    SAMPLE.write_text("\n".join(lines) + "\n")


def write(lines: list[Json]) -> None:
    themes: dict[str, Json] = {}
    plugins: Counter[str] = Counter()
    for line in lines:
        theme = themes.setdefault(line["name"].rpartition(" ")[0], dict.fromkeys(PARTS, 0))
        theme["scripts"] += 1
        theme["pods"] += line["pods"]
        theme["woken for nothing upstream"] += line["for_nothing"][0]
        theme["woken for nothing here"] += line["for_nothing"][1]
        theme["differing"] += bool(line["differences"])
        plugins.update(line["plugins"])
    total = {
        "kubernetes": upstream.KUBERNETES,
        "pods": sum(line["pods"] for line in lines),
        "themes": themes,
        "plugins": dict(sorted(plugins.items())),
        "asked again": {line["name"]: line["asked"] for line in lines if line["asked"] > 1},
        "differences": {line["name"]: line["differences"] for line in lines if line["differences"]},
    }
    COUNTS.write_text(json.dumps(total, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=60, help="of each theme")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--themes", default=",".join(THEMES))
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    program = built()
    if arguments.record:
        record(program)
        return 0
    journal: Path | None = arguments.journal
    found_before = journal.read_text().splitlines() if journal and journal.is_file() else []
    lines = {line["name"]: line for line in map(json.loads, found_before)}
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    wanted = [(theme, seed) for seed in seeds for theme in arguments.themes.split(",")]
    for batch in _batches([each for each in wanted if f"{each[0]} {each[1]}" not in lines]):
        scripts = [script(*each) for each in batch]
        for found, theirs in zip(scripts, answered(program, scripts), strict=True):
            line = judged(found, theirs)
            for again in range(AGAIN):
                if line["differences"]:
                    # Evictions of upstream's race with its own queue: what it says now it may not say again.
                    line = {**judged(found, answered(program, [found])[0]), "asked": again + 2}
            lines[found["name"]] = line
            for text in line["differences"]:
                print(f"--- {line['name']}, {text}", flush=True)
            if journal:
                journal.parent.mkdir(parents=True, exist_ok=True)
                with journal.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    chosen = [lines[f"{theme} {seed}"] for theme, seed in wanted]
    differing = {line["name"] for line in chosen if line["differences"]}
    known = len(differing & set(SCHEDULER_SCRIPTS))
    pods = sum(line["pods"] for line in chosen)
    print(f"{pods} pods in {len(chosen)} scripts; {len(differing)} differ, {known} as known")
    if arguments.write:
        write(chosen)
    return 1 if differing - set(SCHEDULER_SCRIPTS) else 0


if __name__ == "__main__":
    sys.exit(main())
