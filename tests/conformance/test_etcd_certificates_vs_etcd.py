"""Certificates with any number of names beside a real etcd: as whom gRPC serves them, and what the gateway says.

Source: etcd's auth/store.go (AuthInfoFromTLS) and embed/serve.go (accessController)."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from etcd_api import Caller, RealEtcd, ours
from patience import PATIENCE_S

from minikube_py.control_plane.certificates import ensure_certificates
from minikube_py.control_plane.etcd_door import EtcdOptions
from minikube_py.control_plane.role import TlsFiles
from minikube_py.etcd.http import NAMED
from minikube_py.etcd.messages import pb

pytestmark = pytest.mark.original
CN, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
SUBJECTS: dict[str, list[list[tuple[x509.ObjectIdentifier, str]]]] = {
    "nobody": [[(OU, "a")]],
    "empty": [],
    "root": [[(CN, "root")]],
    "unknown": [[(CN, "unknown")]],
    "u1-then-root": [[(CN, "u1")], [(OU, "a")], [(CN, "root")]],
    "root-then-u1": [[(CN, "root")], [(CN, "u1")]],
    "both-in-one": [[(CN, "root"), (CN, "u1")]],
}
ASKED = [
    ("POST", "/v3/kv/range", b'{"key":"YQ=="}'),
    ("POST", "/v3/auth/authenticate", b'{"name":"root","password":"p"}'),
    ("POST", "/v3/auth/authenticate", b"{"),
    ("POST", "/v3beta/kv/range", b'{"key":"YQ=="}'),
    ("GET", "/v3/kv/range", b""),
    ("POST", "/v3/none", b"{}"),
    ("GET", "/v3/", b""),
]
PLAIN = [("GET", "/version"), ("GET", "/health?serializable=true"), ("GET", "/livez")]


class Side(NamedTuple):
    grpc_port: int
    http_port: int
    keys: Path

    def caller(self, name: str, number: int) -> Caller:
        pem = [(self.keys / file).read_bytes() for file in ("ca.crt", f"{name}.key", f"{name}.crt")]
        return Caller(f"127.0.0.1:{self.grpc_port}", grpc.ssl_channel_credentials(*pem), unshared=f"{name}{number}")

    def ask(self, name: str, method: str, path: str, body: bytes = b"") -> Any:
        context = ssl.create_default_context(cafile=str(self.keys / "ca.crt"))
        context.load_cert_chain(self.keys / f"{name}.crt", self.keys / f"{name}.key")
        connection = http.client.HTTPSConnection("127.0.0.1", self.http_port, context=context, timeout=PATIENCE_S)
        # Without this header etcd takes its gateway's own certificate for the client's.
        connection.request(method, path, body, {"Accept": "*/*"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        kinds = [answer.getheader(name) for name in ("Content-Type", "X-Content-Type-Options")]
        # Go's protobuf varies in its blanks.
        return answer.status, kinds, json.loads(text) if kinds[0] == "application/json" else text


def make(folder: Path, name: str, subject: list[list[tuple[x509.ObjectIdentifier, str]]]) -> None:
    """A client certificate of the folder's authority."""
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    parts = [x509.RelativeDistinguishedName([x509.NameAttribute(*each) for each in part]) for part in subject]
    certificate = (
        x509.CertificateBuilder(authority.subject, x509.Name(parts), key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """A real etcd and ours, without authentication at first."""
    folder = tmp_path_factory.mktemp("certificates")
    ensure_certificates(folder)
    for name, subject in SUBJECTS.items():
        make(folder, name, subject)
    files = TlsFiles(folder / "server.crt", folder / "server.key")
    options = EtcdOptions("", files, folder / "ca.crt")
    pem = [(folder / file).read_bytes() for file in ("ca.crt", "root.key", "root.crt")]
    etcd = RealEtcd(
        folder / "theirs", "--client-cert-auth", "--trusted-ca-file", str(folder / "ca.crt"),
        "--cert-file", str(folder / "server.crt"), "--key-file", str(folder / "server.key"),
        # As whom its gateway asks itself.
        "--client-cert-file", str(folder / "nobody.crt"), "--client-key-file", str(folder / "nobody.key"),
        credentials=grpc.ssl_channel_credentials(*pem),
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            ours(folder / "ours", http=True, tls=options.context("h2"), http_tls=options.context("http/1.1"))
        )
        stack.callback(etcd.end)
        etcd.start()
        port = int(etcd.place.rpartition(":")[2])
        yield Side(port, port, folder), Side(server.port, server.http_port, folder)


NUMBERS = itertools.count()


def asked_of_both(both: tuple[Side, Side], name: str, method: str, request: Any) -> Any:
    answers = []
    for side in both:
        with contextlib.closing(side.caller(name, next(NUMBERS))) as caller:
            code, answer = caller.call(method, request)
        if isinstance(answer, dict):
            answer.pop("header", None)
        answers.append((code, answer))
    assert answers[0] == answers[1], (name, method)
    return answers[0]


def enable(both: tuple[Side, Side]) -> None:
    for method, request in (
        ("Auth/UserAdd", pb.AuthUserAddRequest(name="root", password="p")),
        ("Auth/UserAdd", pb.AuthUserAddRequest(name="u1", password="p")),
        ("Auth/UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root")),
        ("Auth/AuthEnable", pb.AuthEnableRequest()),
    ):
        assert asked_of_both(both, "root", method, request)[0] == "ok"


CALLS = [
    ("KV/Range", pb.RangeRequest(key=b"a")),
    ("KV/Range", pb.RangeRequest(key=b"a", serializable=True)),
    ("KV/Put", pb.PutRequest(key=b"a", value=b"x")),
    ("KV/DeleteRange", pb.DeleteRangeRequest(key=b"b")),
    ("KV/Txn", pb.TxnRequest(success=[pb.RequestOp(request_range=pb.RangeRequest(key=b"a"))])),
    ("KV/Txn", pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"a"))])),
    ("KV/Compact", pb.CompactionRequest(revision=1)),
    ("Lease/LeaseGrant", pb.LeaseGrantRequest(TTL=100, ID=7)),
    ("Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=7, keys=True)),
    ("Lease/LeaseLeases", pb.LeaseLeasesRequest()),
    ("Lease/LeaseRevoke", pb.LeaseRevokeRequest(ID=7)),
    ("Auth/UserList", pb.AuthUserListRequest()),
    ("Auth/UserGet", pb.AuthUserGetRequest(name="u1")),
    ("Auth/RoleAdd", pb.AuthRoleAddRequest(name="root")),
    ("Auth/AuthStatus", pb.AuthStatusRequest()),
    ("Maintenance/Alarm", pb.AlarmRequest()),
]


def test_a_certificate_is_whom_etcd_takes_it_for(both: tuple[Side, Side]) -> None:
    for name in SUBJECTS:
        for method, path, body in ASKED:
            # Without authentication a name is no reason to refuse; what they say of their own differs.
            assert both[0].ask(name, method, path, body)[0] == both[1].ask(name, method, path, body)[0]
    enable(both)
    got = {name: [asked_of_both(both, name, *call)[0] for call in CALLS] for name in SUBJECTS}
    assert got["u1-then-root"][:6] == got["root"][:6] != got["root-then-u1"][:6]
    refused = {}
    for name in SUBJECTS:
        for method, path, body in ASKED:
            theirs, mine = (side.ask(name, method, path, body) for side in both)
            if b"password" not in body or theirs[0] != 200:
                assert mine == theirs, (name, method, path)
            assert mine[0] == theirs[0]
            refused[name] = refused.get(name, 0) + (theirs[2] == f"{NAMED}\n".encode())
        for method, path in PLAIN:
            assert both[0].ask(name, method, path)[0] == both[1].ask(name, method, path)[0] == 200
    assert refused == {name: 0 if name in ("nobody", "empty") else len(ASKED) for name in SUBJECTS}
