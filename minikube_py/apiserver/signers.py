"""CertificateApproval, CertificateSigning, CertificateSubjectRestriction: who approves and signs for which signer.

Source: kubernetes `plugin/pkg/admission/certificates`, `pkg/certauthorization`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from minikube_py.api.errors import Json
from minikube_py.api.kinds.certificates import GROUP, REQUESTS
from minikube_py.apiserver.access import Access
from minikube_py.apiserver.admission import Attributes, Operation, Plugin
from minikube_py.apiserver.auth import Asked
from minikube_py.apiserver.rules import MASTERS

_OF_CLIENTS: Final = "kubernetes.io/kube-apiserver-client"


class _OfRequests(Plugin):
    sub = ""
    verb = "UPDATE"

    def __init__(self, access: Access) -> None:
        self._access = access
        self.only = REQUESTS, self.sub

    def has_work(self, operation: Operation) -> bool:
        return operation.verb == self.verb

    async def _require(self, attributes: Attributes, verb: str) -> None:
        """Raises: StatusError 403."""
        signer = ((attributes.old or {}).get("spec") or {}).get("signerName") or ""
        for name in (signer, f"{signer.partition('/')[0]}/*"):
            if (await self._access.may(attributes.of.user, Asked(verb, GROUP, "signers", "", "", name)))[0]:
                return
        raise attributes.forbidden(f'user not permitted to {verb} requests with signerName "{signer}"')


class Approval(_OfRequests):
    name = "CertificateApproval"
    sub = "approval"

    async def validate(self, attributes: Attributes) -> None:
        """Raises: StatusError 403."""
        await self._require(attributes, "approve")


class Signing(_OfRequests):
    name = "CertificateSigning"
    sub = "status"

    async def validate(self, attributes: Attributes) -> None:
        """Raises: StatusError 403."""
        if _signed(attributes.new) != _signed(attributes.old):
            await self._require(attributes, "sign")


class SubjectRestriction(_OfRequests):
    name = "CertificateSubjectRestriction"
    verb = "CREATE"

    async def validate(self, attributes: Attributes) -> None:
        """Raises: StatusError 403."""
        spec = (attributes.new or {}).get("spec") or {}
        if spec.get("signerName") != _OF_CLIENTS:
            return
        from minikube_py.api.certificate_requests import BadRequest, organizations, parse_request

        try:
            found = organizations(parse_request(spec.get("request") or ""))
        except BadRequest as error:
            raise attributes.forbidden(f"failed to parse CSR: {error}") from None
        if MASTERS in found:
            raise attributes.forbidden(f"use of {_OF_CLIENTS} signer with {MASTERS} group is not allowed")


def _signed(obj: Json | None) -> tuple[str, list[Json]]:
    status = (obj or {}).get("status") or {}
    return status.get("certificate") or "", status.get("conditions") or []


def plugins(access: Access) -> Iterator[_OfRequests]:
    return (each(access) for each in (Approval, Signing, SubjectRestriction))
