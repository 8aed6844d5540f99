"""Compare the members of a store by a hash of all keys and index rows at one revision.

Exit code 1 if the hashes differ, or a member did not answer."""

from __future__ import annotations

import argparse
import json
import sys

from minikube_py.cli import flags
from minikube_py.cli.table import table


def configure(parser: argparse.ArgumentParser) -> None:
    revision_help = "compare at this revision (default: the latest that all members have)"
    parser.add_argument("--revision", type=flags.whole_number(0, 2**63 - 1), default=0, metavar="N", help=revision_help)
    flags.add_store_access(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    hashes = run_interruptible(flags.store_admin(arguments).hashes(arguments.revision))
    alike = len({each.hash for each in hashes}) == 1 and hashes[0].hash is not None
    rows = [
        (each.name or "-", str(each.revision) if each.revision else "-", _text(each.hash), each.address)
        for each in hashes
    ]
    if arguments.json:
        members = [
            {"name": each.name, "address": each.address, "revision": each.revision}
            | ({"hash": _text(each.hash)} if each.hash is not None else {"error": each.error})
            for each in hashes
        ]
        print(json.dumps({"alike": alike, "members": members}, indent=2))
        return 0 if alike else 1
    print(table(("MEMBER", "REVISION", "HASH", "ADDRESS"), rows, {"REVISION"}))
    for each in hashes:
        if each.error:
            print(f"{each.name or each.address}: {each.error}", file=sys.stderr)
    if len({each.hash for each in hashes if each.hash is not None}) > 1:
        print("the members DIFFER: they have diverged", file=sys.stderr)
    return 0 if alike else 1


def _text(digest: int | None) -> str:
    return "-" if digest is None else f"{digest:016x}"
