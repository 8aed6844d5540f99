"""Converts custom resources between requested and stored version by webhook.

Many objects are sent in slices; worker processes decode large responses. Failures are 500 with upstream's messages.
Source: apiextensions-apiserver `pkg/apiserver/conversion/webhook_converter.go`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import orjson

from minikube_py.api.apply.managed_fields import NeedsConversion
from minikube_py.api.custom import conversion
from minikube_py.api.custom.conversion import GROUP, REVIEW, BadConversion, ConversionWebhook
from minikube_py.api.decode import JSON
from minikube_py.api.errors import Json, StatusError
from minikube_py.api.kind import Kind
from minikube_py.api.meta import new_uid
from minikube_py.apiserver.changing import MakeNext
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.passing import Next
from minikube_py.apiserver.preparing import encode, is_finished, same
from minikube_py.apiserver.webhook_answers import FAILED, Wrong, document
from minikube_py.apiserver.webhook_calls import Caller, CallFailed
from minikube_py.apiserver.work import Work, is_large
from minikube_py.env import Rng
from minikube_py.mvcc.types import KeyValue

SLICE_OBJECTS: Final = 200
SLICE_BYTES: Final = 1 << 20
"""Limit of one review's objects; a single object may exceed it."""
_NULL: Final = "unexpected end of JSON input"
"""Upstream's error for a null object, without its name."""
TIMEOUT_S: Final = 30
"""Of a call, as upstream's."""

Versioned = tuple[str, bytes]
"""An object's apiVersion, and the rest of its stored value."""


class Conversions:
    def __init__(self, store: ObjectStore, caller: Caller, rng: Rng, work: Callable[[], Work]) -> None:
        self._store = store
        self._caller = caller
        self._rng = rng
        self._work = work

    async def to_store(self, kind: Kind, value: bytes) -> bytes:
        """The stored form of an object in the version of `kind`. Raises: StatusError 500."""
        webhook = _webhook(kind)
        if webhook.stored != kind.api_version:
            (value,) = await self._ask(kind, webhook.stored, [(kind.api_version, value)])
        return conversion.with_version(value, webhook.stored)

    async def shown(self, kind: Kind, kv: KeyValue | None) -> KeyValue | None:
        """A stored object in the version of `kind`. Raises: StatusError 500."""
        return (await self.all_shown(kind, [kv]))[0] if kv is not None else None

    async def all_shown(self, kind: Kind, kvs: Sequence[KeyValue]) -> list[KeyValue]:
        """Raises: StatusError 500."""
        webhook = _webhook(kind)
        found: list[KeyValue] = []
        for part in _slices(kvs):
            split = (conversion.split(webhook.assumed, kv.value) for kv in part)
            read = [(version, conversion.as_read(kind.definition, version, value)) for version, value in split]
            others = [each for each in read if each[0] != kind.api_version]
            made = iter(await self._ask(kind, kind.api_version, others) if others else ())
            values = (value if version == kind.api_version else next(made) for version, value in read)
            found += [kv._replace(value=value) for kv, value in zip(part, values)]
            await asyncio.sleep(0)
        return found

    @staticmethod
    def is_plain(kind: Kind, kv: KeyValue) -> bool:
        """Whether `all_shown` needs no webhook for it."""
        return conversion.split(_webhook(kind).assumed, kv.value)[0] == kind.api_version

    @staticmethod
    def plain(kind: Kind, kv: KeyValue) -> KeyValue:
        version, value = conversion.split(_webhook(kind).assumed, kv.value)
        return kv._replace(value=conversion.as_read(kind.definition, version, value))

    async def value_shown(self, kind: Kind, stored: bytes) -> bytes:
        """As `shown`, of a value."""
        (kv,) = await self.all_shown(kind, [KeyValue(b"", stored, 0, 0, 0, 0)])
        return kv.value

    async def change(self, kind: Kind, key: bytes, make: MakeNext, dry_run: bool) -> tuple[bytes, int] | None:
        """As `Writer.change`, with the value and its revision; None: not found. Raises: StatusError."""
        stands = await self._store.get(key)
        while True:
            kv = await self.shown(kind, stands)
            found = await make(kv)
            if found is None or kv is None or stands is None:
                return None
            value, finished = found.value, found.finished
            if found.new is not None:
                finished, value = is_finished(kind, found.new), encode(found.new)
            stored = await self.to_store(kind, value)
            if dry_run:
                return await self.value_shown(kind, stored), kv.mod_revision
            if finished:
                outcome = await self._store.delete(stands)
                if outcome.done:
                    return value, kv.mod_revision
            elif same(stored, stands.value):
                return kv.value, kv.mod_revision
            else:
                outcome = await self._store.replace(stands, stored)
                if outcome.done:
                    return await self.value_shown(kind, stored), outcome.revision
            stands = outcome.current

    def owned(self, kind: Kind, converted: Any, make: MakeNext) -> MakeNext:
        """`make`, with conversions for field managers of other versions."""

        async def making(kv: KeyValue | None) -> Next | None:
            while True:
                try:
                    return await make(kv)
                except NeedsConversion as needs:
                    converted[needs.asked] = await self.between(kind, *needs.asked)

        return making

    async def between(self, kind: Kind, asked: bytes, wanted: str) -> Json:
        """An object of another version of `kind`, unpruned. Raises: StatusError 500."""
        obj: Json = orjson.loads(asked)
        version = obj.pop("apiVersion")
        del obj["kind"]
        value = orjson.dumps({"metadata": obj.pop("metadata", {}), **obj})
        (made,) = await self._ask(kind, wanted, [(version, value)], prunes=False)
        return {**orjson.loads(made), "kind": kind.kind, "apiVersion": wanted}

    async def _ask(self, kind: Kind, wanted: str, objects: Sequence[Versioned], prunes: bool = True) -> list[bytes]:
        """Raises: StatusError 500."""
        webhook, uid = _webhook(kind), new_uid(self._rng)
        reviews = [each for each in webhook.reviews if each in conversion.REVIEW_VERSIONS]
        if not reviews:
            raise StatusError(500, "", "no supported conversion review versions")
        asked = conversion.review(webhook, reviews[0], uid, wanted, objects)
        await asyncio.sleep(0)
        try:
            answer = await self._caller.post(webhook.client, asked, TIMEOUT_S)
        except CallFailed as error:
            raise _failed(webhook, objects[0][0], f"failed: {str(error).removeprefix(FAILED)}") from None
        media = answer.headers.get("Content-Type", "")
        values = [value for _, value in objects]
        said = answer.status, media, answer.body
        given = (*said, reviews[0], uid, kind.definition, wanted, webhook.kind, values, prunes)
        if len(objects) > 1 or is_large(answer.body, JSON):
            found: list[bytes] | str = await self._work().run("converted", *given)
        else:
            found = converted(*given)
        if isinstance(found, str):
            raise _failed(webhook, objects[0][0], found) if found != _NULL else StatusError(500, "", found)
        return found


def _webhook(kind: Kind) -> ConversionWebhook:
    assert kind.conversion_webhook is not None, "others are not converted by webhooks"
    return kind.conversion_webhook


def _failed(webhook: ConversionWebhook, version: str, why: str) -> StatusError:
    return StatusError(500, "", f"conversion webhook for {version}, Kind={webhook.kind} {why}")


def _slices(kvs: Sequence[KeyValue]) -> Iterator[Sequence[KeyValue]]:
    part: list[KeyValue] = []
    size = 0
    for kv in kvs:
        if part and (len(part) >= SLICE_OBJECTS or size + len(kv.value) > SLICE_BYTES):
            yield part
            part, size = [], 0
        part.append(kv)
        size += len(kv.value)
    if part:
        yield part


def converted(
    status: int,
    media: str,
    body: bytes,
    review: str,
    uid: str,
    definition: bytes,
    wanted: str,
    kind: str,
    values: Sequence[bytes],
    prunes: bool,
) -> list[bytes] | str:
    """The webhook's result for `values`, checked by `conversion.taken`; a text if it is invalid."""
    try:
        answer = document(status, media, body, f"{GROUP}/{review}", REVIEW)
        found = conversion.results(answer, review, uid)
    except (Wrong, BadConversion) as error:
        return f"failed: {str(error).removeprefix(FAILED)}"
    if len(found) != len(values):
        return f"returned {len(found)} objects, expected {len(values)}"
    try:
        given = zip(map(orjson.loads, values), found, strict=True)
        return [conversion.taken(definition, wanted, kind, value, each, prunes) for value, each in given]
    except BadConversion as error:
        return str(error)
