"""The audit log's file: order, rotation, a slow disk, a full buffer."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from step_clock import StepClock

from minikube_py.apiserver import audit_log
from minikube_py.apiserver.audit_log import AuditLog, LogOptions, RotatedFile


def on_a_real_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Threads take real time, for which virtual time would not wait."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(test(**fixtures))

    return run


class Gate:
    """An output that writes only while it is open."""

    def __init__(self) -> None:
        self.open, self.entered = threading.Event(), threading.Event()
        self.written: list[bytes] = []
        self.broken = self.closed = False

    def write(self, lines: Sequence[bytes]) -> int:
        self.entered.set()
        self.open.wait(30)
        if self.broken:
            return 0
        self.written += lines
        return len(lines)

    def close(self) -> None:
        self.closed = True


@on_a_real_loop
async def test_a_slow_disk_holds_its_requests_but_not_the_loop() -> None:
    gate = Gate()
    log = AuditLog(gate)
    first = log.post(b"1\n")
    await asyncio.to_thread(gate.entered.wait, 30)
    rest = [log.post(b"%d\n" % n) for n in range(2, 6)]
    assert first is not None and not first.done() and rest[0] is rest[3] is not first
    gate.open.set()
    assert await first and rest[0] is not None and await rest[0]
    await log.stop()
    assert gate.written == [b"%d\n" % n for n in range(1, 6)]


@on_a_real_loop
async def test_a_full_buffer_loses_events_and_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "EVENTS_MAX", 2)
    gate = Gate()
    log = AuditLog(gate, "batch")
    assert not log.blocks
    log.post(b"1\n")
    await asyncio.to_thread(gate.entered.wait, 30)
    log.post(b"2\n")
    log.post(b"3\n")
    lost = log.post(b"4\n")
    assert lost is not None and lost.done() and not lost.result()
    gate.open.set()
    await log.stop()
    assert gate.written == [b"1\n", b"2\n", b"3\n"] and [*log.metrics().values()] == [1]


@on_a_real_loop
async def test_a_stuck_disk_lets_requests_go_and_what_waits_is_written_later() -> None:
    gate = Gate()
    log = AuditLog(gate, "blocking-strict", patience_s=0.01)
    assert log.strict
    first = log.post(b"1\n")
    assert first is not None and not await first
    second = log.post(b"2\n")
    assert second is not None and second.done() and not second.result()
    gate.open.set()
    await log.stop()
    assert gate.written == [b"1\n", b"2\n"]


@on_a_real_loop
async def test_what_the_disk_refuses_is_lost_to_its_request() -> None:
    gate = Gate()
    gate.broken = True
    gate.open.set()
    log = AuditLog(gate)
    done = log.post(b"1\n")
    assert done is not None and not await done
    assert [*log.metrics().values()] == [1]
    await log.stop()


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_file_is_renamed_and_old_ones_go(tmp_path: Path) -> None:
    clock = StepClock()
    path = tmp_path / "logs" / "audit.log"
    file = RotatedFile(LogOptions(str(path), max_size_mb=1, max_backups=2, max_age_days=0), clock)
    line = b"x" * (400 << 10)
    for n in range(9):
        clock.now_s += 60.5
        assert file.write([line]) == 1
        assert path.stat().st_size <= 1 << 20, n
    names = _names(path.parent)
    assert len(names) == 3 and names[-1] == "audit.log"
    assert path.stat().st_mode & 0o777 == 0o600
    assert file.write([b"y" * (1 << 20), b"z\n"]) == 2
    assert file.write([b"w" * ((1 << 20) + 1), b"v\n"]) == 1
    file.close()
    again = RotatedFile(LogOptions(str(path), max_size_mb=1), clock)
    again.write([b"more\n"])
    again.close()
    assert path.read_bytes().endswith(b"v\nmore\n")


def test_old_files_go_by_age(tmp_path: Path) -> None:
    clock, path = StepClock(), tmp_path / "audit.log"
    (tmp_path / "audit-of-others.log").touch()
    file = RotatedFile(LogOptions(str(path), max_size_mb=1, max_backups=0, max_age_days=1), clock)
    for _ in range(3):
        file.write([b"x" * (1 << 20)])
        clock.now_s += 50_000
    file.write([b"x"])
    clock.now_s += 200_000
    file.write([b"x" * (1 << 20)])
    file.close()
    assert len([name for name in _names(tmp_path) if name.startswith(("audit-1", "audit-2"))]) == 1
    assert "audit-of-others.log" in _names(tmp_path)


def test_without_a_size_the_file_only_grows(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = RotatedFile(LogOptions(str(path), max_size_mb=0), StepClock())
    assert file.write([b"x" * (2 << 20)] * 2) == 2
    file.close()
    assert path.stat().st_size == 4 << 20 and _names(tmp_path) == ["audit.log"]
