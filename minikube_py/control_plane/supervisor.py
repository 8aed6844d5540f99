"""Supervised children: started one after another, restarted when they die, stopped in reverse order.

A child prints `ready ...` on its standard output when it serves, and ends when its standard input closes, so that none
outlives its supervisor. Its other output goes to its log file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from minikube_py.control_plane.errors import RoleFailed
from minikube_py.control_plane.exit_codes import DISMISSED
from minikube_py.control_plane.process import READY
from minikube_py.control_plane.progress import Say
from minikube_py.env import Clock, ended, module_command

READY_WITHIN_S = 60.0
"""Of silence: a child that reports progress has more time."""
STOP_WITHIN_S = 15.0
RESTART_FIRST_S = 0.2
RESTART_MAX_S = 10.0
STABLE_AFTER_S = 30.0


class Child:
    """One role as a child process, `role` if its name differs. `flags` may differ from start to start, so that a chosen
    port is kept. `advice(code)`: advice for the user about a child that exited instead of starting."""

    def __init__(
        self,
        name: str,
        flags: Callable[[], Sequence[str]],
        log_file: Path,
        clock: Clock,
        *,
        role: str = "",
        advice: Callable[[int], str] = lambda code: "",
    ) -> None:
        self.name, self.role, self.log_file = name, role or name, log_file
        self.where = ""
        self.dismissed = False
        self._flags, self._clock, self._advice = flags, clock, advice
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._log_start = 0
        self._was_ready = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self, progress: Say = lambda _: None) -> str:
        """Returns its address; `progress` is called with the lines it prints before. Raises: RoleFailed with the
        last line it printed."""
        self._was_ready = False
        with self.log_file.open("ab") as log:
            os.chmod(self.log_file, 0o600)
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                *(*module_command("minikube_py"), self.role, "--with-parent", *self._flags()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C goes to the whole group; the supervisor determines the order of stopping.
                start_new_session=True,
            )
        try:
            self.where = await self._ready_line(progress)
        except (TimeoutError, EOFError) as error:
            ended = isinstance(error, EOFError)
            if ended:
                await self._wait_for_end()
            code = await self._end(0.0)
            silent = f"was not ready, and printed nothing for {READY_WITHIN_S:.0f} s"
            what = "ended before it was ready" if ended else silent
            advice = self._advice(code) if ended else ""
            raise RoleFailed(f"{self.name} {what}: {self._last_words()}{advice}", code if ended else None) from None
        self._was_ready = True
        self._reader = asyncio.create_task(self._read_on())
        return self.where

    def keep(self, say: Say) -> None:
        """From now on it is restarted when it ends; at once, if it is not running."""
        self._keeper = asyncio.create_task(self._keep(say))

    async def stop(self) -> None:
        """Asks it to end and waits; it is killed after 15 s."""
        if self._keeper is not None:
            self._keeper.cancel()
            await ended(self._keeper)
        await self._end(STOP_WITHIN_S)

    async def _keep(self, say: Say) -> None:
        wait_s = RESTART_FIRST_S
        while not self.dismissed:
            started_s = self._clock.monotonic_s()
            assert self._process is not None
            code = await self._process.wait()
            lived_s = self._clock.monotonic_s() - started_s
            wait_s = RESTART_FIRST_S if lived_s > STABLE_AFTER_S else wait_s
            # If it never became ready, `start` has already raised.
            if self._was_ready and not self._is_dismissed(code, say):
                how = f"{self.name} {self._how_it_ended(code)} after {lived_s:.1f} s"
                say(f"{how}; starting it again (log: {self.log_file})")
            wait_s = await self._start_again(wait_s, say)

    async def _start_again(self, wait_s: float, say: Say) -> float:
        """Returns the delay before the next restart."""
        said = ""
        while not self.dismissed:
            await self._clock.sleep(wait_s)
            wait_s = min(wait_s * 2, RESTART_MAX_S)
            try:
                where = await self.start()
            except RoleFailed as error:
                if not self._is_dismissed(error.code, say) and str(error) != said:
                    said = str(error)
                    say(f"{error}; trying again, at most every {RESTART_MAX_S:.0f} s")
                continue
            say(f"{self.name} is back: {where}")
            break
        return wait_s

    def _is_dismissed(self, code: int | None, say: Say) -> bool:
        if code == DISMISSED:
            self.dismissed = True
            say(f"{self.name} is not started again: {self._last_words()}")
        return self.dismissed

    def _how_it_ended(self, code: int) -> str:
        if code < 0:
            return f"was ended by signal {-code}"
        return f"ended with exit code {code}" + (f" ({self._last_words()})" if code else "")

    async def _wait_for_end(self) -> None:
        """It has printed its last output: its exit code follows soon."""
        assert self._process is not None
        try:
            await asyncio.wait_for(self._process.wait(), STOP_WITHIN_S)
        except TimeoutError:
            pass

    async def _end(self, patience_s: float) -> int:
        """Its exit code."""
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            try:
                process.terminate() if patience_s else process.kill()
                await asyncio.wait_for(process.wait(), patience_s or None)
            except ProcessLookupError:
                pass
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._reader is not None:
            self._reader.cancel()
            await ended(self._reader)
        # The transport of a process whose pipes were not read to their end would warn when collected.
        if process.stdin is not None:
            process.stdin.close()
        return process.returncode or 0

    async def _ready_line(self, progress: Say) -> str:
        """Raises: TimeoutError, EOFError."""
        assert self._process is not None and self._process.stdout is not None
        while line := await asyncio.wait_for(self._process.stdout.readline(), READY_WITHIN_S):
            text = line.decode(errors="replace").strip()
            word, _, where = text.partition(" ")
            if word == READY:
                return where
            progress(text)
        raise EOFError

    async def _read_on(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        while line := await self._process.stdout.readline():
            with self.log_file.open("ab") as log:
                log.write(line)

    def _last_words(self) -> str:
        """The reason it printed since its last start, or else its last line."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            lines = log.read().decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        own = f"minikube-py {self.role}: "
        reasons = [line.removeprefix(own) for line in said if line.startswith(own)]
        return (reasons or said or [f"it printed nothing (log: {self.log_file})"])[-1]
