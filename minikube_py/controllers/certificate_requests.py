"""Certificate signing requests: approves those of kubelets, signs approved ones, deletes old ones.

Source: k8s.io/kubernetes/pkg/controller/certificates/{approver,signer,cleaner}.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Final

from minikube_py.api.errors import StatusError
from minikube_py.api.meta import timestamp
from minikube_py.client.informer import Handler, Informer
from minikube_py.client.rest import CERTIFICATE_REQUESTS, SUBJECT_ACCESS_REVIEWS, Object
from minikube_py.controllers.base import ControllerContext, QueueController, QueueWorkers
from minikube_py.controllers.ranking import parse_time_s
from minikube_py.controllers.volume_views import WholeView
from minikube_py.errors import MinikubeError

OF_KUBELETS: Final = "kubernetes.io/kube-apiserver-client-kubelet"
LOOKED_AT_EVERY_S: Final = 3600.0
DECIDED_S: Final = 3600.0
"""How long requests are kept once they are denied, failed, or approved and signed."""
OPEN_S: Final = 24 * 3600.0
"""How long requests are kept that are neither decided nor signed."""


class _NotAllowed(MinikubeError):
    """The request is recognized, but its sender lacks the permission: retry."""


def _conditions(request: Object) -> list[Object]:
    return (request.get("status") or {}).get("conditions") or []


def _types(request: Object) -> set[str]:
    return {condition.get("type") or "" for condition in _conditions(request)}


class RequestApprover(QueueController):
    """Asks the API server whether the sender may request a kubelet's certificate."""

    name = "certificatesigningrequest-approving-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._requests: Informer[WholeView] = context.informers.of(CERTIFICATE_REQUESTS)
        self._workers = QueueWorkers(context, "certificate", self.sync)
        add = self._workers.queue.add
        self._requests.add_handler(
            Handler(on_add=lambda new: add(new.name), on_update=lambda old, new: add(new.name))
        )

    async def sync(self, name: str) -> None:
        found = self._requests.store.get(name)
        if found is None:
            return
        request = found.obj
        if (request.get("status") or {}).get("certificate") or _types(request) & {"Approved", "Denied"}:
            return
        tried = []
        for subresource, what in _recognized(request):
            tried.append(subresource)
            if await self._may(request, subresource):
                message = f"Auto approving {what} after SubjectAccessReview."
                condition = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}
                status = {**(request.get("status") or {}), "conditions": [*_conditions(request), condition]}
                await self._client.update(CERTIFICATE_REQUESTS, {**request, "status": status}, "approval")
                return
        if tried:
            raise _NotAllowed(f"recognized csr {name!r} as {tried} but subject access review was not approved")

    async def _may(self, request: Object, subresource: str) -> bool:
        spec = request["spec"]
        asked = {
            "group": CERTIFICATE_REQUESTS.group, "resource": CERTIFICATE_REQUESTS.plural, "verb": "create",
            "subresource": subresource, "version": "*",
        }  # fmt: skip
        told = {"user": spec.get("username"), "uid": spec.get("uid"), "groups": spec.get("groups")}
        told = {key: value for key, value in {**told, "extra": spec.get("extra")}.items() if value}
        review = await self._client.create(
            SUBJECT_ACCESS_REVIEWS, {"metadata": {}, "spec": {**told, "resourceAttributes": asked}}
        )
        return bool(review["status"].get("allowed"))


def _recognized(request: Object) -> Iterator[tuple[str, str]]:
    """The permissions under which a request may be approved: subresource and description."""
    spec = request["spec"]
    if spec.get("signerName") != OF_KUBELETS:
        return
    from minikube_py.api.certificate_requests import parse_request, subject_name
    from minikube_py.controllers.certificate_signing import kubelet_fault

    parsed = parse_request(spec["request"])
    if kubelet_fault(parsed, spec.get("usages") or ()):
        return
    if spec.get("username") == subject_name(parsed):
        yield "selfnodeclient", "self kubelet client certificate"
    yield "nodeclient", "kubelet client certificate"


class RequestSigner(QueueController):
    """Does nothing without an authority, like upstream's."""

    name = "certificatesigningrequest-signing-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client, self._clock, self._rng = context.client, context.clock, context.rng
        self._authority = context.config.signing_authority
        self._workers = QueueWorkers(context, "certificate_signer", self.sync)
        if self._authority is None:
            return
        self._requests: Informer[WholeView] = context.informers.of(CERTIFICATE_REQUESTS)
        self._requests.add_handler(Handler(on_add=self._seen, on_update=lambda old, new: self._seen(new)))

    def _seen(self, request: WholeView) -> None:
        if "Approved" in _types(request.obj):
            self._workers.queue.add(request.name)

    async def sync(self, name: str) -> None:
        found = self._requests.store.get(name)
        if found is None or self._authority is None:
            return
        from minikube_py.api.certificate_requests import parse_request
        from minikube_py.controllers.certificate_signing import SIGNERS

        spec, status = found.obj["spec"], found.obj.get("status") or {}
        fault_of, types = SIGNERS.get(spec["signerName"]), _types(found.obj)
        if fault_of is None or status.get("certificate") or "Denied" in types or _failed(found.obj):
            return
        request, usages, now_s = parse_request(spec["request"]), spec.get("usages") or (), self._clock.wall_s()
        if fault := fault_of(request, usages):
            told = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": fault}
            condition = {**told, "lastUpdateTime": timestamp(now_s)}
            status = {**status, "conditions": [*_conditions(found.obj), condition]}
        else:
            pem = self._authority.sign(request, usages, spec.get("expirationSeconds"), now_s, self._rng)
            status = {**status, "certificate": base64.b64encode(pem).decode()}
        await self._client.update(CERTIFICATE_REQUESTS, {**found.obj, "status": status}, "status")


def _failed(request: Object) -> bool:
    found = [each.get("status") for each in _conditions(request) if each.get("type") == "Failed"]
    return not {"", None, "True"}.isdisjoint(found)


def is_over(request: Object, now_s: float) -> bool:
    """Whether the request is obsolete."""

    def older(text: str | None, than_s: float) -> bool:
        at_s = parse_time_s(text or "")
        return at_s is not None and now_s - at_s > than_s

    conditions = _conditions(request)
    certificate = (request.get("status") or {}).get("certificate") or ""
    if not conditions and older(request["metadata"].get("creationTimestamp"), OPEN_S):
        return True
    for condition in conditions:
        kind, updated = condition.get("type"), condition.get("lastUpdateTime")
        if kind in ("Denied", "Failed") and older(updated, DECIDED_S):
            return True
        if kind != "Approved":
            continue
        if older(updated, DECIDED_S if certificate else OPEN_S):
            return True
        if certificate and _ended(certificate, now_s):
            return True
    return False


def _ended(certificate: str, now_s: float) -> bool:
    from minikube_py.api.certificate_requests import ends_s

    last_s = ends_s(certificate)
    return last_s is not None and now_s > last_s


class RequestCleaner(QueueController):
    """Checks all requests once an hour."""

    name = "certificatesigningrequest-cleaner-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._client, self._clock = context.client, context.clock
        self._requests: Informer[WholeView] = context.informers.of(CERTIFICATE_REQUESTS)
        self._workers = QueueWorkers(context, "certificate_cleaner", self.sync)
        self._looking = False
        self._requests.add_handler(Handler(on_add=self._seen))

    def _seen(self, request: WholeView) -> None:
        if not self._looking:
            self._looking = True
            self._workers.queue.add("")

    async def sync(self, key: str) -> None:
        for request in list(self._requests.store.values()):
            if is_over(request.obj, self._clock.wall_s()):
                try:
                    await self._client.delete(CERTIFICATE_REQUESTS, request.name)
                except StatusError as error:
                    if error.code != 404:
                        raise
        self._looking = len(self._requests.store) > 0
        if self._looking:
            self._workers.queue.add_after("", LOOKED_AT_EVERY_S)
