"""Data folders and addresses of the store members of an `up`: chosen once, and kept with the data.

A single member is in `member/`; several are in `members/<name>/`, with their addresses beside them: the members
identify each other by these, so a later start must use the same."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from minikube_py.control_plane.config import LOOPBACK, ControlPlaneConfig
from minikube_py.control_plane.errors import SetupError
from minikube_py.control_plane.private_files import make_private_folder, read_text, write_private
from minikube_py.env import Rng

FILE_NAME = "addresses.json"
MEMBERS_MAX = 9
CLIENT_PORTS = range(20_000, 32_000, 2)
"""Members listen to each other at the next port. Below the ephemeral range, so that a member that was down finds its
ports free; in random order, so that two `up`, one of which is just starting or has a member down, do not choose the
same. Any free ones if none of `TRIES_MAX` is."""
TRIES_MAX = 100


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """`client`, `peer`: `host:port`."""

    name: str
    client: str
    peer: str


def members_folder(config: ControlPlaneConfig) -> Path:
    return config.data_dir / "members"


def member_count(config: ControlPlaneConfig) -> int:
    """The number of members: from `config`, or from the data folder.

    Raises: SetupError if the two disagree."""
    there = len(_known(config))
    wanted = config.members
    if there:
        if wanted not in (None, there):
            raise SetupError(
                f"{config.data_dir} holds a store of {there} members; start it with --members {there}, or name another "
                "folder (members of a running store: `minikube-py store member`)"
            )
        return there
    if wanted is None or wanted == 1:
        return 1
    if config.member_folder.exists():
        raise SetupError(
            f"{config.data_dir} holds a store of one member; start it without --members, or name another folder (to "
            "copy its data: `minikube-py store snapshot save F`, then `up --restore F` there)"
        )
    return wanted


def member_places(config: ControlPlaneConfig, count: int) -> list[MemberPlace]:
    """Their addresses, chosen if no member has started with any yet. Raises: SetupError."""
    known = _known(config)
    if begun_members(config, known):
        return known
    make_private_folder(members_folder(config))
    ports = _free_pairs(count, random.Random())
    places = [
        MemberPlace(f"store-{number}", f"{LOOPBACK}:{client}", f"{LOOPBACK}:{peer}")
        for number, (client, peer) in enumerate(ports, start=1)
    ]
    text = json.dumps([asdict(place) for place in places], indent=2)
    write_private(members_folder(config) / FILE_NAME, f"{text}\n".encode())
    return places


def begun_members(config: ControlPlaneConfig, places: Sequence[MemberPlace]) -> set[str]:
    """The names of those with a store in their folder."""
    return {place.name for place in places if (members_folder(config) / place.name / "store").exists()}


def restore_first(config: ControlPlaneConfig, places: Sequence[MemberPlace] = ()) -> None:
    """If `config` names a snapshot, creates from it the folder of the first of `places`, which the others join, or of
    the only member. Raises: SetupError, also if there is already a store; Corruption."""
    if config.restore is None:
        return
    from minikube_py.control_plane.store_snapshots import NewMember, expected_members, restore

    if not places:
        restore(config.restore, config.member_folder, NewMember(), random.Random())
        return
    first, initial = places[0], tuple((place.name, place.peer) for place in places)
    new = NewMember(first.name, first.peer, first.client, expected_members(initial, first.name))
    restore(config.restore, members_folder(config) / first.name, new, random.Random())


def _known(config: ControlPlaneConfig) -> list[MemberPlace]:
    path = members_folder(config) / FILE_NAME
    if not path.exists():
        return []
    try:
        return [MemberPlace(**each) for each in orjson.loads(read_text(path, "file of members"))]
    except (ValueError, TypeError) as error:
        raise SetupError(f"{path}: not a list of store members: {error}; restore it, or give another folder") from error


def _free_pairs(count: int, rng: Rng) -> list[tuple[int, int]]:
    """This many pairs of currently free ports."""
    held: list[socket.socket] = []
    try:
        pairs: list[tuple[int, int]] = []
        for client in rng.sample(CLIENT_PORTS, min(TRIES_MAX, len(CLIENT_PORTS))):
            if len(pairs) == count:
                break
            pair = _try_both(client, client + 1)
            if pair is not None:
                held += pair
                pairs.append((client, client + 1))
        while len(pairs) < count:
            both = _try_both(0, 0)
            if both is None:
                raise SetupError(f"no free ports on {LOOPBACK} for {count} store members")
            held += both
            pairs.append((both[0].getsockname()[1], both[1].getsockname()[1]))
        return pairs
    finally:
        for each in held:
            each.close()


def _try_both(*ports: int) -> list[socket.socket] | None:
    held: list[socket.socket] = []
    try:
        for port in ports:
            each = socket.socket()
            held.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind((LOOPBACK, port))
            each.listen(1)
    except OSError:
        for each in held:
            each.close()
        return None
    return held
