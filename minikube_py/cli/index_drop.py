"""Drop an index, on all members. Queries are answered without it. Fields that only this index declared can no longer be
used in selectors."""

from __future__ import annotations

import argparse
import json
from urllib.parse import quote

from minikube_py.cli.index import Api, Json, add_access, next_step


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="its name, as `minikube-py index list` prints it")
    add_access(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    status = run_interruptible(_drop(arguments))
    told = f"index {arguments.name} is dropped\n{next_step('minikube-py index list')}"
    print(json.dumps(status, indent=2) if arguments.json else told)
    return 0


async def _drop(arguments: argparse.Namespace) -> Json:
    async with Api(arguments) as api:
        return await api.ask("DELETE", f"indexes/{quote(arguments.name, safe='')}")
