"""Roles that start together wait for those they need, rather than end and be started again."""

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
    """What `attempt` gives once it does not raise Unavailable any more; says now and then why it waits for `what`.

    Raises: what else `attempt` raises."""
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
    """Raises: Unavailable where the API server cannot be reached, or is not ready; SetupError where it does not know
    who asks."""
    answer = await transport.request("GET", "/readyz")
    if answer.status == 401:
        raise SetupError("the API server does not take the kubeconfig's token; give the one that it was started with")
    if answer.status >= 500 or answer.status == 429:
        raise Unavailable(f"/readyz answered {answer.status}: {answer.body[:200].decode(errors='replace').strip()}")
