"""ResourceQuotas are charged in the txn that writes the object, if they are unchanged since the check.

So no quota is ever exceeded, even with several API servers, and refused writes use nothing. If a quota has changed, the
txn is retried on its new state. Within one server, writes of a namespace with quotas are serialized, or all but one of
them would conflict. A namespace without quotas costs a cache lookup.

Source: apiserver `pkg/admission/plugin/resourcequota`, which writes usage before the object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final
from weakref import WeakValueDictionary

import orjson

from minikube_py.api.errors import Json, conflict
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.core import PODS, RESOURCEQUOTAS
from minikube_py.api.kinds.resource import DEVICECLASSES, RESOURCECLAIMS
from minikube_py.api.quota.amounts import written
from minikube_py.api.quota.charging import Write, charge
from minikube_py.api.quota.evaluators import Evaluator, Seen, evaluator_of, payer
from minikube_py.apiserver.limits import Limits
from minikube_py.apiserver.object_store import Claim, ObjectStore, Outcome
from minikube_py.apiserver.preparing import encode
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Clock
from minikube_py.mvcc.types import KeyValue

_AHEAD_MAX: Final = 1000
Attempt = Callable[[Sequence[Claim]], Awaitable[Outcome]]
"""Writes the object together with these claims."""


class Quotas:
    def __init__(self, store: ObjectStore, cache: WatchCache, limits: Limits, clock: Clock) -> None:
        self._store = store
        self._cache = cache
        self._limits = limits
        self._clock = clock
        self._quotas = cache.caches.get(RESOURCEQUOTAS)
        self._classes: tuple[int, dict[str, str]] = (-1, {})
        self._ahead: dict[bytes, tuple[int, KeyValue | None]] = {}
        """Quotas that this server wrote or read, and the cache lacks."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def evaluator(self, kind: Kind, namespace: str) -> Evaluator | None:
        """None: nothing to charge."""
        quotas = self._quotas
        if quotas is None or not quotas.entries or (found := evaluator_of(kind)) is None:
            return None
        return found if any(quotas.iterate(RESOURCEQUOTAS.collection_prefix(namespace), None)) else None

    def create(
        self, kind: Kind, namespace: str, name: str, value: bytes, dry_run: bool, attempt: Attempt
    ) -> Awaitable[Outcome]:
        """Raises, when awaited: StatusError 403, 409."""
        evaluator = self.evaluator(kind, namespace)
        if evaluator is None:
            return attempt(())
        return self._charged(namespace, evaluator, Write(kind, "", name, orjson.loads(value)), dry_run, attempt)

    def update(
        self, kind: Kind, sub: str, namespace: str, old: KeyValue, value: bytes, dry_run: bool, attempt: Attempt
    ) -> Awaitable[Outcome]:
        """Raises, when awaited: StatusError 403, 409."""
        evaluator = self.evaluator(kind, namespace)
        if evaluator is None or sub not in evaluator.updates:
            return attempt(())
        new, before = orjson.loads(value), orjson.loads(old.value)
        write = Write(kind, sub, before["metadata"]["name"], new, before)
        return self._charged(namespace, evaluator, write, dry_run, attempt)

    async def _charged(
        self, namespace: str, evaluator: Evaluator, write: Write, dry_run: bool, attempt: Attempt
    ) -> Outcome:
        turn = self._turns.get(namespace)
        if turn is None:
            turn = self._turns[namespace] = asyncio.Lock()
        async with turn:
            for _ in range(self._limits.update_attempts_max):
                standing = self._standing(namespace)
                claims = self._claims(standing, evaluator, write)
                if dry_run:
                    return await attempt(())
                outcome = await attempt(claims)
                if outcome.done:
                    for claim in claims:
                        kv = standing[claim.key]._replace(value=claim.value, mod_revision=outcome.revision)
                        self._learn(claim.key, outcome.revision, kv)
                    return outcome
                lost = [claim.key for claim in outcome.taken if claim.key in standing]
                for key in lost:
                    self._learn(key, outcome.revision, outcome.standing[key])
                if not lost or len(lost) < len(outcome.taken):
                    return outcome
        raise conflict(RESOURCEQUOTAS, claims[0].key.decode().rpartition("/")[2])

    def _learn(self, key: bytes, revision: int, kv: KeyValue | None) -> None:
        if len(self._ahead) >= _AHEAD_MAX:
            self._ahead.clear()
        self._ahead[key] = (revision, kv)

    def _standing(self, namespace: str) -> dict[bytes, KeyValue]:
        """The quotas of a namespace that this server knows."""
        found: dict[bytes, KeyValue] = {}
        assert self._quotas is not None
        for entry in self._quotas.iterate(RESOURCEQUOTAS.collection_prefix(namespace), None):
            kv: KeyValue | None = KeyValue(entry.key, entry.value, 0, entry.revision, 0, 0)
            if (ahead := self._ahead.get(entry.key)) is not None:
                if ahead[0] <= entry.revision:
                    del self._ahead[entry.key]
                else:
                    kv = ahead[1]
            if kv is not None:
                found[entry.key] = kv
        return found

    def _claims(self, standing: dict[bytes, KeyValue], evaluator: Evaluator, write: Write) -> list[Claim]:
        """The write's quota usage. Raises: StatusError 403."""
        quotas = [orjson.loads(kv.value) for kv in standing.values()]
        claims = []
        for quota, used in charge(write, evaluator, quotas, self._seen()):
            key = RESOURCEQUOTAS.key(quota["metadata"]["namespace"], quota["metadata"]["name"])
            quota["status"] = {**(quota.get("status") or {}), "used": written(used)}
            claims.append(Claim(key, encode(quota), standing[key].mod_revision))
        return claims

    def _seen(self) -> Seen:
        cache = self._cache.caches.get(DEVICECLASSES)
        if cache is not None and cache.last_change != self._classes[0]:
            classes = [entry.decode() for entry in cache.entries.values()]
            extended = {each["metadata"]["name"]: each["spec"].get("extendedResourceName") or "" for each in classes}
            self._classes = (cache.last_change, extended)
        return Seen(self._clock.wall_s(), self._classes[1], lambda claim: payer(claim, self._pod, self._device_claims))

    def _pod(self, namespace: str, name: str) -> Json | None:
        entry = self._cache.of(PODS).entries.get(PODS.key(namespace, name))
        found: Json | None = entry.decode() if entry is not None else None
        return found

    def _device_claims(self, namespace: str) -> Iterator[Json]:
        prefix = RESOURCECLAIMS.collection_prefix(namespace)
        return (entry.decode() for entry in self._cache.of(RESOURCECLAIMS).iterate(prefix, None))
