"""The objects that an informer omits because its owner cannot read them.

A stored object need not match its kind: another program may have bypassed the API. Such an object counts as absent
until it changes to a readable one, and does not affect others."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import Final

from minikube_py.client.rest import ResourceRef

logger = logging.getLogger(__name__)

NAMELESS: Final = "?"
"""The key of an object without a valid name."""
_REASON_CHARS_MAX: Final = 300


class Unreadable:
    """`why` has the reason by key. Each reason is logged once, however often the object arrives.

    `failed` counts handler exceptions not due to an object: after a batch, or for a deleted one."""

    __slots__ = ("failed", "resource", "why")

    def __init__(self, resource: ResourceRef) -> None:
        self.resource = resource
        self.why: dict[str, str] = {}
        self.failed = 0

    def add(self, key: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"[:_REASON_CHARS_MAX]
        if self.why.get(key) != reason:
            self.why[key] = reason
            logger.error(
                "%s %s cannot be read, and is skipped until it changes: %s", self.resource.plural, key, reason,
                exc_info=error,
            )  # fmt: skip

    def drop(self, key: str) -> None:
        if self.why.pop(key, None) is not None:
            logger.info("%s %s is no longer skipped", self.resource.plural, key)

    def keep(self, keys: Container[str]) -> None:
        """Keeps only objects of a list: others are gone or readable."""
        for key in [key for key in self.why if key not in keys]:
            self.drop(key)


def unreadable_metrics(found: Iterable[Unreadable]) -> dict[str, float]:
    return {f'informer_unreadable_objects{{resource="{_name(each.resource)}"}}': len(each.why) for each in found}


def _name(resource: ResourceRef) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
