"""Run a study that was registered before it ran, and write its report.

  minikube-py lab study bloom --quick                     when does a filter or an index speed up matching? minutes
  minikube-py lab study bloom --medium                    four seeds, filters to 100,000 nodes; an hour or so
  minikube-py lab study mine.toml --quick --unregistered  an experiment of your own, tried out

A run needs its design and registration committed and unchanged. docs/how-to/add-an-experiment.md has an example."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from minikube_py.cli import flags, forms, input_files
from minikube_py.cli.terminal import started

if TYPE_CHECKING:
    from minikube_py.lab.study.design import Mode

RESULTS = Path("results")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", metavar="FILE|NAME", help="a study by name (bloom), or the file of a design")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="few levels, seeds and requests; takes minutes")
    size.add_argument("--medium", action="store_true", help="more of each; takes about an hour on two cores, not days")
    out_help = "output folder: the journal, the report, its pictures (default: results/study-NAME, -quick or -medium)"
    parser.add_argument("--out", type=Path, metavar="DIR", help=out_help)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jobs_help = f"how many processes (default: one for each core, {cores} here)"
    parser.add_argument("--jobs", type=flags.whole_number(1, 1024), default=cores, metavar="N", help=jobs_help)
    parser.add_argument("--resume", action="store_true", help="continue with the units missing in the journal of --out")
    parser.add_argument("--report", action="store_true", help="only write the report from the journal")
    limit_help = "stop after this time, e.g. 30m, and report what has finished; --resume continues"
    parser.add_argument("--time", type=flags.duration_s, metavar="T", help=limit_help)
    blocks_help = "only these blocks of the design, e.g. openb; --resume without it continues with the others"
    parser.add_argument("--blocks", type=flags.several(str), metavar="NAME,...", default=[], help=blocks_help)
    bench_help = "a JSON file of `bench schedule` or `bench density`, repeatable: pods/s with intervals in the report"
    parser.add_argument("--bench", type=input_files.file, action="append", default=[], metavar="FILE", help=bench_help)
    unregistered_help = "run a design that is not committed; the report states this"
    parser.add_argument("--unregistered", action="store_true", help=unregistered_help)
    forms.watch(parser)


def run(arguments: argparse.Namespace) -> int:
    form = "--report" if hasattr(arguments, "report") else "a run"
    forms.require(arguments, form, dict.fromkeys(("jobs", "time", "blocks"), ("a run",)))
    _one_blas_thread()
    from minikube_py.lab.study.experiment import find
    from minikube_py.lab.study.running import StudyOptions, run_study

    mode: Mode = "quick" if arguments.quick else "medium" if arguments.medium else "full"
    name = f"study-{find(arguments.study).name}"
    out = arguments.out or RESULTS / (name if mode == "full" else f"{name}-{mode}")
    options = StudyOptions(
        target=arguments.study,
        mode=mode,
        out=out,
        jobs=arguments.jobs,
        resume=arguments.resume,
        report_only=arguments.report,
        limit_s=arguments.time,
        bench=arguments.bench,
        unregistered=arguments.unregistered,
        blocks=tuple(arguments.blocks),
    )
    return run_study(options, started().done)


def _one_blas_thread() -> None:
    """For measurements of a thread's CPU time: numpy, when it is loaded, and processes started later compute matrix
    products in the calling thread. Without effect where the user has set the number, or numpy is loaded."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        os.environ.setdefault(name, "1")
