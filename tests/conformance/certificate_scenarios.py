"""Requests for certificates beside a controller manager: which of them are approved, and with what words."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minikube_py.client.rest import CERTIFICATE_REQUESTS, RestClient

Settled = Callable[[RestClient, Callable[[], Awaitable[Any]]], Awaitable[Any]]
_KEY = ec.derive_private_key(7, ec.SECP256R1())
_KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
_USES = ("digital signature", "client auth")
_TIMES = ("lastUpdateTime", "lastTransitionTime")


def _request(
    organizations: Sequence[str] = ("system:nodes",), name: str = "system:node:n1", dns: Sequence[str] = ()
) -> str:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    )
    if dns:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in dns]), False)
    pem = builder.sign(_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()


_ASKED: dict[str, dict[str, Any]] = {
    "good": {}, "encipherment": {"usages": [*_USES, "key encipherment"]}, "other-uses": {"usages": ["client auth"]},
    "more-uses": {"usages": [*_USES, "server auth"]}, "other-signer": {"signerName": "example.com/kubelets"},
    "serving": {"signerName": "kubernetes.io/kubelet-serving"}, "no-node": {"request": _request(name="n1")},
    "other-group": {"request": _request(("system:masters",))},
    "two-groups": {"request": _request(("system:nodes", "x"))},
    "named": {"request": _request(dns=("n1",))},
}  # fmt: skip


def approved(settled: Settled) -> Callable[[RestClient], Awaitable[Any]]:
    async def scenario(client: RestClient) -> Any:
        async def ask() -> Any:
            found = {each["metadata"]["name"]: each["status"] for each in await client.list(CERTIFICATE_REQUESTS)}
            for status in found.values():
                for condition in status.get("conditions") or ():
                    condition.update((name, bool(condition.get(name))) for name in _TIMES)
            return found

        for name, spec in _ASKED.items():
            whole = {"request": _request(), "signerName": _KUBELET, "usages": _USES, **spec}
            await client.create(CERTIFICATE_REQUESTS, {"metadata": {"name": name}, "spec": whole})
        told = await settled(client, ask)
        for name in _ASKED:
            await client.delete(CERTIFICATE_REQUESTS, name)
        return told

    return scenario
