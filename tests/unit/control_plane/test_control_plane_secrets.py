"""What init-secrets makes: for each role what it needs and no more, private, and kept while it fits."""

import ssl
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from minikube_py.apiserver.api_services import trusted
from minikube_py.cli import main as cli
from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.control_plane.certificates import (
    AUTHORITY_LIFE,
    RENEW_BEFORE,
    SERVER_LIFE,
    ProxyFiles,
    ensure_authority,
)
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.secrets import Deployment, admin_access, ensure_secrets, parse_hosts
from minikube_py.control_plane.tls import client_context, peer_client_context, peer_server_context, server_context
from minikube_py.control_plane.users import read_token_auth_file

NOW = datetime(2025, 6, 1, tzinfo=UTC)
ETCD_CLIENT = {"etcd-client.pem", "etcd-client.key"}
FILES = {
    "authority": {"authority.pem", "authority.key"},
    "store": {"authority.pem", "server.pem", "server.key", "peer.pem", "peer.key", "token", "peer-token"},
    "apiserver": {
        *("authority.pem", "server.pem", "server.key", "users.csv", "store-token", "service-accounts.key"),
        *("client-authority.pem", *ETCD_CLIENT),
    },
    "scheduler": {"kubeconfig"},
    "controllers": {"kubeconfig", "service-accounts.key", "client-authority.pem", "client-authority.key"},
    "kubelet": {"kubeconfig"},
    "admin": {"kubeconfig", "store-token", "authority.pem"} | ETCD_CLIENT,
}


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    stores, hosts = ("store-1", "store-2"), ("apiserver", "10.0.0.7")
    return Deployment(tmp_path / "s", stores, hosts, "https://apiserver:6443", "https://127.0.0.1:6443")


def test_a_folder_for_each_role(deployment: Deployment) -> None:
    made = ensure_secrets(deployment, NOW)
    found = {folder.name: {path.name for path in folder.iterdir()} for folder in deployment.folder.iterdir()}
    assert found == FILES
    assert set(made) == {f"{folder}/{name}" for folder, names in FILES.items() for name in names}
    for path in [deployment.folder, *deployment.folder.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_secrets_fit_together(deployment: Deployment) -> None:
    ensure_secrets(deployment, NOW)
    folder = deployment.folder
    users = read_token_auth_file(folder / "apiserver" / "users.csv")
    for role, name in (("scheduler", "system:kube-scheduler"), ("kubelet", "system:kubelets"), ("admin", "admin")):
        access = load_kubeconfig(folder / role / "kubeconfig")
        assert users[access.token or ""].name == name
        assert access.ca_pem == (folder / "authority" / "authority.pem").read_bytes()
        assert access.server == (deployment.outside if role == "admin" else deployment.server)
    token = (folder / "store" / "token").read_text()
    assert (folder / "apiserver" / "store-token").read_text() == token
    assert (folder / "admin" / "store-token").read_text() == token
    assert token.strip() not in users and (folder / "store" / "peer-token").read_text() != token


@pytest.mark.parametrize(
    ("folder", "hosts"),
    [
        pytest.param("store", ["store-1", "store-2", "localhost", "127.0.0.1"], id="members"),
        pytest.param("apiserver", ["apiserver", "10.0.0.7", "localhost"], id="API servers"),
    ],
)
def test_servers_are_known_by_their_names(deployment: Deployment, folder: str, hosts: list[str]) -> None:
    ensure_secrets(deployment)
    place = deployment.folder / folder
    server = server_context(place / "server.pem", place / "server.key")
    for host in hosts:
        handshake(client_context((place / "authority.pem").read_bytes()), server, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(client_context((place / "authority.pem").read_bytes()), server, "elsewhere")


def test_members_take_only_members(deployment: Deployment) -> None:
    ensure_secrets(deployment)
    store, apiserver = deployment.folder / "store", deployment.folder / "apiserver"
    authority = (store / "authority.pem").read_bytes()
    server = peer_server_context(store / "peer.pem", store / "peer.key", authority)
    handshake(peer_client_context(store / "peer.pem", store / "peer.key", authority), server, "store-2")
    with pytest.raises(ssl.SSLError):
        handshake(client_context(authority), server, "store-2")
    with pytest.raises(ssl.SSLError):
        handshake(
            peer_client_context(apiserver / "server.pem", apiserver / "server.key", authority), server, "store-2"
        )


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    """In memory, and one byte each way after it: in TLS 1.3 a client learns only then that it was refused."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not waiting
    ends[1].write(b"x")
    assert ends[0].read(1) == b"x"


def test_again_nothing_changes(deployment: Deployment) -> None:
    ensure_secrets(deployment, NOW)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in deployment.folder.rglob("*.*")}
    assert ensure_secrets(deployment, NOW + timedelta(days=1)) == []
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in deployment.folder.rglob("*.*")} == before


@pytest.mark.parametrize(
    ("change", "made"),
    [
        pytest.param({"stores": ("store-1", "store-9")}, ["store/peer.key", "store/peer.pem", "store/server.key",
                                                          "store/server.pem"], id="another member"),
        pytest.param({"hosts": ("api",)}, ["apiserver/server.key", "apiserver/server.pem"], id="another host"),
        pytest.param({"outside": "https://127.0.0.1:7443"}, ["admin/kubeconfig"], id="another port for users"),
        pytest.param({"hosts": ("apiserver",)}, [], id="a name less"),
    ],
)  # fmt: skip
def test_only_what_does_not_fit_is_made_anew(
    deployment: Deployment, change: dict[str, tuple[str, ...]], made: list[str]
) -> None:
    ensure_secrets(deployment, NOW)
    assert ensure_secrets(replace(deployment, **change), NOW) == made  # type: ignore[arg-type]


def test_certificates_are_renewed_and_tokens_stay(deployment: Deployment) -> None:
    ensure_secrets(deployment, NOW)
    made = ensure_secrets(deployment, NOW + SERVER_LIFE - RENEW_BEFORE + timedelta(days=1))
    pairs = {"server.pem", "server.key", "peer.pem", "peer.key"}
    assert {name.partition("/")[2] for name in made} == pairs | ETCD_CLIENT


def test_a_lost_kubeconfig_gets_a_token_that_the_server_knows(deployment: Deployment) -> None:
    ensure_secrets(deployment, NOW)
    (deployment.folder / "kubelet" / "kubeconfig").unlink()
    assert ensure_secrets(deployment, NOW) == ["apiserver/users.csv", "kubelet/kubeconfig"]
    token = load_kubeconfig(deployment.folder / "kubelet" / "kubeconfig").token
    assert token in read_token_auth_file(deployment.folder / "apiserver" / "users.csv")


@pytest.mark.parametrize("damage", ["no key", "no certificate", "not PEM", "too old"])
def test_an_authority_is_never_replaced_unasked(deployment: Deployment, damage: str) -> None:
    ensure_secrets(deployment, NOW)
    authority, now = deployment.folder / "authority", NOW
    if damage == "no key":
        (authority / "authority.key").unlink()
    elif damage == "no certificate":
        (authority / "authority.pem").unlink()
    elif damage == "not PEM":
        (authority / "authority.pem").write_text("x")
    else:
        now += AUTHORITY_LIFE
    with pytest.raises(SetupError, match="are not a valid authority: remove both, then restart all roles"):
        ensure_secrets(deployment, now)


def test_of_files_of_authorities_only_certificates_that_have_not_expired_are_published(tmp_path: Path) -> None:
    """Not the private key beside one of them, for readers of the ConfigMap."""
    now = datetime(2025, 6, 1, tzinfo=UTC)
    pems, keys = [], []
    for number, made in enumerate((now, now - 2 * AUTHORITY_LIFE, now)):
        files = tmp_path / f"{number}.crt", tmp_path / f"{number}.key"
        pems.append(ensure_authority(*files, made).pem.decode())
        keys.append(files[1].read_text())
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(f"A note\n{keys[0]}{pems[0]}{pems[1]}{pems[0]}{pems[2].rstrip()}")
    clients = tmp_path / "clients.pem"
    clients.write_text(pems[2].rstrip() + "\n" + keys[2])
    known = ProxyFiles(authority=mixed).read(clients, now)
    assert (known.authority_pem, known.clients_pem) == (pems[0] + pems[2], pems[2])
    data = trusted(known, {"client-ca-file": pems[0].rstrip(), "requestheader-client-ca-file": pems[0] + pems[2]})
    assert (data["client-ca-file"], data["requestheader-client-ca-file"]) == (pems[0] + pems[2], pems[0] + pems[2])
    clients.write_text(keys[2])
    with pytest.raises(SetupError, match=r"clients.pem holds no certificates \(authority of clients\)"):
        ProxyFiles().read(clients, now)


def test_the_administrators_kubeconfig_for_another_address(deployment: Deployment) -> None:
    ensure_secrets(deployment, NOW)
    admin = deployment.folder / "admin"
    assert admin_access(admin, None).server == "https://127.0.0.1:6443"
    assert admin_access(admin, "https://127.0.0.1:7443").server == "https://127.0.0.1:7443"


@pytest.mark.parametrize("text", ["a b", "a/b", "-x", "x@y", "a" * 300])
def test_bad_host_names(text: str) -> None:
    with pytest.raises(SetupError, match=r"--stores: .* is neither a host name nor an address"):
        parse_hosts(f"good,{text}", "--stores")


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["init-secrets", "--dir", str(tmp_path / "d"), "--stores", "store-1", "--hosts", "apiserver,127.0.0.1"]
    assert cli.main(command) == 0
    assert "29 made" in capsys.readouterr().out
    assert cli.main(command) == 0
    assert capsys.readouterr().out == f"secrets in {tmp_path / 'd'}: all exist\n"
    shown = ["kubeconfig", "--secrets-dir", str(tmp_path / "d" / "admin"), "--server", "https://127.0.0.1:1"]
    assert cli.main(shown) == 0
    (tmp_path / "printed").write_text(capsys.readouterr().out)
    assert load_kubeconfig(tmp_path / "printed").server == "https://127.0.0.1:1"
    assert cli.main([*shown, "--output", str(tmp_path / "written")]) == 0
    assert (tmp_path / "written").read_text() == (tmp_path / "printed").read_text()
    assert stat.S_IMODE((tmp_path / "written").stat().st_mode) == 0o600
    certificate = x509.load_pem_x509_certificate((tmp_path / "d" / "store" / "server.pem").read_bytes())
    assert certificate.subject.rfc4514_string() == "CN=store"
