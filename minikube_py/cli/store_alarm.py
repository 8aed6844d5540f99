"""Alarms of a store: problems that all members agree on.

  minikube-py store alarm list       list the raised alarms, and by whom
  minikube-py store alarm disarm     clear them all

NOSPACE: a member has no space left, and writes that need space are refused; reads, deletes and compactions go on. The
member clears the alarm when it has space again; if you clear it sooner, it is raised again. CORRUPT of a member: its
data differ from the majority's; it stops until its folder is emptied. CORRUPT of all: members differ and no majority
agrees; writes stop until you have found out which data are right, and clear the alarm.

`list` exits with 1 if there is an alarm."""

from __future__ import annotations

import argparse
import json
from typing import Any

from minikube_py.cli import flags
from minikube_py.cli.table import table


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", metavar="list|disarm", required=True)
    for name, what in (("list", "list the raised alarms"), ("disarm", "clear all alarms")):
        command = commands.add_parser(name, help=what, description=__doc__, allow_abbrev=False)
        command.formatter_class = argparse.RawDescriptionHelpFormatter
        flags.add_store_access(command)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    alarms = run_interruptible(_alarms(arguments))
    if arguments.json:
        print(json.dumps({"alarms": alarms}, indent=2))
    elif arguments.command == "disarm":
        print(f"cleared: {len(alarms)}")
    else:
        rows = [(each["kind"], each["name"] or "all", each["member"], each["why"]) for each in alarms]
        print(table(("ALARM", "MEMBER", "ID", "WHY"), rows, frozenset()) if rows else "no alarms are raised")
    return 1 if alarms and arguments.command == "list" else 0


async def _alarms(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The raised alarms, or those that were cleared. Raises: Unavailable, RequestError, OutcomeUnknown."""
    admin = flags.store_admin(arguments)
    alarms = await admin.alarms()
    if arguments.command == "disarm":
        await admin.disarm()
    return alarms
