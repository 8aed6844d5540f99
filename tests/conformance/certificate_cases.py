"""Requests for certificates: what may be asked for, who may approve and sign what."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator
from typing import Any

from asking import Ask
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

GROUP = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
_ADMIN = (("Impersonate-User", "alice"), ("Impersonate-Group", "system:masters"), ("Impersonate-Uid", "u1"), ("Impersonate-Extra-Team", "a"))
_BOB = (("Impersonate-User", "bob"), ("Impersonate-Group", "system:authenticated"))
_SIGNER = "example.com/serving"
_USES = ["client auth", "digital signature"]
_PEM = serialization.Encoding.PEM


def _coded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def _named(*parts: tuple[Any, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def _request(key: Any, subject: x509.Name = _named((NameOID.COMMON_NAME, "me"))) -> bytes:  # noqa: B008
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, digest).public_bytes(_PEM)


def _spoilt(pem: bytes) -> bytes:
    """With another signature of the same length."""
    lines = pem.strip().split(b"\n")
    der = bytearray(base64.b64decode(b"".join(lines[1:-1])))
    der[-3] ^= 1
    text = base64.encodebytes(bytes(der))
    return lines[0] + b"\n" + text + lines[-1] + b"\n"


_EC, _RSA, _ED = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()
_GOOD = _request(_EC)
_DAY = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
_CERTIFICATE = (
    x509.CertificateBuilder().subject_name(_named((NameOID.COMMON_NAME, "me"))).issuer_name(_named((NameOID.COMMON_NAME, "ca")))
    .public_key(_EC.public_key()).serial_number(7).not_valid_before(_DAY).not_valid_after(_DAY + datetime.timedelta(days=9)).sign(_EC, hashes.SHA256()).public_bytes(_PEM)
)  # fmt: skip


def _ask(name: str, spec: dict[str, Any], dry: bool = True, **more: Any) -> Ask:
    whole = {"request": _coded(_GOOD), "signerName": _SIGNER, "usages": _USES, **spec}
    body = {"metadata": {"name": name}, "spec": {key: value for key, value in whole.items() if value is not None}, **more}
    return Ask("asked", "POST", f"{GROUP}?dryRun=All" if dry else GROUP, body, headers=_ADMIN)


def setup() -> Iterator[Ask]:
    rules = [{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests", "certificatesigningrequests/approval", "certificatesigningrequests/status"], "verbs": ["*"]},
             {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"], "verbs": ["approve"]},
             {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/other"], "verbs": ["sign"]}]  # fmt: skip
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "requests"}
    yield Ask("rights", "POST", f"{RBAC}/clusterroles", {"metadata": {"name": "requests"}, "rules": rules})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    yield Ask("rights", "POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": "requests"}, "subjects": [subject], "roleRef": role})


def known() -> tuple[Ask, bytes]:
    return Ask("known", "POST", f"{GROUP}?dryRun=All", {"metadata": {"name": "of-bob"}, "spec": {"request": _coded(_GOOD), "signerName": _SIGNER, "usages": _USES}}, headers=_BOB), b'"of-bob"'


def asked() -> Iterator[Ask]:
    requests = (_GOOD, _request(_RSA), _request(_ED), _spoilt(_GOOD), _spoilt(_request(_RSA)), _spoilt(_request(_ED)), b"", b"x", _CERTIFICATE, b"text\n" + _GOOD, _GOOD + _CERTIFICATE, b"-----BEGIN CERTIFICATE REQUEST-----\n")
    for i, request in enumerate(requests):
        yield _ask(f"request-{i}", {"request": _coded(request)})
    signers = ("", "x", "a/b", "a.b/c", "a.b/c/d", "A.b/c", "a.b/C_", "a..b/c", "a.b/", "/b", "kubernetes.io/legacy-unknown", "kubernetes.io/kube-apiserver-client", f"{'a' * 63}.{'b' * 63}/c", f"{'a' * 64}.b/c",
               f"a.{'b.' * 130}c/d", f"a.b/{'c.' * 300}d", f"a.b/{'c' * 254}")  # fmt: skip
    for i, signer in enumerate(signers):
        yield _ask(f"signer-{i}", {"signerName": signer})
    for i, usages in enumerate(([], None, ["any"], ["x"], ["any", "any"], ["", "server auth", "x", "x"], ["s/mime"])):
        yield _ask(f"usages-{i}", {"usages": usages})
    for i, lasts_s in enumerate((599, 600, 0, -1, 86400, 1 << 31)):
        yield _ask(f"lasts-{i}", {"expirationSeconds": lasts_s})
    masters = _named((NameOID.ORGANIZATION_NAME, "system:masters"), (NameOID.COMMON_NAME, "root"))
    two = _named((NameOID.ORGANIZATION_NAME, "x"), (NameOID.ORGANIZATION_NAME, "system:masters"), (NameOID.COMMON_NAME, "root"))
    for i, subject in enumerate((masters, two)):
        for signer in ("kubernetes.io/kube-apiserver-client", "kubernetes.io/kubelet-serving"):
            yield _ask(f"masters-{i}", {"request": _coded(_request(_EC, subject)), "signerName": signer})
    yield _ask("sender", {"username": "root", "uid": "7", "groups": ["g"], "extra": {"a": ["b"]}}, status={"certificate": "eA==", "conditions": [{"type": "Approved", "status": "True"}]})
    yield Ask("named", "POST", f"{GROUP}?dryRun=All", {"metadata": {"generateName": "g-"}, "spec": {"request": _coded(_GOOD), "signerName": _SIGNER, "usages": _USES}}, headers=_ADMIN)
    yield _ask("a/b", {})
    yield _ask("Any_Name", {})


def _condition(kind: str, status: str = "True", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "R", "message": "m", **more}


def decided() -> Iterator[Ask]:
    """Each of its own request: approved, denied, signed, failed, and what may not be."""
    for i, (sub, *statuses) in enumerate(_DECISIONS):
        name = f"decided-{i}"
        yield _ask(name, {}, dry=False)
        for status in statuses:
            yield Ask(f"decided {sub}", "PATCH", f"{GROUP}/{name}/{sub}".rstrip("/"), {"status": status, "spec": {"signerName": "a.b/other"}, "metadata": {"labels": {"a": "b"}}}, MERGE, headers=_ADMIN)
    name = "whole"
    yield _ask(name, {"expirationSeconds": 3600}, dry=False)
    at = f"{GROUP}/{name}"
    yield Ask("got", "GET", f"{at}/approval")
    yield Ask("changed", "PATCH", f"{at}/approval", {"status": {"conditions": [_condition("Approved")]}}, MERGE, headers=_ADMIN)
    yield Ask("changed", "PATCH", f"{at}/status", [{"op": "add", "path": "/status/certificate", "value": _coded(_CERTIFICATE)}], JSON_PATCH, headers=_ADMIN)
    yield Ask("changed", "PATCH", f"{at}/status", {"status": {"certificate": _coded(_CERTIFICATE + _CERTIFICATE)}}, MERGE, headers=_ADMIN)
    yield Ask("changed", "PATCH", f"{at}/status", {"status": {"certificate": None}}, MERGE, headers=_ADMIN)
    yield Ask("changed", "PATCH", at, {"spec": {"username": "root", "usages": ["any"]}, "metadata": {"annotations": {"a": "b"}}}, MERGE, headers=_ADMIN)
    for path in (at, f"{GROUP}?fieldSelector=spec.signerName%3D{_SIGNER.replace('/', '%2F')}", f"{GROUP}?fieldSelector=spec.signerName%3Dx", f"{GROUP}?fieldSelector=spec.username%3Dx"):
        yield Ask("shown", "GET", path)
        yield Ask("shown", "GET", path, accept=TABLE)
    yield Ask("changed", "DELETE", at)


_DECISIONS: tuple[Any, ...] = (
    ("approval", {"conditions": [_condition("Approved")]}, {"conditions": [_condition("Approved"), _condition("Denied")]}, {"conditions": []}), ("approval", {"conditions": [_condition("Denied")]}, {"conditions": [_condition("Approved")]}),
    ("approval", {"conditions": [_condition("Approved", "False")]}), ("approval", {"conditions": [_condition("Failed", "Unknown"), _condition("", ""), _condition("Odd", "x")]}), ("approval", {"conditions": [_condition("Odd", "False"), _condition("Odd", "True")]}),
    ("approval", {"certificate": _coded(_CERTIFICATE), "conditions": [_condition("Approved")]}), ("approval", {"conditions": [_condition("Odd", "False")]}, {"conditions": [_condition("Odd", "True")]}, {"conditions": [_condition("Odd", "True", lastUpdateTime="2024-01-01T00:00:00Z")]}),
    ("status", {"conditions": [_condition("Approved")]}), ("status", {"conditions": [_condition("Failed")]}, {"conditions": []}), ("status", {"certificate": _coded(b"x")}), ("status", {"certificate": _coded(_GOOD)}), ("status", {"certificate": _coded(b"-----BEGIN CERTIFICATE-----\nA: b\n\n" + _CERTIFICATE[28:])}),
    ("status", {"certificate": _coded(b"note\n" + _CERTIFICATE)}), ("", {"certificate": _coded(_CERTIFICATE)}), ("", {"conditions": [_condition("Approved")]}),
)  # fmt: skip


def allowed() -> Iterator[Ask]:
    """Bob may approve for example.com, sign for one signer of it, and nothing else."""
    for signer in ("example.com/serving", "example.com/other", "example.org/serving"):
        name = f"bob-{signer.replace('/', '-')}"
        yield _ask(name, {"signerName": signer}, dry=False)
        at = f"{GROUP}/{name}"
        yield Ask("bob", "PATCH", f"{at}/status", {"status": {"certificate": _coded(_CERTIFICATE)}}, MERGE, headers=_BOB)
        yield Ask("bob", "PATCH", f"{at}/status", {"metadata": {"labels": {"a": "b"}}}, MERGE, headers=_BOB)
        yield Ask("bob", "PATCH", f"{at}/status", {"status": {"conditions": [_condition("Failed")]}}, MERGE, headers=_BOB)
        yield Ask("bob", "PATCH", f"{at}/approval", {"status": {"conditions": [_condition("Approved"), _condition("Failed")]}}, MERGE, headers=_BOB)
        yield Ask("bob", "PATCH", f"{at}/approval", {"metadata": {"labels": {"a": "c"}}}, MERGE, headers=_BOB)
        yield Ask("bob", "PATCH", at, {"metadata": {"labels": {"a": "d"}}}, MERGE, headers=_BOB)
