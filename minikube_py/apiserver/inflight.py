"""Limits concurrent external requests: reads and writes separately; administrators are exempt.

As upstream, long-running requests do not count: watches, proxies, logs and sessions.

Source: apiserver `pkg/server/filters/maxinflight.go`.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from minikube_py.api import go_json
from minikube_py.api.errors import StatusError
from minikube_py.apiserver.audit_requests import lasts
from minikube_py.apiserver.auth import ANONYMOUS
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.messages import TEXT, Request, Response, error_response
from minikube_py.apiserver.rules import MASTERS
from minikube_py.env import Clock

RETRY_AFTER_S = 1
_OUT_OF_TIME: Final = "request did not complete within the allotted timeout"
_READS = ("get", "list", "head", "options")


class Slots:
    """`limit` 0: no limit."""

    __slots__ = ("kind", "limit", "refused", "taken")

    def __init__(self, kind: str, limit: int) -> None:
        self.kind = kind
        self.limit = limit
        self.taken = 0
        self.refused = 0

    def check(self) -> None:
        """Raises: StatusError 429."""
        if self.limit and self.taken >= self.limit:
            self.refused += 1
            message = (
                f"Too many requests, please try again later. The limit is {self.limit} {self.kind} requests in flight."
            )
            raise StatusError(429, "TooManyRequests", message, {}, RETRY_AFTER_S)

    def take(self) -> None:
        """Raises: StatusError 429."""
        self.check()
        self.taken += 1

    def give_back(self) -> None:
        self.taken -= 1


class InFlight:
    def __init__(self, limits: Limits) -> None:
        self.reads = Slots("read-only", limits.reads_in_flight_max)
        self.writes = Slots("mutating", limits.writes_in_flight_max)

    def slots(self, request: Request, verb: str) -> Slots | None:
        """The request's counter; None if it is exempt."""
        if request.receive is None or MASTERS in (request.user or ANONYMOUS).groups:
            return None
        if verb == "watch" or lasts(request.path, request.method, request.query):
            return None
        return self.reads if verb in _READS else self.writes

    def metrics(self) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for slots, kind in ((self.reads, "readOnly"), (self.writes, "mutating")):
            found[f'apiserver_current_inflight_requests{{request_kind="{kind}"}}'] = slots.taken
            found[f'apiserver_dropped_requests_total{{request_kind="{kind}"}}'] = slots.refused
        return found


async def within(
    request: Request, clock: Clock, handle: Callable[[Request], Coroutine[Any, Any, Response]], late: set[Task[Any]]
) -> Response:
    """Until the request's own deadline. `late`: tasks that answer so themselves when they are cancelled."""
    left_s = (request.deadline_s or 0.0) - clock.monotonic_s()
    if left_s <= 0:
        return out_of_time()
    handling, ending = asyncio.create_task(handle(request)), asyncio.create_task(clock.sleep(left_s))
    taken = False
    try:
        await asyncio.wait((handling, ending), return_when=asyncio.FIRST_COMPLETED)
        if not handling.done():
            late.add(handling)
            handling.cancel()
        response = await handling
        taken = True
        return response
    finally:
        ending.cancel()
        if not handling.cancel() and not taken and not handling.cancelled() and handling.exception() is None:
            # Whoever asked has gone just now.
            handling.result().sent()


def out_of_time() -> Response:
    """As upstream, of no kind."""
    status = {"metadata": {}, "status": "Failure", "message": f"Timeout: {_OUT_OF_TIME}", "reason": "Timeout",
              "details": {}, "code": 504}  # fmt: skip
    return Response(504, go_json.dumps(status) + b"\n", TEXT)


def too_many(limit: int) -> Response:
    message = f"too many requests: {limit} are being answered, which is the limit; please try again later"
    return error_response(StatusError(429, "TooManyRequests", message, {}, RETRY_AFTER_S))
