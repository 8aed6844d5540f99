"""Protobuf bodies: what real kubectls sent, and every rule by which Go drops or keeps a value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minikube_py.api.decode import decode_kind, target
from minikube_py.api.errors import StatusError
from minikube_py.api.protobuf import ProtobufError, decode_message, open_envelope
from minikube_py.api.schema import SCHEMA

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "conformance" / "data" / "kubectl_bodies.json").read_text()
)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: " ".join(str(case["command"]).split()[:3]))
def test_kubectls_protobuf_is_the_object_it_prints_as_json(case: dict[str, Any]) -> None:
    printed = case["object"]
    group, _, version = printed["apiVersion"].rpartition("/")
    expected = target(group, version, printed["kind"])
    from_json, _ = decode_kind(expected, json.dumps(printed).encode())
    from_protobuf, warnings = decode_kind(expected, bytes.fromhex(case["hex"]), case["content_type"])
    # A client fills the namespace in while sending.
    from_json["metadata"].pop("namespace", None)
    from_protobuf["metadata"].pop("namespace", None)
    assert from_protobuf == from_json
    assert not warnings


def field(number: int, payload: bytes) -> bytes:
    return base128(number << 3 | 2) + base128(len(payload)) + payload


def varint(number: int, value: int) -> bytes:
    return base128(number << 3) + base128(value)


def base128(value: int) -> bytes:
    found = bytearray()
    value &= (1 << 64) - 1
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


CASES = [
    ("omitempty string that is empty", "core/v1.Container", field(2, b""), {"name": "", "resources": {}}),
    ("string that is always written", "core/v1.EnvVar", b"", {"name": ""}),
    ("pointer to an empty string is kept", "core/v1.PersistentVolumeClaimSpec", field(5, b""),
     {"resources": {}, "storageClassName": ""}),
    ("pointer to false is kept", "core/v1.PodSpec", varint(30, 0),
     {"enableServiceLinks": False, "containers": None}),
    ("false is dropped", "core/v1.PodSpec", varint(11, 0), {"containers": None}),
    ("true", "core/v1.PodSpec", varint(11, 1), {"hostNetwork": True, "containers": None}),
    ("pointer to zero is kept", "core/v1.PodSpec", varint(4, 0),
     {"terminationGracePeriodSeconds": 0, "containers": None}),
    ("negative int32", "core/v1.PodSpec", varint(25, -5), {"priority": -5, "containers": None}),
    ("int or string: int", "core/v1.ServicePort", varint(3, 1) + field(4, varint(1, 0) + varint(2, 80) + field(3, b"")),
     {"port": 1, "targetPort": 80}),
    ("int or string: string", "core/v1.ServicePort", varint(3, 1) + field(4, varint(1, 1) + field(3, b"http")),
     {"port": 1, "targetPort": "http"}),
    ("quantity", "core/v1.ResourceRequirements", field(2, field(1, b"cpu") + field(2, field(1, b"0.5"))),
     {"requests": {"cpu": "500m"}}),
    ("map without a value", "meta/v1.ObjectMeta", field(11, field(1, b"a")), {"labels": {"a": ""}}),
    ("time", "meta/v1.ObjectMeta", field(8, varint(1, 1700000000)), {"creationTimestamp": "2023-11-14T22:13:20Z"}),
    ("empty time", "meta/v1.ObjectMeta", field(8, b""), {}),
    ("empty time that is always written", "core/v1.NodeCondition", field(1, b"Ready"),
     {"type": "Ready", "status": "", "lastHeartbeatTime": None, "lastTransitionTime": None}),
    ("micro time", "coordination/v1.LeaseSpec", field(4, varint(1, 1700000000) + varint(2, 123456789)),
     {"renewTime": "2023-11-14T22:13:20.123456Z"}),
    ("bytes", "core/v1.Secret", field(2, field(1, b"a") + field(2, b"\xff\x00")),
     {"metadata": {}, "data": {"a": "/wA="}}),
    ("embedded struct", "core/v1.Volume", field(1, b"v") + field(2, field(2, b"")), {"name": "v", "emptyDir": {}}),
    ("wrapped list", "authorization/v1.SubjectAccessReviewSpec",
     field(5, field(1, b"k") + field(2, field(1, b"x") + field(1, b"y"))), {"extra": {"k": ["x", "y"]}}),
    ("unknown field number", "core/v1.Volume", field(1, b"v") + field(15, b"xx"), {"name": "v"}),
    ("packed numbers", "core/v1.PodSecurityContext", field(4, b"\x01\x02"), {"supplementalGroups": [1, 2]}),
    ("raw JSON", "meta/v1.ManagedFieldsEntry", field(7, field(1, b'{"f:a":{}}')), {"fieldsV1": {"f:a": {}}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "message", "raw", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_message_reads_as_go_prints_it(name: str, message: str, raw: bytes, expected: dict[str, Any]) -> None:
    assert decode_message(SCHEMA.message(message), raw) == expected


BROKEN = [
    ("cut varint", b"\x08\xff", "unexpected EOF"),
    ("cut bytes", b"\x0a\x05ab", "unexpected EOF"),
    ("endless varint", b"\x08" + b"\xff" * 11, "proto: integer overflow"),
    ("wrong wire type", b"\x08\x01", "proto: wrong wireType = 0 for field ObjectMeta"),
    ("field number zero", b"\x02\x00", "proto: Pod: illegal tag 0 (wire type 2)"),
    ("length beyond int", b"\x0a" + b"\xff" * 9 + b"\x01", "proto: negative length found during unmarshaling"),
    ("group", b"\x0b\x0c", "proto: illegal wireType 3"),
]


@pytest.mark.parametrize(("name", "raw", "message"), BROKEN, ids=[case[0] for case in BROKEN])
def test_broken_bytes_are_told(name: str, raw: bytes, message: str) -> None:
    with pytest.raises(ProtobufError) as caught:
        decode_message(SCHEMA.message("core/v1.Pod"), raw)
    assert str(caught.value) == message


def test_an_envelope_says_what_it_holds() -> None:
    type_meta = field(1, field(1, b"v1") + field(2, b"Pod"))
    envelope = open_envelope(b"k8s\x00" + type_meta + field(2, b"abc") + field(4, b"x"))
    assert (envelope.api_version, envelope.kind, envelope.raw, envelope.content_type) == ("v1", "Pod", b"abc", "x")


def test_every_cut_of_a_real_body_is_refused_or_read_never_a_crash() -> None:
    for case in RECORDED[:6]:
        body = bytes.fromhex(case["hex"])
        group, _, version = case["object"]["apiVersion"].rpartition("/")
        expected = target(group, version, case["object"]["kind"])
        for end in range(len(body)):
            try:
                decode_kind(expected, body[:end], case["content_type"])
            except StatusError as error:
                assert error.code == 400
