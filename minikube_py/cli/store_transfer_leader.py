"""Let another member of a store lead. Returns once it leads; meanwhile writes wait, and none is lost."""

from __future__ import annotations

import argparse
import json

from minikube_py.cli import flags
from minikube_py.errors import RequestError


def configure(parser: argparse.ArgumentParser) -> None:
    to_help = "the new leader: a name, or an id in hexadecimal (default: the voter with the longest log)"
    parser.add_argument("to", nargs="?", metavar="MEMBER", help=to_help)
    flags.add_store_access(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    told = run_interruptible(_transfer(arguments))
    print(json.dumps(told, indent=2) if arguments.json else f"{told['name']} ({told['leader']}) leads")
    return 0


async def _transfer(arguments: argparse.Namespace) -> dict[str, str]:
    """Raises: RequestError, Unavailable."""
    admin = flags.store_admin(arguments)
    target = await admin.find(arguments.to) if arguments.to else await admin.heir()
    if target["learner"]:
        raise RequestError(f"{target['name']} is a learner: it cannot lead; promote it first")
    if (await admin.leader())["id"] != target["id"]:
        await admin.transfer(target["id"])
    return {"name": target["name"], "leader": f"{target['id']:x}"}
