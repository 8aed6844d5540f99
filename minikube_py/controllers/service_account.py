"""Creates in every namespace the service account `default` and the root certificate for its pods.

Source: k8s.io/kubernetes/pkg/controller/serviceaccount, pkg/controller/certificates/rootcacertpublisher.
"""

from __future__ import annotations

from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from minikube_py.client.transport import MERGE_PATCH
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers, has_cause
from minikube_py.controllers.views import ROOT_CA_NAME, ConfigMapView, MetaView, NamespaceView

DEFAULT: Final = "default"
DESCRIPTION: Final = "The certificate authority of this cluster's API server. Kept by the control plane."


class ServiceAccountController(QueueController):
    """Creates `default` in each namespace that is not terminating, again if it is deleted."""

    name = "serviceaccount-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._namespaces: Informer[NamespaceView] = context.informers.of(NAMESPACES)
        self._accounts: Informer[MetaView] = context.informers.of(SERVICE_ACCOUNTS)
        self._workers = QueueWorkers(context, "serviceaccount", self.sync)
        queue = self._workers.queue
        self._namespaces.add_handler(
            Handler(on_add=lambda ns: queue.add(ns.name), on_update=lambda old, new: queue.add(new.name))
        )
        self._accounts.add_handler(Handler(on_delete=lambda account: queue.add(account.namespace)))

    async def sync(self, name: str) -> None:
        namespace = self._namespaces.store.get(name)
        if namespace is None or namespace.phase == "Terminating" or namespace.deleting:
            return
        if f"{name}/{DEFAULT}" in self._accounts.store:
            return
        account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": DEFAULT, "namespace": name}}
        try:
            await self._client.create(SERVICE_ACCOUNTS, account, name)
        except StatusError as error:
            if not _is_settled(error):
                raise


class RootCaPublisher(QueueController):
    """Maintains the config map kube-root-ca.crt in each namespace, if there is a certificate to publish."""

    name = "root-ca-certificate-publisher-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._pem = context.config.root_ca_pem
        self._namespaces: Informer[NamespaceView] = context.informers.of(NAMESPACES)
        self._config_maps: Informer[ConfigMapView] = context.informers.of(CONFIG_MAPS)
        self._workers = QueueWorkers(context, "root-ca-cert-publisher", self.sync)
        if not self._pem:
            return
        queue = self._workers.queue
        self._namespaces.add_handler(
            Handler(on_add=lambda ns: queue.add(ns.name), on_update=lambda old, new: queue.add(new.name))
        )
        self._config_maps.add_handler(
            Handler(on_update=lambda old, new: self._changed(new), on_delete=self._changed)
        )

    def _changed(self, config_map: ConfigMapView) -> None:
        if config_map.name == ROOT_CA_NAME:
            self._workers.queue.add(config_map.namespace)

    async def sync(self, name: str) -> None:
        namespace = self._namespaces.store.get(name)
        if namespace is None or namespace.deleting or namespace.phase == "Terminating":
            return
        current = self._config_maps.store.get(f"{name}/{ROOT_CA_NAME}")
        data = {"ca.crt": self._pem}
        try:
            if current is None:
                metadata = {
                    "name": ROOT_CA_NAME,
                    "namespace": name,
                    "annotations": {"kubernetes.io/description": DESCRIPTION},
                }
                body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}
                await self._client.create(CONFIG_MAPS, body, name)
            elif current.root_ca != self._pem:
                patch = {"data": data}
                await self._client.patch(CONFIG_MAPS, ROOT_CA_NAME, patch, name, content_type=MERGE_PATCH)
        except StatusError as error:
            if not _is_settled(error):
                raise


def _is_settled(error: StatusError) -> bool:
    """Someone else created it, or its namespace is terminating or gone."""
    return error.reason == "AlreadyExists" or error.code == 404 or has_cause(error, "NamespaceTerminating")
