"""Recover what is readable from the data folder of a store member that does not start.

  minikube-py store salvage DIR              what is there and what is lost: file, offset, bytes, entries, revisions
  minikube-py store salvage DIR --to DIR2    also write a new folder with everything that passes its checksum
  ... --to DIR2 --exact                      a new folder with the last state that is known to have existed as a whole

After a part of the log that cannot be read, conditions of writes (`create if absent`, `update if unchanged`) are judged
by what is known; the report names the entries for which that is not certain. --exact leaves out all behind the gap.

DIR is never written to. The member in DIR2 is alone in a new cluster, with new ids. A member of a cluster does not need
this: empty its folder, and start it with --rejoin.

Exit code 0: nothing is missing. 4: something is missing. 1: nothing can be recovered, or DIR is in use."""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from minikube_py.control_plane.exit_codes import DAMAGED
from minikube_py.errors import MinikubeError, WrongUsage


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="the damaged data directory")
    to_help = "write a new data directory with the recovered data; it must hold no member"
    parser.add_argument("--to", type=Path, metavar="DIR2", help=to_help)
    parser.add_argument("--exact", action="store_true", help="omit everything after the first gap")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.control_plane.store_salvage import lines, look, report, write

    if arguments.exact and arguments.to is None:
        raise WrongUsage("--exact needs --to: without it, nothing is written")
    salvaged = look(arguments.folder)
    if salvaged is None:
        raise MinikubeError(f"{arguments.folder}: nothing can be recovered: no part of a snapshot or log is intact")
    told, said = report(salvaged), lines(salvaged)
    if arguments.to is not None:
        cluster_id, member_id = write(salvaged, arguments.to, random.Random(), exact=arguments.exact)
        told |= {"data_dir": str(arguments.to), "cluster": f"{cluster_id:x}", "member": f"{member_id:x}"}
        said.append(f"{arguments.to}: member {member_id:x} of the new cluster {cluster_id:x}")
    print(json.dumps(told, indent=2) if arguments.json else "\n".join(said))
    return 0 if salvaged.whole else DAMAGED
