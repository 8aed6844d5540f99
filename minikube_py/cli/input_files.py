"""Files and folders that a command reads: if one is absent, or says what it must not, the flag has a wrong value."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from minikube_py.errors import MinikubeError, WrongUsage


def file(text: str) -> Path:
    """A kind of argument: a file that is read. What it says is judged by `wrong_value`, where it can be."""
    return require_there(text, Path.is_file, "not a regular file")


def folder(text: str) -> Path:
    return require_there(text, Path.is_dir, "not a folder")


def file_or_folder(text: str) -> Path:
    return require_there(text)


def require_there(text: str, is_right: Callable[[Path], bool] = Path.exists, otherwise: str = "") -> Path:
    """Raises: ArgumentTypeError."""
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text}: no such file or directory")
    if not is_right(path):
        raise argparse.ArgumentTypeError(f"{text}: {otherwise}")
    return path


@contextmanager
def wrong_value(flag: str) -> Iterator[None]:
    """What is refused within is wrong usage of this flag or argument. For values that can only be judged together
    with others; before anything starts. Raises: WrongUsage."""
    try:
        yield
    except OSError as error:
        raise WrongUsage(f"argument {flag}: {error.filename}: {error.strerror}") from error
    except MinikubeError as error:
        raise WrongUsage(f"argument {flag}: {error}") from error
