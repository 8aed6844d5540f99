"""A member's identity: a random id, made durable before its first message.

The file also records whether this id has ever taken part in a cluster. If it has and the log is gone, the member has
forgotten what it promised under that id, so the id must never be used again.
docs/adr/0006-identity-bootstrap-and-rejoin.md says why."""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from minikube_py.env import Disk, Rng
from minikube_py.errors import Corruption, MinikubeError
from minikube_py.raft.configuration import NodeId
from minikube_py.store.room import NO_FILE, where
from minikube_py.wal.segment import segment_sequence
from minikube_py.wal.snapshot import PART_SUFFIX, snapshot_index

IDENTITY_NAME = "identity"
IDENTITY_BYTES_MAX = 256
ID_BITS = 63
_FIRST_WORDS = "minikube-py-member 1"
_REMEDY = (
    "remove it if the log beside it is intact: the next start writes it again; if not, empty the folder and start with "
    "--rejoin"
)


class Identity(NamedTuple):
    """`cluster_id` 0: has not started: never voted and never acknowledged anything in any cluster."""

    id: NodeId
    cluster_id: int = 0


class LogLost(MinikubeError):
    """The folder belongs to a member that took part in a cluster, but its log is missing."""

    def __init__(self, identity: Identity) -> None:
        super().__init__(
            f"the log of member {id_text(identity.id)} is gone, and it was a member of cluster "
            f"{id_text(identity.cluster_id)}: under this id it must not vote again. Restore the folder, or start with "
            "--rejoin to come back under a new id, with the data of the other members"
        )
        self.identity = identity


def id_text(id: int) -> str:
    """How ids of members and clusters are displayed."""
    return f"{id:x}"


def has_log(disk: Disk) -> bool:
    """Whether a member has started here: then it continues without discovery."""
    return any(segment_sequence(name) is not None or snapshot_index(name) is not None for name in disk.names())


def own_identity(disk: Disk, rng: Rng, *, rejoin: bool = False) -> Identity:
    """The durable identity of a folder without a log, newly drawn if there is none. With `rejoin`, an id whose log is
    lost is replaced.

    Raises: LogLost; Corruption if the file is damaged; OSError."""
    identity = load_identity(disk)
    if identity is not None and identity.cluster_id:
        if not rejoin:
            raise LogLost(identity)
        identity = None
    if identity is None:
        identity = Identity(NodeId(rng.getrandbits(ID_BITS) or 1))
        _save(disk, identity)
    else:
        # The process may have been killed before the file's name was durable.
        disk.sync_folder()
    return identity


def confirm_identity(disk: Disk, id: NodeId, cluster_id: int) -> Identity:
    """Call this at each start, with the log open and durable and before anything is sent: records that `id` has started
    in this cluster. A folder older than identities gets one.

    Raises: Corruption if identity and log belong to different members; OSError."""
    found = load_identity(disk)
    wanted = Identity(id, cluster_id)
    if found == wanted:
        disk.sync_folder()
        return wanted
    if found is not None and (found.id != id or found.cluster_id):
        raise Corruption(
            f"{IDENTITY_NAME}: names member {_text(found)}, but the log beside it is of member {_text(wanted)}; files "
            f"of two members are in {where(disk)}, or the file was modified. With other members, empty the folder and "
            "start with --rejoin; alone, restore it from one backup"
        )
    _save(disk, wanted)
    return wanted


def load_identity(disk: Disk) -> Identity | None:
    """None: there is none. Raises: Corruption."""
    if IDENTITY_NAME not in disk.names():
        return None
    try:
        file = disk.open(IDENTITY_NAME)
    except OSError as error:
        if error.errno not in NO_FILE:
            raise
        raise Corruption(
            f"{where(disk)}/{IDENTITY_NAME}: not a file that can be read and written ({error.strerror}). If it is a "
            f"link, mount what it leads to, and if it may not be read, correct its permissions; else {_REMEDY}"
        ) from None
    try:
        return decode_identity(file.read_at(0, IDENTITY_BYTES_MAX))
    finally:
        file.close()


def encode_identity(identity: Identity) -> bytes:
    words = f"{_FIRST_WORDS} {id_text(identity.id)} {id_text(identity.cluster_id)}"
    return f"{words} {crc32(words.encode()):08x}\n".encode()


def decode_identity(data: bytes) -> Identity:
    """Raises: Corruption."""
    text = data[:IDENTITY_BYTES_MAX].decode("ascii", "replace")
    words, _, _ = text.rstrip("\n").rpartition(" ")
    try:
        identity = Identity(*(int(word, 16) for word in words.removeprefix(_FIRST_WORDS).split()))  # type: ignore[arg-type]
        sound = identity.id > 0 and encode_identity(identity) == data
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise Corruption(
            f"{IDENTITY_NAME}: damaged: {text[:80]!r} differs from what was written; {_REMEDY}"
        )
    return identity


def _save(disk: Disk, identity: Identity) -> None:
    """Replaces the file atomically; durable on return."""
    part = IDENTITY_NAME + PART_SUFFIX
    if part in disk.names():
        disk.remove(part)
    file = disk.open(part, create=True)
    try:
        file.write_at(0, encode_identity(identity))
        file.sync()
    finally:
        file.close()
    disk.rename(part, IDENTITY_NAME)
    disk.sync_folder()


def _text(identity: Identity) -> str:
    cluster = f"of cluster {id_text(identity.cluster_id)}" if identity.cluster_id else "not in a cluster yet"
    return f"{id_text(identity.id)} {cluster}"
