"""One copy of values that many projections hold: thousands of pods have the same labels, and each informer its own view
of each pod. Names, uids and other texts are shared by `sys.intern`, which drops unreferenced ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from minikube_py.api.memo import Bounded

LABELS_SHARED_MAX: Final = 64
"""Larger maps are rarely shared, and would be kept for long."""
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


_labels: Final = Bounded()


def shared_labels(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """`labels`, or equal ones seen before. The order of members counts, since answers preserve it."""
    if not labels:
        return _NO_LABELS
    return _labels(tuple(labels.items()), labels) if len(labels) <= LABELS_SHARED_MAX else labels
