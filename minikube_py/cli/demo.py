"""Bring a control plane up, replay the 8,152 pods of the openb trace on its 1,213 GPU nodes, and ask meanwhile
which nodes have at least 4 free CPUs, 16Gi and one whole GPU: by the index, and by listing everything.

Ends with tables, a JSON file and a picture. Takes under a minute on two cores."""

from __future__ import annotations

import argparse
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from minikube_py.cli import flags, virtual
from minikube_py.cli.running import run_interruptible
from minikube_py.cli.terminal import started

if TYPE_CHECKING:
    from minikube_py.cluster.virtual import VirtualCluster


def configure(parser: argparse.ArgumentParser) -> None:
    flags.add_scheduler_config(parser)
    flags.add_run(parser, virtual=True)
    flags.add_page(parser, "with --virtual: the run")


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.lab.cluster import Ground
    from minikube_py.lab.demo import run_demo

    chosen = flags.run_by(arguments)
    steps = started()

    ground = Ground(
        step=steps.done, split=arguments.split, data_dir=arguments.data_dir, seed=arguments.seed, chosen=chosen
    )

    def demo(cluster: VirtualCluster | None = None) -> Coroutine[Any, Any, None]:
        return run_demo(replace(ground, virtual=cluster), arguments.results)

    if virtual.asked(arguments):
        virtual.run(arguments.seed, demo, page=arguments.page)
    else:
        run_interruptible(demo())
    return 0
