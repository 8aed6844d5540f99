"""Queries to schedulers in other processes: they poll, since an API server cannot reach them.

| Path | |
|---|---|
| `GET /minikube-py/v1/scheduler/questions?from=NAME` | waits a while, and answers with the questions that came |
| `POST /minikube-py/v1/scheduler/answers` | `{"from": NAME, "id": N, "answer": {} or null}`, or `error` and `code` |

For schedulers and administrators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from minikube_py.api.errors import (
    StatusError,
    bad_request,
    method_not_allowed,
    path_not_found,
    service_unavailable,
    timeout,
)
from minikube_py.apiserver.messages import Request, Response
from minikube_py.env import Clock

ROOT: Final = "/minikube-py/v1/scheduler/"
POLL_S: Final = 15.0
GONE_S: Final = 5.0
"""A scheduler that has not polled for this long is ignored."""
ANSWER_S: Final = 20.0
NAMES_MAX: Final = 64

Json = dict[str, Any]


@dataclass(slots=True)
class _Line:
    """Pending queries for one scheduler. Of the active `polls`, only number `newest` is answered: the clients of others
    may be gone. The last one ended at `seen_s`."""

    waiting: list[Json] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    polls: int = 0
    newest: int = 0
    seen_s: float = 0.0


@dataclass(slots=True)
class _Asked:
    found: asyncio.Future[Json | None]
    left: set[str]
    """Schedulers without an answer yet."""


class Questions:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[str, _Line] = {}
        self._asked: dict[int, _Asked] = {}
        self._last = 0
        self._closed = False

    def close(self) -> None:
        """The caller stopped waiting."""
        self._closed = True
        for line in self._lines.values():
            line.came.set()

    def names(self) -> list[str]:
        """Of polling schedulers."""
        since_s = self._clock.monotonic_s() - GONE_S
        self._lines = {name: line for name, line in self._lines.items() if line.polls or line.seen_s >= since_s}
        return list(self._lines)

    async def ask(self, question: str, subject: Any, params: Mapping[str, str]) -> Json | None:
        """The first answer; None if no scheduler has the pod. Raises: StatusError 400, 500, 503, 504."""
        names = self.names()
        if not names:
            text = "no scheduler answers questions of this API server: none is running, or it has just started"
            raise service_unavailable(text)
        self._last += 1
        number, asked = self._last, _Asked(asyncio.get_running_loop().create_future(), set(names))
        self._asked[number] = asked
        for name in names:
            line = self._lines[name]
            line.waiting.append({"id": number, "question": question, "subject": subject, "params": dict(params)})
            line.came.set()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asked.found
        except TimeoutError:
            raise timeout(f"no answer within {ANSWER_S:g} s from scheduler {', '.join(sorted(asked.left))}") from None
        finally:
            del self._asked[number]

    async def coming(self, name: str) -> list[Json]:
        """The queries for that scheduler; empty after a timeout."""
        if name not in self._lines and len(self.names()) >= NAMES_MAX:
            raise service_unavailable(f"{NAMES_MAX} schedulers answer questions, which is the limit")
        line = self._lines.setdefault(name, _Line())
        line.polls += 1
        line.newest += 1
        own = line.newest
        line.came.set()
        try:
            async with asyncio.timeout(POLL_S):
                while own == line.newest and not line.waiting and not self._closed:
                    line.came.clear()
                    await line.came.wait()
        except TimeoutError:
            pass
        finally:
            line.polls -= 1
            line.seen_s = self._clock.monotonic_s()
        if own != line.newest:
            return []
        coming = [each for each in line.waiting if each["id"] in self._asked]
        line.waiting.clear()
        return coming

    def answered(self, name: str, number: int, document: Json) -> None:
        asked = self._asked.get(number)
        if asked is None or asked.found.done():
            return
        asked.left.discard(name)
        if "error" in document:
            text = str(document["error"])
            refusal = {"400": bad_request, "503": service_unavailable}.get(str(document.get("code")))
            asked.found.set_exception(refusal(text) if refusal else StatusError(500, "InternalError", text, None))
        elif document.get("answer") is not None or not asked.left:
            asked.found.set_result(document.get("answer"))


async def answer(path: str, request: Request, questions: Questions) -> Response:
    """Raises: StatusError 400, 404, 405, 503."""
    wanted = {"questions": "GET", "answers": "POST"}.get(path.removeprefix(ROOT))
    if wanted is None:
        raise path_not_found()
    if request.method != wanted:
        raise method_not_allowed()
    await request.read_body()
    if wanted == "GET":
        name = request.query.get("from", "")
        if not name:
            raise bad_request("from: the name of the scheduler is needed")
        return Response(200, orjson.dumps({"questions": await questions.coming(name)}))
    try:
        document = orjson.loads(request.body)
        name, number = str(document["from"]), int(document["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request("send an object with from, id, and answer or error") from error
    questions.answered(name, number, document)
    return Response(200, b"{}")
