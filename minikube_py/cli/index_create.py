"""Declare an index over fields of a resource; writes go on meanwhile.

  minikube-py index create fits --on nodes --fields free.cpu,free.memory,free.nvidia.com/gpu
  minikube-py index create old --on pods --fields metadata.creationTimestamp,spec.priority
  minikube-py index create pools --on nodes --fields 'pool=metadata.labels["pool"],metadata.labels["rank"]:int'
  minikube-py index create quota --on namespaces --fields requested.cpu \\
      --sum 'requested.*=pods:metadata.namespace:pod_requests@2'

A field is either declared already (free.cpu), or a path into the object. The path's kind comes from the schema, or from
a suffix: int, quantity, string, time. NAME=PATH gives it a shorter name. NAME=RESOURCE:REFERENCE:EXTRACTOR is a sum
over the objects that refer to one, by pod_requests@2, resources@1(path=P), path@1(path=P) or count@1."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from minikube_py.cli.index import Api, Json, add_access, next_step
from minikube_py.errors import RequestError
from minikube_py.own_code import absolute

POLL_S = 0.1


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="its name: lower-case letters, digits, - and .")
    parser.add_argument("--on", required=True, metavar="RESOURCE", help="resource: nodes, pods, services, ...")
    fields_help = "the fields, separated by commas; repeatable"
    parser.add_argument("--fields", action="append", required=True, metavar="F,...", help=fields_help)
    sum_help = "a sum over referring objects, used by a field; repeatable"
    parser.add_argument("--sum", action="append", default=[], metavar="NAME=...", help=sum_help)
    structure_help = (
        "its structure (default: max-tree): a name, or FILE.py:CLASS if the control plane was started with that "
        "--structure; `minikube-py index check` checks its laws"
    )
    parser.add_argument("--structure", type=absolute, default="max-tree", metavar="S", help=structure_help)
    option_help = "an option of the structure; repeatable"
    parser.add_argument("--option", type=_option, action="append", default=[], metavar="NAME=VALUE", help=option_help)
    memory_help = "drop the structure if it exceeds this amount of memory, and answer without it (default: 256Mi)"
    parser.add_argument("--memory-limit", metavar="BYTES", help=memory_help)
    parser.add_argument("--wait", action="store_true", help="return when it is complete")
    add_access(parser)


def _option(text: str) -> tuple[str, int | str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    digits = value[1:] if value[:1] == "-" else value
    return name, int(value) if digits.isascii() and digits.isdigit() and len(digits) < 19 else value


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    item = run_interruptible(_create(arguments))
    print(json.dumps(item, indent=2) if arguments.json else told(item))
    return 1 if arguments.wait and item["status"]["state"] != "ready" else 0


def _structure(text: str) -> str:
    """As in the API. A user-defined class is checked first; only that loads the catalogue."""
    if ":" not in text:
        return text
    from minikube_py.index.catalogue import name_of

    return name_of(text)


async def _create(arguments: argparse.Namespace) -> Json:
    from minikube_py.api.errors import StatusError

    body: dict[str, Any] = {
        "name": arguments.name,
        "on": arguments.on,
        "fields": arguments.fields,
        "sums": arguments.sum,
        "structure": _structure(arguments.structure),
        "options": dict(arguments.option),
    }
    if arguments.memory_limit is not None:
        body["memoryLimit"] = arguments.memory_limit
    async with Api(arguments) as api:
        try:
            item = await api.ask("POST", "indexes", body=body)
        except StatusError as error:
            if ":" not in arguments.structure or "no structure is named" not in str(error):
                raise
            raise RequestError(f"{error}; start the control plane with --structure {arguments.structure}") from None
        shows = sys.stderr.isatty() and not arguments.json
        while arguments.wait and item["status"]["state"] == "building":
            if shows:
                print(f"\r{item['status']['progress']:4.0%} built", end="", file=sys.stderr, flush=True)
            await asyncio.sleep(POLL_S)
            item = await api.index(arguments.name)
        if shows and arguments.wait:
            print("\r", end="", file=sys.stderr)
    return item


def told(item: Json) -> str:
    state = state_text(item["status"])
    first = f"index {item['name']} on {item['on']} over {', '.join(item['fields'])} in {item['structure']}: {state}"
    question = question_of(item["fields"][0], item)
    ask = f"minikube-py index explain '{question}' --on {item['on']}"
    return "\n".join([first, next_step(ask, f"kubectl get {item['on']} --field-selector '{question}'")])


def state_text(status: Json) -> str:
    """`ready`, `building (40 %)`, `degraded (why)`."""
    state: str = status["state"]
    if state == "building":
        return f"building ({status['progress']:.0%})"
    return f"{state} ({status['reason']})" if status["reason"] else state


def question_of(field: str, item: Json) -> str:
    """A sample query that the index answers."""
    examples = {"quantity": ">=1", "int": ">=1", "time": "<2026-01-31T12:00:00Z", "string": "=x"}
    return field + examples[item["typed"]["kinds"].get(field, "quantity")]
