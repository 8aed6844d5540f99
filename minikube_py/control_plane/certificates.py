"""A private certificate authority, the server certificate shared by the roles, and the mutual ones of store members.

EC keys on P-256. Created at the first start, reused later, renewed before they expire. If only the server certificate
is about to expire the authority is kept, so that existing kubeconfigs stay valid.

Clients of the API have a separate authority, which signs CertificateSigningRequests: none of its certificates is valid
for a store, or as the API server's (docs/adr/0034)."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minikube_py.apiserver.outgoing import FrontProxy
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import make_private_folder, read_text, write_private
from minikube_py.control_plane.tls import client_context, server_context
from minikube_py.env import Rng

AUTHORITY_NAME = "minikube_py-ca"
AUTHORITY_LIFE = timedelta(days=3650)
SERVER_LIFE = timedelta(days=365)
RENEW_BEFORE = timedelta(days=30)
_BACKDATE = timedelta(hours=1)  # the certificates must be valid for clients whose clock is slightly behind

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PROXY_NAME = "front-proxy-client"
ALWAYS_NAMED = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Certificates:
    """The PEM files. `authority_pem` is what a client must trust; `clients_file` is the authority of client
    certificates."""

    authority_file: Path
    server_file: Path
    server_key_file: Path
    authority_pem: bytes
    clients_file: Path
    clients_key_file: Path

    def server_context(self) -> ssl.SSLContext:
        return server_context(self.server_file, self.server_key_file)

    def api_context(self) -> ssl.SSLContext:
        """Clients may use a certificate."""
        return server_context(self.server_file, self.server_key_file, self.clients_file.read_bytes())

    def client_context(self) -> ssl.SSLContext:
        return client_context(self.authority_pem)


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs certificates of servers and peers."""

    certificate: x509.Certificate
    key: Key

    @classmethod
    def read(cls, certificate_file: Path, key_file: Path) -> Authority:
        """Raises: OSError, ValueError if the files are not a certificate and its key."""
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = _load_key(key_file)
        if certificate.public_key() != key.public_key():
            raise ValueError(f"{key_file} is not the key of {certificate_file}")
        return cls(certificate, key)

    @property
    def pem(self) -> bytes:
        return _pem(self.certificate)

    def lasts(self, now: datetime) -> bool:
        """Whether it need not be renewed yet."""
        return _lasts(self.certificate, now)

    def ensure_leaf(
        self,
        certificate_file: Path,
        key_file: Path,
        names: Iterable[str],
        *,
        common_name: str = "minikube_py",
        client: bool = False,
        now: datetime | None = None,
    ) -> bool:
        """A certificate for `names` (host names or addresses) and its key, created if those in the files are not valid
        any more; whether they were created. `client`: also usable by a client, as store members do with each other.
        Raises: SetupError if the files cannot be written."""
        now = now or datetime.now(UTC)
        wanted = _general_names(names)
        if _leaf_is_good(certificate_file, key_file, self.certificate, wanted, client, now):
            return False
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(key, common_name, wanted, client, now)
        write_private(key_file, _key_pem(key))
        write_private(certificate_file, _pem(certificate))
        return True

    def _sign(
        self,
        key: ec.EllipticCurvePrivateKey,
        common_name: str,
        names: list[x509.GeneralName],
        client: bool,
        now: datetime,
    ) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            _builder(name, self.certificate.subject, key.public_key(), now, SERVER_LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(_usages(client)), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(issuer_id, critical=False)
            .sign(self.key, hashes.SHA256())
        )


@dataclass(frozen=True, slots=True)
class ProxyFiles:
    """By which other API servers know this one: certificate and key, and the authority that signed it; PEM."""

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None

    def read(self, clients: Path | None, now: datetime | None = None) -> FrontProxy:
        """`clients`: the authority of client certificates. Raises: SetupError."""
        now = now or datetime.now(UTC)
        pem, users = (
            "" if path is None else _published(path, f"authority of {what}", now)
            for path, what in ((self.authority, "front proxies"), (clients, "clients"))
        )
        try:
            if self.certificate is not None and self.key is not None:
                ssl.create_default_context().load_cert_chain(self.certificate, self.key)
            name = "" if self.certificate is None else _common_name(self.certificate)
        except (OSError, ValueError) as error:
            raise SetupError(f"{self.certificate} and {self.key} are not a certificate and its key: {error}") from error
        return FrontProxy(self.certificate, self.key, pem, users, name)


NO_PROXY = ProxyFiles()


def ensure_certificates(folder: Path, names: Iterable[str] = (), now: datetime | None = None) -> Certificates:
    """The certificates in `folder`, created or renewed if needed.

    The server certificate is for localhost, 127.0.0.1, ::1, this host's name and `names` (host names or addresses).
    Raises: SetupError if the folder cannot be written."""
    make_private_folder(folder)
    authority = ensure_authority(folder / "ca.crt", folder / "ca.key", now)
    server_file, key_file = folder / "server.crt", folder / "server.key"
    authority.ensure_leaf(server_file, key_file, [*ALWAYS_NAMED, socket.gethostname(), *names], now=now)
    clients = folder / "client-ca.crt", folder / "client-ca.key"
    ensure_authority(*clients, now, "minikube_py-client-ca")
    return Certificates(folder / "ca.crt", server_file, key_file, authority.pem, *clients)


def ensure_peer_certificate(folder: Path, names: Iterable[str] = (), now: datetime | None = None) -> tuple[Path, Path]:
    """The mutual certificate of store members on this host and its key, signed by the authority in `folder`. Raises:
    SetupError."""
    authority = ensure_authority(folder / "ca.crt", folder / "ca.key", now)
    files = folder / "peer.crt", folder / "peer.key"
    hosts = [*ALWAYS_NAMED, socket.gethostname(), *names]
    authority.ensure_leaf(*files, hosts, common_name="store-peer", client=True, now=now)
    return files


def ensure_client_certificate(folder: Path, name: str, now: datetime | None = None) -> tuple[Path, Path]:
    """`name`.crt, a client certificate, and its key, signed by the authority in `folder`. Raises: SetupError."""
    authority = ensure_authority(folder / "ca.crt", folder / "ca.key", now)
    files = folder / f"{name}.crt", folder / f"{name}.key"
    authority.ensure_leaf(*files, [name], common_name=name, client=True, now=now)
    return files


def ensure_front_proxy(folder: Path, now: datetime | None = None) -> ProxyFiles:
    """Signed by an authority of their own: who holds its certificate may name any user. Raises: SetupError."""
    files = folder / "front-proxy-ca.crt", folder / "front-proxy-ca.key"
    authority = ensure_authority(*files, now, "minikube_py-front-proxy-ca")
    leaf = folder / f"{PROXY_NAME}.crt", folder / f"{PROXY_NAME}.key"
    authority.ensure_leaf(*leaf, [PROXY_NAME], common_name=PROXY_NAME, client=True, now=now)
    return ProxyFiles(*leaf, files[0])


def ensure_authority(
    certificate_file: Path, key_file: Path, now: datetime | None = None, name: str = AUTHORITY_NAME
) -> Authority:
    """The authority in the files, created if they hold no valid one. Raises: SetupError."""
    now = now or datetime.now(UTC)
    try:
        authority = Authority.read(certificate_file, key_file)
        if authority.lasts(now):
            return authority
    except (OSError, ValueError):
        pass
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _authority(key.public_key(), name, now).sign(key, hashes.SHA256())
    write_private(key_file, _key_pem(key))
    write_private(certificate_file, _pem(certificate))
    return Authority(certificate, key)


def drawn_authority(rng: Rng, now: datetime) -> tuple[bytes, bytes]:
    """Certificate and key, as PEM, of an authority that `rng` decides to the byte: Ed25519, because its signatures
    repeat."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
    builder = _authority(key.public_key(), AUTHORITY_NAME, now, rng.getrandbits(159) | 1)
    return _pem(builder.sign(key, None)), _key_pem(key)


def _authority(key: CertificatePublicKeyTypes, name: str, now: datetime, number: int = 0) -> x509.CertificateBuilder:
    """Of one that signs itself. `number`: its serial number; 0: a random one."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}@{int(now.timestamp())}")])
    return (
        _builder(subject, subject, key, now, AUTHORITY_LIFE, number)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _leaf_is_good(
    certificate_file: Path,
    key_file: Path,
    authority: x509.Certificate,
    wanted: list[x509.GeneralName],
    client: bool,
    now: datetime,
) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = _load_key(key_file)
        certificate.verify_directly_issued_by(authority)
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    fits = set(wanted) <= set(named) and set(_usages(client)) <= set(usages)
    return fits and certificate.public_key() == key.public_key() and _lasts(certificate, now)


def _usages(client: bool) -> list[x509.ObjectIdentifier]:
    server = [ExtendedKeyUsageOID.SERVER_AUTH]
    return [*server, ExtendedKeyUsageOID.CLIENT_AUTH] if client else server


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: CertificatePublicKeyTypes,
    now: datetime,
    life: timedelta,
    number: int = 0,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(number or x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + life)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _published(path: Path, what: str, now: datetime) -> str:
    """The certificates in the file that have not expired, once each, as PEM: whatever else it holds, a private key
    perhaps, is for nobody else. Raises: SetupError.

    Source: kubernetes `pkg/controlplane/controller/clusterauthenticationtrust`."""
    try:
        found = x509.load_pem_x509_certificates(read_text(path, what).encode())
    except ValueError as error:
        raise SetupError(f"{path} holds no certificates ({what}): {error}") from error
    return "".join(dict.fromkeys(_pem(each).decode() for each in found if each.not_valid_after_utc >= now))


def _common_name(certificate_file: Path) -> str:
    """"" if it has none. Raises: OSError, ValueError if the file is no certificate."""
    subject = x509.load_pem_x509_certificate(certificate_file.read_bytes()).subject
    return "".join(str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME))


def _general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    unique: dict[x509.GeneralName, None] = {}
    for name in names:
        try:
            unique[x509.IPAddress(ipaddress.ip_address(name))] = None
        except ValueError:
            unique[x509.DNSName(name.lower())] = None
    return list(unique)


def _lasts(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - RENEW_BEFORE


def _load_key(path: Path) -> Key:
    key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Key):
        raise ValueError(f"{path} holds no EC or RSA key")
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
