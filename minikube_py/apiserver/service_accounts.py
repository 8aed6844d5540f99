"""Service account users: validates and issues their tokens.

A token is valid while its account, and the pod, secret or node it is bound to, exist. They are looked up in the watch
cache; if one is missing, the lookup waits until the cache has caught up.

Source: kubernetes `pkg/serviceaccount`, `pkg/registry/core/serviceaccount/storage/token.go`.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any, Final

import orjson

from minikube_py.api.errors import (
    GroupResource,
    Json,
    StatusError,
    bad_request,
    conflict,
    go_quote,
    invalid,
    invalid_value,
    not_found,
)
from minikube_py.api.kind import Kind
from minikube_py.api.kinds.authentication import TOKENREQUESTS, validate_token_request
from minikube_py.api.kinds.core import NODES, PODS, SECRETS, SERVICEACCOUNTS
from minikube_py.api.meta import new_uid, parse_timestamp, timestamp
from minikube_py.api.service_tokens import ISSUER, LEGACY_CLAIMS, LEGACY_ISSUER, InvalidToken, SigningKey, account_user
from minikube_py.apiserver.auth import Spoken
from minikube_py.apiserver.forms import Form, single_bytes
from minikube_py.apiserver.messages import Request, Response, warning_headers, with_warnings
from minikube_py.apiserver.namespaces import NamespaceGate
from minikube_py.apiserver.options import WriteOptions
from minikube_py.apiserver.preparing import check_namespace, encode
from minikube_py.apiserver.routes import Route
from minikube_py.apiserver.rules import AUTHENTICATED, Extra, User, account_groups
from minikube_py.apiserver.watch_cache import Entry, WatchCache
from minikube_py.apiserver.writes import Writer
from minikube_py.env import Clock, Rng

LEEWAY_S: Final = 60
"""Allowed clock skew, and how long tokens of objects being deleted stay valid."""
WARN_ONLY_S: Final = 3607
"""The lifetime that pod admission requests: such a token warns after it and expires in a year."""
EXTENDED_S: Final = 365 * 24 * 3600
LAST_USED: Final = "kubernetes.io/legacy-token-last-used"
INVALID_SINCE: Final = "kubernetes.io/legacy-token-invalid-since"
_GENERATED: Final = (
    "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated "
    "secret-based tokens."
)
_KNOWN_MAX: Final = 4096
_PATIENCE_S: Final = 10.0
_INVALIDATED: Final = "service account token has been invalidated"
_AUTHENTICATION: Final = "authentication.kubernetes.io/"
_BOUND: Final[dict[str, Kind]] = {"secret": SECRETS, "pod": PODS, "node": NODES}
_BINDABLE: Final = {kind.kind: kind for kind in (PODS, NODES, SECRETS)}


class _Lacking(Exception):
    """An object of a token is not in the cache; `told` is the error text."""

    def __init__(self, told: str) -> None:
        super().__init__(told)
        self.told = told


class _Known:
    """A token with a valid signature. `seen`: the object states it was checked against."""

    __slots__ = ("claims", "seen")

    def __init__(self, claims: Json) -> None:
        self.claims = claims
        self.seen: dict[bytes, Entry] = {}


class ServiceAccounts:
    """`key` None: one is generated on first use, unknown to other servers."""

    def __init__(
        self, writer: Writer, gate: NamespaceGate, cache: WatchCache, clock: Clock, rng: Rng, key: SigningKey | None
    ) -> None:
        self._writer, self._gate, self._cache, self._clock, self._rng = writer, gate, cache, clock, rng
        self._given = key
        self._known: dict[str, _Known] = {}
        self.on_use: Callable[[str, str], Awaitable[None]] = self.write_use
        """Called with namespace and name of a Secret whose token is used for the first time on a day."""

    @cached_property
    def key(self) -> SigningKey:
        return self._given or SigningKey.new()

    # --- a token's user --------------------------------------------------------------------------------------

    async def speaker(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> Spoken | None:
        """None if it is not a service account token. Raises: InvalidToken."""
        known = self._known.get(token)
        if known is None:
            claims = self.key.claims(token)
            if claims is None:
                return None
            if len(self._known) >= _KNOWN_MAX:
                del self._known[next(iter(self._known))]
            known = self._known[token] = _Known(claims)
        legacy = known.claims["iss"] == LEGACY_ISSUER
        allowed = tuple(known.claims.get("aud") or (ISSUER,))
        common = tuple(each for each in allowed if each in audiences)
        if not common:
            held, wanted = _listed(allowed), _listed(audiences)
            raise InvalidToken(f"token audiences {held} is invalid for the target audiences {wanted}")
        check = self._legacy if legacy else self._bound
        try:
            found = check(known, token)
        except _Lacking:
            # Another server may have just created it.
            revision = await self._writer.store.current_revision()
            await self._cache.wait_until(revision, _PATIENCE_S)
            try:
                found = check(known, token)
            except _Lacking as lacking:
                raise InvalidToken(lacking.told) from None
        if legacy:
            await self._note_use(known.claims)
        user, warning = found
        return Spoken(user, common, warning)

    def _bound(self, known: _Known, token: str) -> tuple[User, str]:
        """Raises: InvalidToken, _Lacking."""
        claims, now_s = known.claims, self._clock.wall_s()
        if now_s + LEEWAY_S < claims["nbf"]:
            raise InvalidToken("service account token is not valid yet")
        if now_s - LEEWAY_S > claims["exp"]:
            raise InvalidToken("service account token has expired")
        private = claims["kubernetes.io"]
        namespace, account = private["namespace"], private["serviceaccount"]
        name, uid = account["name"], account["uid"]
        there, leaving = self._found(known, SERVICEACCOUNTS, namespace, account, f'serviceaccounts "{name}" not found')
        if there != uid:
            raise _Lacking(f"service account UID ({there}) does not match claim ({uid})")
        if leaving:
            raise InvalidToken(f"service account {namespace}/{name} has been deleted")
        for word, kind in _BOUND.items():
            bound = private.get(word)
            # A pod token's node is only informational.
            if bound is None or (word == "node" and "pod" in private):
                continue
            there, leaving = self._found(known, kind, namespace, bound, _INVALIDATED)
            if there != bound["uid"]:
                said = f"{word} UID ({there}) does not match service account {word} ref claim ({bound['uid']})"
                raise _Lacking(said)
            if leaving:
                raise InvalidToken(_INVALIDATED)
        return _user(namespace, name, uid, _extra(claims)), ""

    def _found(self, known: _Known, kind: Kind, namespace: str, ref: Json, missing: str) -> tuple[str, bool]:
        """The uid of the object that has the name of `ref` now, and whether its deletion is past the clock skew.
        Raises: _Lacking with `missing`."""
        key = kind.key(namespace, ref["name"])
        entry = self._cache.of(kind).entries.get(key)
        if entry is None:
            raise _Lacking(missing)
        if known.seen.get(key) is entry:
            return ref["uid"], False
        metadata = orjson.loads(entry.value)["metadata"]
        due = metadata.get("deletionTimestamp")
        if metadata["uid"] == ref["uid"] and not due:
            known.seen[key] = entry
        return metadata["uid"], bool(due) and parse_timestamp(due) < self._clock.wall_s() - LEEWAY_S

    def _legacy(self, known: _Known, token: str) -> tuple[User, str]:
        """For a token in a Secret; warns if its account names that Secret.

        Raises: InvalidToken, _Lacking."""
        namespace, secret_name, name, uid = _legacy_names(known.claims)
        secret = self._decoded(SECRETS, namespace, secret_name)
        if secret is None:
            raise _Lacking("Token has been invalidated")
        if secret["metadata"].get("deletionTimestamp"):
            raise InvalidToken("Token has been invalidated")
        if base64.b64decode((secret.get("data") or {}).get("token") or "") != token.encode():
            raise _Lacking("Token does not match server's copy")
        account = self._decoded(SERVICEACCOUNTS, namespace, name)
        if account is None:
            raise _Lacking(f'serviceaccounts "{name}" not found')
        if account["metadata"].get("deletionTimestamp"):
            raise InvalidToken(f"ServiceAccount {namespace}/{name} has been deleted")
        if account["metadata"]["uid"] != uid:
            raise _Lacking(f"ServiceAccount UID ({account['metadata']['uid']}) does not match claim ({uid})")
        if (secret["metadata"].get("labels") or {}).get(INVALID_SINCE):
            raise InvalidToken(
                f"the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked "
                "invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the "
                f"'{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
            )
        own = any(ref.get("name") == secret_name for ref in account.get("secrets") or ())
        return _user(namespace, name, uid, ()), _GENERATED if own else ""

    def _decoded(self, kind: Kind, namespace: str, name: str) -> Any:
        entry = self._cache.of(kind).entries.get(kind.key(namespace, name))
        return None if entry is None else orjson.loads(entry.value)

    async def _note_use(self, claims: Json) -> None:
        namespace, name, _, _ = _legacy_names(claims)
        entry = self._cache.of(SECRETS).entries.get(SECRETS.key(namespace, name))
        # Tomorrow by another server's clock.
        days = [timestamp(self._clock.wall_s() + later_s)[:10] for later_s in (0, 86_400)]
        if entry is not None and entry.labels.get(LAST_USED) not in days:
            await self.on_use(namespace, name)

    async def write_use(self, namespace: str, secret_name: str) -> None:
        """Records today as the day of a Secret token's last use."""
        today = timestamp(self._clock.wall_s())[:10]

        def make(old: Json) -> Json:
            metadata = old["metadata"]
            return {**old, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), LAST_USED: today}}}

        try:
            await self._writer.change(SECRETS, namespace, secret_name, make)
        except StatusError:
            # Authentication does not depend on it.
            return

    # --- token requests ------------------------------------------------------------------------------------

    async def issue(self, route: Route, request: Request, options: WriteOptions, form: Form) -> Response:
        """`serviceaccounts/token`. Raises: StatusError 400, 404, 406, 409, 422."""
        asked, warnings = await self._writer.read(SERVICEACCOUNTS, request, options, route.subresource)
        try:
            await self._fill(route, request, asked)
        except StatusError as error:
            raise with_warnings(error, warnings) from None
        body = single_bytes(TOKENREQUESTS, encode(asked), 0, form, self._clock.wall_s())
        return Response(201, body, form.media_type, warning_headers(warnings))

    async def _fill(self, route: Route, request: Request, asked: Json) -> None:
        namespace, name, metadata = route.namespace, route.name, asked["metadata"]
        TOKENREQUESTS.default(asked)
        check_namespace(SERVICEACCOUNTS, metadata, namespace)
        passage = self._writer.enter(route, request, "CREATE")
        await self._gate.admit(SERVICEACCOUNTS, namespace, name)
        metadata["namespace"] = namespace
        if request.admit is not None:
            request.admit(SERVICEACCOUNTS, "token", name, None, asked)
        if passage is not None:
            await passage.admit(None, asked)
            TOKENREQUESTS.default(asked)
            metadata = asked["metadata"]
        if (given := metadata.get("name")) and given != name:
            why = "must match the service account name if specified"
            raise invalid(TOKENREQUESTS, name, [invalid_value("metadata.name", given, why)])
        account = await self._read(SERVICEACCOUNTS, namespace, name)
        uid = account["metadata"]["uid"]
        if (given := metadata.get("uid")) and given != uid:
            why = f"the UID in the token request ({given}) does not match the UID of the service account ({uid})"
            raise conflict(GroupResource(TOKENREQUESTS.group, TOKENREQUESTS.kind), name, why)
        spec, now_s = asked["spec"], self._clock.wall_s()
        asked["spec"] = spec = {
            "audiences": spec.get("audiences") or [ISSUER],
            "expirationSeconds": spec["expirationSeconds"],
            "boundObjectRef": spec["boundObjectRef"],
        }
        metadata |= {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": timestamp(now_s)}
        if errors := validate_token_request(asked):
            raise invalid(TOKENREQUESTS, "", errors)
        if passage is not None:
            await passage.validate(None, asked)
        bound, is_pod = await self._binding(spec.get("boundObjectRef"), namespace, name)
        private: Json = {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}, **bound}
        lasts_s, issued_s = spec["expirationSeconds"], int(now_s)
        if is_pod and lasts_s == WARN_ONLY_S and spec["audiences"] == [ISSUER]:
            private["warnafter"], lasts_s = issued_s + lasts_s, EXTENDED_S
        id = new_uid(self._rng)
        token = self.key.sign({
            "iss": ISSUER, "sub": account_user(namespace, name), "aud": spec["audiences"], "iat": issued_s,
            "nbf": issued_s, "exp": issued_s + lasts_s, "jti": id, "kubernetes.io": private,
        })  # fmt: skip
        if request.audit is not None:
            request.audit.note("authentication.kubernetes.io/issued-credential-id", f"JTI={id}")
        ends_s = now_s + spec["expirationSeconds"]
        asked["status"] = {"token": token, "expirationTimestamp": timestamp(ends_s)}

    async def _read(self, kind: Kind, namespace: str, name: str) -> Any:
        kv = await self._writer.store.get(kind.key(namespace, name))
        if kv is None:
            raise not_found(kind, name)
        return orjson.loads(kv.value)

    async def _binding(self, ref: Json | None, namespace: str, account: str) -> tuple[Json, bool]:
        """The claims of the token's bound object, and whether it is a pod. Raises: StatusError 400, 404, 409."""
        if ref is None:
            return {}, False
        group, version = _group_version(ref.get("apiVersion") or "")
        wanted, name = ref.get("kind") or "", ref.get("name") or ""
        kind = _BINDABLE.get(wanted) if not group else None
        if kind is None:
            raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={wanted}")
        if not name:
            raise bad_request("Name parameter required.")
        obj = await self._read(kind, namespace, name)
        uid, bound = obj["metadata"]["uid"], {}
        if kind is PODS:
            if (obj["spec"].get("serviceAccountName") or "") != account:
                who = go_quote(account)
                raise bad_request(
                    f"cannot bind token for serviceaccount {who} to pod running with different serviceaccount name."
                )
            if node_name := obj["spec"].get("nodeName"):
                node = self._decoded(NODES, "", node_name)
                of_node = {"uid": node["metadata"]["uid"]} if node is not None else {}
                bound["node"] = {"name": node_name, **of_node}
        if (given := ref.get("uid")) and given != uid:
            why = (
                f"the UID in the bound object reference ({given}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise conflict(GroupResource("", kind.kind), name, why)
        bound[kind.kind.lower()] = {"name": name, "uid": uid}
        return bound, kind is PODS


def _user(namespace: str, name: str, uid: str, extra: Extra) -> User:
    return User(account_user(namespace, name), (*account_groups(namespace), AUTHENTICATED), uid, extra)


def _extra(claims: Json) -> Extra:
    """Extra user info from a token."""
    extra = {f"{_AUTHENTICATION}credential-id": (f"JTI={claims['jti']}",)}
    private = claims["kubernetes.io"]
    for word in ("node", "pod"):
        bound = private.get(word) or {}
        extra |= {f"{_AUTHENTICATION}{word}-{part}": (bound[part],) for part in ("name", "uid") if bound.get(part)}
    return tuple(sorted(extra.items()))


def _legacy_names(claims: Json) -> tuple[str, str, str, str]:
    """The namespace, the secret's name, and the account's name and uid."""
    named = ("namespace", "secret.name", "service-account.name", "service-account.uid")
    namespace, secret_name, name, uid = (str(claims[LEGACY_CLAIMS + each]) for each in named)
    return namespace, secret_name, name, uid


def _listed(audiences: Sequence[str]) -> str:
    return f"[{' '.join(map(go_quote, audiences))}]"


def _group_version(text: str) -> tuple[str, str]:
    """As upstream, which treats unreadable values as absent."""
    parts = text.split("/")
    if text == "/" or len(parts) > 2:
        return "", ""
    return (parts[0], parts[1]) if len(parts) == 2 else ("", text)
