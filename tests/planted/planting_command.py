"""What the runners of planted bugs share as commands: their flags, the table that they print, the exit code."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeVar

MutantT = TypeVar("MutantT")


class Outcome(Protocol):
    """The result for one bug: whether it was `noticed`, and its line of the table."""

    @property
    def noticed(self) -> bool: ...

    def row(self) -> str: ...

    def _asdict(self) -> dict[str, Any]: ...


def parse(
    description: str, amount: str, default: int, amount_help: str, of: Sequence[str] = ()
) -> argparse.Namespace:
    """`amount` names the flag that says how much is tried for each bug; its value is `amount` in what is given back.
    `of`: the tables to choose from."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if of:
        parser.add_argument("--of", choices=of, default=of[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose name holds this")
    parser.add_argument(f"--{amount}", dest="amount", type=int, default=default, metavar="N", help=amount_help)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="J")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def look_for(wanted: Sequence[MutantT], search: Callable[[MutantT], Outcome], arguments: argparse.Namespace) -> int:
    """Searches for all of them, `jobs` at a time, and prints each result in order. Returns 1 if one went unnoticed."""
    results = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for found in pool.map(search, wanted):
            results.append(found)
            print(found.row(), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps([each._asdict() for each in results], indent=1) + "\n")
    noticed = sum(found.noticed for found in results)
    print(f"{noticed} of {len(results)} found")
    return 0 if noticed == len(results) else 1
