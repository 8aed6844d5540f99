"""Writes that are accepted with a warning, or nearly: certificates with their keys, and labels that are deprecated."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator
from typing import Any

from asking import Ask
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa, x25519

from minikube_py.api.pod_warnings import DEPRECATED_LABELS

SECRETS = "/api/v1/namespaces/default/secrets"
SERVICES = "/api/v1/namespaces/default/services"
CAPACITIES = "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities"
_SERIALIZED = serialization.PrivateFormat
_PEM = serialization.Encoding.PEM
_DRY = "?dryRun=All"
HINTS, MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"


def _keys() -> dict[str, Any]:
    return {
        "rsa": rsa.generate_private_key(65537, 2048), "rsa2": rsa.generate_private_key(65537, 2048),
        "ec": ec.generate_private_key(ec.SECP256R1()), "ec384": ec.generate_private_key(ec.SECP384R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(),
    }  # fmt: skip


def _certificate(key: Any) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a.b")])
    start = datetime.datetime(2026, 1, 1)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + datetime.timedelta(days=30))
    return made.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()).public_bytes(_PEM)


def _text(key: Any, form: Any = _SERIALIZED.PKCS8, password: bytes = b"") -> bytes:
    hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return bytes(key.private_bytes(_PEM, form, hidden))


def _block(kind: str, content: bytes = b"abcd") -> bytes:
    return b"-----BEGIN %b-----\n%b\n-----END %b-----\n" % (kind.encode(), base64.b64encode(content), kind.encode())


def pairs() -> Iterator[tuple[str, bytes, bytes]]:
    """A name, the text of certificates and that of a key: each of the one with each of the other."""
    keys = _keys()
    certificates = {name: _certificate(keys[name]) for name in ("rsa", "ec", "ed")}
    certificates["chain"] = certificates["rsa"] + certificates["ec"]
    texts = {name: _text(key) for name, key in keys.items()}
    texts["rsa1"] = _text(keys["rsa"], _SERIALIZED.TraditionalOpenSSL)
    texts["sec1"] = _block("EC PARAMETERS") + _text(keys["ec"], _SERIALIZED.TraditionalOpenSSL)
    texts["hidden"] = _text(keys["rsa"], password=b"x")
    texts["x25519"] = _text(x25519.X25519PrivateKey.generate())
    texts["dsa"] = _text(dsa.generate_private_key(1024))
    more = {
        "empty": b"", "blank": b"\n", "text": b"x", "cut": certificates["rsa"][:-9],
        "request": _block("CERTIFICATE REQUEST"), "two": _block("A") + _block("B C"), "garbage": _block("CERTIFICATE"),
        "garbled": _block("PRIVATE KEY"), "parameters": _block("EC PARAMETERS"),
        "none": _block("", b""),
    }  # fmt: skip
    for first, certificate in (certificates | {"key": texts["rsa"]} | more).items():
        for second, key in (texts | {"certificate": certificates["rsa"]} | more).items():
            yield f"{first} {second}", certificate, key


def cases() -> Iterator[Ask]:
    for name, certificate, key in pairs():
        data = {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(key).decode()}
        body = {"metadata": {"name": "pair"}, "type": "kubernetes.io/tls", "data": data}
        yield Ask(f"pair {name}", "POST", SECRETS + _DRY, body)
    for label in (*DEPRECATED_LABELS, "zone"):
        exists = [{"key": key, "operator": "Exists"} for key in ("a", label)]
        for selector in ({"matchLabels": {label: "x"}}, {"matchExpressions": exists}):
            body = {"metadata": {"name": "c"}, "storageClassName": "c", "nodeTopology": selector}
            yield Ask(f"capacity {label}", "POST", CAPACITIES + _DRY, body)
    for hints in (None, "", "auto", "Auto", "Disabled"):
        for mode in (None, "", "auto", "Auto", "x"):
            given = {name: value for name, value in ((HINTS, hints), (MODE, mode)) if value is not None}
            body = {"metadata": {"name": "s", "annotations": given}, "spec": {"ports": [{"port": 80}]}}
            yield Ask(f"topology {hints} {mode}", "POST", SERVICES + _DRY, body)
