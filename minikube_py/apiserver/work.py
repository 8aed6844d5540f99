"""What a request's body costs, judged before any work on it; and who does the work: this loop, or a worker process.

Cost is bounded by what can be counted at the speed of memory: bytes, and the signs that separate values. Nothing is
built of a body before that. What is small is worked on where it stands; what is large would keep all others waiting.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import orjson

from minikube_py.api import yaml_text
from minikube_py.api.decode import JSON
from minikube_py.api.registry import REGISTRY, Registry
from minikube_py.apiserver import preparing
from minikube_py.apiserver.forms import YAML, Form

INLINE_BYTES_MAX: Final = 32 << 10
INLINE_VALUES_MAX: Final = 1_000
INLINE_SLOW_BYTES_MAX: Final = 2 << 10
"""Of YAML and protobuf, which are read in Python."""
_SIGNS: Final = (b",", b":", b"[", b"{")
_COPY_SIGNS: Final = (b"copy", b"\\u")


class Work(Protocol):
    """Runs one of `preparing.JOBS`. Raises: what the job raises; StatusError 429, 504 where it is not done in time."""

    def run(self, job: str, *given: Any) -> Awaitable[Any]: ...

    def close(self) -> None: ...


class WorkHere:
    """Every job at once, where it is asked for: for simulations, and where nobody else is served."""

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
    """Of an apply's body, which is mostly JSON, whatever its media type says."""
    return is_large(body, JSON if body.startswith(b"{") else YAML)


async def in_form(body: bytes, form: Form, work: Work) -> bytes:
    """JSON as it is, or as YAML where that was asked for."""
    if form.media_type != YAML:
        return body
    if len(body) > INLINE_SLOW_BYTES_MAX:
        found: bytes = await work.run("as_yaml", body)
        return found
    return yaml_text.write(orjson.loads(body))


def values_in(text: bytes) -> int:
    """At least as many as the values in a JSON text, in one pass over its bytes for each sign."""
    return sum(map(text.count, _SIGNS))


def is_large(body: bytes, content_type: str) -> bool:
    """Whether a body is too much to be read, checked and answered between two turns of the loop."""
    size = len(body)
    if size <= INLINE_SLOW_BYTES_MAX // 2:
        return False
    if "json" not in content_type:
        return size > INLINE_SLOW_BYTES_MAX
    return size > INLINE_BYTES_MAX or values_in(body) > INLINE_VALUES_MAX


def is_large_patch(patch: bytes, content_type: str, stored: bytes) -> bool:
    """As `is_large`, of a patch and what it is applied to. Each copy of a JSON patch may double the object."""
    size = len(stored) + len(patch)
    values = 0 if size <= INLINE_BYTES_MAX // 16 else values_in(stored) + values_in(patch)
    if content_type.startswith("application/json-patch"):
        copies = sum(map(patch.count, _COPY_SIGNS))
        if copies:
            growth = 1 << min(copies, 20)
            size, values = size * growth, (values_in(stored) + values_in(patch)) * growth
    return size > INLINE_BYTES_MAX or values > INLINE_VALUES_MAX
