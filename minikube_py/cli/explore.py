"""Run a test of a Python operator in virtual time under many seeds, each with its own interleaving and faults.

  minikube-py explore test_operator.py::test_it --seeds 200
  minikube-py explore test_operator.py::test_it --seed 17     that seed again

The test is a pytest test that uses the fixture `minikube` and starts its operator with `minikube.program(...)`. For a
seed that fails it prints the shortest fault schedule found that still fails, and what the operator read and wrote."""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from minikube_py.cli import flags
from minikube_py.control_plane.exit_codes import FAILED, USAGE
from minikube_py.errors import InvalidRequest, WrongUsage

PLUGIN = "minikube_py.cluster.pytest_plugin"
PYTEST_USAGE = 4
"""pytest's exit code where it finds no such test."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("test", metavar="FILE::TEST", help="what pytest runs")
    which = parser.add_mutually_exclusive_group()
    seeds_help = "how many seeds, starting with 1 (default: 50)"
    which.add_argument("--seeds", type=flags.whole_number(1, 10_000_000), default=50, metavar="N", help=seeds_help)
    which.add_argument("--seed", type=flags.whole_number(1, 1 << 62), metavar="S", help="this seed alone")
    nodes_help = "how many fake nodes (default: 1)"
    parser.add_argument("--nodes", type=flags.whole_number(0, 1000), default=1, metavar="N", help=nodes_help)


def run(arguments: argparse.Namespace) -> int:
    if find_spec("pytest") is None:
        raise InvalidRequest("explore needs pytest: pip install pytest")
    file = Path(arguments.test.partition("::")[0])
    if not file.exists():
        raise WrongUsage(f"there is no {file}; name FILE::TEST")
    installed = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
    only = f"--minikube-seed-only={arguments.seed}" if arguments.seed else f"--minikube-seeds={arguments.seeds}"
    words = [arguments.test, only, f"--minikube-nodes={arguments.nodes}", "--minikube-only-explored"]
    words += [] if installed else ["-p", PLUGIN]
    # In a separate process, where pytest rewrites asserts.
    code = subprocess.call([sys.executable, "-m", "pytest", *words])
    return USAGE if code == PYTEST_USAGE else FAILED if code else 0
