"""Certificates, tokens and kubeconfigs: made once, used again, private, and nobody else's files touched."""

import errno
import socket
import ssl
import stat
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from minikube_py.client.kubeconfig import load_kubeconfig
from minikube_py.control_plane import tokens, users
from minikube_py.control_plane.certificates import RENEW_BEFORE, SERVER_LIFE, ensure_certificates
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.files import ensure_credentials, write_admin_kubeconfig
from minikube_py.control_plane.kubeconfig import MARKER, Access, write_kubeconfig
from minikube_py.control_plane.private_files import make_private_folder, write_private

NOW = datetime(2025, 6, 1, tzinfo=UTC)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_certificate_names_every_way_to_the_server(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path / "pki", ["api.example.org", "10.0.0.7"], NOW)
    certificate = x509.load_pem_x509_certificate(made.server_file.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = set(names.get_values_for_type(x509.DNSName))
    assert hosts == {"localhost", "api.example.org", socket.gethostname().lower()}
    assert set(map(str, names.get_values_for_type(x509.IPAddress))) == {"127.0.0.1", "::1", "10.0.0.7"}
    for name in ("ca.crt", "ca.key", "server.crt", "server.key"):
        assert _mode(tmp_path / "pki" / name) == 0o600, name
    assert _mode(tmp_path / "pki") == 0o700


def test_the_data_folder_has_the_kubeconfig_that_is_written_elsewhere(tmp_path: Path) -> None:
    config = ControlPlaneConfig(data_dir=tmp_path / "data", kubeconfig=tmp_path / "named")
    write_admin_kubeconfig(config, ensure_credentials(config), "https://127.0.0.1:6443")
    found = config.data_dir / "kubeconfig"
    assert load_kubeconfig(found) == load_kubeconfig(tmp_path / "named")
    assert _mode(found) == 0o600


def test_a_client_that_trusts_the_authority_gets_through(tmp_path: Path) -> None:
    made = ensure_certificates(tmp_path)
    for host in ("localhost", "127.0.0.1"):
        _handshake(made.client_context(), made.server_context(), host)


def test_a_client_of_another_authority_does_not(tmp_path: Path) -> None:
    made, other = ensure_certificates(tmp_path / "a"), ensure_certificates(tmp_path / "b")
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(other.client_context(), made.server_context(), "localhost")


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    """In memory: two halves that hand each other bytes until both are content."""
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


def _serials(folder: Path) -> tuple[int, int]:
    files = (folder / "ca.crt", folder / "server.crt")
    authority, server = (x509.load_pem_x509_certificate(path.read_bytes()).serial_number for path in files)
    return authority, server


@pytest.mark.parametrize(
    ("later", "names", "authority_stays", "server_stays"),
    [
        pytest.param(timedelta(days=1), (), True, True, id="the next day: both used again"),
        pytest.param(SERVER_LIFE - RENEW_BEFORE + timedelta(days=1), (), True, False, id="near its end: renewed"),
        pytest.param(timedelta(days=3650), (), False, False, id="authority near its end: all renewed"),
        pytest.param(timedelta(0), ("another.example",), True, False, id="a name more: server made again"),
    ],
)
def test_renewal(
    tmp_path: Path, later: timedelta, names: tuple[str, ...], authority_stays: bool, server_stays: bool
) -> None:
    ensure_certificates(tmp_path, (), NOW)
    before = _serials(tmp_path)
    ensure_certificates(tmp_path, names, NOW + later)
    after = _serials(tmp_path)
    assert (before[0] == after[0], before[1] == after[1]) == (authority_stays, server_stays)


@pytest.mark.parametrize("damaged", ["ca.crt", "ca.key", "server.crt", "server.key"])
def test_damaged_files_are_made_again(tmp_path: Path, damaged: str) -> None:
    ensure_certificates(tmp_path)
    (tmp_path / damaged).write_text("not PEM")
    made = ensure_certificates(tmp_path)
    _handshake(made.client_context(), made.server_context(), "localhost")


def test_tokens_are_private_and_stay(tmp_path: Path) -> None:
    first = tokens.ensure_tokens(tmp_path / "tokens")
    assert tokens.ensure_tokens(tmp_path / "tokens") == first
    assert len(set(first.values())) == len(tokens.ROLES)
    assert all(_mode(tmp_path / "tokens" / role) == 0o600 for role in tokens.ROLES)


def test_token_auth_file_round_trip(tmp_path: Path) -> None:
    known = users.users_by_token(tokens.ensure_tokens(tmp_path / "tokens"))
    users.write_token_auth_file(tmp_path / "users.csv", known)
    read = users.read_token_auth_file(tmp_path / "users.csv")
    named = {token: (user.name, user.groups) for token, user in known.items()}
    assert {token: (user.name, user.groups) for token, user in read.items()} == named
    assert len(known) == 4, "the store's token opens no API"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "holds no token", id="empty"),
        pytest.param("secret\n", "line 1", id="token alone"),
        pytest.param("abc,user,uid\n\n,user,uid\n", "line 3", id="empty token"),
    ],
)
def test_bad_token_auth_file(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "users.csv").write_text(text)
    with pytest.raises(SetupError, match=message):
        users.read_token_auth_file(tmp_path / "users.csv")


@pytest.mark.parametrize("text", ["", "short", "with space in it, and long enough", "x" * 513])
def test_bad_token(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(SetupError, match="token file"):
        tokens.read_token(tmp_path / "token")


ACCESS = Access("https://127.0.0.1:6443", b"-----BEGIN CERTIFICATE-----\n", "secret-token-of-someone")


def test_kubeconfig_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, ACCESS)
    read = load_kubeconfig(path)
    assert (read.server, read.ca_pem, read.token) == (ACCESS.server, ACCESS.authority_pem, ACCESS.token)
    assert _mode(path) == 0o600


def test_our_own_kubeconfig_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, ACCESS)
    write_kubeconfig(path, Access("https://127.0.0.1:7443", ACCESS.authority_pem, ACCESS.token))
    assert load_kubeconfig(path).server == "https://127.0.0.1:7443"


CHANGED_BY_KUBECTL = """apiVersion: v1
clusters: [{name: minikube-py, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: "LS0="}}]
contexts: [{name: minikube-py, context: {cluster: minikube-py, user: minikube-py-admin, namespace: mine}}]
current-context: minikube-py
kind: Config
users: [{name: minikube-py-admin, user: {token: secret-token-of-someone}}]
"""


def test_what_kubectl_changed_in_ours_is_still_ours(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(CHANGED_BY_KUBECTL)
    write_kubeconfig(path, replace(ACCESS, authority_pem=b"--"))
    assert path.read_text() == CHANGED_BY_KUBECTL, "it leads to the right place: the namespace chosen stays"
    write_kubeconfig(path, ACCESS)
    assert load_kubeconfig(path).ca_pem == ACCESS.authority_pem


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(CHANGED_BY_KUBECTL.replace("clusters: [", "clusters: [{name: prod, cluster: {}}, "), id="merged"),
        pytest.param("", id="empty"),
        pytest.param("apiVersion: v1\nkind: Config\n", id="of another tool"),
        pytest.param(f"# mine\n{MARKER}\n", id="the marker is not the first line"),
    ],
)
def test_nobody_elses_kubeconfig_is_touched(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(SetupError, match="was not written by minikube_py"):
        write_kubeconfig(path, ACCESS)
    assert path.read_text() == text


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is a folder"):
        write_kubeconfig(tmp_path, ACCESS)
    with pytest.raises(SetupError, match="cannot write"):
        write_private(tmp_path / "no" / "file", b"")
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="cannot make the folder"):
        make_private_folder(tmp_path / "file")


def test_on_a_full_disk_a_file_is_written_to_its_own_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_private(path, b"old and long")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    write_private(path, b"old and long")
    write_private(path, b"new")
    assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(SetupError, match=r"No space left on device; .* bytes free; free space there"):
        write_private(path, bytes(9000))
    with pytest.raises(SetupError, match="free space there"):
        write_private(tmp_path / "other", b"new")
