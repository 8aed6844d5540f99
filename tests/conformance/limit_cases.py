"""Pods in namespaces with LimitRanges: what they are given, and why they are refused."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from asking import Ask

CORE = "/api/v1"
RANGES: dict[str, list[dict[str, Any]]] = {
    "given": [{"type": "Container", "default": {"cpu": "1", "memory": "64Mi"}, "defaultRequest": {"cpu": "100m"}}],
    "at-most": [{"type": "Container", "max": {"cpu": "2"}}],
    "at-least": [{"type": "Container", "min": {"cpu": "500m"}}],
    "ratio": [{"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}],
    "of-pods": [{"type": "Pod", "max": {"cpu": "2"}}],
    "pods-at-least": [{"type": "Pod", "min": {"memory": "64Mi"}}],
    "pods-ratio": [{"type": "Pod", "maxLimitRequestRatio": {"memory": "1500m"}}],
}
_AMOUNTS: tuple[dict[str, Any], ...] = (
    {}, {"requests": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "3"}},
    {"requests": {"cpu": "0"}, "limits": {"cpu": "1"}}, {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1500m", "memory": "128Mi"}},
)  # fmt: skip


def _pod(first: dict[str, Any], second: dict[str, Any], init: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x", "resources": first}]}
    if init:
        container = {"name": "i", "image": "x", "resources": second}
        spec["initContainers"] = [container | ({"restartPolicy": "Always"} if init == "beside" else {})]
    return {"metadata": {"name": "p"}, "spec": spec}


def setup(prefix: str) -> Iterator[Ask]:
    for name, limits in RANGES.items():
        yield Ask("limits", "POST", f"{CORE}/namespaces", {"metadata": {"name": f"{prefix}-{name}"}})
        yield Ask("limits", "POST", f"{CORE}/namespaces/{prefix}-{name}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}})


def known(prefix: str) -> Iterator[Ask]:
    """Asked until it is refused or changed, so that admission has heard of the ranges."""
    for name in RANGES:
        yield Ask("limits", "POST", f"{CORE}/namespaces/{prefix}-{name}/pods?dryRun=All", _pod({}, {}, ""))


def cases(prefix: str) -> Iterator[Ask]:
    for name in RANGES:
        target = f"{CORE}/namespaces/{prefix}-{name}/pods?dryRun=All"
        for first, second in itertools.product(_AMOUNTS, _AMOUNTS):
            for init in ("before", "beside") if second else ("",):
                yield Ask("limits", "POST", target, _pod(first, second, init))
