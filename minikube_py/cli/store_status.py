"""The state of a store's members: who leads, the progress and size of each, the age of its snapshot.

READY means that a linearizable read through the member succeeds within 2 seconds. LAG is the number of committed log
entries that a member has not applied yet. SNAPSHOT AGE is `earlier` for a snapshot from before the member's start, or
from its leader. Exit code 1 if a member does not answer or is not ready, if there is no leader, or if
members are of different clusters."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from minikube_py.cli import flags
from minikube_py.cli.table import age_text, size_text, table

if TYPE_CHECKING:
    from minikube_py.control_plane.store_admin import MemberReport

HEADS = ("MEMBER", "ID", "ROLE", "READY", "TERM", "COMMIT", "APPLIED", "LAG", "DB SIZE", "SNAPSHOT AGE", "ADDRESS")
NUMBERS = frozenset(HEADS[4:10])


def configure(parser: argparse.ArgumentParser) -> None:
    flags.add_store_access(parser)


def run(arguments: argparse.Namespace) -> int:
    from minikube_py.cli.running import run_interruptible
    from minikube_py.control_plane.store_admin import leader_of

    reports = run_interruptible(flags.store_admin(arguments).status(readiness=True))
    if arguments.json:
        print(json.dumps(as_json(reports, leader_of(reports)), indent=2))
    else:
        print(as_table(reports))
        for report in reports:
            why = report.error or report.unready
            if why and not report.expected:
                print(f"{report.name or report.address}: {why}", file=sys.stderr)
        for text in _troubles(reports):
            print(text, file=sys.stderr)
    ready = all(report.expected or (report.status and not report.unready) for report in reports)
    one = len({report.status["cluster"] for report in reports if report.status}) < 2
    well = one and leader_of(reports) is not None and ready
    return 0 if well else 1


def _troubles(reports: list[MemberReport]) -> list[str]:
    """Members of different clusters, alarms, and disk reports of members."""
    found: dict[str, None] = {}
    clusters: dict[int, list[str]] = {}
    for report in reports:
        if report.status:
            clusters.setdefault(report.status["cluster"], []).append(report.name or report.address)
    if len(clusters) > 1:
        each = "; ".join(f"{id:x}: {', '.join(names)}" for id, names in clusters.items())
        found[f"the members that answer are of {len(clusters)} clusters, with different data: {each}"] = None
    for report in reports:
        status = report.status or {}
        for alarm in status.get("alarms", ()):
            whose = f"member {alarm['member']:x}" if alarm["member"] else "all members"
            found[f"alarm {alarm['kind']} of {whose}; see `minikube-py store alarm list`"] = None
        for text in (status.get("shortage"), status.get("snapshot_failure"), *status.get("warnings", ())):
            if text:
                found[f"{report.name or report.address}: {text}"] = None
    return list(found)


def as_table(reports: list[MemberReport]) -> str:
    commit = max((report.status["commit"] for report in reports if report.status), default=0)
    return table(HEADS, [_row(report, commit) for report in reports], NUMBERS)


def _row(report: MemberReport, commit: int) -> tuple[str, ...]:
    name, id = report.name or "-", f"{report.id:x}" if report.id else "-"
    status = report.status
    if status is None:
        role = "expected" if report.expected else "no answer"
        return (name, id, role, *["-"] * 7, report.address or "-")
    return (
        name,
        id,
        role_of(status),
        "no" if report.unready else "yes",
        str(status["term"]),
        f"{status['commit']:,}",
        f"{status['applied']:,}",
        f"{max(0, commit - status['applied']):,}",
        size_text(status["size_bytes"]),
        _snapshot_age(status),
        report.address,
    )


def _snapshot_age(status: dict[str, Any]) -> str:
    if not status["snapshot_index"]:
        return "-"
    age_s = status["snapshot_age_s"]
    return "earlier" if age_s is None else age_text(age_s)


def role_of(status: dict[str, Any]) -> str:
    """A non-voting follower is shown as `learner`."""
    role: str = status["role"].lower()
    return "learner" if status["member"]["learner"] and role == "follower" else role


def as_json(reports: list[MemberReport], leader: int | None) -> dict[str, Any]:
    """Ids are texts in hexadecimal, as elsewhere in the output."""
    commit = max((report.status["commit"] for report in reports if report.status), default=0)
    members = []
    for report in reports:
        entry: dict[str, Any] = {"name": report.name, "id": f"{report.id:x}", "address": report.address}
        if report.status is None:
            entry |= {"role": "expected" if report.expected else "no answer", "error": report.error}
        else:
            status = report.status
            entry |= {"role": role_of(status), "lag": max(0, commit - status["applied"])}
            entry |= {"ready": not report.unready, "unready": report.unready}
            entry |= {key: status[key] for key in _KEPT}
            entry |= {"cluster": f"{status['cluster']:x}", "leader": f"{status['leader']:x}"}
            names = {each["id"]: each["name"] for each in status["members"]}
            alarms = status.get("alarms", ())
            entry["alarms"] = [{**each, "member": names.get(each["member"], f"{each['member']:x}")} for each in alarms]
            entry |= {key: status[key] for key in _ROOM if key in status}
            entry |= {"learner": status["member"]["learner"], "version": status["version"]}
            entry["peers"] = [{**peer, "id": f"{peer['id']:x}"} for peer in status["peers"]]
        members.append(entry)
    return {"leader": None if leader is None else f"{leader:x}", "members": members}


_ROOM = ("data_bytes", "quota_bytes", "free_bytes", "reserve_bytes", "shortage", "snapshot_failure", "warnings")
_KEPT = (
    "term",
    "commit",
    "applied",
    "last_index",
    "revision",
    "compact_revision",
    "size_bytes",
    "snapshot_index",
    "snapshot_size_bytes",
    "snapshot_age_s",
)
