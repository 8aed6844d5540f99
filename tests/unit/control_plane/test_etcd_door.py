"""Where etcd's API listens, and what of that is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikube_py.cli.main import main
from minikube_py.control_plane import listen
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.etcd_behind import EtcdBehind
from minikube_py.control_plane.etcd_door import FLAG, of_plane, with_ports
from minikube_py.control_plane.etcd_urls import parse_urls


def test_urls_are_read_as_etcd_writes_them() -> None:
    assert parse_urls("https://10.0.0.1:2379, https://[::1]:2380/", FLAG) == (
        True,
        [("10.0.0.1", 2379), ("::1", 2380)],
    )
    assert parse_urls("http://127.0.0.1:2379,http://localhost:1", FLAG)[0] is False


@pytest.mark.parametrize(
    "text",
    [
        "", ",", "127.0.0.1:2379", "https://127.0.0.1", "https://:2379", "https://a:99999", "https://a:1/v3", "ftp://a:1",
        "https://[::1", "unix:///tmp/x", "http://10.0.0.1:2379", "http://example:2379", "http://127.0.0.1:1,https://127.0.0.1:2",
    ],
)  # fmt: skip
def test_what_is_no_place_or_would_let_anybody_in_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match=FLAG):
        parse_urls(text, FLAG)


@pytest.mark.parametrize("text", ["", "https://[::1", "10.0.0.1:2379", "http://10.0.0.1:1,https://10.0.0.1:2"])
def test_an_etcd_of_somebody_elses_is_named_by_its_urls(text: str) -> None:
    EtcdBehind("http://10.0.0.1:2379").check()
    with pytest.raises(SetupError, match="--etcd-servers"):
        EtcdBehind(text).check()


def test_http_alone_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["store", "--data-dir", str(tmp_path), "--listen-client-http-urls", "http://127.0.0.1:0"])
    assert code and "needs --listen-client-urls" in capsys.readouterr().err


@pytest.mark.parametrize("members", [1, 3])
def test_port_0_is_a_row_of_free_ones_that_the_members_keep(tmp_path: Path, members: int) -> None:
    asked = ControlPlaneConfig(tmp_path, etcd_port=0, etcd_http_port=0)
    config = with_ports(asked, members)
    assert config.etcd_port and config.etcd_http_port
    config.pki_folder.mkdir(parents=True)
    made = [each for each in (of_plane(config, position) for position in range(members)) if each is not None]
    ports = [parse_urls(urls, FLAG)[1][0][1] for each in made for urls in (each.urls, each.http_urls)]
    assert len(set(ports)) == 2 * members and all(ports)
    assert with_ports(ControlPlaneConfig(tmp_path, etcd_port=2379), 1).etcd_port == 2379
    alone = of_plane(ControlPlaneConfig(tmp_path, etcd_port=2379))
    assert alone is not None and not alone.http_urls


@pytest.mark.parametrize("named", [{"etcd_port": 40_002}, {"etcd_port": 39_998}, {"port": 40_005}])
def test_a_drawn_row_of_ports_meets_none_that_was_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: dict[str, int]
) -> None:
    drawn = iter((40_000, 50_000))
    # Nobody listens at a named port yet, so it looks free.
    monkeypatch.setattr(listen, "_try", lambda host, port: (host, port or next(drawn)))
    config = with_ports(ControlPlaneConfig(tmp_path, **{"etcd_port": 0, **named}, etcd_http_port=0), 3)
    assert config.etcd_http_port == 50_003


def test_any_free_port_of_several_members_is_drawn_by_each(tmp_path: Path) -> None:
    config = ControlPlaneConfig(tmp_path, etcd_port=0)
    config.pki_folder.mkdir(parents=True)
    second = of_plane(config, 1)
    assert second is not None and parse_urls(second.urls, FLAG)[1] == [("127.0.0.1", 0)]
