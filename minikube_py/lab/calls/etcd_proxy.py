"""A proxy between kube-apiserver and its etcd that relays each message unchanged and reports it.

Plain gRPC on loopback. Messages are relayed as bytes; the listener decodes a copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from minikube_py.env import Clock, ended
from minikube_py.etcd.schema import Method, methods

METADATA_PASSED: Final = frozenset({"hasleader", "token", "client-api-version"})
OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # etcd's clients ping without data, which gRPC's default limits would reject.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
)
STOP_S: Final = 1.0


class Listener(Protocol):
    def answered(self, method: Method, request: bytes, answer: bytes | None, sent_s: float, outcome: str) -> None:
        """A unary request. `outcome`: `done`, or gRPC's error name."""

    def streamed(self, method: Method, message: bytes, *, to_etcd: bool) -> None:
        """One message of a stream, before it is relayed."""


class EtcdProxy:
    """Create it inside the event loop. `place`: etcd's `host:port`."""

    def __init__(self, place: str, clock: Clock, listener: Listener) -> None:
        self._clock, self._listener = clock, listener
        self._channel = grpc.aio.insecure_channel(place, OPTIONS)
        self._server: Any = None

    async def start(self) -> int:
        """Returns the port on 127.0.0.1."""
        self._server = grpc.aio.server(options=OPTIONS)
        services: dict[str, dict[str, Any]] = {}
        for method in methods():
            services.setdefault(method.service, {})[method.name] = self._handler(method)
        handlers = [grpc.method_handlers_generic_handler(name, found) for name, found in services.items()]
        self._server.add_generic_rpc_handlers(handlers)
        port: int = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return port

    async def stop(self) -> None:
        await self._server.stop(STOP_S)
        await self._channel.close()

    def _handler(self, method: Method) -> Any:
        path = f"/{method.service}/{method.name}"
        if method.takes_stream or method.gives_stream:
            way = self._channel.stream_stream(path) if method.takes_stream else self._channel.unary_stream(path)
            if method.takes_stream:
                return grpc.stream_stream_rpc_method_handler(partial(self._both, method, way))
            return grpc.unary_stream_rpc_method_handler(partial(self._stream, method, way))
        way = self._channel.unary_unary(path)
        return grpc.unary_unary_rpc_method_handler(partial(self._unary, method, way))

    async def _unary(self, method: Method, way: Any, request: bytes, context: Any) -> bytes:
        sent_s, answer, outcome = self._clock.monotonic_s(), None, "given up"
        try:
            answer = await way(request, metadata=_metadata(context), timeout=context.time_remaining())
            outcome = "done"
        except grpc.aio.AioRpcError as error:
            outcome = error.code().name
            await context.abort(error.code(), error.details() or "")
        finally:
            self._listener.answered(method, request, answer, sent_s, outcome)
        assert answer is not None
        return bytes(answer)

    async def _stream(self, method: Method, way: Any, request: bytes, context: Any) -> AsyncIterator[bytes]:
        self._listener.streamed(method, request, to_etcd=True)
        async for message in self._down(method, way(request, metadata=_metadata(context)), context):
            yield message

    async def _both(
        self, method: Method, way: Any, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[bytes]:
        call = way(metadata=_metadata(context))
        up = asyncio.create_task(self._up(method, call, requests))
        try:
            async for message in self._down(method, call, context):
                yield message
        finally:
            up.cancel()
            await ended(up)

    async def _up(self, method: Method, call: Any, requests: AsyncIterator[bytes]) -> None:
        async for message in requests:
            self._listener.streamed(method, message, to_etcd=True)
            await call.write(message)
        await call.done_writing()

    async def _down(self, method: Method, call: Any, context: Any) -> AsyncIterator[bytes]:
        try:
            async for message in call:
                self._listener.streamed(method, message, to_etcd=False)
                yield message
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
        finally:
            call.cancel()


def _metadata(context: Any) -> list[tuple[str, str]]:
    return [(key, value) for key, value in context.invocation_metadata() or () if key in METADATA_PASSED]
