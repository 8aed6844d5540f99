"""`pods/log`: the output of a container's main process.

Source: `pkg/registry/core/pod/rest/log.go`, `pkg/apis/core/validation` (ValidatePodLogOptions), and the kubelet's
reader of logs (`cri-client/pkg/logs`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple

from minikube_py.api.document import PROTOBUF
from minikube_py.api.errors import (
    GroupResource,
    Json,
    StatusError,
    bad_request,
    forbidden_value,
    invalid,
    invalid_value,
    not_acceptable,
)
from minikube_py.apiserver.connecting import Connecting, container_of
from minikube_py.apiserver.forms import SERVED, negotiate
from minikube_py.apiserver.messages import TEXT, Response
from minikube_py.apiserver.options import parse_bool, parse_int
from minikube_py.apiserver.routes import Route
from minikube_py.containers.runtime import Container, Line, Main, NotThere
from minikube_py.env import Clock

_OPTIONS: Final = GroupResource("", "", "PodLogOptions")
_LIMITS: Final = (
    ("tailLines", 0, "must be greater than or equal to 0"),
    ("limitBytes", 1, "must be greater than 0"),
    ("sinceSeconds", 1, "must be greater than 0"),
)
_FOLLOWED_S: Final = 1.0
"""How often a followed log's pod is checked; deletion ends the stream."""
_LINES_AT_ONCE: Final = 512
"""Between two turns of the loop."""


class Options(NamedTuple):
    """`since_s` is wall-clock time. None: not requested."""

    tail_lines: int | None
    limit_bytes: int | None
    since_s: float | None
    timestamps: bool
    follow: bool
    previous: bool


def options_of(name: str, query: Mapping[str, str], wall_s: float) -> Options:
    """Raises: StatusError 400, 422."""
    follow, previous, timestamps = (parse_bool(query, option) for option in ("follow", "previous", "timestamps"))
    seconds = _whole(query, "sinceSeconds")
    since_s = _since(query.get("sinceTime"))
    given = {"sinceSeconds": seconds} | {option: _whole(query, option) for option in ("tailLines", "limitBytes")}
    limits = _LIMITS if since_s is None else _LIMITS[:2]
    errors = [invalid_value(option, given[option], text) for option, least, text in limits
              if given[option] is not None and given[option] < least]  # type: ignore[operator]  # fmt: skip
    if seconds is not None and since_s is not None:
        errors.append(forbidden_value("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    if query.get("stream"):
        errors.append(forbidden_value("stream", "may not be specified"))
    if errors:
        raise invalid(_OPTIONS, name, errors)
    if seconds is not None:
        since_s = wall_s - seconds
    return Options(given["tailLines"], given["limitBytes"], since_s, timestamps, follow, previous)


def _whole(query: Mapping[str, str], name: str) -> int | None:
    """Raises: StatusError 400."""
    return parse_int(query[name]) if name in query else None


def _since(text: str | None) -> float | None:
    """Raises: StatusError 400."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None or "T" not in text:
            raise ValueError
    except ValueError:
        raise bad_request(f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}"') from None
    return moment.timestamp()


class Logs:
    def __init__(self, connecting: Connecting, clock: Clock) -> None:
        self._connecting = connecting
        self._clock = clock

    async def log(self, route: Route, query: Mapping[str, str]) -> Response:
        """Raises: StatusError 400, 404, 422."""
        options = options_of(route.name, query, self._clock.wall_s())
        pod = await self._connecting.pod(route)
        name = container_of(pod, query.get("container", ""))
        if not pod["spec"].get("nodeName"):
            return Response(204, b"", "")
        container = self._container(pod, name, options.previous)
        with self._connecting.runtime.use(container):
            main = self._connecting.runtime.main(container)
            await main.caught_up()
            from_here = main.first + len(main.lines)
            response = Response(200, b"".join(await _chosen(main, options)), TEXT)
            if options.follow and main.exit_code is None:
                response.text = self._followed(container, from_here, response.body, options, route)
        return response

    def _container(self, pod: Json, name: str, previous: bool) -> Container:
        """Raises: StatusError 400."""
        pod_name = pod["metadata"]["name"]
        groups = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        statuses = [each for group in groups for each in (pod.get("status") or {}).get(group) or ()]
        status: Json = next((each for each in statuses if each.get("name") == name), {})
        state = status.get("state") or {}
        if previous and not (status.get("lastState") or {}).get("terminated"):
            raise bad_request(f'previous terminated container "{name}" in pod "{pod_name}" not found')
        if not state or "waiting" in state:
            reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
            raise bad_request(f'container "{name}" in pod "{pod_name}" is waiting to start: {reason}')
        try:
            return self._connecting.runtime.find(pod, name, ended=True, previous=previous)
        except NotThere as error:
            raise bad_request(str(error)) from None

    async def _followed(
        self, container: Container, number: int, begun: bytes, options: Options, route: Route
    ) -> AsyncGenerator[bytes, None]:
        """Existing lines, then new ones as they arrive."""
        left = options.limit_bytes
        if begun:
            yield begun
        if left is not None:
            left -= len(begun)
        with self._connecting.runtime.use(container):
            main = self._connecting.runtime.main(container)
            await main.caught_up()
            while left is None or left > 0:
                for line in main.since(number):
                    if not number % _LINES_AT_ONCE:
                        await asyncio.sleep(0)
                    part = _line(line, options)[:left]
                    number += 1
                    yield part
                    if left is not None:
                        left -= len(part)
                if main.exit_code is not None or not await self._is_there(route, container.uid):
                    return
                await main.news(self._clock.sleep, _FOLLOWED_S)

    async def _is_there(self, route: Route, uid: str) -> bool:
        pod = await self._connecting.find(route)
        return pod is not None and pod["metadata"]["uid"] == uid


def _line(line: Line, options: Options) -> bytes:
    if not options.timestamps:
        return line.text
    moment = datetime.fromtimestamp(line.at_s, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06d}000Z ".encode() + line.text


async def _chosen(main: Main, options: Options) -> list[bytes]:
    lines = [line for line in main.lines if options.since_s is None or line.at_s >= options.since_s]
    if options.tail_lines is not None:
        lines = lines[max(len(lines) - options.tail_lines, 0) :]
    found = []
    for number, line in enumerate(lines):
        if not number % _LINES_AT_ONCE:
            await asyncio.sleep(0)
        found.append(_line(line, options))
    if options.limit_bytes is None:
        return found
    return [b"".join(found)[: options.limit_bytes]]


def check_log_accepted(accept: str) -> None:
    """The text ignores Accept; errors need an accepted form. Raises: StatusError 406."""
    served = ("text/plain", *SERVED, PROTOBUF)
    wanted = [part.partition(";")[0].strip() for part in accept.split(",")] if accept else ["*/*"]
    if not any(each in ("*/*", *served) for each in wanted):
        message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(served)}"
        raise StatusError(406, "NotAcceptable", message, {})
    if all(each == "text/plain" for each in wanted) or negotiate(accept).kind != "object":
        raise not_acceptable(SERVED)
