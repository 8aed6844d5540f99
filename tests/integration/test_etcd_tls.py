"""etcd's API over TLS: who may connect, and as whom somebody is served who shows a certificate."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from etcd_api import Caller, Ours, ours
from http2_peer import HELLO, request
from patience import PATIENCE_S

from minikube_py.control_plane.certificates import ensure_certificates, ensure_client_certificate
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.etcd_door import EtcdOptions
from minikube_py.control_plane.role import TlsFiles
from minikube_py.etcd.messages import pb


def options(folder: Path) -> EtcdOptions:
    return EtcdOptions("", TlsFiles(folder / "server.crt", folder / "server.key"), folder / "ca.crt")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    ensure_certificates(folder)
    return folder


@pytest.fixture
def server(tmp_path: Path, keys: Path) -> Iterator[Ours]:
    with ours(tmp_path, tls=options(keys).context("h2")) as found:
        yield found


def credentials(keys: Path, *, name: str = "", own: Path | None = None) -> grpc.ChannelCredentials:
    """`name`: of the certificate that is shown, by the authority of `own`."""
    shown = [path.read_bytes() for path in reversed(ensure_client_certificate(own or keys, name))] if name else []
    return grpc.ssl_channel_credentials((keys / "ca.crt").read_bytes(), *shown)


@contextlib.contextmanager
def calling(server: Ours, creds: grpc.ChannelCredentials, name: str) -> Iterator[Caller]:
    caller = Caller(f"127.0.0.1:{server.port}", creds, unshared=name)
    try:
        yield caller
    finally:
        caller.close()


def test_the_name_of_a_certificate_is_the_user_where_no_token_is_shown(server: Ours, keys: Path) -> None:
    with calling(server, credentials(keys, name="root"), "root") as root:
        for name, asked in (
            ("Auth/UserAdd", pb.AuthUserAddRequest(name="root", password="p")),
            ("Auth/UserAdd", pb.AuthUserAddRequest(name="u1", password="p")),
            ("Auth/UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root")),
            ("Auth/AuthEnable", pb.AuthEnableRequest()),
        ):
            assert root.call(name, asked)[0] == "ok"
        assert root.call("KV/Put", pb.PutRequest(key=b"a", value=b"1"))[0] == "ok"
        with calling(server, credentials(keys, name="u1"), "u1") as user:
            refused = "PERMISSION_DENIED", "etcdserver: permission denied"
            assert user.call("KV/Put", pb.PutRequest(key=b"a", value=b"2")) == refused
            assert user.call("KV/Range", pb.RangeRequest(key=b"a")) == refused
            token = user.call("Auth/Authenticate", pb.AuthenticateRequest(name="root", password="p"))[1]["token"]
            assert user.call("KV/Range", pb.RangeRequest(key=b"a"), (("token", token),))[0] == "ok"
            wrong = user.call("KV/Range", pb.RangeRequest(key=b"a"), (("token", "x"),))
            assert wrong == ("UNAUTHENTICATED", "etcdserver: invalid auth token")
        assert root.call("KV/Range", pb.RangeRequest(key=b"a"))[1]["kvs"][0]["value"] == b"1"


def test_who_shows_no_certificate_of_the_authority_is_not_let_in(server: Ours, keys: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    ensure_certificates(other)
    for number, creds in enumerate((credentials(keys), credentials(keys, name="root", own=other))):
        with calling(server, creds, str(number)) as caller:
            assert caller.call("KV/Range", pb.RangeRequest(key=b"a"))[0] == "UNAVAILABLE"
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as plain:
        plain.sendall(HELLO + request(1, end=True))
        # An alert, or nothing; no frame of HTTP/2.
        with contextlib.suppress(ConnectionResetError):
            assert plain.recv(1 << 12)[:1] in (b"", b"\x15")
    with calling(server, credentials(keys, name="root"), "good") as caller:
        assert caller.call("KV/Range", pb.RangeRequest(key=b"a"))[0] == "ok"


def test_h2_is_what_is_agreed_on(server: Ours, keys: Path) -> None:
    certificate, key = ensure_client_certificate(keys, "root")
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1", "h2"])
    with (
        socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as tls,
    ):
        assert tls.selected_alpn_protocol() == "h2"
        tls.sendall(HELLO)
        assert tls.recv(9)[3] == 4


def test_an_authority_that_is_none_is_refused_by_its_name(keys: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    wrong = EtcdOptions("", options(keys).tls, tmp_path / "ca.crt")
    with pytest.raises(SetupError, match=r"ca\.crt is not a certificate authority"):
        wrong.context()


def test_large_values_and_watches_go_through_tls(server: Ours, keys: Path) -> None:
    with calling(server, credentials(keys, name="root"), "root") as caller:
        stream = caller.stream("Watch/Watch")
        stream.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a", range_end=b"b")))
        assert stream.next()["created"]
        for each in range(20):
            assert caller.call("KV/Put", pb.PutRequest(key=b"a%02d" % each, value=bytes([each]) * (1 << 20)))[0] == "ok"
        got = [event["kv"]["value"] for _ in range(20) for event in stream.next()["events"]]
        assert got == [bytes([each]) * (1 << 20) for each in range(20)]
        stream.close()
        found = caller.call("KV/Range", pb.RangeRequest(key=b"a", range_end=b"b"))[1]
        assert [kv["value"] for kv in found["kvs"]] == got
