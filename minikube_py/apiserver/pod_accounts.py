"""ServiceAccount: pods run as an existing account, and get its token, pull secrets and limits.

Off by default (ADR 0045). Events keep decoded accounts current, so a pod costs one lookup; a missing one is read from
the store, and `default` is retried, as a controller is about to create it.

Source: kubernetes `plugin/pkg/admission/serviceaccount/admission.go`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any, Final

import orjson

from minikube_py.api.errors import Json
from minikube_py.api.kinds.core import PODS, SERVICEACCOUNTS
from minikube_py.api.meta import generate_name
from minikube_py.apiserver.admission import Attributes, Operation, Plugin
from minikube_py.apiserver.node_access import MIRROR, references
from minikube_py.apiserver.object_store import ObjectStore
from minikube_py.apiserver.projections import project
from minikube_py.apiserver.watch_cache import WatchCache
from minikube_py.env import Clock, Rng
from minikube_py.fields.booleans import BOOLEANS

DEFAULT: Final = "default"
DEFAULT_ATTEMPTS: Final = 10
TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME: Final = "kube-api-access-"
_ENFORCED: Final = "kubernetes.io/enforce-mountable-secrets"
_TOKEN_SOURCES: Final = orjson.dumps([
    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    {"downwardAPI": {
        "items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
    }},
])  # fmt: skip


class PodAccounts(Plugin):
    name = "ServiceAccount"
    mutates = True
    only = (PODS, "")

    def __init__(self, cache: WatchCache, store: ObjectStore, clock: Clock, rng: Rng) -> None:
        project(cache, [SERVICEACCOUNTS])
        self._cache = cache
        self._store = store
        self._clock = clock
        self._rng = rng

    def has_work(self, operation: Operation) -> bool:
        return operation.verb == "CREATE"

    async def admit(self, attributes: Attributes) -> None:
        pod = attributes.new
        if pod is None:
            return
        if _is_mirror(pod):
            await self.validate(attributes)
            return
        spec = pod["spec"]
        name = spec.get("serviceAccountName") or DEFAULT
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = await self._account(attributes, name)
        if _mounts_token(account, spec):
            _mount_token(spec, self._rng)
        if not spec.get("imagePullSecrets") and (secrets := account.get("imagePullSecrets")):
            spec["imagePullSecrets"] = [{"name": each["name"]} if each.get("name") else {} for each in secrets]
        self._check(attributes, account, spec)

    async def validate(self, attributes: Attributes) -> None:
        pod = attributes.new
        if pod is None:
            return
        spec = pod["spec"]
        if _is_mirror(pod):
            if why := _wrong_mirror(pod):
                raise attributes.forbidden(why)
            return
        name = spec.get("serviceAccountName")
        if not name:
            of = f"{attributes.of.namespace}/{attributes.name}"
            raise attributes.forbidden(f"no service account specified for pod {of}")
        self._check(attributes, await self._account(attributes, name), spec)

    async def _account(self, attributes: Attributes, name: str) -> Json:
        """Raises: StatusError 403."""
        namespace = attributes.of.namespace
        key = SERVICEACCOUNTS.key(namespace, name)
        known = self._cache.of(SERVICEACCOUNTS).projection
        assert known is not None, "it was projected before the cache was loaded"
        found: Json | None = known.objects.get(key)
        if found is not None:
            return found
        pause_s = self._rng.uniform(0.1, 0.2)
        for attempt in range(DEFAULT_ATTEMPTS if name == DEFAULT else 1):
            if attempt:
                await self._clock.sleep(pause_s)
            kv = await self._store.get(key)
            if kv is not None:
                account: Json = orjson.loads(kv.value)
                return account
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise attributes.forbidden(why)

    def _check(self, attributes: Attributes, account: Json, spec: Json) -> None:
        """Raises: StatusError 403."""
        if _enforces(account) and (why := next(_unmounted(account, spec), "")):
            raise attributes.forbidden(why)


class EphemeralAccounts(PodAccounts):
    """For containers added to a running pod."""

    mutates = False
    only = (PODS, "ephemeralcontainers")

    def has_work(self, operation: Operation) -> bool:
        return operation.verb == "UPDATE"

    def _check(self, attributes: Attributes, account: Json, spec: Json) -> None:
        """Raises: StatusError 403."""
        if not _enforces(account):
            return
        allowed = {each.get("name") for each in account.get("secrets") or ()}
        name = account["metadata"]["name"]
        found = _of_containers(spec.get("ephemeralContainers") or (), "ephemeral container", allowed, name)
        if why := next(found, ""):
            raise attributes.forbidden(why)


def _is_mirror(pod: Json) -> bool:
    return MIRROR in (pod["metadata"].get("annotations") or {})


def _wrong_mirror(pod: Json) -> str:
    spec = pod["spec"]
    if spec.get("serviceAccountName"):
        return "a mirror pod may not reference service accounts"
    if references({"metadata": {}, "spec": spec}, "secrets"):
        return "a mirror pod may not reference secrets"
    projected = [each.get("projected") or {} for each in spec.get("volumes") or ()]
    if any(each.get("serviceAccountToken") is not None for of in projected for each in of.get("sources") or ()):
        return "a mirror pod may not use ServiceAccountToken volume projections"
    return ""


def _mounts_token(account: Json, spec: Json) -> bool:
    told = spec.get("automountServiceAccountToken")
    told = account.get("automountServiceAccountToken") if told is None else told
    return told is None or bool(told)


def _mount_token(spec: Json, rng: Rng) -> None:
    """Mounts it in every container without a mount at that path."""
    volumes = spec.get("volumes") or []
    name = next((each["name"] for each in volumes if each.get("name", "").startswith(_VOLUME)), "")
    added, name = not name, name or generate_name(_VOLUME, rng)
    needed = False
    for container in (*(spec.get("initContainers") or ()), *spec.get("containers", ())):
        mounts = container.get("volumeMounts") or []
        if not any(each.get("mountPath") == TOKEN_PATH for each in mounts):
            mount = {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
            container["volumeMounts"] = [*mounts, mount]
            needed = True
    if added and needed:
        source = {"sources": orjson.loads(_TOKEN_SOURCES), "defaultMode": 420}
        spec["volumes"] = [*volumes, {"name": name, "projected": source}]


# --- accounts that allow no secrets but their own ---------------------------------------------------------------------


def _enforces(account: Json) -> bool:
    return BOOLEANS.get((account["metadata"].get("annotations") or {}).get(_ENFORCED, ""), False)


def _unmounted(account: Json, spec: Json) -> Iterator[str]:
    """Why the pod may not use a reference."""
    name = account["metadata"]["name"]
    allowed = {each.get("name") for each in account.get("secrets") or ()}
    refused = f"is not allowed because service account {name} does not reference that"
    for volume in spec.get("volumes") or ():
        secret = volume.get("secret")
        if secret is not None and (secret.get("secretName") or "") not in allowed:
            yield f'volume with secret.secretName="{secret.get("secretName") or ""}" {refused} secret'
    yield from _of_containers(spec.get("initContainers") or (), "init container", allowed, name)
    yield from _of_containers(spec.get("containers") or (), "container", allowed, name)
    pulled = {each.get("name") for each in account.get("imagePullSecrets") or ()}
    for i, each in enumerate(spec.get("imagePullSecrets") or ()):
        if each.get("name") not in pulled:
            yield f'imagePullSecrets[{i}].name="{each.get("name") or ""}" {refused} imagePullSecret'


def _of_containers(containers: Iterable[Json], what: str, allowed: Container[Any], account: str) -> Iterator[str]:
    for container in containers:
        refused = f"is not allowed because service account {account} does not reference that secret"
        for env in container.get("env") or ():
            ref = (env.get("valueFrom") or {}).get("secretKeyRef")
            if ref is not None and (name := ref.get("name") or "") not in allowed:
                of = f"{what} {container['name']} with envVar {env['name']}"
                yield f'{of} referencing secret.secretName="{name}" {refused}'
        for source in container.get("envFrom") or ():
            ref = source.get("secretRef")
            if ref is not None and (name := ref.get("name") or "") not in allowed:
                yield f'{what} {container["name"]} with envFrom referencing secret.secretName="{name}" {refused}'
