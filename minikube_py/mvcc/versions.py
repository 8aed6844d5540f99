"""The version of the rules of apply: a replicated number, raised by an entry of the log.

Members of several releases apply the same log and must reach the same state. A release that changes or adds a command
gives the new rules a number, and keeps the old ones. The leader raises the number once every member has reported that
it supports the new rules (`store.replica`); from that entry on all members follow them, and never before it. A release
that does not know a number stops there: it must not guess.

| Version | What it changes |
|---|---|
| 1 | the rules without any such entry |
| 2 | `path@2`, `resources@2`, `pod_requests@2` and `sum@3` may be declared; a revoke may name the grant that it means;
the ranges and compares of one txn are bounded in the keys and bytes they read; alarms may be raised |
| 3 | a `Release` may rewrite existing values under alarm NOSPACE |
| 4 | users and roles: `ChangeAuth`, and commands `AsUser` |

Decision and reasons: docs/adr, "Apply is total"."""

from __future__ import annotations

from typing import Final

from minikube_py.errors import MinikubeError

FIRST: Final = 1
LATEST: Final = 4
"""The latest version this release supports."""
GRANTS_HAVE_NAMES: Final = 2
TXNS_HAVE_BUDGETS: Final = 2
ALARMS: Final = 2
RELEASES: Final = 3
USERS: Final = 4


class TooNew(MinikubeError):
    """The log or the snapshot follows rules unknown to this release."""

    def __init__(self, version: int) -> None:
        super().__init__(
            f"the store follows version {version} of the rules of apply, this release knows {LATEST} at most: "
            "start this member with the release that the others run"
        )
