"""Bring a control plane up, replay the 8,152 pods of the openb trace on its 1,213 GPU nodes, and ask while they fill
which nodes have at least 4 free CPUs, 16Gi and one whole GPU: by the index, and by listing everything.

Ends with tables, a JSON file and a picture. Takes under two minutes on two cores."""

from __future__ import annotations

import argparse

from minikube_py.cli import flags
from minikube_py.cli.running import run_interruptible
from minikube_py.cli.terminal import started


def configure(parser: argparse.ArgumentParser) -> None:
    flags.add_run(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.lab.demo import run_demo

    steps = started()
    run_interruptible(
        run_demo(
            split=arguments.split,
            data_dir=arguments.data_dir,
            results=arguments.results,
            seed=arguments.seed,
            step=steps.done,
        )
    )
    return 0
