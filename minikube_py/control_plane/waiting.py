"""Roles that start together wait for each other instead of exiting and being restarted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from minikube_py.client.backoff import Backoff
from minikube_py.client.transport import ApiTransport
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.progress import Say
from minikube_py.env import Clock, Rng
from minikube_py.errors import Unavailable

T = TypeVar("T")
RETRY_S_MIN, RETRY_S_MAX = 0.1, 1.0
SAY_EVERY_S = 10.0


async def when_available(attempt: Callable[[], Awaitable[T]], what: str, clock: Clock, rng: Rng, say: Say) -> T:
    """The result of `attempt`, retried while it raises Unavailable; reports from time to time why it waits for `what`.

    Raises: other errors of `attempt`."""
    backoff = Backoff(rng, RETRY_S_MIN, RETRY_S_MAX)
    said_s = float("-inf")
    while True:
        try:
            return await attempt()
        except Unavailable as error:
            if clock.monotonic_s() - said_s >= SAY_EVERY_S:
                said_s = clock.monotonic_s()
                say(f"waiting for {what}: {error}")
        await clock.sleep(backoff.next_s())


async def api_is_ready(transport: ApiTransport) -> None:
    """Raises: Unavailable if the API server is unreachable or not ready; SetupError if it rejects the credentials."""
    answer = await transport.request("GET", "/readyz")
    if answer.status == 401:
        raise SetupError("the API server does not take the kubeconfig's token; give the one that it was started with")
    if answer.status >= 500 or answer.status == 429:
        raise Unavailable(f"/readyz answered {answer.status}: {answer.body[:200].decode(errors='replace').strip()}")
