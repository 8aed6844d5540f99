"""Certificate signers: which requests each accepts, and the certificate it issues.

Three of upstream's four signers are here: current APIs cannot name `kubernetes.io/legacy-unknown`.

Source: k8s.io/kubernetes/pkg/controller/certificates/{signer,authority}, pkg/apis/certificates/helpers.go; the order of
names and extensions is that of Go's `crypto/x509`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minikube_py.api.certificate_requests import BadRequest, check_signature, organizations, subject_name
from minikube_py.env import Rng
from minikube_py.errors import MinikubeError

LIFE: Final = timedelta(days=365)
BACKDATED: Final = timedelta(minutes=5)
"""Allows for clocks that are behind."""
SHORT: Final = timedelta(hours=8)
"""Shorter lifetimes are not shortened by the backdating."""
LIFE_MIN: Final = timedelta(minutes=10)
_NODES: Final = ["system:nodes"]
_SIGNATURE, _ENCIPHERMENT, _CLIENT, _SERVER = "digital signature", "key encipherment", "client auth", "server auth"
_DNS, _EMAIL, _IP, _URI = x509.DNSName, x509.RFC822Name, x509.IPAddress, x509.UniformResourceIdentifier
_NAMES: Final = {_DNS: "DNS", _EMAIL: "Email", _IP: "IP", _URI: "URI"}
"""The kinds of names that Go reads, in the order in which it writes them."""
_SUBJECT: Final = (
    NameOID.COUNTRY_NAME, NameOID.STATE_OR_PROVINCE_NAME, NameOID.LOCALITY_NAME, NameOID.STREET_ADDRESS,
    NameOID.POSTAL_CODE, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME,
)  # fmt: skip
_EXTENDED: Final = {_SERVER: ExtendedKeyUsageOID.SERVER_AUTH, _CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}


class CannotSign(MinikubeError):
    """The message is upstream's. Signing is retried."""


def names_of(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    """The subject alternative names that Go reads, by kind. Raises: CannotSign."""
    try:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise CannotSign(f"unable to parse certificate request: {error}") from None
    return [name for sort in _NAMES for name in found if isinstance(name, sort)]


# --- accepted requests ----------------------------------------------------------------------------------------------


def _uses_fault(usages: Collection[str], wanted: str) -> str:
    needed = {_SIGNATURE, wanted}
    if {*usages} in (needed, {*needed, _ENCIPHERMENT}):
        return ""
    return f"usages did not match [{' '.join(sorted({*needed, _ENCIPHERMENT}))}]"


def _names_fault(request: x509.CertificateSigningRequest, *sorts: type[x509.GeneralName]) -> str:
    found = {type(name) for name in names_of(request)}
    return next((f"{_NAMES[sort]} subjectAltNames are not allowed" for sort in sorts if sort in found), "")


def _node_fault(request: x509.CertificateSigningRequest) -> str:
    named = subject_name(request).startswith("system:node:")
    return "" if named else "subject common name does not begin with system:node:"


def kubelet_fault(request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    """Why the request does not identify a node; "" if it does."""
    if organizations(request) != _NODES:
        return "subject organization is not system:nodes"
    return _names_fault(request, _DNS, _EMAIL, _IP, _URI) or _node_fault(request) or _uses_fault(usages, _CLIENT)


def _serving_fault(request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    if organizations(request) != _NODES:
        return "subject organization is not system:nodes"
    if not any(isinstance(name, (_DNS, _IP)) for name in names_of(request)):
        return "DNS or IP subjectAltName is required"
    return _names_fault(request, _EMAIL, _URI) or _uses_fault(usages, _SERVER) or _node_fault(request)


def _client_fault(request: x509.CertificateSigningRequest, usages: Collection[str]) -> str:
    for usage in usages:
        if usage not in (_SIGNATURE, _ENCIPHERMENT, _CLIENT):
            return f"invalid usage for client certificate: {usage}"
    return "" if _CLIENT in usages else f"missing required usage for client certificate: {_CLIENT}"


SIGNERS: Final[Mapping[str, Callable[[x509.CertificateSigningRequest, Collection[str]], str]]] = {
    "kubernetes.io/kubelet-serving": _serving_fault,
    "kubernetes.io/kube-apiserver-client-kubelet": kubelet_fault,
    "kubernetes.io/kube-apiserver-client": _client_fault,
}
"""Per signer: why it rejects a request."""


# --- issued certificates --------------------------------------------------------------------------------------------


class Term(NamedTuple):
    begins: datetime
    ends: datetime


def term(asked_s: int | None, now: datetime, authority_ends: datetime) -> Term:
    """The validity period of a certificate. Raises: CannotSign where the authority has expired."""
    lasts = LIFE if asked_s is None else min(max(timedelta(seconds=asked_s), LIFE_MIN), LIFE)
    begins, ends = now - BACKDATED, now + lasts - (timedelta(0) if lasts < SHORT else BACKDATED)
    if begins >= authority_ends:
        raise CannotSign(f"the signer has expired: NotAfter={authority_ends}")
    if now >= authority_ends:
        raise CannotSign(f"refusing to sign a certificate that expired in the past: NotAfter={authority_ends}")
    return Term(begins, min(ends, authority_ends))


def _subject(name: x509.Name) -> x509.Name:
    """As Go writes it: only known attributes, grouped by type; for single-valued ones the last."""

    def parts() -> Iterator[Sequence[x509.NameAttribute[Any]]]:
        for sort in _SUBJECT:
            yield name.get_attributes_for_oid(sort)
        for sort in (NameOID.COMMON_NAME, NameOID.SERIAL_NUMBER):
            yield name.get_attributes_for_oid(sort)[-1:]

    return x509.Name([x509.RelativeDistinguishedName(dict.fromkeys(held)) for held in parts() if held])


def _extensions(
    request: x509.CertificateSigningRequest, usages: Iterable[str], issuer: x509.Extensions
) -> Iterator[tuple[Any, bool]]:
    """Each with its criticality."""
    uses, names = {*usages}, names_of(request)
    if _SIGNATURE in uses or _ENCIPHERMENT in uses:
        yield x509.KeyUsage(_SIGNATURE in uses, False, _ENCIPHERMENT in uses, *[False] * 6), True
    if extended := [oid for use, oid in _EXTENDED.items() if use in uses]:
        yield x509.ExtendedKeyUsage(extended), False
    yield x509.BasicConstraints(ca=False, path_length=None), True
    with suppress(x509.ExtensionNotFound):
        key = issuer.get_extension_for_class(x509.SubjectKeyIdentifier).value
        yield x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key), False
    if names:
        yield x509.SubjectAlternativeName(names), not request.subject.rdns


class SigningAuthority:
    """Signs approved requests, by a certificate and its key in PEM. Raises: ValueError, TypeError."""

    def __init__(self, certificate_pem: bytes, key_pem: bytes) -> None:
        self._certificate = x509.load_pem_x509_certificate(certificate_pem)
        self._key: Any = serialization.load_pem_private_key(key_pem, password=None)
        if self._certificate.public_key() != self._key.public_key():
            raise ValueError("the key is not that of the certificate")

    def sign(
        self, request: x509.CertificateSigningRequest, usages: Iterable[str], asked_s: int | None, now_s: float,
        rng: Rng,
    ) -> bytes:  # fmt: skip
        """Returns PEM. Raises: CannotSign."""
        try:
            check_signature(request)
        except BadRequest as error:
            raise CannotSign(f"unable to verify certificate request signature: {error}") from None
        begins, ends = term(asked_s, datetime.fromtimestamp(int(now_s), UTC), self._certificate.not_valid_after_utc)
        builder = (
            x509.CertificateBuilder(self._certificate.subject, _subject(request.subject), request.public_key())  # type: ignore[arg-type]
            .serial_number(rng.getrandbits(128) or 1)
            .not_valid_before(begins)
            .not_valid_after(ends)
        )
        for extension, critical in _extensions(request, usages, self._certificate.extensions):
            builder = builder.add_extension(extension, critical)
        hashed = None if isinstance(self._key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        return builder.sign(self._key, hashed).public_bytes(serialization.Encoding.PEM)
