"""List the indexes: resource, fields, structure, and state at the member that answers.

STATE is `building` until it is complete, and `degraded` if it was dropped because of its memory or an error. In both
states, queries are answered without it."""

from __future__ import annotations

import argparse
import json

from minikube_py.cli.index import Api, Json, add_access, next_step
from minikube_py.cli.index_create import state_text
from minikube_py.cli.table import size_text, table

HEADS = ("NAME", "ON", "FIELDS", "STRUCTURE", "STATE", "ROWS", "SIZE", "ANSWERED")
NUMBERS = frozenset(("ROWS", "SIZE", "ANSWERED"))
NONE = "no index is declared"
FIRST = "minikube-py index create fits --on nodes --fields free.cpu,free.memory"


def configure(parser: argparse.ArgumentParser) -> None:
    add_access(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    items = run_interruptible(_list(arguments))
    print(json.dumps(items, indent=2) if arguments.json else told(items))
    return 0


async def _list(arguments: argparse.Namespace) -> list[Json]:
    async with Api(arguments) as api:
        items: list[Json] = (await api.ask("GET", "indexes"))["items"]
    return items


def told(items: list[Json]) -> str:
    if not items:
        return f"{NONE}\n{next_step(FIRST)}"
    rows = [_row(item) for item in items]
    more = f"minikube-py index stats {items[0]['name']}"
    return f"{table(HEADS, rows, NUMBERS)}\n{next_step(more)}"


def _row(item: Json) -> tuple[str, ...]:
    status = item["status"]
    return (
        item["name"],
        item["on"],
        ",".join(item["fields"]),
        item["structure"],
        state_text(status),
        f"{status['rows']:,}",
        size_text(status["sizeBytes"]),
        f"{status['hits']:,}",
    )
