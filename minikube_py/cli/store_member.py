"""The members of a store. The leader makes one change at a time.

  minikube-py store member list                                        as `minikube-py store status`
  minikube-py store member add store-4 --peer HOST:PORT [--learner]    announce it; then start it under that name
  minikube-py store member promote store-4                             a learner that has caught up votes from now on
  minikube-py store member remove store-4                              for good: it may come back under a new id only"""

from __future__ import annotations

import argparse
import json

from minikube_py.cli import flags
from minikube_py.errors import RequestError

ADD = """Announce a member. Then start it under that name, with an empty folder and an --initial-cluster of this
store's members and itself. It receives the log first, and votes once it has caught up; a learner votes only after it
is promoted."""
PROMOTE = "Let a learner vote. Refused while it lags: it would count towards the quorum but could not acknowledge."
REMOVE = """Remove a member or an announced member. A process with that id exits by itself, and can rejoin only with
an empty folder, under a new id."""


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", metavar="list|add|promote|remove", required=True)
    add = commands.add_parser("add", help="announce a member", description=ADD, allow_abbrev=False)
    add.add_argument("name", metavar="NAME", help="its name")
    peer_help = "its peer address (default: the one it reports when it starts)"
    add.add_argument("--peer", type=flags.HOST_PORT, default="", metavar="HOST:PORT", help=peer_help)
    client_help = "its client address (default: the one it reports when it starts)"
    add.add_argument("--client", type=flags.HOST_PORT, default="", metavar="HOST:PORT", help=client_help)
    add.add_argument("--learner", action="store_true", help="it does not vote until it is promoted")
    promote = commands.add_parser("promote", help="let a learner vote", description=PROMOTE, allow_abbrev=False)
    promote.add_argument("name", metavar="NAME", help="its name, or its id in hexadecimal")
    remove = commands.add_parser("remove", help="remove a member", description=REMOVE, allow_abbrev=False)
    remove.add_argument("name", metavar="NAME", help="its name, or its id in hexadecimal")
    listed = commands.add_parser("list", help="the members, as `store status` shows them", allow_abbrev=False)
    for command in (add, promote, remove, listed):
        flags.add_store_access(command)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible

    if arguments.command == "list":
        from minikube_py.cli import store_status

        return store_status.run(arguments)
    changed = run_interruptible(_change(arguments))
    print(json.dumps(changed, indent=2) if arguments.json else changed["done"])
    return 0


async def _change(arguments: argparse.Namespace) -> dict[str, object]:
    """Raises: RequestError, Unavailable, OutcomeUnknown."""
    from minikube_py.raft.configuration import NodeId
    from minikube_py.store.membership import ChangeKind, MemberChange

    admin, name = flags.store_admin(arguments), arguments.name
    if arguments.command == "add":
        change = MemberChange(
            ChangeKind.EXPECT, name=name, peer=arguments.peer, client=arguments.client, learner=arguments.learner
        )
        await admin.change(change)
        kind = "learner" if arguments.learner else "member"
        return {"done": f"{kind} {name} is expected: start it under that name", "name": name}
    if arguments.command == "remove" and name in await admin.expected():
        await admin.change(MemberChange(ChangeKind.REMOVE, name=name))
        return {"done": f"{name} is no longer expected", "name": name}
    member = await admin.find(name)
    found = NodeId(member["id"])
    if arguments.command == "promote":
        if not member["learner"]:
            raise RequestError(f"member {member['name']} votes already")
        await admin.change(MemberChange(ChangeKind.PROMOTE, id=found))
        done = f"member {member['name']} ({found:x}) votes"
    else:
        await admin.change(MemberChange(ChangeKind.REMOVE, id=found))
        done = f"member {member['name']} ({found:x}) is removed"
    return {"done": done, "name": member["name"], "id": f"{found:x}"}
