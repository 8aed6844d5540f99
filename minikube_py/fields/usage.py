"""The simulated resource usage of running pods: the protocol, and annotations as its simplest source.

`usage(pod, at_s)` is the whole interface: an API object, a time, an amount. A source has no state of its callers, so
the same pod and time give the same answer; it computes only on demand. A replayed trace, a model and KWOK's
ResourceUsages (`api.usage`) are all sources.

Source of the annotations: KWOK 0.8, `kustomize/metrics/usage`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from minikube_py.fields import quantity
from minikube_py.fields.quantity import Quantity

CPU: Final = "kwok.x-k8s.io/usage-cpu"
MEMORY: Final = "kwok.x-k8s.io/usage-memory"
"""Annotations of a pod: the usage of each of its containers."""


class Usage(NamedTuple):
    """Billionths of a CPU, and bytes of the working set; never below 0."""

    cpu_nanos: int
    memory_bytes: int

    def plus(self, other: Usage) -> Usage:
        return Usage(self.cpu_nanos + other.cpu_nanos, self.memory_bytes + other.memory_bytes)


NOTHING: Final = Usage(0, 0)
UNTOLD: Final = Usage(1_000_000, 1 << 20)
"""KWOK's default usage of a container: 1m and 1Mi."""


class UsageSource(Protocol):
    """A source of pods' usage."""

    def usage(self, pod: dict[str, Any], at_s: float, container: str = "") -> Usage:
        """What the pod uses at `at_s`, seconds since 1970; or if a container of its spec is named, only that one.

        The usage of a pod is the sum over its containers. Not called for pods that are not running."""
        ...


class Annotated:
    """From the pod's annotations, which do not change with time."""

    def usage(self, pod: dict[str, Any], at_s: float, container: str = "") -> Usage:
        annotations = pod["metadata"].get("annotations") or {}
        each = Usage(
            amount(annotations.get(CPU), UNTOLD.cpu_nanos, quantity.NANO),
            amount(annotations.get(MEMORY), UNTOLD.memory_bytes, 0),
        )
        if container:
            return each
        count = sum(1 for _ in containers_of(pod))
        return Usage(each.cpu_nanos * count, each.memory_bytes * count)


def containers_of(pod: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The measured containers: neither init containers nor ephemeral ones, as in KWOK."""
    yield from pod["spec"].get("containers") or ()


def amount(text: str | None, untold: int, scale: int) -> int:
    """A quantity in units of 10**scale, `untold` if there is none, and 0 if it is invalid or negative."""
    if text is None:
        return untold
    try:
        return max(0, quantity.parse(text).saturated(scale))
    except quantity.QuantityError:
        return 0


def cpu_text(usage: Usage) -> str:
    """As metrics-server prints it: decimal, down to billionths."""
    return str(Quantity(usage.cpu_nanos, quantity.NANO, "DecimalSI", ""))


def memory_text(usage: Usage) -> str:
    return str(quantity.from_value(usage.memory_bytes, "BinarySI"))
