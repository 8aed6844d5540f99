"""Secrets of the type `kubernetes.io/service-account-token`: filled with a token, and deleted with their account.

Source: k8s.io/kubernetes/pkg/controller/serviceaccount/tokens_controller.go.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from minikube_py.api.errors import StatusError
from minikube_py.api.service_tokens import ACCOUNT_NAME, ACCOUNT_UID, legacy_claims
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import SECRETS, SERVICE_ACCOUNTS, Object
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.views import MetaView, SecretView

_ACCOUNT: Final = "account"
_SECRET: Final = "secret"


class TokenSecrets(QueueController):
    """Does nothing without a signing key, like upstream's."""

    name = "serviceaccount-token-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._key = context.config.signing_key
        self._root_ca = base64.b64encode(context.config.root_ca_pem.encode()).decode()
        self._workers = QueueWorkers(context, "serviceaccount_tokens", self.sync)
        if self._key is None:
            return
        self._accounts: Informer[MetaView] = context.informers.of(SERVICE_ACCOUNTS)
        self._secrets: Informer[SecretView] = context.informers.of(SECRETS)
        self._accounts.add_handler(Handler(on_delete=self._account_gone))
        self._secrets.add_handler(
            Handler(on_add=self._secret, on_update=lambda old, new: self._secret(new), on_delete=self._secret)
        )

    def _account_gone(self, account: MetaView) -> None:
        self._workers.queue.add("\0".join((_ACCOUNT, account.namespace, account.name, account.uid)))

    def _secret(self, secret: SecretView) -> None:
        if secret.account:
            key = (_SECRET, secret.namespace, secret.name, secret.uid, secret.account, secret.account_uid)
            self._workers.queue.add("\0".join(key))

    async def sync(self, key: str) -> None:
        what, namespace, name, uid, *of = key.split("\0")
        if what == _ACCOUNT:
            await self._delete_tokens(namespace, name, uid)
            return
        account_name, account_uid = of
        secret = self._secrets.store.get(f"{namespace}/{name}")
        if secret is None or secret.uid != uid:
            await self._drop_reference(namespace, account_name, account_uid, name)
            return
        account = await self._account(namespace, account_name, account_uid)
        if account is None:
            await self._delete(secret)
        elif self._lacks(secret.data):
            await self._fill(account, secret)

    async def _delete_tokens(self, namespace: str, name: str, uid: str) -> None:
        there = self._accounts.store.get(f"{namespace}/{name}")
        if there is not None and there.uid == uid:
            return
        for secret in list(self._secrets.store):
            of_account = secret.namespace == namespace and secret.account == name
            if of_account and secret.account_uid in ("", uid):
                await self._delete(secret)

    async def _delete(self, secret: SecretView) -> None:
        try:
            await self._client.delete(SECRETS, secret.name, secret.namespace, uid=secret.uid)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    async def _account(self, namespace: str, name: str, uid: str) -> Object | None:
        """Its metadata. The cache may lag, so a miss is checked on the server."""
        there = self._accounts.store.get(f"{namespace}/{name}")
        if there is not None and uid in ("", there.uid):
            return {"metadata": {"namespace": namespace, "name": name, "uid": there.uid}}
        try:
            account = await self._client.get(SERVICE_ACCOUNTS, name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return None
        return account if uid in ("", account["metadata"]["uid"]) else None

    def _lacks(self, data: Any) -> bool:
        stale = bool(self._root_ca) and data.get("ca.crt") != self._root_ca
        return stale or not data.get("namespace") or not data.get("token")

    async def _fill(self, account: Object, seen: SecretView) -> None:
        try:
            secret = await self._client.get(SECRETS, seen.name, seen.namespace)
            if secret["metadata"]["resourceVersion"] != seen.resource_version:
                # It will be queued again.
                return
            data = secret["data"] = dict(secret.get("data") or {})
            if self._root_ca:
                data["ca.crt"] = self._root_ca
            data["namespace"] = data.get("namespace") or base64.b64encode(seen.namespace.encode()).decode()
            if not data.get("token"):
                assert self._key is not None
                token = self._key.sign(legacy_claims(account, seen.name))
                data["token"] = base64.b64encode(token.encode()).decode()
            metadata = account["metadata"]
            named = {ACCOUNT_NAME: metadata["name"], ACCOUNT_UID: metadata["uid"]}
            secret["metadata"]["annotations"] = {**(secret["metadata"].get("annotations") or {}), **named}
            await self._client.update(SECRETS, secret)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    async def _drop_reference(self, namespace: str, name: str, uid: str, secret: str) -> None:
        there = self._accounts.store.get(f"{namespace}/{name}")
        if there is None or uid not in ("", there.uid):
            return
        try:
            account = await self._client.get(SERVICE_ACCOUNTS, name, namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            return
        if uid not in ("", account["metadata"]["uid"]):
            return
        kept = [ref for ref in account.get("secrets") or () if ref.get("name") != secret]
        if len(kept) != len(account.get("secrets") or ()):
            account["secrets"] = kept
            try:
                await self._client.update(SERVICE_ACCOUNTS, account)
            except StatusError as error:
                if error.code != 404:
                    raise
