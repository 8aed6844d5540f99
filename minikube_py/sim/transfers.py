"""A snapshot on its way between two places, piece by piece over their links; it may break off anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from minikube_py.raft.message import Message
from minikube_py.sim.place import SLICE_US, SYNC_US, Place
from minikube_py.store.snapshot_transfer import IncomingSnapshot, SnapshotOffer, SnapshotSource, TransferRefused

if TYPE_CHECKING:
    from minikube_py.sim.cluster import Cluster

CHUNK_BYTES: Final = 3_000
QUIET_US: Final = 400_000
"""A transfer of which nothing was heard for so long has broken off."""
AGAIN_SHARE: Final = 0.3
AGAIN_US: Final = (1_000, 400_000)


class Transfer:
    """Begins at once. The sender's Raft is told how it ended."""

    def __init__(self, cluster: Cluster, sender: Place, receiver: Place, message: Message) -> None:
        self._cluster = cluster
        self._sender = sender
        self._sender_life = sender.life
        self._receiver = receiver
        self._message = message
        self._source: SnapshotSource | None = None
        self._ended = False
        self._heard = 0
        self._rng = cluster.rng
        assert sender.replica is not None
        source = sender.replica.snapshot_source()
        if source is None:
            self._report(False)
            return
        self._source = source
        self._watch()
        self._to_receiver(self._offered, source.offer)

    def end(self) -> None:
        """Nothing of it happens any more, and nobody is told."""
        self._ended = True

    def _report(self, well: bool) -> None:
        self._ended = True
        self._sender.do(self._sender_life, self._tell, well)

    def _tell(self, well: bool) -> None:
        replica = self._sender.replica
        if replica is not None:
            replica.report(self._message.to, True, well)
            self._sender.turn_soon()

    def _watch(self) -> None:
        """Ends it when nothing has been heard since the last look."""
        heard = self._heard

        def look() -> None:
            if not self._ended:
                if heard == self._heard:
                    self._report(False)
                else:
                    self._watch()

        self._cluster.steps.after(QUIET_US, look)

    def _to_receiver(self, act: Callable[..., None], *arguments: Any) -> None:
        receiver, sender = self._receiver, self._sender
        self._cluster.carry(sender.number, receiver.number, self._at, receiver, None, act, *arguments)

    def _to_sender(self, act: Callable[..., None], *arguments: Any) -> None:
        receiver, sender = self._receiver, self._sender
        self._cluster.carry(receiver.number, sender.number, self._at, sender, self._sender_life, act, *arguments)

    def _at(self, place: Place, life: int | None, act: Callable[..., None], *arguments: Any) -> None:
        self._heard += 1
        if not self._ended:
            place.do(place.life if life is None else life, act, *arguments)

    # -- at the receiver -----------------------------------------------------------------------------------------------

    def _offered(self, offer: SnapshotOffer) -> None:
        replica = self._receiver.replica
        if replica is None or self._receiver.member_id != self._message.to:
            return
        try:
            incoming = replica.incoming_snapshot(offer)
        except (TransferRefused, OSError) as error:
            self._broken(error)
            return
        self._go_on(self._receiver.life, incoming)

    def _go_on(self, life: int, incoming: IncomingSnapshot) -> None:
        if incoming.offset < incoming.offer.size_bytes:
            self._to_sender(self._wanted, life, incoming, incoming.offset)
        else:
            self._finish(incoming, incoming.finish())

    def _arrived(self, life: int, incoming: IncomingSnapshot, offset: int, data: bytes) -> None:
        if life != self._receiver.life or incoming.closed:
            return
        try:
            sync = incoming.write(offset, data)
            if sync is not None:
                sync()
        except (TransferRefused, OSError) as error:
            self._broken(error)
            return
        self._go_on(life, incoming)

    def _finish(self, incoming: IncomingSnapshot, steps: Iterator[Callable[[], None] | None]) -> None:
        """Verifies and restores, a step at a time, while the member goes on."""
        self._heard += 1
        if self._ended:
            return
        receiver = self._receiver
        try:
            for sync in steps:
                if sync is not None:
                    sync()
                delay_us = SLICE_US if sync is None else self._rng.randint(*SYNC_US)
                self._cluster.steps.after(delay_us, receiver.do, receiver.life, self._finish, incoming, steps)
                return
        except (TransferRefused, OSError) as error:
            self._broken(error)
            return
        done = self._message._replace(snapshot=incoming.offer.meta)
        receiver.receive(done)
        self._to_sender(self._report, True)
        if self._rng.random() < AGAIN_SHARE:
            # The answer was lost, and what it answered is said once more.
            self._cluster.steps.after(
                self._rng.randint(*AGAIN_US), receiver.do, receiver.life, receiver.receive, done
            )

    def _broken(self, error: Exception) -> None:
        self._cluster.steps.tell(f"{self._receiver.name} does not take the snapshot: {error}")
        self._to_sender(self._report, False)

    # -- at the sender -------------------------------------------------------------------------------------------------

    def _wanted(self, life: int, incoming: IncomingSnapshot, offset: int) -> None:
        assert self._source is not None
        data = self._source.read(offset, CHUNK_BYTES)
        self._to_receiver(self._arrived, life, incoming, offset, data)
