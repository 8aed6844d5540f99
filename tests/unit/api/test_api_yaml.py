"""YAML as go-yaml reads it, and what it must not do to the server."""

from __future__ import annotations

import time
from typing import Any

import pytest

from minikube_py.api.decode import MAX_BODY_BYTES, decode
from minikube_py.api.errors import StatusError
from minikube_py.api.kinds.core import PODS
from minikube_py.api.yaml_text import MAX_NODES, YamlError, read

SCALARS: list[tuple[str, Any]] = [
    ("yes", True), ("Off", False), ("y", True), ("n", False), ("~", None), ("null", None), ("", None), ("12", 12),
    ("-3", -3), ("0x1F", 31), ("0b11", 3), ("0o17", 15), ("017", 15), ("1_000", 1000), ("1e3", 1000), ("1.5", 1.5),
    (".5", 0.5), ("1:20", "1:20"), ("2024-01-02", "2024-01-02"), ("1.2.3", "1.2.3"), ("'yes'", "yes"), ('"12"', "12"),
    ("!!str 12", "12"), ("100m", "100m"), ("- a", ["a"]), ("{a: b}", {"a": "b"}), ("018", 18), ("+1", 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), SCALARS, ids=[text or "empty" for text, _ in SCALARS])
def test_scalars_resolve_as_in_go(text: str, expected: Any) -> None:
    assert read(text.encode()) == (expected, "")


def test_keys_are_texts_sorted_and_the_last_of_repeated_ones_counts() -> None:
    value, repeats = read(b"b: 1\n2: x\ntrue: z\nb: 3\n")
    assert list(value) == ["2", "b", "true"] and value["b"] == 3
    assert repeats == 'yaml: unmarshal errors:\n  line 4: key "b" already set in map'


def test_aliases_and_merges() -> None:
    value, _ = read(b"a: &x {k: 1, l: 2}\nb: *x\nc: {<<: *x, k: 3}\nd: {<<: [{k: 4}, {k: 5, m: 6}]}\n")
    assert value["b"] == {"k": 1, "l": 2}
    assert value["c"] == {"k": 3, "l": 2}
    assert value["d"] == {"k": 4, "m": 6}


def test_only_the_first_document_is_read() -> None:
    assert read(b"a: 1\n---\nb: 2\n") == ({"a": 1}, "")
    assert read(b"") == (None, "")


PAIRS = ("ab", "bc", "cd", "de", "ef")
LEVELS = "".join(f"{above}: &{above} [{','.join([f'*{below}'] * 9)}]\n" for below, above in PAIRS)
HOSTILE = [
    ("billion laughs", ("a: &a [x,x,x,x,x,x,x,x,x]\n" + LEVELS).encode(), "yaml: document contains excessive aliasing"),
    ("deep flow", b"[" * 100_000, "yaml: "),
    ("deep maps", b"{a: " * 50_000, "yaml: "),
    ("deep blocks", b"\n".join(b" " * i + b"a:" for i in range(1000)), "yaml: exceeded max depth (200)"),
    ("itself", b"a: &a [*a]", "yaml: anchor 'a' value contains itself"),
    ("unknown anchor", b"a: *b", "yaml: unknown anchor 'b' referenced"),
    ("many nodes", b"a: [" + b"1," * (MAX_BODY_BYTES // 2 - 9), f"yaml: document has more than {MAX_NODES} nodes"),
    ("list as key", b"? [a]\n: b", "yaml: invalid map key: []interface {}"),
    ("bad merge", b"<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
    ("not finite", b"a: .inf", "json: unsupported value: +Inf"),
    ("control character", b"a: \x01", "yaml: "),
]


@pytest.mark.parametrize(("name", "body", "message"), HOSTILE, ids=[case[0] for case in HOSTILE])
def test_hostile_documents_are_refused_at_once(name: str, body: bytes, message: str) -> None:
    began_s = time.process_time()
    with pytest.raises(YamlError) as caught:
        read(body)
    assert str(caught.value).startswith(message)
    with pytest.raises(StatusError) as refused:
        decode(PODS, body, "application/yaml")
    assert refused.value.code == 400
    assert time.process_time() - began_s < 20


def test_a_large_broken_json_body_is_refused_with_its_place() -> None:
    body = b"[" + b"1," * 500_000
    with pytest.raises(StatusError, match=r"Expecting value: line 1 column \d+") as caught:
        decode(PODS, body)
    assert caught.value.code == 400


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "1" * 4301, "0x" + "f" * 5000, "0b" + "1" * 5000, "9" * 300])
def test_a_number_of_any_length_is_no_fault_of_the_server(number: str) -> None:
    spec = f"spec: {{terminationGracePeriodSeconds: {number}}}"
    body = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\n{spec}".encode()
    with pytest.raises(StatusError) as refused:
        decode(PODS, body, "application/yaml")
    assert refused.value.code == 400
