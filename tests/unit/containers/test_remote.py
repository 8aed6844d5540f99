"""Any bytes over a connection that was upgraded: it ends, nothing is left running, and nothing else is raised."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_spdy import Client, control, data
from virtual_time import run_virtually
from wsproto.frame_protocol import FrameProtocol, Opcode

from minikube_py.containers.remote import Asked, Refused, Upgrade, Wanted, command, forward
from minikube_py.containers.runtime import NotThere, Streams

SPDY = Asked(["Upgrade"], "SPDY/3.1", ["v4.channel.k8s.io", "portforward.k8s.io"], "", "", [])
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class Wire:
    """What a client sends, in parts; what it is sent."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = [part for part in parts if part]
        self.sent = b""

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        return self.parts.pop(0) if self.parts else b""

    async def write(self, data: bytes) -> None:
        self.sent += data
        await asyncio.sleep(0)


async def run(streams: Streams) -> int:
    while part := await streams.read():
        await streams.out(part)
        await streams.err(b"e")
    return 3


async def dial(port: int, read: object, write: object) -> None:
    if port == 9:
        raise NotThere("refused")


def upgrades() -> st.SearchStrategy[Upgrade]:
    def made(protocol: str, forwards: bool, wanted: tuple[bool, bool, bool, bool]) -> Upgrade:
        names = {"spdy": [], "tunnel": ["SPDY/3.1+portforward.k8s.io"]}.get(protocol, [protocol])
        asked = SPDY if protocol == "spdy" else Asked(["Upgrade"], "websocket", [], KEY, "13", names)
        if forwards or protocol == "tunnel":
            return forward(asked, () if protocol == "tunnel" else (80, 9), "p", "u", dial)
        return command(asked, Wanted(*wanted), ["x"], run, asyncio.sleep)

    protocols = ("spdy", "tunnel", "v4.channel.k8s.io", "v4.base64.channel.k8s.io")
    return st.builds(made, st.sampled_from(protocols), st.booleans(), st.tuples(*(st.booleans(),) * 4))


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    client, wire = Client(), b""
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(("open", "data", "reset", "message", "close", "ping", "noise")))
        if kind == "open":
            types = st.sampled_from(("stdin", "stdout", "stderr", "error", "resize", "data", "x"))
            headers = {"streamtype": draw(types), "port": draw(st.sampled_from(("80", "9", "", "x"))), "requestid": "1"}
            wire += client.opens(headers, draw(st.booleans()))[1]
        elif kind == "data":
            wire += data(draw(st.sampled_from((1, 3, 5))), draw(st.binary(max_size=9)), draw(st.booleans()))
        elif kind == "reset":
            wire += control(3, struct.pack(">II", draw(st.sampled_from((1, 3, 5))), 1))
        elif kind == "message":
            wire += bytes(FrameProtocol(True, []).send_data(draw(st.binary(max_size=9)), True))
        elif kind == "close":
            wire += bytes(FrameProtocol(True, []).close(1000))
        elif kind == "ping":
            wire += bytes(FrameProtocol(True, []).ping(b"p"))
        else:
            wire += draw(st.binary(max_size=20))
    return wire


@settings(max_examples=120, deadline=None)
@given(upgrades(), frames(), st.integers(1, 30))
def test_any_bytes_end_a_connection_and_no_more(upgrade: Upgrade, wire: bytes, size: int) -> None:
    async def serve() -> int:
        await asyncio.wait_for(upgrade.serve(Wire([wire[at : at + size] for at in range(0, len(wire), size)])), 60)
        return len(asyncio.all_tasks())

    assert run_virtually(serve) == 1


def test_the_status_of_a_command_comes_after_its_output() -> None:
    async def serve() -> bytes:
        frame = FrameProtocol(True, [])
        wire = Wire([bytes(frame.send_data(b"\x00typed", True)), bytes(frame.send_data(b"\xff\x00", True))])
        asked = Asked(["Upgrade"], "websocket", [], KEY, "13", ["v5.channel.k8s.io"])
        await command(asked, Wanted(True, True, False, False), ["x"], run, asyncio.sleep).serve(wire)
        return wire.sent

    received = FrameProtocol(True, [])
    received.receive_bytes(run_virtually(serve))
    messages = [bytes(each.payload) for each in received.received_frames() if each.opcode is Opcode.BINARY]
    frames = [(each[:1], each[1:]) for each in messages]
    assert [channel for channel, _ in frames] == [b"\x01", b"\x01", b"\x03"]
    assert frames[1][1] == b"typed"
    assert b'"message":"3"' in frames[2][1]


REFUSALS = [
    (Asked(["Upgrade"], "SPDY/3.1", [], "", "", []), 400, "does not exist"),
    (Asked(["Upgrade"], "SPDY/3.1", ["v9.channel.k8s.io"], "", "", []), 403, "unable to negotiate protocol"),
    (Asked(["Upgrade"], "other", ["v4.channel.k8s.io"], "", "", []), 400, "missing upgrade headers"),
    (Asked(["Upgrade"], "websocket", [], "", "13", []), 400, "not websocket protocol"),
    (Asked(["Upgrade"], "websocket", [], KEY, "13", ["v9.channel.k8s.io"]), 403, "not supported"),
]


@pytest.mark.parametrize(("asked", "status", "text"), REFUSALS, ids=[text for _, _, text in REFUSALS])
def test_what_cannot_be_upgraded_is_refused(asked: Asked, status: int, text: str) -> None:
    with pytest.raises(Refused, match=text) as refused:
        command(asked, Wanted(True, True, False, False), ["x"], run, asyncio.sleep)
    assert refused.value.status == status
