"""What nobody may do to others by what is typed or sent into a container: fill memory, hold the loop, end a process."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from test_remote import Wire
from test_spdy import Client, control
from virtual_time import LoopClock, run_virtually

from minikube_py.containers.channels import PART_BYTES_MAX, SpdyChannels
from minikube_py.containers.process import OUTPUT_BYTES_MAX, nothing
from minikube_py.containers.runtime import CONTAINERS_MAX, LOG_BYTES_MAX, Runtime, Streams
from minikube_py.containers.shell import LINE_BYTES_MAX, LINE_STEPS
from minikube_py.containers.spdy import STREAMS_MAX, Malformed
from minikube_py.env import STEPS_AT_ONCE

STARTED = "2026-01-01T00:00:00Z"


def pod(name: str, *command: str, stdin: bool = False) -> dict[str, Any]:
    state = {"running": {"startedAt": STARTED}}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "c", "image": "i", "command": list(command), "stdin": stdin}]},
        "status": {"containerStatuses": [{"name": "c", "state": state, "restartCount": 0}]},
    }


class Typed:
    """What a client types, in parts, and what it is shown."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)
        self.shown = b""

    async def read(self) -> bytes:
        return self.parts.pop(0) if self.parts else b""

    async def write(self, data: bytes) -> None:
        self.shown += data

    def streams(self) -> Streams:
        return Streams(self.read, self.write, self.write, False)


def executed(typed: Typed, *argv: str) -> tuple[int, int]:
    """The exit code, and how often others had their turn meanwhile."""

    async def run() -> tuple[int, int]:
        runtime, turns = Runtime(LoopClock()), 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        container = runtime.find(pod("p"), "c")
        with runtime.use(container):
            code = await runtime.exec(container, list(argv), typed.streams())
        beside.cancel()
        return code, turns

    return run_virtually(run)


def test_others_have_their_turn_between_lines_that_are_typed() -> None:
    lines = 20_000
    code, turns = executed(Typed(b"\n" * lines), "sh")
    assert (code, turns >= lines * LINE_STEPS // STEPS_AT_ONCE) == (0, True)


def test_others_have_their_turn_between_commands_of_a_script() -> None:
    _, turns = executed(Typed(), "sh", "-c", "true;" * 1000)
    assert turns >= 1000 * LINE_STEPS // STEPS_AT_ONCE


def test_variables_that_double_end_at_the_limit_of_a_word() -> None:
    typed = Typed()
    code, _ = executed(typed, "sh", "-c", "X=0123456789abcdef;" + "X=$X$X;" * 60 + "echo $?")
    assert (code, typed.shown.splitlines()[-1]) == (0, b"2")
    assert b"a word of more than" in typed.shown


def test_what_is_too_long_is_said() -> None:
    for command in ("true " + "x" * LINE_BYTES_MAX, f"head -c 1; {'true;' * (LINE_BYTES_MAX // 4)}"):
        typed = Typed()
        assert executed(typed, "sh", "-c", command)[0] == 2
        assert b"a line of more than" in typed.shown
    typed = Typed(bytes(OUTPUT_BYTES_MAX), b"x")
    assert executed(typed, "wc")[0] == 1
    assert b"which is the limit" in typed.shown
    assert executed(Typed(b"x" * LINE_BYTES_MAX, b"xx", b"x"), "sh")[0] == 2


def test_logs_of_many_pods_keep_nothing() -> None:
    async def run() -> int:
        runtime = Runtime(LoopClock())
        for number in range(CONTAINERS_MAX + 10):
            container = runtime.find(pod(str(number), "sh", "-c", "echo a; sleep 1000000"), "c")
            with runtime.use(container):
                main = runtime.main(container)
                await main.caught_up()
                assert [line.text for line in main.lines] == [b"a\n"]
        return len(runtime.oldest(CONTAINERS_MAX))

    assert run_virtually(run) == 0


def test_files_that_somebody_wrote_are_kept() -> None:
    async def run() -> bytes:
        runtime, typed = Runtime(LoopClock()), Typed()
        for command in ("echo a > /tmp/f", "cat /tmp/f"):
            container = runtime.find(pod("p"), "c")
            with runtime.use(container):
                await runtime.exec(container, ["sh", "-c", command], typed.streams())
        await runtime.stop()
        return typed.shown

    assert run_virtually(run) == b"a\n"


def test_a_process_goes_on_when_who_was_attached_has_gone() -> None:
    async def run() -> list[bytes]:
        async def gone(data: bytes) -> None:
            raise ConnectionResetError

        runtime, typed = Runtime(LoopClock()), Typed(b"echo one\n", b"echo two\nexit 5\n")
        container = runtime.find(pod("p", "sh", stdin=True), "c")
        main = runtime.main(container)
        main.listen(gone)
        assert await runtime.attach(container, typed.streams()) == 5
        assert typed.shown == b"one\ntwo\n"
        return [line.text for line in main.lines]

    assert run_virtually(run) == [b"one\n", b"two\n"]


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("once", [False, True])
def test_input_that_is_open_once_is_closed_after_its_first_client(once: bool, leaves: bool) -> None:
    async def run() -> tuple[int | None, list[bytes]]:
        runtime, typed, later = Runtime(LoopClock()), Typed(b"a\n"), Typed(b"b\n")
        given = pod("p", "cat", stdin=True)
        given["spec"]["containers"][0]["stdinOnce"] = once
        container = runtime.find(given, "c")
        main = runtime.main(container)
        silent = asyncio.create_task(runtime.attach(container, Streams(nothing, later.write, later.write, False)))
        first = asyncio.create_task(runtime.attach(container, typed.streams()))
        await asyncio.sleep(1)
        if leaves:
            first.cancel()
        second = asyncio.create_task(runtime.attach(container, later.streams()))
        await asyncio.sleep(1)
        found = main.exit_code, [line.text for line in main.lines]
        await runtime.stop()
        for each in (silent, first, second):
            each.cancel()
        return found

    assert run_virtually(run) == ((0, [b"a\n"]) if once else (None, [b"a\n", b"b\n"]))


def test_a_first_client_that_leaves_before_it_types_closes_the_input_all_the_same() -> None:
    async def run() -> bool:
        runtime, given = Runtime(LoopClock()), pod("p", "cat", stdin=True)
        given["spec"]["containers"][0]["stdinOnce"] = True
        container = runtime.find(given, "c")

        async def silent() -> bytes:
            await asyncio.Event().wait()
            return b""

        async def shown(_: bytes) -> None:
            pass

        async def attached() -> None:
            with runtime.use(container):
                await runtime.attach(container, Streams(silent, shown, shown, False))

        first = asyncio.create_task(attached())
        await asyncio.sleep(1)
        first.cancel()
        await asyncio.sleep(1)
        same = runtime.find(given, "c") is container
        await runtime.stop()
        return same

    assert run_virtually(run)


def test_output_without_an_end_is_cut_and_the_log_is_bounded() -> None:
    async def run() -> tuple[int, int]:
        runtime = Runtime(LoopClock())
        container = runtime.find(pod("p", "cat", stdin=True), "c")
        main = runtime.main(container)
        for _ in range(200):
            await main.type(b"x" * 20_000)
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        held = sum(len(line.text) for line in main.lines)
        await runtime.stop()
        return held, main.first

    held, gone = run_virtually(run)
    assert (held <= LOG_BYTES_MAX, gone > 0) == (True, True)


def test_streams_that_nobody_asked_for_end_the_connection() -> None:
    async def run() -> int:
        client, wire = Client(), Wire([])
        for _ in range(3 * STREAMS_MAX):
            stream, frame = client.opens({"streamtype": "x"}, False)
            wire.parts += [frame, control(3, struct.pack(">II", stream, 5))]
        streams = SpdyChannels(wire)
        with pytest.raises(Malformed, match="without a request"):
            await streams.pump()
        return streams.opened.qsize()

    assert run_virtually(run) <= STREAMS_MAX + 1


def test_large_output_leaves_in_frames_that_a_protocol_can_hold() -> None:
    size = (1 << 24) + 5

    async def run() -> bytes:
        wire = Wire([Client().opens({"streamtype": "stdout"}, False)[1]])
        streams = SpdyChannels(wire)
        await streams.pump()
        channel = await streams.opened.get()
        assert channel is not None
        await channel.write(bytes(size))
        return wire.sent

    sent, at, found = run_virtually(run), 0, 0
    while at < len(sent):
        first, second = struct.unpack_from(">II", sent, at)
        length = second & 0xFF_FFFF
        if not first >> 31:
            assert (second >> 24, length <= PART_BYTES_MAX) == (0, True)
            found += length
        at += 8 + length
    assert found == size
