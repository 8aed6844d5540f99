"""An event loop on a separate thread, with something that starts and stops on it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any

from minikube_py.cluster.errors import ClusterError


class LoopThread:
    """`begin` and `end` are awaited on the loop: at its start, and before its end if the start succeeded."""

    def __init__(self, begin: Callable[[], Awaitable[object]], end: Callable[[], Awaitable[object]]) -> None:
        self.loop: asyncio.AbstractEventLoop
        self._begin, self._end = begin, end
        self._process = os.getpid()
        self._stop: asyncio.Event
        self._ready: Future[None] = Future()
        self._ended: Future[None] = Future()
        # Without a stop the process must still be able to exit.
        self._thread = threading.Thread(target=self._run, name="minikube-py", daemon=True)

    def start(self) -> None:
        """Raises: what `begin` raises; the caller calls `stop` then, or if it is interrupted here."""
        self._thread.start()
        self._ready.result()

    def stop(self) -> None:
        """Also after the start failed, or its caller was interrupted. Raises: what `end` raises."""
        if not self._thread.is_alive() and not self._ended.done():
            return
        try:
            self._ready.exception()
            self.loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:
            # The loop has ended: the start failed.
            pass
        try:
            self._thread.join()
        except KeyboardInterrupt:
            # It ends within milliseconds, and leftovers would stay.
            self._thread.join()
            raise
        self._ended.result()

    def run(self, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Returns or raises what `main()` does, on the loop; for other threads."""
        if os.getpid() != self._process:
            raise ClusterError("this process was forked while the cluster ran, which is its parent's: start one here")
        if threading.current_thread() is self._thread:
            raise ClusterError("this is the cluster's own loop: await the transport's methods here")
        work = asyncio.run_coroutine_threadsafe(main(), self.loop)
        try:
            return work.result()
        except BaseException:
            work.cancel()
            raise

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self) -> None:
        self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self._begin()
        except BaseException as error:
            self._ready.set_exception(error)
            return
        self._ready.set_result(None)
        try:
            await self._stop.wait()
        finally:
            await self._end()
