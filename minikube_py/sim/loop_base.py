"""What asyncio expects of any event loop, and a simulated one does not do: refused by name, or without effect because
the loop's end does it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    # Declares calls not needed in a simulation, which AbstractEventLoop refuses.
    Base = asyncio.BaseEventLoop
else:
    Base = asyncio.AbstractEventLoop

SIGNALS: Final = "signals go to the process that runs the simulation"
OUTSIDE: Final = "files, processes and sockets of the machine are not simulated"
FOREIGN: Final = (
    "a simulated loop takes no call from another thread (here: {}), because no seed decides when it comes. Run what is "
    "to run beside the program by asyncio.to_thread, loop.run_in_executor or anyio.to_thread.run_sync: they run inline"
)
OWN: Final = "the Scheduler runs it"
REFUSED: Final = {
    **dict.fromkeys(("add_signal_handler", "remove_signal_handler"), SIGNALS),
    **dict.fromkeys(("run_forever", "stop"), OWN),
    "set_default_executor": "an executor runs inline",
    **dict.fromkeys(
        (
            "add_reader", "add_writer", "remove_reader", "remove_writer", "connect_accepted_socket",
            "connect_read_pipe", "connect_write_pipe", "create_datagram_endpoint", "create_unix_connection",
            "create_unix_server", "getaddrinfo", "getnameinfo", "sendfile", "sock_accept", "sock_connect", "sock_recv",
            "sock_recv_into", "sock_recvfrom", "sock_recvfrom_into", "sock_sendall", "sock_sendfile", "sock_sendto",
            "start_tls", "subprocess_exec", "subprocess_shell",
        ),
        OUTSIDE,
    ),
}  # fmt: skip
"""Why each method is not possible."""


class LoopBase(Base):
    """Libraries that ask for settings of the loop get those that it has."""

    name: str
    scheduler: Any
    around: Any = None
    """What programs on it meet beside it; None if it has only code of ours, which has no other threads."""
    _handler: Callable[[Any, dict[str, Any]], object] | None = None

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See `require_turn`."""
        self.require_turn()
        return self.call_soon(callback, *args, context=context)

    def require_turn(self) -> None:
        """Raises: NotImplementedError unless this thread runs the simulation or takes turns with it, which fails the
        run: when another one calls, no seed decides."""
        if self.scheduler.thread == get_ident() or self.is_closed():
            return
        if self.around is None or not self.around.runs_here():
            told = FOREIGN.format(threading.current_thread().name)
            self.scheduler.fail(f"{self.name}: {told}")
            raise NotImplementedError(told)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        if enabled:
            raise NotImplementedError("a simulated loop has no debug mode: it fails for what asyncio's would log")

    def get_task_factory(self) -> None:
        return None

    def set_task_factory(self, factory: Any) -> None:
        if factory is not None:
            raise NotImplementedError("a simulated loop makes its tasks itself, so that their order repeats")

    def get_exception_handler(self) -> Callable[[Any, dict[str, Any]], object] | None:
        return self._handler

    def set_exception_handler(self, handler: Any) -> None:
        """asyncio's handlers take (loop, context)."""
        self._handler = handler

    async def shutdown_asyncgens(self) -> None:
        """They end with the loop."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""


def _refuses(name: str, why: str) -> Any:
    def refused(self: LoopBase, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(f"a simulated loop has no {name}: {why}")

    return refused


for _name, _why in REFUSED.items():
    setattr(LoopBase, _name, _refuses(_name, _why))
