"""`--virtual`: a measurement in virtual time, what its history came to, and what to type next."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from minikube_py.errors import InvalidRequest

if TYPE_CHECKING:
    from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig

T = TypeVar("T")


def asked(arguments: argparse.Namespace) -> bool:
    """Raises: InvalidRequest where something is asked for that virtual time does not have."""
    if not arguments.virtual:
        return False
    for flag, given in (
        ("--split", getattr(arguments, "split", False)),
        ("--data-dir", arguments.data_dir is not None),
    ):
        if given:
            raise InvalidRequest(f"--virtual has no processes and no folder; leave out {flag}")
    return True


def run(
    seed: int, main: Callable[[VirtualCluster], Coroutine[Any, Any, T]], config: VirtualConfig | None = None
) -> T:
    """What `main` returns; prints its history. Raises: what `main` raises; SimFailure."""
    from minikube_py.lab.virtual import in_virtual_time

    result, history = in_virtual_time(seed, main, config)
    print("\n" + "\n".join(history.lines(again())), flush=True)
    return result


def again(words: Sequence[str] | None = None) -> str:
    """The command that was typed (`words` after the program's name), without its seed."""
    kept: list[str] = []
    skipped = False
    for word in sys.argv[1:] if words is None else words:
        if not skipped and not word.startswith("--seed=") and word != "--seed":
            kept.append(word)
        skipped = word == "--seed"
    return shlex.join(["minikube-py", *kept])
