"""Questions to another member's peer port, without a link: its identity, and requests to join."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from minikube_py.errors import OutcomeUnknown, Unavailable
from minikube_py.store.bootstrap import Answer
from minikube_py.store.framing import ProtocolError, decode_error
from minikube_py.store.membership import MemberChange, encode_member_change
from minikube_py.store.peer_connection import AskingConnection, PeerLimits, answered
from minikube_py.store.peer_protocol import PEER_GREETING, Ask, Reply, refused, who_answer


class PeerAsker:
    """Implements `discovery.Asker` over the network."""

    def __init__(self, token: str, tls: ssl.SSLContext | None = None, limits: PeerLimits | None = None) -> None:
        self._token = token
        self._tls = tls
        self._limits = limits or PeerLimits()

    async def who(self, address: str) -> Answer:
        """Raises: Unavailable; Refused."""
        kind, arguments = await self._ask(address, PEER_GREETING.hello(self._token, Ask.WHO), self._limits.ask_s)
        if kind != Reply.WHO:
            raise Unavailable(f"{address}: the answer does not state its identity")
        try:
            return who_answer(arguments)
        except ProtocolError as error:
            raise Unavailable(f"{address}: {error}") from None

    async def join(self, address: str, cluster_id: int, change: MemberChange) -> None:
        """Raises: Unavailable, OutcomeUnknown; Refused; the leader's objection."""
        question = PEER_GREETING.hello(self._token, Ask.JOIN, cluster_id, encode_member_change(change))
        kind, arguments = await self._ask(address, question, self._limits.join_s)
        if kind == Reply.JOINED:
            return
        if kind == Reply.NOT_LEADER and len(arguments) == 2:
            leader, where = arguments
            raise Unavailable(f"{address}: does not lead; {f'{where} does' if leader else 'it knows no leader'}")
        try:
            error = decode_error(arguments[0]) if kind == Reply.FAILED and arguments else None
        except ProtocolError:
            error = None
        raise error or OutcomeUnknown(f"{address}: answered with something other than the outcome")

    async def _ask(self, address: str, question: bytes, timeout_s: float) -> tuple[Any, tuple[Any, ...]]:
        connection = AskingConnection(question, self._limits, asyncio.get_running_loop())
        try:
            answer = await answered(connection, address, self._tls, connection.answer, timeout_s)
        except Unavailable as error:
            raise Unavailable(f"{address}: {error}") from None
        finally:
            connection.abort("answered")
        if answer is None:
            raise Unavailable(f"{address}: {connection.lost.result()}")
        kind, *arguments = answer
        if kind == Reply.REFUSED:
            refusal = refused(arguments)
            refusal.args = (f"{address}: {refusal}",)
            raise refusal
        return kind, tuple(arguments)
