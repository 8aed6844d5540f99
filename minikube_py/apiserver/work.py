"""Estimates the cost of a request's body, and chooses where to process it: on this event loop or in a worker process.

Cost is bounded by cheap counts: bytes, and separators of values. Nothing is decoded before that. Small bodies are
processed here; large ones would block all other requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol

import orjson

from minikube_py.api import yaml_text
from minikube_py.api.decode import JSON
from minikube_py.api.registry import REGISTRY, Registry
from minikube_py.apiserver import preparing
from minikube_py.apiserver.forms import YAML, Form
from minikube_py.apiserver.messages import Response

INLINE_BYTES_MAX: Final = 32 << 10
INLINE_VALUES_MAX: Final = 1_000
INLINE_SLOW_BYTES_MAX: Final = 2 << 10
"""For YAML and protobuf, which are decoded in Python."""
YAML_BYTES_AT_ONCE: Final = 96 << 10
ASKED_BY: Final = ContextVar("asked by", default="")
"""The user whose request is handled: workers take turns between users."""
_SIGNS: Final = (b",", b":", b"[", b"{")
_COPY_SIGNS: Final = (b"copy", b"\\u")


class Work(Protocol):
    """Runs one of `preparing.JOBS`. Raises: what the job raises; StatusError 429, 504 on a timeout."""

    def run(self, job: str, *given: Any) -> Awaitable[Any]: ...

    def close(self) -> None: ...


class WorkHere:
    """Runs every job inline: for simulations and single-client processes."""

    def __init__(self, registry: Registry = REGISTRY) -> None:
        self._registry = registry

    async def run(self, job: str, *given: Any) -> Any:
        return self.now(job, *given)

    def now(self, job: str, *given: Any) -> Any:
        run: Callable[..., Any] = preparing.JOBS[job]
        return run(self._registry, *given)

    def close(self) -> None:
        pass


def is_large_apply(body: bytes) -> bool:
    """For an apply's body, which is mostly JSON whatever its media type."""
    return is_large(body, JSON if body.startswith(b"{") else YAML)


class InYaml(bytes):
    """YAML that remembers the JSON it was made of: reading it again takes a hundred times as long."""

    source: bytes


async def in_form(body: bytes, form: Form, work: Work) -> bytes:
    """JSON, or InYaml if requested."""
    if form.media_type != YAML:
        return body
    if len(body) <= INLINE_SLOW_BYTES_MAX:
        found = InYaml(yaml_text.write(orjson.loads(body)))
    elif len(body) <= YAML_BYTES_AT_ONCE:
        found = InYaml(await work.run("as_yaml", body))
    else:
        parts = await work.run("late", "yaml_lists", "parts", body)
        found = InYaml(b"".join([await work.run("late", "yaml_lists", "written", *part) for part in parts]))
    found.source = body
    return found


async def told(answer: Awaitable[Response], form: Form, work: Work) -> Response:
    """A Status, which is never printed otherwise, in the accepted media type."""
    found = await answer
    found.content_type, found.body = form.media_type, await in_form(found.body, form, work)
    return found


def values_in(text: bytes) -> int:
    """An upper bound of the values in a JSON text, in one pass per separator."""
    return sum(map(text.count, _SIGNS))


def is_large(body: bytes, content_type: str) -> bool:
    """Whether a body is too large to process within one event loop turn."""
    size = len(body)
    if size <= INLINE_SLOW_BYTES_MAX // 2:
        return False
    if "json" not in content_type:
        return size > INLINE_SLOW_BYTES_MAX
    return size > INLINE_BYTES_MAX or values_in(body) > INLINE_VALUES_MAX


def is_large_patch(patch: bytes, content_type: str, stored: bytes) -> bool:
    """As `is_large`, for a patch and its target. Each copy of a JSON patch may double the object."""
    size = len(stored) + len(patch)
    values = 0 if size <= INLINE_BYTES_MAX // 16 else values_in(stored) + values_in(patch)
    if content_type.startswith("application/json-patch"):
        copies = sum(map(patch.count, _COPY_SIGNS))
        if copies:
            growth = 1 << min(copies, 20)
            size, values = size * growth, (values_in(stored) + values_in(patch)) * growth
    return size > INLINE_BYTES_MAX or values > INLINE_VALUES_MAX
