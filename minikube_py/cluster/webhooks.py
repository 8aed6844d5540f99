"""Webhooks of a test: plain functions that the API server calls as if they were servers, for admission and conversion.

In real time a function runs on a thread, so it may use the cluster. In virtual time it runs within a moment of the
simulation, and takes virtual time only by `slow` and `time_out`."""

from __future__ import annotations

import asyncio
import base64
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from minikube_py.apiserver.outgoing import DEADLINE, Answer, NoAnswer, Outgoing
from minikube_py.client.transport import JSON
from minikube_py.cluster.arguments import Checked, Lasting, Times
from minikube_py.cluster.delays import Delays

DOMAIN: Final = ".webhook.invalid"
"""No name below `invalid` is ever resolved (RFC 2606): a call that is not answered here fails."""
Act = Callable[[Callable[[], None]], None]
Answering = Callable[[dict[str, Any]], bool | Mapping[str, Any]]


_thread = threading.local()


class Webhook(Checked):
    """A webhook of a running cluster; `url` is for `clientConfig.url`. `requests`: those received so far."""

    def __init__(self, name: str, answer: Answering, act: Act) -> None:
        self.name = name
        self.url = f"https://{name}{DOMAIN}/"
        self.requests: list[dict[str, Any]] = []
        self._answer, self._act = answer, act
        self._delay_s, self._times = 0.0, math.inf

    def slow(self, seconds: Lasting, *, times: Times | None = None) -> None:
        """Its next `times` answers come this much later; without `times`, until `all_well()`. An answer later than the
        webhook's timeoutSeconds is a timeout."""
        self._act(lambda: self._delay(seconds, times))

    def time_out(self, *, times: Times | None = None) -> None:
        """Its next `times` answers come too late; without `times`, until `all_well()`."""
        self._act(lambda: self._delay(math.inf, times))

    def _delay(self, seconds: float, times: float | None) -> None:
        self._delay_s, self._times = seconds, math.inf if times is None else times

    def _well(self) -> None:
        self._delay_s, self._times = 0.0, math.inf

    def _next_delay_s(self) -> float:
        found = self._delay_s
        self._times -= 1
        if self._times <= 0:
            self._well()
        return found

    def _respond(self, body: bytes) -> Answer:
        """Whatever the function raises, an exit or a failed assertion of pytest included, is an error of its server."""
        review: dict[str, Any] = orjson.loads(body)
        request = review["request"]
        self.requests.append(request)
        try:
            response = _response_of(self._answer(request), request["uid"])
            text = orjson.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response})
        except BaseException as error:
            said = f"webhook {self.name}: {type(error).__name__}: {error}"
            return Answer(500, {"Content-Type": "text/plain"}, said.encode())
        return Answer(200, {"Content-Type": JSON}, text)


class Webhooks:
    """`Outgoing` that answers for the webhooks of the test, and passes other requests to `others`. `threads`: whether
    functions run on a thread."""

    def __init__(self, others: Outgoing, threads: bool) -> None:
        self._others, self._threads = others, threads
        self._delays = Delays()
        self.served: dict[str, Webhook] = {}

    def serve(self, hook: Webhook) -> None:
        self.served[hook.name] = hook

    def all_well(self) -> None:
        for hook in self.served.values():
            hook._well()
        self._delays.end()

    async def post(self, url: str, authority: str, body: bytes, timeout_s: float, via: str = "") -> Answer:
        """Raises: NoAnswer, BadAuthority."""
        hook = self.served.get(leads_to(url))
        if hook is None:
            return await self._others.post(url, authority, body, timeout_s, via)
        delay_s = hook._next_delay_s()
        try:
            if not self._threads:
                answer = hook._respond(body)
            else:
                async with asyncio.timeout(timeout_s):
                    answer = await self._on_a_thread(hook, body)
        except TimeoutError:
            raise NoAnswer(DEADLINE) from None
        if delay_s and await self._delays.wait(min(delay_s, timeout_s)) and delay_s >= timeout_s:
            raise NoAnswer(DEADLINE)
        return answer

    async def _on_a_thread(self, hook: Webhook, body: bytes) -> Answer:
        """Nothing waits for the thread: the function may run for longer than the cluster."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer] = loop.create_future()

        def settle(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        def work() -> None:
            _thread.answers_for = self
            answer = hook._respond(body)
            # The loop may have ended.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, answer)

        run = copy_context().run
        threading.Thread(target=run, args=(work,), name=f"webhook {hook.name}", daemon=True).start()
        return await answered

    @property
    def answer_here(self) -> bool:
        """Whether the calling thread runs one of the functions, for which a request waits."""
        return getattr(_thread, "answers_for", None) is self

    async def close(self) -> None:
        await self._others.close()


def leads_to(url: str) -> str:
    """The name of the webhook that has this URL; "" for another server's."""
    host = urlsplit(url).hostname or ""
    return host.removesuffix(DOMAIN) if host.endswith(DOMAIN) else ""


def _response_of(found: Any, uid: str) -> dict[str, Any]:
    """Raises: TypeError."""
    if isinstance(found, bool):
        return {"uid": uid, "allowed": found}
    if not isinstance(found, Mapping):
        raise TypeError(f"it returned {type(found).__name__}, not True, False or a response")
    response = {"uid": uid, **found}
    if isinstance(patch := response.get("patch"), list):
        response |= {"patch": base64.b64encode(orjson.dumps(patch)).decode(), "patchType": "JSONPatch"}
    return response
