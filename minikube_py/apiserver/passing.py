"""Admission of large writes: only objects that plugins read are decoded here.

Worker processes do the work before and after, as the two halves of a job.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

import orjson

from minikube_py.api import strategy
from minikube_py.api.decode import JSON
from minikube_py.api.errors import Json
from minikube_py.api.kind import Cluster, Kind
from minikube_py.api.kinds.core import SERVICES
from minikube_py.apiserver.admission import Passage
from minikube_py.apiserver.messages import Admission
from minikube_py.apiserver.preparing import Body, Made, decoded, encode, made_object, stored
from minikube_py.apiserver.work import Work, is_large
from minikube_py.mvcc.types import KeyValue


class Next(NamedTuple):
    """The new state: an object, or the bytes of one made elsewhere."""

    new: Json | None
    value: bytes = b""
    finished: bool = False


class _Worked(Protocol):
    work: Work


class Passing:
    """`at`: owner of the worker processes."""

    def __init__(self, at: _Worked, cluster: Cluster) -> None:
        self._at = at
        self._cluster = cluster

    async def new(self, kind: Kind, asked: Body, made: Made, passage: Passage | None, admit: Admission | None) -> Made:
        """For a create. Raises: StatusError."""
        mark, admit_here = kind.admit_here or (b"", None)
        here = admit_here if mark in made.value else None
        if made.value and (admit is not None or here is not None):
            obj = orjson.loads(made.value)
            if admit is not None:
                admit(kind, "", made.name, None, obj)
            if here is not None:
                here(obj, None, self._cluster)
            made = made._replace(value=encode(obj))
        if made.refusal is not None:
            raise made.refusal
        if passage is None:
            return made
        name = made.name
        if asked.halfway:
            obj = decoded(kind, made.value)

            def again() -> None:
                if admit is not None:
                    admit(kind, "", made.name, None, obj)
                kind.admit(obj, None, self._cluster)

            await asyncio.sleep(0)
            name = await passage.admit_new(obj, made.generated, again)
            made = _after(made, await self.settled(asked, obj, None))
        await asyncio.sleep(0)
        await passage.validate(None, made_object(kind, made.value))
        return made._replace(name=name)

    async def change(
        self,
        kind: Kind,
        asked: Body,
        made: Made,
        kv: KeyValue | None,
        warnings: list[str],
        passage: Passage | None,
        admit: Admission | None,
    ) -> Next:
        """A service is an object: its addresses are not allocated yet. Raises: StatusError of admission, which sees
        what would be stored; then other refusals."""
        warnings[:] = made.warnings
        if admit is not None and kv is not None:
            old = stored(kind, kv.value, kv.mod_revision)
            admit(kind, asked.sub, asked.name, old, obj := orjson.loads(made.value))
            # Kubelet admission records who plays a node.
            made = made._replace(value=encode(obj))
        if made.refusal is not None:
            raise made.refusal
        if passage is not None and kv is not None:
            made = await self._changed(kind, asked, made, kv, passage, admit)
            warnings[:] = made.warnings
        return Next(orjson.loads(made.value)) if kind is SERVICES else Next(None, made.value, made.finished)

    async def _changed(
        self, kind: Kind, asked: Body, made: Made, kv: KeyValue, passage: Passage, admit: Admission | None
    ) -> Made:
        old = stored(kind, kv.value, kv.mod_revision)
        await asyncio.sleep(0)
        if asked.halfway:
            new = decoded(kind, made.value)
            if made.version:
                new["metadata"]["resourceVersion"] = made.version

            def again() -> None:
                if admit is not None:
                    admit(kind, asked.sub, asked.name, old, new)
                strategy.admit_update(kind, new, old, asked.sub, self._cluster)

            await asyncio.sleep(0)
            await passage.admit(old, new, again)
            made = _after(made, await self.settled(asked, new, old))
        await self.validate(kind, passage, old, made)
        return made

    async def validate(self, kind: Kind, passage: Passage, old: Json, made: Made) -> None:
        new = made_object(kind, made.value)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        await asyncio.sleep(0)
        await passage.validate(old, new)

    async def settled(self, asked: Body, new: Json, old: Json | None) -> Made:
        """The stored form of an admitted object. Raises: StatusError."""
        made: Made = await self._at.work.run("settle", asked._replace(body=b""), new, old)
        if made.refusal is not None:
            raise made.refusal
        return made


def has_grown(passage: Passage, obj: Json) -> bool:
    """Whether plugins may have made the object too large to process here."""
    return passage.mutates and is_large(orjson.dumps(obj), JSON)


def _after(first: Made, second: Made) -> Made:
    return second._replace(generated=first.generated, warnings=[*first.warnings, *second.warnings])
