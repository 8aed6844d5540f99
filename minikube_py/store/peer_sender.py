"""Everything sent to one other member: its link, reconnected whenever it is lost, and its bounded queue."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from minikube_py.errors import MinikubeError, Unavailable
from minikube_py.raft.message import Message, MessageType
from minikube_py.store.framing import frame
from minikube_py.store.membership import Member
from minikube_py.store.peer_connection import OutgoingLink, answered, is_refusal
from minikube_py.store.peer_protocol import Refusal, Refused, Say, message_frame
from minikube_py.store.peer_snapshots import SnapshotSender

if TYPE_CHECKING:
    from minikube_py.store.peers import Peers

REPORTED_S = 1.0
"""How often a snapshot's progress is reported to Raft."""


class PeerSender:
    """`member`: the receiver. `lagging_until`: not 0 for one that is not a known member here, but may be one by entries
    not applied here yet; its claim is accepted up to that index."""

    def __init__(self, peers: Peers, member: Member, lagging_until: int = 0) -> None:
        self.member = member
        self.lagging_until = lagging_until
        self._peers = peers
        self._link: OutgoingLink | None = None
        self._queue: deque[bytes] = deque()
        self._queue_bytes = 0
        self._urgent: list[bytes] = []
        self._urgent_bytes = 0
        self._flush_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._notice_timer: asyncio.TimerHandle | None = None
        self._snapshot: SnapshotSender | None = None
        self._snapshot_reported_s = 0.0
        self._ping = 0
        self._pinged_s = 0.0
        self._said = ""
        self.sent_messages = self.sent_bytes = self.dropped = self.connects = self.snapshot_bytes = 0
        self.round_trip_s = 0.0
        self._task = peers.loop.create_task(self._keep_linked(), name=f"link to {member.name}")
        self._task.add_done_callback(peers.task_ended)

    @property
    def linked(self) -> bool:
        return self._link is not None

    @property
    def waiting_bytes(self) -> int:
        return self._queue_bytes + self._urgent_bytes

    # -- what goes out ------------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Queues a message; `flush` sends it."""
        link, limits = self._link, self._peers.limits
        if link is None:
            self._drop(message)
            return
        if message.type == MessageType.SNAPSHOT:
            self._offer_snapshot(message)
            return
        data = message_frame(message, self._peers.packer)
        size = len(data)
        # For a slow peer everything but APPENDs goes first: a heartbeat or a vote does not depend on them.
        if link.paused and message.type != MessageType.APPEND:
            if self._urgent_bytes + size > limits.urgent_bytes_max:
                self._drop(message)
                return
            self._urgent.append(data)
            self._urgent_bytes += size
        else:
            if self._queue_bytes + size > limits.queue_bytes_max:
                self._drop(message)
                return
            self._queue.append(data)
            self._queue_bytes += size
        self.sent_messages += 1

    def flush(self) -> None:
        """Writes the queue as far as the peer takes it, in one piece if that is not too large."""
        self._flush_due = False
        if self._notice_timer is not None:
            self._notice_timer.cancel()
            self._notice_timer = None
        link = self._link
        written = 0
        while link is not None and link is self._link and not link.paused and not link.ending:
            data = self._next()
            if not data:
                return
            link.write(data)
            written += len(data)
            if written >= self._peers.limits.turn_bytes_max:
                self._flush_soon()
                return

    def flush_within(self, wait_s: float) -> None:
        """Writes the queue by then, together with messages added meanwhile."""
        if self._notice_timer is None:
            self._notice_timer = self._peers.loop.call_later(wait_s, self.flush)

    def _next(self) -> bytes:
        limit = self._peers.limits.write_buffer_bytes
        if self._urgent or self._queue:
            parts, size = self._urgent, self._urgent_bytes
            self._urgent, self._urgent_bytes = [], 0
            while self._queue and (not parts or size + len(self._queue[0]) <= limit):
                part = self._queue.popleft()
                self._queue_bytes -= len(part)
                parts.append(part)
                size += len(part)
            self.sent_bytes += size
            return parts[0] if len(parts) == 1 else b"".join(parts)
        return self._next_chunk()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._peers.loop.call_soon(self.flush)

    def _drop(self, message: Message) -> None:
        self.dropped += 1
        if message.type == MessageType.APPEND:
            self._peers.report(self.member.id, False)
        elif message.type == MessageType.SNAPSHOT:
            self._peers.report(self.member.id, False, False)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _offer_snapshot(self, message: Message) -> None:
        assert message.snapshot is not None
        sender = self._snapshot
        if sender is not None and sender.source.offer.meta.index >= message.snapshot.index:
            if sender.active and sender.message.term == message.term:
                return
        else:
            self._forget_snapshot()
            try:
                source = self._peers.snapshot_source()
            except OSError as error:
                self._snapshot_failed(f"the snapshot cannot be read: {error.strerror or error}")
                return
            if source is None:
                self._drop(message)
                return
            sender = self._snapshot = SnapshotSender(source, message, self._peers.limits, self._peers.clock)
        offer = sender.offer(message)
        self._urgent.append(offer)
        self._urgent_bytes += len(offer)

    def _next_chunk(self) -> bytes:
        sender = self._snapshot
        if sender is None:
            return b""
        try:
            chunk = sender.next_chunk()
        except OSError as error:
            self._snapshot_failed(f"the snapshot cannot be read: {error.strerror or error}")
            return b""
        if chunk is None:
            if (wait_s := sender.wait_s) is not None:
                self._flush_after(wait_s)
            return b""
        self.snapshot_bytes += len(chunk)
        self.sent_bytes += len(chunk)
        return chunk

    def _flush_after(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._peers.loop.call_later(wait_s, self.flush)

    def _snapshot_failed(self, why: str) -> None:
        self._forget_snapshot()
        self._peers.report(self.member.id, True, False)
        self._tell(why)

    def _forget_idle(self, sender: SnapshotSender) -> None:
        """Never one that was restarted: its end would not be reported."""
        if sender is self._snapshot and not sender.active:
            self._forget_snapshot()

    def _forget_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.source.close()
            self._snapshot = None

    # -- what the link tells (peer_connection.OutgoingLink) -----------------------------------------------------------

    def ponged(self, number: int) -> None:
        if number == self._ping:
            self.round_trip_s = self._peers.clock.monotonic_s() - self._pinged_s

    def snapshot_wanted(self, offset: int) -> None:
        sender = self._snapshot
        if sender is None or not sender.active:
            return
        sender.wanted(offset)
        if sender.heard_s - self._snapshot_reported_s >= REPORTED_S:
            self._snapshot_reported_s = sender.heard_s
            self._peers.report(self.member.id, True)
        self.flush()

    def snapshot_done(self, taken: bool, text: str) -> None:
        if self._snapshot is None or not self._snapshot.active:
            return
        if taken:
            self._forget_snapshot()
            self._peers.report(self.member.id, True, True)
        else:
            self._snapshot_failed(f"refused the snapshot: {text}")

    def refused(self, refusal: Refused) -> None:
        if refusal.refusal == Refusal.REMOVED:
            self._peers.expelled(str(refusal))
        elif refusal.refusal == Refusal.STRANGER:
            self._peers.strange(self.member.id, "does not know this one")

    def ping(self) -> bytes:
        """The frame of the next PING."""
        now_s = self._peers.clock.monotonic_s()
        sender = self._snapshot
        if sender is not None and sender.active and now_s - sender.heard_s > self._peers.limits.snapshot_patience_s:
            self._snapshot_failed(f"no progress of a snapshot for {self._peers.limits.snapshot_patience_s:g} s")
        self._ping += 1
        self._pinged_s = now_s
        return frame((Say.PING, self._ping))

    # -- the link -----------------------------------------------------------------------------------------------------

    async def _keep_linked(self) -> None:
        peers = self._peers
        limits, clock = peers.limits, peers.clock
        delay_s = limits.retry_s_min
        while True:
            link = OutgoingLink(
                self, peers.hello_to(self.member.id), peers.cluster_id, self.member.id, limits, peers.loop
            )
            try:
                why = await self._establish(link)
                if why is None:
                    began_s = clock.monotonic_s()
                    self._up(link)
                    why = Unavailable(await asyncio.shield(link.lost))
                    if clock.monotonic_s() - began_s >= limits.retry_s_max:
                        delay_s = limits.retry_s_min
            finally:
                self._down(link)
            # The peer itself reports what it waits for.
            if not (isinstance(why, Refused) and why.refusal == Refusal.EARLY):
                self._tell(str(why))
            await clock.sleep(delay_s * peers.rng.uniform(0.5, 1.0))
            delay_s = min(limits.retry_s_max, delay_s * 2)

    async def _establish(self, link: OutgoingLink) -> MinikubeError | None:
        """The reason why there is no link; None: it is up."""
        peers = self._peers
        try:
            greeted = asyncio.shield(link.greeted)
            refusal = await answered(link, self.member.peer, peers.tls_client, greeted, peers.limits.connect_s)
        except Unavailable as error:
            if is_refusal(error.__cause__):
                peers.gone(self.member.id)
            return error
        if refusal is not None:
            self.refused(refusal)
        return refusal

    def _up(self, link: OutgoingLink) -> None:
        self._link = link
        self._peers.strange(self.member.id)
        self.connects += 1
        if self._said:
            self._said = ""
            self._peers.say(f"{self._text}: connected")
        self._peers.report(self.member.id, True)

    def _down(self, link: OutgoingLink) -> None:
        link.abort("the link is no longer needed")
        if self._link is not link:
            return
        self._link = None
        self.dropped += len(self._queue) + len(self._urgent)
        self._queue.clear()
        self._urgent.clear()
        self._queue_bytes = self._urgent_bytes = 0
        for timer in (self._timer, self._notice_timer):
            if timer is not None:
                timer.cancel()
        self._notice_timer = None
        if self._snapshot is not None:
            # Kept for a while: what the peer already has need not be sent again.
            self._snapshot.active = False
            patience_s = self._peers.limits.snapshot_patience_s
            self._peers.loop.call_later(patience_s, self._forget_idle, self._snapshot)
        self._peers.report(self.member.id, False)

    def _tell(self, why: str) -> None:
        """Reports each reason once in a row: a peer that is down is retried every second."""
        if why != self._said:
            self._said = why
            self._peers.say(f"{self._text}: {why}")

    @property
    def _text(self) -> str:
        return f"peer {self.member.name} ({self.member.peer})"

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))
        self._forget_snapshot()
