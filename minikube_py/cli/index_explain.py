"""How a query is answered, and what the other ways would have cost: all of them are tried.

  minikube-py index explain "free.cpu>=4,free.memory>=16Gi" --limit 10
  minikube-py index explain 'metadata.creationTimestamp<2026-01-31T12:00:00Z' --on pods

TOOK is measured, EXPECTED is the planner's estimate; * marks its choice. ROWS were compared; FALSE of the SHARDS opened
held no match; DECODED objects were read from their bytes."""

from __future__ import annotations

import argparse
import json

from minikube_py.cli import flags
from minikube_py.cli.index import Api, Json, add_access, next_step
from minikube_py.cli.table import table

HEADS = ("", "INDEX", "STRUCTURE", "TOOK", "EXPECTED", "FOUND", "ROWS", "SHARDS", "PRUNED", "FALSE", "DECODED", "NOTE")
NUMBERS = frozenset(HEADS[3:11])
LIMIT = 10


def configure(parser: argparse.ArgumentParser) -> None:
    where_help = "the query, in the form of kubectl's --field-selector"
    parser.add_argument("where", metavar="WHERE", help=where_help)
    parser.add_argument("--on", default="nodes", metavar="RESOURCE", help="resource (default: nodes)")
    limit_help = f"the first N matches, 0 for all (default: {LIMIT})"
    parser.add_argument("--limit", type=flags.whole_number(0, 10**9), default=LIMIT, metavar="N", help=limit_help)
    any_help = "return any matches, as a scheduler needs; lists need the first by name, so all matches must be found"
    parser.add_argument("--any", action="store_true", help=any_help)
    add_access(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    answer = run_interruptible(_explain(arguments))
    print(json.dumps(answer, indent=2) if arguments.json else told(answer))
    return 0


async def _explain(arguments: argparse.Namespace) -> Json:
    order = "ANY" if arguments.any else "KEY"
    params = {"resource": arguments.on, "where": arguments.where, "limit": str(arguments.limit), "order": order}
    async with Api(arguments) as api:
        return await api.ask("GET", "explain", params)


def told(answer: Json) -> str:
    chosen, others = answer["chosen"], answer["others"]
    some = "the first" if answer["order"] == "KEY" else "any"
    limit = f"{some} {answer['limit']:,}" if answer["limit"] else "all"
    expected = f"{answer['share']:.1%} of {answer['rows']:,} expected to match" if answer["rows"] else "there are none"
    head = f"{answer['where']} on {answer['resource']}, {limit}, at revision {answer['revision']}: {expected}"
    rows = [_row("*", chosen), *(_row("", each) for each in others)]
    lines = [head, table(HEADS, rows, NUMBERS)]
    if "scannedBelow" in answer:
        lines.append(f"revisions below {answer['scannedBelow']} are read from etcd and scanned")
    if answer["listsAsk"] != "store":
        lines.append("lists do not use this: no complete index has these fields; the API server scans its cache")
    if not any(each["name"] and each["takenUs"] >= 0 for each in (chosen, *others)):
        fields = ",".join(dict.fromkeys(each["field"] for each in answer["comparisons"]))
        lines.append(next_step(f"minikube-py index create NAME --on {answer['resource']} --fields '{fields}'"))
    else:
        lines.append(next_step(f"kubectl get {answer['resource']} --field-selector '{answer['where']}'"))
    return "\n".join(lines)


def _row(mark: str, choice: Json) -> tuple[str, ...]:
    tried = choice["takenUs"] >= 0
    return (
        mark,
        choice["name"] or "-",
        choice["structure"],
        _time(choice["takenUs"]) if tried else "-",
        _time(choice["estimatedUs"]),
        *(
            f"{choice[name]:,}" if tried else "-"
            for name in ("found", "rowsExamined", "shardsExamined", "shardsPruned", "falsePositives", "objectsDecoded")
        ),
        choice["reason"],
    )


def _time(taken_us: float) -> str:
    """`12.3 us`, `4.5 ms`; negative: unknown."""
    if taken_us < 0:
        return "-"
    return f"{taken_us / 1000:,.1f} ms" if taken_us >= 1000 else f"{taken_us:.1f} us"
