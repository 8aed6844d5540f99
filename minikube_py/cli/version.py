"""Print the version of minikube_py."""

from __future__ import annotations

import argparse

from minikube_py import __version__


def configure(parser: argparse.ArgumentParser) -> None:
    """No flags."""


def run(arguments: argparse.Namespace) -> int:
    print(f"minikube-py {__version__}")
    return 0
