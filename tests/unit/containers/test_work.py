"""No line, archive or sequence of frames takes long in one step, or ends in an error without a name.

Work is counted in lines of Python that `containers` runs between two turns of the loop, and in the steps that its
sessions spend.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable
from types import FrameType
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_bounds import Typed, pod
from test_remote import KEY, SPDY, Wire, dial, run
from test_spdy import Client, control, data
from virtual_time import LoopClock, run_virtually
from wsproto.frame_protocol import FrameProtocol

from minikube_py import env
from minikube_py.containers import account, shell
from minikube_py.containers.account import STEPS_MAX, VARIABLES_BYTES_MAX, Account
from minikube_py.containers.channels import MESSAGE_FRAMES_MAX, WebSocket
from minikube_py.containers.files import NAME_BYTES_MAX, PATH_BYTES_MAX, Files, Held
from minikube_py.containers.process import SHELLS_MAX
from minikube_py.containers.remote import PORTS_MAX, Asked, Refused, Wanted, command, forward
from minikube_py.containers.runtime import ENVIRONMENT_MAX, KILLED, LOG_LINES_MAX, MOUNTS_BYTES_MAX, NotThere, Runtime
from minikube_py.containers.serving import serve
from minikube_py.containers.shell import WORDS_MAX
from minikube_py.containers.spdy import DICTIONARY, HEADERS_MAX, Malformed, Spdy
from minikube_py.env import STEPS_AT_ONCE

LINES_PER_STEP = 42
FINE = 200
"""Steps at once in the tests that count lines."""


class Counted:
    """The most lines of `containers` that ran between two turns of the loop, and the most steps spent at once."""

    def __init__(self) -> None:
        self.lines = self.most_lines = self.most_steps = 0

    def _trace(self, frame: FrameType, event: str, given: object) -> Any:
        if "minikube_py/containers" not in frame.f_code.co_filename:
            return None
        self.lines += event == "line"
        return self._trace

    async def _beside(self) -> None:
        while True:
            self.most_lines, self.lines = max(self.most_lines, self.lines), 0
            await asyncio.sleep(0)

    def run(self, work: Callable[[], Any], at_once: int = FINE) -> Any:
        spend, counted = Account.spend, self

        async def spent(own: Account, steps: int) -> None:
            counted.most_steps = max(counted.most_steps, steps)
            await spend(own, steps)

        async def measured() -> Any:
            beside = asyncio.ensure_future(counted._beside())
            try:
                return await work()
            finally:
                beside.cancel()

        before = sys.gettrace()
        with mock.patch.object(env, "STEPS_AT_ONCE", at_once), mock.patch.object(Account, "spend", spent):
            sys.settrace(self._trace)
            try:
                return run_virtually(measured)
            finally:
                sys.settrace(before)
                self.most_lines = max(self.most_lines, self.lines)


def session(*argv: str, given: bytes = b"", typed_at_terminal: bool = False) -> Callable[[], Any]:
    """The exit code of a command and what it shows."""

    async def work() -> tuple[int, bytes]:
        runtime, typed = Runtime(LoopClock()), Typed(*[given[at : at + 5000] for at in range(0, len(given), 5000)])
        container = runtime.find(pod("p"), "c")
        streams = typed.streams()._replace(tty=typed_at_terminal)
        try:
            code = await runtime.exec(container, list(argv), streams)
        except NotThere as error:
            return -1, str(error).encode()
        return code, typed.shown

    return work


FRAGMENTS = st.sampled_from((
    "a= ", "X=$X$X;", "/ ", "/tmp ", ">f ", "<f ", "| cat ", "echo $X ", "export Y=$X Z;", "! ", "'a'", "$a", "\\a",
    '"$X"', "ls -l ", "/a/b", "cd /tmp;", "true;", "grep o f;", "wc f;", "echo a >>f;", "sh -c ", "touch f g;",
    "mkdir -p d/d ", "rm -r d;", "tar cf - . ", "head -n 9 f;", "env;", "test -e f ", "-e ", "\n", "a", "((", "`",
    "date +%c%c;", "sleep 0 ", "tail f|", "[ a = ] ", "printenv X ", "cat f f ", "\udcff", "2>&1 ", "exit ", "# ", "&&",
    "/",
))  # fmt: skip
LINE = st.lists(st.tuples(FRAGMENTS, st.sampled_from((1, 1, 2, 60, 400))), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(LINE, st.booleans(), st.booleans())
def test_no_line_takes_long_in_one_step(line: list[tuple[str, int]], typed: bool, at_terminal: bool) -> None:
    text = "X=1234567;cd /tmp;echo hello>f;" + "".join(part * times for part, times in line)
    counted = Counted()
    if typed:
        work = session("sh", given=text.encode("utf-8", "surrogateescape") + b"\n", typed_at_terminal=at_terminal)
    else:
        work = session("sh", "-c", text)
    code, _ = counted.run(work)
    assert -1 <= code <= 255
    assert counted.most_lines <= LINES_PER_STEP * max(FINE, counted.most_steps), text
    assert counted.most_steps <= STEPS_AT_ONCE


LONG = {
    "assignments": "a= " * 3000,
    "listed": "ls -l " + "/ " * 1500 + ">/dev/null",
    "words": "true " + "a " * 8000,
    "variables in a word": "true " + "$a" * 15_000,
    "negations": "test " + "! " * 8000 + "a",
    "pipeline": "true" + "|true" * 4000,
    "quotes": "echo " + "''" * 15_000,
    "appended": "X=0123456789;" + "echo $X>>/tmp/f;" * 1800,
    "nested": "export X='sh -c \"$X\"'; sh -c \"$X\"",
    "forks": "export X='sh -c \"$X\"; sh -c \"$X\"'; sh -c \"$X\"",
    "deep": "mkdir -p " + "/a" * 2000 + "; rm -r /a",
    "home": "rm -r /root; cd",
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_long_lines_are_sliced_or_refused(name: str) -> None:
    counted = Counted()
    with mock.patch.object(account, "STEPS_MAX", 60_000):
        code, shown = counted.run(session("sh", "-c", LONG[name]), STEPS_AT_ONCE)
    assert counted.most_lines <= LINES_PER_STEP * STEPS_AT_ONCE
    assert counted.most_steps <= STEPS_AT_ONCE
    assert code in (0, 1, 2) or (code == KILLED and b"killed: more than 60000 steps" in shown)


MANY = 40


@pytest.mark.parametrize("name", ["words", "appended", "forks", "pipeline"])
def test_sessions_at_once_do_not_add_up(name: str) -> None:
    """Each takes its slice in a turn of its own; requests begin them one by one."""

    async def all_of_them() -> list[tuple[int, bytes]]:
        begun = []
        for _ in range(MANY):
            begun.append(asyncio.ensure_future(session("sh", "-c", LONG[name])()))
            await asyncio.sleep(0)
        return await asyncio.gather(*begun)

    alone, together = Counted(), Counted()
    with mock.patch.object(account, "STEPS_MAX", 8_000):
        expected = alone.run(session("sh", "-c", LONG[name]), FINE)
        assert together.run(all_of_them, FINE) == [expected] * MANY
    assert together.most_lines <= 3 * alone.most_lines


def test_short_commands_of_many_sessions_share_a_turn() -> None:
    loop_turns = 0

    async def beside() -> None:
        nonlocal loop_turns
        while True:
            loop_turns += 1
            await asyncio.sleep(0)

    async def work() -> list[tuple[int, bytes]]:
        counting = asyncio.ensure_future(beside())
        try:
            return await asyncio.gather(*(session("sh", given=b"true\n" * 25)() for _ in range(MANY)))
        finally:
            counting.cancel()

    assert run_virtually(work) == [(0, b"")] * MANY
    assert loop_turns < 5 * MANY


def test_a_turn_that_is_no_longer_wanted_is_given_to_the_next() -> None:
    async def work() -> list[int]:
        order: list[int] = []

        async def worker(number: int) -> None:
            for _ in range(3):
                await env.turns().next(STEPS_AT_ONCE)
                order.append(number)

        tasks = [asyncio.ensure_future(worker(number)) for number in range(4)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return order

    assert run_virtually(work) == [0, 2, 3] * 3


def test_each_word_of_a_command_is_matched_once() -> None:
    """Matches within `map` or another loop in C are no lines."""
    matched, assigned = 0, shell._ASSIGNED

    class Counting:
        def fullmatch(self, word: str) -> Any:
            nonlocal matched
            matched += 1
            return assigned.fullmatch(word)

    with mock.patch.object(shell, "_ASSIGNED", Counting()):
        assert run_virtually(session("sh", "-c", "a= " * 1000)) == (0, b"")
    assert matched == 1000


def test_limits_of_a_session_are_named() -> None:
    assert b"more than %d words" % WORDS_MAX in session_of("sh", "-c", "true " + "a " * (WORDS_MAX + 1))
    assert b"more than %d shells" % SHELLS_MAX in session_of("sh", "-c", LONG["nested"])
    assert b"File name too long" in session_of("mkdir", "a" * (NAME_BYTES_MAX + 1))
    assert b"File name too long" in session_of("mkdir", "-p", "/a" * PATH_BYTES_MAX)
    assert b"more than 1024 characters" in session_of("date", "+" + "%c" * 600)
    many = b"a=%b\n" % (b"x" * 30_000) + b"".join(b"v%d=$a\n" % number for number in range(60))
    assert b"variables of more than %d bytes" % VARIABLES_BYTES_MAX in session_of("sh", given=many)
    with mock.patch.object(account, "STEPS_MAX", 1000):
        assert b"sh: killed: more than 1000 steps in one session" in session_of("sh", "-c", "true;" * 1000)
    assert STEPS_MAX > 1000 * STEPS_AT_ONCE


def session_of(*argv: str, given: bytes = b"") -> bytes:
    shown = run_virtually(session(*argv, given=given))[1]
    assert isinstance(shown, bytes)
    return shown


def test_variables_of_a_pipeline_are_given_back() -> None:
    account_, variables = Account(), dict[str, str]()
    assert account_.assign(variables, "a", "x" * 1000)
    assert account_.assign(variables, "a", "")
    assert account_.variables_bytes < 100
    assert b"variables of" not in session_of("sh", "-c", "a=" + "x" * 20_000 + ";" + "b=$a|true;" * 100)


def test_a_log_of_short_lines_is_bounded() -> None:
    async def work() -> tuple[int, int]:
        runtime = Runtime(LoopClock())
        container = runtime.find(pod("p", "cat", stdin=True), "c")
        main = runtime.main(container)
        for _ in range(4):
            await main.type(b"\n" * 8192)
        await asyncio.sleep(1)
        await runtime.stop()
        return len(main.lines), main.first

    counted = Counted()
    assert counted.run(work, STEPS_AT_ONCE) == (LOG_LINES_MAX, LOG_LINES_MAX)
    assert counted.most_lines <= LINES_PER_STEP * STEPS_AT_ONCE


def test_a_terminal_takes_any_key_many_times() -> None:
    for keys in (
        b"\0" * 20_000,
        b"\x01" * 12_000,
        b"\x7f" * 900,
        b"a\x15" * 900,
        b"a" * 20_000,
        b"\r" * 900,
        b"\x03" * 900,
    ):
        counted = Counted()
        counted.run(session("sh", given=keys, typed_at_terminal=True), STEPS_AT_ONCE)
        assert counted.most_lines <= LINES_PER_STEP * STEPS_AT_ONCE


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ("/etc/hosts", "/etc/hostname", "/etc/hosts/x", "/etc", "/"))
def test_a_mount_takes_the_place_of_a_given_file(path: str) -> None:
    mounted = pod("p")
    mounted["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": path}]

    async def work() -> bool:
        return Runtime(LoopClock()).find(mounted, "c").files.is_directory(path)

    assert run_virtually(work)


@pytest.mark.parametrize(
    "wrong",
    (
        {"workingDir": "/a" * PATH_BYTES_MAX},
        {"volumeMounts": [{"name": "v", "mountPath": "/a" * MOUNTS_BYTES_MAX}]},
        {"env": [{"name": "a"}] * (ENVIRONMENT_MAX + 1)},
    ),
    ids=lambda wrong: str(next(iter(wrong))),
)
def test_a_container_whose_files_cannot_be_is_not_there(wrong: dict[str, Any]) -> None:
    mounted, held = pod("p"), Held()
    mounted["spec"]["containers"][0] |= wrong

    async def work() -> None:
        runtime = Runtime(LoopClock())
        runtime._held = held
        with pytest.raises(NotThere, match="failed to create the files"):
            runtime.find(mounted, "c")

    run_virtually(work)
    assert (held.bytes, held.count) == (0, 0)


def test_a_container_that_is_gone_holds_nothing_more() -> None:
    held = Held()
    files = Files(held, 0.0, {"/f": b"x"})
    files.drop()
    for write in (files.write, files.append):
        for path in ("/", "/g", "/tmp/h"):
            with pytest.raises(Exception, match="directory"):
                write(path, b"data", 0.0)
    assert (held.bytes, held.count) == (0, 0)


# --- archives -------------------------------------------------------------------------------------------------------


def sparse(real: int) -> bytes:
    """As GNU tar writes it: 512 bytes that say that they are `real` many."""
    header = bytearray(tarfile.TarInfo("sparse").tobuf(tarfile.GNU_FORMAT))
    header[124:136], header[156:157] = b"%011o\0" % 512, b"S"
    header[386:398], header[398:410] = b"%011o\0" % 0, b"%011o\0" % 512
    header[483:495] = b"\x80" + real.to_bytes(11, "big")
    header[148:156] = b"        "
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(512) + bytes(1024)


def extended(kind: bytes, text: bytes, times: int = 1) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, len(text)
    return (info.tobuf(tarfile.GNU_FORMAT) + text + bytes(-len(text) % 512)) * times


def member(name: str, data: bytes = b"x", mtime: int = 0) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(data), mtime
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


REFUSED = {
    "sparse": (sparse(1 << 40), b"a sparse file"),
    "pax sparse": (extended(tarfile.XHDTYPE, b"22 GNU.sparse.major=1\n") + member("a"), b"a sparse file"),
    "device": (extended(tarfile.CHRTYPE, b""), b"a character device"),
    "other": (extended(b"V", b""), b"an entry of type b'V'"),
    "chain": (extended(tarfile.GNUTYPE_LONGNAME, b"a", 3000), b"more than 3 headers"),
    "long header": (extended(tarfile.XHDTYPE, bytes(10_000)), b"a header of more than 8192 bytes"),
    "broken pax": (extended(tarfile.XHDTYPE, b"9 a=b\n"), b"breaks off"),
    "number": (extended(tarfile.XHDTYPE, b"5009 size=%b\n" % (b"9" * 4998)) + member("a"), b"32 digits"),
    "short": (member("a", b"x" * 5000)[:700], b"unexpected end"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_archives_of_what_is_not_simulated_are_refused_by_name(name: str) -> None:
    archive, wanted = REFUSED[name]
    code, shown = run_virtually(session("tar", "xf", "-", given=archive + bytes(1024)))
    assert (code, wanted in shown) == (1, True), shown


NAMES = st.sampled_from(("a", "a/b", "d/" * 60 + "c", "./", "ü"))
KINDS = st.sampled_from((b"L", b"K", b"x", b"g", b"S", b"5", b"2", b"\0"))
TEXTS = st.sampled_from((b"", b"name\0", b"9 path=n\n", b"13 mtime=nan\n", b"11 mtime=9\n", b"9 size=1\n",
                         b"10 size=-1\n", b"0 a=b\n", b"x" * 900))  # fmt: skip
ENTRY = st.one_of(
    st.builds(member, NAMES, st.binary(max_size=700), st.sampled_from((0, 1 << 40))),
    st.builds(extended, KINDS, TEXTS, st.sampled_from((1, 2, 40))),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(ENTRY, max_size=5), st.data())
def test_any_archive_is_unpacked_in_steps_or_refused(entries: list[bytes], drawn: st.DataObject) -> None:
    archive = bytearray(b"".join(entries) + bytes(1024))
    for _ in range(drawn.draw(st.integers(0, 2))):
        archive[drawn.draw(st.integers(0, len(archive) - 1))] = drawn.draw(st.integers(0, 255))
    counted = Counted()

    async def work() -> int:
        runtime, typed = Runtime(LoopClock()), Typed(bytes(archive))
        container = runtime.find(pod("p"), "c")
        code = await runtime.exec(container, ["tar", "xf", "-", "-C", "/tmp"], typed.streams())
        for words in (["ls", "-l", "/tmp", "/tmp/d", "/"], ["tar", "cf", "-", "/"]):
            await runtime.exec(container, words, typed.streams())
        assert code == 0 or typed.shown.startswith(b"tar: ")
        return code

    assert counted.run(work) in (0, 1)
    assert counted.most_lines <= LINES_PER_STEP * max(FINE, counted.most_steps)


# --- frames ---------------------------------------------------------------------------------------------------------


def test_headers_that_grow_are_read_in_bounded_steps() -> None:
    packer, text = zlib.compressobj(9, zdict=DICTIONARY), struct.pack(">I", HEADERS_MAX) + bytes(8 * HEADERS_MAX)
    blocks = (packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH) for _ in range(500))
    wire = Wire([b"".join(control(8, struct.pack(">I", 1) + block) for block in blocks)])
    counted = Counted()
    upgrade = command(SPDY, Wanted(True, True, False, False), ["x"], run, asyncio.sleep)
    counted.run(lambda: upgrade.serve(wire), STEPS_AT_ONCE)
    assert counted.most_lines <= LINES_PER_STEP * STEPS_AT_ONCE
    block = zlib.compressobj(zdict=DICTIONARY)
    too_many = block.compress(struct.pack(">I", HEADERS_MAX + 1)) + block.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(Malformed, match=f"the limit is {HEADERS_MAX}"):
        Spdy().receive(control(8, struct.pack(">I", 1) + too_many))


FRAME = st.one_of(
    st.sampled_from((control(4, b""), control(6, struct.pack(">I", 7)), control(7, bytes(8)), data(1, b"", False),
                     data(1, b"\n", False), control(3, struct.pack(">II", 1, 5)), control(9, bytes(8)))),
    st.binary(max_size=12),
)  # fmt: skip
PAYLOAD = st.sampled_from((b"", b"\0", b"\0a", b"\xff\x00"))


def fragment(payload: bytes, whole: bool, continues: bool) -> bytes:
    return bytes((whole << 7 | (0 if continues else 2), 0x80 | len(payload))) + bytes(4) + payload


TIMES = st.sampled_from((1, 3, 2000))
SPDY_SENT = st.lists(st.tuples(FRAME, TIMES), max_size=4)
SOCKET_SENT = st.lists(st.tuples(st.builds(fragment, PAYLOAD, st.booleans(), st.booleans()), TIMES), max_size=4)


@settings(max_examples=40, deadline=None)
@example([], [(fragment(b"\0", True, False), 2000), (fragment(b"\0a", True, False), 2000)])
@given(SPDY_SENT, SOCKET_SENT)
def test_any_frames_are_read_in_bounded_steps(
    frames: list[tuple[bytes, int]], messages: list[tuple[bytes, int]]
) -> None:
    wire = Client().opens({"streamtype": "stdin"}, False)[1] + b"".join(frame * times for frame, times in frames)
    socket = Asked(["Upgrade"], "websocket", [], KEY, "13", ["v4.channel.k8s.io"])
    for asked, sent in ((SPDY, wire), (socket, b"".join(frame * times for frame, times in messages))):
        counted = Counted()
        upgrade = command(asked, Wanted(True, True, False, False), ["x"], run, asyncio.sleep)
        counted.run(lambda: upgrade.serve(Wire([sent])), STEPS_AT_ONCE)  # noqa: B023
        assert counted.most_lines <= LINES_PER_STEP * STEPS_AT_ONCE


def test_a_message_of_many_frames_ends_the_connection() -> None:
    frames = FrameProtocol(True, [])
    first = bytes(frames.send_data(b"a", False))
    wire = Wire([first + bytes((0, 0x80, 0, 0, 0, 0)) * (MESSAGE_FRAMES_MAX + 1)])

    async def read() -> bytes:
        return await WebSocket(wire).read()

    with pytest.raises(Malformed, match=f"more than {MESSAGE_FRAMES_MAX} frames"):
        run_virtually(read)


def test_ports_are_bounded_and_each_has_its_channels() -> None:
    for protocol in ("v4.channel.k8s.io", "v4.base64.channel.k8s.io"):
        asked = Asked(["Upgrade"], "websocket", [], KEY, "13", [protocol])
        with pytest.raises(Refused, match=f"more than {PORTS_MAX} ports") as refused:
            forward(asked, [80] * (PORTS_MAX + 1), "p", "u", dial)
        assert refused.value.status == 400
        wire = Wire([])
        run_virtually(lambda: forward(asked, [80] * PORTS_MAX, "p", "u", dial).serve(wire))  # noqa: B023
        received = FrameProtocol(True, [])
        received.receive_bytes(wire.sent)
        messages = [each.payload for each in received.received_frames() if each.payload][: 2 * PORTS_MAX]
        numbers = [ord(each[0]) - ord("0") if isinstance(each, str) else each[0] for each in messages]
        assert numbers == list(range(2 * PORTS_MAX))


def test_requests_to_a_port_that_arrive_at_once_are_answered_in_steps() -> None:
    requests = 2000
    typed, served = Typed(b"GET / HTTP/1.1\r\n\r\n" * requests), pod("p")
    served["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    counted = Counted()
    counted.run(lambda: serve(served, 80, typed.read, typed.write), STEPS_AT_ONCE)
    assert typed.shown.count(b"HTTP/1.1 200 OK") == requests
    assert counted.most_lines < 200
