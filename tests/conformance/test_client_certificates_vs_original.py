"""Client certificates beside upstream: whom they speak for, what signers give, and kubectl from `openssl req` on."""

from __future__ import annotations

import base64
import datetime
import http.client
import ipaddress
import json
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import needs
import ours
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier
from kubectl_session import normalise, run_step
from patience import eventually
from scenario import Step

pytestmark = [pytest.mark.original, pytest.mark.slow]

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET, SERVING = f"{CLIENT}-kubelet", "kubernetes.io/kubelet-serving"
KEY, RSA_KEY = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)
PEM = serialization.Encoding.PEM
UID = ObjectIdentifier("1.3.6.1.4.1.57683.2")
CN, ORG, UNIT = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
HOUR = datetime.timedelta(hours=1)


class Server(NamedTuple):
    """`authority`: of clients' certificates, with its key."""

    url: str
    token: str
    kubeconfig: Path
    authority: tuple[Path, Path]

    def ask(
        self, method: str, path: str, body: Any = None, shown: Path | None = None, token: str = ""
    ) -> tuple[int, Any]:
        """(0, None) where the connection is refused."""
        context = ssl._create_unverified_context()
        if shown is not None:
            context.load_cert_chain(shown)
        connection = http.client.HTTPSConnection(self.url.partition("://")[2], context=context, timeout=30)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (ssl.SSLError, ConnectionError):
            return 0, None
        finally:
            connection.close()

    def admin(self, method: str, path: str, body: Any = None) -> Any:
        status, told = self.ask(method, path, body, token=self.token)
        assert status < 300, told
        return told


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    with (
        needs.original("--controllers", "--certificates") as theirs,
        ours.serve(("controllers",)) as own,
    ):
        found = []
        for ready, folder in ((theirs, ""), (own, "pki")):
            kubeconfig = Path(ready["kubeconfig"])
            pki = kubeconfig.parent / folder
            authority = pki / "client-ca.crt", pki / "client-ca.key"
            found.append(Server(ready["url"], ready["token"], kubeconfig, authority))
        yield found[0], found[1]


def name_of(*parts: tuple[Any, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


JANE = name_of((ORG, "devs"), (ORG, "ops"), (CN, "jane"))


# --- whom they speak for ----------------------------------------------------------------------------------------------


class Shown(NamedTuple):
    """A certificate to show; `begins`, `ends`: hours from now."""

    subject: x509.Name = JANE
    usages: Sequence[ObjectIdentifier] | None = (ExtendedKeyUsageOID.CLIENT_AUTH,)
    begins: int = -1
    ends: int = 1
    known: bool = True
    enciphers: bool = False

    def write(self, path: Path, authority: tuple[Path, Path]) -> None:
        issuer, key = x509.load_pem_x509_certificate(authority[0].read_bytes()).subject, KEY
        if self.known:
            key = serialization.load_pem_private_key(authority[1].read_bytes(), None)  # type: ignore[assignment]
        now = datetime.datetime.now(datetime.UTC)
        built = x509.CertificateBuilder(issuer, self.subject, KEY.public_key(), x509.random_serial_number())
        built = built.not_valid_before(now + self.begins * HOUR).not_valid_after(now + self.ends * HOUR)
        if self.usages is not None:
            built = built.add_extension(x509.ExtendedKeyUsage(self.usages), False)
        if self.enciphers:
            built = built.add_extension(x509.KeyUsage(False, False, True, *[False] * 6), True)
        pem = built.sign(key, hashes.SHA256()).public_bytes(PEM)
        format_, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        path.write_bytes(pem + KEY.private_bytes(PEM, format_, none))


SHOWN = {
    "groups and name": Shown(),
    "name": Shown(name_of((CN, "jane"))),
    "two names": Shown(name_of((CN, "a"), (ORG, "x"), (CN, "b"))),
    "no name": Shown(name_of((ORG, "devs"))),
    "no subject": Shown(name_of()),
    "other parts": Shown(name_of((ORG, "devs"), (UNIT, "unit"), (CN, "jane"))),
    "uid": Shown(name_of((CN, "jane"), (UID, "u-7"))),
    "two uids": Shown(name_of((CN, "jane"), (UID, "u-7"), (UID, "u-8"))),
    "masters": Shown(name_of((ORG, "system:masters"), (CN, "root"))),
    "node": Shown(name_of((ORG, "system:nodes"), (CN, "system:node:n1"))),
    "authenticated": Shown(name_of((ORG, "system:authenticated"), (CN, "jane"))),
    "not ASCII": Shown(name_of((ORG, "gr\u00fcn"), (CN, "j\u00e4ne"))),
    "any use said": Shown(usages=None),
    "for servers": Shown(usages=(ExtendedKeyUsageOID.SERVER_AUTH,)),
    "for both": Shown(usages=(ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)),
    "ended": Shown(begins=-3, ends=-1),
    "to come": Shown(begins=1, ends=3),
    "of a stranger": Shown(known=False),
    "for encipherment": Shown(enciphers=True),
}
REFUSED = {"for servers", "ended", "to come", "of a stranger", "for encipherment"}
"""Upstream goes on without such a certificate: it asks for a token, and answers 401 where there is none; the last of
these it accepts. Here TLS refuses the connection, because Python's `ssl` cannot let such a certificate pass."""


@pytest.mark.parametrize("name", SHOWN)
def test_a_certificate_speaks_for_whom_it_names(name: str, servers: tuple[Server, Server], tmp_path: Path) -> None:
    answers = []
    for server in servers:
        shown = tmp_path / f"{len(answers)}.pem"
        SHOWN[name].write(shown, server.authority)
        der = ssl.PEM_cert_to_DER_cert(shown.read_text().partition("-----BEGIN PRIVATE")[0])
        fingerprint = hashes.Hash(hashes.SHA256())
        fingerprint.update(der)
        own_id = f"X509SHA256={fingerprint.finalize().hex()}"
        told = []
        for token in ("", server.token, "wrong"):
            status, answer = server.ask("POST", REVIEWS, {"metadata": {}}, shown, token)
            user = None if answer is None else answer["message"] if status >= 400 else answer["status"]["userInfo"]
            told.append(json.loads(json.dumps([status, user]).replace(own_id, "ITS ID")))
        answers.append(told)
    theirs, mine = answers
    if name in REFUSED:
        assert mine == [[0, None]] * 3 and [status for status, _ in theirs] in ([401, 201, 401], [201, 201, 201])
    else:
        assert mine == theirs


# --- what the signers give --------------------------------------------------------------------------------------------

USES = ["digital signature", "client auth"]
SERVES = ["digital signature", "server auth"]
NODE = name_of((ORG, "system:nodes"), (CN, "system:node:n1"))
DNS, EMAIL, URI = x509.DNSName("n1"), x509.RFC822Name("a@b.c"), x509.UniformResourceIdentifier("spiffe://a/b")
IP, OTHER = x509.IPAddress(ipaddress.ip_address("10.0.0.1")), x509.RegisteredID(UID)


class Wanted(NamedTuple):
    signer: str = CLIENT
    usages: Sequence[str] = ("client auth",)
    subject: x509.Name = JANE
    names: Sequence[x509.GeneralName] = ()
    lasts_s: int | None = None
    key: Any = KEY
    more: Sequence[dict[str, str]] = ()
    """Further conditions."""

    def body(self, name: str) -> dict[str, Any]:
        builder = x509.CertificateSigningRequestBuilder(self.subject)
        if self.names:
            builder = builder.add_extension(x509.SubjectAlternativeName(self.names), False)
        request = base64.b64encode(builder.sign(self.key, hashes.SHA256()).public_bytes(PEM)).decode()
        spec = {"request": request, "signerName": self.signer, "usages": list(self.usages)}
        lasts = {} if self.lasts_s is None else {"expirationSeconds": self.lasts_s}
        return {"metadata": {"name": name}, "spec": {**spec, **lasts}}


_ALL = name_of(
    (CN, "first"), (NameOID.COUNTRY_NAME, "DE"), (ORG, "b"), (UNIT, "u"), (ORG, "a"), (NameOID.LOCALITY_NAME, "l"),
    (NameOID.STATE_OR_PROVINCE_NAME, "s"), (NameOID.STREET_ADDRESS, "st"), (NameOID.POSTAL_CODE, "1"), (UNIT, "v"),
    (NameOID.SERIAL_NUMBER, "7"), (UID, "u"), (NameOID.EMAIL_ADDRESS, "a@b.c"), (CN, "last"),
)  # fmt: skip
_FAILED = {"type": "Failed", "status": "True", "reason": "R", "message": "m"}
_NODES, _GROUPS = (ORG, "system:nodes"), (ORG, "x")
_UNNAMED, _GROUPED = name_of(_NODES, (CN, "n1")), name_of(_NODES, _GROUPS, (CN, "system:node:n1"))
WANTED = {
    "plain": Wanted(),
    "all-uses": Wanted(usages=[*USES, "key encipherment"]),
    "rsa": Wanted(key=RSA_KEY),
    "enciphers": Wanted(usages=["client auth", "key encipherment"]),
    "no-client": Wanted(usages=["digital signature"]),
    "server-use": Wanted(usages=["client auth", "server auth"]),
    "any-use": Wanted(usages=["any"]),
    "names": Wanted(names=[URI, IP, OTHER, EMAIL, DNS]),
    "every-part": Wanted(subject=_ALL),
    "no-subject": Wanted(subject=name_of()),
    "no-subject-names": Wanted(subject=name_of(), names=[DNS]),
    "min": Wanted(lasts_s=600),
    "short": Wanted(lasts_s=8 * 3600 - 1),
    "eight-hours": Wanted(lasts_s=8 * 3600),
    "year": Wanted(lasts_s=365 * 86400),
    "more": Wanted(lasts_s=2**31 - 1),
    "failed": Wanted(more=[_FAILED]),
    "kubelet": Wanted(KUBELET, USES, NODE),
    "kubelet-enciphers": Wanted(KUBELET, [*USES, "key encipherment"], NODE),
    "kubelet-names": Wanted(KUBELET, USES, NODE, [IP, DNS, URI, EMAIL]),
    "kubelet-mail": Wanted(KUBELET, USES, NODE, [EMAIL]),
    "kubelet-uri": Wanted(KUBELET, USES, NODE, [URI, IP]),
    "kubelet-other-name": Wanted(KUBELET, USES, NODE, [OTHER]),
    "kubelet-uses": Wanted(KUBELET, ["client auth"], NODE),
    "kubelet-name": Wanted(KUBELET, USES, _UNNAMED),
    "kubelet-group": Wanted(KUBELET, USES, JANE),
    "kubelet-groups": Wanted(KUBELET, USES, _GROUPED),
    "serving": Wanted(SERVING, SERVES, NODE, [IP]),
    "serving-dns": Wanted(SERVING, [*SERVES, "key encipherment"], NODE, [DNS]),
    "serving-no-names": Wanted(SERVING, SERVES, NODE),
    "serving-mail": Wanted(SERVING, SERVES, NODE, [DNS, EMAIL]),
    "serving-uri": Wanted(SERVING, SERVES, NODE, [DNS, URI, EMAIL]),
    "serving-uses": Wanted(SERVING, USES, NODE, [DNS]),
    "serving-name": Wanted(SERVING, SERVES, _UNNAMED, [DNS]),
    "serving-group": Wanted(SERVING, SERVES, JANE, [DNS]),
    "other-signer": Wanted("example.com/serving"),
}
LAST = "zz-last"


def shape(encoded: str, authority: Path) -> dict[str, Any]:
    """What of a certificate must be alike. It verifies against the authority."""
    found = x509.load_pem_x509_certificate(base64.b64decode(encoded))
    issuer = x509.load_pem_x509_certificate(authority.read_bytes())
    found.verify_directly_issued_by(issuer)
    assert 0 < found.serial_number < 1 << 128
    subject = [[(part.oid.dotted_string, part.value) for part in parts] for parts in found.subject.rdns]
    held: dict[str, Any] = {}
    for extension in found.extensions:
        value = extension.value
        if isinstance(value, x509.AuthorityKeyIdentifier):
            assert value == x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            )
            held[extension.oid.dotted_string] = extension.critical
        else:
            held[extension.oid.dotted_string] = [extension.critical, value.public_bytes().hex()]
    begins, now = found.not_valid_before_utc, datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(minutes=4) < now - begins < datetime.timedelta(minutes=15)
    return {
        "subject": subject, "extensions": held, "order": list(held), "lasts": str(found.not_valid_after_utc - begins),
        "algorithm": found.signature_algorithm_oid.dotted_string, "version": str(found.version),
    }  # fmt: skip


def signed(server: Server) -> dict[str, Any]:
    """Every request approved, at rest: the last one is signed, and none before it waits."""
    for name, wanted in {**WANTED, LAST: Wanted()}.items():
        made = server.admin("POST", REQUESTS, wanted.body(name))
        condition = {"type": "Approved", "status": "True", "reason": "R", "message": "m"}
        made["status"] = {"conditions": [condition, *wanted.more]}
        code, told = server.ask("PUT", f"{REQUESTS}/{name}/approval", made, token=server.token)
        assert code == 200 or (code == 409 and wanted.signer == KUBELET), told  # Another controller was first.

    found: dict[str, Any] = {}

    def at_rest() -> bool:
        found.update((each["metadata"]["name"], each["status"]) for each in server.admin("GET", REQUESTS)["items"])
        waiting = {name for name, status in found.items() if not status.get("certificate") and not _failed(status)}
        return waiting == {"other-signer"}

    eventually(at_rest, "all are signed or failed")
    for status in found.values():
        if status.get("certificate"):
            status["certificate"] = shape(status["certificate"], server.authority[0])
        status["conditions"] = [each for each in status["conditions"] if each["type"] != "Approved"]
        for condition in status["conditions"]:
            for time in ("lastUpdateTime", "lastTransitionTime"):
                condition[time] = bool(condition.get(time))
    server.admin("DELETE", REQUESTS)
    return found


def _failed(status: dict[str, Any]) -> bool:
    return any(condition["type"] == "Failed" for condition in status["conditions"])


def test_signers_give_the_same_certificates(servers: tuple[Server, Server]) -> None:
    with ThreadPoolExecutor(2) as pool:
        theirs, mine = pool.map(signed, servers)
    assert sum("certificate" in status for status in theirs.values()) > len(theirs) // 3
    for name in theirs:
        assert mine[name] == theirs[name], name
    assert mine.keys() == theirs.keys()


# --- kubectl ----------------------------------------------------------------------------------------------------------

MANIFEST = """
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: {name}}}
spec: {{request: {request}, signerName: {signer}, usages: [{usages}], expirationSeconds: 86400}}
"""


def flow(server: Server, kubectl: Path, folder: Path) -> list[Any]:
    """From `openssl req` to what the new certificate may do: a person's, and a kubelet's."""
    told: list[Any] = []

    def admin(command: str, stdin: str = "", until: str = "") -> str:
        output = run_step(kubectl, server.kubeconfig, folder, Step("", command, stdin=stdin, until=until))
        told.append((command, output.code, normalise(output.stdout), normalise(output.stderr)))
        return output.stdout

    people = (("jane", "/O=devs/CN=jane", CLIENT, "client auth", ("get pods", "get secrets")),
              ("n1", "/O=system:nodes/CN=system:node:n1", KUBELET, "client auth, digital signature", ()))  # fmt: skip
    admin("create clusterrolebinding devs --clusterrole=view --group=devs")
    for name, subject, signer, usages, commands in people:
        key, request = folder / f"{name}.key", folder / f"{name}.csr"
        command = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject]
        subprocess.run([*command, "-keyout", key, "-out", request], check=True, capture_output=True)
        encoded = base64.b64encode(request.read_bytes()).decode()
        admin("create -f -", MANIFEST.format(name=name, request=encoded, signer=signer, usages=usages))
        admin(f"certificate approve {name}")
        admin(f"get csr {name}", until="Issued")
        given = base64.b64decode(admin(f"get csr {name} -o jsonpath={{.status.certificate}}"))
        (folder / f"{name}.crt").write_bytes(given)
        told.pop()
        shown = f"--server={server.url} --insecure-skip-tls-verify"
        shown += f" --client-certificate={name}.crt --client-key={name}.key"
        for command in ("auth whoami -o jsonpath={.status.userInfo.groups}", *commands):
            output = run_step(kubectl, Path("/dev/null"), folder, Step("", f"{command} {shown}"))
            told.append((name, command, output.code, normalise(output.stdout), normalise(output.stderr)))
    admin("create -f -", MANIFEST.format(name="denied", request=encoded, signer=CLIENT, usages="client auth"))
    admin("certificate deny denied")
    admin("get csr denied --no-headers")
    admin("certificate approve denied")
    return told


def test_kubectl_from_a_request_to_its_certificate(servers: tuple[Server, Server], tmp_path: Path) -> None:
    kubectl = needs.require_kubectls()[max(needs.require_kubectls())]

    def told(number: int) -> list[Any]:
        folder = tmp_path / str(number)
        folder.mkdir()
        return flow(servers[number], kubectl, folder)

    with ThreadPoolExecutor(2) as pool:
        theirs, mine = pool.map(told, (0, 1))
    assert ("jane", "get pods", 0, "", "No resources found in default namespace.") in mine
    for expected, found in zip(theirs, mine, strict=True):
        assert found == expected
