"""The laboratory: what is asked of a store, and what answers it best.

  minikube-py lab calls
  minikube-py lab study bloom --quick"""

from __future__ import annotations

import argparse

SUBCOMMANDS = {
    "calls": "record every call from API server to store during a run; histograms and diagrams",
    "study": "run a study that was written down before, and write its report",
}


def configure(parser: argparse.ArgumentParser) -> None:
    lines = [f"  {name:<16} {text}" for name, text in SUBCOMMANDS.items()]
    more = f"{parser.prog} COMMAND --help tells more."
    parser.epilog = "\n".join(["commands:", *lines, "", more])
    parser.set_defaults(parser=parser)


def run(arguments: argparse.Namespace) -> int:
    parser: argparse.ArgumentParser = arguments.parser
    parser.error(f"which? There are: {', '.join(SUBCOMMANDS)}")
