"""Copies of all that a store holds, as one file each.

  minikube-py store snapshot save FILE                      of a store that runs, while it serves
  minikube-py store snapshot verify FILE                    whether it is whole, and what it holds; needs no store
  minikube-py store snapshot restore FILE --data-dir D      a new member of a new cluster; needs no store"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from minikube_py.cli import flags, input_files
from minikube_py.cli.table import size_text
from minikube_py.errors import WrongUsage

SAVE = """Write a snapshot of a running store to a file. It contains all writes acknowledged before the command
began. The file appears under its name only when it is complete."""
VERIFY = "Read a snapshot to its last byte, check its hashes, build the store from it, and print a summary."
RESTORE = """Make a data folder from a snapshot, for the only member of a new cluster, with new ids, so that no
member or client mistakes it for the old cluster. Start it with `minikube-py store --data-dir D`; others join it with
--initial-cluster once they are expected (see `member add`, or --initial-cluster here)."""


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", metavar="save|verify|restore", required=True)
    save = commands.add_parser("save", help="write a snapshot of a running store", description=SAVE, allow_abbrev=False)
    save.add_argument("file", type=Path, metavar="FILE", help="where to write it; replaced if it exists")
    flags.add_store_access(save)
    verify = commands.add_parser("verify", help="check a file", description=VERIFY, allow_abbrev=False)
    verify.add_argument("file", type=input_files.file, metavar="FILE", help="the snapshot")
    verify.add_argument("--json", action="store_true", help="print JSON")
    restore = commands.add_parser("restore", help="make a data folder", description=RESTORE, allow_abbrev=False)
    restore.add_argument("file", type=input_files.file, metavar="FILE", help="the snapshot")
    data_help = "the new member's folder, which must be empty"
    restore.add_argument("--data-dir", type=Path, required=True, metavar="D", help=data_help)
    restore.add_argument("--name", default="", metavar="NAME", help="the new member's name")
    restore.add_argument(
        "--initial-cluster", type=flags.MEMBERS, default="", metavar="NAME=HOST:PORT,...",
        help="NAME=HOST:PORT of all future members; the others may join once this one runs",
    )  # fmt: skip
    address = flags.HOST_PORT
    restore.add_argument("--advertise-client", type=address, default="", metavar="HOST:PORT", help="its client address")
    restore.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    told, line = {"save": _save, "verify": _verify, "restore": _restore}[arguments.command](arguments)
    print(json.dumps(told, indent=2) if arguments.json else line)
    return 0


def _save(arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from minikube_py.cli.running import run_interruptible

    saved = run_interruptible(flags.store_admin(arguments).save_snapshot(arguments.file.absolute()))
    told = {
        "file": str(arguments.file),
        "member": saved.name,
        "size_bytes": saved.size_bytes,
        "sha256": saved.sha256.hex(),
        "index": saved.index,
        "term": saved.term,
    }
    line = f"{arguments.file}: {size_text(saved.size_bytes)} of {saved.name or saved.address}, entry {saved.index:,}"
    return told, line


def _verify(arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from minikube_py.control_plane.store_snapshots import verify

    report = verify(arguments.file)
    head = report.head
    told = {
        "file": str(arguments.file),
        "cluster": f"{head.cluster_id:x}",
        "member": f"{head.member_id:x}",
        "index": head.index,
        "term": head.term,
        "revision": report.revision,
        "compact_revision": report.compact_revision,
        "keys": report.keys,
        "leases": report.leases,
        "size_bytes": report.size_bytes,
        "sha256": report.sha256.hex(),
        "hash": f"{report.hash:016x}",
        "members": [{"name": each.name, "id": f"{each.id:x}"} for each in report.membership.members],
    }
    lines = [f"{arguments.file} is whole: {size_text(report.size_bytes)}, sha256 {report.sha256.hex()}"]
    held = f"{report.keys:,} keys, {report.leases:,} leases"
    lines.append(f"revision {report.revision:,}, {held}; hash {report.hash:016x}")
    lines.append(f"entry {head.index:,} of term {head.term}, cluster {head.cluster_id:x}, by member {head.member_id:x}")
    return told, "\n".join(lines)


def _restore(arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from minikube_py.control_plane.store_snapshots import NewMember, expected_members, restore
    from minikube_py.store.bootstrap import parse_initial_cluster

    initial = parse_initial_cluster(arguments.initial_cluster) if arguments.initial_cluster else ()
    if initial and arguments.name not in dict(initial):
        raise WrongUsage(f"--name {arguments.name or '(none)'} is not in --initial-cluster")
    peer = dict(initial).get(arguments.name, "")
    new = NewMember(arguments.name, peer, arguments.advertise_client, expected_members(initial, arguments.name))
    cluster_id, member_id = restore(arguments.file, arguments.data_dir, new, random.Random())
    told = {"data_dir": str(arguments.data_dir), "cluster": f"{cluster_id:x}", "member": f"{member_id:x}"}
    line = f"{arguments.data_dir}: member {member_id:x} of the new cluster {cluster_id:x}"
    return told, line
