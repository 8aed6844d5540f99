"""Ask the store itself which nodes or pods meet inequalities: those of Kubernetes' own API server, or of ours.

  minikube-py store query nodes 'free.cpu>=4,free.memory>=16Gi'
  minikube-py store query nodes 'free.cpu>=4' --index fits
  minikube-py store query nodes 'pool=gpu,free.cpu>=4' --index pools --fields 'pool=metadata.labels["pool"],free.cpu'
  minikube-py store query nodes                                  the indexes, and their state

kube-apiserver keeps nodes under /registry/minions/, minikube_py under /registry/nodes/. The first query declares their
fields. Only objects that are stored as JSON can be read (kube-apiserver's `--storage-media-type application/json`); a
query that depends on any other is refused, with exit code 1."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minikube_py.cli import flags
from minikube_py.cli.index_create import state_text
from minikube_py.errors import RequestError
from minikube_py.fields.builtin import KUBE_PODS, MINIONS, NODES
from minikube_py.fields.spec import FieldSet
from minikube_py.fields.where import Comparison, Where

if TYPE_CHECKING:
    from minikube_py.index.declared import IndexSpec
    from minikube_py.mvcc.types import QueryStats
    from minikube_py.store.client import StoreClient

FIELD_SETS: Final = {"nodes": (MINIONS, NODES), "pods": (KUBE_PODS,)}
READABLE: Final = Where((Comparison("metadata.name", "exists"),))


class Answer(NamedTuple):
    """`names`: of nodes, or `namespace/name`."""

    names: list[str]
    revision: int
    stats: QueryStats


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resource", choices=FIELD_SETS, metavar="nodes|pods", help="which of them")
    parser.add_argument("selector", nargs="?", default="", metavar="SELECTOR", help="as kubectl's --field-selector")
    parser.add_argument("--index", metavar="NAME", help="declare an index of this name first, over the fields compared")
    fields_help = "or over these fields, as in `index create`; repeatable"
    parser.add_argument("--fields", action="append", default=[], metavar="F,...", help=fields_help)
    flags.add_store_access(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    if arguments.fields and not arguments.index:
        arguments.parser.error("--fields goes with --index")
    told = run_interruptible(_run(arguments))
    if arguments.json:
        print(json.dumps(told, indent=2))
    elif "indexes" in told:
        for each in told["indexes"]:
            print(f"{each['name']} over {', '.join(each['fields'])} in {each['structure']}: {state_text(each)}")
    else:
        print("".join(f"{name}\n" for name in told["names"]), end="")
        by = f"index {told['index']}, {told['structure']}" if told["index"] else told["structure"]
        print(f"by {by}; {told['rows_examined']:,} rows examined, revision {told['revision']}", file=sys.stderr)
    return 0


async def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    async with _client(arguments) as client:
        base = await _held(client, arguments.resource)
        await client.declare(base)
        if arguments.index:
            fields = arguments.fields or [each.field for each in _where(arguments, base).comparisons]
            await client.declare_index(_spec(arguments, base, await _specs(client, base), fields))
        if not arguments.selector:
            reports = [each for each in await client.indexes() if each.spec.on == base.name]
            shown = ("state", "progress", "reason", "rows")
            return {
                "indexes": [
                    {"name": each.spec.name, "fields": each.spec.fields, "structure": each.spec.structure}
                    | {name: getattr(each, name) for name in shown}
                    for each in reports
                ]
            }
        names, revision, stats = await _answer(arguments, client, base)
    return {"names": names, "revision": revision, **stats._asdict()}


@asynccontextmanager
async def _client(arguments: argparse.Namespace) -> AsyncIterator[StoreClient]:
    from minikube_py.env import SystemClock
    from minikube_py.store.client import StoreClient

    endpoints = flags.store_admin(arguments).endpoints()
    client = StoreClient(endpoints, SystemClock(), random.Random(), request_timeout_s=arguments.timeout)
    try:
        await client.start()
        yield client
    finally:
        await client.close()


async def _held(client: StoreClient, resource: str) -> FieldSet:
    """The first of which the store holds objects; if it holds none, says so."""
    from minikube_py.mvcc.types import RangeRequest, prefix_end

    for each in FIELD_SETS[resource]:
        if (await client.range(RangeRequest(each.prefix, prefix_end(each.prefix), count_only=True))).count:
            return each
    print(f"the store holds no {resource}", file=sys.stderr)
    return FIELD_SETS[resource][0]


async def _specs(client: StoreClient, base: FieldSet) -> list[IndexSpec]:
    return [each.spec for each in await client.indexes() if each.spec.on == base.name]


def _where(arguments: argparse.Namespace, field_set: FieldSet) -> Where:
    """Raises: StatusError; RequestError for a term that declared fields do not answer."""
    from minikube_py.api.registry import REGISTRY
    from minikube_py.api.selectors import Askable, parse_field_selector

    kind = REGISTRY.resource("", "v1", arguments.resource)
    assert kind is not None
    found = parse_field_selector(kind, arguments.selector, Askable(field_set))
    if len(found.indexed.comparisons) < len(found.where.comparisons) + len(found.requirements):
        names = ", ".join(each.name for each in field_set.fields)
        raise RequestError(f"{arguments.selector!r}: only declared fields can be compared: {names}")
    return found.indexed


def _spec(arguments: argparse.Namespace, base: FieldSet, others: list[IndexSpec], fields: list[str]) -> IndexSpec:
    """Raises: InvalidRequest."""
    from minikube_py.api.field_kinds import kind_at
    from minikube_py.api.registry import REGISTRY
    from minikube_py.fields.text import read_declaration
    from minikube_py.index.declared import IndexSpec, extended

    kind = REGISTRY.resource("", "v1", arguments.resource)
    assert kind is not None
    read = read_declaration(base, fields, (), {}, lambda path: kind_at(kind, path), extended(base, others))
    return IndexSpec(arguments.index, base.name, read.fields, "max-tree", declares=read.declares, sums=read.sums)


async def _answer(arguments: argparse.Namespace, client: StoreClient, base: FieldSet) -> Answer:
    """Raises: RequestError if it depends on objects that cannot be read."""
    from minikube_py.index.declared import extended
    from minikube_py.mvcc.types import RangeRequest, prefix_end

    field_set = extended(base, await _specs(client, base))
    where = _where(arguments, field_set)
    sources = {base.name: base}
    if any(field_set.depends_on_others(each.field) for each in where.comparisons):
        await client.declare(KUBE_PODS)
        sources[KUBE_PODS.name] = KUBE_PODS
    asked = RangeRequest(base.prefix, prefix_end(base.prefix), keys_only=True, where=where)
    found = await client.range(asked)
    unread = [text for each in sources.values() if (text := await _unread(client, each, found.revision))]
    if unread:
        raise RequestError(
            f"{' and '.join(unread)} are not stored as JSON and cannot be read: start kube-apiserver with "
            "--storage-media-type application/json, and write them again (kubectl replace)"
        )
    assert found.stats is not None
    return Answer([kv.key.removeprefix(base.prefix).decode() for kv in found.kvs], found.revision, found.stats)


async def _unread(client: StoreClient, field_set: FieldSet, revision: int) -> str:
    """How many of its objects have no fields at `revision`; "" if all have."""
    from minikube_py.mvcc.types import RangeRequest, prefix_end

    every = RangeRequest(field_set.prefix, prefix_end(field_set.prefix), revision=revision, count_only=True)
    total = (await client.range(every)).count
    readable = (await client.range(every._replace(where=READABLE))).count
    what = next(name for name, sets in FIELD_SETS.items() if field_set in sets)
    return "" if readable == total else f"{total - readable:,} of {total:,} {what}"
