"""Check a predictor of your own on random histories of a node: whether it returns an amount, is deterministic and
independent of pod order and units, and does not look ahead.

  minikube-py predictor check mine.py:Mine
  minikube-py predictor check n-sigma --args '{sigmas: 3}' --examples 500 --seed 7

If a law is broken, the smallest history that shows it is printed; exit code 1."""

from __future__ import annotations

import argparse

from minikube_py.cli.index_check import without
from minikube_py.cli.model_check import arguments_of_laws, judged


def configure(parser: argparse.ArgumentParser) -> None:
    arguments_of_laws(parser, "its args", "histories")


def run(arguments: argparse.Namespace) -> int:
    try:
        from minikube_py.lab.plugins.predictor_laws import check
    except ModuleNotFoundError as error:
        return without(error, "predictor")
    return judged(arguments, "predictor", check)
