"""Where the members of an `up` are, and that a later start finds them there."""

import json
import random
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from minikube_py.control_plane import store_layout
from minikube_py.control_plane.config import ControlPlaneConfig
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.store_layout import _free_pairs, begun_members, member_count, member_places


@pytest.fixture
def config(tmp_path: Path) -> ControlPlaneConfig:
    (tmp_path / "data").mkdir()
    return ControlPlaneConfig(tmp_path / "data")


def test_one_where_nothing_is_said(config: ControlPlaneConfig) -> None:
    assert member_count(config) == member_count(replace(config, members=1)) == 1
    assert member_count(replace(config, members=3)) == 3


def test_addresses_are_kept(config: ControlPlaneConfig) -> None:
    places = member_places(config, 3)
    assert [place.name for place in places] == ["store-1", "store-2", "store-3"]
    addresses = [address for place in places for address in (place.client, place.peer)]
    assert len(set(addresses)) == 6 and all(address.startswith("127.0.0.1:") for address in addresses)
    (config.data_dir / "members" / "store-2" / "store").mkdir(parents=True)
    assert begun_members(config, places) == {"store-2"}
    assert member_places(config, 3) == places
    assert member_count(config) == 3, "as many as the folder holds"
    assert (config.data_dir / "members" / "addresses.json").stat().st_mode & 0o777 == 0o600


def test_addresses_that_no_member_began_with_are_chosen_anew(config: ControlPlaneConfig) -> None:
    first = member_places(config, 3)
    host, port = first[0].client.split(":")
    with socket.create_server((host, int(port))):
        again = member_places(config, 3)
    assert first[0].client not in {address for place in again for address in (place.client, place.peer)}


def test_two_that_start_at_once_choose_others() -> None:
    """Ports are only looked at, not held, until the members listen: those that look at the same time must differ."""
    chosen = [port for _ in range(20) for pair in _free_pairs(3, random.Random()) for port in pair]
    assert len(set(chosen)) >= 110, "a few meet by chance"


def test_taken_ports_are_passed_over(config: ControlPlaneConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(store_layout, "CLIENT_PORTS", range(port, port + 1))
        places = member_places(config, 2)
    assert all(f":{port}" not in place.client + place.peer for place in places)
    assert len({place.client for place in places} | {place.peer for place in places}) == 4


@pytest.mark.parametrize("wanted", [1, 5])
def test_another_number_than_there_are_is_refused(config: ControlPlaneConfig, wanted: int) -> None:
    member_places(config, 3)
    with pytest.raises(SetupError, match="holds a store of 3 members; start it with --members 3"):
        member_count(replace(config, members=wanted))


def test_a_store_of_one_does_not_become_several_by_a_flag(config: ControlPlaneConfig) -> None:
    config.member_folder.mkdir()
    assert member_count(config) == member_count(replace(config, members=1)) == 1
    with pytest.raises(SetupError, match="holds a store of one member; start it without --members"):
        member_count(replace(config, members=3))


@pytest.mark.parametrize("text", ["", "[1]", json.dumps([{"name": "x"}])])
def test_a_damaged_file_is_told(config: ControlPlaneConfig, text: str) -> None:
    member_places(config, 3)
    (config.data_dir / "members" / "addresses.json").write_text(text)
    with pytest.raises(SetupError, match=r"addresses\.json: not a list of store members"):
        member_count(config)
