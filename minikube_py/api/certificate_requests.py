"""PKCS#10 requests for certificates, and certificates, as Go's `x509` takes them from PEM.

Source: kubernetes `pkg/apis/certificates/helpers.go`, `pkg/apis/certificates/validation`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import load_der_private_key
from cryptography.x509.oid import NameOID

from minikube_py.api.errors import go_quote
from minikube_py.api.memo import remembered

REQUEST: Final = "CERTIFICATE REQUEST"
CERTIFICATE: Final = "CERTIFICATE"
_BEGIN, _END, _DASHES = b"\n-----BEGIN ", b"\n-----END ", b"-----"
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/]*={0,2}")
_ORGANIZATION: Final = NameOID.ORGANIZATION_NAME
_UNREADABLE: Final = (ValueError, UnsupportedAlgorithm, InternalError, x509.InvalidVersion)


class BadRequest(ValueError):
    """An invalid request, with upstream's message if it has one."""


class _Block(NamedTuple):
    kind: str
    headers: bool
    der: bytes


def _blocks(pem: bytes) -> Iterator[_Block]:
    """What Go's `pem.Decode` finds, again and again. In one pass: text may be full of beginnings without an end."""
    at = end = 0
    while True:
        if not pem.startswith(_BEGIN[1:], at):
            at = pem.find(_BEGIN, at) + 1
            if not at:
                return
        kind, at = _line(pem, at + len(_BEGIN) - 1)
        if not kind.endswith(_DASHES):
            continue
        headers = False
        while True:
            if at >= len(pem):
                return
            line, following = _line(pem, at)
            if b":" not in line:
                break
            headers, at = True, following
        if not headers and pem.startswith(_END[1:], at):
            last, behind = at, at + len(_END) - 1
        else:
            if end < at:
                end = pem.find(_END, at)
                if end < 0:
                    end = len(pem)
            last, behind = end, end + len(_END)
        stop = behind + len(kind)
        # First what is short: the part up to the end may be that of each beginning.
        if pem.find(b"-", at, last) >= 0 or pem[behind:stop] != kind or _line(pem, stop)[0]:
            continue
        text = pem[at:last].translate(None, b" \t\r\n")
        if len(text) % 4 or not _BASE64.fullmatch(text):
            continue
        _, at = _line(pem, last + len(_END) - 1)
        yield _Block(kind.removesuffix(_DASHES).decode("utf-8", "replace"), headers, base64.b64decode(text))


def _line(text: bytes, at: int) -> tuple[bytes, int]:
    """The line at `at` without blanks behind it, and where the next one begins."""
    end = text.find(b"\n", at)
    if end < 0:
        return text[at:].rstrip(b" \t"), len(text)
    return text[at : end - (end > at and text[end - 1] == 0x0D)].rstrip(b" \t"), end + 1


@remembered(64, 32 << 10)
def parse_request(encoded: str) -> x509.CertificateSigningRequest:
    """`encoded`: PEM, in base64. Raises: BadRequest."""
    block = next(_blocks(base64.b64decode(encoded)), None)
    if block is None or block.kind != REQUEST:
        raise BadRequest(f"PEM block type must be {REQUEST}")
    try:
        request = x509.load_der_x509_csr(block.der)
        organizations(request)
        return request
    except _UNREADABLE as error:
        raise BadRequest(f"asn1: structure error: {error}") from None


def check_signature(request: x509.CertificateSigningRequest) -> None:
    """Raises: BadRequest."""
    try:
        good, key = request.is_signature_valid, request.public_key()
    except _UNREADABLE:
        raise BadRequest("x509: cannot verify signature: algorithm unimplemented") from None
    if good:
        return
    if isinstance(key, ec.EllipticCurvePublicKey):
        raise BadRequest("x509: ECDSA verification failure")
    if isinstance(key, ed25519.Ed25519PublicKey):
        raise BadRequest("x509: Ed25519 verification failure")
    raise BadRequest("crypto/rsa: verification error")


def organizations(request: x509.CertificateSigningRequest) -> list[str]:
    return [str(each.value) for each in request.subject.get_attributes_for_oid(_ORGANIZATION)]


def subject_name(request: x509.CertificateSigningRequest) -> str:
    """The last common name, as Go has it."""
    return "".join(str(each.value) for each in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[-1:])


def ends_s(encoded: str) -> float | None:
    """The expiry of the first certificate in base64 PEM."""
    block = next(_blocks(base64.b64decode(encoded)), None)
    try:
        return None if block is None else x509.load_der_x509_certificate(block.der).not_valid_after_utc.timestamp()
    except _UNREADABLE:
        return None


def check_certificates(encoded: str) -> None:
    """Of PEM in base64, which may be empty. Raises: BadRequest."""
    if not encoded:
        return
    found = list(_blocks(base64.b64decode(encoded)))
    for block in found:
        if block.kind != CERTIFICATE:
            raise BadRequest(f"only CERTIFICATE PEM blocks are allowed, found {go_quote(block.kind)}")
        if block.headers:
            raise BadRequest("no PEM block headers are permitted")
        try:
            x509.load_der_x509_certificate(block.der)
        except _UNREADABLE as error:
            raise BadRequest(f"x509: malformed certificate: {error}") from None
    if not found:
        raise BadRequest("must contain at least one CERTIFICATE PEM block")


_PAIRED: Final = (
    (rsa.RSAPublicKey, rsa.RSAPrivateKey), (ec.EllipticCurvePublicKey, ec.EllipticCurvePrivateKey),
    (ed25519.Ed25519PublicKey, ed25519.Ed25519PrivateKey),
)  # fmt: skip


def pair_error(certificates: bytes, key: bytes) -> str:
    """What Go's `tls.X509KeyPair` says of these texts; "": they are a pair. Source: crypto/tls/tls.go."""
    kinds, chain = [], []
    for block in _blocks(certificates):
        chain.append(block.der) if block.kind == CERTIFICATE else kinds.append(block.kind)
    if not chain:
        if not kinds:
            return "tls: failed to find any PEM data in certificate input"
        if len(kinds) == 1 and kinds[0].endswith("PRIVATE KEY"):
            switched = "but did find a private key; PEM inputs may have been switched"
            return f"tls: failed to find certificate PEM data in certificate input, {switched}"
        skipped = f"certificate input after skipping PEM blocks of the following types: [{' '.join(kinds)}]"
        return f'tls: failed to find "CERTIFICATE" PEM block in {skipped}'
    kinds = []
    for block in _blocks(key):
        if block.kind == "PRIVATE KEY" or block.kind.endswith(" PRIVATE KEY"):
            return _unlike(chain[0], block.der)
        kinds.append(block.kind)
    if not kinds:
        return "tls: failed to find any PEM data in key input"
    if kinds == [CERTIFICATE]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    skipped = f"key input after skipping PEM blocks of the following types: [{' '.join(kinds)}]"
    return f'tls: failed to find PEM block with type ending in "PRIVATE KEY" in {skipped}'


def _unlike(certificate: bytes, key: bytes) -> str:
    try:
        public = x509.load_der_x509_certificate(certificate).public_key()
    except UnsupportedAlgorithm:
        return "tls: unknown public key algorithm"
    except _UNREADABLE:
        return "x509: malformed certificate"
    try:
        # Its numbers are compared, not tested: a test of a long key's primes takes a tenth of a second.
        private = load_der_private_key(key, None, unsafe_skip_rsa_key_validation=True)
    except (*_UNREADABLE, TypeError):
        return "tls: failed to parse private key"
    if isinstance(private, x25519.X25519PrivateKey):
        return "tls: found unknown private key type in PKCS#8 wrapping"
    if not isinstance(private, tuple(each for _, each in _PAIRED)):
        return "tls: failed to parse private key"
    for wanted, kind in _PAIRED:
        if isinstance(public, wanted):
            if not isinstance(private, kind):
                return "tls: private key type does not match public key type"
            return "" if private.public_key() == public else "tls: private key does not match public key"
    return "tls: unknown public key algorithm"
