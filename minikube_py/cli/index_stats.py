"""What the indexes cost and how often they answered, at the member that answers, since it started.

ASKED counts the queries for the objects that an index covers, ANSWERED those that it answered. BYTES/REV is the memory
of one retained change, which queries at older revisions need."""

from __future__ import annotations

import argparse
import json

from minikube_py.cli.index import Api, Json, add_access, next_step
from minikube_py.cli.index_create import question_of, state_text
from minikube_py.cli.index_list import FIRST, NONE
from minikube_py.cli.table import size_text, table

HEADS = ("NAME", "STATE", "ROWS", "SIZE", "LIMIT", "BYTES/REV", "ASKED", "ANSWERED")
NUMBERS = frozenset(HEADS[2:])


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this index, and its declaration")
    add_access(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    items = run_interruptible(_stats(arguments))
    if arguments.json:
        print(json.dumps(items if arguments.name is None else items[0], indent=2))
    elif arguments.name is not None:
        print(told_of(items[0]))
    else:
        print(told(items))
    return 0


async def _stats(arguments: argparse.Namespace) -> list[Json]:
    async with Api(arguments) as api:
        if arguments.name is not None:
            return [await api.index(arguments.name)]
        items: list[Json] = (await api.ask("GET", "indexes"))["items"]
    return items


def told(items: list[Json]) -> str:
    return table(HEADS, [_row(item) for item in items], NUMBERS) if items else f"{NONE}\n{next_step(FIRST)}"


def _row(item: Json) -> tuple[str, ...]:
    status = item["status"]
    return (
        item["name"],
        state_text(status),
        f"{status['rows']:,}",
        size_text(status["sizeBytes"]),
        size_text(item["memoryLimitBytes"]),
        f"{status['bytesPerRevision']:,.0f}",
        f"{status['queries']:,}",
        f"{status['hits']:,}",
    )


def told_of(item: Json) -> str:
    """One index, one line per property."""
    values = dict(zip(HEADS[1:], _row(item)[1:]))
    options = " ".join(f"{name}={value}" for name, value in item["options"].items())
    lines = {"NAME": item["name"], "ON": item["on"], "STRUCTURE": f"{item['structure']} {options}".rstrip()}
    lines["FIELDS"] = ", ".join(item["typed"]["fields"])
    if item["typed"]["sums"]:
        lines["SUMS"] = ", ".join(item["typed"]["sums"])
    width = max(len(head) for head in (*lines, *values))
    text = "\n".join(f"{head:<{width}}  {value}" for head, value in (lines | values).items())
    ask = f"minikube-py index explain '{question_of(item['fields'][0], item)}' --on {item['on']}"
    return f"{text}\n{next_step(ask)}"
