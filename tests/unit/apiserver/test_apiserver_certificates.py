"""Requests for certificates: who sent them is written down, and no bytes that are sent as one harm the server."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from api_core import Core
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, padding, rsa
from hypothesis import given
from hypothesis import strategies as st

from minikube_py.api.certificate_requests import (
    BadRequest,
    _blocks,
    check_certificates,
    check_signature,
    parse_request,
)
from minikube_py.apiserver.rules import AUTHENTICATED, MASTERS, User

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
PEM = (
    x509.CertificateSigningRequestBuilder()
    .subject_name(x509.Name([]))
    .sign(ec.derive_private_key(7, ec.SECP256R1()), hashes.SHA256())
    .public_bytes(serialization.Encoding.PEM)
)
DER = base64.b64decode(b"".join(PEM.strip().split(b"\n")[1:-1]))
SIGNED = x509.load_der_x509_csr(DER).tbs_certrequest_bytes
SENDER = User("ann", (MASTERS, AUTHENTICATED), "u", (("team", ("a", "b")),))


def request(pem: bytes = PEM) -> dict[str, Any]:
    spec = {"request": base64.b64encode(pem).decode(), "signerName": "example.com/x", "usages": ["client auth"]}
    return {"metadata": {"name": "r"}, "spec": {**spec, "username": "root", "groups": ["all"], "extra": {"x": ["y"]}}}


async def done(core: Core, user: User, method: str, path: str, body: dict[str, Any]) -> Any:
    code, answer = await core.ask(method, path, body, user=user)
    assert code in (200, 201), answer
    return answer


async def test_the_sender_is_who_sent_it(core: Core) -> None:
    made = await done(core, SENDER, "POST", PATH, request())
    told = {key: made["spec"][key] for key in ("username", "uid", "groups", "extra")}
    assert told == {"username": "ann", "uid": "u", "groups": [MASTERS, AUTHENTICATED], "extra": {"team": ["a", "b"]}}
    changed = await core.done("PUT", f"{PATH}/r", {**made, "spec": {**made["spec"], "username": "root"}})
    assert changed["spec"] == made["spec"]


async def test_who_may_write_approvals_may_not_approve_for_every_signer(core: Core) -> None:
    rules = [{"apiGroups": ["certificates.k8s.io"], "resources": ["*/approval"], "verbs": ["*"]}]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await core.done("POST", f"{rbac}/clusterroles", {"metadata": {"name": "approver"}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "approver"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    binding = {"metadata": {"name": "approver"}, "roleRef": role, "subjects": [subject]}
    await core.done("POST", f"{rbac}/clusterrolebindings", binding)
    made = await core.done("POST", PATH, request())
    approved = {**made, "status": {"conditions": [{"type": "Approved", "status": "True"}]}}
    code, answer = await core.ask("PUT", f"{PATH}/r/approval", approved, user=User("bob", (AUTHENTICATED,)))
    assert code == 403
    assert 'user not permitted to approve requests with signerName "example.com/x"' in answer["message"]
    answer = await core.done("PUT", f"{PATH}/r/approval", approved)
    assert answer["status"]["conditions"][0]["lastUpdateTime"]


@given(st.integers(0, len(SIGNED) - 1), st.integers(1, 255))
def test_a_request_in_which_a_signed_byte_is_another_is_refused(at: int, change: int) -> None:
    der = bytearray(DER)
    der[DER.index(SIGNED) + at] ^= change
    text = base64.encodebytes(bytes(der))
    pem = b"-----BEGIN CERTIFICATE REQUEST-----\n" + text + b"-----END CERTIFICATE REQUEST-----\n"
    with pytest.raises(BadRequest):
        check_signature(parse_request(base64.b64encode(pem).decode()))


BEGIN, END = b"-----BEGIN a-----\n", b"-----END a-----\n"
BLOCKS = {
    BEGIN + b"AAAA\n" + END: [("a", False, 3)],
    BEGIN + END + BEGIN + b"A A\tA A\r\n\n" + END: [("a", False, 0), ("a", False, 3)],
    BEGIN + b"k: v\n:\nAAA=\n" + END.strip() + b" \t\r\n": [("a", True, 2)],
    BEGIN + BEGIN + b"AA==\n" + END: [("a", False, 1)],
    BEGIN + b"-----BEGIN b-----\nAAAA\n" + END: [],
    b"x" + BEGIN + b"AAAA\n" + END: [],
    BEGIN + b"AAAA==\n" + END: [],
    BEGIN + b"AAA\n" + END: [],
    BEGIN + b"AAAA====\n====\n" + END: [],
    BEGIN + b"AA-A\n" + END: [],
    BEGIN + b"AAAA\n" + END.strip() + b"x\n": [],
    BEGIN + b"k: v\n" + END: [],
    b"-----BEGIN -----\nAAAA\n-----END -----": [("", False, 3)],
    b"-----BEGIN a----- \nAAAA\n" + END: [("a", False, 3)],
    b"-----BEGIN a\nAAAA\n" + END: [],
}
"""What Go 1.26 finds: type, whether there are headers, bytes."""


@pytest.mark.parametrize("pem", BLOCKS, ids=range(len(BLOCKS)))
def test_blocks_are_those_that_go_finds(pem: bytes) -> None:
    assert [(each.kind, each.headers, len(each.der)) for each in _blocks(pem)] == BLOCKS[pem]


@pytest.mark.parametrize(
    "line", [b"-----BEGIN a:-----\n", BEGIN, PEM.split(b"\n")[0] + b"\nk: v\n", b"\n-----END a-----"]
)
def test_beginnings_without_an_end_are_read_once(line: bytes) -> None:
    """What is quadratic takes minutes here."""
    pem = line * (3_000_000 // len(line)) + b"\n" + PEM
    assert len(list(_blocks(pem))) == 1


@given(st.one_of(st.binary(), st.lists(st.sampled_from([*PEM.split(b"\n"), b"a: b", b"", b"x"])).map(b"\n".join)))
def test_whatever_is_sent_is_taken_or_refused(pem: bytes) -> None:
    encoded = base64.b64encode(pem).decode()
    for check in (parse_request, check_certificates):
        try:
            check(encoded)
        except BadRequest:
            continue


_RSA, _P256 = rsa.generate_private_key(65537, 2048), ec.derive_private_key(7, ec.SECP256R1())
_UNKNOWN = "x509: cannot verify signature: algorithm unimplemented"
_DIGEST = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
_VERDICTS: dict[str, tuple[Any, Any, Any, str]] = {
    "rsa": (_RSA, hashes.SHA384(), None, ""),
    "p256": (_P256, hashes.SHA512(), None, ""),
    "rsa, SHA-224": (_RSA, hashes.SHA224(), None, _UNKNOWN),
    "p256, SHA-224": (_P256, hashes.SHA224(), None, _UNKNOWN),
    "secp256k1": (ec.derive_private_key(7, ec.SECP256K1()), hashes.SHA256(), None, "x509: unsupported elliptic curve"),
    "ed448": (ed448.Ed448PrivateKey.generate(), None, None, _UNKNOWN),
    "salt of the hash": (_RSA, hashes.SHA256(), _DIGEST, ""),
    "longer salt": (_RSA, hashes.SHA256(), padding.PSS(padding.MGF1(hashes.SHA256()), 64), _UNKNOWN),
}


@pytest.mark.parametrize("name", _VERDICTS)
def test_keys_and_hashes_are_judged_as_by_go(name: str) -> None:
    key, hashed, padded, wanted = _VERDICTS[name]
    given = {} if padded is None else {"rsa_padding": padded}
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashed, **given)
    try:
        check_signature(made)
        found = ""
    except BadRequest as error:
        found = str(error)
    assert found == wanted
