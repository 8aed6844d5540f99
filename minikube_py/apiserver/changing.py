"""Shared by the steps of a change: the next state, and refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import orjson

from minikube_py.api.errors import StatusError, already_exists
from minikube_py.api.kind import Kind
from minikube_py.api.quota.charging import Refused
from minikube_py.apiserver.messages import with_warnings
from minikube_py.apiserver.object_store import Claim, Outcome
from minikube_py.apiserver.passing import Next
from minikube_py.mvcc.types import KeyValue


class Absent(Exception):
    """The object to be changed is not there, and may be created."""


async def nothing_is_written(charges: Sequence[Claim]) -> Outcome:
    return Outcome(True, 0)


MakeNext = Callable[[KeyValue | None], Awaitable[Next | None]]


def taken_error(resource: Kind, name: str, standing: KeyValue) -> StatusError:
    return already_exists(resource, name, "deletionTimestamp" in orjson.loads(standing.value)["metadata"])


def told(error: StatusError, warnings: list[str], said: list[str]) -> StatusError:
    """`said`: warnings after validation; a quota refusal carries them too."""
    more = said if isinstance(error, Refused) else ()
    return with_warnings(error, [*warnings, *more, *error.warnings])
