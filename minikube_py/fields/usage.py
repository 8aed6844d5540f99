"""What pods use while they run, as a simulation says it: the protocol, and annotations as its simplest source.

`usage(pod, at_s)` is all that there is to it: an object of the API, a time, an amount. A source keeps nothing of who
asked, so the same pod and time give the same answer; nothing is worked out until somebody asks. A replayed trace, a
model and KWOK's ResourceUsages (`api.usage`) are sources alike.

Source of the annotations: KWOK 0.8, `kustomize/metrics/usage`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

from minikube_py.fields import quantity
from minikube_py.fields.quantity import Quantity

CPU: Final = "kwok.x-k8s.io/usage-cpu"
MEMORY: Final = "kwok.x-k8s.io/usage-memory"
"""Annotations of a pod: what each of its containers uses."""


class Usage(NamedTuple):
    """Billionths of a CPU, and bytes of the working set; never less than 0."""

    cpu_nanos: int
    memory_bytes: int

    def plus(self, other: Usage) -> Usage:
        return Usage(self.cpu_nanos + other.cpu_nanos, self.memory_bytes + other.memory_bytes)


NOTHING: Final = Usage(0, 0)
UNTOLD: Final = Usage(1_000_000, 1 << 20)
"""What KWOK takes a container to use of which nothing is said: 1m and 1Mi."""


class UsageSource(Protocol):
    """What says how much pods use."""

    def usage(self, pod: dict[str, Any], at_s: float, container: str = "") -> Usage:
        """What the pod uses at `at_s`, seconds since 1970; where a container of its spec is named, that one alone.

        The usage of a pod is the sum over its containers. Pods that do not run are not asked about."""
        ...


class Annotated:
    """By the pod's annotations, which do not change with time."""

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
    """Those that are measured: neither init containers nor ephemeral ones, as in KWOK."""
    yield from pod["spec"].get("containers") or ()


def amount(text: str | None, untold: int, scale: int) -> int:
    """A quantity in units of 10**scale, `untold` where there is none, and 0 where it cannot be read or is below 0."""
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
