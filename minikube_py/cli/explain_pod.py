"""Explain why a pod is on its node, or unscheduled. Each node's verdict, each plugin's raw and weighted score, the
runner-up; for a waiting pod, what would have to change and whom preemption would evict.

  minikube-py explain pod web
  minikube-py explain pod web -n shop --at 17

Nodes are judged as they are now, without the pod itself. The decision, with the chosen node's scores at that time, is
one of the scheduler's last 1,000. For a pod placed by flow, its path and the cost of each arc are printed."""

from __future__ import annotations

import argparse
import json
from typing import Any
from urllib.parse import quote

from minikube_py.cli import flags
from minikube_py.cli.index import Api, add_access
from minikube_py.cli.table import table

LIMIT = 10
Json = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the pod's name, or pod/NAME as kubectl prints it")
    parser.add_argument("-n", "--namespace", default="default", metavar="NS", help="its namespace (default: default)")
    at_help = "the number of one of the pod's decisions (default: the last)"
    parser.add_argument("--at", type=flags.whole_number(1, 2**63 - 1), metavar="DECISION", help=at_help)
    add_limit(parser)
    add_access(parser)


def add_limit(parser: argparse.ArgumentParser) -> None:
    limit_help = f"show at most this many nodes, 0 for all: its own, those that fit, the others (default: {LIMIT})"
    parser.add_argument("--limit", type=flags.whole_number(0, 10**9), default=LIMIT, metavar="N", help=limit_help)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    answer = run_interruptible(_ask(arguments))
    print(json.dumps(answer, indent=2) if arguments.json else "\n".join([*_decided(answer), *told(answer)]))
    return 0


async def _ask(arguments: argparse.Namespace) -> Json:
    name = quote(arguments.name.removeprefix("pod/"), safe="")
    async with Api(arguments) as api:
        path = f"explain/pods/{quote(arguments.namespace, safe='')}/{name}"
        return await api.ask("GET", path, {"limit": str(arguments.limit), "at": str(arguments.at or "")})


def _decided(answer: Json) -> list[str]:
    where = f"is on {answer['node']}" if answer["node"] else "is not bound to a node"
    lines = [f"{answer['pod']} {where}", *filter(None, [answer.get("nodeGone")])]
    if (group := answer.get("group")) is not None:
        lines.append(f"of its group {group['name']} {group['pods']} pods are there, {group['scheduled']} have a node")
    decision = answer["decision"]
    if answer.get("flow"):
        lines.append(_flow(answer["flow"]))
    if decision is None:
        return lines if answer.get("heldBack") else [*lines, "the details of that decision are no longer kept", ""]
    numbers = ", ".join(map(str, answer["decisions"]))
    head = f"scheduler decision {decision['decision']}; the numbers of all decisions for this pod: {numbers}"
    if not decision["node"]:
        return [*lines, head, str(decision["message"]), ""]
    parts = [f"{s['plugin']} {s['score']} x {s['weight']}" for s in decision["scores"]]
    scores = "by the flow, in which scores take no part" if answer.get("flow") else ", ".join(parts)
    chose = f"chose {decision['node']} among {decision['fits']} that fitted, of {decision['of']} examined"
    return [*lines, head, f"{chose}: {scores or 'none was scored'}", ""]


def _flow(flow: Json) -> str:
    """The path and its cost, for a pod placed by flow."""
    path = " -> ".join([flow["task_class"], *(f"{step['to']} ({step['cost']})" for step in flow["path"])])
    stay = f"staying would have cost {flow['alternative']}"
    return f"flow round {flow['round']}, {flow['model']} solved by {flow['solver']}: {path}: {flow['price']}; {stay}"


def told(answer: Json) -> list[str]:
    """The current nodes, and what would have to change."""
    lines = [f"now {answer['fits']} of {answer['of']} nodes fit"]
    if (held := answer.get("heldBack")) is not None:
        lines.insert(0, f"held back by {held['plugin']}: {held['reason']}")
    if answer.get("extendersNotAsked"):
        lines.append(f"not asked, and may decide differently: extenders {', '.join(answer['extendersNotAsked'])}")
    lines += [f"not placed by flow: {answer['withoutFlow']}"] if answer.get("withoutFlow") else []
    lines += [f"may be decided differently: {each}" for each in answer.get("caveats", ())]
    if answer["best"]:
        after = f"; runner-up: {answer['runnerUp']}" if answer["runnerUp"] else ""
        lines.append(f"best ({answer['tied']}): {', '.join(answer['best'][:5])}{after}")
    if answer["nodes"]:
        lines.append(_nodes(answer["nodes"]))
    lines += [f"{each['nodes']} node(s): {each['reason']}: {each['change']}" for each in answer.get("changes", ())]
    preemption = answer.get("preemption")
    if preemption:
        victims = ", ".join(f"{each['pod']} (priority {each['priority']})" for each in preemption["victims"])
        violated = preemption["budgetsViolated"]
        beside = f", against {violated} disruption budget(s)" if violated else ""
        lines.append(f"preemption would evict from {preemption['node']}: {victims}{beside}")
    elif answer.get("message"):
        lines.append(answer["message"])
    return lines


def _nodes(nodes: list[Json]) -> str:
    plugins = list(dict.fromkeys(s["plugin"] for node in nodes for s in node.get("scores", ())))
    heads = ["NODE", "VERDICT", *plugins, *(["TOTAL"] if plugins else [])]
    rows = []
    for node in nodes:
        given = {s["plugin"]: f"{s['raw']} > {s['score']} x {s['weight']}" for s in node.get("scores", ())}
        verdict = "fits" if node["fits"] else f"{node['plugin']}: {', '.join(node['reasons'])}"
        verdict += f" (kept for {', '.join(node['keptFor'])})" if node.get("keptFor") else ""
        total = [str(node.get("total", ""))] if plugins else []
        rows.append([node["node"], verdict, *(given.get(name, "") for name in plugins), *total])
    return f"{table(heads, rows, {*plugins, 'TOTAL'})}\n(raw > normalised x weight)" if plugins else table(heads, rows)
