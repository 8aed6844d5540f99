"""One member's links to all others, over mutual TLS: implements `links.PeerLinks` on a separate port.

Before a member takes part (`begin`) the port only reports its identity. Afterwards it admits members of the same
cluster, by both sides' ids; `peer_admission` holds the rules. docs/adr/0006-identity-bootstrap-and-rejoin.md says why.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minikube_py.env import Clock, Rng, say
from minikube_py.errors import InvalidRequest, MinikubeError, NotLeader, shown
from minikube_py.ports.descriptors import Descriptors, PortLimits
from minikube_py.ports.port import Incoming, Port
from minikube_py.raft.configuration import NodeId
from minikube_py.raft.message import Message, MessageType
from minikube_py.store.bootstrap import Answer
from minikube_py.store.framing import ProtocolError, frame
from minikube_py.store.identity import id_text
from minikube_py.store.membership import MEMBERS_MAX, ChangeKind, Member, MemberChange, decode_member_change
from minikube_py.store.peer_admission import Admission
from minikube_py.store.peer_connection import IncomingConnection, PeerLimits
from minikube_py.store.peer_protocol import (
    PEER_GREETING,
    Ask,
    EntryPacker,
    LinkHello,
    Refusal,
    Refused,
    Reply,
    Say,
    failed_frame,
    link_hello,
    read_message,
    read_offer,
    who_frame,
)
from minikube_py.store.peer_sender import PeerSender
from minikube_py.store.peer_snapshots import RunSync, SnapshotReceiver
from minikube_py.store.snapshot_transfer import SnapshotOffer, SnapshotSource

if TYPE_CHECKING:
    from minikube_py.store.member import StoreMember

Who = Callable[[], Answer]
Joined = Callable[[MinikubeError | None], None]
JoinRequest = Callable[[MemberChange, Joined], None]
"""Proposes the change and returns when it is applied. Raises: MinikubeError, NotLeader among them; then nothing was
done."""

NOTICE_S = 0.001
"""How long a new commit index may wait for entries to travel with: alone it would wake every follower."""


async def _sync_inline(sync: Callable[[], None]) -> None:
    sync()


class Peers:
    """`own`: this member, as the others reach it. `say` is called, once per reason, when a peer cannot be reached.
    `run_sync` runs a sync of an arriving snapshot's file without blocking the loop."""

    def __init__(
        self,
        own: Member,
        token: str,
        clock: Clock,
        rng: Rng,
        *,
        tls_server: ssl.SSLContext | None = None,
        tls_client: ssl.SSLContext | None = None,
        limits: PeerLimits | None = None,
        say: Callable[[str], None] = say,
        run_sync: RunSync = _sync_inline,
        descriptors: Descriptors | None = None,
    ) -> None:
        self.own = own
        self.token = token
        self.clock, self.rng = clock, rng
        self.tls_client = tls_client
        self.limits = limits or PeerLimits()
        self.say = say
        self.cluster_id = 0
        self.loop: asyncio.AbstractEventLoop
        self.packer = EntryPacker()
        self._run_sync = run_sync
        wanted = PortLimits.proving(self.limits.connections_max, self.limits.hello_s)
        self.port = Port("store members", self._connection, wanted, clock, tls=tls_server, descriptors=descriptors)
        self._who: Who | None = None
        self._join: JoinRequest | None = None
        self._driver: StoreMember | None = None
        self._members: dict[NodeId, Member] = {}
        self._removed: frozenset[NodeId] = frozenset()
        self._senders: dict[NodeId, PeerSender] = {}
        self._connections: dict[IncomingConnection, None] = {}
        self._links: dict[NodeId, IncomingConnection] = {}
        self._lagging: dict[IncomingConnection, int] = {}
        self._receiver: SnapshotReceiver | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._reports: dict[tuple[NodeId, bool, bool | None], None] = {}
        self._expelled = False
        self._stopped = False
        self.received: dict[NodeId, list[int]] = {}
        self.refusals = 0
        self.strangers: dict[NodeId, str] = {}
        """Those of this cluster by their own word, of which one side does not know the other: why, by id."""

    # -- beginning and end --------------------------------------------------------------------------------------------

    async def listen(self, host: str, port: int) -> None:
        """Raises: MinikubeError if the address cannot be bound."""
        self.loop = asyncio.get_running_loop()
        try:
            await self.port.listen(host, port)
        except OSError as error:
            raise MinikubeError(f"cannot listen to peers on {host}:{port}: {error.strerror or error}") from None

    @property
    def address(self) -> tuple[str, int]:
        return self.port.address

    def _connection(self, incoming: Incoming) -> IncomingConnection:
        return IncomingConnection(self, incoming, self.limits, self.loop)

    def answer_with(self, who: Who) -> None:
        """The answer to WHO while this member is not in a cluster yet."""
        self._who = who

    def begin(
        self, driver: StoreMember, cluster_id: int, who: Who, join: JoinRequest, members: Sequence[Member] = ()
    ) -> None:
        """Takes part from here on. `members`: those known before the log is read, for a member that joins."""
        assert self._driver is None, "begun already"
        self._driver, self.cluster_id, self._who, self._join = driver, cluster_id, who, join
        if not self._members:
            self.update(members, ())
        else:
            self.update(tuple(self._members.values()), tuple(self._removed))

    async def stop(self) -> None:
        """Ends all links; their queues are dropped."""
        self._stopped = True
        await self.port.close()
        senders, self._senders = self._senders, {}
        await asyncio.gather(*[sender.stop() for sender in senders.values()])
        tasks = list(self._leaving)
        if self._receiving is not None:
            self._receiving.cancel()
            tasks.append(self._receiving)
        if tasks:
            await asyncio.wait(tasks)
        for connection in list(self._connections):
            connection.abort("this member stops")
        lost = [connection.lost for connection in self._connections]
        if lost:
            await asyncio.wait(lost)
        await self.port.wait_closed()

    # -- links.PeerLinks ----------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message]) -> None:
        senders = self._senders
        touched: dict[NodeId, bool] = {}
        for message in messages:
            sender = senders.get(message.to)
            if sender is not None:
                sender.send(message)
                may_wait = message.type == MessageType.APPEND and not message.entries
                touched[message.to] = may_wait and touched.get(message.to, True)
        for node, may_wait in touched.items():
            if may_wait:
                senders[node].flush_within(NOTICE_S)
            else:
                senders[node].flush()

    def update(self, members: Sequence[Member], removed: Sequence[NodeId]) -> None:
        self._removed = frozenset(removed)
        for id in self._removed.intersection(self.strangers):
            self.strange(id)
        if members or not self._members:
            self._members = {member.id: member for member in members}
        if self._driver is None or self._stopped:
            return
        applied = self._applied
        wanted = {id: member for id, member in self._members.items() if id != self.own.id and member.peer}
        for id, sender in list(self._senders.items()):
            known = wanted.get(id)
            stays = known.peer == sender.member.peer if known else id not in self._removed and (
                sender.lagging_until > applied or not self._is_member or id in self._members
            )
            if not stays:
                self._leave(id)
            elif known:
                sender.member, sender.lagging_until = known, 0
        for id, member in wanted.items():
            if id not in self._senders:
                self._senders[id] = PeerSender(self, member)
        admission = self._admission()
        for id, connection in list(self._links.items()):
            refusal = admission.refuses_member(id, self._lagging.get(connection, 0))
            if refusal is not None:
                self._refuse(connection, refusal)

    # -- what the senders ask -----------------------------------------------------------------------------------------

    def hello_to(self, id: NodeId) -> bytes:
        applied = self._applied if self._is_member else 0
        hello = LinkHello(self.cluster_id, self.own.id, id, self.own.peer, applied)
        return PEER_GREETING.hello(self.token, Ask.LINK, *hello)

    def report(self, id: NodeId, reachable: bool, snapshot: bool | None = None) -> None:
        """Reported to the driver soon, not within its own call to `send`."""
        if not self._reports:
            self.loop.call_soon(self._report_now)
        key = (id, reachable, snapshot)
        self._reports.pop(key, None)
        self._reports[key] = None

    def _report_now(self) -> None:
        reports, self._reports = self._reports, {}
        if self._driver is not None and not self._stopped:
            for id, reachable, snapshot in reports:
                self._driver.report(id, reachable, snapshot)

    def gone(self, id: NodeId) -> None:
        if self._driver is not None and not self._stopped:
            self._driver.gone(id)

    def snapshot_source(self) -> SnapshotSource | None:
        assert self._driver is not None
        return self._driver.snapshot_source()

    def expelled(self, reason: str) -> None:
        if not self._expelled and self._driver is not None:
            self._expelled = True
            self._driver.expelled(reason)

    def strange(self, id: NodeId, why: str = "") -> None:
        """One of this cluster by its own word does not know this member, or is not known here; "": it is settled."""
        self.strangers.pop(id, None)
        if why and len(self.strangers) < MEMBERS_MAX:
            self.strangers[id] = why

    def task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.loop.call_exception_handler({"message": "a peer's link failed", "exception": error, "task": task})

    # -- what comes in (peer_connection.IncomingConnection) -----------------------------------------------------------

    def opened(self, connection: IncomingConnection) -> None:
        self._connections[connection] = None
        if self._stopped:
            connection.abort("this member stops")

    def closed(self, connection: IncomingConnection) -> None:
        self._connections.pop(connection, None)
        self._lagging.pop(connection, None)
        sender = connection.sender
        if sender is None:
            return
        self._count(sender)[1] += connection.received_bytes
        if self._links.get(sender) is connection:
            del self._links[sender]
        if self._receiver is not None:
            self._receiver.detach(connection)

    def greeted(self, connection: IncomingConnection, hello: tuple[Any, ...]) -> None:
        """The first frame. Raises: ProtocolError."""
        refusal = PEER_GREETING.refuses(hello, self.token)
        if refusal is not None:
            what, text = refusal
            if what == "hello":
                raise ProtocolError(text)
            self._refuse(connection, Refused(Refusal.VERSION if what == "version" else Refusal.TOKEN, text))
            return
        if not connection.incoming.authenticated():
            limit = self.port.limits.connections_max
            self._refuse(connection, Refused(Refusal.FULL, f"this member has reached its limit of {limit} connections"))
            return
        ask, *arguments = hello[3:]
        if ask == Ask.WHO and self._who is None:
            self._refuse(connection, Refused(Refusal.EARLY, f"{self.own.name} is starting"))
        elif ask == Ask.WHO and self._who is not None:
            connection.write(who_frame(self._who()))
            connection.close("answered")
        elif ask == Ask.JOIN:
            self._join_asked(connection, arguments)
        elif ask == Ask.LINK:
            self._link_asked(connection, link_hello(arguments))
        else:
            raise ProtocolError(f"a hello that asks for {shown(ask)} is unknown here")

    def said(self, connection: IncomingConnection, received: tuple[Any, ...]) -> None:
        """A frame of a link. Raises: ProtocolError."""
        kind, *arguments = received
        sender, driver = connection.sender, self._driver
        if sender is None or driver is None:
            raise ProtocolError("only a link carries more than a hello")
        if kind == Say.MESSAGE:
            self._count(sender)[0] += 1
            driver.receive(read_message(arguments, sender, self.own.id))
        elif kind == Say.PING and len(arguments) == 1 and type(arguments[0]) is int:
            connection.reply(frame((Reply.PONG, arguments[0])))
        elif kind == Say.OFFER:
            self._offered(connection, *read_offer(arguments, sender, self.own.id))
        elif kind == Say.CHUNK:
            if self._receiver is not None:
                self._receiver.chunk(connection, arguments)
        else:
            raise ProtocolError(f"something of kind {shown(kind)} is unknown here")

    def _link_asked(self, connection: IncomingConnection, hello: LinkHello) -> None:
        refusal = self._admission().refuses(hello)
        if refusal is not None:
            if refusal.refusal == Refusal.STRANGER and hello.sender != self.own.id:
                self.strange(hello.sender, "is unknown here")
            self._refuse(connection, refusal)
            return
        self.strange(hello.sender)
        before = self._links.get(hello.sender)
        self._links[hello.sender] = connection
        connection.welcome(hello.sender, self.cluster_id, self.own.id)
        if before is not None:
            before.abort("the peer opened a new link")
        known = self._members.get(hello.sender)
        if known is None or not known.peer:
            self._lagging[connection] = hello.applied
            if hello.sender not in self._senders and hello.address and len(self._senders) < 2 * MEMBERS_MAX:
                # Needed to answer it at all: it may be a candidate that needs this vote.
                member = Member(hello.sender, id_text(hello.sender), hello.address)
                self._senders[hello.sender] = PeerSender(self, member, hello.applied)

    def _join_asked(self, connection: IncomingConnection, arguments: list[Any]) -> None:
        if [type(each) for each in arguments] != [int, bytes]:
            raise ProtocolError("a request to join is a cluster and a change")
        cluster_id, packed = arguments
        if self._join is None:
            self._refuse(connection, Refused(Refusal.EARLY, f"{self.own.name} is not in a cluster yet"))
            return
        if cluster_id != self.cluster_id:
            self._refuse(connection, self._admission().of_another_cluster(cluster_id))
            return
        connection.be_patient(self.limits.join_s)

        def joined(error: MinikubeError | None) -> None:
            if isinstance(error, NotLeader):
                leader = self._members.get(NodeId(error.leader_id))
                connection.write(frame((Reply.NOT_LEADER, error.leader_id, leader.peer if leader else "")))
            elif error is not None:
                connection.write(failed_frame(error))
            else:
                connection.write(frame((Reply.JOINED,)))
            connection.close("answered")

        try:
            change = decode_member_change(packed)
            if change.kind != ChangeKind.JOIN:
                raise InvalidRequest("the peer port accepts join requests only")
            self._join(change, joined)
        except MinikubeError as error:
            joined(error)

    def _offered(self, connection: IncomingConnection, message: Message, offer: SnapshotOffer) -> None:
        driver, receiver, running = self._driver, self._receiver, self._receiving
        assert driver is not None
        if receiver is not None and running is not None:
            if not running.done() and receiver.message.term > message.term:
                connection.write(frame((Reply.DONE, False, "a newer leader sends one")))
                return
            if not running.done() and receiver.offer == offer:
                receiver.attach(connection, message)
                return
            if receiver.taken and receiver.offer == offer:
                # The link was lost before this was sent; the message may be of a later term.
                driver.receive(message)
                connection.write(frame((Reply.DONE, True, "")))
                return
        self._receiver = SnapshotReceiver(message, offer, driver, self._run_sync)
        self._receiver.attach(connection, message)
        self._receiving = self.loop.create_task(self._receiver.run(running), name="snapshot")
        self._receiving.add_done_callback(self.task_ended)

    # -- within -------------------------------------------------------------------------------------------------------

    @property
    def _is_member(self) -> bool:
        return self.own.id in self._members

    def _refuse(self, connection: IncomingConnection, refused: Refused) -> None:
        self.refusals += 1
        connection.refuse(refused.refusal, str(refused))

    @property
    def _applied(self) -> int:
        return self._who().applied if self._who is not None else 0

    def _admission(self) -> Admission:
        cluster_id = self.cluster_id if self._driver is not None else 0
        return Admission(self.own.id, self.own.name, cluster_id, self._members, self._removed, self._applied)

    def _leave(self, id: NodeId) -> None:
        self.received.pop(id, None)
        task = self.loop.create_task(self._senders.pop(id).stop())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        task.add_done_callback(self.task_ended)

    def metrics(self) -> dict[str, float]:
        """Counters and gauges by Prometheus name, one sample per peer."""
        prefix = "minikube_py_store_peer_"
        out: dict[str, float] = {prefix + "refusals_total": self.refusals}
        out |= {prefix + name: value for name, value in self.port.metrics().items()}
        for id, sender in self._senders.items():
            label = f'{{peer="{sender.member.name}"}}'
            received_messages, received_bytes = self._count(id)
            link = self._links.get(id)
            out |= {
                f"{prefix}connected{label}": float(sender.linked),
                f"{prefix}connects_total{label}": sender.connects,
                f"{prefix}sent_messages_total{label}": sender.sent_messages,
                f"{prefix}sent_bytes_total{label}": sender.sent_bytes,
                f"{prefix}dropped_messages_total{label}": sender.dropped,
                f"{prefix}queue_bytes{label}": sender.waiting_bytes,
                f"{prefix}snapshot_bytes_total{label}": sender.snapshot_bytes,
                f"{prefix}round_trip_seconds{label}": sender.round_trip_s,
                f"{prefix}received_messages_total{label}": received_messages,
                f"{prefix}received_bytes_total{label}": received_bytes + (link.received_bytes if link else 0),
            }
        return out

    def _count(self, id: NodeId) -> list[int]:
        return self.received.setdefault(id, [0, 0])
