"""PKCS#10 requests for certificates, and certificates, as Go's `x509` takes them from PEM.

Source: kubernetes `pkg/apis/certificates/helpers.go`, `pkg/apis/certificates/validation`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, x25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_private_key
from cryptography.x509.oid import NameOID, SignatureAlgorithmOID

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


_RSA, _EC, _EDWARDS = rsa.RSAPublicKey, ec.EllipticCurvePublicKey, ed25519.Ed25519PublicKey
_CURVES: Final = (ec.SECP224R1, ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_RSA_BITS_MIN: Final = 1024
_INSECURE: Final = "crypto/rsa: %d-bit keys are insecure (see https://go.dev/pkg/crypto/rsa#hdr-Minimum_key_size)"
_MD5: Final = SignatureAlgorithmOID.RSA_WITH_MD5
_PSS: Final = SignatureAlgorithmOID.RSASSA_PSS
_ALGORITHMS: Final[dict[x509.ObjectIdentifier, type]] = {
    SignatureAlgorithmOID.RSA_WITH_MD5: _RSA, SignatureAlgorithmOID.RSA_WITH_SHA1: _RSA,
    x509.ObjectIdentifier("1.3.14.3.2.29"): _RSA, SignatureAlgorithmOID.RSA_WITH_SHA256: _RSA,
    SignatureAlgorithmOID.RSA_WITH_SHA384: _RSA, SignatureAlgorithmOID.RSA_WITH_SHA512: _RSA, _PSS: _RSA,
    SignatureAlgorithmOID.ECDSA_WITH_SHA1: _EC, SignatureAlgorithmOID.ECDSA_WITH_SHA256: _EC,
    SignatureAlgorithmOID.ECDSA_WITH_SHA384: _EC, SignatureAlgorithmOID.ECDSA_WITH_SHA512: _EC,
    SignatureAlgorithmOID.ED25519: _EDWARDS,
}  # fmt: skip
"""What Go verifies (crypto/x509/x509.go, signatureAlgorithmDetails), and of which keys."""
_UNKNOWN: Final = "x509: cannot verify signature: algorithm unimplemented"


def check_signature(request: x509.CertificateSigningRequest) -> None:
    """As Go's `CertificateRequest.CheckSignature`, which takes SHA-1. Raises: BadRequest."""
    try:
        oid, key = request.signature_algorithm_oid, request.public_key()
        kind, hashed = _ALGORITHMS.get(oid), request.signature_hash_algorithm
        how = request.signature_algorithm_parameters
    except _UNREADABLE:
        raise BadRequest(_UNKNOWN) from None
    if isinstance(key, _EC) and not isinstance(key.curve, _CURVES):
        raise BadRequest("x509: unsupported elliptic curve")
    if oid == _MD5:
        raise BadRequest("x509: cannot verify signature: insecure algorithm MD5-RSA")
    signature, signed = request.signature, request.tbs_certrequest_bytes
    if kind is None or not isinstance(key, kind) or (isinstance(key, _RSA) and _is_pss_key(key, signed)):
        raise BadRequest(_UNKNOWN)
    if oid == _PSS and not (hashed is not None and _is_pss_of_go(how, hashed)):
        raise BadRequest(_UNKNOWN)
    if isinstance(key, _RSA) and key.key_size < _RSA_BITS_MIN:
        raise BadRequest(_INSECURE % key.key_size)
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, signed)
        elif isinstance(key, ec.EllipticCurvePublicKey) and isinstance(how, ec.ECDSA):
            key.verify(signature, signed, how)
        elif isinstance(key, rsa.RSAPublicKey) and hashed is not None:
            key.verify(signature, signed, how if isinstance(how, padding.PSS) else padding.PKCS1v15(), hashed)
    except InvalidSignature:
        if kind is _EC:
            raise BadRequest("x509: ECDSA verification failure") from None
        told = "x509: Ed25519 verification failure" if kind is _EDWARDS else "crypto/rsa: verification error"
        raise BadRequest(told) from None
    except _UNREADABLE:
        raise BadRequest(_UNKNOWN) from None


def _is_pss_key(key: rsa.RSAPublicKey, signed: bytes) -> bool:
    """A key for PSS alone, which Go does not know."""
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) not in signed


def _is_pss_of_go(how: object, hashed: hashes.HashAlgorithm) -> bool:
    """Salt as long as the hash, one of three hashes."""
    known = isinstance(hashed, hashes.SHA256 | hashes.SHA384 | hashes.SHA512)
    return bool(known and isinstance(how, padding.PSS) and how._salt_length == hashed.digest_size)


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
