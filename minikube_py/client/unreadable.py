"""The objects that an informer leaves out because its owner cannot read them.

What is stored need not be what its kind says: another program may have put it past the API. Such an object is as if it
were absent, until it changes to something that can be read; it costs nobody the others.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable
from typing import Final

from minikube_py.client.rest import ResourceRef

logger = logging.getLogger(__name__)

NAMELESS: Final = "?"
"""The key of what does not even say its name."""
_REASON_CHARS_MAX: Final = 300


class Unreadable:
    """`why` is the reason of each by its key. Each reason is logged once, however often the object comes.

    `failed` counts what handlers raised where no object is at fault: after a batch, or for one that is gone."""

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
                "%s %s cannot be read, and is left out until it changes: %s", self.resource.plural, key, reason,
                exc_info=error,
            )  # fmt: skip

    def drop(self, key: str) -> None:
        if self.why.pop(key, None) is not None:
            logger.info("%s %s is left out no more", self.resource.plural, key)

    def keep(self, keys: Container[str]) -> None:
        """Of a list: all others are gone, or can be read."""
        for key in [key for key in self.why if key not in keys]:
            self.drop(key)


def unreadable_metrics(found: Iterable[Unreadable]) -> dict[str, float]:
    return {f'informer_unreadable_objects{{resource="{_name(each.resource)}"}}': len(each.why) for each in found}


def _name(resource: ResourceRef) -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
