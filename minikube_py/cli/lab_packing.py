"""How much of a cluster's GPUs six published policies allocate, and how much they leave too fragmented to use.

  minikube-py lab packing --seeds 42                          six policies on the default list: half a minute
  minikube-py lab packing --pods cpu250 --policy fgd,bestfit
  minikube-py lab packing --pods all --jobs 2 --journal results/packing.jsonl

Replays the openb trace as the simulator of FGD (Weng et al., USENIX ATC 2023) does: the pods of a list on 1,213 nodes,
shuffled by the seed, then drawn again until 130 % of the GPUs are asked for; nobody leaves. Where there are published
means of 10 seeds, the table shows them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.cli import flags
from minikube_py.cli.table import table

if TYPE_CHECKING:
    from minikube_py.studies.packing.study import Mean, Row

POLICIES = ("random", "dotprod", "clustering", "packing", "bestfit", "fgd")
SEEDS = "42-51"


def configure(parser: argparse.ArgumentParser) -> None:
    pods_help = "pod lists of the trace, comma-separated; `all` for the 17 with published results (default: default)"
    known = flags.several(lambda text: text if text == "all" else flags.checked("lab.pod_lists:read")(text))
    parser.add_argument("--pods", type=known, default=("default",), metavar="LIST", help=pods_help)
    policy_help = f"policies, comma-separated: also prices, of this project (default: {','.join(POLICIES)})"
    policies = flags.several(flags.one_of(*POLICIES, "prices"))
    parser.add_argument("--policy", type=policies, default=POLICIES, metavar="P,...", help=policy_help)
    seeds_help = f"which seeds, such as 42, 42-51 or 42,45 (default: {SEEDS})"
    parser.add_argument("--seeds", type=_seeds, default=_seeds(SEEDS), metavar="S", help=seeds_help)
    parser.add_argument("--jobs", type=flags.whole_number(1, 1024), default=1, metavar="N", help="how many processes")
    journal_help = "record finished runs in FILE, and do not repeat them"
    parser.add_argument("--journal", type=Path, metavar="FILE", help=journal_help)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the JSON to FILE as well")


def _seeds(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 30:
            raise argparse.ArgumentTypeError(f"{text!r} is not a list of seeds; write 42, 42-51 or 42,45")
        start, stop = int(first), int(last or first)
        if not start <= stop < start + 10_000:
            raise argparse.ArgumentTypeError(f"{part}: the last seed must follow the first, by at most 10,000")
        found += range(start, stop + 1)
    return list(dict.fromkeys(found))


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.lab import pod_lists
    from minikube_py.lab.report import require_writable_file
    from minikube_py.studies.packing import study

    names = dict.fromkeys(pod_lists.PUBLISHED if "all" in arguments.pods else arguments.pods)
    for flag, path in (("--write", arguments.write), ("--journal", arguments.journal)):
        if path is not None:
            require_writable_file(path, flag)
    tasks = [study.Task(n, p, seed) for n in names for p in dict.fromkeys(arguments.policy) for seed in arguments.seeds]
    found = study.run(tasks, jobs=arguments.jobs, journal=arguments.journal, say=_say)
    rows = study.means({task: found[task] for task in tasks})
    document = study.as_json(rows, arguments.seeds)
    if arguments.write is not None:
        arguments.write.write_bytes(document)
    print(document.decode() if arguments.json else _told(rows), end="" if arguments.json else "\n")
    return 0


def _say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _told(rows: list[Row]) -> str:
    from minikube_py.studies.packing.replay import MARKS
    from minikube_py.studies.packing.study import out_of_order, outside, published

    expected = published()
    heads = ["PODS", "POLICY", "SEEDS"]
    for mark in MARKS:
        heads += [f"ALLOCATED @{mark}", f"FRAGMENTED @{mark}", f"PUBLISHED @{mark}"]
    cells = []
    for row in rows:
        line = [row.pods, row.policy, str(row.seeds)]
        for mark in MARKS:
            known = expected.get((row.pods, row.policy, mark))
            line += [_mean(row.allocated[mark]), _mean(row.fragmented[mark])]
            line.append("-" if known is None else f"{known.mean:.2f} +-{known.tolerance(row.seeds):.2f}")
        cells.append(line)
    text = ["percent of the GPUs, mean over the seeds (standard deviation); @: GPUs requested so far, percent"]
    text.append(table(heads, cells, set(heads[2:])))
    text.append("published: Weng et al., mean of 10 seeds, with the expected difference from a mean of these seeds")
    return "\n".join((*text, *outside(rows), *out_of_order(rows)))


def _mean(mean: Mean) -> str:
    return f"{mean.mean:.2f} ({mean.deviation:.2f})" if len(mean.by_seed) > 1 else f"{mean.mean:.2f}"
