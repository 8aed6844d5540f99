"""`--virtual`: a measurement in virtual time, its history digest, and the next command."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from minikube_py.errors import WrongUsage

if TYPE_CHECKING:
    from minikube_py.cluster.virtual import VirtualCluster, VirtualConfig
    from minikube_py.ui.recording import Recording

T = TypeVar("T")


def asked(arguments: argparse.Namespace) -> bool:
    """Raises: WrongUsage if an option is not available in virtual time."""
    if not arguments.virtual:
        if getattr(arguments, "page", None) is not None:
            raise WrongUsage("--page records a run in virtual time; add --virtual")
        return False
    for flag, given in (
        ("--split", getattr(arguments, "split", False)),
        ("--data-dir", arguments.data_dir is not None),
    ):
        if given:
            raise WrongUsage(f"--virtual has no processes and no folder; remove {flag}")
    return True


def run(
    seed: int,
    main: Callable[[VirtualCluster], Coroutine[Any, Any, T]],
    config: VirtualConfig | None = None,
    page: Path | None = None,
) -> T:
    """What `main` returns; prints its history, and writes it to `page`. Raises: what `main` raises; SimFailure."""
    from minikube_py.lab.virtual import in_virtual_time

    if page is None:
        result, history = in_virtual_time(seed, main, config)
    else:
        from minikube_py.ui.recording import Recording

        recording = Recording(f"{again()} --seed {seed}")
        result, history = in_virtual_time(seed, main, config, recording)
        write_page(page, [recording], sys.stdout)
    print("\n" + "\n".join(history.lines(again())), flush=True)
    return result


def write_page(path: Path, recordings: Sequence[Recording], out: TextIO) -> None:
    """Prints how to use it. Raises: OSError."""
    from minikube_py.ui import recording

    recording.write_page(path, recordings, lambda text: print(text, file=out))
    print(f"wrote {path}; open it in a browser: a slider moves through the run", file=out, flush=True)


def again(words: Sequence[str] | None = None) -> str:
    """The command that was typed (`words` after the program's name), without its seed."""
    kept: list[str] = []
    skipped = False
    for word in sys.argv[1:] if words is None else words:
        if not skipped and not word.startswith("--seed=") and word != "--seed":
            kept.append(word)
        skipped = word == "--seed"
    return shlex.join(["minikube-py", *kept])
