"""Flags that several commands have, and the kinds of values they take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

NODES_MAX = 100_000


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """A kind of argument: an integer from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            value = int(text.replace("_", "").replace(",", ""))
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is not within {low} to {high:,}")
        return value

    return parse


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not within 0 to 1e9")
    return value


def add_nodes(parser: argparse.ArgumentParser, default: int, what: str, low: int = 0) -> None:
    kind = whole_number(low, NODES_MAX)
    parser.add_argument("--nodes", type=kind, default=default, metavar="N", help=f"{what} (default: {default:,})")


def add_run(parser: argparse.ArgumentParser, split: bool = True) -> None:
    """What every measurement has: where it runs, from which seed, and where it writes."""
    if split:
        parser.add_argument("--split", action="store_true", help="each role as a process of its own, over HTTPS")
    data_help = "keep the data here, on the disk to be measured (default: a temporary folder)"
    parser.add_argument("--data-dir", type=Path, metavar="D", help=data_help)
    results_help = "write JSON and pictures under this folder (default: results)"
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help=results_help)
    seed_help = "the same seed makes the same objects in the same order, and breaks ties the same way (default: 0)"
    parser.add_argument("--seed", type=whole_number(0, 2**63 - 1), default=0, metavar="S", help=seed_help)


def add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    help_text = "how to reach the API server: a file that names an https server, its authority and a token"
    parser.add_argument("--kubeconfig", type=Path, required=True, metavar="F", help=help_text)


def add_parent(parser: argparse.ArgumentParser) -> None:
    help_text = "end when standard input ends, so as not to outlive whoever started this"
    parser.add_argument("--with-parent", action="store_true", help=help_text)


def add_tls(parser: argparse.ArgumentParser) -> None:
    """The original's names for a server's own certificate."""
    parser.add_argument("--tls-cert-file", type=Path, required=True, metavar="F", help="the server's certificate, PEM")
    parser.add_argument("--tls-private-key-file", type=Path, required=True, metavar="F", help="its private key, PEM")
