"""Declares the fields of the built-in kinds, even with store members of an earlier release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikube_py.env import Clock
from minikube_py.errors import InvalidRequest, Unavailable
from minikube_py.fields.builtin import former
from minikube_py.fields.spec import FieldSet
from minikube_py.store.storage import Storage

RETRY_S: Final = 5.0


async def declared(storage: Storage, field_set: FieldSet) -> bool:
    """False: some members do not know all extractors yet, so substitutes are declared.

    Raises: Unavailable where the store does not answer."""
    try:
        await storage.declare(field_set)
    except InvalidRequest:
        stand_in = former(field_set)
        if stand_in == field_set:
            raise
        await storage.declare(stand_in)
        return False
    return True


async def declare_later(storage: Storage, field_sets: Sequence[FieldSet], clock: Clock) -> None:
    """Declares the real ones once every member supports them."""
    left = list(field_sets)
    while left:
        await clock.sleep(RETRY_S)
        try:
            await storage.declare(left[0])
        except (InvalidRequest, Unavailable):
            continue
        del left[0]
